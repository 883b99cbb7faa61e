//! Hedged reads: one more member is asked, and a slow one keeps nobody waiting.

use bson::{Bson, Document, doc};
use testkit::raw::RawConn;
use testkit::{Cluster, Member};

const DB: &str = "hedge";

/// Hedged requests, and those that the second member answered first.
async fn counts(conn: &mut RawConn) -> (i64, i64) {
    let status = conn.command_ok("admin", doc! { "serverStatus": 1 }).await.unwrap();
    let metrics = status.get_document("hedgingMetrics").unwrap();
    let count = |name: &str| metrics.get_i64(name).unwrap();
    assert!(count("numTotalOperations") >= count("numTotalHedgedOperations"), "{metrics}");
    (count("numTotalHedgedOperations"), count("numAdvantageouslyHedgedOperations"))
}

/// What this member lists of the collection: finds that are not over, or cursors that wait for a getMore.
async fn listed(member: &Member, filter: Document) -> Vec<Document> {
    let list = doc! {
        "aggregate": 1, "cursor": {}, "$readPreference": { "mode": "nearest" },
        "pipeline": [{ "$currentOp": { "allUsers": true, "idleCursors": true } }, { "$match": filter }],
    };
    let reply = member.command("admin", list).await.unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|op| op.as_document().unwrap().clone()).collect()
}

async fn running(member: &Member) -> Vec<Document> {
    listed(member, doc! { "type": "op", "command.find": "c" }).await
}

async fn open_cursors(member: &Member) -> usize {
    listed(member, doc! { "type": "idleCursor", "ns": "hedge.c" }).await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_member_keeps_no_hedged_read_waiting() {
    // However busy this machine is, all members are near enough and the second one has its time.
    let cluster = Cluster::builder()
        .shards(1)
        .members(3)
        .router_argument("--localThreshold")
        .router_argument("60000")
        .router_parameter("maxTimeMSForHedgedReads", "60000")
        .start()
        .await
        .unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let documents: Vec<Document> = (0..10).map(|n| doc! { "_id": n }).collect();
    let insert = doc! { "insert": "c", "documents": documents, "writeConcern": { "w": 3 } };
    conn.command_ok(DB, insert).await.unwrap();
    let set = cluster.shard(0).unwrap();
    let mut slow = None;
    for member in set.members() {
        if member.is_secondary().await {
            slow = Some(member);
        }
    }
    let slow = slow.unwrap();
    let secondary = doc! { "mode": "secondary", "hedge": { "enabled": true } };

    // The router may not know all members yet.
    let shared = tokio::sync::Mutex::new(&mut conn);
    testkit::eventually("a read is hedged", || async {
        let mut conn = shared.lock().await;
        read(*conn, &secondary).await;
        counts(*conn).await.0 > 0
    })
    .await
    .unwrap();

    // One of them does not answer any find in the time of this test. Every read is answered: by the other one, also when
    // that was asked second.
    let block = doc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 3_600_000, "failInternalCommands": true },
    };
    slow.command("admin", block).await.unwrap();
    // Such a find is seen where it sleeps.
    let mut direct = slow.raw().await.unwrap();
    let asked = doc! { "find": "c", "$readPreference": { "mode": "nearest" }, "$db": DB };
    let body = testkit::raw::msg_body(0, &asked).unwrap();
    let frame = testkit::raw::frame(direct.next_id(), testkit::raw::OP_MSG, &body);
    direct.send(&frame).await.unwrap();
    testkit::eventually("the slow member lists its find", || async {
        let ops = running(slow).await;
        for op in &ops {
            let kill = doc! { "killOp": 1, "op": op.get_i32("opid").unwrap() };
            slow.command("admin", kill).await.unwrap();
        }
        ops.len() == 1
    })
    .await
    .unwrap();
    direct.receive().await.unwrap();
    testkit::eventually_within(
        std::time::Duration::from_secs(60),
        "the second member answers first",
        || async {
            let mut conn = shared.lock().await;
            let before = counts(*conn).await.1;
            read(*conn, &secondary).await;
            counts(*conn).await.1 > before
        },
    )
    .await
    .unwrap();
    // The losers are killed, though they would have slept for an hour.
    testkit::eventually("no read is left on the slow member", || async { running(slow).await.is_empty() })
        .await
        .unwrap();
    slow.command("admin", doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();

    // The nearest member's reads are hedged by themselves, others and those of a router that should not are not.
    let conn = shared.into_inner();
    for (preference, mode, hedged) in [
        (doc! { "mode": "nearest", "hedge": { "enabled": false } }, "on", false),
        (doc! { "mode": "secondary" }, "on", false),
        (secondary.clone(), "off", false),
        (secondary, "on", true),
        (doc! { "mode": "nearest" }, "on", true),
    ] {
        conn.command_ok("admin", doc! { "setParameter": 1, "readHedgingMode": mode }).await.unwrap();
        let before = counts(conn).await.0;
        for _ in 0..5 {
            read(conn, &preference).await;
        }
        let count = counts(conn).await.0 - before;
        assert_eq!(count, if hedged { 5 } else { 0 }, "{preference}, {mode}");
    }
    let reply =
        conn.command("admin", doc! { "setParameter": 1, "readHedgingMode": "perhaps" }).await.unwrap();
    assert_eq!(reply.get_i32("code").ok(), Some(2), "{reply}");

    // Nothing of a loser stays open, which would be listed.
    let mut direct = slow.raw().await.unwrap();
    let open = doc! { "find": "c", "batchSize": 2, "$readPreference": { "mode": "nearest" } };
    let reply = direct.command_ok(DB, open).await.unwrap();
    assert!(open_cursors(slow).await > 0);
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    direct.command_ok(DB, doc! { "killCursors": "c", "cursors": [Bson::Int64(id)] }).await.unwrap();
    for member in set.members() {
        testkit::eventually(&format!("{} has no open cursor", member.name()), || async {
            open_cursors(member).await == 0
        })
        .await
        .unwrap();
    }
}

/// Reads two of ten documents and closes the cursor.
async fn read(conn: &mut RawConn, preference: &Document) {
    let find = doc! { "find": "c", "batchSize": 2, "$readPreference": preference };
    let reply = conn.command_ok(DB, find).await.unwrap();
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap().len(), 2);
    let kill = doc! { "killCursors": "c", "cursors": [Bson::Int64(cursor.get_i64("id").unwrap())] };
    conn.command_ok(DB, kill).await.unwrap();
}
