//! Measurements go to the buckets of their time series: sharded is what lies under the name that clients use.

use chunk_map::{CollectionRouting, Namespace};
use document::{Doc, DocBuf, Value};

use super::target::{self, Aim};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// The collection of the buckets.
pub(super) fn buckets_of(ns: &Namespace) -> Namespace {
    Namespace::new(ns.db(), &format!("system.buckets.{}", ns.coll()))
}

/// The shard of a measurement: that of the bucket that it would open.
pub(super) fn target(measurement: Doc<'_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    let options = routing.timeseries.as_ref().map_or(Doc::empty(), DocBuf::as_doc);
    target::insert(bucket(measurement, options)?.as_doc(), routing)
}

/// As much of a bucket as a shard key can name: `{meta, control: {min: {<time>}}}`.
fn bucket(measurement: Doc<'_>, options: Doc<'_>) -> CommandResult<DocBuf> {
    let time_field = options.get_str("timeField").unwrap_or_default();
    let Some(Value::DateTime(time)) = measurement.get(time_field) else {
        return Err(CommandError::new(
            ErrorCode(5_743_702),
            format!("'{time_field}' must be present and contain a valid BSON UTC datetime value"),
        ));
    };
    let mut bucket = DocBuf::new();
    bucket.write(|w| {
        let meta = options.get_str("metaField").and_then(|name| measurement.field(name));
        if let Some(meta) = meta {
            w.renamed("meta", meta);
        }
        w.doc("control", |w| {
            w.doc("min", |w| w.value(time_field, Value::DateTime(round_down(time, options))));
        });
    });
    Ok(bucket)
}

/// The start of a bucket: whole minutes, hours or days, towards the epoch.
fn round_down(time_ms: i64, options: Doc<'_>) -> i64 {
    let unit = match options.get_str("granularity") {
        Some("minutes") => 3_600,
        Some("hours") => 86_400,
        _ => 60,
    };
    let seconds = time_ms / 1000;
    (seconds - seconds % unit) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_targeted_by_its_bucket() {
        let options = bson::rawdoc! { "timeField": "t", "metaField": "m", "granularity": "minutes" };
        let options = Doc::new(options.as_bytes()).unwrap();
        let time = bson::DateTime::from_millis(1_700_000_123_456);
        let measurement = bson::rawdoc! { "t": time, "m": { "sensor": 5 }, "v": 1 };
        let made = bucket(Doc::new(measurement.as_bytes()).unwrap(), options).unwrap();
        let wanted = bson::rawdoc! {
            "meta": { "sensor": 5 },
            "control": { "min": { "t": bson::DateTime::from_millis(1_699_999_200_000) } },
        };
        assert_eq!(made.as_bytes(), wanted.as_bytes());
        let no_time = bson::rawdoc! { "t": 5, "m": 1 };
        let error = bucket(Doc::new(no_time.as_bytes()).unwrap(), options).unwrap_err();
        assert_eq!(error.code().0, 5_743_702);
    }
}
