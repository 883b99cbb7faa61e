//! `readConcern`: whether it says something, and something that this command can do.
//!
//! Every command's is read, also where nobody uses it, as servers do; order of the checks and texts are those of 6.0.5.

use document::{Doc, DocBuf, Field, Timestamp, Value};

use super::Command;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::request::Request;

const LEVELS: [&str; 5] = ["local", "majority", "linearizable", "available", "snapshot"];
/// Who chose a concern. Only servers have a reason to say it, but they take it from everybody.
const PROVENANCES: [&str; 4] = ["clientSupplied", "implicitDefault", "customDefault", "getLastErrorDefaults"];

/// Refuses a `readConcern` that no server would take, or that is too much for the command.
pub(super) fn check(command: &Command, request: &Request<'_>) -> CommandResult<()> {
    let Some(concern) = request.generic.read_concern else { return Ok(()) };
    check_form(concern)?;
    if request.in_transaction() || takes_any_level(command) {
        return Ok(());
    }
    if concern.get_str("level").is_none_or(|level| level == "local") {
        return Ok(());
    }
    let mut said = DocBuf::from(concern);
    said.append("provenance", "clientSupplied");
    Err(CommandError::invalid_options(format!(
        "Command {} does not support {{ readConcern: {} }} :: caused by :: read concern not supported",
        command.name,
        crate::admin::shell(said.as_doc())
    )))
}

/// Only queries know another level than `local`; the first statement of a transaction speaks for all of it.
fn takes_any_level(command: &Command) -> bool {
    matches!(command.name, "find" | "getMore" | "aggregate" | "distinct" | "count" | "mapReduce" | "explain")
}

fn check_form(concern: Doc<'_>) -> CommandResult<()> {
    let (mut level, mut at, mut after, mut after_op) = (None, None, None, false);
    for field in concern.iter() {
        match field.name() {
            "level" => level = Some(self::level(field)?),
            "atClusterTime" => at = Some(time(field)?),
            "afterClusterTime" => after = Some(time(field)?),
            "afterOpTime" => {
                let time = field.value().as_doc().ok_or_else(|| wrong_type(field, "object"))?;
                for name in ["ts", "t"] {
                    if !time.contains(name) {
                        return Err(missing(name));
                    }
                }
                after_op = true;
            }
            "provenance" => provenance(field)?,
            other => {
                return Err(CommandError::invalid_options(format!(
                    "Unrecognized option in readConcern: {other}"
                )));
            }
        }
    }
    let refuse = |text: &str| Err(CommandError::invalid_options(text));
    if after.is_some() && after_op {
        return refuse("Can not specify both afterClusterTime and afterOpTime");
    }
    if at.is_some() && after.is_some() {
        return refuse(
            "Specifying a timestamp for readConcern snapshot in a causally consistent session is not allowed. See \
             https://docs.mongodb.com/manual/core/read-isolation-consistency-recency/#causal-consistency",
        );
    }
    if after.is_some() && !matches!(level, None | Some("local" | "majority" | "snapshot")) {
        return refuse(
            "afterClusterTime field can be set only if level is equal to majority, local, or snapshot",
        );
    }
    if at.is_some() && level != Some("snapshot") {
        return refuse("atClusterTime field can be set only if level is equal to snapshot");
    }
    for (name, time) in [("afterClusterTime", after), ("atClusterTime", at)] {
        if time == Some(Timestamp::from_u64(0)) {
            return refuse(&format!("{name} cannot be a null timestamp"));
        }
    }
    Ok(())
}

fn level(field: Field<'_>) -> CommandResult<&str> {
    let level = field.value().as_str().ok_or_else(|| wrong_type(field, "string"))?;
    if LEVELS.contains(&level) {
        return Ok(level);
    }
    Err(CommandError::failed_to_parse(
        "readConcern.level must be either 'local', 'majority', 'linearizable', 'available', or 'snapshot'",
    ))
}

fn time(field: Field<'_>) -> CommandResult<Timestamp> {
    field.value().as_timestamp().ok_or_else(|| wrong_type(field, "timestamp"))
}

fn provenance(field: Field<'_>) -> CommandResult<()> {
    const NAME: &str = "ReadConcernArgs::parse.provenance";
    match field.value() {
        Value::String(_) if field.value().as_str().is_some_and(|name| PROVENANCES.contains(&name)) => Ok(()),
        Value::String(name) => Err(CommandError::bad_value(format!(
            "Enumeration value '{}' for field '{NAME}' is not a valid value.",
            String::from_utf8_lossy(name)
        ))),
        other => Err(CommandError::wrong_type(NAME, other, "string")),
    }
}

fn wrong_type(field: Field<'_>, expected: &str) -> CommandError {
    CommandError::new(
        ErrorCode::TypeMismatch,
        format!(
            "\"{}\" had the wrong type. Expected {expected}, found {}",
            field.name(),
            field.value().element_type().name()
        ),
    )
}

fn missing(name: &str) -> CommandError {
    CommandError::new(ErrorCode::NoSuchKey, format!("Missing expected field \"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(concern: &bson::RawDocumentBuf) -> Result<(), i32> {
        check_form(Doc::new(concern.as_bytes()).unwrap()).map_err(|error| error.code().0)
    }

    #[test]
    fn concerns_are_judged_as_by_a_server() {
        let time = |time| bson::Timestamp { time, increment: 1 };
        let none = bson::Timestamp { time: 0, increment: 0 };
        for (concern, expected) in [
            (bson::rawdoc! {}, Ok(())),
            (bson::rawdoc! { "level": "majority", "afterClusterTime": time(1) }, Ok(())),
            (bson::rawdoc! { "level": "snapshot", "atClusterTime": time(1) }, Ok(())),
            (bson::rawdoc! { "afterClusterTime": time(1), "provenance": "clientSupplied" }, Ok(())),
            (bson::rawdoc! { "afterOpTime": { "ts": time(1), "t": 1_i64 } }, Ok(())),
            (bson::rawdoc! { "level": "brand new" }, Err(9)),
            (bson::rawdoc! { "level": 5 }, Err(14)),
            (bson::rawdoc! { "level": bson::RawBson::Null }, Err(14)),
            (bson::rawdoc! { "levels": "local" }, Err(72)),
            (bson::rawdoc! { "level": "y", "levels": 1 }, Err(9)),
            (bson::rawdoc! { "levels": 1, "level": "y" }, Err(72)),
            (bson::rawdoc! { "afterClusterTime": 5 }, Err(14)),
            (bson::rawdoc! { "afterClusterTime": none }, Err(72)),
            (bson::rawdoc! { "level": "snapshot", "atClusterTime": none }, Err(72)),
            (bson::rawdoc! { "level": "available", "afterClusterTime": time(1) }, Err(72)),
            (bson::rawdoc! { "atClusterTime": time(1) }, Err(72)),
            (
                bson::rawdoc! { "level": "snapshot", "atClusterTime": time(1), "afterClusterTime": time(1) },
                Err(72),
            ),
            (bson::rawdoc! { "afterOpTime": {} }, Err(4)),
            (bson::rawdoc! { "afterOpTime": 1 }, Err(14)),
            (bson::rawdoc! { "provenance": "nobody" }, Err(2)),
            (bson::rawdoc! { "provenance": 1 }, Err(14)),
        ] {
            assert_eq!(verdict(&concern), expected, "{concern:?}");
        }
    }
}
