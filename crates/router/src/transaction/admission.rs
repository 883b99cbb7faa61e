//! Which statement may run in which transaction: the refusals that need no shard (mongos 5.0; texts seen on 6.0.5).

use document::{Doc, DocBuf, Timestamp, Value};

use super::state::ReadConcern;
use crate::codes::ErrorCode;
use crate::command::{Command, Op};
use crate::error::{CommandError, CommandResult};
use crate::session::SessionId;

/// What a statement does to the transaction of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It starts a new one.
    Begin,
    /// It goes on with the one that is there.
    Continue,
    /// A commit of one that this router has never seen.
    Recover,
}

/// What a statement says of its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: i64,
    pub(super) starts: bool,
    pub(super) commits: bool,
}

/// Compares a statement with the session's active transaction number, if it has one.
pub(super) fn admit(session: &SessionId, active: Option<i64>, asked: Asked) -> CommandResult<Admission> {
    let Asked { number, starts, commits } = asked;
    let active_number = active.unwrap_or(-1);
    match number.cmp(&active_number) {
        std::cmp::Ordering::Less => Err(CommandError::new(
            ErrorCode::TransactionTooOld,
            format!(
                "txnNumber {number} is less than last txnNumber {active_number} seen in session {session}"
            ),
        )),
        std::cmp::Ordering::Equal if starts => Err(CommandError::new(
            ErrorCode::ConflictingOperationInProgress,
            format!("txnNumber {number} for session {session} already started"),
        )),
        std::cmp::Ordering::Equal => Ok(Admission::Continue),
        std::cmp::Ordering::Greater if starts => Ok(Admission::Begin),
        std::cmp::Ordering::Greater if commits => Ok(Admission::Recover),
        std::cmp::Ordering::Greater => Err(CommandError::new(
            ErrorCode::NoSuchTransaction,
            format!(
                "cannot continue txnId {number} for session {session} with txnId {active_number}: it was not begun on this \
                 router, which knows no statement of it. Does a load balancer send one client to several routers, or was \
                 the router restarted?"
            ),
        )),
    }
}

/// Is it one of the two commands that end a transaction?
pub(super) fn ends(command: &Command) -> bool {
    matches!(command.name, "commitTransaction" | "abortTransaction")
}

/// What may not stand in any transaction.
pub(super) fn check_command(op: &Op<'_>) -> CommandResult<()> {
    let refuse = |text: String| Err(CommandError::new(ErrorCode::OperationNotSupportedInTransaction, text));
    let name = op.command.name;
    if !op.command.in_transaction {
        return refuse(match name {
            "count" => format!(
                "Cannot run '{name}' in a multi-document transaction. Please see \
                 http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
            ),
            _ => format!("Cannot run '{name}' in a multi-document transaction."),
        });
    }
    let request = &op.request;
    if matches!(request.db, "config" | "local") {
        return refuse(format!("Cannot run command against the '{}' database in a transaction.", request.db));
    }
    if request.target.as_str() == Some("system.profile") {
        return refuse(format!(
            "Cannot run command against the {}.system.profile namespace in a transaction.",
            request.db
        ));
    }
    if request.generic.start_transaction && (name == "killCursors" || ends(op.command)) {
        return refuse(format!("Cannot run {name} as the first operation in a multi-document transaction."));
    }
    if request.generic.write_concern.is_some() && !ends(op.command) {
        return Err(CommandError::invalid_options(
            "writeConcern is not allowed within a multi-statement transaction",
        ));
    }
    if request.generic.read_concern.is_some() && !request.generic.start_transaction {
        return Err(CommandError::invalid_options(
            "Only the first command in a transaction may specify a readConcern",
        ));
    }
    let mode = request.generic.read_preference.and_then(|preference| preference.get_str("mode"));
    if mode.is_some_and(|mode| mode != "primary") && !ends(op.command) {
        return Err(CommandError::invalid_options("read preference in a transaction must be primary"));
    }
    Ok(())
}

/// The read concern of a transaction, from its first statement. A snapshot is chosen here, once for all participants:
/// the latest time that this router has heard of, and not before what the client has seen.
pub(super) fn read_concern(
    concern: Option<Doc<'_>>,
    now: Option<Timestamp>,
    default: impl FnOnce() -> DocBuf,
) -> CommandResult<ReadConcern> {
    let Some(concern) = concern.filter(|concern| !concern.is_empty()) else {
        return Ok(ReadConcern::Plain(default()));
    };
    match concern.get_str("level") {
        None if concern.contains("level") => Err(CommandError::wrong_type(
            "readConcern.level",
            concern.get("level").unwrap_or(Value::Null),
            "string",
        )),
        None | Some("local" | "majority") => Ok(ReadConcern::Plain(DocBuf::from(concern))),
        Some("snapshot") => {
            let time = |name| concern.get(name).and_then(Value::as_timestamp);
            if let Some(at) = time("atClusterTime") {
                return Ok(ReadConcern::Given(at));
            }
            let at = now.max(time("afterClusterTime"));
            // Without any time known each shard would choose its own: the config servers' hello gave one long ago.
            at.map(ReadConcern::Snapshot).ok_or_else(|| {
                CommandError::new(ErrorCode::SnapshotUnavailable, "no cluster time is known yet")
            })
        }
        Some(_) => Err(CommandError::invalid_options(
            "The first command in a transaction cannot specify a readConcern level other than local, majority, or snapshot",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(active: Option<i64>, number: i64, starts: bool, commits: bool) -> Result<Admission, i32> {
        admit(&SessionId([0; 16]), active, Asked { number, starts, commits }).map_err(|error| error.code().0)
    }

    #[test]
    fn numbers_only_go_up_and_only_a_commit_may_come_out_of_the_blue() {
        for (active, number, starts, commits, expected) in [
            (None, 0, true, false, Ok(Admission::Begin)),
            (None, 0, false, false, Err(251)),
            (None, 0, false, true, Ok(Admission::Recover)),
            (Some(5), 4, true, false, Err(225)),
            (Some(5), 4, false, true, Err(225)),
            (Some(5), 5, true, false, Err(117)),
            (Some(5), 5, false, false, Ok(Admission::Continue)),
            (Some(5), 5, false, true, Ok(Admission::Continue)),
            (Some(5), 6, true, false, Ok(Admission::Begin)),
            (Some(5), 6, false, false, Err(251)),
            (Some(5), 6, false, true, Ok(Admission::Recover)),
        ] {
            assert_eq!(verdict(active, number, starts, commits), expected, "{active:?} {number}");
        }
    }

    #[test]
    fn a_snapshot_is_not_older_than_what_the_client_saw() {
        let time = |seconds| Timestamp::new(seconds, 1);
        let at = |concern: bson::RawDocumentBuf, now| {
            let concern = Doc::new(concern.as_bytes()).unwrap();
            read_concern(Some(concern), now, DocBuf::new).map_err(|error| error.code().0)
        };
        let seen = bson::Timestamp { time: 7, increment: 1 };
        assert_eq!(
            at(bson::rawdoc! { "level": "snapshot" }, Some(time(5))),
            Ok(ReadConcern::Snapshot(time(5)))
        );
        let after = bson::rawdoc! { "level": "snapshot", "afterClusterTime": seen };
        assert_eq!(at(after.clone(), Some(time(5))), Ok(ReadConcern::Snapshot(time(7))));
        assert_eq!(at(after, Some(time(9))), Ok(ReadConcern::Snapshot(time(9))));
        for level in ["linearizable", "available", "nonsense"] {
            assert_eq!(at(bson::rawdoc! { "level": level }, Some(time(5))), Err(72));
        }
        let majority = bson::rawdoc! { "level": "majority", "afterClusterTime": seen };
        assert!(matches!(at(majority, None), Ok(ReadConcern::Plain(_))));
        assert!(matches!(read_concern(None, None, DocBuf::new), Ok(ReadConcern::Plain(_))));
    }
}
