//! The shards of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use document::Timestamp;

use super::slot::{Cached, Scope, Slot, Want};
use crate::error::CatalogError;
use crate::ids::ShardId;
use crate::metadata::ShardEntry;
use crate::source::ConfigSource;

/// All shards, as of one read of config.shards.
#[derive(Debug, Default)]
pub struct ShardList {
    shards: BTreeMap<ShardId, Arc<ShardEntry>>,
    topology_time: Timestamp,
}

impl ShardList {
    fn new(entries: Vec<ShardEntry>) -> Self {
        let topology_time = entries.iter().map(|entry| entry.topology_time).max().unwrap_or_default();
        let shards = entries.into_iter().map(|entry| (entry.id.clone(), Arc::new(entry))).collect();
        Self { shards, topology_time }
    }

    /// The shard of this id.
    #[must_use]
    pub fn get(&self, id: &ShardId) -> Option<&Arc<ShardEntry>> {
        self.shards.get(id)
    }

    /// All shards by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ShardEntry>> {
        self.shards.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// A fresh cluster has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// The highest topology time of all.
    #[must_use]
    pub const fn topology_time(&self) -> Timestamp {
        self.topology_time
    }
}

impl Cached for Arc<ShardList> {
    type Version = Timestamp;

    fn reaches(&self, wanted: Timestamp) -> bool {
        self.topology_time >= wanted
    }
}

/// The list of shards, read when it is first asked for and when it got old.
pub struct ShardRegistry<S> {
    source: Arc<S>,
    slot: Arc<Slot<Arc<ShardList>>>,
    /// The highest topology time that made it read again; after a removal no shard carries the cluster's.
    topology_time: AtomicU64,
}

impl<S: ConfigSource> ShardRegistry<S> {
    /// A registry that has read nothing yet.
    #[must_use]
    pub fn new(source: Arc<S>) -> Self {
        Self { source, slot: Arc::default(), topology_time: AtomicU64::new(0) }
    }

    /// The last list that was read; empty before the first.
    #[must_use]
    pub fn snapshot(&self) -> Arc<ShardList> {
        self.slot.last().unwrap_or_default()
    }

    /// All shards; read first if nothing was read or the topology changed since.
    pub async fn list(&self) -> Result<Arc<ShardList>, CatalogError> {
        match self.slot.readable() {
            Some(list) => Ok(list),
            None => self.load(Want::Readable).await,
        }
    }

    /// Reads the list again.
    pub async fn reload(&self) -> Result<Arc<ShardList>, CatalogError> {
        self.slot.mark(None, Scope::TheTold);
        self.load(Want::Refreshed).await
    }

    /// The list is wrong: the next to ask reads it again.
    pub fn invalidate(&self) {
        self.slot.mark(None, Scope::Everyone);
    }

    /// A shard; one that is not known makes the list be read again.
    pub async fn shard(&self, id: &ShardId) -> Result<Arc<ShardEntry>, CatalogError> {
        let list = self.list().await?;
        if let Some(shard) = list.get(id) {
            return Ok(Arc::clone(shard));
        }
        let list = self.reload().await?;
        list.get(id).cloned().ok_or_else(|| CatalogError::ShardNotFound(id.clone()))
    }

    /// The cluster gossiped this `$topologyTime`: when it is news, the next to ask reads the list again.
    pub fn topology_time_seen(&self, time: Timestamp) {
        // A plain load first: it is called for each request, and hardly ever is news.
        if time.as_u64() <= self.topology_time.load(Ordering::Relaxed) {
            return;
        }
        let seen = self.topology_time.fetch_max(time.as_u64(), Ordering::AcqRel);
        if time.as_u64() > seen && self.slot.last().is_none_or(|list| !list.reaches(time)) {
            self.slot.mark(None, Scope::Everyone);
        }
    }

    async fn load(&self, want: Want) -> Result<Arc<ShardList>, CatalogError> {
        let start = |_last| {
            let source = Arc::clone(&self.source);
            async move { Ok(Arc::new(ShardList::new(source.shards().await?))) }
        };
        self.slot.wait(want, start).await
    }
}

impl<S> std::fmt::Debug for ShardRegistry<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardRegistry").field("shards", &self.slot.last()).finish_non_exhaustive()
    }
}
