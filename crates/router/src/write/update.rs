//! update

use super::batch;
use super::statement::Kind;
use crate::command::Op;
use crate::error::CommandResult;
use crate::reply::Reply;

/// Runs an update.
pub async fn update(op: &Op<'_>) -> CommandResult<Reply> {
    batch::run(op, Kind::Update).await
}
