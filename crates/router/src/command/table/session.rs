//! Logical sessions and transactions.

use crate::command::{
    Command,
    RunsOn::{Router, Targeted},
    handler,
};
use crate::local::sessions;
use crate::transaction::end;

pub(super) const ROWS: &[Command] = &[
    Command::new("startSession", Router, handler!(sessions::start_session)),
    Command::new("refreshSessions", Router, handler!(sessions::refresh_sessions)).api_v1(),
    Command::new("endSessions", Router, handler!(sessions::end_sessions)).api_v1(),
    Command::new("refreshLogicalSessionCacheNow", Router, handler!(sessions::refresh_now)).test_only(),
    Command::new("killSessions", Router, handler!(sessions::kill_sessions)).needs("killAnySession"),
    Command::new("killAllSessions", Router, handler!(sessions::kill_all_sessions)).needs("killAnySession"),
    Command::new("killAllSessionsByPattern", Router, handler!(sessions::kill_all_sessions_by_pattern))
        .needs("killAnySession"),
    Command::new("commitTransaction", Targeted, handler!(end::commit))
        .writes()
        .admin()
        .in_transaction()
        .retryable()
        .api_v1(),
    Command::new("abortTransaction", Targeted, handler!(end::abort))
        .writes()
        .admin()
        .in_transaction()
        .retryable()
        .api_v1(),
];
