//! The caches over a source that can be held, counted and made to fail.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use document::{Doc, DocBuf, Timestamp};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use shard_key::{KeyPattern, ShardKey};
use smallvec::smallvec;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::{CatalogCache, Routing, ShardRegistry};
use crate::error::{CatalogError, SourceError};
use crate::ids::{Namespace, ShardId};
use crate::metadata::{ChunkEntry, CollectionChanges, CollectionEntry, DatabaseEntry, ShardEntry};
use crate::source::{ConfigSource, Known};
use crate::version::{ChunkVersion, DatabaseVersion};

/// Config servers in memory.
struct Fake {
    databases: Mutex<HashMap<String, DatabaseEntry>>,
    collections: Mutex<HashMap<String, CollectionChanges>>,
    shards: Mutex<Vec<ShardEntry>>,
    /// Answers to give instead of the true one.
    instead: Mutex<VecDeque<Result<CollectionChanges, SourceError>>>,
    /// What was asked.
    asked: Mutex<Vec<(String, Option<Known>)>>,
    gate: Semaphore,
}

const OPEN: usize = 1 << 20;

impl Fake {
    fn new() -> Arc<Self> {
        let fake = Self {
            databases: Mutex::default(),
            collections: Mutex::default(),
            shards: Mutex::default(),
            instead: Mutex::default(),
            asked: Mutex::default(),
            gate: Semaphore::new(OPEN),
        };
        fake.put_database("t", "sh0", 1);
        fake.put_collection("t.c", 1, &[(0, 1), (1, 2), (0, 3)]);
        Arc::new(fake)
    }

    fn put_database(&self, name: &str, primary: &str, last_mod: i32) {
        let version = DatabaseVersion { uuid: [1; 16], timestamp: Timestamp::new(1, 1), last_mod };
        let entry = DatabaseEntry { name: name.into(), primary: primary.into(), version: Some(version) };
        self.databases.lock().insert(name.to_owned(), entry);
    }

    /// Chunks start at 0, 10, 20, ...; each has an owner and a minor version.
    fn put_collection(&self, ns: &str, incarnation: u32, chunks: &[(u32, u32)]) {
        let entry = CollectionEntry {
            ns: Namespace::parse(ns).unwrap(),
            uuid: [1; 16],
            epoch: [2; 12],
            timestamp: Timestamp::new(incarnation, 0),
            key: pattern(),
            unique: false,
            default_collation: None,
            timeseries: None,
        };
        let bound = |index: usize| match index {
            0 => pattern().global_min(),
            _ if index == chunks.len() => pattern().global_max(),
            _ => key(i64::try_from(index).unwrap() * 10),
        };
        let chunks = chunks.iter().enumerate().map(|(index, (owner, minor))| {
            let version = Timestamp::new(1, *minor);
            let owner = shard(*owner);
            let history = smallvec![(version, owner.clone())];
            ChunkEntry { min: bound(index), max: bound(index + 1), shard: owner, version, history }
        });
        let changes = CollectionChanges { entry, chunks: chunks.collect() };
        self.collections.lock().insert(ns.to_owned(), changes);
    }

    fn put_shard(&self, number: u32, topology_time: u32) {
        let id = shard(number);
        self.shards.lock().push(ShardEntry {
            host: format!("{id}/h:1").into(),
            set_name: id.as_str().into(),
            hosts: vec!["h:1".into()],
            draining: false,
            topology_time: Timestamp::new(topology_time, 0),
            raw: DocBuf::new(),
            id,
        });
    }

    fn close(&self) {
        assert_eq!(self.gate.forget_permits(OPEN), OPEN);
    }

    fn open(&self) {
        self.gate.add_permits(OPEN);
    }

    /// How often this was asked for.
    fn count(&self, what: &str) -> usize {
        self.asked.lock().iter().filter(|(asked, _)| asked == what).count()
    }

    fn last_known(&self) -> Option<Known> {
        self.asked.lock().last().unwrap().1
    }

    async fn pass(&self, what: &str, known: Option<Known>) {
        self.asked.lock().push((what.to_owned(), known));
        // Taken and given back: a gate, not a limit.
        drop(self.gate.acquire().await.unwrap());
    }
}

impl ConfigSource for Fake {
    async fn database(&self, name: &str) -> Result<Option<DatabaseEntry>, SourceError> {
        self.pass(name, None).await;
        Ok(self.databases.lock().get(name).cloned())
    }

    async fn collection(
        &self,
        ns: &Namespace,
        since: Option<Known>,
    ) -> Result<Option<CollectionChanges>, SourceError> {
        // As a snapshot: what is there when it is asked.
        let mut changes = self.collections.lock().get(ns.as_str()).cloned();
        self.pass(ns.as_str(), since).await;
        if let Some(other) = self.instead.lock().pop_front() {
            return other.map(Some);
        }
        if let (Some(changes), Some(since)) = (&mut changes, since)
            && changes.entry.timestamp == since.timestamp
        {
            changes.chunks.retain(|chunk| chunk.version >= since.version);
        }
        Ok(changes)
    }

    async fn shards(&self) -> Result<Vec<ShardEntry>, SourceError> {
        self.pass("shards", None).await;
        Ok(self.shards.lock().clone())
    }
}

fn pattern() -> KeyPattern {
    let mut doc = DocBuf::new();
    doc.append("a", 1);
    KeyPattern::parse(doc.as_doc()).unwrap()
}

fn key(n: i64) -> ShardKey {
    let mut doc = DocBuf::new();
    doc.append("a", n);
    ShardKey::from_values_of(doc.as_doc())
}

fn shard(number: u32) -> ShardId {
    ShardId::new(&format!("sh{number}"))
}

fn ns() -> Namespace {
    Namespace::new("t", "c")
}

fn version(incarnation: u32, minor: u32) -> ChunkVersion {
    ChunkVersion { timestamp: Timestamp::new(incarnation, 0), epoch: [2; 12], major: 1, minor }
}

type Cache = Arc<CatalogCache<Fake>>;

fn cache(fake: &Arc<Fake>) -> Cache {
    Arc::new(CatalogCache::new(Arc::clone(fake)))
}

/// What there is right now, without waiting for anything.
fn now(cache: &Cache) -> Option<ChunkVersion> {
    let routing = cache.collection(&ns()).now_or_never()?.unwrap();
    Some(routing.sharded().unwrap().version())
}

fn ask(cache: &Cache) -> JoinHandle<Result<Routing, CatalogError>> {
    let cache = Arc::clone(cache);
    tokio::spawn(async move { cache.collection(&ns()).await })
}

fn ask_refreshed(cache: &Cache) -> JoinHandle<Result<Routing, CatalogError>> {
    let cache = Arc::clone(cache);
    tokio::spawn(async move { cache.collection_refreshed(&ns()).await })
}

/// Lets every task run until it waits (one thread, so that a few rounds reach them all).
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn version_of(routing: &Routing) -> ChunkVersion {
    routing.sharded().unwrap().version()
}

#[tokio::test]
async fn one_refresh_however_many_wait() {
    let fake = Fake::new();
    let cache = cache(&fake);
    fake.close();
    let waiters: Vec<_> = (0..100).map(|_| ask(&cache)).collect();
    settle().await;
    assert_eq!((fake.count("t"), fake.count("t.c")), (1, 0));
    fake.open();
    for waiter in waiters {
        assert_eq!(version_of(&waiter.await.unwrap().unwrap()), version(1, 3));
    }
    assert_eq!((fake.count("t"), fake.count("t.c")), (1, 1));
    assert_eq!(now(&cache), Some(version(1, 3)));
    assert_eq!((fake.count("t"), fake.count("t.c")), (1, 1));
}

#[tokio::test]
async fn another_waiter_goes_on_when_the_first_is_gone() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.database("t").await.unwrap();
    fake.close();
    let first = ask(&cache);
    settle().await;
    let second = ask(&cache);
    settle().await;
    assert_eq!(fake.count("t.c"), 1);
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    settle().await;
    fake.open();
    assert_eq!(version_of(&second.await.unwrap().unwrap()), version(1, 3));
    assert_eq!(fake.count("t.c"), 1);
}

#[tokio::test]
async fn a_refresh_that_everyone_left_is_started_anew() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.database("t").await.unwrap();
    fake.close();
    let waiters = [ask(&cache), ask(&cache)];
    settle().await;
    for waiter in waiters {
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    assert_eq!(cache.statistics().num_active_full_refreshes, 0);
    fake.open();
    assert_eq!(version_of(&cache.collection(&ns()).await.unwrap()), version(1, 3));
    assert_eq!(fake.count("t.c"), 2);
}

#[tokio::test]
async fn a_refresh_brings_what_is_new() {
    let fake = Fake::new();
    let cache = cache(&fake);
    let old = cache.collection(&ns()).await.unwrap();
    fake.put_collection("t.c", 1, &[(0, 1), (2, 4), (0, 3)]);
    cache.collection_stale(&ns(), Some(version(1, 4)), None);
    let new = cache.collection(&ns()).await.unwrap();
    assert_eq!(fake.last_known().unwrap().version, Timestamp::new(1, 3));
    let owner = |routing: &Routing| routing.sharded().unwrap().target_key(&key(15)).unwrap().shard;
    assert_eq!((owner(&old), owner(&new)), (shard(1), shard(2)));
    assert_eq!(new.sharded().unwrap().shard_version(&shard(1)), ChunkVersion { major: 0, ..version(1, 0) });
    let statistics = cache.statistics();
    assert_eq!(statistics.count_full_refreshes_started, 1);
    assert_eq!(statistics.count_incremental_refreshes_started, 1);
    assert_eq!(statistics.count_stale_config_errors, 1);
}

#[tokio::test]
async fn news_that_is_known_already_is_none() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    cache.collection_stale(&ns(), Some(version(1, 3)), None);
    cache.collection_stale(&ns(), Some(version(1, 1)), Some(&shard(0)));
    assert_eq!(now(&cache), Some(version(1, 3)));
    let told = cache.collection_refreshed(&ns()).await.unwrap();
    assert!(!told.is_stale_for(&shard(0)));
    assert_eq!(fake.count("t.c"), 1);
    // Without a version, or with one of no incarnation, it is news.
    cache.collection_stale(&ns(), None, None);
    assert!(cache.cached_collection(&ns()).is_none());
    cache.collection(&ns()).await.unwrap();
    cache.collection_stale(&ns(), Some(ChunkVersion::UNSHARDED), None);
    cache.collection(&ns()).await.unwrap();
    assert_eq!(fake.count("t.c"), 3);
}

#[tokio::test]
async fn only_those_who_were_told_wait() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    fake.put_collection("t.c", 1, &[(0, 1), (2, 4), (0, 3)]);
    fake.close();
    cache.collection_stale(&ns(), Some(version(1, 4)), Some(&shard(1)));
    let told = ask_refreshed(&cache);
    settle().await;
    // Others go on with the snapshot, which says for which shard it is not good enough.
    assert_eq!(now(&cache), Some(version(1, 3)));
    let routing = cache.collection(&ns()).await.unwrap();
    assert!(routing.is_stale_for(&shard(1)) && !routing.is_stale_for(&shard(0)));
    assert!(!told.is_finished());
    fake.open();
    let routing = told.await.unwrap().unwrap();
    assert_eq!(version_of(&routing), version(1, 4));
    assert!(!routing.is_stale_for(&shard(1)));
    assert_eq!(now(&cache), Some(version(1, 4)));
    assert_eq!(fake.count("t.c"), 2);
}

#[tokio::test]
async fn many_who_are_told_the_same_refresh_once() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    fake.put_collection("t.c", 1, &[(0, 1), (2, 4), (0, 3)]);
    fake.close();
    let mut told = Vec::new();
    for _ in 0..10 {
        cache.collection_stale(&ns(), Some(version(1, 4)), Some(&shard(1)));
        told.push(ask_refreshed(&cache));
        settle().await;
    }
    fake.open();
    for told in told {
        assert_eq!(version_of(&told.await.unwrap().unwrap()), version(1, 4));
    }
    assert_eq!(fake.count("t.c"), 2);
}

/// A refresh that began before an event does not cover it, unless it brings what the event asks for.
#[tokio::test]
async fn events_during_a_refresh() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    fake.put_collection("t.c", 1, &[(0, 1), (2, 4), (0, 5)]);
    fake.close();
    cache.collection_stale(&ns(), Some(version(1, 4)), None);
    let first = ask(&cache);
    settle().await;
    // Reached by what is under way.
    cache.collection_stale(&ns(), Some(version(1, 5)), None);
    let second = ask(&cache);
    settle().await;
    fake.open();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(fake.count("t.c"), 2);

    // Not reached.
    fake.close();
    cache.collection_stale(&ns(), None, None);
    let first = ask(&cache);
    settle().await;
    fake.put_collection("t.c", 1, &[(0, 1), (2, 4), (0, 9)]);
    cache.collection_stale(&ns(), None, None);
    let second = ask(&cache);
    settle().await;
    fake.open();
    assert_eq!(version_of(&first.await.unwrap().unwrap()), version(1, 5));
    assert_eq!(version_of(&second.await.unwrap().unwrap()), version(1, 9));
    assert_eq!(fake.count("t.c"), 4);
}

#[tokio::test]
async fn a_refresh_does_not_hold_up_other_names() {
    let fake = Fake::new();
    fake.put_collection("t.other", 1, &[(0, 1)]);
    let cache = cache(&fake);
    let other = Namespace::new("t", "other");
    cache.collection(&ns()).await.unwrap();
    cache.collection(&other).await.unwrap();
    fake.close();
    cache.collection_stale(&ns(), None, None);
    let waiter = ask(&cache);
    settle().await;
    assert!(cache.collection(&other).now_or_never().is_some());
    assert!(cache.database("t").now_or_never().is_some());
    assert!(cache.cached_collection(&ns()).is_none());
    fake.open();
    waiter.await.unwrap().unwrap();
}

#[tokio::test]
async fn routing_that_does_not_fit_is_read_again_in_full() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    let mut partial = fake.collections.lock()["t.c"].clone();
    partial.chunks.truncate(1);
    partial.chunks[0].max = key(5);
    let snapshot_error = SourceError::new(246, "Unable to read from a snapshot");
    fake.instead.lock().extend([Err(snapshot_error), Ok(partial.clone())]);
    cache.collection_stale(&ns(), None, None);
    assert_eq!(version_of(&cache.collection(&ns()).await.unwrap()), version(1, 3));
    let known: Vec<bool> = fake.asked.lock().iter().skip(2).map(|(_, known)| known.is_some()).collect();
    assert_eq!(known, [true, true, false]);
    assert_eq!(cache.statistics().count_failed_refreshes, 2);

    fake.instead.lock().extend([partial.clone(), partial.clone(), partial.clone()].map(Ok));
    cache.collection_stale(&ns(), None, None);
    let error = cache.collection(&ns()).await.unwrap_err();
    assert!(matches!(error, CatalogError::Inconsistent { .. }), "{error:?}");
    assert_eq!(error.code(), 117);
    // An incremental answer without any chunk does not fit either.
    partial.chunks.clear();
    fake.instead.lock().push_back(Ok(partial));
    assert_eq!(version_of(&cache.collection(&ns()).await.unwrap()), version(1, 3));
}

#[tokio::test]
async fn errors_are_not_remembered_and_stale_snapshots_not_given_out() {
    let fake = Fake::new();
    let cache = cache(&fake);
    fake.instead.lock().push_back(Err(SourceError::new(133, "no config server")));
    assert_eq!(cache.collection(&ns()).await.unwrap_err().code(), 133);
    assert_eq!(cache.statistics().num_collection_entries, 0);
    cache.collection(&ns()).await.unwrap();
    cache.collection_stale(&ns(), None, None);
    fake.instead.lock().push_back(Err(SourceError::new(133, "no config server")));
    assert_eq!(cache.collection(&ns()).await.unwrap_err().code(), 133);
    assert!(cache.cached_collection(&ns()).is_none());
    assert_eq!(version_of(&cache.collection(&ns()).await.unwrap()), version(1, 3));
}

#[tokio::test]
async fn another_incarnation_is_built_from_scratch() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    fake.put_collection("t.c", 2, &[(5, 1)]);
    cache.collection_stale(&ns(), Some(version(2, 1)), Some(&shard(0)));
    let routing = cache.collection_refreshed(&ns()).await.unwrap();
    assert_eq!(version_of(&routing), version(2, 1));
    assert_eq!(routing.sharded().unwrap().chunks.len(), 1);
    // Dropped: it is there as an unsharded one.
    fake.collections.lock().clear();
    cache.collection_stale(&ns(), Some(ChunkVersion::UNSHARDED), Some(&shard(5)));
    assert!(cache.collection_refreshed(&ns()).await.unwrap().sharded().is_none());
}

#[tokio::test]
async fn unsharded_collections_are_remembered() {
    let fake = Fake::new();
    let cache = cache(&fake);
    let plain = Namespace::new("t", "plain");
    let Routing::Unsharded(entry) = cache.collection(&plain).await.unwrap() else { panic!("sharded") };
    assert_eq!(entry.primary, shard(0));
    cache.collection(&plain).await.unwrap();
    assert_eq!((fake.count("t"), fake.count("t.plain")), (1, 1));
    // Then it is sharded, and a shard says so.
    fake.put_collection("t.plain", 1, &[(0, 1)]);
    cache.collection_stale(&plain, Some(version(1, 1)), Some(&shard(0)));
    assert!(cache.collection(&plain).await.unwrap().sharded().is_some());
}

#[tokio::test]
async fn databases_that_move_and_that_do_not_exist() {
    let fake = Fake::new();
    let cache = cache(&fake);
    let plain = Namespace::new("t", "plain");
    cache.collection(&plain).await.unwrap();
    let old = cache.database("t").await.unwrap().version.unwrap();
    fake.put_database("t", "sh1", 2);
    cache.database_stale("t", Some(old));
    assert_eq!(cache.database("t").await.unwrap().primary, shard(0));
    cache.database_stale("t", Some(DatabaseVersion { last_mod: 2, ..old }));
    let Routing::Unsharded(entry) = cache.collection(&plain).await.unwrap() else { panic!("sharded") };
    assert_eq!((&entry.primary, entry.version.unwrap().last_mod), (&shard(1), 2));
    assert_eq!((fake.count("t"), fake.count("t.plain")), (2, 1));

    for _ in 0..2 {
        let error = cache.database("nodb").await.unwrap_err();
        assert!(error.is_database_not_found());
        assert_eq!((error.code(), error.to_string()), (26, "database nodb not found".to_owned()));
        assert!(cache.collection(&Namespace::new("nodb", "c")).await.unwrap_err().is_database_not_found());
    }
    assert_eq!(fake.count("nodb"), 4);
    assert_eq!(cache.statistics().num_database_entries, 1);

    // Dropped: its collections go with it.
    fake.databases.lock().clear();
    cache.database_stale("t", None);
    assert!(cache.database("t").await.unwrap_err().is_database_not_found());
    assert_eq!(cache.statistics().num_collection_entries, 0);
}

#[tokio::test]
async fn config_servers_hold_admin_and_config() {
    let fake = Fake::new();
    fake.put_collection("config.system.sessions", 1, &[(0, 1)]);
    let cache = cache(&fake);
    for name in ["admin", "config"] {
        let entry = cache.database(name).await.unwrap();
        assert!(entry.primary.is_config() && entry.version.is_none());
    }
    assert!(cache.collection(&Namespace::new("admin", "c")).await.unwrap().sharded().is_none());
    assert!(cache.collection(&Namespace::new("config", "shards")).await.unwrap().sharded().is_none());
    assert!(
        cache.collection(&Namespace::new("config", "system.sessions")).await.unwrap().sharded().is_some()
    );
    assert_eq!(fake.count("admin.c") + fake.count("admin") + fake.count("config"), 0);
}

#[tokio::test]
async fn forgetting() {
    let fake = Fake::new();
    fake.put_database("u", "sh1", 1);
    fake.put_collection("u.c", 1, &[(1, 1)]);
    fake.put_collection("t.d", 1, &[(0, 1)]);
    let cache = cache(&fake);
    let fill = async || {
        for ns in ["t.c", "t.d", "t.plain", "u.c"] {
            cache.collection(&Namespace::parse(ns).unwrap()).await.unwrap();
        }
    };
    let cached = || {
        let mut names = vec![];
        for ns in ["t.c", "t.d", "t.plain", "u.c"] {
            names.extend(cache.collections.contains_key(ns).then_some(ns));
        }
        for db in ["t", "u"] {
            names.extend(cache.databases.contains_key(db).then_some(db));
        }
        names.join(" ")
    };
    fill().await;
    assert_eq!(cached(), "t.c t.d t.plain u.c t u");
    cache.forget_collection(&ns());
    assert_eq!(cached(), "t.d t.plain u.c t u");
    cache.forget_database("t");
    assert_eq!(cached(), "u.c u");
    fill().await;
    cache.forget_shard(&shard(1));
    assert_eq!(cached(), "t.d t.plain t");
    cache.forget_all();
    assert_eq!(cached(), "");
}

#[tokio::test]
async fn the_number_of_names_is_bounded() {
    let fake = Fake::new();
    let cache = CatalogCache::with_capacity(Arc::clone(&fake), 50);
    let used: Vec<Namespace> = (0..20).map(|i| Namespace::new("t", &format!("used{i}"))).collect();
    for ns in &used {
        cache.collection(ns).await.unwrap();
    }
    for i in 0..500 {
        cache.collection(&Namespace::new("t", &format!("c{i}"))).await.unwrap();
        // What is used all the time stays.
        assert!(used.iter().all(|ns| cache.cached_collection(ns).is_some()), "lost after {i}");
        assert!(cache.statistics().num_collection_entries <= 50);
    }
    for i in 0..100 {
        assert!(cache.database(&format!("nodb{i}")).await.is_err());
    }
    assert_eq!(cache.statistics().num_database_entries, 1);
}

#[tokio::test]
async fn shards() {
    let fake = Fake::new();
    fake.put_shard(0, 5);
    let registry = ShardRegistry::new(Arc::clone(&fake));
    assert!(registry.snapshot().is_empty());
    assert_eq!(registry.shard(&shard(0)).await.unwrap().id, shard(0));
    registry.shard(&shard(0)).await.unwrap();
    assert_eq!(fake.count("shards"), 1);
    // An unknown one makes it look again.
    fake.put_shard(1, 6);
    assert_eq!(registry.shard(&shard(1)).await.unwrap().id, shard(1));
    let error = registry.shard(&shard(9)).await.unwrap_err();
    assert_eq!((error.code(), error.to_string()), (70, "Shard sh9 not found".to_owned()));
    assert_eq!(fake.count("shards"), 3);
    assert_eq!(registry.snapshot().topology_time(), Timestamp::new(6, 0));

    registry.topology_time_seen(Timestamp::new(6, 0));
    registry.list().await.unwrap();
    assert_eq!(fake.count("shards"), 3);
    // A shard was removed: no document carries that time, and yet it is looked for only once.
    fake.shards.lock().pop();
    for _ in 0..3 {
        registry.topology_time_seen(Timestamp::new(7, 0));
        assert_eq!(registry.list().await.unwrap().len(), 1);
    }
    assert_eq!(fake.count("shards"), 4);

    fake.close();
    let registry = Arc::new(registry);
    registry.topology_time_seen(Timestamp::new(8, 0));
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let registry = Arc::clone(&registry);
            tokio::spawn(async move { registry.list().await })
        })
        .collect();
    settle().await;
    assert_eq!(registry.snapshot().len(), 1);
    fake.open();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    assert_eq!(fake.count("shards"), 5);
}

#[tokio::test]
async fn statistics_document() {
    let fake = Fake::new();
    let cache = cache(&fake);
    cache.collection(&ns()).await.unwrap();
    let mut buf = DocBuf::new();
    buf.write(|w| cache.statistics().write(w));
    let doc: Doc<'_> = buf.as_doc();
    assert_eq!(doc.get_i64("numDatabaseEntries"), Some(1));
    assert_eq!(doc.get_i64("numCollectionEntries"), Some(1));
    assert_eq!(doc.get_i64("countFullRefreshesStarted"), Some(1));
    assert_eq!(doc.iter().count(), 9);
}

/// Readers, refreshers and operators at once on several threads: nobody hangs, nobody sees an older snapshot than
/// before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_at_once() {
    let fake = Fake::new();
    let cache = cache(&fake);
    let mut tasks = Vec::new();
    for number in 0..8u32 {
        let (cache, fake) = (Arc::clone(&cache), Arc::clone(&fake));
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for round in 0..200u32 {
                match (number, round % 4) {
                    (0, _) => fake.put_collection("t.c", 1, &[(0, 1), (1, 2), (round % 3, 3 + round)]),
                    (1, 0) => cache.collection_stale(&ns(), None, Some(&shard(0))),
                    (2, 0) => cache.collection_stale(&ns(), Some(version(1, 3 + round)), None),
                    (3, 0) => cache.collection_stale(&ns(), None, None),
                    _ => {}
                }
                let routing = if number % 2 == 0 {
                    cache.collection(&ns()).await.unwrap()
                } else {
                    cache.collection_refreshed(&ns()).await.unwrap()
                };
                let minor = version_of(&routing).minor;
                assert!(minor >= last, "{minor} after {last}");
                last = minor;
                if round % 8 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
