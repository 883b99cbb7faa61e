//! Logical sessions: their records, their end, and what ends with them.

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::RawConn;

fn id(byte: u8) -> Bson {
    bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![byte; 16] }.into()
}

async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let documents: Vec<Document> = (0..10).map(|n| doc! { "_id": n }).collect();
    conn.command_ok("s", doc! { "insert": "c", "documents": documents }).await.unwrap();
    (cluster, conn)
}

async fn has_record(conn: &mut RawConn, session: u8) -> bool {
    let find = doc! { "find": "system.sessions", "filter": { "_id.id": id(session) } };
    let reply = conn.command_ok("config", find).await.unwrap();
    !reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty()
}

/// Opens a cursor in a session; gives its id.
async fn open(conn: &mut RawConn, session: u8) -> i64 {
    let find = doc! { "find": "c", "batchSize": 2, "lsid": { "id": id(session) } };
    let reply = conn.command_ok("s", find).await.unwrap();
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

/// The error code of a getMore, 0 if it works.
async fn next(conn: &mut RawConn, cursor: i64, session: u8) -> i32 {
    let more = doc! { "getMore": cursor, "collection": "c", "batchSize": 1, "lsid": { "id": id(session) } };
    conn.command("s", more).await.unwrap().get_i32("code").unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn records_follow_the_use_of_sessions() {
    let (cluster, mut conn) = start().await;
    let refresh = doc! { "refreshLogicalSessionCacheNow": 1 };
    // The config servers make the collection.
    cluster.config().command("admin", refresh.clone()).await.unwrap();
    // No shard is asked: the record can only come from the router.
    conn.command_ok("admin", doc! { "buildInfo": 1, "lsid": { "id": id(1) } }).await.unwrap();
    conn.command_ok("admin", doc! { "getParameter": 1, "quiet": 1, "lsid": { "id": id(2) } }).await.unwrap();
    assert!(!has_record(&mut conn, 2).await);
    conn.command_ok("admin", refresh.clone()).await.unwrap();
    assert!(has_record(&mut conn, 2).await);
    conn.command_ok("admin", doc! { "endSessions": [{ "id": id(2) }] }).await.unwrap();
    conn.command_ok("admin", refresh.clone()).await.unwrap();
    assert!(!has_record(&mut conn, 2).await);

    // A session whose record is gone is over, and its cursors with it; one in use keeps both.
    let (kept, lost) = (open(&mut conn, 3).await, open(&mut conn, 4).await);
    conn.command_ok("admin", refresh.clone()).await.unwrap();
    assert!(has_record(&mut conn, 3).await && has_record(&mut conn, 4).await);
    let gone = doc! { "delete": "system.sessions", "deletes": [{ "q": { "_id.id": id(4) }, "limit": 0 }] };
    conn.command_ok("config", gone).await.unwrap();
    conn.command_ok("admin", doc! { "refreshSessions": [{ "id": id(3) }] }).await.unwrap();
    conn.command_ok("admin", refresh).await.unwrap();
    assert_eq!(next(&mut conn, kept, 3).await, 0);
    assert_eq!(next(&mut conn, lost, 4).await, 43);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_loses_its_cursors_and_its_transaction() {
    let (_cluster, mut conn) = start().await;
    let (mine, other) = (open(&mut conn, 1).await, open(&mut conn, 2).await);
    let statement = |fields: Document| {
        let mut update =
            doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }] };
        update.extend(doc! { "lsid": { "id": id(1) }, "txnNumber": 1_i64, "autocommit": false });
        update.extend(fields);
        update
    };
    conn.command_ok("s", statement(doc! { "startTransaction": true })).await.unwrap();
    conn.command_ok("admin", doc! { "killSessions": [{ "id": id(1) }] }).await.unwrap();
    assert_eq!(next(&mut conn, mine, 1).await, 43);
    assert_eq!(next(&mut conn, other, 2).await, 0);
    let reply = conn.command("s", statement(doc! {})).await.unwrap();
    assert_eq!(reply.get_i32("code").unwrap(), 251, "{reply}");
    // Its locks are free.
    let update = doc! {
        "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 2 } } }], "maxTimeMS": 5_000,
    };
    let reply = conn.command_ok("s", update).await.unwrap();
    assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply}");
}
