//! Chunks move and split while clients read and write: nothing is lost, doubled or missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use mongodb::{Client, Collection};
use testkit::{Cluster, owners};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const DB: &str = "mig";
const NS: &str = "mig.c";
const SPACE: i32 = 9_000;
const STABLE: i32 = 3_000;
const MIGRATIONS: usize = 20;
const SPLITS: usize = 20;
const WRITES: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(240);

/// What all the clients of the storm share.
struct Storm {
    cluster: Cluster,
    stop: AtomicBool,
    acknowledged: AtomicUsize,
    scans: AtomicUsize,
    reads: AtomicUsize,
    next_id: AtomicI32,
}

impl Storm {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    async fn collection(&self) -> Collection<Document> {
        self.cluster.client().await.unwrap().database(DB).collection("c")
    }
}

/// A small deterministic generator: the storm can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: i32) -> i32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i32::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// Reads stable documents by key: each must always be there.
async fn read_by_key(storm: Arc<Storm>, seed: u64) {
    let coll = storm.collection().await;
    let mut random = Random(seed);
    while storm.running() {
        let k = random.below(STABLE) * (SPACE / STABLE);
        let found = coll.find_one(doc! { "k": k, "stable": true }).await.unwrap();
        assert_eq!(
            found.map(|document| document.get_i32("k").unwrap()),
            Some(k),
            "a stable document is missing"
        );
        storm.reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// Scans everything in small batches: each stable document must come exactly once, in order.
async fn scan(storm: Arc<Storm>, sort: Document) {
    let coll = storm.collection().await;
    let key = sort.keys().next().cloned().unwrap();
    let sign = sort.get_i32(&key).unwrap();
    while storm.running() {
        let mut cursor = coll.find(doc! {}).sort(sort.clone()).batch_size(300).await.unwrap();
        let mut seen = BTreeSet::new();
        let mut last = i32::MIN;
        while cursor.advance().await.unwrap() {
            let document = cursor.deserialize_current().unwrap();
            let value = document.get_i32(&key).unwrap() * sign;
            assert!(last <= value, "{key} {value} came after {last}");
            last = value;
            if document.get_bool("stable").unwrap_or(false) {
                assert!(seen.insert(document.get_i32("k").unwrap()), "{document} came twice in one scan");
            }
        }
        assert_eq!(seen.len(), usize::try_from(STABLE).unwrap(), "a scan by {key} missed stable documents");
        storm.scans.fetch_add(1, Ordering::Relaxed);
    }
}

/// What one writer was told is done.
#[derive(Default)]
struct Done {
    inserted: Vec<i32>,
    deleted: Vec<i32>,
    increments: BTreeMap<i32, i32>,
}

/// Single writes and retryable batches over all shards; every acknowledged one is noted.
async fn write(storm: Arc<Storm>, writer: i32) -> Done {
    let coll = storm.collection().await;
    let mut random = Random(u64::try_from(writer).unwrap() * 7919 + 1);
    let mut done = Done::default();
    // Each writer has counters of its own: the sum tells a lost from a doubled increment.
    let counters: Vec<i32> = (0..30).map(|n| n * (SPACE / 30) + writer + 1).collect();
    for k in &counters {
        coll.insert_one(doc! { "_id": format!("counter {writer} {k}"), "k": k, "writer": writer, "n": 0, "r": random.below(1_000) })
            .await
            .unwrap();
    }
    while storm.running() {
        for round in 0..4 {
            let ids: Vec<i32> = (0..25).map(|_| storm.next_id.fetch_add(1, Ordering::Relaxed)).collect();
            let batch =
                ids.iter().map(|id| doc! { "_id": id, "k": random.below(SPACE), "r": random.below(1_000) });
            let batch: Vec<Document> = batch.collect();
            coll.insert_many(batch).ordered(round % 2 == 0).await.unwrap();
            storm.acknowledged.fetch_add(ids.len(), Ordering::Relaxed);
            done.inserted.extend(ids);
        }
        for _ in 0..20 {
            let k = counters[usize::try_from(random.below(30)).unwrap()];
            let filter = doc! { "k": k, "writer": writer };
            let updated = coll.update_one(filter, doc! { "$inc": { "n": 1 } }).await.unwrap();
            assert_eq!((updated.matched_count, updated.modified_count), (1, 1), "counter {k} was not found");
            *done.increments.entry(k).or_insert(0) += 1;
            storm.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        // By _id alone: the router has to find it on any shard.
        let id = done.inserted.swap_remove(usize::try_from(random.below(20)).unwrap());
        assert_eq!(
            coll.delete_one(doc! { "_id": id }).await.unwrap().deleted_count,
            1,
            "{id} was not there to delete"
        );
        storm.acknowledged.fetch_add(1, Ordering::Relaxed);
        done.deleted.push(id);
    }
    done
}

/// How many migrations and splits the config servers have committed.
async fn committed(cluster: &Cluster) -> (usize, usize) {
    let moves = cluster.changelog("moveChunk.commit").await.unwrap().len();
    let splits = cluster.changelog("split").await.unwrap().len()
        + cluster.changelog("multi-split").await.unwrap().len();
    (moves, splits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_see_every_document_once_while_chunks_move_and_split() {
    // Two routers: one of them always learns of a move from a shard's refusal.
    let cluster = Cluster::builder().shards(3).routers(2).start().await.unwrap();
    cluster.spread(NS, "k", &[i64::from(SPACE) / 3, i64::from(SPACE) * 2 / 3]).await.unwrap();
    let storm = Arc::new(Storm {
        cluster,
        stop: AtomicBool::new(false),
        acknowledged: AtomicUsize::new(0),
        scans: AtomicUsize::new(0),
        reads: AtomicUsize::new(0),
        next_id: AtomicI32::new(0),
    });
    let stable = (0..STABLE).map(|n| doc! { "_id": format!("stable {n}"), "k": n * (SPACE / STABLE), "r": n * 7 % 1_000, "stable": true });
    storm.collection().await.insert_many(stable).await.unwrap();
    let before = committed(&storm.cluster).await;

    let mut readers = JoinSet::new();
    readers.spawn(read_by_key(Arc::clone(&storm), 11));
    readers.spawn(read_by_key(Arc::clone(&storm), 12));
    readers.spawn(scan(Arc::clone(&storm), doc! { "k": 1 }));
    readers.spawn(scan(Arc::clone(&storm), doc! { "k": -1 }));
    readers.spawn(scan(Arc::clone(&storm), doc! { "r": 1 }));
    let mut writers = JoinSet::new();
    for writer in 0..3 {
        writers.spawn(write(Arc::clone(&storm), writer));
    }

    let mut random = Random(4_242);
    let begin = Instant::now();
    let mut refused = Vec::new();
    loop {
        assert!(
            begin.elapsed() < LIMIT,
            "not enough within {LIMIT:?}: {:?}, refused: {refused:#?}",
            committed(&storm.cluster).await
        );
        let (moves, splits) = committed(&storm.cluster).await;
        let (moves, splits) = (moves - before.0, splits - before.1);
        if moves >= MIGRATIONS && splits >= SPLITS && storm.acknowledged.load(Ordering::Relaxed) >= WRITES {
            break;
        }
        // A client that failed must end the storm at once, with its own message.
        if let Some(ended) = readers.try_join_next() {
            ended.unwrap();
        }
        if let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        // A split where a bound already is, and a move of a range that the recipient still cleans up, are refused: that
        // is the servers' right and no failure. What counts is what was committed.
        if splits < SPLITS + 10
            && let Err(error) = storm.cluster.split_at(NS, doc! { "k": random.below(SPACE) }).await
        {
            refused.push(format!("{error:#}"));
        }
        let to = format!("shard{}", random.below(3));
        if let Err(error) = storm.cluster.move_chunk(NS, doc! { "k": random.below(SPACE) }, &to).await {
            refused.push(format!("{error:#}"));
        }
    }
    storm.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = readers.join_next().await {
        ended.unwrap();
    }
    let mut done = Vec::new();
    while let Some(ended) = writers.join_next().await {
        done.push(ended.unwrap());
    }
    assert!(storm.scans.load(Ordering::Relaxed) >= 6, "too few scans to mean anything");
    assert!(storm.reads.load(Ordering::Relaxed) >= 100, "too few reads to mean anything");

    // Nothing lost, nothing doubled.
    let mut cursor = storm.collection().await.find(doc! {}).await.unwrap();
    let (mut found, mut counters) = (BTreeSet::new(), BTreeMap::new());
    let mut stable = 0;
    while cursor.advance().await.unwrap() {
        let document = cursor.deserialize_current().unwrap();
        if let Ok(id) = document.get_i32("_id") {
            assert!(found.insert(id), "document {id} is there twice");
        } else if let Ok(n) = document.get_i32("n") {
            let k = document.get_i32("k").unwrap();
            assert!(counters.insert(k, n).is_none(), "counter {k} is there twice");
        } else {
            stable += 1;
        }
    }
    assert_eq!(stable, STABLE);
    let expected: BTreeSet<i32> = done.iter().flat_map(|done| done.inserted.iter().copied()).collect();
    let lost: Vec<&i32> = expected.difference(&found).collect();
    let back: Vec<&i32> = found.difference(&expected).collect();
    assert!(
        lost.is_empty() && back.is_empty(),
        "lost: {lost:?}; there but deleted or never written: {back:?}"
    );
    for (k, n) in done.iter().flat_map(|done| &done.increments) {
        assert_eq!(counters.get(k), Some(n), "increments of counter {k}");
    }
    let (moves, splits) = committed(&storm.cluster).await;
    println!(
        "{} migrations, {} splits, {} acknowledged writes, {} scans, {} reads by key in {:?}; {} moves or splits refused",
        moves - before.0,
        splits - before.1,
        storm.acknowledged.load(Ordering::Relaxed),
        storm.scans.load(Ordering::Relaxed),
        storm.reads.load(Ordering::Relaxed),
        begin.elapsed(),
        refused.len(),
    );
}

/// Two shards, k below 100 on the first; 200 documents.
async fn two_halves() -> (Cluster, Client, Collection<Document>) {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread(NS, "k", &[100]).await.unwrap();
    for bound in [50, 150] {
        cluster.split_at(NS, doc! { "k": bound }).await.unwrap();
    }
    let client = cluster.client().await.unwrap();
    let coll = client.database(DB).collection::<Document>("c");
    coll.insert_many((0..200).map(|k| doc! { "k": k, "back": 200 - k })).await.unwrap();
    (cluster, client, coll)
}

/// Opens a cursor, moves a chunk, reads the rest: each document once, in order.
async fn move_under_cursor(sort: Document, key: i32, to: &str) {
    let (cluster, _client, coll) = two_halves().await;
    let mut cursor = coll.find(doc! {}).sort(sort.clone()).batch_size(10).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..5 {
        assert!(cursor.advance().await.unwrap());
        seen.push(cursor.deserialize_current().unwrap().get_i32("k").unwrap());
    }
    // The donor keeps its copy for the open cursor, so nobody waits for the deletion here.
    cluster.move_chunk(NS, doc! { "k": key }, to).await.unwrap();
    assert!(owners(&cluster.chunks(NS).await.unwrap()).iter().filter(|owner| *owner == to).count() == 3);
    // A second query refreshes the router while the first cursor is open.
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 200);
    while timeout(Duration::from_secs(30), cursor.advance()).await.expect("the cursor hangs").unwrap() {
        seen.push(cursor.deserialize_current().unwrap().get_i32("k").unwrap());
    }
    let mut expected: Vec<i32> = (0..200).collect();
    match sort.keys().next().map(String::as_str) {
        Some("k") => assert_eq!(seen, expected, "{sort}: {key} to {to}"),
        Some(_) => {
            expected.reverse();
            assert_eq!(seen, expected, "{sort}: {key} to {to}");
        }
        None => {
            seen.sort_unstable();
            assert_eq!(seen, expected, "no sort: {key} to {to}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_moves_under_an_open_cursor_comes_once_in_either_direction() {
    for sort in [doc! { "k": 1 }, doc! { "back": 1 }, doc! {}] {
        // From the shard that is read to the one that is not yet, and the other way round.
        move_under_cursor(sort.clone(), 60, "shard1").await;
        move_under_cursor(sort.clone(), 110, "shard0").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_router_refreshes_and_writes_to_the_new_owner() {
    let cluster = Cluster::builder().shards(2).routers(2).start().await.unwrap();
    cluster.spread(NS, "k", &[100]).await.unwrap();
    let stale = cluster.router(1).unwrap().client().await.unwrap().database(DB).collection::<Document>("c");
    stale.insert_many((0..200).map(|k| doc! { "k": k, "n": 0 })).await.unwrap();
    cluster.move_chunk(NS, doc! { "k": 0 }, "shard1").await.unwrap();
    cluster.move_chunk(NS, doc! { "k": 100 }, "shard0").await.unwrap();
    // Each is the first command of its kind after the moves, through the router that has not heard of them.
    assert_eq!(
        stale.update_one(doc! { "k": 5 }, doc! { "$inc": { "n": 1 } }).await.unwrap().modified_count,
        1
    );
    assert_eq!(stale.update_many(doc! {}, doc! { "$inc": { "n": 1 } }).await.unwrap().modified_count, 200);
    stale.insert_many([doc! { "k": 7, "new": 1 }, doc! { "k": 107, "new": 1 }]).await.unwrap();
    assert_eq!(stale.delete_one(doc! { "k": 150 }).await.unwrap().deleted_count, 1);
    assert_eq!(stale.find_one(doc! { "k": 5 }).await.unwrap().unwrap().get_i32("n").unwrap(), 2);
    for (shard, wanted) in [(0, [107].as_slice()), (1, &[7])] {
        let own =
            cluster.shard(shard).unwrap().client().await.unwrap().database(DB).collection::<Document>("c");
        let count = own.count_documents(doc! { "new": 1, "k": { "$in": wanted.to_vec() } }).await.unwrap();
        assert_eq!(count, 1, "the insert is on the new owner");
    }
}
