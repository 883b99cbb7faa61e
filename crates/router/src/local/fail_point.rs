//! configureFailPoint

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn configure(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// What a fail point does to a command.
#[derive(Debug)]
pub enum Failure {
    /// Answer with this error.
    Error(CommandError),
    /// Close the connection without an answer.
    Close,
}

/// Before the handler: fail, wait or close, as configured.
pub async fn before(_op: &Op<'_>) -> Result<(), Failure> {
    Ok(())
}

/// After the handler: add a write concern error, as configured.
#[must_use]
pub fn after(_op: &Op<'_>, reply: Reply) -> Reply {
    reply
}

/// The fail points that are switched on.
#[derive(Debug, Default)]
pub struct FailPoints {}
