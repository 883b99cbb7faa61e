//! MongoDB's error codes that a router makes or looks at, with their names (server 6.0).

mod names;

/// A numeric error code as drivers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub i32);

macro_rules! codes {
    ($($ident:ident = $number:literal,)*) => {
        #[allow(non_upper_case_globals, missing_docs)]
        impl ErrorCode {
            $(pub const $ident: Self = Self($number);)*

            /// The code's name; codes without one are called `Location<code>` (seen on 6.0.5).
            #[must_use]
            pub fn name(self) -> std::borrow::Cow<'static, str> {
                match self.0 {
                    $($number => stringify!($ident).into(),)*
                    other => match names::of(other) {
                        Some(name) => name.into(),
                        None => format!("Location{other}").into(),
                    },
                }
            }
        }
    };
}

codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    HostUnreachable = 6,
    HostNotFound = 7,
    UnknownError = 8,
    FailedToParse = 9,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    IllegalOperation = 20,
    InvalidBSON = 22,
    AlreadyInitialized = 23,
    LockTimeout = 24,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    NonExistentPath = 29,
    InvalidPath = 30,
    CursorNotFound = 43,
    LockBusy = 46,
    NamespaceExists = 48,
    MaxTimeMSExpired = 50,
    DollarPrefixedFieldName = 52,
    CommandNotFound = 59,
    ShardKeyNotFound = 61,
    OplogOperationUnsupported = 62,
    StaleShardVersion = 63,
    WriteConcernFailed = 64,
    MultipleErrorsOccurred = 65,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    ShardNotFound = 70,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    UnknownReplWriteConcern = 79,
    NoProgressMade = 82,
    CannotSplit = 87,
    NetworkTimeout = 89,
    CallbackCanceled = 90,
    ShutdownInProgress = 91,
    OperationFailed = 96,
    NoProjectionFound = 97,
    UnsatisfiableWriteConcern = 100,
    WriteConflict = 112,
    CommandNotSupported = 115,
    ConflictingOperationInProgress = 117,
    NamespaceNotSharded = 118,
    DocumentValidationFailure = 121,
    FailedToSatisfyReadPreference = 133,
    ReadConcernMajorityNotAvailableYet = 134,
    CursorInUse = 143,
    StaleEpoch = 150,
    RangeOverlapConflict = 178,
    MaxStalenessOutOfRange = 160,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperator = 168,
    CommandOnShardedViewNotSupportedOnMongod = 169,
    TooManyMatchingDocuments = 170,
    QueryPlanKilled = 175,
    ClientMetadataMissingField = 183,
    ClientMetadataAppNameTooLarge = 184,
    ClientMetadataDocumentTooLarge = 185,
    ClientMetadataCannotBeMutated = 186,
    IncompatibleServerVersion = 188,
    PrimarySteppedDown = 189,
    BalancerInterrupted = 194,
    NetworkInterfaceExceededTimeLimit = 202,
    ShardingStateNotInitialized = 203,
    ClusterTimeFailsRateLimiter = 205,
    NoSuchTransaction = 251,
    IncompleteTransactionHistory = 217,
    TransactionTooOld = 225,
    CannotImplicitlyCreateCollection = 227,
    RetryChangeStream = 234,
    CursorKilled = 237,
    SnapshotTooOld = 239,
    SnapshotUnavailable = 246,
    StaleDbVersion = 249,
    StaleChunkHistory = 250,
    TransactionCommitted = 256,
    TooManyLogicalSessions = 261,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    PreparedTransactionInProgress = 267,
    FailPointSetFailed = 266,
    MigrationConflict = 272,
    ClientDisconnect = 279,
    ChangeStreamFatalError = 280,
    WouldChangeOwningShard = 283,
    ChangeStreamHistoryLost = 286,
    ShardInvalidatedForTargeting = 304,
    ConnectionPoolExpired = 317,
    APIVersionError = 322,
    APIStrictError = 323,
    APIDeprecationError = 324,
    ServiceExecutorInShutdown = 333,
    MechanismUnavailable = 334,
    ShardCannotRefreshDueToLocksHeld = 343,
    APIMismatchError = 347,
    LoadBalancerSupportMismatch = 354,
    UserWritesBlocked = 371,
    SocketException = 9001,
    NotWritablePrimary = 10107,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    DatabaseDifferCase = 13297,
    StaleConfig = 13388,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
}

impl ErrorCode {
    /// The member is not (any more) what it was taken for: look for the primary again.
    #[must_use]
    pub const fn is_not_primary(self) -> bool {
        matches!(
            self,
            Self::PrimarySteppedDown
                | Self::NotWritablePrimary
                | Self::InterruptedDueToReplStateChange
                | Self::NotPrimaryNoSecondaryOk
                | Self::NotPrimaryOrSecondary
        )
    }

    /// The member shuts down.
    #[must_use]
    pub const fn is_shutdown(self) -> bool {
        matches!(self, Self::ShutdownInProgress | Self::InterruptedAtShutdown)
    }

    /// The connection failed, not the command.
    #[must_use]
    pub const fn is_network(self) -> bool {
        matches!(
            self,
            Self::HostUnreachable
                | Self::HostNotFound
                | Self::NetworkTimeout
                | Self::ConnectionPoolExpired
                | Self::SocketException
        )
    }

    /// The server's RetriableError category, and what mongos adds to it.
    #[must_use]
    pub const fn is_retriable(self) -> bool {
        self.is_not_primary()
            || self.is_shutdown()
            || self.is_network()
            || matches!(self, Self::ExceededTimeLimit | Self::BalancerInterrupted)
    }

    /// The routing table was not the shard's: refresh what the error names, and target again.
    #[must_use]
    pub const fn is_stale(self) -> bool {
        matches!(
            self,
            Self::StaleConfig
                | Self::StaleShardVersion
                | Self::StaleDbVersion
                | Self::ShardInvalidatedForTargeting
                | Self::ShardCannotRefreshDueToLocksHeld
                | Self::ShardNotFound
        )
    }

    /// The snapshot that a read asked for is not there.
    #[must_use]
    pub const fn is_snapshot(self) -> bool {
        matches!(
            self,
            Self::SnapshotTooOld
                | Self::SnapshotUnavailable
                | Self::StaleChunkHistory
                | Self::MigrationConflict
        )
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn retriable_holds_the_smaller_classes() {
        for number in 0..20_000 {
            let code = ErrorCode(number);
            if code.is_not_primary() || code.is_shutdown() || code.is_network() {
                assert!(code.is_retriable(), "{number}");
            }
            assert!(!(code.is_stale() && code.is_retriable()), "{number}");
        }
    }

    #[test]
    fn codes_without_a_name_are_locations() {
        assert_eq!(ErrorCode(51024).name(), "Location51024");
        assert_eq!(ErrorCode(13388).name(), "StaleConfig");
    }
}
