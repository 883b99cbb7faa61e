//! Cursors of one shard and of several: batches, ends, and what is said about cursors that are not there.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "cur";

/// `one` is on one shard, `many` on three; 300 documents each.
async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("cur.many", "n", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    for name in ["one", "many"] {
        let coll = client.database(DB).collection::<Document>(name);
        coll.insert_many((0..300).map(|n| doc! { "_id": n, "n": n, "g": n % 3 })).await.unwrap();
    }
    let conn = cluster.router(0).unwrap().raw().await.unwrap();
    (cluster, conn)
}

fn cursor<'a>(reply: &'a Document, batch: &str) -> (i64, &'a str, Vec<i32>) {
    assert!(is_ok(reply), "{reply}");
    let cursor = reply.get_document("cursor").unwrap();
    let documents = cursor.get_array(batch).unwrap();
    let numbers = documents.iter().map(|document| document.as_document().unwrap().get_i32("_id").unwrap());
    (cursor.get_i64("id").unwrap(), cursor.get_str("ns").unwrap(), numbers.collect())
}

async fn find(conn: &mut RawConn, more: Document, coll: &str) -> Document {
    let mut command = doc! { "find": coll };
    command.extend(more);
    conn.command(DB, command).await.unwrap()
}

async fn get_more(conn: &mut RawConn, id: i64, coll: &str, more: Document) -> Document {
    let mut command = doc! { "getMore": id, "collection": coll };
    command.extend(more);
    conn.command(DB, command).await.unwrap()
}

fn code(reply: &Document) -> (i32, &str) {
    assert!(!is_ok(reply), "{reply}");
    (reply.get_i32("code").unwrap(), reply.get_str("codeName").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_have_the_sizes_that_a_mongod_gives() {
    let (cluster, mut router) = start().await;
    // `one` lives on shard0 whole, so that shard is the oracle.
    let mut mongod = cluster.shard(0).unwrap().member(0).unwrap().raw().await.unwrap();
    let cases = [
        doc! {},
        doc! { "batchSize": 0 },
        doc! { "batchSize": 1 },
        doc! { "batchSize": 299 },
        doc! { "batchSize": 300 },
        doc! { "batchSize": 1000 },
        doc! { "limit": 5 },
        doc! { "limit": 150, "batchSize": 70 },
        doc! { "limit": 300 },
        doc! { "singleBatch": true, "batchSize": 7 },
        doc! { "skip": 290 },
        doc! { "skip": 10, "limit": 205, "batchSize": 101 },
        doc! { "filter": { "_id": { "$gte": 999 } } },
    ];
    for case in cases {
        let mut case = case;
        case.insert("sort", doc! { "_id": 1 });
        let mut expected = Vec::new();
        for (which, coll) in [(0, "one"), (1, "one"), (1, "many")] {
            let conn = if which == 0 { &mut mongod } else { &mut router };
            let reply = find(conn, case.clone(), coll).await;
            let (mut id, ns, first) = cursor(&reply, "firstBatch");
            assert_eq!(ns, format!("{DB}.{coll}"));
            let mut batches = vec![(id == 0, first)];
            while id != 0 {
                let reply = get_more(conn, id, coll, doc! { "batchSize": 120 }).await;
                let (next, _, batch) = cursor(&reply, "nextBatch");
                id = next;
                batches.push((id == 0, batch));
                assert!(batches.len() < 10, "{case}: no end");
            }
            // Whether the end shows in the last batch or in an empty one more, differs from one server to several.
            let numbers: Vec<i32> = batches.iter().flat_map(|(_, batch)| batch.iter().copied()).collect();
            let shape = (numbers, batches[0].1.len());
            if which == 0 {
                expected.push(shape);
            } else {
                assert!(
                    shape == expected[0],
                    "{case} on {coll}: first batch {} instead of {}",
                    shape.1,
                    expected[0].1
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_end_by_kill_and_unknown_ones_are_not_found() {
    let (cluster, mut conn) = start().await;
    for coll in ["one", "many"] {
        let reply = find(&mut conn, doc! { "batchSize": 2, "sort": { "g": 1 } }, coll).await;
        let (id, _, batch) = cursor(&reply, "firstBatch");
        assert!(id != 0 && batch.len() == 2);
        // Another connection to the same router may go on with it.
        let mut other = cluster.router(0).unwrap().raw().await.unwrap();
        let reply = get_more(&mut other, id, coll, doc! { "batchSize": 3 }).await;
        assert_eq!(cursor(&reply, "nextBatch").2.len(), 3);
        let kill = doc! { "killCursors": coll, "cursors": [Bson::Int64(id), Bson::Int64(4_711)] };
        let reply = conn.command_ok(DB, kill).await.unwrap();
        assert_eq!(reply.get_array("cursorsKilled").unwrap(), &[Bson::Int64(id)]);
        assert_eq!(reply.get_array("cursorsNotFound").unwrap(), &[Bson::Int64(4_711)]);
        let reply = get_more(&mut conn, id, coll, doc! {}).await;
        assert_eq!(code(&reply), (43, "CursorNotFound"));
    }
    // Killed here means killed on the shards.
    for shard in cluster.shards() {
        testkit::eventually(&format!("{} has no open cursor", shard.name()), || async {
            let status = shard.command("admin", doc! { "serverStatus": 1 }).await.unwrap();
            let open = status
                .get_document("metrics")
                .unwrap()
                .get_document("cursor")
                .unwrap()
                .get_document("open")
                .unwrap();
            open.get_i64("total").unwrap() == 0
        })
        .await
        .unwrap();
    }
}

/// A mongos finds its cursors by their ids alone (seen on the router code of 6.0.5); a mongod would refuse this.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_found_by_its_id_alone() {
    let (_cluster, mut conn) = start().await;
    for coll in ["one", "many"] {
        let reply = find(&mut conn, doc! { "batchSize": 2 }, coll).await;
        let (id, _, _) = cursor(&reply, "firstBatch");
        let reply = get_more(&mut conn, id, "other", doc! {}).await;
        let (_, documents, _) = cursor(&reply, "nextBatch");
        assert!(!documents.is_empty(), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_checked_as_by_a_mongod() {
    let (cluster, mut router) = start().await;
    let mut mongod = cluster.shard(0).unwrap().member(0).unwrap().raw().await.unwrap();
    let cases = [
        doc! { "find": "one", "batchSize": -1 },
        doc! { "find": "one", "limit": -5 },
        doc! { "find": "one", "skip": -1 },
        doc! { "find": "one", "filter": 5 },
        doc! { "find": "one", "sort": { "a": 2 } },
        doc! { "find": "one", "filter": { "$nope": 1 } },
        doc! { "find": "one", "filter": { "a": { "$nope": 1 } } },
        doc! { "find": "one", "noSuchOption": 1 },
        doc! { "find": "" },
        doc! { "getMore": "x", "collection": "one" },
        doc! { "getMore": 5_i64, "collection": "one" },
        doc! { "getMore": 5_i64, "collection": "one", "batchSize": -1 },
        doc! { "killCursors": "one", "cursors": "x" },
        doc! { "aggregate": "one", "pipeline": [{ "$nope": 1 }], "cursor": {} },
        doc! { "aggregate": "one", "pipeline": 5, "cursor": {} },
        doc! { "aggregate": "one", "pipeline": [] },
        doc! { "insert": "one", "documents": [] },
        doc! { "update": "one", "updates": [{ "q": {}, "u": { "$nope": 1 } }] },
        doc! { "delete": "one", "deletes": [{ "q": {} }] },
        doc! { "distinct": "one" },
        doc! { "noSuchCommand": 1 },
    ];
    let mut different = Vec::new();
    for case in cases {
        let shown = |reply: &Document| {
            let item =
                reply.get_array("writeErrors").ok().and_then(|errors| errors[0].as_document().cloned());
            item.unwrap_or_else(|| reply.clone()).get_i32("code").ok()
        };
        let expected = shown(&mongod.command(DB, case.clone()).await.unwrap());
        let got = shown(&router.command(DB, case.clone()).await.unwrap());
        assert!(expected.is_some(), "{case} is no error on a mongod");
        if got != expected {
            different.push(format!("{case}: {got:?} instead of {expected:?}"));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// Open cursors of a process: a shard or the router.
async fn open_cursors(status: anyhow::Result<Document>) -> i64 {
    let Ok(status) = status else { return -1 };
    let cursor = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
    cursor.get_document("open").unwrap().get_i64("total").unwrap()
}

async fn nothing_stays_open(cluster: &Cluster, after: &str) {
    let status = doc! { "serverStatus": 1 };
    for shard in cluster.shards() {
        testkit::eventually_within(
            LEAK_LIMIT,
            &format!("{after}: {} has no open cursor", shard.name()),
            || async { open_cursors(shard.command("admin", status.clone()).await).await == 0 },
        )
        .await
        .unwrap();
    }
    let conn = tokio::sync::Mutex::new(cluster.router(0).unwrap().raw().await.unwrap());
    testkit::eventually_within(LEAK_LIMIT, &format!("{after}: the router has no cursor"), || async {
        open_cursors(conn.lock().await.command_ok("admin", status.clone()).await).await == 0
    })
    .await
    .unwrap();
}

const LEAK_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// Opens a cursor on all shards, with documents left on each.
async fn opened(conn: &mut RawConn) -> i64 {
    let reply = find(conn, doc! { "batchSize": 2, "sort": { "g": 1, "_id": 1 } }, "many").await;
    let (id, _, batch) = cursor(&reply, "firstBatch");
    assert!(id != 0 && batch.len() == 2);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cursor_stays_open_whoever_dies() {
    let cluster = Cluster::builder()
        .shards(3)
        .router_parameter("cursorTimeoutMillis", "2000")
        .router_parameter("clientCursorMonitorFrequencySecs", "1")
        .start()
        .await
        .unwrap();
    cluster.spread("cur.many", "n", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let coll = client.database(DB).collection::<Document>("many");
    coll.insert_many((0..300).map(|n| doc! { "_id": n, "n": n, "g": n % 3 })).await.unwrap();
    let router = cluster.router(0).unwrap();
    let slow = cluster.shard(1).unwrap().member(0).unwrap();

    // The client goes between two batches: nobody comes back for the cursor.
    let mut conn = router.raw().await.unwrap();
    opened(&mut conn).await;
    drop(conn);
    nothing_stays_open(&cluster, "a client went between two batches").await;

    // It goes while a shard works for it.
    let shown = "a client went while it waited";
    for command in [
        None,
        Some(
            doc! { "aggregate": "many", "pipeline": [{ "$group": { "_id": "$g", "n": { "$sum": 1 } } }], "cursor": {} },
        ),
        Some(doc! { "find": "many", "sort": { "g": 1 } }),
    ] {
        let mut conn = router.raw().await.unwrap();
        let mut command = match command {
            Some(command) => command,
            None => doc! { "getMore": opened(&mut conn).await, "collection": "many" },
        };
        command.insert("$db", DB);
        slow.pause().unwrap();
        let body = testkit::raw::msg_body(0, &command).unwrap();
        let frame = testkit::raw::frame(conn.next_id(), testkit::raw::OP_MSG, &body);
        conn.send(&frame).await.unwrap();
        drop(conn);
        slow.resume().unwrap();
        nothing_stays_open(&cluster, &format!("{shown} for {command}")).await;
    }

    // A shard's cursor is killed behind the router's back.
    let mut conn = router.raw().await.unwrap();
    let id = opened(&mut conn).await;
    let direct = slow.client().await.unwrap();
    let idle = vec![
        doc! { "$currentOp": { "idleCursors": true, "allUsers": true } },
        doc! { "$match": { "type": "idleCursor" } },
    ];
    let idle: Vec<Document> =
        direct.database("admin").aggregate(idle).await.unwrap().try_collect().await.unwrap();
    let ids: Vec<Bson> =
        idle.iter().map(|op| op.get_document("cursor").unwrap().get("cursorId").unwrap().clone()).collect();
    assert_eq!(ids.len(), 1, "{idle:?}");
    direct.database(DB).run_command(doc! { "killCursors": "many", "cursors": ids }).await.unwrap();
    let reply = get_more(&mut conn, id, "many", doc! {}).await;
    assert_eq!(code(&reply), (43, "CursorNotFound"));
    nothing_stays_open(&cluster, "a shard lost its cursor").await;

    // A shard dies.
    let id = opened(&mut conn).await;
    slow.kill();
    let reply = get_more(&mut conn, id, "many", doc! {}).await;
    assert!(!is_ok(&reply), "{reply}");
    slow.restart().await.unwrap();
    nothing_stays_open(&cluster, "a shard died").await;

    // All of that cost nothing that stays: the same query again.
    assert_eq!(
        coll.find(doc! {}).sort(doc! { "g": 1 }).await.unwrap().try_collect::<Vec<_>>().await.unwrap().len(),
        300
    );
}

/// A connection of a client that says who it is, as drivers do.
async fn connection_of(cluster: &Cluster, application: &str) -> RawConn {
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let client = doc! {
        "driver": { "name": "test", "version": "1" }, "os": { "type": "Linux" }, "application": { "name": application },
    };
    conn.command_ok("admin", doc! { "hello": 1, "client": client }).await.unwrap();
    conn
}

/// How many cursors the router closed since their client was gone.
async fn closed_of_gone(conn: &mut RawConn) -> i64 {
    let status = conn.command_ok("admin", doc! { "serverStatus": 1 }).await.unwrap();
    status.get_document("pointsman").unwrap().get_i64("cursorsOfGoneClients").unwrap()
}

/// Opens a cursor for another client and kills that client. When its cursor is closed, so are those of all clients that
/// were gone before.
async fn another_client_came_and_went(cluster: &Cluster, asking: &mut RawConn) {
    let before = closed_of_gone(asking).await;
    opened(&mut connection_of(cluster, "another").await).await;
    let asking = tokio::sync::Mutex::new(asking);
    testkit::eventually_within(LEAK_LIMIT, "the other client's cursor is closed", || async {
        closed_of_gone(*asking.lock().await).await > before
    })
    .await
    .unwrap();
}

/// The idle time-out stays at its ten minutes here.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_go_with_the_last_connection_of_their_client() {
    const GRACE: &str = "pointsmanGoneClientCursorTimeoutMillis";
    let cluster = Cluster::builder()
        .shards(2)
        .router_parameter("clientCursorMonitorFrequencySecs", "1")
        .router_parameter(GRACE, "100")
        .start()
        .await
        .unwrap();
    cluster.spread("cur.many", "n", &[150]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let coll = client.database(DB).collection::<Document>("many");
    coll.insert_many((0..300).map(|n| doc! { "_id": n, "n": n, "g": n % 3 })).await.unwrap();
    let mut asking = connection_of(&cluster, "asking").await;

    // A client dies between two batches of cursors of all kinds.
    let mut conn = connection_of(&cluster, "dies").await;
    opened(&mut conn).await;
    for kind in [
        doc! { "find": "many", "filter": { "n": { "$lt": 100 } }, "batchSize": 2 },
        doc! { "find": "many", "batchSize": 2, "noCursorTimeout": true },
        doc! { "aggregate": "many", "pipeline": [{ "$changeStream": {} }], "cursor": {} },
    ] {
        let reply = conn.command_ok(DB, kind).await.unwrap();
        assert!(reply.get_document("cursor").unwrap().get_i64("id").unwrap() != 0, "{reply}");
    }
    drop(conn);
    nothing_stays_open(&cluster, "a client died between two batches").await;
    assert_eq!(closed_of_gone(&mut asking).await, 4);

    // One of two connections of a client is closed.
    let (mut first, mut second) =
        (connection_of(&cluster, "two").await, connection_of(&cluster, "two").await);
    let id = opened(&mut first).await;
    drop(first);
    another_client_came_and_went(&cluster, &mut asking).await;
    let reply = get_more(&mut second, id, "many", doc! { "batchSize": 2 }).await;
    assert_eq!(cursor(&reply, "nextBatch").2.len(), 2);

    // The last one is, too, and the client comes back in time.
    asking.command_ok("admin", doc! { "setParameter": 1, GRACE: 600_000 }).await.unwrap();
    drop(second);
    let mut third = connection_of(&cluster, "two").await;
    asking.command_ok("admin", doc! { "setParameter": 1, GRACE: 100 }).await.unwrap();
    another_client_came_and_went(&cluster, &mut asking).await;
    let reply = get_more(&mut third, id, "many", doc! { "batchSize": 2 }).await;
    assert_eq!(cursor(&reply, "nextBatch").2.len(), 2);

    // It goes for good.
    drop(third);
    nothing_stays_open(&cluster, "the client did not come back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_the_router_is_listed_and_can_be_killed() {
    let (cluster, mut asking) = start().await;
    let slow = cluster.shard(1).unwrap().member(0).unwrap();
    slow.pause().unwrap();
    let waiting = tokio::spawn({
        let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
        async move { find(&mut conn, doc! { "comment": "to be killed", "sort": { "g": 1 } }, "many").await }
    });
    // A shard makes documents of what the router tells it; it may be the frozen one.
    let list = doc! {
        "aggregate": 1, "cursor": {}, "pipeline": [{ "$currentOp": { "localOps": true } }], "maxTimeMS": 2_000,
    };
    let found = tokio::sync::Mutex::new(None);
    let other = tokio::sync::Mutex::new(cluster.router(0).unwrap().raw().await.unwrap());
    // On a busy machine the list may not be made within its two seconds at first.
    testkit::eventually_within(LEAK_LIMIT, "the command is listed", || async {
        let reply = other.lock().await.command("admin", list.clone()).await.unwrap();
        let Ok(cursor) = reply.get_document("cursor") else { return false };
        let batch = cursor.get_array("firstBatch").unwrap();
        let killed = |op: &&Document| {
            op.get_document("command").unwrap().get_str("comment").is_ok_and(|text| text == "to be killed")
        };
        let mut found = found.lock().await;
        *found = batch.iter().filter_map(Bson::as_document).find(killed).cloned();
        found.is_some()
    })
    .await
    .unwrap();
    let listed = found.into_inner().unwrap();
    assert_eq!(
        (listed.get_str("op").unwrap(), listed.get_str("ns").unwrap()),
        ("query", "cur.many"),
        "{listed}"
    );
    assert!(
        listed.get_bool("active").unwrap() && listed.get_i64("microsecs_running").unwrap() > 0,
        "{listed}"
    );
    let number = listed.get_i32("opid").unwrap();
    // Another number kills nothing; this one does.
    for op in [number.wrapping_add(1_000_000), number] {
        let reply = asking.command_ok("admin", doc! { "killOp": 1, "op": op }).await.unwrap();
        assert_eq!(reply.get_str("info").unwrap(), "attempting to kill op");
    }
    let reply = waiting.await.unwrap();
    assert_eq!(code(&reply), (11601, "Interrupted"));
    slow.resume().unwrap();
    nothing_stays_open(&cluster, "a command was killed").await;
    // Who asks is listed, too.
    let reply = asking.command_ok("admin", list).await.unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let names: Vec<&str> = batch
        .iter()
        .map(|op| op.as_document().unwrap().get_document("command").unwrap().keys().next().unwrap().as_str())
        .collect();
    // Connections that wait for news of the router are, too.
    assert_eq!(names.iter().filter(|name| **name == "aggregate").count(), 1, "{names:?}");
}
