//! Writes of sharded time series, compared with the server's own routing code and with a time series that is not sharded.

use bson::{Bson, DateTime, Document, doc};
use testkit::Cluster;
use testkit::raw::RawConn;

const DB: &str = "w";

/// Makes `<db>.ts`, sharded by its metaField: from 100 on another shard. Gives both shards.
async fn shard(cluster: &Cluster, db: &str) -> (String, String) {
    cluster.admin(doc! { "enableSharding": db, "primaryShard": "shard0" }).await.unwrap();
    let series = doc! { "timeField": "t", "metaField": "m", "granularity": "seconds" };
    let name = format!("{db}.ts");
    cluster.admin(doc! { "shardCollection": name, "key": { "m": 1 }, "timeseries": series }).await.unwrap();
    let buckets = format!("{db}.system.buckets.ts");
    let owner = cluster.chunks(&buckets).await.unwrap()[0].get_str("shard").unwrap().to_owned();
    let entry = cluster.config_find("collections", doc! { "_id": &buckets }, doc! {}).await.unwrap();
    let split = doc! {
        "splitChunk": &buckets, "from": &owner, "keyPattern": { "meta": 1 },
        "epoch": entry[0].get_object_id("lastmodEpoch").unwrap(),
        "timestamp": entry[0].get_timestamp("timestamp").unwrap(),
        "min": { "meta": Bson::MinKey }, "max": { "meta": Bson::MaxKey }, "splitKeys": [{ "meta": 100 }],
    };
    cluster.shard_named(&owner).unwrap().command("admin", split).await.unwrap();
    let other = if owner == "shard2" { "shard1" } else { "shard2" };
    let moved = doc! { "_configsvrMoveRange": &buckets, "toShard": other, "min": { "meta": 100 }, "writeConcern": { "w": "majority" } };
    cluster.config().command("admin", moved).await.unwrap();
    (owner, other.to_owned())
}

fn at(n: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + n * 1000)
}

/// Twenty measurements, five of them with m: 200, the others with m: 1.
fn measurements(collection: &str) -> Document {
    let documents: Vec<Document> =
        (0..20).map(|n| doc! { "t": at(n), "m": if n % 4 == 0 { 200 } else { 1 }, "v": n }).collect();
    doc! { "insert": collection, "documents": documents }
}

/// How many measurements there are of each m.
async fn counts(conn: &mut RawConn, db: &str, collection: &str) -> String {
    let pipeline = [doc! { "$group": { "_id": "$m", "n": { "$sum": 1 } } }, doc! { "$sort": { "_id": 1 } }];
    let command = doc! { "aggregate": collection, "pipeline": pipeline.to_vec(), "cursor": {} };
    let reply = conn.command_ok(db, command).await.unwrap();
    format!("{:?}", reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap())
}

fn errors(reply: &Document) -> Vec<(i32, i32)> {
    let errors = reply.get_array("writeErrors").map_or(&[][..], Vec::as_slice);
    let number = |error: &Bson, name: &str| error.as_document().unwrap().get_i32(name).unwrap();
    errors.iter().map(|error| (number(error, "index"), number(error, "code"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn measurements_go_to_the_shards_of_their_buckets() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let (owner, other) = shard(&cluster, DB).await;
    let reply = conn.command_ok(DB, measurements("ts")).await.unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), errors(&reply)), (20, vec![]), "{reply}");
    for (shard, wanted) in [(owner, 15), (other, 5)] {
        // Raw buckets: count what is in them.
        let pipeline = vec![
            doc! { "$project": { "n": { "$size": { "$objectToArray": "$data.v" } } } },
            doc! { "$group": { "_id": null, "n": { "$sum": "$n" } } },
        ];
        let command = doc! { "aggregate": "system.buckets.ts", "pipeline": pipeline, "cursor": {} };
        let reply = cluster.shard_named(&shard).unwrap().command(DB, command).await.unwrap();
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch[0].as_document().unwrap().get_i32("n").unwrap(), wanted, "on {shard}");
    }
    for time in [Bson::Null, Bson::from("now"), Bson::Int64(5)] {
        let reply = conn.command_ok(DB, doc! { "insert": "ts", "documents": [{ "m": 1, "t": time }] }).await;
        let reply = reply.unwrap();
        let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
        assert_eq!(error.get_i32("code").unwrap(), 5_743_702, "{error}");
        let text = error.get_str("errmsg").unwrap();
        assert_eq!(text, "'t' must be present and contain a valid BSON UTC datetime value");
    }
    // As of one that is not sharded.
    for command in [
        doc! { "findAndModify": "ts", "query": { "m": 1 }, "remove": true },
        doc! { "findAndModify": "ts", "query": { "m": 1 }, "update": { "$set": { "m": 1 } } },
    ] {
        let reply = conn.command(DB, command).await.unwrap();
        assert_eq!(reply.get_i32("code").unwrap(), 166, "{reply}");
        assert_eq!(reply.get_str("codeName").unwrap(), "CommandNotSupportedOnView", "{reply}");
        assert!(reply.get_str("errmsg").unwrap().contains("is a timeseries collection"), "{reply}");
    }
}

/// Updates and deletes of the collection, by the name that the command has for this router or for the oracle.
fn compared(collection: &str) -> Vec<Document> {
    let set = |m: i32| doc! { "$set": { "m": m } };
    let update = |updates: Vec<Document>| doc! { "update": collection, "updates": updates };
    let many = |q: Document, u: Document| update(vec![doc! { "q": q, "u": u, "multi": true }]);
    let delete =
        |q: Document, limit: i32| doc! { "delete": collection, "deletes": [{ "q": q, "limit": limit }] };
    let english = doc! { "locale": "en" };
    vec![
        // All shards are asked: those that know nothing of the collection learn of it.
        delete(doc! { "m.nowhere": 1 }, 0),
        many(doc! { "m": 1 }, set(1)),
        many(doc! { "m": 999 }, set(1)),
        many(doc! { "m.a": 1 }, doc! { "$set": { "m.a": 1 } }),
        many(doc! { "m": { "$gt": 50 } }, set(200)),
        update(vec![doc! { "q": { "m": 1 }, "u": set(5) }]),
        update(vec![doc! { "q": { "m": 1 }, "u": set(5), "multi": true, "upsert": true }]),
        update(vec![doc! { "q": { "m": 1 }, "u": set(5), "upsert": true }]),
        update(vec![doc! { "q": { "m": 1 }, "u": { "x": 1 } }]),
        many(doc! { "m": 1 }, doc! { "x": 1 }),
        update(vec![doc! { "q": { "m": 1 }, "u": [{ "$set": { "m": 2 } }], "multi": true }]),
        many(doc! { "v": 1 }, set(5)),
        many(doc! { "m": 1, "v": 1 }, set(5)),
        many(doc! { "t": at(1) }, set(5)),
        many(doc! { "m": 1 }, doc! { "$set": { "v": 2 } }),
        many(doc! { "$expr": { "$eq": ["$m", 1] } }, set(1)),
        // The metaField is the shard key.
        many(doc! {}, set(5)),
        many(doc! { "m": 1 }, set(150)),
        update(vec![doc! { "q": { "m": 1 }, "u": set(1), "multi": true, "hint": { "nosuch": 1 } }]),
        update(vec![
            doc! { "q": { "m": 1 }, "u": set(1), "multi": true },
            doc! { "q": { "m": 1 }, "u": set(1) },
            doc! { "q": { "m": 200 }, "u": set(200), "multi": true },
        ]),
        delete(doc! { "m": 1 }, 1),
        delete(doc! { "m": { "$gt": 5 } }, 1),
        delete(doc! { "v": 1 }, 1),
        delete(doc! { "v": 1 }, 0),
        delete(doc! { "m": 1, "v": 1 }, 0),
        delete(doc! { "t": at(1) }, 0),
        delete(doc! { "meta": 1 }, 0),
        delete(doc! { "$expr": { "$eq": ["$m", 1] } }, 0),
        doc! { "delete": collection, "deletes": [{ "q": { "m": 1 }, "limit": 0, "hint": { "nosuch": 1 } }] },
        doc! { "delete": collection, "deletes": [{ "q": { "m": "s" }, "limit": 0, "collation": english }] },
        delete(doc! { "$or": [{ "m": 200 }, { "m": 300 }] }, 0),
        doc! { "delete": collection, "deletes": [
            { "q": { "m": 1 }, "limit": 1 }, { "q": { "m": 200 }, "limit": 0 }, { "q": { "v": 1 }, "limit": 0 },
        ], "ordered": false },
        delete(doc! { "m": 1 }, 0),
        delete(doc! {}, 0),
    ]
}

/// A reply without times and the database's name.
fn normalized(mut reply: Document, db: &str) -> String {
    for name in ["$clusterTime", "operationTime", "$configTime", "$topologyTime", "lastCommittedOpTime"] {
        reply.remove(name);
    }
    reply.to_string().replace(&format!("{db}."), "DB.").replace(&format!("ns={db}"), "ns=DB")
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_and_deletes_are_those_of_the_servers_own_router() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let mut oracle = cluster.shard(1).unwrap().primary().await.unwrap().raw().await.unwrap();
    for db in [DB, "o"] {
        shard(&cluster, db).await;
        conn.command_ok(db, measurements("ts")).await.unwrap();
    }
    let series = doc! { "timeField": "t", "metaField": "m" };
    conn.command_ok(DB, doc! { "create": "us", "timeseries": series }).await.unwrap();
    conn.command_ok(DB, measurements("us")).await.unwrap();
    let mut wrong = Vec::new();
    for (command, unsharded) in compared("ts").into_iter().zip(compared("us")) {
        let (name, rest) = command
            .clone()
            .into_iter()
            .partition::<Document, _>(|(key, _)| key == "update" || key == "delete");
        let cluster_name = if name.contains_key("update") { "clusterUpdate" } else { "clusterDelete" };
        let mut asked = doc! { cluster_name: "ts" };
        asked.extend(rest);
        let theirs = oracle.command("o", asked).await.unwrap();
        let ours = conn.command(DB, command.clone()).await.unwrap();
        let is_done = errors(&ours).is_empty();
        let (ours, theirs) = (normalized(ours, DB), normalized(theirs, "o"));
        if ours != theirs {
            wrong.push(format!("{command}:\n  ours   {ours}\n  theirs {theirs}"));
        }
        let left = counts(&mut conn, DB, "ts").await;
        assert_eq!(left, counts(&mut conn, "o", "ts").await, "{command}");
        if is_done {
            conn.command_ok(DB, unsharded).await.unwrap();
            assert_eq!(left, counts(&mut conn, DB, "us").await, "{command}");
        }
        // What is gone comes back.
        for (db, collection) in [(DB, "ts"), ("o", "ts"), (DB, "us")] {
            if left != counts_of_all() {
                conn.command_ok(db, doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] })
                    .await
                    .unwrap();
                conn.command_ok(db, measurements(collection)).await.unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn counts_of_all() -> String {
    format!("{:?}", [Bson::from(doc! { "_id": 1, "n": 15 }), Bson::from(doc! { "_id": 200, "n": 5 })])
}
