//! Transactions while chunks move: no statement may miss a document because it reached the shard after the time that the
//! shard reads at.

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "t";

/// Two shards. `t.r`: x below 100, from 100; a document every tenth x, all with v: 0. `t.u`: not sharded, on shard0.
async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("t.r", "x", &[100]).await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let documents: Vec<Document> = (0..20).map(|n| doc! { "_id": n * 10, "x": n * 10, "v": 0 }).collect();
    conn.command_ok(DB, doc! { "insert": "r", "documents": documents }).await.unwrap();
    conn.command_ok(DB, doc! { "insert": "u", "documents": [{ "_id": 0 }] }).await.unwrap();
    (cluster, conn)
}

/// What a driver keeps of a transaction.
struct Transaction {
    session: u8,
    number: i64,
    level: &'static str,
    started: bool,
}

impl Transaction {
    const fn new(session: u8, number: i64, level: &'static str) -> Self {
        Self { session, number, level, started: false }
    }

    async fn run(&mut self, conn: &mut RawConn, mut command: Document) -> Document {
        if !std::mem::replace(&mut self.started, true) {
            command.extend(doc! { "startTransaction": true, "readConcern": { "level": self.level } });
        }
        self.send(conn, DB, command).await
    }

    async fn abort(&self, conn: &mut RawConn) {
        self.send(conn, "admin", doc! { "abortTransaction": 1 }).await;
    }

    async fn send(&self, conn: &mut RawConn, db: &str, mut command: Document) -> Document {
        let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![self.session; 16] };
        command.extend(doc! { "lsid": { "id": id }, "txnNumber": self.number, "autocommit": false });
        conn.command(db, command).await.unwrap()
    }
}

fn find(x: i32) -> Document {
    doc! { "find": "r", "filter": { "x": x } }
}

/// Opens shard0's part of a transaction, without a lock on the collection whose chunk is to move.
fn first() -> Document {
    doc! { "find": "u", "filter": {} }
}

/// How many documents a reply is about.
fn found(reply: &Document) -> i32 {
    if let Ok(cursor) = reply.get_document("cursor") {
        return i32::try_from(cursor.get_array("firstBatch").unwrap().len()).unwrap();
    }
    reply.get_document("lastErrorObject").unwrap_or(reply).get_i32("n").unwrap()
}

fn has_label(reply: &Document) -> bool {
    let labels = reply.get_array("errorLabels").map_or(&[][..], Vec::as_slice);
    labels.contains(&Bson::from("TransientTransactionError"))
}

/// Each asks for the document x: 150 alone.
fn statements() -> Vec<(&'static str, Document)> {
    let set = || doc! { "$inc": { "v": 1 } };
    let update = |q: Document, multi: bool| doc! { "update": "r", "updates": [{ "q": q, "u": set(), "multi": multi }] };
    vec![
        ("find", find(150)),
        ("aggregate", doc! { "aggregate": "r", "pipeline": [{ "$match": { "x": 150 } }], "cursor": {} }),
        ("update", update(doc! { "x": 150 }, false)),
        ("update by _id", update(doc! { "_id": 150 }, false)),
        ("update of many", update(doc! { "x": { "$gt": 145, "$lt": 155 } }, true)),
        ("delete", doc! { "delete": "r", "deletes": [{ "q": { "x": 150 }, "limit": 1 }] }),
        ("findAndModify", doc! { "findAndModify": "r", "query": { "x": 150 }, "update": set() }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_never_misses_what_reached_its_shard_meanwhile() {
    let (cluster, mut conn) = start().await;
    let mut wrong = Vec::new();
    for (number, level) in [(1, "local"), (3, "majority"), (5, "snapshot")] {
        // All read at shard0 before the chunk of x: 150 comes there.
        let mut open = Vec::new();
        for (session, (name, statement)) in (1_u8..).zip(statements()) {
            let mut transaction = Transaction::new(session, number, level);
            let reply = transaction.run(&mut conn, first()).await;
            assert_eq!(found(&reply), 1, "{reply}");
            open.push((session, name, statement, transaction));
        }
        cluster.move_chunk("t.r", doc! { "x": 150 }, "shard0").await.unwrap();
        // The router knows.
        assert_eq!(found(&conn.command_ok(DB, find(150)).await.unwrap()), 1);
        for (session, name, statement, mut transaction) in open {
            let reply = transaction.run(&mut conn, statement.clone()).await;
            let is_read = matches!(name, "find" | "aggregate");
            if level == "snapshot" && is_read {
                // Read where the chunk was at the snapshot's time.
                assert_eq!(found(&reply), 1, "{name}: {reply}");
            } else if reply.get("code") != Some(&Bson::Int32(272)) || !has_label(&reply) {
                wrong.push(format!("{name} at {level}: {reply}"));
            }
            transaction.abort(&mut conn).await;
            // What a driver does next.
            let mut again = Transaction::new(session, number + 1, level);
            for statement in [first(), statement] {
                let reply = again.run(&mut conn, statement).await;
                assert!(is_ok(&reply) && found(&reply) == 1, "{name} at {level}: {reply}");
            }
            again.abort(&mut conn).await;
        }
        cluster.move_chunk("t.r", doc! { "x": 150 }, "shard1").await.unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_takes_part_later_reads_what_it_has_then() {
    let (cluster, mut conn) = start().await;
    let add = |x: i32| doc! { "update": "r", "updates": [{ "q": { "x": x }, "u": { "$inc": { "v": 1 } } }] };
    // The chunk of x: 10 leaves the shard that takes part: nothing is in the way.
    let mut transaction = Transaction::new(1, 1, "local");
    assert_eq!(found(&transaction.run(&mut conn, first()).await), 1);
    cluster.move_chunk("t.r", doc! { "x": 10 }, "shard1").await.unwrap();
    for x in [10, 150] {
        let reply = transaction.run(&mut conn, add(x)).await;
        assert!(is_ok(&reply) && found(&reply) == 1, "{reply}");
    }
    transaction.abort(&mut conn).await;

    // A first statement chooses a snapshot that is new enough for what it finds out on its way.
    let config = cluster.config();
    let behind = doc! {
        "_configsvrMoveRange": "t.r", "toShard": "shard0", "min": { "x": 100 }, "writeConcern": { "w": "majority" },
    };
    config.command("admin", behind).await.unwrap();
    let mut transaction = Transaction::new(1, 2, "snapshot");
    for x in [150, 10] {
        let reply = transaction.run(&mut conn, add(x)).await;
        assert!(is_ok(&reply) && found(&reply) == 1, "{reply}");
    }
    transaction.abort(&mut conn).await;
}
