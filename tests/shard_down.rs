//! A shard is down: only what needs its documents fails, and a query that may leave them out says that it did.

use bson::{Document, doc};
use futures_util::future::join_all;
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "down";

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

/// The keys of a batch, whether documents were left out, and whether the cursor is at its end.
fn answer(reply: &Document) -> (Vec<i32>, bool, bool) {
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("no cursor in {reply}"));
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
    let keys = batch.iter().map(|item| item.as_document().unwrap().get_i32("k").unwrap()).collect();
    let partial = cursor.get_bool("partialResultsReturned").unwrap_or(false);
    (keys, partial, cursor.get_i64("id").unwrap() == 0)
}

/// Three shards with the keys 0 to 9, 100 to 109 and 200 to 209.
async fn start() -> Cluster {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread(&format!("{DB}.c"), "k", &[100, 200]).await.unwrap();
    cluster.admin(doc! { "enableSharding": "lone", "primaryShard": "shard1" }).await.unwrap();
    let mut conn = conn(&cluster).await;
    let keys = (0..30).map(|n| n / 10 * 100 + n % 10);
    let documents: Vec<Document> = keys.map(|k| doc! { "_id": k, "k": k }).collect();
    conn.command_ok(DB, doc! { "insert": "c", "documents": documents }).await.unwrap();
    conn.command_ok("lone", doc! { "insert": "c", "documents": [{ "k": 1 }] }).await.unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn open_cursors_lose_the_documents_of_a_shard_that_dies_only_if_they_may() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let mut opened = Vec::new();
    for (filter, sort, partial) in [
        (doc! {}, doc! { "k": -1 }, true),
        (doc! {}, doc! {}, true),
        (doc! { "k": { "$gte": 100, "$lt": 200 } }, doc! {}, true),
        (doc! {}, doc! { "k": -1 }, false),
    ] {
        let find = doc! { "find": "c", "filter": filter, "sort": sort, "batchSize": 2, "allowPartialResults": partial };
        let reply = conn.command_ok(DB, find).await.unwrap();
        assert!(!answer(&reply).1, "{reply}");
        opened.push((reply.get_document("cursor").unwrap().get_i64("id").unwrap(), answer(&reply).0));
    }
    cluster.shard(1).unwrap().member(0).unwrap().kill();

    let mut read = Vec::new();
    for (id, mut keys) in opened {
        let end = loop {
            let reply =
                conn.command(DB, doc! { "getMore": id, "collection": "c", "batchSize": 5 }).await.unwrap();
            if !is_ok(&reply) {
                break Err(reply);
            }
            let (more, partial, ended) = answer(&reply);
            keys.extend(more);
            if ended {
                break Ok(partial);
            }
        };
        read.push((keys, end));
    }
    // Two documents of each shard were on their way before it died.
    let (keys, end) = &read[0];
    assert!(keys.is_sorted_by(|a, b| a > b), "{keys:?}");
    assert_eq!((keys.len(), end.clone().ok()), (22, Some(true)), "{keys:?}, {end:?}");
    let (keys, end) = &read[1];
    assert_eq!((keys.len(), end.clone().ok()), (22, Some(true)), "{keys:?}, {end:?}");
    let (keys, end) = &read[2];
    assert_eq!((keys.as_slice(), end.clone().ok()), (&[100, 101][..], Some(true)), "{end:?}");
    let error = read[3].1.clone().expect_err("a cursor that needs every document went on without some");
    let address = cluster.shard(1).unwrap().member(0).unwrap().address();
    assert!(error.get_str("errmsg").unwrap().contains(&address), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_needs_a_dead_shard_fails_and_partial_answers_say_so() {
    let cluster = start().await;
    cluster.shard(1).unwrap().member(0).unwrap().kill();

    let mut living = conn(&cluster).await;
    for k in [1, 201] {
        let found = living.command_ok(DB, doc! { "find": "c", "filter": { "k": k } }).await.unwrap();
        assert_eq!(answer(&found), (vec![k], false, true));
        let set = doc! { "update": "c", "updates": [{ "q": { "k": k }, "u": { "$set": { "x": 1 } } }] };
        assert_eq!(living.command_ok(DB, set).await.unwrap().get_i32("nModified").unwrap(), 1);
    }

    let find = |filter: Document, partial: bool| {
        doc! { "find": "c", "filter": filter, "sort": { "k": 1 }, "limit": 12, "allowPartialResults": partial }
    };
    let one = || doc! { "k": 105 };
    let cases = [
        (DB, find(doc! {}, true), Ok((0..10).chain(200..202).collect())),
        (DB, find(one(), true), Ok(vec![])),
        ("lone", find(doc! {}, true), Ok(vec![])),
        (DB, find(doc! {}, false), Err(133)),
        (DB, find(one(), false), Err(133)),
        (DB, doc! { "count": "c", "query": one() }, Err(133)),
        (DB, doc! { "aggregate": "c", "pipeline": [{ "$match": one() }], "cursor": {} }, Err(133)),
        (DB, doc! { "findAndModify": "c", "query": one(), "remove": true }, Err(133)),
    ];
    // Each waits for a primary as long as a server's own routing code does: all of them at once.
    let idle = cluster.shard(2).unwrap().member(0).unwrap();
    let asked = cases.into_iter().map(|(db, command, expected): (&str, Document, Result<Vec<i32>, i32>)| {
        let cluster = &cluster;
        async move {
            let mut routed = conn(cluster).await;
            let (reply, by_server) = tokio::join!(routed.command(db, command.clone()), async {
                if !command.contains_key("find") {
                    return None;
                }
                let mut own = doc! { "clusterFind": "c", "readConcern": {} };
                own.extend(command.clone().into_iter().skip(1));
                Some(idle.raw().await.unwrap().command(db, own).await.unwrap())
            });
            let reply = reply.unwrap();
            for reply in std::iter::once(&reply).chain(&by_server) {
                match &expected {
                    Ok(keys) => assert_eq!(answer(reply), (keys.clone(), true, true), "{command}"),
                    Err(code) => {
                        assert_eq!(reply.get_i32("code").ok(), Some(*code), "{command}: {reply}");
                        assert_eq!(reply.get_str("codeName").unwrap(), "FailedToSatisfyReadPreference");
                        assert!(reply.get_str("errmsg").unwrap().contains("shard1"), "{command}: {reply}");
                    }
                }
            }
        }
    });
    // Statements of one batch: each says for itself whether its shard was there.
    let documents = [211, 111, 212].map(|k| doc! { "k": k });
    let insert = doc! { "insert": "c", "ordered": false, "documents": documents.to_vec() };
    let (_, inserted) = tokio::join!(join_all(asked), living.command(DB, insert));
    let inserted = inserted.unwrap();
    assert_eq!(inserted.get_i32("n").unwrap(), 2, "{inserted}");
    let errors = inserted.get_array("writeErrors").unwrap().iter().map(|error| error.as_document().unwrap());
    let failed: Vec<_> =
        errors.map(|error| (error.get_i32("index").unwrap(), error.get_i32("code").unwrap())).collect();
    assert_eq!(failed, [(1, 133)], "{inserted}");
    let text =
        inserted.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_str("errmsg").unwrap();
    assert!(
        text.starts_with("Write results unavailable from failing to target a host in the shard shard1"),
        "{text}"
    );
    assert!(text.contains("Could not find host matching read preference"), "{text}");
}
