//! Change streams: the events of all shards in one order, resumable on any router.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bson::{Bson, Document, doc};
use mongodb::{Client, ClientSession, Database};
use testkit::Cluster;

/// A stream read by hand, so that a test decides when it is asked and where it resumes.
struct Stream {
    db: Database,
    /// A cursor belongs to the session that opened it.
    session: ClientSession,
    id: i64,
    collection: String,
    token: Document,
}

struct Batch {
    events: Vec<Document>,
    open: bool,
}

impl Stream {
    async fn open(db: &Database, target: Bson, stages: Vec<Document>) -> Result<Self, mongodb::error::Error> {
        let mut session = db.client().start_session().await?;
        let aggregate = doc! { "aggregate": target, "pipeline": stages, "cursor": {} };
        let reply = db.run_command(aggregate).session(&mut session).await?;
        let cursor = reply.get_document("cursor").unwrap();
        let (_, collection) = cursor.get_str("ns").unwrap().split_once('.').unwrap();
        Ok(Self {
            db: db.clone(),
            session,
            id: cursor.get_i64("id").unwrap(),
            collection: collection.to_owned(),
            token: cursor.get_document("postBatchResumeToken").unwrap().clone(),
        })
    }

    async fn next(&mut self, wait_ms: i32) -> Result<Batch, mongodb::error::Error> {
        let get_more = doc! { "getMore": self.id, "collection": &self.collection, "maxTimeMS": wait_ms };
        let reply = self.db.run_command(get_more).session(&mut self.session).await?;
        let cursor = reply.get_document("cursor").unwrap();
        self.token = cursor.get_document("postBatchResumeToken").unwrap().clone();
        let events: Vec<Document> = cursor
            .get_array("nextBatch")
            .unwrap()
            .iter()
            .map(|event| event.as_document().unwrap().clone())
            .collect();
        for event in &events {
            assert!(!event.contains_key("$sortKey"), "{event}");
        }
        Ok(Batch { events, open: cursor.get_i64("id").unwrap() != 0 })
    }

    /// Reads until `count` events came.
    async fn take(&mut self, count: usize) -> Vec<Document> {
        let mut events = Vec::new();
        for _ in 0..100 {
            if events.len() >= count {
                break;
            }
            events.extend(self.next(1000).await.unwrap().events);
        }
        assert_eq!(events.len(), count, "{events:?}");
        events
    }
}

async fn start(routers: usize) -> (Cluster, Client) {
    let cluster = Cluster::builder().shards(3).routers(routers).start().await.unwrap();
    cluster.spread("watched.c", "n", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    (cluster, client)
}

fn numbers(events: &[Document]) -> Vec<i32> {
    events.iter().map(|event| event.get_document("documentKey").unwrap().get_i32("n").unwrap()).collect()
}

fn types(events: &[Document]) -> Vec<&str> {
    events.iter().map(|event| event.get_str("operationType").unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_all_shards_come_in_one_order_and_resume_anywhere() {
    let (_cluster, client) = start(1).await;
    let db = client.database("watched");
    let coll = db.collection::<Document>("c");
    let mut stream = Stream::open(&db, "c".into(), vec![doc! { "$changeStream": {} }]).await.unwrap();
    let mut whole = Stream::open(&db, Bson::Int32(1), vec![doc! { "$changeStream": {} }]).await.unwrap();
    let cluster_stream = doc! { "$changeStream": { "allChangesForCluster": true } };
    let mut everything =
        Stream::open(&client.database("admin"), Bson::Int32(1), vec![cluster_stream]).await.unwrap();
    let before = stream.token.clone();
    assert!(stream.next(50).await.unwrap().events.is_empty());

    let order: Vec<i32> = (0..30).map(|step| (step * 70) % 300).collect();
    for n in &order {
        coll.insert_one(doc! { "_id": *n, "n": *n }).await.unwrap();
    }
    coll.update_one(doc! { "n": 70 }, doc! { "$set": { "seen": true } }).await.unwrap();
    coll.delete_one(doc! { "n": 140 }).await.unwrap();
    let mut expected = order.clone();
    expected.extend([70, 140]);
    let events = stream.take(32).await;
    assert_eq!(numbers(&events), expected);
    assert_eq!(types(&events[30..]), ["update", "delete"]);
    assert!(!events[30].contains_key("fullDocument"));
    assert_eq!(numbers(&whole.take(32).await), expected);
    assert_eq!(numbers(&everything.take(32).await), expected);

    // From every token the rest follows, and from a high-water mark too.
    for (index, event) in events.iter().enumerate().step_by(5) {
        let token = event.get_document("_id").unwrap().clone();
        let resume = vec![doc! { "$changeStream": { "resumeAfter": token } }];
        let mut resumed = Stream::open(&db, "c".into(), resume).await.unwrap();
        assert_eq!(numbers(&resumed.take(31 - index).await), expected[index + 1..]);
    }
    let resume = doc! { "$changeStream": { "startAfter": before, "fullDocument": "updateLookup" } };
    let inserts = doc! { "$match": { "operationType": { "$in": ["update"] } } };
    let mut resumed = Stream::open(&db, "c".into(), vec![resume, inserts]).await.unwrap();
    let updates = resumed.take(1).await;
    assert!(updates[0].get_document("fullDocument").unwrap().get_bool("seen").unwrap());

    // A token of no event is never taken for one.
    let data = |event: &Document| event.get_document("_id").unwrap().get_str("_data").unwrap().to_owned();
    let wrong = format!("{}{}", &data(&events[3])[..18], &data(&events[10])[18..]);
    let resume = vec![doc! { "$changeStream": { "resumeAfter": { "_data": wrong } } }];
    let failed = match Stream::open(&db, "c".into(), resume).await {
        Ok(mut stream) => stream.next(3000).await.map(|batch| batch.events).unwrap_err(),
        Err(error) => error,
    };
    assert!(failed.contains_label("NonResumableChangeStreamError"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_shard_does_not_hold_the_others_back() {
    let (_cluster, client) = start(1).await;
    let db = client.database("watched");
    let coll = db.collection::<Document>("c");
    let mut stream = Stream::open(&db, "c".into(), vec![doc! { "$changeStream": {} }]).await.unwrap();
    for n in 0..5 {
        coll.insert_one(doc! { "_id": n, "n": n }).await.unwrap();
        // Half of the interval in which a shard writes by itself.
        let batch = stream.next(5000).await.unwrap();
        assert_eq!(numbers(&batch.events), [n]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_collection_ends_its_stream_and_not_that_of_the_database() {
    let (_cluster, client) = start(1).await;
    let db = client.database("watched");
    let coll = db.collection::<Document>("c");
    let mut stream = Stream::open(&db, "c".into(), vec![doc! { "$changeStream": {} }]).await.unwrap();
    let only_inserts = doc! { "$match": { "operationType": "insert" } };
    let mut filtered =
        Stream::open(&db, "c".into(), vec![doc! { "$changeStream": {} }, only_inserts]).await.unwrap();
    let mut whole = Stream::open(&db, Bson::Int32(1), vec![doc! { "$changeStream": {} }]).await.unwrap();
    coll.insert_one(doc! { "_id": 1, "n": 150 }).await.unwrap();
    coll.drop().await.unwrap();

    let mut events = Vec::new();
    let mut open = true;
    while open {
        let batch = stream.next(5000).await.unwrap();
        events.extend(batch.events);
        open = batch.open;
    }
    let types = types(&events);
    assert_eq!((types[0], types[1]), ("insert", "drop"));
    assert_eq!(types.iter().filter(|name| **name == "invalidate").count(), 1, "{types:?}");
    assert_eq!(types.last(), Some(&"invalidate"));
    let token = stream.token.clone();
    assert_eq!(Some(&token), events.last().unwrap().get_document("_id").ok());

    let mut seen = 0;
    loop {
        let batch = filtered.next(5000).await.unwrap();
        seen += batch.events.len();
        if !batch.open {
            break;
        }
    }
    assert_eq!(seen, 1);

    let resume = vec![doc! { "$changeStream": { "resumeAfter": token } }];
    let refused = Stream::open(&db, "c".into(), resume).await.map(|_| ()).unwrap_err();
    let mongodb::error::ErrorKind::Command(failed) = &*refused.kind else { panic!("{refused}") };
    assert_eq!(failed.code, 260);
    db.collection::<Document>("other").insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
    let last = loop {
        let batch = whole.next(5000).await.unwrap();
        assert!(batch.open);
        if let Some(event) =
            batch.events.last().filter(|event| event.get_str("operationType").ok() == Some("insert")).cloned()
            && event.get_document("ns").unwrap().get_str("coll").ok() == Some("other")
        {
            break event;
        }
    };
    assert_eq!(last.get_document("documentKey").unwrap().get_i32("_id").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_added_joins_the_stream() {
    let (cluster, client) = start(1).await;
    let admin = client.database("admin");
    admin.run_command(doc! { "moveChunk": "watched.c", "find": { "n": 250 }, "to": "shard0" }).await.unwrap();
    let connection = cluster.shard(2).unwrap().connection_string();
    testkit::eventually_within(std::time::Duration::from_secs(60), "shard2 is removed", || async {
        let removed = admin.run_command(doc! { "removeShard": "shard2" }).await;
        removed.is_ok_and(|reply| reply.get_str("state").ok() == Some("completed"))
    })
    .await
    .unwrap();
    let all = vec![doc! { "$changeStream": { "allChangesForCluster": true } }];
    let mut stream = Stream::open(&admin, Bson::Int32(1), all).await.unwrap();
    // What it held once must not be there when it joins again.
    cluster.shard(2).unwrap().client().await.unwrap().database("watched").drop().await.unwrap();
    admin.run_command(doc! { "addShard": connection.to_string(), "name": "late" }).await.unwrap();
    admin.run_command(doc! { "enableSharding": "fresh", "primaryShard": "late" }).await.unwrap();
    let there = client.database("fresh").collection::<Document>("c");
    let here = client.database("watched").collection::<Document>("c");
    for (n, coll) in [(10, &here), (250, &there), (150, &here), (260, &there)] {
        coll.insert_one(doc! { "_id": n, "n": n }).await.unwrap();
    }
    let found: Vec<i32> = stream
        .take(4)
        .await
        .iter()
        .map(|event| event.get_document("documentKey").unwrap().get_i32("_id").unwrap())
        .collect();
    assert_eq!(found, [10, 250, 150, 260]);
}

/// The state of a document is counted up, one event a step; chunks move, and the stream goes on through one router and
/// the other in turn.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_each_document_is_complete_across_routers_and_moved_chunks() {
    const DOCUMENTS: i32 = 12;
    const STEPS: i32 = 25;
    let (cluster, client) = start(2).await;
    let coll = client.database("watched").collection::<Document>("c");
    let mut routers = Vec::new();
    for index in 0..2 {
        let uri = cluster.router(index).unwrap().uri();
        routers.push(Client::with_uri_str(uri).await.unwrap().database("watched"));
    }
    // A router that saw the inserts starts behind them.
    let first = routers[0].collection::<Document>("c");
    first.insert_many((0..DOCUMENTS).map(|n| doc! { "_id": n, "n": n * 25, "step": 0 })).await.unwrap();
    let mut stream = Stream::open(&routers[0], "c".into(), vec![doc! { "$changeStream": {} }]).await.unwrap();

    let writer = tokio::spawn(async move {
        for step in 1..=STEPS {
            for n in 0..DOCUMENTS {
                coll.update_one(doc! { "n": n * 25 }, doc! { "$set": { "step": step } }).await.unwrap();
            }
        }
    });
    let admin = client.database("admin");
    let mover = tokio::spawn(async move {
        for (at, to) in [(50, "shard1"), (150, "shard2"), (50, "shard0"), (250, "shard1"), (150, "shard0")] {
            admin
                .run_command(doc! { "moveChunk": "watched.c", "find": { "n": at }, "to": to })
                .await
                .unwrap();
        }
    });

    let mut histories: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let expected = usize::try_from(DOCUMENTS * STEPS).unwrap();
    let mut seen = 0;
    for turn in 0.. {
        assert!(turn < 2000, "{seen} of {expected} events: {histories:?}");
        let batch = stream.next(500).await.unwrap();
        for event in &batch.events {
            assert_eq!(event.get_str("operationType").unwrap(), "update", "{event}");
            let fields =
                event.get_document("updateDescription").unwrap().get_document("updatedFields").unwrap();
            let key = event.get_document("documentKey").unwrap().get_i32("n").unwrap();
            histories.entry(key).or_default().push(fields.get_i32("step").unwrap());
            seen += 1;
        }
        if seen >= expected {
            break;
        }
        if turn % 2 == 1 {
            let resume = vec![doc! { "$changeStream": { "resumeAfter": stream.token.clone() } }];
            let router = &routers[turn / 2 % 2];
            stream = Stream::open(router, "c".into(), resume).await.unwrap();
        }
    }
    writer.await.unwrap();
    mover.await.unwrap();
    assert!(stream.next(500).await.unwrap().events.is_empty());
    let complete: Vec<i32> = (1..=STEPS).collect();
    for (n, history) in histories {
        assert_eq!(history, complete, "document {n}");
    }
}

/// xorshift: the same everywhere, from a seed that the test prints.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }
}

/// Opens a stream behind `token` on one of the routers; while a shard elects its primary that may take a few tries.
async fn resumed(routers: &[Database], random: &mut Random, token: &Document) -> Stream {
    let mut last = None;
    for _ in 0..200 {
        let router = &routers[random.below(routers.len())];
        let resume = vec![doc! { "$changeStream": { "resumeAfter": token.clone() } }];
        match Stream::open(router, "c".into(), resume).await {
            Ok(stream) => return stream,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the stream cannot be resumed: {last:?}");
}

/// As above, and shards elect new primaries meanwhile; the reader is killed and goes on elsewhere at random. `STREAM_SEED`
/// repeats a run.
#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_each_document_is_complete_across_elections() {
    const DOCUMENTS: i32 = 8;
    let seed = std::env::var("STREAM_SEED").ok().map_or_else(
        || u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()) | 1,
        |text| text.parse().unwrap(),
    );
    println!("STREAM_SEED={seed}");
    let mut random = Random(seed);
    let cluster = Arc::new(Cluster::builder().shards(2).members(3).routers(2).start().await.unwrap());
    cluster.spread("watched.c", "n", &[100]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let coll = client.database("watched").collection::<Document>("c");
    let mut routers = Vec::new();
    for router in cluster.routers() {
        routers.push(Client::with_uri_str(router.uri()).await.unwrap().database("watched"));
    }
    let first = routers[0].collection::<Document>("c");
    first.insert_many((0..DOCUMENTS).map(|n| doc! { "_id": n, "n": n * 25, "step": 0 })).await.unwrap();
    let mut stream = Stream::open(&routers[0], "c".into(), vec![doc! { "$changeStream": {} }]).await.unwrap();

    let over = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let over = Arc::clone(&over);
        let majority = mongodb::options::WriteConcern::majority();
        async move {
            let mut step = 0;
            while !over.load(Ordering::Relaxed) || step < 5 {
                step += 1;
                for n in 0..DOCUMENTS {
                    // Setting the same again changes nothing, so an answer that was lost is no second event.
                    let mut tries = 0;
                    while let Err(error) = coll
                        .update_one(doc! { "n": n * 25 }, doc! { "$set": { "step": step } })
                        .write_concern(majority.clone())
                        .await
                    {
                        tries += 1;
                        assert!(tries < 100, "step {step} of {n}: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
            step
        }
    });
    let chaos = tokio::spawn({
        let (cluster, over) = (Arc::clone(&cluster), Arc::clone(&over));
        async move {
            for (n, to, hurt) in [(50, "shard1", 0), (150, "shard0", 1), (50, "shard0", 1)] {
                // A migration that an election interrupts is no matter here.
                let _ = cluster.move_chunk("watched.c", doc! { "n": n }, to).await;
                cluster.shard(hurt).unwrap().step_down().await.unwrap();
            }
            over.store(true, Ordering::Relaxed);
        }
    });

    let mut histories: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let (mut writer, mut steps) = (Some(writer), None);
    let (mut resumes, mut turns) = (0, 0);
    let complete = |histories: &BTreeMap<i32, Vec<i32>>, steps: Option<i32>| {
        steps.is_some()
            && histories.len() == usize::try_from(DOCUMENTS).unwrap()
            && histories.values().all(|history| history.last().copied() == steps)
    };
    while !complete(&histories, steps) {
        turns += 1;
        assert!(turns < 5_000, "seed {seed}: no end at {steps:?}: {histories:?}");
        let read = stream.next(300).await;
        for event in read.iter().flat_map(|batch| &batch.events) {
            assert_eq!(event.get_str("operationType").unwrap(), "update", "{event}");
            let fields =
                event.get_document("updateDescription").unwrap().get_document("updatedFields").unwrap();
            let key = event.get_document("documentKey").unwrap().get_i32("n").unwrap();
            histories.entry(key).or_default().push(fields.get_i32("step").unwrap());
        }
        // An election closes the shards' cursors: the reader goes on elsewhere, as drivers do.
        if read.is_err() || random.below(4) == 0 {
            stream = resumed(&routers, &mut random, &stream.token.clone()).await;
            resumes += 1;
        }
        if let Some(finished) = writer.take_if(|writer| writer.is_finished()) {
            steps = Some(finished.await.unwrap());
        }
    }
    chaos.await.unwrap();
    let complete: Vec<i32> = (1..=steps.unwrap()).collect();
    println!("{} steps of {DOCUMENTS} documents, {resumes} resumes", complete.len());
    for (n, history) in histories {
        assert_eq!(history, complete, "seed {seed}: document {n}");
    }
}
