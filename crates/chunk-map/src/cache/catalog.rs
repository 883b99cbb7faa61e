//! Databases and collections by name.

use std::borrow::Borrow;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::refresh;
use super::slot::{Cached, Scope, Slot, Want};
use super::statistics::{CacheStatistics, Counters};
use crate::error::CatalogError;
use crate::ids::{DatabaseName, Namespace, ShardId};
use crate::metadata::DatabaseEntry;
use crate::routing::CollectionRouting;
use crate::source::ConfigSource;
use crate::version::{ChunkVersion, DatabaseVersion};

/// Databases, and collections, that are remembered at most, as in mongos.
const CAPACITY: usize = 10_000;

/// Where the documents of a collection are.
#[derive(Debug, Clone)]
pub enum Routing {
    /// By its chunks, in requests with a `shardVersion`.
    Sharded(Arc<CollectionRouting>),
    /// On the primary shard of its database, in requests with [`ChunkVersion::UNSHARDED`] and the `databaseVersion`
    /// of this entry. Primary and version belong together: never send one of them with another.
    Unsharded(Arc<DatabaseEntry>),
}

impl Routing {
    /// The sharded collection, if it is one.
    #[must_use]
    pub const fn sharded(&self) -> Option<&Arc<CollectionRouting>> {
        match self {
            Self::Sharded(routing) => Some(routing),
            Self::Unsharded(_) => None,
        }
    }

    /// Did this shard say that this snapshot is stale? See [`CollectionRouting::is_stale_for`].
    #[must_use]
    pub fn is_stale_for(&self, shard: &ShardId) -> bool {
        self.sharded().is_some_and(|routing| routing.is_stale_for(shard))
    }
}

impl Cached for Arc<DatabaseEntry> {
    type Version = DatabaseVersion;

    fn reaches(&self, wanted: DatabaseVersion) -> bool {
        self.version.is_some_and(|version| version.reaches(wanted))
    }
}

/// A collection: sharded, or known not to be.
#[derive(Debug, Clone)]
pub(super) enum Collection {
    Sharded(Arc<CollectionRouting>),
    Unsharded,
}

impl Cached for Collection {
    type Version = ChunkVersion;

    fn reaches(&self, wanted: ChunkVersion) -> bool {
        // What cannot be compared is taken as news.
        match self {
            Self::Sharded(routing) => {
                routing.version().compare(wanted).is_some_and(std::cmp::Ordering::is_ge)
            }
            Self::Unsharded => false,
        }
    }
}

pub(super) type Slots<K, V> = DashMap<K, Arc<Slot<V>>, RandomState>;

/// The cache of routing information. Reads of what is cached take no lock that a refresh holds, and do not await.
pub struct CatalogCache<S> {
    source: Arc<S>,
    counters: Arc<Counters>,
    pub(super) databases: Slots<DatabaseName, Arc<DatabaseEntry>>,
    pub(super) collections: Slots<Namespace, Collection>,
    /// The pseudo entries of databases that live on the config servers.
    admin: Arc<DatabaseEntry>,
    config: Arc<DatabaseEntry>,
    capacity: usize,
}

impl<S: ConfigSource> CatalogCache<S> {
    /// An empty cache over this source.
    #[must_use]
    pub fn new(source: Arc<S>) -> Self {
        Self::with_capacity(source, CAPACITY)
    }

    /// An empty cache that remembers so many databases, and so many collections.
    #[must_use]
    pub fn with_capacity(source: Arc<S>, capacity: usize) -> Self {
        let on_config_servers = |name: &str| {
            Arc::new(DatabaseEntry { name: name.into(), primary: ShardId::CONFIG.into(), version: None })
        };
        Self {
            source,
            counters: Arc::default(),
            databases: DashMap::default(),
            collections: DashMap::default(),
            admin: on_config_servers("admin"),
            config: on_config_servers("config"),
            capacity: capacity.max(1),
        }
    }

    /// A database. [`CatalogError::DatabaseNotFound`] is an answer that is not remembered.
    pub async fn database(&self, name: &str) -> Result<Arc<DatabaseEntry>, CatalogError> {
        match self.cached_database(name) {
            Some(entry) => Ok(entry),
            None => self.load_database(name).await,
        }
    }

    /// Where the documents of a collection are: the snapshot that is there, unless it is stale for everyone.
    pub async fn collection(&self, ns: &Namespace) -> Result<Routing, CatalogError> {
        match self.cached_collection(ns) {
            Some(routing) => Ok(routing),
            None => self.load_collection(ns, Want::Readable).await,
        }
    }

    /// The same, but newer than every stale mark so far: for those whom a shard told that they are stale, and for
    /// requests to a shard for which the snapshot is marked.
    pub async fn collection_refreshed(&self, ns: &Namespace) -> Result<Routing, CatalogError> {
        self.load_collection(ns, Want::Refreshed).await
    }

    /// The database if it need not be waited for.
    #[must_use]
    pub fn cached_database(&self, name: &str) -> Option<Arc<DatabaseEntry>> {
        match name {
            "admin" => Some(Arc::clone(&self.admin)),
            "config" => Some(Arc::clone(&self.config)),
            _ => self.databases.get(name).and_then(|slot| slot.readable()),
        }
    }

    /// The collection if it need not be waited for.
    #[must_use]
    pub fn cached_collection(&self, ns: &Namespace) -> Option<Routing> {
        let cached = self.collections.get(ns.as_str()).and_then(|slot| slot.readable());
        match cached {
            Some(Collection::Sharded(routing)) => Some(Routing::Sharded(routing)),
            Some(Collection::Unsharded) => self.cached_database(ns.db()).map(Routing::Unsharded),
            // Nothing in admin is ever sharded.
            None if ns.db() == "admin" => Some(Routing::Unsharded(Arc::clone(&self.admin))),
            None => None,
        }
    }

    async fn load_database(&self, name: &str) -> Result<Arc<DatabaseEntry>, CatalogError> {
        let key = DatabaseName::new(name);
        let slot = entry(&self.databases, &key, self.capacity);
        let start = |_last| refresh::database(Arc::clone(&self.source), key.clone());
        let result = self.timed(slot.wait(Want::Readable, start)).await;
        if let Err(error) = &result {
            forget_unloaded(&self.databases, &key, &slot);
            if error.is_database_not_found() {
                self.forget_database(name);
            }
        }
        result
    }

    async fn load_collection(&self, ns: &Namespace, want: Want) -> Result<Routing, CatalogError> {
        if ns.db() == "admin" {
            return Ok(Routing::Unsharded(Arc::clone(&self.admin)));
        }
        // The database comes first: without it there is nothing to look for.
        let database = self.database(ns.db()).await?;
        let slot = entry(&self.collections, ns, self.capacity);
        let start = |last: Option<Collection>| {
            let last = match last {
                Some(Collection::Sharded(routing)) => Some(routing),
                Some(Collection::Unsharded) | None => None,
            };
            let load =
                refresh::collection(Arc::clone(&self.source), Arc::clone(&self.counters), ns.clone(), last);
            async move { Ok(load.await?.map_or(Collection::Unsharded, Collection::Sharded)) }
        };
        let result = self.timed(slot.wait(want, start)).await;
        if result.is_err() {
            forget_unloaded(&self.collections, ns, &slot);
        }
        match result? {
            Collection::Sharded(routing) => Ok(Routing::Sharded(routing)),
            // It may have moved while the collection was loaded.
            Collection::Unsharded => {
                Ok(Routing::Unsharded(self.cached_database(ns.db()).unwrap_or(database)))
            }
        }
    }

    async fn timed<T>(&self, wait: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let result = wait.await;
        self.counters.refresh_wait_micros.add(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
        result
    }

    /// A shard said StaleConfig for this collection. With `wanted` not newer than what is cached nothing happens.
    /// With `shard` only those who ask for [`CatalogCache::collection_refreshed`] wait for the refresh, and the
    /// snapshot is marked for that shard; without it everyone does.
    pub fn collection_stale(&self, ns: &Namespace, wanted: Option<ChunkVersion>, shard: Option<&ShardId>) {
        self.counters.stale_config_errors.add(1);
        let Some(slot) = self.collections.get(ns.as_str()).map(|slot| Arc::clone(&slot)) else { return };
        let last = slot.last();
        if let (Some(wanted), Some(last)) = (wanted, &last)
            && last.reaches(wanted)
        {
            return;
        }
        match (last, shard) {
            (Some(Collection::Sharded(routing)), Some(shard)) => {
                slot.mark(wanted, Scope::TheTold);
                routing.mark_stale(shard);
            }
            _ => slot.mark(wanted, Scope::Everyone),
        }
    }

    /// A shard said StaleDbVersion for this database. Without `wanted` the entry is read again in any case.
    pub fn database_stale(&self, name: &str, wanted: Option<DatabaseVersion>) {
        if let Some(slot) = self.databases.get(name).map(|slot| Arc::clone(&slot)) {
            slot.mark(wanted, Scope::Everyone);
        }
    }

    /// Forgets a collection: it was dropped, or an operator wants it read anew.
    pub fn forget_collection(&self, ns: &Namespace) {
        self.collections.remove(ns.as_str());
    }

    /// Forgets a database and all its collections.
    pub fn forget_database(&self, name: &str) {
        self.databases.remove(name);
        self.collections.retain(|ns, _| ns.db() != name);
    }

    /// Forgets everything.
    pub fn forget_all(&self) {
        self.databases.clear();
        self.collections.clear();
    }

    /// Forgets what refers to a shard: databases whose primary it is, collections that have chunks there.
    pub fn forget_shard(&self, shard: &ShardId) {
        self.databases.retain(|_, slot| slot.last().is_none_or(|entry| entry.primary != *shard));
        self.collections.retain(|_, slot| match slot.last() {
            Some(Collection::Sharded(routing)) => routing.chunks.shard_version(shard).is_none(),
            Some(Collection::Unsharded) | None => true,
        });
    }

    /// What the cache did so far.
    #[must_use]
    pub fn statistics(&self) -> CacheStatistics {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let counters = &self.counters;
        CacheStatistics {
            num_database_entries: count(self.databases.len()),
            num_collection_entries: count(self.collections.len()),
            count_stale_config_errors: counters.stale_config_errors.get(),
            total_refresh_wait_time_micros: counters.refresh_wait_micros.get(),
            num_active_incremental_refreshes: counters.active_incremental.get(),
            count_incremental_refreshes_started: counters.incremental_started.get(),
            num_active_full_refreshes: counters.active_full.get(),
            count_full_refreshes_started: counters.full_started.get(),
            count_failed_refreshes: counters.failed.get(),
        }
    }
}

impl<S> std::fmt::Debug for CatalogCache<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CatalogCache")
            .field("databases", &self.databases.len())
            .field("collections", &self.collections.len())
            .finish_non_exhaustive()
    }
}

/// The slot of this name, made when there is none; room is made for it first.
fn entry<K, V>(slots: &Slots<K, V>, key: &K, capacity: usize) -> Arc<Slot<V>>
where
    K: Clone + Eq + Hash + Borrow<str>,
    V: Cached,
{
    if let Some(slot) = slots.get::<str>(key.borrow()) {
        return Arc::clone(&slot);
    }
    if slots.len() >= capacity {
        make_room(slots, capacity);
    }
    Arc::clone(&slots.entry(key.clone()).or_default())
}

/// Gives up a tenth: first what was not read since the last time, then anything.
fn make_room<K: Eq + Hash, V: Cached>(slots: &Slots<K, V>, capacity: usize) {
    let mut surplus = slots.len().saturating_sub(capacity) + capacity / 10 + 1;
    let mut evict = |candidate: bool| {
        let gone = candidate && surplus > 0;
        surplus -= usize::from(gone);
        !gone
    };
    slots.retain(|_, slot| evict(!slot.take_used()));
    slots.retain(|_, _| evict(true));
}

/// Names that could not be loaded take no place.
fn forget_unloaded<K, V>(slots: &Slots<K, V>, key: &K, slot: &Arc<Slot<V>>)
where
    K: Eq + Hash,
    V: Cached,
{
    slots.remove_if(key, |_, known| Arc::ptr_eq(known, slot) && !known.was_ever_loaded());
}
