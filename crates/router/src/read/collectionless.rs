//! `{aggregate: 1}`: pipelines that read no collection.

use super::{aggregate, pipeline};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Stages that need no collection.
const SOURCES: &[&str] = &[
    "$changeStream",
    "$currentOp",
    "$documents",
    "$listLocalSessions",
    "$listSessions",
    "$listCachedAndActiveUsers",
    "$shardedDataDistribution",
];

/// Runs `{aggregate: 1}`.
pub(super) async fn aggregate(op: &Op<'_>) -> CommandResult<Reply> {
    if op.request.target.as_i64() != Some(1) {
        return Err(CommandError::failed_to_parse(
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        ));
    }
    let stages = pipeline::parse(aggregate::pipeline_array(op.request.body)?)?;
    match stages.first() {
        Some(first) if SOURCES.contains(&first.name) => Err(CommandError::not_supported(first.name)),
        Some(first) => Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("{{aggregate: 1}} is not valid for '{}'; a collection is required.", first.name),
        )),
        None => Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "{aggregate: 1} is not valid for an empty pipeline.",
        )),
    }
}
