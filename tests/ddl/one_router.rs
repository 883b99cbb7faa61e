//! Where databases, collections and indexes come to be, and what is answered.

use bson::{Document, doc};
use testkit::Cluster;
use testkit::raw::is_ok;

use crate::{assert_codes, batch, code, collections_on, conn};

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
