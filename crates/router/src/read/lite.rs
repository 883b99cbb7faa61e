//! What mongos itself finds wrong with a stage while it looks for the namespaces in a pipeline, before any shard is asked
//! and wherever the pipeline stands: in an aggregate, nested in a stage, in an update. Codes and texts as seen on 6.0.5.

use document::{Doc, DocBuf, Field, Value};

use super::pipeline::Stage;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// Refuses an argument that has not the form its stage needs.
pub(super) fn check(stage: &Stage<'_>) -> CommandResult<()> {
    let argument = stage.argument;
    let found = argument.element_type().name();
    match (stage.name, argument) {
        ("$lookup", Value::Document(spec)) => lookup(spec),
        ("$lookup" | "$graphLookup", other) if other.as_doc().is_none() => {
            failed(format!("the {} stage specification must be an object, but found {found}", stage.name))
        }
        ("$graphLookup", Value::Document(spec)) => match spec.get("from") {
            None => failed(format!(
                "missing 'from' option to $graphLookup stage specification: {}",
                crate::admin::shell(spec)
            )),
            Some(from) => from_is_text(stage.name, from),
        },
        ("$unionWith", Value::Document(spec)) => union_with(spec),
        ("$unionWith", Value::String(_)) => Ok(()),
        ("$unionWith", _) => failed(format!(
            "the $unionWith stage specification must be an object or string, but found {found}"
        )),
        ("$facet", Value::Document(spec)) if !spec.is_empty() => facet(spec),
        ("$facet", _) => error(
            40169,
            format!("the $facet specification must be a non-empty object, but found: {}", shown(stage.doc)),
        ),
        ("$collStats", Value::Document(spec)) => coll_stats(spec),
        ("$changeStream", Value::Document(_)) => Ok(()),
        ("$collStats", _) => {
            error(5_447_000, format!("$collStats must take a nested object but found: {}", shown(stage.doc)))
        }
        ("$changeStream", _) => error(
            6_188_500,
            format!("$changeStream must take a nested object but found: {}", shown(stage.doc)),
        ),
        ("$currentOp", Value::Document(spec)) => current_op(spec),
        ("$listLocalSessions" | "$listSessions", Value::Document(spec)) => {
            only(stage.name, spec, &["users", "allUsers", "$_internalPredicate"])
        }
        ("$currentOp" | "$listLocalSessions" | "$listSessions", _) => Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!("{} options must be specified in an object, but found: {found}", stage.name),
        )),
        ("$out", Value::Document(spec)) => out(spec),
        ("$out", Value::String(_)) => Ok(()),
        ("$out", _) => {
            error(16990, format!("$out only supports a string or object argument, but found {found}"))
        }
        ("$merge", Value::Document(spec)) => merge(spec),
        ("$merge", Value::String(_)) => Ok(()),
        ("$merge", _) => Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!("$merge requires a string or object argument, but found {found}"),
        )),
        _ => Ok(()),
    }
}

fn error(code: i32, text: impl Into<String>) -> CommandResult<()> {
    Err(CommandError::new(ErrorCode(code), text))
}

fn failed(text: String) -> CommandResult<()> {
    Err(CommandError::failed_to_parse(text))
}

/// `$name: argument`
fn shown(stage: Doc<'_>) -> String {
    let text = crate::admin::shell(stage);
    text.trim_start_matches("{ ").trim_end_matches(" }").to_owned()
}

fn shown_field(field: Field<'_>) -> String {
    let mut doc = DocBuf::new();
    doc.append_elements(field.raw());
    let text = crate::admin::shell(doc.as_doc());
    text.strip_prefix("{ ").and_then(|text| text.strip_suffix(" }")).unwrap_or(&text).to_owned()
}

fn only(stage: &str, spec: Doc<'_>, known: &[&str]) -> CommandResult<()> {
    match spec.iter().find(|field| !known.contains(&field.name())) {
        None => Ok(()),
        Some(field) => error(40415, format!("BSON field '{stage}.{}' is an unknown field.", field.name())),
    }
}

fn from_is_text(stage: &str, from: Value<'_>) -> CommandResult<()> {
    match from {
        Value::String(_) => Ok(()),
        other => failed(format!(
            "{stage} 'from' field must be a string, but found {}",
            other.element_type().name()
        )),
    }
}

fn lookup(spec: Doc<'_>) -> CommandResult<()> {
    match spec.get("from") {
        None if !spec.contains("pipeline") => {
            failed("must specify 'pipeline' when 'from' is empty".to_owned())
        }
        None => Ok(()),
        // Of internal collections only; which of them, the server knows.
        Some(Value::Document(from)) => {
            let db = from.get_str("db").unwrap_or_default();
            let coll = from.get_str("coll").unwrap_or_default();
            if db.is_empty() || matches!(db, "config" | "local") {
                return Ok(());
            }
            failed(format!(
                "$lookup with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {db} and coll: {coll}"
            ))
        }
        Some(from) => from_is_text("$lookup", from),
    }?;
    match spec.get("pipeline") {
        None | Some(Value::Array(_)) => Ok(()),
        Some(_) => {
            Err(CommandError::new(ErrorCode::TypeMismatch, "'pipeline' option must be specified as an array"))
        }
    }
}

fn coll_stats(spec: Doc<'_>) -> CommandResult<()> {
    let known = ["latencyStats", "storageStats", "count", "queryExecStats"];
    only("$collStats", spec, &known)?;
    match spec.iter().find(|field| field.value().as_doc().is_none()) {
        None => Ok(()),
        Some(field) => {
            let path = format!("$collStats.{}", field.name());
            Err(CommandError::wrong_type(&path, field.value(), "object"))
        }
    }
}

fn union_with(spec: Doc<'_>) -> CommandResult<()> {
    only("$unionWith", spec, &["coll", "pipeline"])?;
    match spec.get("coll") {
        None | Some(Value::String(_)) => {}
        Some(other) => return Err(CommandError::wrong_type("$unionWith.coll", other, "string")),
    }
    let documents = match spec.get("pipeline") {
        None => false,
        Some(Value::Array(stages)) => stages
            .first()
            .and_then(|stage| stage.value().as_doc())
            .and_then(|stage| stage.first())
            .is_some_and(|stage| stage.name() == "$documents"),
        Some(other) => return Err(CommandError::wrong_type("$unionWith.pipeline", other, "array")),
    };
    if spec.contains("coll") || documents {
        return Ok(());
    }
    failed(
        "$unionWith stage without explicit collection must have a pipeline with $documents as first stage"
            .to_owned(),
    )
}

fn facet(spec: Doc<'_>) -> CommandResult<()> {
    for facet in spec {
        let name = facet.name();
        if name.is_empty() {
            return error(15998, "FieldPath field names may not be empty strings.");
        }
        if name.starts_with('$') {
            return error(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            );
        }
        if name.contains('.') {
            return error(
                16412,
                "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
            );
        }
        let Value::Array(stages) = facet.value() else {
            let found = facet.value().element_type().name();
            return error(40170, format!("arguments to $facet must be arrays, {name} is type {found}"));
        };
        let empty = |stage: &Field<'_>| stage.value().as_doc().is_none_or(Doc::is_empty);
        if let Some(stage) = stages.iter().find(empty) {
            return error(
                40171,
                format!(
                    "elements of arrays in $facet spec must be non-empty objects, {name} argument contained an element of type {}: {}",
                    stage.value().element_type().name(),
                    shown_field(stage)
                ),
            );
        }
    }
    Ok(())
}

fn current_op(spec: Doc<'_>) -> CommandResult<()> {
    for field in spec {
        let found = field.value().element_type().name();
        if matches!(field.name(), "allUsers" | "localOps") && field.value().as_bool().is_none() {
            return Err(CommandError::new(
                ErrorCode::TypeMismatch,
                format!(
                    "The '{}' parameter of the $currentOp stage must be a boolean value, but found: {found}",
                    field.name()
                ),
            ));
        }
    }
    Ok(())
}

fn out(spec: Doc<'_>) -> CommandResult<()> {
    let (Some(db), Some(coll), 2) = (spec.get("db"), spec.get("coll"), spec.iter().count()) else {
        return error(16994, "If an object is passed to $out it must have exactly 2 fields: 'db' and 'coll'");
    };
    for (name, value) in [("db", db), ("coll", coll)] {
        if value.as_str().is_none() {
            let found = value.element_type().name();
            return error(13111, format!("wrong type for field ({name}) {found} != string"));
        }
    }
    Ok(())
}

fn merge(spec: Doc<'_>) -> CommandResult<()> {
    only("$merge", spec, &["into", "on", "let", "whenMatched", "whenNotMatched", "targetCollectionVersion"])?;
    for field in spec {
        let value = field.value();
        let found = value.element_type().name();
        match (field.name(), value) {
            ("into", Value::String(_) | Value::Document(_)) | ("let", Value::Document(_)) => Ok(()),
            ("into", _) => error(
                51178,
                format!("$merge 'into' field  must be either a string or an object, but found {found}"),
            ),
            ("let", other) => Err(CommandError::wrong_type("$merge.let", other, "object")),
            ("whenMatched", Value::String(_)) => {
                one_of("whenMatched", value, &["fail", "merge", "keepExisting", "replace", "pipeline"])
            }
            ("whenMatched", Value::Array(_)) => Ok(()),
            ("whenMatched", _) => error(
                51191,
                format!("$merge 'whenMatched' field  must be either a string or an array, but found {found}"),
            ),
            ("whenNotMatched", Value::String(_)) => {
                one_of("$merge.whenNotMatched", value, &["insert", "discard", "fail"])
            }
            ("whenNotMatched", other) => {
                Err(CommandError::wrong_type("$merge.whenNotMatched", other, "string"))
            }
            ("on", on) => super::output::on_fields(on).map(|_| ()),
            _ => Ok(()),
        }?;
    }
    if spec.contains("into") {
        return Ok(());
    }
    error(40414, "BSON field '$merge.into' is missing but a required field")
}

fn one_of(field: &str, value: Value<'_>, known: &[&str]) -> CommandResult<()> {
    let text = value.as_str().unwrap_or_default();
    if known.contains(&text) {
        return Ok(());
    }
    Err(CommandError::bad_value(format!(
        "Enumeration value '{text}' for field '{field}' is not a valid value."
    )))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::read::pipeline;

    #[test]
    fn arguments_without_the_stages_form_are_refused_before_a_shard_is_asked() {
        for (stage, code) in [
            (rawdoc! { "$lookup": 5 }, 9),
            (rawdoc! { "$lookup": { "as": "x" } }, 9),
            (rawdoc! { "$lookup": { "from": 5, "as": "x" } }, 9),
            (rawdoc! { "$lookup": { "from": "u", "as": "x", "pipeline": 5 } }, 14),
            (rawdoc! { "$graphLookup": "x" }, 9),
            (rawdoc! { "$graphLookup": {} }, 9),
            (rawdoc! { "$unionWith": 5 }, 9),
            (rawdoc! { "$unionWith": { "coll": 5 } }, 14),
            (rawdoc! { "$unionWith": { "pipeline": [] } }, 9),
            (rawdoc! { "$unionWith": { "coll": "u", "more": 1 } }, 40415),
            (rawdoc! { "$facet": {} }, 40169),
            (rawdoc! { "$facet": { "a": 5 } }, 40170),
            (rawdoc! { "$facet": { "a": [5] } }, 40171),
            (rawdoc! { "$facet": { "a.b": [] } }, 16412),
            (rawdoc! { "$facet": { "a": [{ "$lookup": 5 }] } }, 9),
            (rawdoc! { "$lookup": { "from": { "db": "e", "coll": "u" }, "as": "x" } }, 9),
            (rawdoc! { "$collStats": 5 }, 5_447_000),
            (rawdoc! { "$collStats": { "count": 5 } }, 14),
            (rawdoc! { "$collStats": { "more": {} } }, 40415),
            (rawdoc! { "$changeStream": [] }, 6_188_500),
            (rawdoc! { "$currentOp": { "allUsers": 5 } }, 14),
            (rawdoc! { "$listSessions": "x" }, 14),
            (rawdoc! { "$listLocalSessions": { "x": 1 } }, 40415),
            (rawdoc! { "$out": 5 }, 16990),
            (rawdoc! { "$out": { "db": "d" } }, 16994),
            (rawdoc! { "$out": { "db": "d", "coll": 5 } }, 13111),
            (rawdoc! { "$merge": true }, 14),
            (rawdoc! { "$merge": {} }, 40414),
            (rawdoc! { "$merge": { "into": 5 } }, 51178),
            (rawdoc! { "$merge": { "into": "z", "on": [5] } }, 51134),
            (rawdoc! { "$merge": { "into": "z", "whenMatched": "no" } }, 2),
            (rawdoc! { "$merge": { "into": "z", "whenMatched": [5] } }, 14),
        ] {
            let pipeline = rawdoc! { "p": [stage.clone()] };
            let array = Doc::new(pipeline.get_array("p").unwrap().as_bytes()).unwrap();
            assert_eq!(pipeline::check_update(array).unwrap_err().code().0, code, "{stage:?}");
            assert_eq!(pipeline::parse(array).unwrap_err().code().0, code, "{stage:?}");
        }
    }

    #[test]
    fn an_argument_is_shown_as_the_server_shows_it() {
        let stage = rawdoc! { "$facet": [1] };
        assert_eq!(shown(Doc::new(stage.as_bytes()).unwrap()), "$facet: [ 1 ]");
    }
}
