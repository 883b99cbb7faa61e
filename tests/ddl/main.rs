//! Databases, collections and indexes through the router: where they come to be, what is answered, what another router
//! sees of it.

mod one_router;
mod other_routers;

use bson::Document;
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

pub(crate) async fn conn(cluster: &Cluster, router: usize) -> RawConn {
    cluster.router(router).unwrap().raw().await.unwrap()
}

/// The code of a reply: 0 when it is ok, -1 when it failed without one.
pub(crate) fn code(reply: &Document) -> i32 {
    if is_ok(reply) { 0 } else { reply.get_i32("code").unwrap_or(-1) }
}

/// Runs each command and compares the code of its reply.
pub(crate) async fn assert_codes(conn: &mut RawConn, cases: &[(&str, Document, i32)]) {
    for (db, command, expected) in cases {
        let reply = conn.command(db, command.clone()).await.unwrap();
        assert_eq!(code(&reply), *expected, "{command} on {db}: {reply}");
    }
}

pub(crate) fn batch(reply: &Document, name: &str) -> Vec<Document> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array(name)).unwrap();
    batch.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

/// The names of collections that a shard has in a database.
pub(crate) async fn collections_on(cluster: &Cluster, shard: usize, db: &str) -> Vec<String> {
    let client = cluster.shard(shard).unwrap().client().await.unwrap();
    let mut names = client.database(db).list_collection_names().await.unwrap();
    names.sort();
    names
}
