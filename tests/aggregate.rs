//! Pipelines over several shards answer as one server would: each is run on a plain collection and on sharded ones.

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::{Client, Database};
use testkit::Cluster;

const DB: &str = "agg";
/// One collection in one place, and the same documents by range, by hash and by a compound key.
const SHARDED: [&str; 3] = ["range", "hashed", "compound"];

async fn start() -> (Cluster, Client) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("agg.range", "x", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let admin = client.database("admin");
    for (name, key) in [("hashed", doc! { "_id": "hashed" }), ("compound", doc! { "g": 1, "x": 1 })] {
        admin.run_command(doc! { "shardCollection": format!("{DB}.{name}"), "key": key }).await.unwrap();
    }
    for (g, shard) in [(2, "shard1"), (5, "shard2")] {
        admin.run_command(doc! { "split": "agg.compound", "middle": { "g": g, "x": 50 } }).await.unwrap();
        admin
            .run_command(doc! { "moveChunk": "agg.compound", "find": { "g": g, "x": 60 }, "to": shard })
            .await
            .unwrap();
    }
    let documents: Vec<Document> = (0..240)
        .map(|n: i32| {
            doc! {
                "_id": n, "x": (n * 10) % 300 + n / 30, "g": n % 8, "s": format!("t{}", n % 5), "arr": [n % 3, n % 5],
                "parent": if n == 0 { Bson::Null } else { Bson::Int32(n / 2) },
                "loc": { "type": "Point", "coordinates": [f64::from(n) / 2.0, f64::from(n % 60)] },
                "v": if n % 3 == 0 { Bson::Int32(n) } else { Bson::Double(f64::from(n) * 0.5) },
            }
        })
        .collect();
    let db = client.database(DB);
    for name in SHARDED.iter().chain(&["plain"]) {
        db.collection::<Document>(name).insert_many(&documents).await.unwrap();
        let index =
            doc! { "createIndexes": *name, "indexes": [{ "key": { "loc": "2dsphere" }, "name": "loc" }] };
        db.run_command(index).await.unwrap();
    }
    (cluster, client)
}

async fn run(db: &Database, name: &str, pipeline: &[Document]) -> Vec<Document> {
    let cursor = db.collection::<Document>(name).aggregate(pipeline.to_vec()).batch_size(7).await;
    let cursor = cursor.unwrap_or_else(|error| panic!("{name}: {pipeline:?}: {error}"));
    cursor.try_collect().await.unwrap_or_else(|error| panic!("{name}: {pipeline:?}: {error}"))
}

fn sorted(mut documents: Vec<Document>) -> Vec<Document> {
    documents.sort_by_key(|document| bson::serialize_to_vec(document).unwrap());
    documents
}

/// Numbers whose last digits depend on the order of additions are cut to nine digits.
fn rounded(value: Bson) -> Bson {
    match value {
        Bson::Double(n) => Bson::Double(format!("{n:.9e}").parse().unwrap()),
        Bson::Document(document) => {
            Bson::Document(document.into_iter().map(|(name, value)| (name, rounded(value))).collect())
        }
        Bson::Array(items) => Bson::Array(items.into_iter().map(rounded).collect()),
        other => other,
    }
}

async fn compare(db: &Database, pipeline: &[Document]) {
    let expected = sorted(run(db, "plain", pipeline).await).into_iter().map(|doc| rounded(doc.into()));
    let expected: Vec<Bson> = expected.collect();
    for name in SHARDED {
        let found: Vec<Bson> =
            sorted(run(db, name, pipeline).await).into_iter().map(|doc| rounded(doc.into())).collect();
        assert_eq!(found, expected, "{name}: {pipeline:?}");
    }
}

async fn compare_in_order(db: &Database, pipeline: &[Document]) {
    let expected = run(db, "plain", pipeline).await;
    for name in SHARDED {
        assert_eq!(run(db, name, pipeline).await, expected, "{name}: {pipeline:?}");
    }
}

fn lookup(from: &str) -> Document {
    doc! { "$lookup": { "from": from, "localField": "parent", "foreignField": "_id", "as": "up" } }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stage_answers_as_on_one_server() {
    let (_cluster, client) = start().await;
    let db = client.database(DB);
    let in_order: Vec<Vec<Document>> = vec![
        vec![doc! { "$sort": { "s": 1, "_id": -1 } }],
        vec![
            doc! { "$sort": { "s": 1, "_id": 1 } },
            doc! { "$skip": 3 },
            doc! { "$limit": 50 },
            doc! { "$project": { "x": 1 } },
        ],
        vec![
            doc! { "$sort": { "s": 1, "_id": 1 } },
            doc! { "$set": { "s": "z" } },
            doc! { "$match": { "g": 3 } },
        ],
        vec![
            doc! { "$sort": { "x": -1 } },
            doc! { "$limit": 10 },
            doc! { "$skip": 4 },
            doc! { "$match": { "g": { "$gt": 1 } } },
        ],
        vec![doc! { "$sort": { "x": -1 } }, doc! { "$limit": 10 }, doc! { "$sort": { "_id": 1 } }],
        vec![doc! { "$sort": { "_id": -1 } }, doc! { "$unwind": "$arr" }, doc! { "$limit": 7 }],
        vec![doc! { "$sort": { "x": 1 } }, lookup("plain"), doc! { "$limit": 30 }],
        vec![doc! { "$sort": { "_id": 1 } }, doc! { "$limit": 3 }, doc! { "$skip": 3 }],
        vec![
            doc! { "$group": { "_id": "$g", "all": { "$push": "$_id" } } },
            doc! { "$unwind": "$all" },
            doc! { "$sort": { "_id": 1, "all": 1 } },
        ],
        vec![
            doc! { "$unionWith": { "coll": "hashed", "pipeline": [{ "$match": { "g": 1 } }] } },
            doc! { "$sort": { "_id": 1, "x": 1 } },
        ],
    ];
    for pipeline in &in_order {
        compare_in_order(&db, pipeline).await;
    }
    let any_order: Vec<Vec<Document>> = vec![
        vec![],
        vec![doc! { "$match": { "x": { "$gte": 50, "$lt": 250 } } }, doc! { "$match": { "g": 3 } }],
        vec![doc! { "$group": {
            "_id": "$g", "sum": { "$sum": "$v" }, "avg": { "$avg": "$v" }, "min": { "$min": "$x" }, "max": { "$max": "$x" },
            "n": { "$count": {} }, "dev": { "$stdDevPop": "$x" }, "sample": { "$stdDevSamp": "$x" },
        } }],
        vec![doc! { "$group": {
            "_id": { "g": "$g" }, "top": { "$top": { "sortBy": { "x": -1 }, "output": "$x" } },
            "low": { "$bottomN": { "n": 2, "sortBy": { "x": -1 }, "output": "$x" } }, "max": { "$maxN": { "n": 3, "input": "$x" } },
        } }],
        vec![
            doc! { "$sort": { "x": 1 } },
            doc! { "$group": { "_id": "$g", "first": { "$first": "$x" }, "last": { "$last": "$_id" } } },
        ],
        vec![doc! { "$group": { "_id": null, "n": { "$sum": 1 } } }],
        vec![doc! { "$match": { "x": -1 } }, doc! { "$count": "n" }],
        vec![doc! { "$sortByCount": "$s" }, doc! { "$match": { "count": { "$gt": 3 } } }],
        vec![
            doc! { "$bucket": { "groupBy": "$x", "boundaries": [0, 100, 200], "default": "more", "output": { "n": { "$sum": 1 } } } },
        ],
        vec![doc! { "$bucketAuto": { "groupBy": "$x", "buckets": 4 } }],
        vec![doc! { "$facet": {
            "groups": [{ "$group": { "_id": "$g", "n": { "$sum": 1 } } }, { "$sort": { "_id": 1 } }], "first": [{ "$sort": { "x": 1 } }, { "$limit": 3 }],
        } }],
        vec![doc! { "$sample": { "size": 1000 } }],
        vec![doc! { "$sample": { "size": 7 } }, doc! { "$count": "n" }],
        vec![
            doc! { "$geoNear": { "near": { "type": "Point", "coordinates": [10, 10] }, "distanceField": "d", "key": "loc", "query": { "g": 1 } } },
        ],
        vec![lookup("plain"), doc! { "$match": { "up.g": 2 } }],
        vec![
            lookup("hashed"),
            doc! { "$unwind": "$up" },
            doc! { "$group": { "_id": "$up.g", "n": { "$sum": 1 } } },
        ],
        vec![doc! { "$lookup": {
            "from": "range", "let": { "g": "$g" }, "as": "same",
            "pipeline": [{ "$match": { "$expr": { "$eq": ["$g", "$$g"] } } }, { "$group": { "_id": null, "sum": { "$sum": "$x" } } }],
        } }],
        vec![
            doc! { "$match": { "_id": { "$lt": 9 } } },
            doc! { "$graphLookup": {
                "from": "hashed", "startWith": "$parent", "connectFromField": "parent", "connectToField": "_id", "as": "up",
            } },
            doc! { "$project": { "n": { "$size": "$up" } } },
        ],
        vec![doc! { "$setWindowFields": {
            "partitionBy": "$g", "sortBy": { "x": 1 }, "output": { "run": { "$sum": "$x", "window": { "documents": ["unbounded", "current"] } } },
        } }],
        vec![
            doc! { "$project": { "_id": 0, "x": 1, "g": 1 } },
            doc! { "$densify": { "field": "x", "partitionByFields": ["g"], "range": { "step": 50, "bounds": "full" } } },
        ],
        vec![
            doc! { "$set": { "v": { "$cond": [{ "$eq": ["$g", 2] }, null, "$v"] } } },
            doc! { "$fill": { "sortBy": { "_id": 1 }, "output": { "v": { "method": "locf" } } } },
        ],
        vec![doc! { "$redact": { "$cond": [{ "$eq": ["$g", 1] }, "$$PRUNE", "$$KEEP"] } }],
        vec![doc! { "$replaceWith": "$loc" }, doc! { "$group": { "_id": "$type", "n": { "$sum": 1 } } }],
        vec![
            doc! { "$project": { "_id": 0, "now": "$$NOW" } },
            doc! { "$group": { "_id": "$now" } },
            doc! { "$count": "times" },
        ],
    ];
    for pipeline in &any_order {
        compare(&db, pipeline).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_lands_in_sharded_and_unsharded_targets() {
    let (cluster, client) = start().await;
    let db = client.database(DB);
    cluster.spread("agg.target", "k", &[100, 200]).await.unwrap();
    let target = db.collection::<Document>("target");
    let with_key = doc! { "$set": { "k": "$x" } };

    // No shard needs another's documents: each writes its own.
    run(&db, "range", &[with_key.clone(), doc! { "$merge": "target" }]).await;
    assert_eq!(target.count_documents(doc! {}).await.unwrap(), 240);
    for shard in cluster.shards() {
        let own = shard.client().await.unwrap().database(DB).collection::<Document>("target");
        assert!(own.count_documents(doc! {}).await.unwrap() > 0, "{}", shard.name());
    }
    run(
        &db,
        "hashed",
        &[
            doc! { "$match": { "g": 1 } },
            with_key,
            doc! { "$set": { "again": true } },
            doc! { "$merge": "target" },
        ],
    )
    .await;
    assert_eq!(target.count_documents(doc! { "again": true }).await.unwrap(), 30);
    assert_eq!(target.count_documents(doc! {}).await.unwrap(), 240);

    let groups = doc! { "$group": { "_id": "$g", "n": { "$sum": 1 } } };
    run(&db, "range", &[groups.clone(), doc! { "$merge": { "into": { "db": "other", "coll": "groups" } } }])
        .await;
    let other = client.database("other").collection::<Document>("groups");
    assert_eq!(other.count_documents(doc! { "n": 30 }).await.unwrap(), 8);

    for (pipeline, count) in [
        (vec![doc! { "$match": { "g": { "$lt": 4 } } }, doc! { "$out": "out" }], 120),
        (vec![groups, doc! { "$out": "out" }], 8),
        // One shard owns it, and it is not the primary one.
        (vec![doc! { "$match": { "x": 250 } }, doc! { "$out": { "db": DB, "coll": "out" } }], 1),
    ] {
        run(&db, "range", &pipeline).await;
        let out = db.collection::<Document>("out").count_documents(doc! {}).await.unwrap();
        assert_eq!(out, count, "{pipeline:?}");
    }

    for (stage, code) in [
        (doc! { "$out": "range" }, 28769),
        (doc! { "$merge": { "into": "plain", "on": "s" } }, 51190),
        (doc! { "$merge": { "into": "target", "on": "k" } }, 51190),
        (doc! { "$merge": { "into": "plain", "on": [] } }, 51187),
    ] {
        let error = db.collection::<Document>("range").aggregate([stage.clone()]).await.unwrap_err();
        let mongodb::error::ErrorKind::Command(failed) = &*error.kind else { panic!("{stage}: {error}") };
        assert_eq!(failed.code, code, "{stage}: {}", failed.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_one_time_on_all_shards() {
    let (_cluster, client) = start().await;
    let db = client.database(DB);
    for command in [
        doc! { "find": "range", "readConcern": { "level": "snapshot" }, "batchSize": 2 },
        doc! { "aggregate": "range", "pipeline": [], "cursor": { "batchSize": 2 }, "readConcern": { "level": "snapshot" } },
        doc! { "aggregate": "range", "pipeline": [{ "$group": { "_id": "$x" } }], "cursor": {}, "readConcern": { "level": "snapshot" } },
    ] {
        let reply = db.run_command(command.clone()).await.unwrap();
        let at = reply.get_document("cursor").unwrap().get_timestamp("atClusterTime");
        assert!(at.is_ok(), "{command}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_on_views_and_time_series_read_as_on_one_server() {
    let (_cluster, client) = start().await;
    let db = client.database(DB);
    let admin = client.database("admin");
    for (name, on) in [("plain_view", "plain"), ("range_view", "range")] {
        db.run_command(
            doc! { "create": name, "viewOn": on, "pipeline": [{ "$match": { "g": { "$lt": 6 } } }] },
        )
        .await
        .unwrap();
        let outer = format!("{name}_view");
        db.run_command(doc! { "create": outer, "viewOn": name, "pipeline": [{ "$set": { "w": "$x" } }] })
            .await
            .unwrap();
    }
    for pipeline in [
        vec![doc! { "$sort": { "_id": 1 } }, doc! { "$limit": 9 }],
        vec![doc! { "$group": { "_id": "$g", "n": { "$sum": "$w" } } }, doc! { "$sort": { "_id": 1 } }],
    ] {
        let expected = run(&db, "plain_view_view", &pipeline).await;
        assert_eq!(run(&db, "range_view_view", &pipeline).await, expected);
    }
    let view = db.collection::<Document>("range_view_view");
    assert_eq!(view.count_documents(doc! { "g": 2 }).await.unwrap(), 30);

    let options = doc! { "timeField": "t", "metaField": "m", "granularity": "seconds" };
    db.run_command(doc! { "create": "plain_series", "timeseries": options.clone() }).await.unwrap();
    admin
        .run_command(doc! { "shardCollection": "agg.series", "key": { "m": 1 }, "timeseries": options })
        .await
        .unwrap();
    let points: Vec<Document> = (0..200_i64)
        .map(|n| doc! { "_id": n, "t": bson::DateTime::from_millis(1_700_000_000_000 + n * 60_000), "m": (n % 6) * 40, "v": n })
        .collect();
    for name in ["plain_series", "series"] {
        db.collection::<Document>(name).insert_many(&points).await.unwrap();
    }
    admin
        .run_command(doc! { "split": "agg.system.buckets.series", "middle": { "meta": 100 } })
        .await
        .unwrap();
    admin
        .run_command(
            doc! { "moveChunk": "agg.system.buckets.series", "find": { "meta": 150 }, "to": "shard1" },
        )
        .await
        .unwrap();
    let from = bson::DateTime::from_millis(1_700_000_000_000 + 90 * 60_000);
    for pipeline in [
        vec![doc! { "$sort": { "t": 1 } }],
        vec![doc! { "$match": { "t": { "$gte": from }, "m": 80 } }, doc! { "$sort": { "_id": 1 } }],
        vec![
            doc! { "$group": { "_id": "$m", "sum": { "$sum": "$v" }, "n": { "$count": {} } } },
            doc! { "$sort": { "_id": 1 } },
        ],
    ] {
        assert_eq!(
            run(&db, "series", &pipeline).await,
            run(&db, "plain_series", &pipeline).await,
            "{pipeline:?}"
        );
    }
    let sizes = run(&db, "series", &[doc! { "$collStats": { "count": {} } }]).await;
    assert_eq!(sizes.len(), 2, "one document a shard: {sizes:?}");
    run(&db, "series", &[doc! { "$indexStats": {} }]).await;
}

/// A shard moves `$match` to the front, and does not look for orphans where it fixes the shard key by equality: what shards
/// move, the router targets by. Found by the differential test.
#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_hidden_from_a_match_that_comes_late() {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("agg.left", "x", &[100]).await.unwrap();
    let db = cluster.client().await.unwrap().database(DB);
    db.collection("left").insert_one(doc! { "_id": 1, "x": 16, "arr": [1] }).await.unwrap();
    let orphan = doc! { "_id": 1, "x": 16, "arr": [1], "orphan": true };
    let other = cluster.shard(1).unwrap().client().await.unwrap();
    other.database(DB).collection("left").insert_one(orphan).await.unwrap();
    let last = doc! { "$match": { "x": 16 } };
    for pipeline in [
        vec![last.clone()],
        vec![lookup("left"), last.clone()],
        vec![doc! { "$set": { "w": { "$add": ["$x", 1] } } }, last.clone()],
        vec![doc! { "$unwind": "$arr" }, doc! { "$sort": { "w": 1 } }, last.clone()],
        vec![doc! { "$project": { "x": 1, "orphan": 1 } }, last.clone()],
        vec![doc! { "$project": { "y": "$x", "orphan": 1 } }, doc! { "$match": { "y": 16 } }],
        vec![doc! { "$redact": "$$KEEP" }, last.clone()],
        vec![lookup("left"), doc! { "$match": { "$and": [{ "x": 16 }, { "up": [] }] } }],
    ] {
        let found = run(&db, "left", &pipeline).await;
        assert!(found.len() == 1 && !found[0].contains_key("orphan"), "{pipeline:?}: {found:?}");
    }
}
