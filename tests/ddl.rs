//! Databases, collections and indexes through the router: where they come to be, what is answered, what another router
//! sees of it.

use bson::{Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

async fn conn(cluster: &Cluster, router: usize) -> RawConn {
    cluster.router(router).unwrap().raw().await.unwrap()
}

/// The code of a reply: 0 when it is ok, -1 when it failed without one.
fn code(reply: &Document) -> i32 {
    if is_ok(reply) { 0 } else { reply.get_i32("code").unwrap_or(-1) }
}

/// Runs each command and compares the code of its reply.
async fn assert_codes(conn: &mut RawConn, cases: &[(&str, Document, i32)]) {
    for (db, command, expected) in cases {
        let reply = conn.command(db, command.clone()).await.unwrap();
        assert_eq!(code(&reply), *expected, "{command} on {db}: {reply}");
    }
}

fn batch(reply: &Document, name: &str) -> Vec<Document> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array(name)).unwrap();
    batch.iter().map(|item| item.as_document().unwrap().clone()).collect()
}

/// The names of collections that a shard has in a database.
async fn collections_on(cluster: &Cluster, shard: usize, db: &str) -> Vec<String> {
    let client = cluster.shard(shard).unwrap().client().await.unwrap();
    let mut names = client.database(db).list_collection_names().await.unwrap();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_and_views_are_created_once() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.admin(doc! { "enableSharding": "made", "primaryShard": "shard1" }).await.unwrap();
    let mut conn = conn(&cluster, 0).await;
    let twice = [
        doc! { "create": "plain" },
        doc! { "create": "capped", "capped": true, "size": 1_000 },
        doc! { "create": "view", "viewOn": "plain", "pipeline": [] },
        doc! { "create": "french", "collation": { "locale": "fr" } },
        doc! { "create": "clustered", "clusteredIndex": { "key": { "_id": 1 }, "unique": true } },
        doc! { "create": "series", "timeseries": { "timeField": "t", "metaField": "m" } },
        doc! { "create": "checked", "validator": { "x": { "$gt": 0 } } },
    ];
    for command in twice {
        for _ in 0..2 {
            let reply = conn.command("made", command.clone()).await.unwrap();
            assert!(is_ok(&reply), "{command}: {reply}");
        }
    }
    let cases = [
        ("made", doc! { "create": "plain", "capped": true, "size": 1_000 }, 48),
        ("made", doc! { "create": "french", "collation": { "locale": "en" } }, 48),
        ("made", doc! { "create": "checked", "validator": { "x": { "$gt": 1 } } }, 48),
        ("made", doc! { "create": "unsized", "capped": true }, 72),
        ("made", doc! { "create": "temporary", "temp": true }, 72),
        ("made", doc! { "create": "odd", "nosuch": 1 }, 40415),
        ("made", doc! { "create": "" }, 73),
        ("made", doc! { "create": 5 }, 2),
        ("local", doc! { "create": "x" }, 20),
    ];
    assert_codes(&mut conn, &cases).await;
    let on_primary = collections_on(&cluster, 1, "made").await;
    for name in ["capped", "checked", "clustered", "french", "plain", "series", "view"] {
        assert!(on_primary.iter().any(|known| known == name), "{name} in {on_primary:?}");
    }
    assert!(collections_on(&cluster, 0, "made").await.is_empty());
    // A database that nobody made comes with its first collection.
    conn.command_ok("fresh", doc! { "create": "first" }).await.unwrap();
    assert_eq!(cluster.config_find("databases", doc! { "_id": "fresh" }, doc! {}).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_page_through_the_router() {
    let cluster = Cluster::builder().start().await.unwrap();
    let mut conn = conn(&cluster, 0).await;
    for n in 0..7 {
        conn.command_ok("paged", doc! { "create": format!("c{n}") }).await.unwrap();
    }
    let reply = conn
        .command_ok("paged", doc! { "listCollections": 1, "nameOnly": true, "cursor": { "batchSize": 3 } })
        .await
        .unwrap();
    let mut names: Vec<String> =
        batch(&reply, "firstBatch").iter().map(|item| item.get_str("name").unwrap().to_owned()).collect();
    assert_eq!(names.len(), 3);
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_ne!(id, 0);
    let rest =
        conn.command_ok("paged", doc! { "getMore": id, "collection": "$cmd.listCollections" }).await.unwrap();
    names.extend(batch(&rest, "nextBatch").iter().map(|item| item.get_str("name").unwrap().to_owned()));
    names.sort();
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]);

    let empty = conn.command_ok("nothere", doc! { "listCollections": 1 }).await.unwrap();
    assert!(batch(&empty, "firstBatch").is_empty());

    let indexes: Vec<Document> =
        (0..5).map(|n| doc! { "key": { format!("f{n}"): 1 }, "name": format!("f{n}_1") }).collect();
    conn.command_ok("paged", doc! { "createIndexes": "c0", "indexes": indexes }).await.unwrap();
    let reply =
        conn.command_ok("paged", doc! { "listIndexes": "c0", "cursor": { "batchSize": 2 } }).await.unwrap();
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let rest = conn.command_ok("paged", doc! { "getMore": id, "collection": "c0" }).await.unwrap();
    assert_eq!(batch(&reply, "firstBatch").len() + batch(&rest, "nextBatch").len(), 6);

    let databases = conn.command_ok("admin", doc! { "listDatabases": 1 }).await.unwrap();
    let databases = databases.get_array("databases").unwrap();
    let names: Vec<&str> =
        databases.iter().map(|item| item.as_document().unwrap().get_str("name").unwrap()).collect();
    assert_eq!(names, ["admin", "config", "paged"]);
    for (db, command, expected) in [
        ("paged", doc! { "listDatabases": 1 }, 13),
        ("paged", doc! { "listIndexes": "nosuch" }, 26),
        ("nothere", doc! { "listIndexes": "nosuch" }, 26),
        ("admin", doc! { "listDatabases": 1, "nosuch": 1 }, 40415),
    ] {
        let reply = conn.command(db, command.clone()).await.unwrap();
        assert_eq!(code(&reply), expected, "{command}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn index_changes_reach_all_owning_shards_and_answer_for_each() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("ix.c", "n", &[100, 200]).await.unwrap();
    let mut conn = conn(&cluster, 0).await;
    let create = doc! { "createIndexes": "c", "indexes": [{ "key": { "b": 1 }, "name": "b_1" }] };
    let reply = conn.command_ok("ix", create).await.unwrap();
    let raw = reply.get_document("raw").unwrap();
    for shard in cluster.shards() {
        let own = raw.get_document(shard.connection_string()).unwrap();
        assert_eq!(
            (own.get_i32("numIndexesBefore").ok(), own.get_i32("numIndexesAfter").ok()),
            (Some(2), Some(3)),
            "{raw}"
        );
    }
    // Not prefixed by the shard key: no shard can keep it unique.
    let unique =
        doc! { "createIndexes": "c", "indexes": [{ "key": { "b": 1 }, "name": "u", "unique": true }] };
    let reply = conn.command("ix", unique).await.unwrap();
    assert_eq!(code(&reply), 67, "{reply}");
    assert_eq!(reply.get_str("codeName").unwrap(), "CannotCreateIndex");
    assert_eq!(reply.get_document("raw").unwrap().len(), 3);

    let reply = conn.command_ok("ix", doc! { "dropIndexes": "c", "index": "b_1" }).await.unwrap();
    assert_eq!(reply.get_document("raw").unwrap().len(), 3, "{reply}");
    let reply = conn.command_ok("ix", doc! { "collMod": "c", "validationLevel": "moderate" }).await.unwrap();
    assert_eq!(reply.get_document("raw").unwrap().len(), 3, "{reply}");
    let cases = [
        ("ix", doc! { "dropIndexes": "c", "index": "n_1" }, 370),
        ("ix", doc! { "dropIndexes": "c", "index": "nosuch" }, 27),
        ("ix", doc! { "dropIndexes": "nosuch", "index": "*" }, 26),
        ("nothere", doc! { "dropIndexes": "nosuch", "index": "*" }, 26),
        ("ix", doc! { "createIndexes": "c", "indexes": [] }, 2),
        ("ix", doc! { "collMod": "c", "nosuch": 1 }, 40415),
        ("ix", doc! { "collMod": "nosuch", "validationLevel": "off" }, 26),
        ("ix", doc! { "convertToCapped": "c", "size": 1_000 }, 20),
        ("ix", doc! { "splitVector": "ix.c", "keyPattern": { "n": 1 } }, 20),
        ("ix", doc! { "compact": "c" }, 115),
        ("ix", doc! { "reIndex": "c" }, 59),
    ];
    assert_codes(&mut conn, &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_summed_over_shards() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("st.c", "n", &[100, 200]).await.unwrap();
    let coll = cluster.client().await.unwrap().database("st").collection::<Document>("c");
    coll.insert_many((0..300).map(|n| doc! { "_id": n, "n": n, "pad": "x".repeat(100) })).await.unwrap();
    let mut conn = conn(&cluster, 0).await;

    let stats = conn.command_ok("st", doc! { "collStats": "c" }).await.unwrap();
    assert_eq!(stats.get_bool("sharded").ok(), Some(true));
    assert_eq!((stats.get_i64("count").ok(), stats.get_i32("nchunks").ok()), (Some(300), Some(3)), "{stats}");
    let shards = stats.get_document("shards").unwrap();
    let size: i64 =
        shards.iter().map(|(_, own)| i64::from(own.as_document().unwrap().get_i32("size").unwrap())).sum();
    assert_eq!((shards.len(), stats.get_i64("size").unwrap()), (3, size));
    let scaled = conn.command_ok("st", doc! { "collStats": "c", "scale": 1_000 }).await.unwrap();
    assert_eq!(scaled.get_i64("size").unwrap(), size / 1_000);
    assert_eq!(scaled.get_i64("count").unwrap(), 300);

    let stats = conn.command_ok("st", doc! { "dbStats": 1 }).await.unwrap();
    assert_eq!(stats.get_i64("objects").ok(), Some(300), "{stats}");
    assert_eq!(stats.get_document("raw").unwrap().len(), 3);
    let stats = conn.command_ok("st", doc! { "dataSize": "st.c" }).await.unwrap();
    assert_eq!(stats.get_f64("numObjects").ok(), Some(300.0), "{stats}");
    let valid = conn.command_ok("st", doc! { "validate": "c" }).await.unwrap();
    assert_eq!(valid.get_bool("valid").ok(), Some(true));
    assert!(valid.get_document("raw").unwrap().contains_key("shard2"));

    let set = doc! { "planCacheSetFilter": "c", "query": { "n": 1 }, "indexes": ["n_1"] };
    conn.command_ok("st", set).await.unwrap();
    let filters = conn.command_ok("st", doc! { "planCacheListFilters": "c" }).await.unwrap();
    assert_eq!(filters.get_array("filters").unwrap().len(), 1);
    for shard in ["shard0", "shard1", "shard2"] {
        assert_eq!(filters.get_document(shard).unwrap().get_array("filters").unwrap().len(), 1);
    }
    let cases = [
        ("st", doc! { "collStats": "c", "scale": 0 }, 51024),
        ("st", doc! { "collStats": "c", "scale": "x" }, 14),
        ("nothere", doc! { "collStats": "c" }, 26),
        ("st", doc! { "validate": "nosuch" }, 26),
        ("nothere", doc! { "dataSize": "nothere.c" }, 26),
        ("st", doc! { "dbStats": 1, "scale": "x" }, -1),
    ];
    assert_codes(&mut conn, &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drops_and_renames_are_answered_as_a_mongos_does() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.admin(doc! { "enableSharding": "dr", "primaryShard": "shard0" }).await.unwrap();
    cluster.admin(doc! { "enableSharding": "same", "primaryShard": "shard0" }).await.unwrap();
    cluster.admin(doc! { "enableSharding": "other", "primaryShard": "shard1" }).await.unwrap();
    let client = cluster.client().await.unwrap();
    for (db, coll) in [("dr", "a"), ("dr", "b"), ("same", "x"), ("other", "x")] {
        client.database(db).collection(coll).insert_one(doc! { "from": coll }).await.unwrap();
    }
    cluster.admin(doc! { "shardCollection": "dr.sharded", "key": { "k": "hashed" } }).await.unwrap();
    let sharded = client.database("dr").collection::<Document>("sharded");
    sharded.insert_many((0..100).map(|k| doc! { "k": k })).await.unwrap();
    let mut conn = conn(&cluster, 0).await;
    let cases = [
        ("admin", doc! { "renameCollection": "dr.a", "to": "dr.a" }, 20),
        ("admin", doc! { "renameCollection": "dr.a", "to": "dr.b" }, 48),
        ("admin", doc! { "renameCollection": "dr.a", "to": "dr.b", "dropTarget": true }, 0),
        ("admin", doc! { "renameCollection": "dr.a", "to": "dr.c" }, 26),
        ("admin", doc! { "renameCollection": "dr.b", "to": "nothere.b" }, 26),
        ("admin", doc! { "renameCollection": "dr.b" }, 40414),
        ("admin", doc! { "renameCollection": 5, "to": "dr.x" }, 14),
        ("dr", doc! { "renameCollection": "dr.b", "to": "dr.c" }, 13),
        ("admin", doc! { "renameCollection": "dr.b", "to": "same.moved" }, 0),
        ("admin", doc! { "renameCollection": "dr.sharded", "to": "dr.renamed" }, 0),
    ];
    assert_codes(&mut conn, &cases).await;
    let moved = client.database("same").collection::<Document>("moved").find_one(doc! {}).await.unwrap();
    assert_eq!(moved.unwrap().get_str("from").unwrap(), "a");
    let renamed = client.database("dr").collection::<Document>("renamed");
    assert_eq!(renamed.count_documents(doc! {}).await.unwrap(), 100);
    renamed.insert_one(doc! { "k": 1_000 }).await.unwrap();
    assert_eq!(renamed.count_documents(doc! { "k": 1_000 }).await.unwrap(), 1);

    let cases = [
        ("config", doc! { "drop": "chunks" }, 20),
        ("admin", doc! { "drop": "x" }, 20),
        ("dr", doc! { "drop": "nosuch" }, 0),
        ("nothere", doc! { "drop": "nosuch" }, 0),
        ("dr", doc! { "drop": "renamed" }, 0),
        ("dr", doc! { "drop": "c", "nosuch": 1 }, 40415),
        ("config", doc! { "dropDatabase": 1 }, 20),
        ("admin", doc! { "dropDatabase": 1 }, 20),
        ("dr", doc! { "dropDatabase": 2 }, 2),
        ("dr", doc! { "dropDatabase": 1 }, 0),
        ("dr", doc! { "dropDatabase": 1 }, 0),
        ("nothere", doc! { "dropDatabase": 1 }, 0),
    ];
    assert_codes(&mut conn, &cases).await;
    assert!(cluster.config_find("databases", doc! { "_id": "dr" }, doc! {}).await.unwrap().is_empty());
    for shard in 0..2 {
        assert!(collections_on(&cluster, shard, "dr").await.is_empty());
    }
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_digested_over_all_its_shards() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client().await.unwrap();
    // MD5 of 20 parts of 4 bytes: "0000", "0001", ...
    let parts: Vec<Vec<u8>> = (0..20).map(|n| format!("{n:04}").into_bytes()).collect();
    let chunks = |file: i32| -> Vec<Document> {
        parts
            .iter()
            .zip(0_i32..)
            .map(|(bytes, n)| {
                let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: bytes.clone() };
                doc! { "files_id": file, "n": n, "data": data }
            })
            .collect()
    };
    let index =
        doc! { "createIndexes": "fs.chunks", "indexes": [{ "key": { "files_id": 1, "n": 1 }, "name": "f" }] };
    let mut conn = conn(&cluster, 0).await;
    let mut digests = Vec::new();
    for (db, key) in [
        ("plain", None),
        ("byfile", Some(doc! { "files_id": 1 })),
        ("bypart", Some(doc! { "files_id": 1, "n": 1 })),
        ("hashed", Some(doc! { "files_id": "hashed" })),
    ] {
        let ns = format!("{db}.fs.chunks");
        conn.command_ok(db, index.clone()).await.unwrap();
        if let Some(key) = key {
            if key.values().any(|value| value.as_str() == Some("hashed")) {
                let hashed = doc! { "createIndexes": "fs.chunks", "indexes": [{ "key": { "files_id": "hashed" }, "name": "h" }] };
                conn.command_ok(db, hashed).await.unwrap();
            }
            cluster.admin(doc! { "shardCollection": &ns, "key": key }).await.unwrap();
        }
        if db == "bypart" {
            let middle = doc! { "files_id": 7, "n": 11 };
            cluster.split_at(&ns, middle.clone()).await.unwrap();
            let from = cluster.chunks(&ns).await.unwrap()[1].get_str("shard").unwrap().to_owned();
            let to = if from == "shard0" { "shard1" } else { "shard0" };
            cluster.move_chunk(&ns, middle, to).await.unwrap();
        }
        client.database(db).collection("fs.chunks").insert_many(chunks(7)).await.unwrap();
        let reply = conn.command_ok(db, doc! { "filemd5": 7, "root": "fs" }).await.unwrap();
        assert_eq!(reply.get_i32("numChunks").ok(), Some(20), "{db}: {reply}");
        digests.push(reply.get_str("md5").unwrap().to_owned());
    }
    assert!(digests.iter().all(|digest| *digest == digests[0] && digest.len() == 32), "{digests:?}");
    // Any other key spreads a file in no order that could be followed.
    cluster.admin(doc! { "shardCollection": "odd.fs.chunks", "key": { "n": 1 } }).await.unwrap();
    let reply = conn.command("odd", doc! { "filemd5": 7, "root": "fs" }).await.unwrap();
    assert_eq!(code(&reply), 20, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_metadata_survive_an_election_of_the_primary_shard() {
    let cluster = Cluster::builder().shards(1).members(3).start().await.unwrap();
    let mut conn = conn(&cluster, 0).await;
    let steps = [
        ("el", doc! { "dropDatabase": 1 }),
        ("admin", doc! { "shardCollection": "el.c", "key": { "a": 1 } }),
        ("el", doc! { "createIndexes": "c", "indexes": [{ "key": { "b": 1 }, "name": "b_1" }] }),
        ("el", doc! { "collMod": "c", "validationLevel": "moderate" }),
        ("el", doc! { "dropIndexes": "c", "index": "b_1" }),
        ("el", doc! { "drop": "c" }),
    ];
    conn.command_ok("el", doc! { "create": "before" }).await.unwrap();
    for (db, command) in steps {
        let election = cluster.shard(0).unwrap().step_down();
        // What may be sent twice is sent again by the router; what may not fails with a code that says so.
        let (stepped, reply) = tokio::join!(election, conn.command(db, command.clone()));
        stepped.unwrap();
        let reply = reply.unwrap();
        // A second dropIndexes finds nothing to drop.
        assert!([0, 6, 27].contains(&code(&reply)), "{command}: {reply}");
        // Who stepped down may be elected again at once: else a few steps leave no one to stand.
        for member in cluster.shard(0).unwrap().members() {
            member.command("admin", doc! { "replSetFreeze": 0 }).await.ok();
        }
        if !is_ok(&reply) {
            let again = conn.command(db, command.clone()).await.unwrap();
            assert!([0, 27].contains(&code(&again)), "{command} again: {again}");
        }
    }
    assert!(cluster.config_find("collections", doc! { "_id": "el.c" }, doc! {}).await.unwrap().is_empty());
    conn.command_ok("el", doc! { "insert": "c", "documents": [{ "a": 1 }] }).await.unwrap();
    let found = conn.command_ok("el", doc! { "find": "c" }).await.unwrap();
    assert_eq!(batch(&found, "firstBatch").len(), 1);
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
