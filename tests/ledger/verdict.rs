//! From an error to what the client may conclude of it.

use std::future::Future;
use std::time::Duration;

use mongodb::ClientSession;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use tokio::time::{sleep, timeout};

use crate::history::{Ledger, Verdict};

/// Far above what any operation may take beside elections on a loaded machine: one that takes longer hangs.
const OPERATION_LIMIT: Duration = Duration::from_secs(120);
const COMMIT_TRIES: usize = 12;

/// Codes with which a statement was refused before it changed anything.
const REFUSALS: [i32; 12] = [
    2,      // BadValue
    9,      // FailedToParse
    20,     // IllegalOperation
    61,     // ShardKeyNotFound
    66,     // ImmutableField
    72,     // InvalidOptions
    82,     // NoProgressMade
    112,    // WriteConflict
    117,    // ConflictingOperationInProgress
    249,    // StaleDbVersion
    11_000, // DuplicateKey: of a number that is used once
    13_388, // StaleConfig
];

pub(crate) fn is_refusal(code: i32) -> bool {
    REFUSALS.contains(&code)
}

/// Waits for an operation; `None` when it hangs.
pub(crate) async fn within<T>(ledger: &Ledger, what: &str, operation: impl Future<Output = T>) -> Option<T> {
    let done = timeout(OPERATION_LIMIT, operation).await.ok();
    if done.is_none() {
        eprintln!("HANGS: {what} for more than {OPERATION_LIMIT:?}");
        ledger.hung.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    done
}

/// What a client knows of a single retryable write that gave this error.
pub(crate) fn of_write(error: &Error) -> Verdict {
    let code = match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Command(error) => Some(error.code),
        _ => None,
    };
    if code.is_some_and(is_refusal) { Verdict::Refused } else { Verdict::Unknown }
}

/// Commits as long as drivers' transaction loops would: only what they take for "not committed" is a refusal.
pub(crate) async fn commit(ledger: &Ledger, session: &mut ClientSession) -> Verdict {
    for attempt in 0..COMMIT_TRIES {
        let Some(done) =
            within(ledger, "commitTransaction", async { session.commit_transaction().await }).await
        else {
            return Verdict::Unknown;
        };
        let Err(error) = done else { return Verdict::Acknowledged };
        if error.contains_label("TransientTransactionError") {
            return Verdict::Refused;
        }
        if !error.contains_label("UnknownTransactionCommitResult") {
            eprintln!("commit without a label: {error}");
            return Verdict::Unknown;
        }
        sleep(Duration::from_millis(50 << attempt.min(6))).await;
    }
    Verdict::Unknown
}
