//! What the routing table asks of the config servers. The router implements it.

use std::future::Future;

use document::Timestamp;

use crate::error::SourceError;
use crate::ids::Namespace;
use crate::metadata::{CollectionChanges, DatabaseEntry, ShardEntry};
use crate::version::{ObjectId, Uuid};

/// What is known of a collection already: only chunks at least as new as `version` are asked for, if the collection
/// still is the same incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Identity of the incarnation.
    pub epoch: ObjectId,
    /// Identity of the incarnation.
    pub timestamp: Timestamp,
    /// Of the collection.
    pub uuid: Uuid,
    /// The collection version (major, minor).
    pub version: Timestamp,
}

/// Reads of the config database, each at least as new as the highest `$configTime` that was seen.
pub trait ConfigSource: Send + Sync + 'static {
    /// One document of config.databases; when a secondary does not have it, the primary is asked before `None`.
    fn database(&self, name: &str)
    -> impl Future<Output = Result<Option<DatabaseEntry>, SourceError>> + Send;

    /// The document of config.collections and, from the same snapshot, its chunks: those with `lastmod >=
    /// since.version` when epoch and timestamp are still those of `since`, else all. `None`: it is not sharded.
    fn collection(
        &self,
        ns: &Namespace,
        since: Option<Known>,
    ) -> impl Future<Output = Result<Option<CollectionChanges>, SourceError>> + Send;

    /// All documents of config.shards.
    fn shards(&self) -> impl Future<Output = Result<Vec<ShardEntry>, SourceError>> + Send;
}
