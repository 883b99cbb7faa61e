use std::error::Error;
use std::sync::Arc;

use crate::ids::{DatabaseName, Namespace, ShardId};

/// What went wrong when the config servers were asked: the router's own error inside, its MongoDB code outside.
/// Cheap to clone, for everyone who waited for one refresh gets it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// MongoDB's error code.
    pub code: i32,
    /// What a client may read.
    pub message: Arc<str>,
    /// The router's own error.
    #[source]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// An error without a cause.
    #[must_use]
    pub fn new(code: i32, message: &str) -> Self {
        Self { code, message: message.into(), source: None }
    }

    /// An error that wraps another one.
    #[must_use]
    pub fn caused_by(code: i32, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { code, message: cause.to_string().into(), source: Some(Arc::new(cause)) }
    }
}

/// A metadata document that is not what the config servers write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid metadata in config.{collection}: {reason}")]
pub struct MetadataError {
    /// The collection it is from.
    pub collection: &'static str,
    /// What is wrong with it.
    pub reason: Arc<str>,
}

/// Chunks that do not cover the key space exactly once: read while it changed, or spoilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Inconsistent {
    /// What is wrong with them.
    pub reason: Arc<str>,
}

impl Inconsistent {
    pub(crate) fn new(reason: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Why routing information cannot be given.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CatalogError {
    /// The database does not exist.
    #[error("database {0} not found")]
    DatabaseNotFound(DatabaseName),
    /// The shard does not exist.
    #[error("Shard {0} not found")]
    ShardNotFound(ShardId),
    /// The chunks of a collection did not fit together, also when they were read again.
    #[error("routing information of {ns} is inconsistent: {source}")]
    Inconsistent {
        /// The collection.
        ns: Namespace,
        /// What did not fit.
        source: Inconsistent,
    },
    /// A metadata document cannot be read.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The config servers could not be asked.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl CatalogError {
    /// MongoDB's error code.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::DatabaseNotFound(_) => 26,
            Self::ShardNotFound(_) => 70,
            Self::Inconsistent { .. } => 117,
            Self::Metadata(_) => 9,
            Self::Source(error) => error.code,
        }
    }

    /// Does the database not exist? Often an answer rather than an error.
    #[must_use]
    pub const fn is_database_not_found(&self) -> bool {
        matches!(self, Self::DatabaseNotFound(_))
    }

    /// May a refresh that ended so be tried again at once: ConflictingOperationInProgress, QueryPlanKilled and the
    /// snapshot errors, as in mongos.
    #[must_use]
    pub(crate) const fn is_transient(&self) -> bool {
        matches!(self.code(), 117 | 175 | 239 | 246 | 250 | 272)
    }
}
