//! getDefaultRWConcern, setDefaultRWConcern

use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Not built yet.
pub async fn get_default_rw_concern(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}

/// Not built yet.
pub async fn set_default_rw_concern(op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::not_supported(op.command.name))
}
