//! aggregate

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn aggregate(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// A find on a view of a sharded collection, as the aggregation that the shard's answer names.
pub async fn find_on_view(op: &Op<'_>, _resolved: &CommandError) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}
