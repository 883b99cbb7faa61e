//! Write commands on the wire: what is applied where, what the reply says, what is refused and how.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, frame, is_ok, msg_body};

const DB: &str = "w";

/// Three shards: a below 100, from 100, from 200.
async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("w.r", "a", &[100, 200]).await.unwrap();
    let conn = cluster.router(0).unwrap().raw().await.unwrap();
    (cluster, conn)
}

fn errors(reply: &Document) -> Vec<(i32, i32)> {
    let errors = reply.get_array("writeErrors").map_or(&[][..], Vec::as_slice);
    let number = |error: &Bson, name: &str| error.as_document().unwrap().get_i32(name).unwrap();
    errors.iter().map(|error| (number(error, "index"), number(error, "code"))).collect()
}

fn text(reply: &Document) -> String {
    match reply.get_array("writeErrors") {
        Ok(errors) => errors[0].as_document().unwrap().get_str("errmsg").unwrap().to_owned(),
        Err(_) => reply.get_str("errmsg").unwrap_or_default().to_owned(),
    }
}

async fn count(cluster: &Cluster, shard: usize, filter: Document) -> i32 {
    let query = doc! { "count": "r", "query": filter };
    let reply = cluster.shard(shard).unwrap().command(DB, query).await.unwrap();
    reply.get_i32("n").unwrap()
}

fn lsid(byte: u8) -> Document {
    doc! { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

fn with_number(mut command: Document, session: u8, number: i64) -> Document {
    command.insert("lsid", lsid(session));
    command.insert("txnNumber", number);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_split_and_indexes_map_back() {
    let (cluster, mut conn) = start().await;
    // Every third document goes to the same shard.
    let documents: Vec<Document> = (0..30).map(|n| doc! { "_id": n, "a": (n % 3) * 100 + n }).collect();
    let reply = conn.command_ok(DB, doc! { "insert": "r", "documents": documents.clone() }).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 30, "{reply}");
    for shard in 0..3 {
        assert_eq!(count(&cluster, shard, doc! {}).await, 10, "on shard{shard}");
    }

    // Unordered: the duplicates fail by their own indexes, all others are there.
    let mut mixed: Vec<Document> = (100..110).map(|n| doc! { "_id": n, "a": (n % 3) * 100 }).collect();
    mixed[2] = doc! { "_id": 0, "a": 0 };
    mixed[7] = doc! { "_id": 1, "a": 101 };
    mixed[9] = doc! { "_id": 999, "a": [1, 2] };
    let unordered = doc! { "insert": "r", "documents": mixed, "ordered": false };
    let reply = conn.command_ok(DB, unordered).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), errors(&reply)), (7, vec![(2, 11000), (7, 11000), (9, 61)]));
    let first = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(first.get_document("keyValue").unwrap(), &doc! { "_id": 0 });

    // Ordered: nothing behind the first error, on any shard.
    let run = [200, 300, 0, 400].map(|n| doc! { "_id": n, "a": n % 300 });
    let reply = conn.command_ok(DB, doc! { "insert": "r", "documents": run.to_vec() }).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), errors(&reply)), (2, vec![(2, 11000)]));

    // Updates and deletes.
    let updates = doc! { "update": "r", "updates": [
        { "q": { "a": 0 }, "u": { "$set": { "x": 1 } }, "multi": true },
        { "q": { "a": 250 }, "u": { "$set": { "x": 1 } }, "upsert": true },
        { "q": {}, "u": { "$set": { "all": 1 } }, "multi": true },
        { "q": { "_id": 31, "a": 150 }, "u": { "$set": { "x": 1 } }, "upsert": true },
    ] };
    let reply = conn.command_ok(DB, updates).await.unwrap();
    let upserted: Vec<i32> = reply
        .get_array("upserted")
        .unwrap()
        .iter()
        .map(|item| item.as_document().unwrap().get_i32("index").unwrap())
        .collect();
    assert_eq!(upserted, [1, 3], "{reply}");
    let all: i32 = count(&cluster, 0, doc! {}).await
        + count(&cluster, 1, doc! {}).await
        + count(&cluster, 2, doc! {}).await;
    let with_field = doc! { "delete": "r", "deletes": [
        { "q": { "a": 150, "_id": 31 }, "limit": 1 },
        { "q": { "all": 1 }, "limit": 0 },
        { "q": { "_id": 12345 }, "limit": 1 },
    ] };
    let reply = conn.command_ok(DB, with_field).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), all, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_without_an_id_get_one_and_databases_come_into_being() {
    let (cluster, mut conn) = start().await;
    let reply = conn
        .command_ok("fresh", doc! { "insert": "u", "documents": [{ "x": 1 }, { "x": 2 }] })
        .await
        .unwrap();
    assert_eq!(
        reply,
        doc! { "n": 2, "ok": 1.0, "operationTime": reply.get("operationTime").unwrap().clone(), "$clusterTime": reply.get("$clusterTime").unwrap().clone() }
    );
    let found =
        conn.command_ok("fresh", doc! { "find": "u", "filter": {}, "sort": { "x": 1 } }).await.unwrap();
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let ids: Vec<_> =
        batch.iter().map(|doc| doc.as_document().unwrap().get_object_id("_id").unwrap()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids[0] < ids[1]);
    let names: Vec<_> = batch[0].as_document().unwrap().keys().cloned().collect();
    assert_eq!(names, ["_id", "x"]);
    // Also an update and a delete make the database; a name that differs only in case cannot be made.
    for command in [
        doc! { "update": "u", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 1 } }, "upsert": true }] },
        doc! { "delete": "u", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": "u", "query": { "_id": 1 }, "update": { "x": 1 }, "upsert": true, "new": true },
    ] {
        let db = format!("made_by_{}", command.keys().next().unwrap());
        conn.command_ok(&db, command.clone()).await.unwrap();
        let entry = cluster.config_find("databases", doc! { "_id": &db }, doc! {}).await.unwrap();
        assert_eq!(entry.len(), 1, "{db}");
        let reply = conn.command(&db.to_uppercase(), command).await.unwrap();
        assert_eq!(reply.get_i32("code").unwrap(), 13297, "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_servers_codes_and_say_what_to_add() {
    let (_cluster, mut conn) = start().await;
    let set = doc! { "$set": { "x": 1 } };
    let update = |item: Document| doc! { "update": "r", "updates": [item] };
    let delete = |item: Document| doc! { "delete": "r", "deletes": [item] };
    for (command, code, part) in [
        (update(doc! { "q": { "x": 1 }, "u": set.clone() }), 72, "add an equality on 'a'"),
        (
            update(doc! { "q": { "x": 1 }, "u": set.clone(), "upsert": true }),
            61,
            "Failed to target upsert by query",
        ),
        (update(doc! { "q": { "x": 1 }, "u": set.clone(), "upsert": true }), 61, "add an equality on 'a'"),
        (
            update(doc! { "q": { "x": 1 }, "u": { "a": [1] } }),
            61,
            "Failed to target update by replacement document",
        ),
        (update(doc! { "q": { "a": 1 }, "u": { "x": 1 }, "multi": true }), 72, "Replacement-style"),
        (update(doc! { "q": { "a": 1 }, "u": { "x": 1, "$set": {} } }), 12, "mixed $operator"),
        (
            update(
                doc! { "q": { "a": "s" }, "u": set.clone(), "upsert": true, "collation": { "locale": "en" } },
            ),
            61,
            "due to collation of key a",
        ),
        (delete(doc! { "q": { "x": 1 }, "limit": 1 }), 61, "add an equality on 'a'"),
        (
            delete(doc! { "q": { "a": { "$gt": 5 } }, "limit": 1 }),
            61,
            "A single delete on a sharded collection",
        ),
        (
            doc! { "findAndModify": "r", "query": { "x": 1 }, "update": set.clone() },
            61,
            "add an equality on 'a'",
        ),
        (
            doc! { "findAndModify": "r", "query": { "x": 1 }, "remove": true },
            61,
            "must contain the shard key",
        ),
        (
            doc! { "findAndModify": "r", "query": { "a": 1 }, "update": set.clone(), "runtimeConstants": {} },
            51196,
            "runtime constants",
        ),
        (doc! { "insert": "r", "documents": [{ "a": [1] }] }, 61, "array"),
        (doc! { "insert": "r", "documents": [{ "a": Bson::MaxKey }] }, 61, "{ a: MaxKey }"),
        (doc! { "insert": "r", "documents": [] }, 16, "between 1 and 100000"),
        (
            doc! { "insert": "r", "documents": [{}], "isTimeseriesNamespace": true },
            5_916_401,
            "isTimeseriesNamespace",
        ),
        (
            doc! { "update": "r", "updates": [{ "q": {}, "u": {} }], "runtimeConstants": {} },
            51195,
            "runtime constants",
        ),
        (doc! { "insert": "r", "documents": [{}], "writeConcern": { "w": 51 } }, 9, "not greater than 50"),
        (doc! { "insert": "r", "documents": [{}], "foo": 1 }, 40415, "insert.foo"),
    ] {
        let reply = conn.command(DB, command.clone()).await.unwrap();
        let got =
            errors(&reply).first().map_or_else(|| reply.get_i32("code").unwrap_or(0), |(_, code)| *code);
        assert_eq!(got, code, "{command}: {reply}");
        assert!(text(&reply).contains(part), "{command}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_follow_the_chunk_that_moved() {
    let (cluster, mut conn) = start().await;
    let documents: Vec<Document> = (0..300).map(|n| doc! { "_id": n, "a": n, "n": 0 }).collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": documents }).await.unwrap();
    let client = cluster.client().await.unwrap();
    for (round, ordered) in [(1, true), (2, false), (3, true), (4, false)] {
        let to = if round % 2 == 1 { "shard2" } else { "shard0" };
        // Behind the router's back.
        let moved = doc! { "_configsvrMoveRange": "w.r", "toShard": to, "min": { "a": Bson::MinKey }, "writeConcern": { "w": "majority" } };
        cluster.config().command("admin", moved).await.unwrap();
        let updates: Vec<Document> =
            (0..300).rev().map(|n| doc! { "q": { "a": n }, "u": { "$inc": { "n": 1 } } }).collect();
        let reply = conn
            .command_ok(DB, doc! { "update": "r", "updates": updates, "ordered": ordered })
            .await
            .unwrap();
        assert_eq!((reply.get_i32("nModified").unwrap(), errors(&reply)), (300, vec![]), "round {round}");
        let many =
            doc! { "update": "r", "updates": [{ "q": {}, "u": { "$inc": { "m": 1 } }, "multi": true }] };
        let reply = conn.command_ok(DB, many).await.unwrap();
        assert_eq!(reply.get_i32("nModified").unwrap(), 300, "round {round}");
    }
    // One document each, looked for on all owners by its _id, right after a move that the router has not seen.
    for (at, to) in [(1, "shard1"), (2, "shard2")] {
        let moved = doc! { "_configsvrMoveRange": "w.r", "toShard": to, "min": { "a": Bson::MinKey }, "writeConcern": { "w": "majority" } };
        cluster.config().command("admin", moved).await.unwrap();
        let update =
            doc! { "update": "r", "updates": [{ "q": { "_id": at }, "u": { "$inc": { "one": 1 } } }] };
        let reply = conn.command_ok(DB, update).await.unwrap();
        assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply}");
    }
    let coll = client.database(DB).collection::<Document>("r");
    assert_eq!(coll.count_documents(doc! { "n": 4, "m": 4 }).await.unwrap(), 300);
    for (number, half, to) in [(1, 0, "shard1"), (2, 1, "shard0")] {
        let moved = doc! { "_configsvrMoveRange": "w.r", "toShard": to, "min": { "a": Bson::MinKey }, "writeConcern": { "w": "majority" } };
        cluster.config().command("admin", moved).await.unwrap();
        let deletes: Vec<Document> =
            (0..300).filter(|n| n % 2 == half).map(|n| doc! { "q": { "_id": n }, "limit": 1 }).collect();
        let delete = doc! { "delete": "r", "deletes": deletes, "ordered": false };
        let delete = if half == 0 { with_number(delete, 9, number) } else { delete };
        let reply = conn.command_ok(DB, delete).await.unwrap();
        assert_eq!((reply.get_i32("n").unwrap(), errors(&reply)), (150, vec![]), "{reply}");
    }
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_batch_is_applied_once_also_by_another_router() {
    let cluster = Cluster::builder().shards(3).routers(2).start().await.unwrap();
    cluster.spread("w.r", "a", &[100, 200]).await.unwrap();
    let mut first = cluster.router(0).unwrap().raw().await.unwrap();
    let mut second = cluster.router(1).unwrap().raw().await.unwrap();
    for (number, ordered) in [(1, true), (2, false)] {
        let base = i32::try_from(number).unwrap() * 1000;
        // Runs of one and of several: a shard gets several children of one batch.
        let documents: Vec<Document> =
            (0..60).map(|n| doc! { "_id": base + n, "a": ((n / 4) % 3) * 100, "n": 0 }).collect();
        let insert =
            with_number(doc! { "insert": "r", "documents": documents, "ordered": ordered }, 1, number);
        for conn in [&mut first, &mut second] {
            let reply = conn.command_ok(DB, insert.clone()).await.unwrap();
            assert_eq!((reply.get_i32("n").unwrap(), errors(&reply)), (60, vec![]), "{reply}");
        }
        let updates: Vec<Document> = (0..60)
            .map(|n| doc! { "q": { "_id": base + n, "a": ((n / 4) % 3) * 100 }, "u": { "$inc": { "n": 1 } } })
            .collect();
        let update = with_number(doc! { "update": "r", "updates": updates, "ordered": ordered }, 2, number);
        let mut retried = BTreeMap::new();
        for (name, conn) in [("first", &mut first), ("second", &mut second)] {
            let reply = conn.command_ok(DB, update.clone()).await.unwrap();
            assert_eq!((reply.get_i32("nModified").unwrap(), errors(&reply)), (60, vec![]), "{reply}");
            retried.insert(name, reply.get_array("retriedStmtIds").map_or(0, Vec::len));
        }
        assert_eq!(retried, BTreeMap::from([("first", 0), ("second", 60)]));
    }
    let coll = cluster.client().await.unwrap().database(DB).collection::<Document>("r");
    assert_eq!(coll.count_documents(doc! { "n": 1 }).await.unwrap(), 120);
    // By _id alone, and the document moves before the retry: the shard that it left and its new one both answer for it.
    for (number, ordered) in [(1, true), (2, false)] {
        let updates: Vec<Document> = [1_000, 1_001, 1_004]
            .iter()
            .map(|id| doc! { "q": { "_id": *id }, "u": { "$inc": { "m": 1 } } })
            .collect();
        let update = with_number(doc! { "update": "r", "updates": updates, "ordered": ordered }, 4, number);
        let to = if ordered { "shard1" } else { "shard0" };
        let reply = first.command_ok(DB, update.clone()).await.unwrap();
        assert_eq!(reply.get_i32("n").unwrap(), 3, "{reply}");
        cluster.move_chunk("w.r", doc! { "a": 0 }, to).await.unwrap();
        let reply = second.command_ok(DB, update).await.unwrap();
        let counts = (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap());
        assert_eq!((counts, errors(&reply)), ((3, 3), vec![]), "ordered {ordered}: {reply}");
        let counted = doc! { "m": i32::try_from(number).unwrap() };
        assert_eq!(coll.count_documents(counted).await.unwrap(), 3, "ordered {ordered}");
    }
    let find = with_number(
        doc! { "findAndModify": "r", "query": { "_id": 1000, "a": 0 }, "update": { "$inc": { "n": 1 } }, "new": true },
        3,
        1,
    );
    for conn in [&mut first, &mut second] {
        let reply = conn.command_ok(DB, find.clone()).await.unwrap();
        assert_eq!(reply.get_document("value").unwrap().get_i32("n").unwrap(), 2, "{reply}");
    }
}

/// Sends documents in a section of their own, as drivers do: a body could not hold more than 16 MB.
async fn insert_as_sequence(conn: &mut RawConn, mut command: Document, documents: &[Document]) -> Document {
    const OP_MSG: i32 = 2013;
    command.insert("$db", DB);
    let documents: Vec<u8> = documents.iter().flat_map(|document| document.to_vec().unwrap()).collect();
    let mut body = msg_body(0, &command).unwrap();
    body.push(1);
    let length = i32::try_from(4 + "documents".len() + 1 + documents.len()).unwrap();
    body.extend(length.to_le_bytes());
    body.extend(b"documents\0");
    body.extend(documents);
    let id = conn.next_id();
    conn.send(&frame(id, OP_MSG, &body)).await.unwrap();
    conn.receive().await.unwrap().expect("an answer").document().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_batches_pass() {
    let (cluster, mut conn) = start().await;
    let documents: Vec<Document> = (0..100_000).map(|n| doc! { "_id": n, "a": n % 300 }).collect();
    let insert = doc! { "insert": "r", "documents": documents, "ordered": false };
    let reply = conn.command_ok(DB, insert.clone()).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 100_000);
    // All of them again: 100,000 errors in one document.
    let reply = conn.command_ok(DB, insert).await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 0);
    let errors = errors(&reply);
    assert!(errors.iter().enumerate().all(|(at, error)| *error == (i32::try_from(at).unwrap(), 11000)));
    assert_eq!(errors.len(), 100_000);

    // Nearly 48 MB in one message, nearly all of it for one shard.
    let filling = "x".repeat(1_000_000);
    let big: Vec<Document> = (0..45)
        .map(|n| doc! { "_id": format!("big{n}"), "a": if n == 7 { 250 } else { 1 }, "s": &filling })
        .collect();
    for ordered in [true, false] {
        let reply = insert_as_sequence(&mut conn, doc! { "insert": "r", "ordered": ordered }, &big).await;
        let n = if ordered { 45 } else { 0 };
        assert_eq!(reply.get_i32("n").unwrap(), n, "ordered {ordered}");
    }
    assert_eq!(count(&cluster, 2, doc! { "_id": "big7" }).await, 1);
    assert_eq!(count(&cluster, 0, doc! { "s": { "$exists": true } }).await, 44);
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_writes_are_done_and_say_nothing() {
    let (cluster, mut conn) = start().await;
    let quiet = doc! { "w": 0 };
    let reply = conn
        .command_ok(DB, doc! { "insert": "r", "documents": [{ "_id": 1, "a": 1 }, { "_id": 2, "a": 201 }], "writeConcern": quiet.clone() })
        .await
        .unwrap();
    assert!(!reply.contains_key("n") && is_ok(&reply), "{reply}");
    testkit::eventually_within(Duration::from_secs(10), "both documents", || async {
        count(&cluster, 0, doc! {}).await + count(&cluster, 2, doc! {}).await == 2
    })
    .await
    .unwrap();
    let find = doc! { "findAndModify": "r", "query": { "a": 1 }, "remove": true, "writeConcern": quiet };
    let reply = conn.command_ok(DB, find).await.unwrap();
    assert!(!reply.contains_key("value"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_concern_errors_name_their_shards() {
    let (_cluster, mut conn) = start().await;
    let concern = doc! { "w": 5, "wtimeout": 10 };
    for (documents, code, shards) in [
        (vec![doc! { "_id": 1, "a": 1 }], 100, vec!["shard0"]),
        (vec![doc! { "_id": 2, "a": 1 }, doc! { "_id": 3, "a": 201 }], 64, vec!["shard0", "shard2"]),
    ] {
        let n = i32::try_from(documents.len()).unwrap();
        let insert = doc! { "insert": "r", "documents": documents, "writeConcern": concern.clone() };
        let reply = conn.command_ok(DB, insert).await.unwrap();
        let error = reply.get_document("writeConcernError").unwrap();
        assert_eq!((reply.get_i32("n").unwrap(), error.get_i32("code").unwrap()), (n, code), "{reply}");
        let text = error.get_str("errmsg").unwrap();
        assert!(shards.iter().all(|shard| text.contains(&format!("at {shard}"))), "{text}");
    }
    let find = doc! { "findAndModify": "r", "query": { "a": 201 }, "remove": true, "writeConcern": concern };
    let reply = conn.command_ok(DB, find).await.unwrap();
    assert_eq!(reply.get_document("value").unwrap().get_i32("_id").unwrap(), 3);
    let error = reply.get_document("writeConcernError").unwrap();
    assert!(error.get_str("errmsg").unwrap().ends_with("at shard2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn now_is_the_same_on_all_shards_and_variables_reach_them() {
    let (_cluster, mut conn) = start().await;
    let documents: Vec<Document> = (0..30).map(|n| doc! { "_id": n, "a": n * 10 }).collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": documents }).await.unwrap();
    let update = doc! {
        "update": "r", "let": { "y": 7 },
        "updates": [{ "q": {}, "u": [{ "$set": { "now": "$$NOW", "y": "$$y" } }], "multi": true }],
    };
    let reply = conn.command_ok(DB, update).await.unwrap();
    assert_eq!(reply.get_i32("nModified").unwrap(), 30);
    let distinct = conn.command_ok(DB, doc! { "distinct": "r", "key": "now" }).await.unwrap();
    assert_eq!(distinct.get_array("values").unwrap().len(), 1, "{distinct}");
    let count = conn.command_ok(DB, doc! { "count": "r", "query": { "y": 7 } }).await.unwrap();
    assert_eq!(count.get_i32("n").unwrap(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn find_and_modify_reaches_the_one_shard() {
    let (cluster, mut conn) = start().await;
    conn.command_ok(DB, doc! { "insert": "r", "documents": [{ "_id": 1, "a": 150, "n": 1 }] }).await.unwrap();
    let modify = |extra: Document| {
        let mut command = doc! { "findAndModify": "r", "query": { "a": 150 } };
        command.extend(extra);
        command
    };
    let reply = conn.command_ok(DB, modify(doc! { "update": { "$inc": { "n": 1 } } })).await.unwrap();
    assert_eq!(reply.get_document("value").unwrap().get_i32("n").unwrap(), 1, "{reply}");
    let reply = conn
        .command_ok(DB, modify(doc! { "update": [{ "$set": { "n": "$$y" } }], "let": { "y": 9 }, "new": true, "fields": { "_id": 0 } }))
        .await
        .unwrap();
    assert_eq!(reply.get_document("value").unwrap(), &doc! { "a": 150, "n": 9 });
    // The routing table is stale: asked again at the new owner.
    let moved = doc! { "_configsvrMoveRange": "w.r", "toShard": "shard2", "min": { "a": 100 }, "writeConcern": { "w": "majority" } };
    cluster.config().command("admin", moved).await.unwrap();
    let reply = conn.command_ok(DB, modify(doc! { "remove": true })).await.unwrap();
    assert_eq!(reply.get_document("lastErrorObject").unwrap().get_i32("n").unwrap(), 1, "{reply}");
    let upsert = doc! { "findandmodify": "r", "query": { "_id": 5, "a": 150 }, "update": { "$set": { "n": 1 } }, "upsert": true, "new": true };
    let reply = conn.command_ok(DB, upsert).await.unwrap();
    assert_eq!(reply.get_document("lastErrorObject").unwrap().get_i32("upserted").unwrap(), 5, "{reply}");
    assert_eq!(count(&cluster, 2, doc! { "a": 150 }).await, 1);
}

/// Where documents with this `_id` are, by shard.
async fn places(cluster: &Cluster, id: i32) -> Vec<i32> {
    let mut places = Vec::new();
    for shard in 0..cluster.shards().len() {
        places.push(count(cluster, shard, doc! { "_id": id }).await);
    }
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_moves_to_the_shard_of_its_new_key() {
    let (cluster, mut conn) = start().await;
    let documents: Vec<Document> = (0..10).map(|n| doc! { "_id": n, "a": n, "n": n }).collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": documents }).await.unwrap();
    let update = |id: i32, change: Document| {
        doc! { "update": "r", "updates": [{ "q": { "_id": id, "a": id }, "u": change }] }
    };

    // Not retryable: refused by the shard.
    let reply = conn.command_ok(DB, update(0, doc! { "$set": { "a": 250 } })).await.unwrap();
    assert_eq!(errors(&reply), [(0, 20)], "{reply}");
    assert_eq!(places(&cluster, 0).await, [1, 0, 0]);

    // Operators and a whole document.
    for (id, change) in [(0, doc! { "$set": { "a": 250 } }), (1, doc! { "a": 250, "n": 1 })] {
        let reply = conn.command_ok(DB, with_number(update(id, change), 1, i64::from(id) + 1)).await.unwrap();
        assert_eq!((reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()), (1, 1), "{reply}");
        assert_eq!(places(&cluster, id).await, [0, 0, 1], "document {id}");
    }
    // Within its shard.
    let reply =
        conn.command_ok(DB, with_number(update(2, doc! { "$set": { "a": 99 } }), 1, 10)).await.unwrap();
    assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply}");
    assert_eq!(places(&cluster, 2).await, [1, 0, 0]);

    // A retry after the commit is refused, as by a mongos, and does nothing.
    let retried = with_number(update(0, doc! { "$set": { "a": 250 } }), 1, 1);
    let older = conn.command(DB, retried).await.unwrap();
    assert!(!errors(&older).is_empty() || !is_ok(&older), "{older}");
    let last = with_number(update(3, doc! { "$set": { "a": 150 } }), 4, 1);
    conn.command_ok(DB, last.clone()).await.unwrap();
    let reply = conn.command(DB, last).await.unwrap();
    let code = errors(&reply).first().map_or_else(|| reply.get_i32("code").unwrap(), |(_, code)| *code);
    assert_eq!(code, 217, "{reply}");
    assert_eq!(places(&cluster, 3).await, [0, 1, 0]);

    // An upsert whose document belongs elsewhere.
    let upsert = doc! { "update": "r", "updates": [
        { "q": { "_id": 100, "a": 50 }, "u": { "$set": { "a": 150 } }, "upsert": true },
    ] };
    let reply = conn.command(DB, with_number(upsert, 5, 1)).await.unwrap();
    assert!(is_ok(&reply), "{reply}");

    // In a longer batch only that statement fails, and all others are done.
    for (number, ordered) in [(1, true), (2, false)] {
        let mut updates: Vec<Document> =
            (4..9).map(|n| doc! { "q": { "_id": n, "a": n }, "u": { "$inc": { "m": 1 } } }).collect();
        updates[3] = doc! { "q": { "_id": 7, "a": 7 }, "u": { "$set": { "a": 170 } } };
        let batch = doc! { "update": "r", "updates": updates, "ordered": ordered };
        let reply = conn.command_ok(DB, with_number(batch, 6, number)).await.unwrap();
        assert_eq!(errors(&reply), [(3, 72)], "{reply}");
        assert_eq!(reply.get_i32("nModified").unwrap(), if ordered { 3 } else { 4 }, "{reply}");
        assert_eq!(places(&cluster, 7).await, [1, 0, 0]);
    }
    assert_eq!(count(&cluster, 0, doc! { "m": 2 }).await, 3);

    // findAndModify tells the image that was asked for.
    for (id, new, a) in [(4, false, 4), (5, true, 260)] {
        let modify = doc! {
            "findAndModify": "r", "query": { "_id": id, "a": id }, "update": { "$set": { "a": 260 } }, "new": new,
        };
        let reply = conn.command_ok(DB, with_number(modify, 7, i64::from(id))).await.unwrap();
        assert_eq!(reply.get_document("value").unwrap().get_i32("a").unwrap(), a, "{reply}");
        assert_eq!(reply.get_document("lastErrorObject").unwrap(), &doc! { "n": 1, "updatedExisting": true });
        assert_eq!(places(&cluster, id).await, [0, 0, 1]);
    }

    // The new owner has another document of this _id: nothing is changed.
    conn.command_ok(DB, doc! { "insert": "r", "documents": [{ "_id": 8, "a": 180 }] }).await.unwrap();
    let reply =
        conn.command_ok(DB, with_number(update(8, doc! { "$set": { "a": 181 } }), 8, 1)).await.unwrap();
    assert_eq!(errors(&reply), [(0, 11000)], "{reply}");
    assert!(text(&reply).starts_with("Failed to update document's shard key field."), "{reply}");
    assert_eq!(places(&cluster, 8).await, [1, 1, 0]);
    // The session goes on.
    let reply = conn.command_ok(DB, with_number(update(8, doc! { "$set": { "n": 1 } }), 8, 2)).await.unwrap();
    assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_moves_also_when_the_routing_is_stale() {
    let (cluster, mut conn) = start().await;
    let documents: Vec<Document> = (0..40).map(|n| doc! { "_id": n, "a": n * 7, "n": 0 }).collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": documents }).await.unwrap();
    // The new owner moves away behind the router's back: what it inserts there must go to where the chunk is now.
    let moved = doc! { "_configsvrMoveRange": "w.r", "toShard": "shard1", "min": { "a": 200 }, "writeConcern": { "w": "majority" } };
    cluster.config().command("admin", moved).await.unwrap();
    for n in 0..10 {
        let update = doc! { "update": "r", "updates": [{ "q": { "_id": n, "a": n * 7 }, "u": { "$set": { "a": 250 } } }] };
        let reply = conn.command_ok(DB, with_number(update, 1, i64::from(n) + 1)).await.unwrap();
        assert_eq!((reply.get_i32("nModified").unwrap(), errors(&reply)), (1, vec![]), "{n}: {reply}");
        assert_eq!(places(&cluster, n).await, [0, 1, 0], "document {n}");
    }
}
