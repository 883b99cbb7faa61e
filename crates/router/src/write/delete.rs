//! delete

use super::batch;
use super::statement::Kind;
use crate::command::Op;
use crate::error::CommandResult;
use crate::reply::Reply;

/// Runs a delete.
pub async fn delete(op: &Op<'_>) -> CommandResult<Reply> {
    batch::run(op, Kind::Delete).await
}
