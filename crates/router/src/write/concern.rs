//! The client's write concern, checked here: a shard's refusal would come once a child and look like a failed write.

use document::{Doc, Value};

use super::options::unknown_field;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// Most members of a replica set.
const MAX_MEMBERS: f64 = 50.0;

/// Refuses what is no write concern (texts seen on 6.0.5).
pub(crate) fn check(concern: Option<Doc<'_>>) -> CommandResult<()> {
    let (mut fsync, mut journal) = (false, false);
    for field in concern.unwrap_or(Doc::empty()) {
        let value = field.value();
        match field.name() {
            "w" => check_w(value)?,
            "j" => journal = flag("j", value)?,
            "fsync" => fsync = flag("fsync", value)?,
            "wtimeout" => {
                let too_long = |ms: f64| ms.abs() > f64::from(i32::MAX);
                if as_f64(value).is_some_and(too_long) {
                    return Err(CommandError::failed_to_parse("wtimeout must be a 32-bit integer"));
                }
            }
            "provenance" => check_provenance(value)?,
            "wElectionId" | "wOpTime" | "getLastError" => {}
            name => return Err(unknown_field("WriteConcernOptions", name)),
        }
    }
    if fsync && journal {
        return Err(CommandError::failed_to_parse("fsync and j options cannot be used together"));
    }
    Ok(())
}

/// Does the client not want to know what becomes of its write?
pub(crate) fn is_unacknowledged(concern: Option<Doc<'_>>) -> bool {
    concern.and_then(|concern| concern.get_i64("w")) == Some(0)
}

fn check_w(value: Value<'_>) -> CommandResult<()> {
    match value {
        Value::String(_) | Value::Null | Value::Undefined => Ok(()),
        Value::Document(tags) if tags.is_empty() => {
            Err(CommandError::failed_to_parse("tagged write concern requires tags"))
        }
        Value::Document(tags) => match tags.iter().find(|tag| !tag.value().is_number()) {
            None => Ok(()),
            Some(tag) => Err(CommandError::failed_to_parse(format!(
                "tags must be a single level document with only number values; found: {}",
                tag.name()
            ))),
        },
        number => match as_f64(number) {
            Some(w) if (0.0..=MAX_MEMBERS).contains(&w) => Ok(()),
            Some(w) => Err(CommandError::failed_to_parse(format!(
                "w has to be a non-negative number and not greater than {MAX_MEMBERS}; found: {w}"
            ))),
            None => Err(CommandError::failed_to_parse(format!(
                "w has to be a number, string, or object; found: {}",
                number.element_type().name()
            ))),
        },
    }
}

fn flag(name: &str, value: Value<'_>) -> CommandResult<bool> {
    match value {
        Value::Bool(_) | Value::Null | Value::Undefined => Ok(value.is_truthy()),
        number if number.is_number() => Ok(number.is_truthy()),
        other => Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field 'WriteConcernOptions.{name}' is the wrong type '{}', expected types '[bool, long, int, decimal, double']",
                other.element_type().name()
            ),
        )),
    }
}

fn check_provenance(value: Value<'_>) -> CommandResult<()> {
    let text = value.as_str().unwrap_or_default();
    match text {
        "clientSupplied"
        | "implicitDefault"
        | "customDefault"
        | "getLastErrorDefaults"
        | "internalWriteDefault" => Ok(()),
        other => Err(CommandError::bad_value(format!(
            "Enumeration value '{other}' for field 'WriteConcernOptions.provenance' is not a valid value."
        ))),
    }
}

fn as_f64(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Double(n) => Some(n),
        Value::Int32(n) => Some(f64::from(n)),
        // Only compared with small bounds.
        #[allow(clippy::cast_precision_loss)]
        other => other.as_i64().map(|n| n as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_concerns_are_refused_with_the_servers_codes() {
        let code = |doc: &bson::RawDocumentBuf| {
            check(Some(Doc::new(doc.as_bytes()).unwrap())).map_or_else(|error| error.code().0, |()| 0)
        };
        for (doc, wanted) in [
            (bson::rawdoc! { "w": 1, "foo": 1 }, 40415),
            (bson::rawdoc! { "w": [1] }, 9),
            (bson::rawdoc! { "w": -1 }, 9),
            (bson::rawdoc! { "w": 51 }, 9),
            (bson::rawdoc! { "w": true }, 9),
            (bson::rawdoc! { "w": { "a": "x" } }, 9),
            (bson::rawdoc! { "j": "x" }, 14),
            (bson::rawdoc! { "j": true, "fsync": true }, 9),
            (bson::rawdoc! { "wtimeout": 1_i64 << 40 }, 9),
            (bson::rawdoc! { "w": 1, "provenance": "x" }, 2),
            (bson::rawdoc! { "w": 1.5, "j": 1, "wtimeout": "x", "provenance": "customDefault" }, 0),
            (bson::rawdoc! { "w": { "a": 1 } }, 0),
        ] {
            assert_eq!(code(&doc), wanted, "{doc:?}");
        }
    }
}
