//! Which errors of a transaction tell the driver to run it again (the same rule as the shards', 5.0 and 6.0).

use crate::codes::ErrorCode;
use crate::error::CommandError;

/// The label.
pub(super) const TRANSIENT: &str = "TransientTransactionError";

/// Does an error in a transaction mean that the whole of it may be run again? `ends` for commitTransaction and
/// abortTransaction, whose outcome may be unknown: then only an unknown transaction is sure to have failed.
pub(super) fn is_transient(code: ErrorCode, ends: bool, has_write_concern_error: bool) -> bool {
    let always = code.is_snapshot()
        || matches!(
            code,
            ErrorCode::WriteConflict
                | ErrorCode::LockTimeout
                | ErrorCode::PreparedTransactionInProgress
                | ErrorCode::ShardCannotRefreshDueToLocksHeld
                | ErrorCode::ShardInvalidatedForTargeting
                | ErrorCode::StaleDbVersion
                | ErrorCode::StaleShardVersion
                | ErrorCode::StaleEpoch
                | ErrorCode::StaleConfig
        );
    let gone = code == ErrorCode::NoSuchTransaction;
    always || if ends { gone && !has_write_concern_error } else { gone || code.is_retriable() }
}

/// Did a statement fail in a way that lets its transaction run again, by its shard's word or by its code?
pub(crate) fn is_transient_statement(error: &CommandError) -> bool {
    error.labels().iter().any(|label| label == TRANSIENT) || is_transient(error.code(), false, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_whose_outcome_is_unknown_is_not_to_be_run_again() {
        for (code, statement, commit) in [
            (ErrorCode::WriteConflict, true, true),
            (ErrorCode::SnapshotUnavailable, true, true),
            (ErrorCode::HostUnreachable, true, false),
            (ErrorCode::NotWritablePrimary, true, false),
            (ErrorCode::NoSuchTransaction, true, true),
            (ErrorCode::DuplicateKey, false, false),
            (ErrorCode::MaxTimeMSExpired, false, false),
            (ErrorCode::WriteConcernFailed, false, false),
        ] {
            assert_eq!(is_transient(code, false, false), statement, "{code:?}");
            assert_eq!(is_transient(code, true, false), commit, "{code:?}");
        }
        assert!(!is_transient(ErrorCode::NoSuchTransaction, true, true));
    }
}
