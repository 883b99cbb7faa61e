//! split, moveChunk

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn split(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn move_chunk(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}
