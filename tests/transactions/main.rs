//! Transactions over many shards, through two routers.

mod ends;
mod round_trips;
mod snapshots;
mod statements;

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

pub(crate) const DB: &str = "t";

/// Three shards: x below 100, from 100, from 200; a document every tenth x, all with v: 0. Both routers know the table.
pub(crate) async fn start() -> Cluster {
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

pub(crate) async fn router(cluster: &Cluster, index: usize) -> RawConn {
    cluster.router(index).unwrap().raw().await.unwrap()
}

pub(crate) fn lsid(byte: u8) -> Bson {
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![byte; 16] };
    doc! { "id": id }.into()
}

/// What a driver keeps of a transaction.
pub(crate) struct Transaction {
    session: u8,
    pub(crate) number: i64,
    started: bool,
    token: Document,
}

impl Transaction {
    pub(crate) fn new(session: u8, number: i64) -> Self {
        Self { session, number, started: false, token: doc! {} }
    }

    /// Runs a statement; the first one starts it.
    pub(crate) async fn run(&mut self, conn: &mut RawConn, mut command: Document) -> Document {
        if !std::mem::replace(&mut self.started, true) {
            command.insert("startTransaction", true);
        }
        let reply = conn.command(DB, self.with_fields(command)).await.unwrap();
        if let Ok(token) = reply.get_document("recoveryToken") {
            self.token = token.clone();
        }
        reply
    }

    pub(crate) async fn ok(&mut self, conn: &mut RawConn, command: Document) -> Document {
        let reply = self.run(conn, command).await;
        assert!(is_ok(&reply), "{reply}");
        assert!(!reply.contains_key("writeErrors"), "{reply}");
        reply
    }

    pub(crate) async fn end(&self, conn: &mut RawConn, command: &str) -> Document {
        let command = doc! { command: 1, "recoveryToken": self.token.clone() };
        conn.command("admin", self.with_fields(command)).await.unwrap()
    }

    pub(crate) fn with_fields(&self, mut command: Document) -> Document {
        command.insert("lsid", lsid(self.session));
        command.insert("txnNumber", self.number);
        command.insert("autocommit", false);
        command
    }
}

pub(crate) fn add(x: i32, amount: i32) -> Document {
    doc! { "update": "r", "updates": [{ "q": { "x": x }, "u": { "$inc": { "v": amount } } }] }
}

pub(crate) async fn value(conn: &mut RawConn, x: i32) -> Option<i32> {
    let find = doc! { "find": "r", "filter": { "x": x } };
    let reply = conn.command_ok(DB, find).await.unwrap();
    batch(&reply).first().map(|found| found.get_i32("v").unwrap())
}

pub(crate) fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply}"));
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

pub(crate) fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or_else(|_| panic!("{reply}"))
}

pub(crate) fn labels(reply: &Document) -> Vec<String> {
    let labels = reply.get_array("errorLabels").map_or(&[][..], Vec::as_slice);
    labels.iter().map(|label| label.as_str().unwrap().to_owned()).collect()
}

pub(crate) fn is_transient(reply: &Document) -> bool {
    labels(reply).iter().any(|label| label == "TransientTransactionError")
}

pub(crate) async fn fail(cluster: &Cluster, shard: usize, command: &str, code: i32, times: i32) {
    let data = doc! { "failCommands": [command], "errorCode": code, "failInternalCommands": true };
    let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    cluster.shard(shard).unwrap().command("admin", point).await.unwrap();
}
