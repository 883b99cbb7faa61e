//! The options of an aggregate: what they may be, and which of them shards get as they are.

use bytes::BytesMut;
use document::splice::{self, Keep};
use document::{Doc, Value};

use super::find_spec::{count, flag};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::request::is_generic;

/// Fields of the client's command that are neither read here nor generic.
pub(super) fn options(body: Doc<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    splice::copy_fields(body, &mut out, |name| match name {
        b"aggregate"
        | b"pipeline"
        | b"cursor"
        | b"collation"
        | b"let"
        | b"allowDiskUse"
        | b"explain"
        | b"fromMongos"
        | b"needsMerge"
        | b"exchange"
        | b"runtimeConstants"
        | b"isMapReduceCommand" => Keep::No,
        _ if is_generic(name) => Keep::No,
        _ => Keep::Yes,
    });
    out
}

/// What mongos refuses before it looks at the pipeline (6.0.5's texts).
pub(super) fn check_arguments(body: Doc<'_>, explained: bool) -> CommandResult<()> {
    let mut internal = false;
    for field in body.iter().skip(1) {
        let (name, value) = (field.name(), field.value());
        let is_null = value == Value::Null;
        match name {
            "allowDiskUse" | "isMapReduceCommand" => {
                flag(name, value)?;
            }
            "fromMongos" => internal |= flag(name, value)?,
            "needsMerge" if flag(name, value)? && !body.get("fromMongos").is_some_and(Value::is_truthy) => {
                return Err(CommandError::failed_to_parse(
                    "Cannot specify 'needsMerge' without 'fromMongos'",
                ));
            }
            "explain" if value.as_bool().is_none() => {
                return Err(CommandError::new(ErrorCode::TypeMismatch, "explain must be a boolean"));
            }
            "collation" | "let" | "exchange" | "runtimeConstants" if !is_null => {
                let Some(doc) = value.as_doc() else {
                    return Err(CommandError::wrong_type(&format!("aggregate.{name}"), value, "object"));
                };
                match name {
                    "let" => check_variables(doc)?,
                    "exchange" => {
                        return Err(CommandError::new(
                            ErrorCode(51028),
                            "Cannot specify exchange option to a mongos",
                        ));
                    }
                    "runtimeConstants" => {
                        return Err(CommandError::new(
                            ErrorCode(51143),
                            "Cannot specify runtime constants option to a mongos",
                        ));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    if internal {
        return Err(CommandError::new(
            ErrorCode(51089),
            "Internal parameter(s) [needsMerge, fromMongos] cannot be set to 'true' when sent to mongos",
        ));
    }
    batch_size(body)?;
    if !body.contains("cursor") && !explained {
        return Err(CommandError::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    Ok(())
}

/// Refuses a client's variables by the names that routers and shards give each other: a shard takes them from a router.
pub(super) fn check_variables(variables: Doc<'_>) -> CommandResult<()> {
    const CONSTANTS: &[&str] = &["NOW", "CLUSTER_TIME", "JS_SCOPE", "IS_MR", "USER_ROLES"];
    match variables.iter().find(|field| CONSTANTS.contains(&field.name())) {
        None => Ok(()),
        Some(field) => Err(CommandError::new(
            ErrorCode(4_738_901),
            format!("Attempt to set internal constant: {}", field.name()),
        )),
    }
}

pub(super) fn pipeline_array(body: Doc<'_>) -> CommandResult<Doc<'_>> {
    match body.get("pipeline") {
        Some(Value::Array(array)) => Ok(array),
        Some(_) => {
            Err(CommandError::new(ErrorCode::TypeMismatch, "'pipeline' option must be specified as an array"))
        }
        None => Err(CommandError::new(
            ErrorCode(40414),
            "BSON field 'aggregate.pipeline' is missing but a required field",
        )),
    }
}

pub(super) fn batch_size(body: Doc<'_>) -> CommandResult<Option<u64>> {
    let cursor = match body.get("cursor") {
        Some(Value::Document(cursor)) => cursor,
        Some(_) => {
            return Err(CommandError::new(
                ErrorCode::TypeMismatch,
                "cursor field must be missing or an object",
            ));
        }
        None => return Ok(None),
    };
    if let Some(field) = cursor.iter().find(|field| field.name() != "batchSize") {
        return Err(CommandError::new(
            ErrorCode(40415),
            format!("BSON field 'cursor.{}' is an unknown field.", field.name()),
        ));
    }
    cursor.get("batchSize").map(|size| count("cursor.batchSize", size)).transpose().map(Option::flatten)
}
