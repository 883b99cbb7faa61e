//! Shards are asked for their next batch while the client reads: what of it they see, and what becomes of it when the
//! client does not come back for it.

use bson::{Bson, Document, doc};
use testkit::raw::{RawConn, is_ok};
use testkit::{Cluster, ReplicaSet};

const DB: &str = "ahead";
/// Documents of one batch, of a shard and of the client.
const BATCH: i32 = 10;
/// What the second batch of the client needs: the last document of one shard can be given when the next one of the other is
/// known.
const NEEDED: &[i32] = &[BATCH];
const SLOW: &str = "waitAfterPinningCursorBeforeGetMoreBatch";

/// Two shards with 300 documents each; in the order of `m` they take turns.
async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("ahead.many", "n", &[300]).await.unwrap();
    let coll = cluster.client().await.unwrap().database(DB).collection::<Document>("many");
    let documents =
        (0..600).map(|n| doc! { "_id": n, "n": n, "m": if n < 300 { 2 * n } else { 2 * n - 599 } });
    coll.insert_many(documents).await.unwrap();
    let conn = cluster.router(0).unwrap().raw().await.unwrap();
    (cluster, conn)
}

fn parts(reply: &Document) -> (i64, Vec<i32>) {
    assert!(is_ok(reply), "{reply}");
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor.get_array("nextBatch").or_else(|_| cursor.get_array("firstBatch")).unwrap();
    let numbers = batch.iter().map(|document| document.as_document().unwrap().get_i32("m").unwrap());
    (cursor.get_i64("id").unwrap(), numbers.collect())
}

/// Opens a cursor; each shard has sent a batch, and half of it was given.
async fn open(conn: &mut RawConn, more: Document) -> i64 {
    let mut command = doc! { "find": "many", "sort": { "m": 1 }, "batchSize": BATCH };
    command.extend(more);
    let (id, batch) = parts(&conn.command(DB, command).await.unwrap());
    assert!(id != 0 && batch == (0..BATCH).collect::<Vec<_>>());
    id
}

async fn get_more(conn: &mut RawConn, id: i64, more: Document) -> Document {
    let mut command = doc! { "getMore": id, "collection": "many", "batchSize": BATCH };
    command.extend(more);
    conn.command(DB, command).await.unwrap()
}

async fn nothing_stays_open(cluster: &Cluster, after: &str) {
    for shard in cluster.shards() {
        testkit::eventually(&format!("{after}: {} has no open cursor", shard.name()), || async {
            let status = shard.command("admin", doc! { "serverStatus": 1 }).await.unwrap();
            let cursor = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
            cursor.get_document("open").unwrap().get_i64("total").unwrap() == 0
        })
        .await
        .unwrap();
    }
}

/// Waits until a shard's fail point was reached once.
async fn reached(shard: &ReplicaSet, point: &str, times: i32) {
    let wait = doc! { "waitForFailPoint": point, "timesEntered": times, "maxTimeMS": 60_000 };
    shard.command("admin", wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_on_its_way_is_given_or_closed() {
    let (cluster, mut conn) = start().await;
    let slow = cluster.shard(1).unwrap();
    let set = |mode: &str| doc! { "configureFailPoint": SLOW, "mode": mode, "data": { "shouldCheckForInterrupt": true } };

    // The second batch is at hand, the third is asked for while it is given. It stands still on one shard, whose client
    // goes on with what there is and kills the cursor.
    let id = open(&mut conn, doc! {}).await;
    let point = slow.command("admin", set("alwaysOn")).await.unwrap();
    let times = point
        .get_i64("count")
        .map_or_else(|_| point.get_i32("count").unwrap(), |n| i32::try_from(n).unwrap());
    let (_, batch) = parts(&get_more(&mut conn, id, doc! {}).await);
    assert_eq!(batch, (BATCH..2 * BATCH).collect::<Vec<_>>());
    reached(slow, SLOW, times + 1).await;
    let kill = doc! { "killCursors": "many", "cursors": [Bson::Int64(id)] };
    conn.command_ok(DB, kill).await.unwrap();
    nothing_stays_open(&cluster, "killed").await;

    // The same, and the client goes away.
    let mut other = cluster.router(0).unwrap().raw().await.unwrap();
    let id = open(&mut other, doc! {}).await;
    parts(&get_more(&mut other, id, doc! {}).await);
    reached(slow, SLOW, times + 2).await;
    let body = testkit::raw::msg_body(0, &doc! { "getMore": id, "collection": "many", "$db": DB }).unwrap();
    let frame = testkit::raw::frame(other.next_id(), testkit::raw::OP_MSG, &body);
    other.send(&frame).await.unwrap();
    drop(other);
    nothing_stays_open(&cluster, "its client went away").await;

    // It comes, in order.
    let id = open(&mut conn, doc! {}).await;
    let mut all: Vec<i32> = parts(&get_more(&mut conn, id, doc! {}).await).1;
    reached(slow, SLOW, times + 3).await;
    slow.command("admin", set("off")).await.unwrap();
    loop {
        let (id, batch) = parts(&get_more(&mut conn, id, doc! {}).await);
        all.extend(batch);
        if id == 0 {
            break;
        }
    }
    assert_eq!(all, (BATCH..600).collect::<Vec<_>>());

    // An error comes with the getMore that would have given the batch, and ends the cursor everywhere.
    let id = open(&mut conn, doc! {}).await;
    let fail = doc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": { "failCommands": ["getMore"], "errorCode": 8, "failInternalCommands": true },
    };
    let point = slow.command("admin", fail).await.unwrap();
    let times = point
        .get_i64("count")
        .map_or_else(|_| point.get_i32("count").unwrap(), |n| i32::try_from(n).unwrap());
    let (_, batch) = parts(&get_more(&mut conn, id, doc! {}).await);
    assert_eq!(batch, (BATCH..2 * BATCH).collect::<Vec<_>>());
    reached(slow, "failCommand", times + 1).await;
    let reply = get_more(&mut conn, id, doc! {}).await;
    assert_eq!(reply.get_i32("code").ok(), Some(8), "{reply}");
    nothing_stays_open(&cluster, "a shard failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_asked_ahead_only_where_the_client_will_take_it() {
    let (cluster, mut conn) = start().await;
    cluster.start_profiling(DB).await.unwrap();
    let session = doc! { "id": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] }) };
    let statement = doc! { "lsid": session, "txnNumber": 1_i64, "autocommit": false };
    let mut begin = statement.clone();
    begin.insert("startTransaction", true);
    for (name, find, more, expected) in [
        ("plain", doc! {}, doc! {}, &[BATCH, BATCH][..]),
        ("limit", doc! { "limit": 500 }, doc! {}, NEEDED),
        ("budget", doc! { "maxTimeMS": 60_000 }, doc! {}, NEEDED),
        ("transaction", begin, statement, NEEDED),
    ] {
        let mut find = find;
        find.insert("comment", name);
        let id = open(&mut conn, find).await;
        parts(&get_more(&mut conn, id, more.clone()).await);
        testkit::eventually(&format!("{name}: shards are asked for {expected:?}"), || async {
            asked(&cluster, name).await == expected
        })
        .await
        .unwrap();
        let mut kill = doc! { "killCursors": "many", "cursors": [Bson::Int64(id)] };
        kill.extend(more);
        conn.command_ok(DB, kill).await.unwrap();
    }
    // Neither when it is switched off, nor before the client has come for a second batch.
    for ahead in [true, false] {
        conn.command_ok("admin", doc! { "setParameter": 1, "pointsmanReadAhead": ahead }).await.unwrap();
        let (name, expected) = if ahead { ("first", &[][..]) } else { ("off", NEEDED) };
        let id = open(&mut conn, doc! { "comment": name }).await;
        if !ahead {
            parts(&get_more(&mut conn, id, doc! {}).await);
        }
        assert_eq!(asked(&cluster, name).await, expected, "{name}");
    }
    // A limit that the first batches reach leaves no cursor at all, and takes no more of each shard.
    let find = doc! { "find": "many", "sort": { "m": 1 }, "limit": BATCH, "comment": "limited" };
    let (id, batch) = parts(&conn.command(DB, find).await.unwrap());
    assert!(id == 0 && batch.len() == 10);
    let seen = cluster.profiled(DB, doc! { "command.comment": "limited" }).await.unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    for op in seen {
        assert!(op.entry.get_i32("nreturned").unwrap() <= BATCH, "{op:?}");
        assert!(!op.entry.contains_key("cursorid"), "{op:?}");
    }
}

/// How many documents each getMore to a shard gave, for the cursor that was opened with this comment.
async fn asked(cluster: &Cluster, comment: &str) -> Vec<i32> {
    let of = doc! { "op": "getmore", "originatingCommand.comment": comment };
    let seen = cluster.profiled(DB, of).await.unwrap();
    seen.iter().map(|op| op.entry.get_i32("nreturned").unwrap()).collect()
}
