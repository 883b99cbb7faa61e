//! startSession, endSessions, ...

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn start_session(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn refresh_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn end_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn kill_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn kill_all_sessions(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn kill_all_sessions_by_pattern(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}
