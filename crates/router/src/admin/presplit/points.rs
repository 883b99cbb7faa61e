//! Split points from a list, or from prefixes of the shard key and months.

use document::{Doc, DocBuf, Value};
use shard_key::{KeyPattern, ShardKey};

use super::documents;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::shard_key_error;

/// Most points of one command: each of them is a chunk of its own for ever.
const MAX_POINTS: usize = 10_000;
const DAY_MS: i64 = 86_400_000;

/// The keys in order, each once.
pub(super) fn points(body: Doc<'_>, pattern: &KeyPattern) -> CommandResult<Vec<ShardKey>> {
    let mut bounds: Vec<DocBuf> = documents(body, "points")?.into_iter().map(DocBuf::from).collect();
    let prefixes = documents(body, "prefixes")?;
    match body.get_doc("months") {
        Some(rule) => {
            let months = Months::parse(rule)?;
            // Without prefixes the months stand at the front of the key.
            let prefixes = if prefixes.is_empty() { vec![Doc::empty()] } else { prefixes };
            for prefix in prefixes {
                for start in months.starts()? {
                    let mut bound = DocBuf::from(prefix);
                    bound.append(months.field, Value::DateTime(start));
                    bounds.push(bound);
                }
            }
        }
        None => bounds.extend(prefixes.into_iter().map(DocBuf::from)),
    }
    if bounds.is_empty() {
        return Err(CommandError::bad_value("name points, prefixes or months"));
    }
    if bounds.len() > MAX_POINTS {
        return Err(CommandError::bad_value(format!("{} points are more than {MAX_POINTS}", bounds.len())));
    }
    let mut keys = Vec::with_capacity(bounds.len());
    for bound in &bounds {
        check_hashed(pattern, bound.as_doc())?;
        keys.push(pattern.extend_bound(bound.as_doc()).map_err(shard_key_error)?);
    }
    keys.sort_by(ShardKey::order);
    keys.dedup_by(|a, b| a.order(b).is_eq());
    if keys.iter().any(|key| key.is_all_min_key() || key.is_all_max_key()) {
        return Err(CommandError::bad_value("the ends of the key space are no split points"));
    }
    Ok(keys)
}

/// Chunks of a hashed field are bounded by hashes, not by values.
fn check_hashed(pattern: &KeyPattern, bound: Doc<'_>) -> CommandResult<()> {
    for (known, field) in pattern.fields().iter().zip(bound) {
        let is_hash = matches!(field.value(), Value::Int64(_) | Value::MinKey | Value::MaxKey);
        if known.hashed && !is_hash {
            return Err(CommandError::bad_value(format!(
                "the field {} is hashed: its split points are hashes, of type long",
                known.path
            )));
        }
    }
    Ok(())
}

/// `{field, from, to}`: the first moments of the months from that of `from` to before `to`, in UTC.
struct Months<'a> {
    field: &'a str,
    from: i64,
    to: i64,
}

impl<'a> Months<'a> {
    fn parse(rule: Doc<'a>) -> CommandResult<Self> {
        let date = |name: &str| match rule.get(name) {
            Some(Value::DateTime(ms)) => Ok(ms),
            Some(other) => Err(CommandError::wrong_type(&format!("months.{name}"), other, "date")),
            None => Err(CommandError::bad_value(format!("months needs {name}, a date"))),
        };
        let field = rule.get_str("field").ok_or_else(|| CommandError::bad_value("months needs field"))?;
        Ok(Self { field, from: date("from")?, to: date("to")? })
    }

    fn starts(&self) -> CommandResult<Vec<i64>> {
        let (mut year, mut month) = month_of(self.from.div_euclid(DAY_MS));
        let mut starts = Vec::new();
        loop {
            let start = first_day(year, month) * DAY_MS;
            if start >= self.to {
                break;
            }
            starts.push(start);
            if starts.len() > MAX_POINTS {
                return Err(CommandError::bad_value("months from and to are too far apart"));
            }
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        if starts.is_empty() {
            return Err(CommandError::bad_value("there is no month between from and to"));
        }
        Ok(starts)
    }
}

/// Days since 1970-01-01 of the first day of a month, in the Gregorian calendar. Years begin in March here, so that
/// a leap day is the last of its year.
const fn first_day(year: i64, month: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year and month of a day.
const fn month_of(days: i64) -> (i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let year = year_of_era + era * 400;
    if month < 10 { (year, month + 3) } else { (year + 1, month - 9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(body: &bson::RawDocumentBuf, pattern: &bson::RawDocumentBuf) -> CommandResult<Vec<String>> {
        let pattern = KeyPattern::parse(Doc::new(pattern.as_bytes()).unwrap()).unwrap();
        let keys = points(Doc::new(body.as_bytes()).unwrap(), &pattern)?;
        Ok(keys.iter().map(|key| crate::admin::shell(pattern.name_fields(key.as_doc()).as_doc())).collect())
    }

    fn date(text: &str) -> bson::DateTime {
        bson::DateTime::parse_rfc3339_str(text).unwrap()
    }

    #[test]
    fn days_and_months_agree() {
        assert_eq!((first_day(1970, 1), first_day(2000, 3), first_day(2024, 3)), (0, 11_017, 19_783));
        for day in (-200_000..200_000).step_by(17) {
            let (year, month) = month_of(day);
            let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            assert!(first_day(year, month) <= day && day < first_day(next_year, next), "{day}");
        }
    }

    #[test]
    fn points_are_sorted_completed_and_kept_once() {
        let pattern = bson::rawdoc! { "a": 1, "b": 1 };
        let body = bson::rawdoc! { "points": [{ "a": 5 }, { "a": 1, "b": 2 }, { "a": 5.0 }] };
        assert_eq!(keys(&body, &pattern).unwrap(), ["{ a: 1, b: 2 }", "{ a: 5, b: MinKey }"]);
    }

    #[test]
    fn each_prefix_gets_each_month() {
        let pattern = bson::rawdoc! { "node": 1, "t": 1 };
        let (from, to) = (date("2025-11-15T00:00:00Z"), date("2026-02-01T00:00:00Z"));
        let body = bson::rawdoc! {
            "prefixes": [{ "node": "x" }, { "node": "y" }], "months": { "field": "t", "from": from, "to": to },
        };
        let keys = keys(&body, &pattern).unwrap();
        assert_eq!(keys.len(), 6);
        let first = date("2025-11-01T00:00:00Z").timestamp_millis();
        assert_eq!(keys[0], format!("{{ node: \"x\", t: new Date({first}) }}"));
    }

    #[test]
    fn what_makes_no_points_is_refused() {
        let pattern = bson::rawdoc! { "a": 1, "b": "hashed" };
        for body in [
            bson::rawdoc! {},
            bson::rawdoc! { "points": [] },
            bson::rawdoc! { "points": [5] },
            bson::rawdoc! { "points": [{ "x": 1 }] },
            bson::rawdoc! { "points": [{ "a": bson::RawBson::MinKey }] },
            bson::rawdoc! { "points": [{ "a": 1, "b": 1 }] },
            bson::rawdoc! { "months": { "field": "a" } },
            bson::rawdoc! { "months": { "field": "a", "from": date("2026-01-01T00:00:00Z"), "to": date("2025-01-01T00:00:00Z") } },
        ] {
            assert!(keys(&body, &pattern).is_err(), "{body:?}");
        }
    }
}
