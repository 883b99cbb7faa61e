//! Writes of a sharded time series: sharded are the buckets that lie under the name that clients use.
//!
//! A measurement goes to the shard of the bucket that it would open. An update or delete may name the metaField only,
//! which buckets call `meta`, and concerns all measurements of a bucket; shards translate it (`isTimeseriesNamespace`)
//! and refuse whatever else it says. Here it is translated as far as targeting needs it.

use chunk_map::{CollectionRouting, Namespace};
use document::{Doc, DocBuf, DocWriter, Value};

use super::statement::{Delete, Statement, Update};
use super::target::{self, Aim};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// The collection of the buckets.
pub(super) fn buckets_of(ns: &Namespace) -> Namespace {
    Namespace::new(ns.db(), &format!("system.buckets.{}", ns.coll()))
}

/// The shards that a statement concerns.
pub(super) fn target(statement: Statement<'_, '_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    let options = routing.timeseries.as_ref().map_or(Doc::empty(), DocBuf::as_doc);
    let buckets = |query| bucket_query(query, options.get_str("metaField").unwrap_or_default());
    match statement {
        Statement::Insert(measurement) => target::insert(bucket(measurement, options)?.as_doc(), routing),
        Statement::Update(update) => {
            check(update)?;
            let query = buckets(update.query);
            target::target(Statement::Update(&Update { query: query.as_doc(), ..*update }), routing)
        }
        Statement::Delete(delete) if !delete.multi => Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "Cannot perform a non-multi delete on a time-series collection",
        )),
        Statement::Delete(delete) => {
            let query = buckets(delete.query);
            target::target(Statement::Delete(&Delete { query: query.as_doc(), ..*delete }), routing)
        }
    }
}

/// What mongos refuses by itself (6.0.5).
fn check(update: &Update<'_>) -> CommandResult<()> {
    let refused = match (update.multi, update.upsert) {
        (false, _) => "A {multi:false}",
        (true, true) => "An {upsert:true}",
        (true, false) => return Ok(()),
    };
    let text = format!("{refused} update on a sharded timeseries collection is disallowed.");
    Err(CommandError::invalid_options(text))
}

/// What a query for measurements says of buckets' `meta`. Conditions on other fields are left out, so that it matches
/// more, never less: the shards refuse them.
fn bucket_query(query: Doc<'_>, meta_field: &str) -> DocBuf {
    let mut translated = DocBuf::new();
    translated.write(|w| translate(w, query, meta_field));
    translated
}

fn translate(w: &mut DocWriter<'_>, query: Doc<'_>, meta_field: &str) {
    for field in query {
        let name = field.name();
        match (name, field.value()) {
            ("$and" | "$or", Value::Array(branches)) => w.array(name, branches, |w, index, branch| {
                let branch = branch.value().as_doc().unwrap_or(Doc::empty());
                w.doc(index, |w| translate(w, branch, meta_field));
            }),
            _ => match name.strip_prefix(meta_field) {
                _ if meta_field.is_empty() => {}
                Some("") => w.renamed("meta", field),
                Some(rest) if rest.starts_with('.') => w.renamed(&format!("meta{rest}"), field),
                _ => {}
            },
        }
    }
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
    fn a_query_says_of_buckets_what_it_says_of_the_meta_field() {
        for (query, wanted) in [
            (bson::rawdoc! { "m": 1, "v": 2, "meta": 3, "ma": 4 }, bson::rawdoc! { "meta": 1 }),
            (bson::rawdoc! { "m.a": { "$gt": 1 } }, bson::rawdoc! { "meta.a": { "$gt": 1 } }),
            (
                bson::rawdoc! { "$or": [{ "m": 1 }, { "v": 1 }, { "$and": [{ "m.a": 1 }, { "t": 1 }] }] },
                bson::rawdoc! { "$or": [{ "meta": 1 }, {}, { "$and": [{ "meta.a": 1 }, {}] }] },
            ),
            (bson::rawdoc! { "$nor": [{ "m": 1 }], "$expr": { "$eq": ["$m", 1] } }, bson::rawdoc! {}),
        ] {
            let made = bucket_query(Doc::new(query.as_bytes()).unwrap(), "m");
            assert_eq!(made.as_bytes(), wanted.as_bytes(), "{query:?}");
            let without = bucket_query(Doc::new(query.as_bytes()).unwrap(), "");
            assert!(!format!("{:?}", without.as_doc()).contains("meta"), "{query:?}");
        }
    }

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
