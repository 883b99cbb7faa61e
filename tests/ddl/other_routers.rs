//! What other routers see of a change of metadata, and who wins when two change it at once.

use bson::{Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

use crate::{assert_codes, batch, code, collections_on, conn};

#[tokio::test(flavor = "multi_thread")]
async fn another_router_follows_a_drop_and_a_new_collection_elsewhere() {
    let cluster = Cluster::builder().shards(3).routers(2).start().await.unwrap();
    cluster.spread("seen.c", "n", &[100, 200]).await.unwrap();
    let (mut first, mut second) = (conn(&cluster, 0).await, conn(&cluster, 1).await);
    let insert = |round: i32| {
        let documents: Vec<Document> = (0..300).map(|n| doc! { "n": n, "round": round }).collect();
        doc! { "insert": "c", "documents": documents }
    };
    second.command_ok("seen", insert(0)).await.unwrap();
    // The second router's table is warm; the first one changes everything under it.
    for round in 1..4 {
        first.command_ok("seen", doc! { "drop": "c" }).await.unwrap();
        match round {
            // Sharded on another key and on other shards; not sharded at all; on another primary shard.
            1 => {
                let shard = doc! { "shardCollection": "seen.c", "key": { "round": "hashed" } };
                first.command_ok("admin", shard).await.unwrap();
            }
            2 => {
                first.command_ok("seen", doc! { "create": "c" }).await.unwrap();
            }
            _ => {
                first.command_ok("seen", doc! { "dropDatabase": 1 }).await.unwrap();
                first
                    .command_ok("admin", doc! { "enableSharding": "seen", "primaryShard": "shard2" })
                    .await
                    .unwrap();
            }
        }
        let found = second.command_ok("seen", doc! { "find": "c" }).await.unwrap();
        assert!(batch(&found, "firstBatch").is_empty(), "round {round}: {found}");
        let reply = second.command_ok("seen", insert(round)).await.unwrap();
        assert_eq!(reply.get_i32("n").ok(), Some(300), "round {round}: {reply}");
        for conn in [&mut first, &mut second] {
            let counted = conn.command_ok("seen", doc! { "count": "c", "query": { "round": round } }).await;
            assert_eq!(counted.unwrap().get_i32("n").ok(), Some(300), "round {round}");
        }
    }
    assert_eq!(collections_on(&cluster, 2, "seen").await, ["c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_router_follows_a_moved_primary() {
    let cluster = Cluster::builder().routers(2).start().await.unwrap();
    cluster.admin(doc! { "enableSharding": "mp", "primaryShard": "shard0" }).await.unwrap();
    let (mut first, mut second) = (conn(&cluster, 0).await, conn(&cluster, 1).await);
    for n in 0..6 {
        let to = if n % 2 == 0 { "shard1" } else { "shard0" };
        second.command_ok("mp", doc! { "insert": "c", "documents": [{ "_id": n }] }).await.unwrap();
        first.command_ok("admin", doc! { "movePrimary": "mp", "to": to }).await.unwrap();
        let found = second.command_ok("mp", doc! { "find": "c", "sort": { "_id": 1 } }).await.unwrap();
        assert_eq!(batch(&found, "firstBatch").len(), usize::try_from(n).unwrap() + 1, "{found}");
        let primary = cluster.config_find("databases", doc! { "_id": "mp" }, doc! {}).await.unwrap();
        assert_eq!(primary[0].get_str("primary").unwrap(), to);
    }
    let cases = [
        ("admin", doc! { "movePrimary": "mp", "to": "nosuch" }, 70),
        ("admin", doc! { "movePrimary": "mp" }, 40414),
        ("admin", doc! { "movePrimary": "nothere", "to": "shard0" }, 26),
        ("admin", doc! { "movePrimary": "config", "to": "shard0" }, 72),
        ("mp", doc! { "movePrimary": "mp", "to": "shard0" }, 13),
    ];
    assert_codes(&mut first, &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_ddl_through_two_routers_leaves_one_whole_collection() {
    let cluster = Cluster::builder().routers(2).start().await.unwrap();
    cluster.admin(doc! { "enableSharding": "race", "primaryShard": "shard0" }).await.unwrap();
    for round in 0..3 {
        let tasks = (0..6).map(|n| {
            let router = cluster.router(n % 2).unwrap();
            async move {
                let mut conn = router.raw().await.unwrap();
                let command = match n {
                    0 | 1 => doc! { "shardCollection": "race.c", "key": { "a": 1 } },
                    2 | 3 => doc! { "shardCollection": "race.c", "key": { "b": "hashed" } },
                    _ => doc! { "drop": "c" },
                };
                let db = if command.contains_key("drop") { "race" } else { "admin" };
                conn.command(db, command).await.unwrap()
            }
        });
        let replies = futures_util::future::join_all(tasks).await;
        for reply in &replies {
            // AlreadyInitialized for the other key, ConflictingOperationInProgress or LockBusy in between.
            assert!([0, 23, 117, 46].contains(&code(reply)), "{reply}");
        }
        let known = cluster.config_find("collections", doc! { "_id": "race.c" }, doc! {}).await.unwrap();
        let client = cluster.client().await.unwrap();
        let coll = client.database("race").collection::<Document>("c");
        coll.insert_many((0..50).map(|n| doc! { "a": n, "b": n })).await.unwrap();
        assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 50, "round {round}, {known:?}");
        coll.drop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_create_or_rename_at_once_one_wins() {
    let cluster = Cluster::builder().routers(2).start().await.unwrap();
    cluster.admin(doc! { "enableSharding": "race", "primaryShard": "shard0" }).await.unwrap();
    let at_once = |db: &'static str, commands: [Document; 2]| {
        let cluster = &cluster;
        let each = commands.into_iter().enumerate().map(move |(router, command)| async move {
            let mut conn = cluster.router(router).unwrap().raw().await.unwrap();
            conn.command(db, command).await.unwrap()
        });
        futures_util::future::join_all(each)
    };
    let mut conn = conn(&cluster, 0).await;
    for round in 0..3 {
        let name = |what: &str| format!("{what}{round}");
        // The options of one of them, and the other hears of it.
        let created = at_once(
            "race",
            [
                doc! { "create": name("made"), "capped": true, "size": 4096 },
                doc! { "create": name("made"), "validator": { "a": 1 } },
            ],
        )
        .await;
        let mut codes: Vec<i32> = created.iter().map(code).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 48], "{created:?}");

        // One target or the other, never both, never none.
        conn.command_ok("race", doc! { "insert": name("made"), "documents": [{ "_id": 1, "a": 1 }] })
            .await
            .unwrap();
        let renamed = at_once(
            "admin",
            [
                doc! { "renameCollection": format!("race.made{round}"), "to": format!("race.left{round}") },
                doc! { "renameCollection": format!("race.made{round}"), "to": format!("race.right{round}") },
            ],
        )
        .await;
        let ok = renamed.iter().filter(|reply| code(reply) == 0).count();
        assert_eq!(ok, 1, "{renamed:?}");
        // NamespaceNotFound afterwards, ConflictingOperationInProgress or LockBusy meanwhile.
        assert!(renamed.iter().all(|reply| [0, 26, 117, 46].contains(&code(reply))), "{renamed:?}");
        let mut total = 0;
        for side in ["left", "right", "made"] {
            let reply = conn.command_ok("race", doc! { "count": name(side) }).await.unwrap();
            total += reply.get_i32("n").unwrap();
        }
        assert_eq!(total, 1, "round {round}");

        // A key for a collection that another administrator drops with its database.
        let names = format!("gone{round}");
        conn.command_ok("admin", doc! { "enableSharding": &names, "primaryShard": "shard1" }).await.unwrap();
        let shard = doc! { "shardCollection": format!("{names}.c"), "key": { "a": 1 } };
        let (first, second) = (cluster.router(0).unwrap(), cluster.router(1).unwrap());
        let (sharded, dropped) = futures_util::future::join(
            async { first.raw().await.unwrap().command("admin", shard).await.unwrap() },
            async { second.raw().await.unwrap().command(&names, doc! { "dropDatabase": 1 }).await.unwrap() },
        )
        .await;
        for reply in [&sharded, &dropped] {
            assert!([0, 26, 117, 46, 70, 249].contains(&code(reply)), "{reply}");
        }
        // Whatever came first, it is whole.
        let insert = doc! { "insert": "c", "documents": [{ "a": 1 }] };
        let reply = conn.command_ok(&names, insert).await.unwrap();
        assert!(!reply.contains_key("writeErrors"), "{reply}");
        assert_eq!(conn.command_ok(&names, doc! { "count": "c" }).await.unwrap().get_i32("n").ok(), Some(1));
        conn.command_ok(&names, doc! { "dropDatabase": 1 }).await.unwrap();
    }
}

/// One change of a collection's place, and the marker document that tells which it was.
async fn change_place(conn: &mut RawConn, round: i32) {
    match round % 4 {
        0 => {
            conn.command_ok("busy", doc! { "drop": "c" }).await.unwrap();
            let shard = doc! { "shardCollection": "busy.c", "key": { "round": "hashed" } };
            conn.command_ok("admin", shard).await.unwrap();
        }
        1 => {
            conn.command_ok("busy", doc! { "drop": "c" }).await.unwrap();
            conn.command_ok("busy", doc! { "create": "c" }).await.unwrap();
        }
        2 => {
            let to = if round % 8 == 2 { "shard1" } else { "shard0" };
            conn.command_ok("admin", doc! { "movePrimary": "busy", "to": to }).await.unwrap();
            conn.command_ok("busy", doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] })
                .await
                .unwrap();
        }
        _ => {
            conn.command_ok(
                "admin",
                doc! { "renameCollection": "busy.c", "to": "busy.old", "dropTarget": true },
            )
            .await
            .unwrap();
        }
    }
    conn.command_ok("busy", doc! { "insert": "c", "documents": [{ "round": round }] }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_on_another_router_see_each_change_of_place_once_it_is_done() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, Ordering};

    const ROUNDS: i32 = 16;

    let cluster = Cluster::builder().shards(3).routers(2).start().await.unwrap();
    cluster.admin(doc! { "enableSharding": "busy", "primaryShard": "shard0" }).await.unwrap();
    let mut first = conn(&cluster, 0).await;
    first.command_ok("busy", doc! { "create": "c" }).await.unwrap();
    // Odd while a change goes on; half of it is the number of the last change.
    let phase = Arc::new(AtomicI32::new(-1));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (phase, address) = (Arc::clone(&phase), cluster.router(1).unwrap().address().to_owned());
            tokio::spawn(async move {
                let mut conn = RawConn::connect(&address).await.unwrap();
                let mut quiet_reads = 0;
                loop {
                    let before = phase.load(Ordering::SeqCst);
                    if before >= 2 * ROUNDS {
                        return quiet_reads;
                    }
                    let reply = conn.command("busy", doc! { "find": "c" }).await.unwrap();
                    let after = phase.load(Ordering::SeqCst);
                    if before != after || before % 2 != 0 {
                        continue;
                    }
                    assert!(is_ok(&reply), "after change {}: {reply}", before / 2);
                    let rounds: Vec<i32> =
                        batch(&reply, "firstBatch").iter().map(|doc| doc.get_i32("round").unwrap()).collect();
                    assert_eq!(rounds, [before / 2], "after change {}", before / 2);
                    quiet_reads += 1;
                }
            })
        })
        .collect();
    for round in 0..ROUNDS {
        change_place(&mut first, round).await;
        phase.store(2 * round, Ordering::SeqCst);
        // Until every reader has had a look, without a clock.
        let mut second = conn(&cluster, 1).await;
        for _ in 0..20 {
            second.command_ok("busy", doc! { "count": "c" }).await.unwrap();
        }
        phase.store(2 * round + 1, Ordering::SeqCst);
    }
    phase.store(2 * ROUNDS, Ordering::SeqCst);
    let mut looked = 0;
    for reader in readers {
        looked += reader.await.unwrap();
    }
    assert!(looked >= ROUNDS, "{looked} reads between changes");
}
