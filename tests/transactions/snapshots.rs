//! One point in time on all shards.

use bson::{Document, Timestamp, doc};
use testkit::raw::RawConn;

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_one_point_in_time_on_all_shards() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let mut transaction = Transaction::new(1, 1);
    let snapshot = doc! { "find": "r", "filter": { "x": 10 }, "readConcern": { "level": "snapshot" } };
    transaction.ok(&mut conn, snapshot).await;
    for x in [110, 210] {
        other.command_ok(DB, add(x, 5)).await.unwrap();
    }
    let documents = doc! { "insert": "r", "documents": [{ "_id": 1000, "x": 1000, "v": 7 }] };
    other.command_ok(DB, documents).await.unwrap();
    // Shards that are asked for the first time read at the same time as the first one; batches too.
    let reply = transaction.ok(&mut conn, doc! { "find": "r", "batchSize": 5, "sort": { "v": 1 } }).await;
    let mut all = batch(&reply);
    let mut id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    while id != 0 {
        let reply =
            transaction.ok(&mut conn, doc! { "getMore": id, "collection": "r", "batchSize": 7 }).await;
        let cursor = reply.get_document("cursor").unwrap();
        let next = cursor.get_array("nextBatch").unwrap();
        all.extend(next.iter().map(|item| item.as_document().unwrap().clone()));
        id = cursor.get_i64("id").unwrap();
    }
    assert_eq!(all.len(), 30);
    assert!(all.iter().all(|found| found.get_i32("v").unwrap() == 0));
    let group = doc! { "aggregate": "r", "cursor": {}, "pipeline": [
        { "$group": { "_id": "$v", "n": { "$sum": 1 } } }, { "$sort": { "n": 1 } },
    ] };
    assert_eq!(batch(&transaction.ok(&mut conn, group).await), [doc! { "_id": 0, "n": 30 }]);
    assert_eq!(transaction.token, doc! {}, "it only read");
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));

    // The same outside of a transaction: the time is told, and may be asked for again.
    let find = |concern| doc! { "find": "r", "filter": { "v": { "$gt": 0 } }, "readConcern": concern };
    let reply = conn.command_ok(DB, find(doc! { "level": "snapshot" })).await.unwrap();
    let at = reply.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    assert_eq!(batch(&reply).len(), 3);
    conn.command_ok(DB, add(20, 1)).await.unwrap();
    let again = find(doc! { "level": "snapshot", "atClusterTime": at });
    assert_eq!(batch(&other.command_ok(DB, again).await.unwrap()).len(), 3);
    let after = find(doc! { "level": "snapshot", "afterClusterTime": at });
    assert_eq!(batch(&conn.command_ok(DB, after).await.unwrap()).len(), 4);
}

/// Lets a shard refuse the next commands of one kind.
/// All of `r` at a point in time, two documents a batch.
async fn read_in_batches(conn: &mut RawConn, concern: Document) -> (Vec<Document>, Timestamp) {
    let command = doc! { "find": "r", "sort": { "_id": 1 }, "batchSize": 2, "readConcern": concern };
    let mut cursor = conn.command_ok(DB, command).await.unwrap().get_document("cursor").unwrap().clone();
    let at = cursor.get_timestamp("atClusterTime").unwrap();
    let mut all = Vec::new();
    loop {
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
        all.extend(batch.iter().map(|item| item.as_document().unwrap().clone()));
        let id = cursor.get_i64("id").unwrap();
        if id == 0 {
            return (all, at);
        }
        let more = doc! { "getMore": id, "collection": "r", "batchSize": 2 };
        cursor = conn.command_ok(DB, more).await.unwrap().get_document("cursor").unwrap().clone();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_in_batches_waits_for_transactions_that_are_being_decided() {
    let cluster = start().await;
    let (mut conn, mut reader) = (router(&cluster, 0).await, router(&cluster, 0).await);
    // Behind the first batches: only those wait for prepared transactions by themselves.
    let more: Vec<Document> = (0..20)
        .map(|n| doc! { "_id": 1_000 + n, "x": if n % 2 == 0 { 30 } else { 130 } + n, "v": 0 })
        .collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": more }).await.unwrap();
    let shard = cluster.shard(0).unwrap();
    let hang = doc! { "configureFailPoint": "hangBeforeWritingDecision", "mode": "alwaysOn" };
    let entered = shard.command("admin", hang).await.unwrap().get_i32("count").unwrap();
    let mut transaction = Transaction::new(1, 1);
    for x in [48, 149] {
        let reply = transaction.ok(&mut conn, add(x, 1)).await;
        assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply}");
    }
    let commit = tokio::spawn(async move { transaction.end(&mut conn, "commitTransaction").await });
    let wait = doc! { "waitForFailPoint": "hangBeforeWritingDecision", "timesEntered": entered + 1, "maxTimeMS": 30_000 };
    shard.command("admin", wait).await.unwrap();
    // The router learns of a time behind the preparation on both shards.
    let local = doc! { "find": "r", "readConcern": { "level": "local" } };
    reader.command_ok(DB, local).await.unwrap();
    let snapshot = doc! { "level": "snapshot" };
    let mut read = tokio::spawn(async move { (read_in_batches(&mut reader, snapshot).await, reader) });
    // A reader that does not wait is done by now; one that does goes on behind the decision.
    let early = tokio::time::timeout(std::time::Duration::from_secs(2), &mut read).await;
    let decide = doc! { "configureFailPoint": "hangBeforeWritingDecision", "mode": "off" };
    shard.command("admin", decide).await.unwrap();
    assert!(is_ok(&commit.await.unwrap()));
    let ((seen, at), mut reader) = match early {
        Ok(read) => read.unwrap(),
        Err(_) => read.await.unwrap(),
    };
    let again = doc! { "level": "snapshot", "atClusterTime": at };
    assert_eq!(seen, read_in_batches(&mut reader, again).await.0, "one point in time, two answers");
}
