//! Transactions over many shards, through two routers.

use std::collections::BTreeMap;

use bson::{Bson, Document, Timestamp, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "t";

/// Three shards: x below 100, from 100, from 200; a document every tenth x, all with v: 0. Both routers know the table.
async fn start() -> Cluster {
    let cluster = Cluster::builder()
        .shards(3)
        .routers(2)
        .router_parameter("mongosShutdownTimeoutMillisForSignaledShutdown", "0")
        .start()
        .await
        .unwrap();
    cluster.spread("t.r", "x", &[100, 200]).await.unwrap();
    let mut conn = router(&cluster, 0).await;
    let documents: Vec<Document> = (0..30).map(|n| doc! { "_id": n * 10, "x": n * 10, "v": 0 }).collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": documents }).await.unwrap();
    for index in 0..2 {
        let mut conn = router(&cluster, index).await;
        conn.command_ok(DB, doc! { "find": "r", "filter": { "v": 1 } }).await.unwrap();
    }
    cluster
}

async fn router(cluster: &Cluster, index: usize) -> RawConn {
    cluster.router(index).unwrap().raw().await.unwrap()
}

fn lsid(byte: u8) -> Bson {
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![byte; 16] };
    doc! { "id": id }.into()
}

/// What a driver keeps of a transaction.
struct Transaction {
    session: u8,
    number: i64,
    started: bool,
    token: Document,
}

impl Transaction {
    fn new(session: u8, number: i64) -> Self {
        Self { session, number, started: false, token: doc! {} }
    }

    /// Runs a statement; the first one starts it.
    async fn run(&mut self, conn: &mut RawConn, mut command: Document) -> Document {
        if !std::mem::replace(&mut self.started, true) {
            command.insert("startTransaction", true);
        }
        let reply = conn.command(DB, self.with_fields(command)).await.unwrap();
        if let Ok(token) = reply.get_document("recoveryToken") {
            self.token = token.clone();
        }
        reply
    }

    async fn ok(&mut self, conn: &mut RawConn, command: Document) -> Document {
        let reply = self.run(conn, command).await;
        assert!(is_ok(&reply), "{reply}");
        assert!(!reply.contains_key("writeErrors"), "{reply}");
        reply
    }

    async fn end(&self, conn: &mut RawConn, command: &str) -> Document {
        let command = doc! { command: 1, "recoveryToken": self.token.clone() };
        conn.command("admin", self.with_fields(command)).await.unwrap()
    }

    fn with_fields(&self, mut command: Document) -> Document {
        command.insert("lsid", lsid(self.session));
        command.insert("txnNumber", self.number);
        command.insert("autocommit", false);
        command
    }
}

fn add(x: i32, amount: i32) -> Document {
    doc! { "update": "r", "updates": [{ "q": { "x": x }, "u": { "$inc": { "v": amount } } }] }
}

async fn value(conn: &mut RawConn, x: i32) -> Option<i32> {
    let find = doc! { "find": "r", "filter": { "x": x } };
    let reply = conn.command_ok(DB, find).await.unwrap();
    batch(&reply).first().map(|found| found.get_i32("v").unwrap())
}

fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply}"));
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or_else(|_| panic!("{reply}"))
}

fn labels(reply: &Document) -> Vec<String> {
    let labels = reply.get_array("errorLabels").map_or(&[][..], Vec::as_slice);
    labels.iter().map(|label| label.as_str().unwrap().to_owned()).collect()
}

fn is_transient(reply: &Document) -> bool {
    labels(reply).iter().any(|label| label == "TransientTransactionError")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_commits_and_aborts_over_shards() {
    let cluster = start().await;
    let client = cluster.client().await.unwrap();
    let collection = client.database(DB).collection::<Document>("r");
    for (commits, expected) in [(false, 0), (true, 1)] {
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        for x in [10, 110, 210, 20] {
            let filter = doc! { "x": x };
            let change = doc! { "$inc": { "v": 1 } };
            let updated = collection.update_one(filter, change).session(&mut session).await.unwrap();
            assert_eq!(updated.modified_count, 1);
        }
        let sum = [doc! { "$group": { "_id": null, "v": { "$sum": "$v" } } }];
        let mut cursor = collection.aggregate(sum).session(&mut session).await.unwrap();
        let inside = cursor.next(&mut session).await.unwrap().unwrap();
        assert_eq!(inside.get_i32("v").unwrap(), 4);
        // Nobody else sees it.
        assert_eq!(collection.count_documents(doc! { "v": { "$gt": 0 } }).await.unwrap(), 0);
        if commits {
            session.commit_transaction().await.unwrap();
            session.commit_transaction().await.unwrap();
        } else {
            session.abort_transaction().await.unwrap();
        }
        for x in [10, 110, 210, 20] {
            let found = collection.find_one(doc! { "x": x }).await.unwrap().unwrap();
            assert_eq!(found.get_i32("v").unwrap(), expected, "x: {x}");
        }
    }
}

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

async fn fail(cluster: &Cluster, shard: usize, command: &str, code: i32, times: i32) {
    let data = doc! { "failCommands": [command], "errorCode": code, "failInternalCommands": true };
    let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    cluster.shard(shard).unwrap().command("admin", point).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_asks_again_where_that_is_harmless() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    // A commit, of one shard and of two: its outcome never changes.
    fail(&cluster, 0, "commitTransaction", 91, 1).await;
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, add(10, 1)).await;
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert!(is_ok(&reply), "{reply}");
    fail(&cluster, 0, "coordinateCommitTransaction", 11602, 2).await;
    let mut transaction = Transaction::new(1, 2);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert!(is_ok(&reply), "{reply}");
    assert_eq!((value(&mut conn, 10).await, value(&mut conn, 110).await), (Some(2), Some(1)));
    // A primary that steps down behind its commit: asked again three times, then its code does not blame the router.
    for (number, times, expected) in [(5, 3, None), (6, 4, Some((6, "HostUnreachable")))] {
        let concern =
            doc! { "code": 11_602, "codeName": "InterruptedDueToReplStateChange", "errmsg": "text" };
        let data = doc! { "failCommands": ["commitTransaction"], "writeConcernError": concern, "failInternalCommands": true };
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        cluster.shard(0).unwrap().command("admin", point).await.unwrap();
        let mut transaction = Transaction::new(2, number);
        transaction.ok(&mut conn, add(20, 1)).await;
        let reply = transaction.end(&mut conn, "commitTransaction").await;
        let concern = reply.get_document("writeConcernError").ok();
        let concern =
            concern.map(|error| (error.get_i32("code").unwrap(), error.get_str("codeName").unwrap()));
        assert_eq!((is_ok(&reply), concern), (true, expected), "{reply}");
    }
    assert_eq!(value(&mut conn, 20).await, Some(2));
    // Not a statement: the driver runs the transaction again. Its code does not blame the router.
    fail(&cluster, 0, "update", 91, 1).await;
    let reply = Transaction::new(1, 3).run(&mut conn, add(10, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (6, true), "{reply}");

    // A snapshot that is gone is chosen again, but for one that the client chose.
    let find = |concern| doc! { "find": "r", "readConcern": concern };
    fail(&cluster, 1, "find", 246, 2).await;
    let reply = conn.command_ok(DB, find(doc! { "level": "snapshot" })).await.unwrap();
    let at = reply.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    fail(&cluster, 1, "find", 246, 1).await;
    let chosen = find(doc! { "level": "snapshot", "atClusterTime": at });
    assert_eq!(code(&conn.command(DB, chosen.clone()).await.unwrap()), 246);
    conn.command_ok(DB, chosen).await.unwrap();
    // In a transaction it cannot be chosen again.
    fail(&cluster, 1, "find", 246, 1).await;
    let reply = Transaction::new(1, 4).run(&mut conn, find(doc! { "level": "snapshot" })).await;
    assert_eq!((code(&reply), is_transient(&reply)), (246, true), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_is_known_on_the_other_router() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    // Committed here, asked there, twice: the token of the answer serves again.
    let mut transaction = Transaction::new(1, 1);
    for x in [110, 210] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    assert_eq!(transaction.token, doc! { "recoveryShardId": "shard1" });
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    for _ in 0..2 {
        let reply = transaction.end(&mut other, "commitTransaction").await;
        assert!(is_ok(&reply), "{reply}");
        transaction.token = reply.get_document("recoveryToken").unwrap().clone();
    }
    // Never committed: the shard that is asked for the outcome ends it.
    let mut transaction = Transaction::new(1, 2);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    let reply = transaction.end(&mut other, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    // Here it cannot be committed any more either.
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    let values = [value(&mut conn, 10).await, value(&mut conn, 110).await, value(&mut conn, 210).await];
    assert_eq!(values, [Some(0), Some(1), Some(1)]);
    // Without a token, and with one of a transaction that only read.
    let mut unknown = Transaction::new(2, 1);
    assert_eq!(code(&unknown.end(&mut other, "commitTransaction").await), 251);
    let commit = unknown.with_fields(doc! { "commitTransaction": 1 });
    assert_eq!(code(&other.command("admin", commit).await.unwrap()), 50940);
    unknown.started = true;
    let reply = unknown.run(&mut other, add(10, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_is_killed_leaves_nothing_half_done() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let mut transaction = Transaction::new(1, 1);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    cluster.router(0).unwrap().kill();
    let reply = transaction.end(&mut other, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    assert_eq!((value(&mut other, 10).await, value(&mut other, 110).await), (Some(0), Some(0)));
    // The driver runs it again, in the same session.
    let mut transaction = Transaction::new(1, 2);
    for x in [10, 110] {
        transaction.ok(&mut other, add(x, 1)).await;
    }
    assert!(is_ok(&transaction.end(&mut other, "commitTransaction").await));
    assert_eq!((value(&mut other, 10).await, value(&mut other, 110).await), (Some(1), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_in_the_middle_of_a_statement_leaves_nothing_half_done() {
    let cluster = start().await;
    let mut other = router(&cluster, 1).await;
    let shard = cluster.shard(1).unwrap();
    for gone_at_first in [false, true] {
        let mut conn = router(&cluster, 0).await;
        let mut transaction = Transaction::new(1, if gone_at_first { 2 } else { 1 });
        if !gone_at_first {
            transaction.ok(&mut conn, add(10, 1)).await;
        }
        // The shard has the statement and holds it back.
        let hold = doc! {
            "configureFailPoint": "failCommand",
            "mode": { "times": 1 },
            "data": { "failCommands": ["update"], "blockConnection": true, "blockTimeMS": 1_000, "failInternalCommands": true },
        };
        let entered = shard.command("admin", hold).await.unwrap().get_i32("count").unwrap();
        let mut statement = transaction.with_fields(add(110, 1));
        if gone_at_first {
            statement.insert("startTransaction", true);
        }
        statement.insert("$db", DB);
        let bytes = testkit::raw::msg_body(0, &statement).unwrap();
        conn.send(&testkit::raw::frame(77, testkit::raw::OP_MSG, &bytes)).await.unwrap();
        let wait =
            doc! { "waitForFailPoint": "failCommand", "timesEntered": entered + 1, "maxTimeMS": 30_000 };
        shard.command("admin", wait).await.unwrap();
        drop(conn);
        // Both documents are free long before the shards' own limit of a minute, and as they were.
        for x in [10, 110] {
            let mut add = add(x, 0);
            add.insert("maxTimeMS", 30_000);
            let reply = other.command_ok(DB, add).await.unwrap();
            assert!(!reply.contains_key("writeErrors"), "{reply}");
            assert_eq!(value(&mut other, x).await, Some(0), "{x}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_is_stopped_aborts_its_transactions() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let mut transaction = Transaction::new(1, 1);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    let stopped = cluster.router(0).unwrap();
    stopped.terminate().unwrap();
    testkit::eventually("the router ends", || async { !stopped.is_running() }).await.unwrap();
    // Other writers need not wait for the shards' own limit of a minute.
    for x in [10, 110] {
        let mut command = add(x, 5);
        command.insert("maxTimeMS", 5_000);
        let reply = other.command_ok(DB, command).await.unwrap();
        assert!(!reply.contains_key("writeErrors"), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_end_the_transaction_everywhere() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    // A conflict is told as the command's error.
    let mut first = Transaction::new(1, 1);
    first.ok(&mut conn, add(110, 1)).await;
    let mut second = Transaction::new(2, 1);
    second.ok(&mut other, add(10, 1)).await;
    let reply = second.run(&mut other, add(110, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (112, true), "{reply}");
    // What the failed one wrote on the other shard is free again.
    first.ok(&mut conn, add(10, 1)).await;
    let reply = second.run(&mut other, add(20, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    let reply = second.end(&mut other, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    assert!(is_ok(&first.end(&mut conn, "commitTransaction").await));

    // A statement's own error stays in its place, without the label, and ends the transaction all the same.
    let mut third = Transaction::new(1, 2);
    third.ok(&mut conn, add(110, 1)).await;
    let twice = doc! { "insert": "r", "documents": [{ "_id": 10, "x": 10 }] };
    let reply = third.run(&mut conn, twice).await;
    let errors = reply.get_array("writeErrors").unwrap_or_else(|_| panic!("{reply}"));
    assert_eq!(errors[0].as_document().unwrap().get_i32("code").unwrap(), 11000);
    assert!(labels(&reply).is_empty(), "{reply}");
    let reply = third.end(&mut conn, "commitTransaction").await;
    assert_eq!(code(&reply), 251, "{reply}");
    assert_eq!((value(&mut conn, 10).await, value(&mut conn, 110).await), (Some(1), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_stand_in_a_transaction_is_refused() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    let mut transaction = Transaction::new(1, 5);
    transaction.ok(&mut conn, add(10, 1)).await;
    for (command, expected, says) in [
        (doc! { "count": "r" }, 263, "transaction-count"),
        (doc! { "drop": "r" }, 263, "Cannot run 'drop' in a multi-document transaction."),
        (doc! { "listCollections": 1 }, 263, "multi-document transaction"),
        (doc! { "explain": { "find": "r" } }, 263, "multi-document transaction"),
        (doc! { "find": "system.profile" }, 263, "t.system.profile"),
        (doc! { "find": "r", "readConcern": { "level": "local" } }, 72, "first command in a transaction"),
        (doc! { "insert": "r", "documents": [{ "x": 1 }], "writeConcern": { "w": 1 } }, 72, "writeConcern"),
        (doc! { "find": "r", "$readPreference": { "mode": "secondary" } }, 72, "must be primary"),
        (doc! { "find": "r", "startTransaction": true }, 117, "already started"),
        (doc! { "find": "r", "apiVersion": "1" }, 347, "API parameter mismatch"),
    ] {
        let reply = transaction.run(&mut conn, command.clone()).await;
        assert_eq!(code(&reply), expected, "{command}: {reply}");
        assert!(reply.get_str("errmsg").unwrap().contains(says), "{command}: {reply}");
        assert!(labels(&reply).is_empty(), "{command}: {reply}");
    }
    let on_config = transaction.with_fields(doc! { "find": "chunks" });
    assert_eq!(code(&conn.command("config", on_config).await.unwrap()), 263);
    // None of it has ended the transaction.
    transaction.ok(&mut conn, add(20, 1)).await;
    let old = Transaction::new(1, 4).run(&mut conn, doc! { "find": "r" }).await;
    assert_eq!(code(&old), 225, "{old}");
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    let late = transaction.run(&mut conn, doc! { "find": "r" }).await;
    assert_eq!(code(&late), 256, "{late}");

    for (number, command, expected) in [
        (6, doc! { "find": "r", "readConcern": { "level": "linearizable" } }, 72),
        (7, doc! { "killCursors": "r", "cursors": [] }, 263),
        (8, doc! { "distinct": "r", "key": "x" }, 263),
    ] {
        let reply = Transaction::new(1, number).run(&mut conn, command.clone()).await;
        assert_eq!(code(&reply), expected, "{command}: {reply}");
    }
    // Arguments that contradict each other.
    for (fields, expected) in [
        (doc! { "txnNumber": 9_i64 }, 72),
        (doc! { "lsid": lsid(1), "txnNumber": 9_i64, "startTransaction": true }, 72),
        (doc! { "lsid": lsid(1), "txnNumber": 9_i64, "autocommit": true }, 72),
        (doc! { "lsid": lsid(1), "autocommit": false }, 72),
        (doc! { "lsid": lsid(1), "txnNumber": 9_i64 }, 50768),
    ] {
        let mut command = doc! { "find": "r" };
        command.extend(fields.clone());
        let reply = conn.command(DB, command).await.unwrap();
        assert_eq!(code(&reply), expected, "{fields}: {reply}");
    }
    let nothing = Transaction::new(1, 20);
    let started = doc! { "commitTransaction": 1, "startTransaction": true };
    let reply = conn.command("admin", nothing.with_fields(started)).await.unwrap();
    assert_eq!(code(&reply), 263, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_move_between_statements() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let movement = |to: &str| doc! { "moveChunk": "t.r", "find": { "x": 210 }, "to": to };
    other.command_ok("admin", movement("shard1")).await.unwrap();
    // The first statement goes where the chunk went, and nobody notices.
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, add(210, 1)).await;
    transaction.ok(&mut conn, add(10, 1)).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    assert_eq!(value(&mut conn, 210).await, Some(1));

    // A later one cannot: the transaction starts over.
    let mut transaction = Transaction::new(1, 2);
    transaction.ok(&mut conn, add(10, 1)).await;
    other.command_ok("admin", movement("shard2")).await.unwrap();
    let reply = transaction.run(&mut conn, add(210, 1)).await;
    assert!(is_transient(&reply), "{reply}");
    assert!(!reply.contains_key("writeErrors"), "{reply}");
    let mut transaction = Transaction::new(1, 3);
    transaction.ok(&mut conn, add(10, 1)).await;
    transaction.ok(&mut conn, add(210, 1)).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    assert_eq!((value(&mut conn, 10).await, value(&mut conn, 210).await), (Some(2), Some(2)));

    // A snapshot is read where the chunk was at its time, also by a router that knows where it is now.
    let mut transaction = Transaction::new(1, 4);
    let find = doc! { "find": "r", "filter": { "x": 10 }, "readConcern": { "level": "snapshot" } };
    transaction.ok(&mut conn, find).await;
    other.command_ok("admin", movement("shard1")).await.unwrap();
    assert_eq!(value(&mut conn, 210).await, Some(2));
    let reply = transaction.ok(&mut conn, doc! { "find": "r", "filter": { "x": { "$gte": 205 } } }).await;
    assert_eq!(batch(&reply).len(), 9);
    let reply = transaction.ok(&mut conn, doc! { "find": "r", "filter": { "x": 210 } }).await;
    assert_eq!(batch(&reply).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_changes_its_shard_inside_a_transaction() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, add(30, 3)).await;
    let update = doc! { "update": "r", "updates": [{ "q": { "x": 30 }, "u": { "$set": { "x": 131 } } }] };
    let reply = transaction.ok(&mut conn, update).await;
    assert_eq!((reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()), (1, 1), "{reply}");
    let modify =
        doc! { "findAndModify": "r", "query": { "x": 40 }, "update": { "$set": { "x": 241 } }, "new": true };
    let reply = transaction.ok(&mut conn, modify).await;
    assert_eq!(reply.get_document("value").unwrap(), &doc! { "_id": 40, "x": 241, "v": 0 });
    assert_eq!(value(&mut conn, 131).await, None);
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    assert_eq!((value(&mut conn, 131).await, value(&mut conn, 30).await), (Some(3), None));
    assert_eq!((value(&mut conn, 241).await, value(&mut conn, 40).await), (Some(0), None));

    let mut transaction = Transaction::new(1, 2);
    let two = doc! { "update": "r", "updates": [
        { "q": { "x": 50 }, "u": { "$set": { "x": 151 } } },
        { "q": { "x": 60 }, "u": { "$set": { "v": 1 } } },
    ] };
    let reply = transaction.run(&mut conn, two).await;
    assert_eq!(code(&reply), 72, "{reply}");
    assert_eq!((value(&mut conn, 50).await, value(&mut conn, 60).await), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_made_inside_a_transaction() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, doc! { "insert": "fresh", "documents": [{ "a": 1 }] }).await;
    transaction.ok(&mut conn, doc! { "create": "made" }).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    // An index of a collection that the transaction made.
    let mut transaction = Transaction::new(1, 3);
    let index = doc! { "createIndexes": "indexed", "indexes": [{ "key": { "a": 1 }, "name": "a" }] };
    transaction.ok(&mut conn, index).await;
    transaction.ok(&mut conn, doc! { "insert": "indexed", "documents": [{ "a": 1 }] }).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    // Only on one shard: the shards refuse to prepare a new collection (6.0).
    let mut transaction = Transaction::new(1, 4);
    transaction.ok(&mut conn, doc! { "create": "half" }).await;
    transaction.ok(&mut conn, add(210, 1)).await;
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert_eq!(code(&reply), 263, "{reply}");
    let names = conn.command_ok(DB, doc! { "listCollections": 1, "nameOnly": true }).await.unwrap();
    let names: Vec<String> =
        batch(&names).iter().map(|entry| entry.get_str("name").unwrap().to_owned()).collect();
    assert!(
        ["fresh", "made", "indexed"].iter().all(|name| names.iter().any(|known| known == name)),
        "{names:?}"
    );
    assert!(!names.iter().any(|name| name == "half"), "{names:?}");
    assert_eq!(value(&mut conn, 210).await, Some(0));
}

/// How often each shard ran the commands that end transactions, from its own counters.
async fn ends(cluster: &Cluster) -> BTreeMap<(usize, String), i64> {
    let mut counts = BTreeMap::new();
    for shard in 0..3 {
        let status =
            cluster.shard(shard).unwrap().command("admin", doc! { "serverStatus": 1 }).await.unwrap();
        let commands = status.get_document("metrics").unwrap().get_document("commands").unwrap().clone();
        for name in
            ["commitTransaction", "abortTransaction", "prepareTransaction", "coordinateCommitTransaction"]
        {
            let total = commands.get_document(name).unwrap().get_i64("total").unwrap();
            counts.insert((shard, name.to_owned()), total);
        }
    }
    counts
}

/// How often the profilers saw each operation on the collection since they were started.
async fn statements(cluster: &Cluster) -> BTreeMap<(usize, String), i64> {
    let mut counts = BTreeMap::new();
    for op in cluster.profiled(DB, doc! { "ns": "t.r" }).await.unwrap() {
        let shard = op.shard.trim_start_matches("shard").parse().unwrap();
        *counts.entry((shard, op.entry.get_str("op").unwrap().to_owned())).or_default() += 1;
    }
    counts
}

/// What each shard ran while `work` ran.
async fn ran(cluster: &Cluster, work: impl Future<Output = ()>) -> Vec<(usize, String, i64)> {
    let before = ends(cluster).await;
    // It forgets what it saw before.
    cluster.start_profiling(DB).await.unwrap();
    work.await;
    cluster.stop_profiling(DB).await.unwrap();
    let mut after = ends(cluster).await;
    after.extend(statements(cluster).await);
    let ran = after.into_iter().map(|(key, total)| {
        let n = total - before.get(&key).copied().unwrap_or(0);
        (key.0, key.1, n)
    });
    ran.filter(|(_, _, n)| *n != 0).collect()
}

fn list(ran: &[(usize, String, i64)]) -> Vec<(usize, &str, i64)> {
    ran.iter().map(|(shard, name, n)| (*shard, &**name, *n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_round_trip_is_made_that_the_protocol_does_not_need() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    // Both shards know the collection.
    for x in [10, 110, 210] {
        conn.command_ok(DB, add(x, 0)).await.unwrap();
    }
    // Four statements, two shards that write: each goes once; one request hands the decision over; the two-phase commit
    // is the coordinator's own.
    let two = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 1);
        for x in [10, 110, 20, 120] {
            transaction.ok(&mut conn, add(x, 1)).await;
        }
        assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    })
    .await;
    assert_eq!(
        list(&two),
        [
            (0, "commitTransaction", 1),
            (0, "coordinateCommitTransaction", 1),
            (0, "prepareTransaction", 1),
            (0, "update", 2),
            (1, "commitTransaction", 1),
            (1, "prepareTransaction", 1),
            (1, "update", 2),
        ]
    );
    // One shard commits by itself.
    let one = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 2);
        for x in [10, 20] {
            transaction.ok(&mut conn, add(x, 1)).await;
        }
        assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    })
    .await;
    assert_eq!(list(&one), [(0, "commitTransaction", 1), (0, "update", 2)]);
    // One that writes and one that reads need no coordinator.
    let single = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 3);
        transaction.ok(&mut conn, doc! { "find": "r", "filter": { "x": 10 } }).await;
        transaction.ok(&mut conn, add(110, 1)).await;
        assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    })
    .await;
    assert_eq!(
        list(&single),
        [(0, "commitTransaction", 1), (0, "query", 1), (1, "commitTransaction", 1), (1, "update", 1)]
    );
    // An update of many goes to the shards that it concerns, not to all.
    let many = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 4);
        let update = doc! { "update": "r", "updates": [
            { "q": { "x": { "$lt": 150 } }, "u": { "$inc": { "v": 1 } }, "multi": true },
        ] };
        assert_eq!(transaction.ok(&mut conn, update).await.get_i32("n").unwrap(), 15);
        assert!(is_ok(&transaction.end(&mut conn, "abortTransaction").await));
    })
    .await;
    assert_eq!(
        list(&many),
        [(0, "abortTransaction", 1), (0, "update", 1), (1, "abortTransaction", 1), (1, "update", 1)]
    );
}
