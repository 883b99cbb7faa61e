//! A cluster behind the router: how it comes up, what it says of itself, how it goes away.

use std::time::Duration;

use bson::{Document, doc};
use testkit::{Cluster, eventually_within};

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_added_through_the_router_and_listed_by_it() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    let reply = cluster.admin(doc! { "listShards": 1 }).await.unwrap();
    let mut listed: Vec<(String, String)> = reply
        .get_array("shards")
        .unwrap()
        .iter()
        .map(|shard| {
            let shard = shard.as_document().unwrap();
            (shard.get_str("_id").unwrap().to_owned(), shard.get_str("host").unwrap().to_owned())
        })
        .collect();
    listed.sort();
    let real: Vec<(String, String)> =
        cluster.shards().iter().map(|shard| (shard.name().to_owned(), shard.connection_string())).collect();
    assert_eq!(listed, real);

    let client = cluster.client().await.unwrap();
    let sharded =
        client.database("config").collection::<Document>("shards").count_documents(doc! {}).await.unwrap();
    assert_eq!(sharded, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handshake_is_that_of_a_router_of_version_6_0() {
    let cluster = Cluster::builder().shards(1).start().await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    for hello in [
        conn.legacy_hello().await.unwrap(),
        conn.command_ok("admin", doc! { "hello": 1 }).await.unwrap(),
        conn.command_ok("admin", doc! { "isMaster": 1, "helloOk": true }).await.unwrap(),
    ] {
        assert_eq!(hello.get_str("msg").unwrap(), "isdbgrid");
        assert_eq!(hello.get_i32("maxWireVersion").unwrap(), 17);
        assert_eq!(hello.get_i32("maxBsonObjectSize").unwrap(), 16 * 1024 * 1024);
        assert_eq!(hello.get_i32("maxMessageSizeBytes").unwrap(), 48_000_000);
        assert_eq!(hello.get_i32("maxWriteBatchSize").unwrap(), 100_000);
        assert_eq!(hello.get_i32("logicalSessionTimeoutMinutes").unwrap(), 30);
        assert!(!hello.contains_key("setName") && !hello.contains_key("hosts"), "{hello}");
    }
    let build = conn.command_ok("admin", doc! { "buildInfo": 1 }).await.unwrap();
    assert!(build.get_str("version").unwrap().starts_with("6.0."), "{build}");
    let unknown = conn.command("admin", doc! { "noSuchCommand": 1 }).await.unwrap();
    assert_eq!(
        (unknown.get_i32("code").unwrap(), unknown.get_str("codeName").unwrap()),
        (59, "CommandNotFound")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_routers_on_one_cluster_see_each_others_collections() {
    let cluster = Cluster::builder().shards(2).routers(2).start().await.unwrap();
    cluster.spread("d.c", "n", &[100]).await.unwrap();
    let first = cluster.router(0).unwrap().client().await.unwrap();
    let second = cluster.router(1).unwrap().client().await.unwrap();
    let coll = |client: &mongodb::Client| client.database("d").collection::<Document>("c");
    coll(&first).insert_many((0..200).map(|n| doc! { "n": n })).await.unwrap();
    assert_eq!(coll(&second).count_documents(doc! {}).await.unwrap(), 200);

    // The second router holds the old table now: it must notice by itself.
    cluster.move_chunk("d.c", doc! { "n": 0 }, "shard1").await.unwrap();
    assert_eq!(coll(&second).count_documents(doc! { "n": { "$lt": 100 } }).await.unwrap(), 100);
    coll(&second).update_one(doc! { "n": 5 }, doc! { "$set": { "seen": true } }).await.unwrap();
    assert_eq!(
        coll(&first).find_one(doc! { "n": 5 }).await.unwrap().unwrap().get_bool("seen").ok(),
        Some(true)
    );
    coll(&first).drop().await.unwrap();
    assert_eq!(coll(&second).count_documents(doc! {}).await.unwrap(), 0);
    coll(&second).insert_one(doc! { "n": 1 }).await.unwrap();
    assert_eq!(coll(&first).count_documents(doc! {}).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_router_is_replaced_by_another_and_sigterm_ends_one_cleanly() {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("d.c", "n", &[100]).await.unwrap();
    let router = cluster.router(0).unwrap();
    let client = cluster.client().await.unwrap();
    let coll = client.database("d").collection::<Document>("c");
    coll.insert_many((0..200).map(|n| doc! { "n": n })).await.unwrap();
    router.restart().await.unwrap();
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 200);

    router.terminate().unwrap();
    eventually_within(Duration::from_secs(20), "the router has ended after SIGTERM", || async {
        !router.is_running()
    })
    .await
    .unwrap();
}
