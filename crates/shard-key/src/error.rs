/// Why a key, a key pattern or a bound cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShardKeyError {
    /// An array is, or is on the way to, a shard-key value.
    #[error("Shard key cannot contain array values or array descendants.")]
    ArrayInKey,
    /// A key pattern that no collection can be sharded on.
    #[error("invalid shard key pattern: {reason}")]
    Pattern {
        /// What is wrong with it.
        reason: String,
    },
    /// A bound or key that does not have the fields of the pattern.
    #[error("{bound} does not have the fields of the shard key pattern {pattern}")]
    Bound {
        /// The bound that was given.
        bound: String,
        /// The pattern that it should fit.
        pattern: String,
    },
    /// A filter whose `$in`s multiply to more ranges than the server computes.
    #[error("combinatorial limit of $in partitioning of results exceeded")]
    TooManyRanges,
    /// Field names with and without `$` in one update.
    #[error("update document {update} has mixed $operator and non-$operator style fields")]
    MixedUpdate {
        /// The update.
        update: String,
    },
    /// An update that is neither document nor array.
    #[error("Update argument must be either an object or an array")]
    UpdateType,
}

impl ShardKeyError {
    /// MongoDB's error code.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::ArrayInKey => 61,
            Self::Pattern { .. } | Self::Bound { .. } => 2,
            Self::TooManyRanges => 17439,
            Self::MixedUpdate { .. } => 12,
            Self::UpdateType => 9,
        }
    }
}
