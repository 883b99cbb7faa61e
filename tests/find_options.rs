//! Every option of a find gives over several shards what it gives on one.

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "opt";

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

/// The same 300 documents in a sharded collection and in one that is not.
async fn start() -> Cluster {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread(&format!("{DB}.sharded"), "x", &[100, 200]).await.unwrap();
    let words = ["shard", "chunk shard", "router", "Shard shard shard", "zone"];
    let documents: Vec<Document> = (0..300)
        .map(|n| doc! { "_id": n, "x": n, "g": n % 7, "s": words[usize::try_from(n).unwrap() % 5], "at": [n % 10, n % 9] })
        .collect();
    let mut conn = conn(&cluster).await;
    for name in ["sharded", "plain"] {
        conn.command_ok(DB, doc! { "insert": name, "documents": &documents }).await.unwrap();
        let indexes = [
            doc! { "key": { "g": 1, "x": 1 }, "name": "g_x" },
            doc! { "key": { "s": "text" }, "name": "words" },
            doc! { "key": { "at": "2d" }, "name": "at" },
        ];
        conn.command_ok(DB, doc! { "createIndexes": name, "indexes": indexes.to_vec() }).await.unwrap();
    }
    cluster
}

/// All that a find gives in batches of 20, and whether its cursor stayed open after the first.
async fn read(
    conn: &mut RawConn,
    collection: &str,
    options: &Document,
) -> Result<(Vec<Document>, bool), Document> {
    let mut command = doc! { "find": collection, "batchSize": 20 };
    command.extend(options.clone());
    let first = conn.command(DB, command).await.unwrap();
    if !is_ok(&first) {
        return Err(first);
    }
    let part = |reply: &Document, name: &str| {
        let cursor = reply.get_document("cursor").unwrap();
        let batch: Vec<Document> =
            cursor.get_array(name).unwrap().iter().map(|item| item.as_document().unwrap().clone()).collect();
        (cursor.get_i64("id").unwrap(), batch)
    };
    let (mut id, mut documents) = part(&first, "firstBatch");
    let stays = id != 0;
    while id != 0 {
        let more = doc! { "getMore": id, "collection": collection, "batchSize": 50 };
        let (next, batch) = part(&conn.command_ok(DB, more).await.unwrap(), "nextBatch");
        documents.extend(batch);
        id = next;
    }
    Ok((documents, stays))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_option_gives_what_it_gives_on_one_shard() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let by_g = || doc! { "g": 1, "x": 1 };
    for options in [
        doc! { "filter": { "g": 3 }, "sort": { "x": 1 }, "hint": "g_x" },
        doc! { "filter": { "g": 3 }, "sort": { "x": -1 }, "hint": by_g() },
        doc! { "filter": { "x": { "$gt": 90 } }, "sort": { "_id": 1 }, "hint": { "$natural": 1 } },
        doc! { "hint": by_g(), "min": { "g": 2, "x": 0 }, "max": { "g": 4, "x": 150 }, "sort": by_g() },
        doc! { "hint": by_g(), "min": { "g": 5, "x": 100 }, "sort": { "g": -1, "x": -1 }, "limit": 30 },
        doc! { "filter": { "g": 1 }, "hint": by_g(), "returnKey": true, "sort": { "x": 1 } },
        doc! { "sort": { "x": -1 }, "projection": { "g": 1, "_id": 0 } },
        doc! { "sort": { "x": -1 }, "projection": { "twice": { "$multiply": ["$x", "$$by"] } }, "let": { "by": 2 } },
        doc! { "filter": { "$expr": { "$lt": ["$x", "$$top"] } }, "let": { "top": 120 }, "sort": { "x": 1 } },
        doc! { "filter": { "$text": { "$search": "shard" } }, "sort": { "score": { "$meta": "textScore" }, "_id": 1 } },
        doc! {
            "filter": { "$text": { "$search": "shard chunk" } }, "sort": { "score": { "$meta": "textScore" }, "_id": 1 },
            "projection": { "score": { "$meta": "textScore" }, "x": 1 }, "limit": 70,
        },
        doc! { "filter": { "s": "SHARD" }, "collation": { "locale": "en", "strength": 2 }, "sort": { "_id": 1 } },
        doc! { "sort": { "s": 1, "_id": 1 }, "collation": { "locale": "en", "strength": 1 } },
        doc! { "sort": { "x": 1 }, "skip": 95, "limit": 110 },
        doc! { "sort": { "x": 1 }, "skip": 299 },
        doc! { "sort": { "x": 1 }, "skip": 300 },
        doc! { "sort": { "x": 1 }, "skip": i64::MAX - 5, "limit": 5 },
        doc! { "sort": { "x": 1 }, "limit": i64::MAX },
        doc! { "sort": { "x": 1 }, "limit": 25, "singleBatch": true },
        doc! { "sort": { "x": 1 }, "singleBatch": true },
        doc! { "sort": { "x": 1 }, "batchSize": 0 },
        doc! { "sort": { "x": 1 }, "allowDiskUse": true, "comment": { "any": ["type"] }, "noCursorTimeout": true },
        doc! { "sort": { "x": 1 }, "maxTimeMS": 60_000, "readConcern": { "level": "majority" } },
        doc! { "filter": { "x": { "$in": [] } } },
        doc! { "filter": { "x": 250 }, "sort": { "$natural": -1 } },
        doc! { "filter": { "g": 50 }, "sort": { "$natural": 5 } },
        doc! { "filter": { "x": { "$gt": 5, "$lt": 3 } } },
    ] {
        let expected = read(&mut conn, "plain", &options).await;
        let found = read(&mut conn, "sharded", &options).await;
        assert!(expected.is_ok(), "{options}: {expected:?}");
        let (expected, found) =
            (expected.unwrap(), found.unwrap_or_else(|error| panic!("{options}: {error}")));
        assert_eq!(found.0.len(), expected.0.len(), "{options}");
        assert_eq!(found, expected, "{options}");
    }
    // Places of documents on their own shard: only that each has one is the same.
    let (documents, _) =
        read(&mut conn, "sharded", &doc! { "showRecordId": true, "sort": { "x": 1 } }).await.unwrap();
    assert!(
        documents
            .iter()
            .all(|document| document.contains_key("$recordId") && !document.contains_key("$sortKey"))
    );
    let near = doc! { "filter": { "at": { "$near": [3, 3] } }, "limit": 40, "projection": { "at": 1 } };
    let distance = |document: &Document| {
        let at: Vec<i32> = document.get_array("at").unwrap().iter().map(|n| n.as_i32().unwrap()).collect();
        (at[0] - 3).pow(2) + (at[1] - 3).pow(2)
    };
    let distances = |documents: &[Document]| documents.iter().map(distance).collect::<Vec<_>>();
    let (found, _) = read(&mut conn, "sharded", &near).await.unwrap();
    let (expected, _) = read(&mut conn, "plain", &near).await.unwrap();
    assert_eq!(distances(&found), distances(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_options_are_refused_in_the_same_words() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    for options in [
        doc! { "hint": "nosuch" },
        doc! { "hint": { "nosuch": 1 } },
        doc! { "hint": 5 },
        doc! { "min": { "g": 1, "x": 1 } },
        doc! { "hint": { "g": 1, "x": 1 }, "min": { "g": 1 } },
        doc! { "hint": { "g": 1, "x": 1 }, "min": { "g": 4, "x": 1 }, "max": { "g": 2, "x": 1 } },
        doc! { "sort": { "x": 2 } },
        doc! { "sort": { "x": "up" } },
        doc! { "sort": { "x": { "$meta": "nosuch" } } },
        doc! { "sort": { "$natural": 1, "x": 1 } },
        doc! { "sort": { "$natural": 1 }, "hint": "g_x" },
        doc! { "sort": { "$natural": 1 }, "hint": { "g": 1, "x": 1 }, "min": { "g": 1, "x": 1 } },
        doc! { "projection": { "a": 1, "b": 0 } },
        doc! { "projection": { "a": { "$nosuch": 1 } } },
        doc! { "filter": { "x": { "$nosuch": 1 } } },
        doc! { "filter": { "$nosuch": 1 } },
        doc! { "filter": { "$expr": "$$nosuch" } },
        doc! { "filter": 5 },
        doc! { "skip": -1 },
        doc! { "limit": -1 },
        doc! { "batchSize": -1 },
        doc! { "limit": "many" },
        doc! { "collation": { "locale": "nosuch" } },
        doc! { "collation": { "strength": 1 } },
        doc! { "maxTimeMS": -1 },
        doc! { "maxTimeMS": i64::MAX },
        doc! { "awaitData": true },
        doc! { "tailable": true },
        doc! { "tailable": true, "awaitData": true },
        doc! { "nosuch": 1 },
        doc! { "let": { "$a": 1 } },
        doc! { "filter": { "$text": { "$search": "x" } }, "hint": "g_x" },
        doc! { "filter": { "nowhere": { "$near": [1, 1] } } },
    ] {
        let expected = read(&mut conn, "plain", &options).await;
        let found = read(&mut conn, "sharded", &options).await;
        let said = |reply: &Result<_, Document>| {
            let reply = reply.as_ref().expect_err("it was taken");
            // A plan, on the lines after the first, has the sort key for the merge in it.
            let text = reply.get_str("errmsg").unwrap_or_default().lines().next().unwrap_or_default();
            let text = text.replace("opt.sharded", "opt.plain");
            (reply.get_i32("code").ok(), reply.get_str("codeName").ok().map(str::to_owned), text)
        };
        assert!(expected.is_err(), "{options} was taken");
        assert_eq!(said(&found), said(&expected), "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tailable_cursor_waits_for_what_comes() {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    let mut conn = conn(&cluster).await;
    conn.command_ok(DB, doc! { "create": "log", "capped": true, "size": 1 << 16 }).await.unwrap();
    let insert = |n: i32| doc! { "insert": "log", "documents": [{ "_id": n }] };
    conn.command_ok(DB, insert(1)).await.unwrap();
    let find = doc! { "find": "log", "tailable": true, "awaitData": true };
    let first = conn.command_ok(DB, find).await.unwrap();
    let id = first.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_ne!(id, 0);
    let batch = |reply: &Document| -> Vec<Bson> {
        let cursor = reply.get_document("cursor").unwrap();
        assert_eq!(cursor.get_i64("id").unwrap(), id, "{reply}");
        cursor
            .get_array("nextBatch")
            .unwrap()
            .iter()
            .map(|item| item.as_document().unwrap().get("_id").unwrap().clone())
            .collect()
    };
    // Nothing comes: an empty batch, and the cursor lives.
    let more = |wait: i32| doc! { "getMore": id, "collection": "log", "maxTimeMS": wait };
    assert!(batch(&conn.command_ok(DB, more(50)).await.unwrap()).is_empty());
    // Something comes meanwhile: it ends the wait, which is longer than any test may take.
    let mut other = self::conn(&cluster).await;
    let (got, inserted) = tokio::join!(conn.command_ok(DB, more(3_600_000)), other.command_ok(DB, insert(2)));
    inserted.unwrap();
    assert_eq!(batch(&got.unwrap()), [Bson::Int32(2)]);
    let killed = conn.command_ok(DB, doc! { "killCursors": "log", "cursors": [id] }).await.unwrap();
    assert_eq!(killed.get_array("cursorsKilled").unwrap(), &[Bson::Int64(id)]);
}
