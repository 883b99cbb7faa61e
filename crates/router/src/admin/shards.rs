//! addShard, listShards

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn add_shard(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn list_shards(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}
