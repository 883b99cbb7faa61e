//! The life of a cluster through the router: shards, zones, shard keys, chunks, resharding, the balancer.

use bson::{Bson, Document, doc};
use testkit::raw::{RawConn, is_ok};
use testkit::{Cluster, owners};

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

fn code(reply: &Document) -> i32 {
    if is_ok(reply) { 0 } else { reply.get_i32("code").unwrap_or(-1) }
}

/// Runs each command on `admin` and compares the code of its reply: -1 is an error without one.
async fn assert_codes(conn: &mut RawConn, cases: Vec<(Document, i32)>) {
    for (command, expected) in cases {
        let reply = conn.command("admin", command.clone()).await.unwrap();
        assert_eq!(code(&reply), expected, "{command}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_sharded_as_asked() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    let mut conn = conn(&cluster).await;
    let enable = doc! { "enableSharding": "s", "primaryShard": "shard1" };
    let cases = vec![
        (enable.clone(), 0),
        (enable, 0),
        (doc! { "enableSharding": "s", "primaryShard": "shard0" }, 48),
        (doc! { "enableSharding": "S" }, 13297),
        (doc! { "enableSharding": "a.b" }, 73),
        (doc! { "enableSharding": 1 }, 14),
        (doc! { "enableSharding": "t", "primaryShard": "nosuch" }, 70),
        (doc! { "enableSharding": "t", "primaryShard": 5 }, 14),
        (doc! { "shardCollection": "s.range", "key": { "a": 1 } }, 0),
        (doc! { "shardCollection": "s.range", "key": { "a": 1 } }, 0),
        (doc! { "shardCollection": "s.range", "key": { "b": 1 } }, 23),
        (doc! { "shardcollection": "s.hash", "key": { "a": "hashed" }, "numInitialChunks": 9 }, 0),
        (doc! { "shardCollection": "s.unique", "key": { "a": 1, "b": 1 }, "unique": true }, 0),
        (
            doc! { "shardCollection": "s.series", "key": { "m": 1 }, "timeseries": { "timeField": "t", "metaField": "m" } },
            0,
        ),
        (doc! { "shardCollection": "implicit.c", "key": { "a": 1 } }, 0),
        (doc! { "shardCollection": "s.x", "key": { "a": "hashed" }, "unique": true }, 72),
        (doc! { "shardCollection": "s.x", "key": { "a": 2 } }, 2),
        (doc! { "shardCollection": "s.x", "key": {} }, 2),
        (doc! { "shardCollection": "s.x", "key": { "a": 1 }, "collation": { "locale": "fr" } }, 2),
        (doc! { "shardCollection": "s.x", "key": { "a": 1 }, "numInitialChunks": 5 }, 72),
        (doc! { "shardCollection": "s.x", "key": { "a": 1 }, "nosuch": 1 }, 40415),
        (doc! { "shardCollection": "s.x" }, 40414),
        (doc! { "shardCollection": "s.x", "key": 5 }, 14),
        (doc! { "shardCollection": "nodot", "key": { "a": 1 } }, 73),
        (doc! { "shardCollection": "s.system.buckets.series", "key": { "m": 1 } }, 5_731_501),
        (doc! { "shardCollection": "config.own", "key": { "a": 1 } }, 20),
        (doc! { "shardCollection": "admin.own", "key": { "a": 1 } }, 20),
    ];
    assert_codes(&mut conn, cases).await;
    let hashed = owners(&cluster.chunks("s.hash").await.unwrap());
    assert_eq!(hashed.len(), 9);
    for shard in ["shard0", "shard1", "shard2"] {
        assert_eq!(hashed.iter().filter(|owner| *owner == shard).count(), 3, "{hashed:?}");
    }
    let known = cluster.config_find(
        "collections",
        doc! { "_id": /* as 6.0 keeps it */ "s.system.buckets.series" },
        doc! {},
    );
    assert_eq!(known.await.unwrap().len(), 1);
    let unique = cluster.config_find("collections", doc! { "_id": "s.unique" }, doc! {}).await.unwrap();
    assert_eq!(unique[0].get_bool("unique").ok(), Some(true));
    // Data without an index on the key: the shard says what is missing.
    let client = cluster.client().await.unwrap();
    client.database("s").collection("full").insert_one(doc! { "a": 1 }).await.unwrap();
    let reply = conn.command("admin", doc! { "shardCollection": "s.full", "key": { "a": 1 } }).await.unwrap();
    assert_eq!(code(&reply), 72, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_are_split_moved_and_merged() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.shard_collection("ch.c", doc! { "a": 1 }).await.unwrap();
    let coll = cluster.client().await.unwrap().database("ch").collection::<Document>("c");
    coll.insert_many((0..1_000).map(|a| doc! { "a": a })).await.unwrap();
    let mut conn = conn(&cluster).await;
    let (min, max) = (Bson::MinKey, Bson::MaxKey);
    let cases = vec![
        (doc! { "split": "ch.c", "middle": { "a": 100 } }, 0),
        (doc! { "split": "ch.c", "middle": { "a": 100 } }, -1),
        (doc! { "split": "ch.c", "middle": { "b": 100 } }, -1),
        (doc! { "split": "ch.c" }, -1),
        (doc! { "split": "ch.c", "find": { "a": 1 }, "middle": { "a": 50 } }, -1),
        (doc! { "split": "ch.c", "find": { "b": 1 } }, -1),
        (doc! { "split": "ch.c", "bounds": [{ "a": 100 }, { "a": 101 }] }, -1),
        // At the median of the documents.
        (doc! { "split": "ch.c", "find": { "a": 500 } }, 0),
        (doc! { "split": "ch.c", "bounds": [{ "a": min.clone() }, { "a": 100 }] }, 0),
        (doc! { "split": "ch.nosuch", "middle": { "a": 1 } }, 118),
        (doc! { "split": "nothere.c", "middle": { "a": 1 } }, 26),
        (doc! { "split": 5 }, 2),
    ];
    assert_codes(&mut conn, cases).await;
    let chunks = cluster.chunks("ch.c").await.unwrap();
    let bounds: Vec<i32> =
        chunks.iter().skip(1).map(|chunk| chunk.get_document("min").unwrap().get_i32("a").unwrap()).collect();
    assert_eq!(bounds.len(), 3, "{bounds:?}");
    assert!(bounds[0] > 0 && bounds[0] < 100 && bounds[1] == 100 && bounds[2] > 400, "{bounds:?}");

    let cases = vec![
        (doc! { "moveChunk": "ch.c", "find": { "a": 999 }, "to": "shard2", "_waitForDelete": true }, 0),
        (doc! { "moveChunk": "ch.c", "bounds": [{ "a": 100 }, { "a": bounds[2] }], "to": "shard1" }, 0),
        (
            doc! { "movechunk": "ch.c", "find": { "a": 999 }, "to": "shard2", "secondaryThrottle": true, "writeConcern": { "w": 1 } },
            0,
        ),
        (doc! { "moveChunk": "ch.c", "find": { "a": 999 }, "to": "nosuch" }, 70),
        (doc! { "moveChunk": "ch.c", "find": { "a": 999 } }, 14),
        (doc! { "moveChunk": "ch.c", "to": "shard1" }, -1),
        (doc! { "moveChunk": "ch.nosuch", "find": { "a": 1 }, "to": "shard1" }, 118),
        (doc! { "moveRange": "ch.c", "min": { "a": 10 }, "max": { "a": 20 }, "toShard": "shard1" }, 0),
        (doc! { "moveRange": "ch.c", "toShard": "shard1" }, 72),
        (doc! { "moveRange": "ch.c", "min": { "a": 10 } }, 40414),
        (doc! { "moveRange": "ch.c", "min": 5, "toShard": "shard1" }, 14),
        (doc! { "mergeChunks": "ch.c", "bounds": [{ "a": min }, { "a": max.clone() }] }, 20),
        (doc! { "mergeChunks": "ch.c" }, -1),
        (doc! { "clearJumboFlag": "ch.c", "find": { "a": 50 } }, 0),
        (doc! { "clearJumboFlag": "ch.c", "bounds": [{ "a": 1 }, { "a": 2 }] }, -1),
    ];
    assert_codes(&mut conn, cases).await;
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 1_000);
    let on = |a: i32, chunks: &[Document]| -> String {
        let above = |chunk: &&Document| {
            let min = chunk.get_document("min").unwrap().get("a").unwrap();
            min.as_i32().is_none_or(|min| min <= a)
        };
        chunks.iter().rfind(above).unwrap().get_str("shard").unwrap().to_owned()
    };
    let chunks = cluster.chunks("ch.c").await.unwrap();
    for (a, shard) in [(15, "shard1"), (25, "shard0"), (150, "shard1"), (999, "shard2")] {
        assert_eq!(on(a, &chunks), shard, "{a} in {chunks:?}");
    }

    // Cut what shard2 has to pieces and put it together again.
    let lowest = bounds[2];
    for a in [850, 900, 950] {
        cluster.split_at("ch.c", doc! { "a": a }).await.unwrap();
    }
    let before = cluster.chunks("ch.c").await.unwrap().len();
    let merge = doc! { "mergeChunks": "ch.c", "bounds": [{ "a": lowest }, { "a": max }] };
    conn.command_ok("admin", merge).await.unwrap();
    assert_eq!(cluster.chunks("ch.c").await.unwrap().len(), before - 3);
    assert_eq!(coll.count_documents(doc! { "a": { "$gte": 0 } }).await.unwrap(), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_tells_what_it_knows_of_the_cluster() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.shard_collection("known.c", doc! { "a": 1 }).await.unwrap();
    cluster.split_at("known.c", doc! { "a": 0 }).await.unwrap();
    let mut conn = conn(&cluster).await;

    let shards = conn.command_ok("admin", doc! { "listShards": 1 }).await.unwrap();
    let shards = shards.get_array("shards").unwrap();
    assert_eq!(shards.len(), 2);
    let map = conn.command_ok("admin", doc! { "getShardMap": 1 }).await.unwrap();
    for shard in cluster.shards() {
        let hosts = map.get_document("map").unwrap().get_str(shard.name()).unwrap();
        assert_eq!(hosts, shard.connection_string());
        let ids = map.get_document("connStrings").unwrap();
        assert_eq!(ids.get_str(shard.connection_string()).unwrap(), shard.name());
    }
    let version = conn.command_ok("admin", doc! { "getShardVersion": "known.c", "fullMetadata": true }).await;
    let version = version.unwrap();
    assert_eq!(version.get_array("chunks").unwrap().len(), 2, "{version}");
    let known = cluster.config_find("collections", doc! { "_id": "known.c" }, doc! {}).await.unwrap();
    assert_eq!(version.get_object_id("versionEpoch").ok(), known[0].get_object_id("lastmodEpoch").ok());
    let database = conn.command_ok("admin", doc! { "getShardVersion": "known" }).await.unwrap();
    assert_eq!(database.get_str("primaryShard").ok(), Some("shard0"));
    let netstat = conn.command_ok("admin", doc! { "netstat": 1 }).await.unwrap();
    assert_eq!(netstat.get_str("configserver").unwrap(), cluster.config().connection_string());
    let cases = vec![
        (doc! { "getShardVersion": "known.nosuch" }, 118),
        (doc! { "getShardVersion": "nothere.c" }, 26),
        (doc! { "getShardVersion": 5 }, 2),
        (doc! { "flushRouterConfig": 1 }, 0),
        (doc! { "flushRouterConfig": "known" }, 0),
        (doc! { "flushrouterconfig": "known.c" }, 0),
        (doc! { "flushRouterConfig": "a b.c" }, 73),
        (doc! { "flushRouterConfig": {} }, 14),
        (doc! { "fsync": 1 }, 0),
        (doc! { "fsync": 1, "lock": true }, -1),
        (doc! { "fsyncUnlock": 1 }, 59),
        (doc! { "cleanupOrphaned": "known.c" }, 59),
    ];
    assert_codes(&mut conn, cases).await;
    let reply = conn.command("known", doc! { "listShards": 1 }).await.unwrap();
    assert_eq!(code(&reply), 13, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_refined_and_changed() {
    let cluster = Cluster::builder()
        .config_parameter("reshardingMinimumOperationDurationMillis", "0")
        .routers(2)
        .start()
        .await
        .unwrap();
    cluster.spread("re.c", "a", &[500]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let coll = client.database("re").collection::<Document>("c");
    coll.insert_many((0..1_000).map(|a| doc! { "a": a, "b": a % 10, "c": 1_000 - a })).await.unwrap();
    let mut conn = conn(&cluster).await;
    // The other router's table is warm.
    let mut other = cluster.router(1).unwrap().raw().await.unwrap();
    let count = doc! { "count": "c", "query": { "b": 3 } };
    assert_eq!(other.command_ok("re", count.clone()).await.unwrap().get_i32("n").ok(), Some(100));

    let refine = doc! { "refineCollectionShardKey": "re.c", "key": { "a": 1, "b": 1 } };
    let reply = conn.command("admin", refine.clone()).await.unwrap();
    assert_eq!(code(&reply), 72, "an index of the new key is missing: {reply}");
    let index = doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1, "b": 1 }, "name": "ab" }] };
    conn.command_ok("re", index).await.unwrap();
    conn.command_ok("admin", refine).await.unwrap();
    cluster.split_at("re.c", doc! { "a": 700, "b": 5 }).await.unwrap();
    assert_eq!(other.command_ok("re", count.clone()).await.unwrap().get_i32("n").ok(), Some(100));

    let cases = vec![
        (doc! { "reshardCollection": "re.c", "key": { "a": 1, "b": 1 } }, 0),
        (doc! { "reshardCollection": "re.nosuch", "key": { "a": 1 } }, 118),
        (doc! { "reshardCollection": "re.c", "key": { "c": 1 }, "unique": true }, 2),
        (doc! { "reshardCollection": "re.c", "key": { "c": 1 }, "collation": { "locale": "fr" } }, 2),
        (doc! { "reshardCollection": "re.c" }, 40414),
        (doc! { "abortReshardCollection": "re.c" }, 339),
        (doc! { "commitReshardCollection": "re.c" }, 339),
        (doc! { "abortReshardCollection": 5 }, 14),
        (doc! { "refineCollectionShardKey": "re.c", "key": { "x": 1 } }, 72),
        (doc! { "refineCollectionShardKey": "re.nosuch", "key": { "x": 1 } }, 118),
    ];
    assert_codes(&mut conn, cases).await;

    conn.command_ok("admin", doc! { "reshardCollection": "re.c", "key": { "c": "hashed" } }).await.unwrap();
    let known = cluster.config_find("collections", doc! { "_id": "re.c" }, doc! {}).await.unwrap();
    assert_eq!(known[0].get_document("key").unwrap(), &doc! { "c": "hashed" });
    for conn in [&mut conn, &mut other] {
        assert_eq!(conn.command_ok("re", count.clone()).await.unwrap().get_i32("n").ok(), Some(100));
        let one = conn.command_ok("re", doc! { "count": "c", "query": { "c": 77 } }).await.unwrap();
        assert_eq!(one.get_i32("n").ok(), Some(1));
    }
    coll.insert_one(doc! { "c": 5_000 }).await.unwrap();
    let allow = doc! { "setAllowMigrations": "re.c", "allowMigrations": false };
    conn.command_ok("admin", allow).await.unwrap();
    let reply =
        conn.command("admin", doc! { "moveChunk": "re.c", "find": { "c": 77 }, "to": "shard1" }).await;
    let moved =
        conn.command("admin", doc! { "moveChunk": "re.c", "find": { "c": 77 }, "to": "shard0" }).await;
    let refused = [reply.unwrap(), moved.unwrap()].iter().any(|reply| [96, 117].contains(&code(reply)));
    assert!(refused, "one of the two is a migration, and none is allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_the_balancer_and_a_shard_that_goes() {
    let cluster =
        Cluster::builder().shards(3).shard_parameter("orphanCleanupDelaySecs", "0").start().await.unwrap();
    cluster.shard_collection("z.c", doc! { "a": 1 }).await.unwrap();
    let mut conn = conn(&cluster).await;
    let range = |zone: Bson| {
        doc! { "updateZoneKeyRange": "z.c", "min": { "a": 0 }, "max": { "a": 100 }, "zone": zone }
    };
    let cases = vec![
        (doc! { "addShardToZone": "shard2", "zone": "far" }, 0),
        (doc! { "addShardToZone": "nosuch", "zone": "far" }, 70),
        (doc! { "addShardToZone": "shard2" }, 40414),
        (doc! { "addShardToZone": 5, "zone": "far" }, 14),
        (range("far".into()), 0),
        (range("nosuch".into()), 177),
        (doc! { "updateZoneKeyRange": "z.c", "min": { "a": 50 }, "max": { "a": 150 }, "zone": "far" }, 178),
        (doc! { "removeShardFromZone": "shard2", "zone": "far" }, 163),
        (doc! { "balancerCollectionStatus": "z.c" }, 0),
        (doc! { "balancerCollectionStatus": "z.nosuch" }, 118),
        (doc! { "configureCollectionBalancing": "z.c", "chunkSize": 4 }, 0),
        (doc! { "configureCollectionBalancing": "z.c", "chunkSize": "x" }, 14),
        (doc! { "configureCollectionBalancing": "z.c", "nosuch": 1 }, 40415),
        (doc! { "balancerStatus": 1 }, 0),
        (doc! { "balancerStart": 1, "writeConcern": { "w": "majority" } }, 0),
    ];
    assert_codes(&mut conn, cases).await;
    let status = conn.command_ok("admin", doc! { "balancerStatus": 1 }).await.unwrap();
    assert_eq!(status.get_str("mode").ok(), Some("full"));
    // The balancer cuts the zone's range out and moves it to the zone's shard.
    testkit::eventually_within(std::time::Duration::from_secs(60), "the zone is on shard2", || async {
        let chunks = cluster.chunks("z.c").await.unwrap_or_default();
        chunks.iter().any(|chunk| {
            chunk.get_document("min").is_ok_and(|min| min.get_i32("a").ok() == Some(0))
                && chunk.get_str("shard").ok() == Some("shard2")
        })
    })
    .await
    .unwrap();
    conn.command_ok("admin", range(Bson::Null)).await.unwrap();
    conn.command_ok("admin", doc! { "removeShardFromZone": "shard2", "zone": "far" }).await.unwrap();

    // The shard is drained and goes.
    let reply = conn.command_ok("admin", doc! { "removeShard": "shard2" }).await.unwrap();
    assert_eq!(reply.get_str("state").ok(), Some("started"), "{reply}");
    testkit::eventually_within(std::time::Duration::from_secs(60), "shard2 is drained", || async {
        let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
        let reply = conn.command("admin", doc! { "removeShard": "shard2" }).await.unwrap_or_default();
        reply.get_str("state").ok() == Some("completed")
    })
    .await
    .unwrap();
    let shards = conn.command_ok("admin", doc! { "listShards": 1 }).await.unwrap();
    assert_eq!(shards.get_array("shards").unwrap().len(), 2);
    let coll = cluster.client().await.unwrap().database("z").collection::<Document>("c");
    coll.insert_many((0..200).map(|a| doc! { "a": a })).await.unwrap();
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 200);
    let cases = vec![
        (doc! { "removeShard": "shard2" }, 70),
        (doc! { "removeShard": 5 }, 14),
        (doc! { "addShard": 5 }, 14),
        (doc! { "balancerStop": 1, "maxTimeMS": 20_000 }, 0),
    ];
    assert_codes(&mut conn, cases).await;
    // And comes back under another name.
    let hosts = cluster.shard(2).unwrap().connection_string();
    for db in ["z", "config"] {
        let client = cluster.shard(2).unwrap().client().await.unwrap();
        if db == "z" {
            client.database(db).drop().await.unwrap();
        }
    }
    let reply = conn.command_ok("admin", doc! { "addShard": hosts, "name": "again" }).await.unwrap();
    assert_eq!(reply.get_str("shardAdded").ok(), Some("again"));
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_wide_settings_and_users_are_kept_by_the_config_servers() {
    let cluster = Cluster::builder().start().await.unwrap();
    let mut conn = conn(&cluster).await;
    let cases = vec![
        (doc! { "setDefaultRWConcern": 1 }, 2),
        (doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": 1 } }, 0),
        (doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": 5 }, 14),
        (doc! { "getDefaultRWConcern": 1, "inMemory": true }, 0),
        (doc! { "setFeatureCompatibilityVersion": "6.0" }, 0),
        (doc! { "setFeatureCompatibilityVersion": "99.0" }, 4_926_900),
        (doc! { "getClusterParameter": "changeStreamOptions" }, 0),
        (doc! { "getClusterParameter": "nosuch" }, 4),
        (
            doc! { "setClusterParameter": { "changeStreamOptions": { "preAndPostImages": { "expireAfterSeconds": 500_i64 } } } },
            0,
        ),
        (doc! { "setClusterParameter": 5 }, 14),
        (doc! { "setUserWriteBlockMode": 1 }, 40414),
        (doc! { "setUserWriteBlockMode": 1, "global": true }, 0),
    ];
    assert_codes(&mut conn, cases).await;
    let defaults = conn.command_ok("admin", doc! { "getDefaultRWConcern": 1 }).await.unwrap();
    assert_eq!(defaults.get_document("defaultWriteConcern").unwrap().get_i32("w").ok(), Some(1));
    let blocked = conn.command("blocked", doc! { "insert": "c", "documents": [{ "a": 1 }] }).await.unwrap();
    assert!(!is_ok(&blocked) || blocked.contains_key("writeErrors"), "{blocked}");
    conn.command_ok("admin", doc! { "setUserWriteBlockMode": 1, "global": false }).await.unwrap();
    conn.command_ok("blocked", doc! { "insert": "c", "documents": [{ "a": 1 }] }).await.unwrap();

    let create = doc! { "createUser": "u", "pwd": "p", "roles": [{ "role": "read", "db": "blocked" }] };
    conn.command_ok("users", create).await.unwrap();
    let found = conn.command_ok("users", doc! { "usersInfo": "u" }).await.unwrap();
    assert_eq!(found.get_array("users").unwrap().len(), 1);
    let kept = cluster.config().command("admin", doc! { "usersInfo": { "user": "u", "db": "users" } }).await;
    assert_eq!(kept.unwrap().get_array("users").unwrap().len(), 1);
    conn.command_ok("users", doc! { "createRole": "r", "privileges": [], "roles": [] }).await.unwrap();
    conn.command_ok("users", doc! { "grantRolesToUser": "u", "roles": ["r"] }).await.unwrap();
    let found = conn.command_ok("users", doc! { "rolesInfo": "r" }).await.unwrap();
    assert_eq!(found.get_array("roles").unwrap().len(), 1);
    conn.command_ok("users", doc! { "dropRole": "r" }).await.unwrap();
    conn.command_ok("users", doc! { "dropUser": "u" }).await.unwrap();
    let reply = conn.command("users", doc! { "dropUser": "u" }).await.unwrap();
    assert_eq!(code(&reply), 11, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_made_ahead_of_time() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.shard_collection("pre.log", doc! { "node": 1, "time": 1 }).await.unwrap();
    let mut conn = conn(&cluster).await;
    let date = |text: &str| bson::DateTime::parse_rfc3339_str(text).unwrap();
    let command = |dry: bool| {
        doc! {
            "pointsmanPresplit": "pre.log", "dryRun": dry,
            "prefixes": [{ "node": "a" }, { "node": "b" }],
            "months": { "field": "time", "from": date("2026-01-10T00:00:00Z"), "to": date("2026-04-01T00:00:00Z") },
        }
    };
    let told = conn.command_ok("admin", command(true)).await.unwrap();
    assert_eq!((told.get_i32("splits").unwrap(), told.get_i32("moves").unwrap()), (6, 4), "{told}");
    assert_eq!(cluster.chunks("pre.log").await.unwrap().len(), 1);

    let done = conn.command_ok("admin", command(false)).await.unwrap();
    assert_eq!(done.get_array("ranges").unwrap(), told.get_array("ranges").unwrap());
    assert_eq!((done.get_i32("splits").unwrap(), done.get_i32("moves").unwrap()), (6, 4), "{done}");
    let chunks = cluster.chunks("pre.log").await.unwrap();
    let expected = ["shard0", "shard0", "shard1", "shard2", "shard0", "shard1", "shard2"];
    assert_eq!(owners(&chunks), expected);
    let february = chunks[2].get_document("min").unwrap();
    assert_eq!(february, &doc! { "node": "a", "time": date("2026-02-01T00:00:00Z") });
    let again = conn.command_ok("admin", command(false)).await.unwrap();
    assert_eq!((again.get_i32("splits").unwrap(), again.get_i32("moves").unwrap()), (0, 0), "{again}");

    cluster.admin(doc! { "addShardToZone": "shard2", "zone": "cold" }).await.unwrap();
    let points = |zone: &str| {
        doc! { "pointsmanPresplit": "pre.log", "points": [{ "node": "old" }, { "node": "older" }], "zone": zone }
    };
    let told = conn.command_ok("admin", points("cold")).await.unwrap();
    for range in told.get_array("ranges").unwrap() {
        assert_eq!(range.as_document().unwrap().get_str("shard").unwrap(), "shard2", "{told}");
    }
    let cases = vec![
        (points("nosuch"), 70),
        (doc! { "pointsmanPresplit": "pre.log" }, 2),
        (doc! { "pointsmanPresplit": "pre.log", "points": [{ "x": 1 }] }, 2),
        (doc! { "pointsmanPresplit": "pre.log", "points": [{ "node": "x" }], "shards": ["nosuch"] }, 70),
        (doc! { "pointsmanPresplit": "pre.log", "points": 5 }, 14),
        (doc! { "pointsmanPresplit": "pre.nosuch", "points": [{ "node": "x" }] }, 118),
        (doc! { "pointsmanPresplit": "pre.log", "points": [{ "node": "z" }], "shards": ["shard1"] }, 0),
    ];
    assert_codes(&mut conn, cases).await;
    assert_eq!(owners(&cluster.chunks("pre.log").await.unwrap()).last().unwrap(), "shard1");
}
