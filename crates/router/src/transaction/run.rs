//! The way of one command through its transaction: admitted, run, and what its result means for the rest.

use super::labels::{TRANSIENT, is_transient};
use super::{Statement, admission};
use crate::command::{Access, Op};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Runs a command that stands in a transaction. An error of a statement ends the transaction on all participants, so
/// that none keeps locks until its time is over.
pub(crate) async fn run(op: &mut Op<'_>) -> CommandResult<Reply> {
    let ends = admission::ends(op.command);
    match Statement::begin(op).await {
        Ok(statement) => op.transaction = Some(statement),
        Err(error) => return Err(labelled(op, error)),
    }
    let result = (op.command.handler)(op).await;
    let Some(statement) = &op.transaction else { return result };
    // Some commands put an error together from several shards' replies.
    let result =
        result.and_then(
            |reply| {
                if reply.is_ok() { Ok(reply) } else { Err(CommandError::from_reply(reply.body())) }
            },
        );
    match result {
        Ok(mut reply) => {
            if op.command.access == Access::Write && !ends && reply.body().contains("writeErrors") {
                statement.abort_after_failure().await;
            }
            statement.settle();
            reply.append(|out| statement.write_recovery_token(out));
            Ok(reply)
        }
        Err(error) => {
            if !ends {
                statement.abort_after_failure().await;
            }
            Err(labelled(op, error))
        }
    }
}

/// Adds what tells the driver that it may run the transaction again, if it may.
pub(crate) fn labelled(op: &Op<'_>, error: CommandError) -> CommandError {
    let ends = admission::ends(op.command);
    let has_write_concern_error = error.extra().contains("writeConcernError");
    if is_transient(error.code(), ends, has_write_concern_error) {
        return error.with_label(TRANSIENT);
    }
    error
}
