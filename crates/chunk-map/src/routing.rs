//! One sharded collection as a snapshot: its key, its chunks, the versions to send.

use std::sync::atomic::{AtomicBool, Ordering};

use document::{Doc, DocBuf, Timestamp};
use parking_lot::Mutex;
use shard_key::{Collation, KeyPattern, KeyRanges, ShardKey, ShardKeyError};
use smallvec::SmallVec;

use crate::chunks::{ChunkMap, ChunkRef, ShardSet};
use crate::error::Inconsistent;
use crate::ids::{Namespace, ShardId};
use crate::metadata::{CollectionChanges, CollectionEntry};
use crate::source::Known;
use crate::version::{ChunkVersion, ObjectId, Uuid};

/// The routing information of a sharded collection. Immutable but for the marks that say which shards called it
/// stale.
#[derive(Debug)]
pub struct CollectionRouting {
    /// Its name.
    pub ns: Namespace,
    /// Its identity on the shards.
    pub uuid: Uuid,
    /// Identity of the incarnation.
    pub epoch: ObjectId,
    /// Identity of the incarnation.
    pub timestamp: Timestamp,
    /// The shard key.
    pub key: KeyPattern,
    /// Only for reports.
    pub unique: bool,
    /// How its strings compare unless a request says otherwise; none is simple.
    pub default_collation: Option<DocBuf>,
    /// `timeseriesFields` of a buckets collection.
    pub timeseries: Option<DocBuf>,
    /// Who owns what.
    pub chunks: ChunkMap,
    stale: StaleMarks,
}

/// One shard and the version to send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The shard.
    pub shard: ShardId,
    /// `shardVersion` of the request.
    pub version: ChunkVersion,
}

#[derive(Debug, Default)]
struct StaleMarks {
    any: AtomicBool,
    shards: Mutex<SmallVec<[ShardId; 2]>>,
}

impl CollectionRouting {
    /// The snapshot that `changes` make of nothing.
    pub fn full(changes: CollectionChanges) -> Result<Self, Inconsistent> {
        let chunks = ChunkMap::full(changes.chunks)?;
        Ok(Self::with_chunks(changes.entry, chunks))
    }

    /// The snapshot that `changes` make of this one; from scratch if they are of another incarnation.
    pub fn updated(&self, changes: CollectionChanges) -> Result<Self, Inconsistent> {
        let CollectionChanges { entry, chunks } = changes;
        if (entry.epoch, entry.timestamp, entry.uuid) != (self.epoch, self.timestamp, self.uuid) {
            return Self::full(CollectionChanges { entry, chunks });
        }
        if chunks.is_empty() {
            // The chunk of the known version itself is always among them.
            return Err(Inconsistent::new(format!("No chunks were found for the collection {}", entry.ns)));
        }
        let chunks = self.chunks.updated(chunks)?;
        Ok(Self::with_chunks(entry, chunks))
    }

    fn with_chunks(entry: CollectionEntry, chunks: ChunkMap) -> Self {
        let CollectionEntry { ns, uuid, epoch, timestamp, key, unique, default_collation, timeseries } =
            entry;
        let stale = StaleMarks::default();
        Self { ns, uuid, epoch, timestamp, key, unique, default_collation, timeseries, chunks, stale }
    }

    /// What the next refresh can build on.
    #[must_use]
    pub const fn known(&self) -> Known {
        Known {
            epoch: self.epoch,
            timestamp: self.timestamp,
            uuid: self.uuid,
            version: self.chunks.version(),
        }
    }

    const fn version_of(&self, placement: Timestamp) -> ChunkVersion {
        ChunkVersion::from_parts(self.timestamp, self.epoch, placement)
    }

    /// The version of the collection: the highest of its chunks.
    #[must_use]
    pub const fn version(&self) -> ChunkVersion {
        self.version_of(self.chunks.version())
    }

    /// The version to send to a shard: the highest of its chunks, (0, 0) if it has none.
    #[must_use]
    pub fn shard_version(&self, shard: &ShardId) -> ChunkVersion {
        self.version_of(self.chunks.shard_version(shard).unwrap_or_default())
    }

    /// The version of one of its chunks.
    #[must_use]
    pub fn chunk_version(&self, chunk: ChunkRef<'_>) -> ChunkVersion {
        self.version_of(chunk.version())
    }

    /// The owner of a key and the version to send it; `None` for a key of MaxKeys only, which no chunk holds.
    #[must_use]
    pub fn target_key(&self, key: &ShardKey) -> Option<Target> {
        self.chunks.find(key).map(|chunk| self.target(chunk))
    }

    /// The owner of the first chunk (the one that starts at all MinKey).
    #[must_use]
    pub fn first_chunk(&self) -> Target {
        self.target(self.chunks.first())
    }

    fn target(&self, chunk: ChunkRef<'_>) -> Target {
        Target { shard: chunk.shard().clone(), version: self.version_of(chunk.shard_version()) }
    }

    /// The shards that a filter concerns, by their ids in order; never none, for somebody must give an empty answer.
    pub fn target_filter(
        &self,
        filter: Doc<'_>,
        request_collation: Option<Doc<'_>>,
    ) -> Result<ShardSet, ShardKeyError> {
        let ranges = self.key.ranges(filter, self.collation(request_collation))?;
        Ok(self.chunks.shards_of(&ranges))
    }

    /// The collation in effect for a request.
    #[must_use]
    pub fn collation(&self, request: Option<Doc<'_>>) -> Collation {
        Collation::effective(request, self.default_collation.as_ref().map(DocBuf::as_doc))
    }

    /// The ranges of a filter.
    pub fn ranges(
        &self,
        filter: Doc<'_>,
        request_collation: Option<Doc<'_>>,
    ) -> Result<KeyRanges, ShardKeyError> {
        self.key.ranges(filter, self.collation(request_collation))
    }

    pub(crate) fn mark_stale(&self, shard: &ShardId) {
        let mut shards = self.stale.shards.lock();
        if !shards.contains(shard) {
            shards.push(shard.clone());
        }
        self.stale.any.store(true, Ordering::Release);
    }

    /// Did this shard say that this snapshot is stale? Requests to it should wait for the next one
    /// ([`crate::CatalogCache::collection_refreshed`]); other shards are not concerned.
    #[must_use]
    pub fn is_stale_for(&self, shard: &ShardId) -> bool {
        self.stale.any.load(Ordering::Acquire) && self.stale.shards.lock().contains(shard)
    }
}
