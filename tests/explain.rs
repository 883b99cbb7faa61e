//! Explain has the shapes of mongos: which shards are concerned, what each of them does, and what becomes of it.

use bson::{Document, doc};
use mongodb::Database;
use testkit::Cluster;

async fn explain(db: &Database, command: Document, verbosity: &str) -> Document {
    let explain = doc! { "explain": command.clone(), "verbosity": verbosity };
    db.run_command(explain).await.unwrap_or_else(|error| panic!("{command}: {error}"))
}

fn names(shards: &[bson::Bson]) -> Vec<&str> {
    let mut names: Vec<&str> =
        shards.iter().map(|shard| shard.as_document().unwrap().get_str("shardName").unwrap()).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_wrapped_by_the_shards_they_concern() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("explained.c", "n", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let db = client.database("explained");
    let coll = db.collection::<Document>("c");
    coll.insert_many((0..300).map(|n| doc! { "_id": n, "n": n, "mod": n % 3 })).await.unwrap();

    for (command, stage, shards, returned) in [
        (doc! { "find": "c", "filter": { "n": 150 } }, "SINGLE_SHARD", &["shard1"][..], 1),
        (doc! { "find": "c", "filter": { "n": { "$lt": 110 } } }, "SHARD_MERGE", &["shard0", "shard1"], 110),
        (
            doc! { "find": "c", "filter": { "mod": 1 }, "sort": { "n": 1 } },
            "SHARD_MERGE_SORT",
            &["shard0", "shard1", "shard2"],
            100,
        ),
        (doc! { "count": "c", "query": { "n": { "$gte": 200 } } }, "SINGLE_SHARD", &["shard2"], 0),
        (doc! { "distinct": "c", "key": "mod" }, "SHARD_MERGE", &["shard0", "shard1", "shard2"], 300),
        (
            doc! { "update": "c", "updates": [{ "q": { "n": 5 }, "u": { "$set": { "y": 1 } } }] },
            "SHARD_WRITE",
            &["shard0"],
            0,
        ),
        (
            doc! { "delete": "c", "deletes": [{ "q": { "n": { "$gte": 150 } }, "limit": 0 }] },
            "SHARD_WRITE",
            &["shard1", "shard2"],
            0,
        ),
        (doc! { "findAndModify": "c", "query": { "n": 5 }, "remove": true }, "SINGLE_SHARD", &["shard0"], 1),
        (doc! { "find": "elsewhere" }, "SINGLE_SHARD", &["shard0"], 0),
    ] {
        let reply = explain(&db, command.clone(), "executionStats").await;
        let fields: Vec<&str> = reply
            .keys()
            .map(String::as_str)
            .filter(|name| !name.starts_with('$') && *name != "operationTime")
            .collect();
        assert_eq!(
            fields,
            ["queryPlanner", "executionStats", "serverInfo", "serverParameters", "command", "ok"]
        );
        let plan = reply.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
        assert_eq!(plan.get_str("stage").unwrap(), stage, "{command}");
        assert_eq!(names(plan.get_array("shards").unwrap()), shards, "{command}");
        let stats = reply.get_document("executionStats").unwrap();
        assert_eq!(stats.get_i32("nReturned").unwrap(), returned, "{command}");
        assert!(!stats.contains_key("allPlansExecution"));
        let planner = explain(&db, command.clone(), "queryPlanner").await;
        assert!(!planner.contains_key("executionStats"), "{command}");
        assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 300, "{command} was run");
    }
    let all = explain(&db, doc! { "find": "c" }, "allPlansExecution").await;
    let plans = all.get_document("executionStats").unwrap().get_array("allPlansExecution").unwrap();
    assert_eq!(names(plans), ["shard0", "shard1", "shard2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_explained_in_its_parts() {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("explained.c", "n", &[100]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let db = client.database("explained");
    let group = doc! { "$group": { "_id": "$mod", "n": { "$sum": 1 } } };
    let aggregate =
        |name: &str, pipeline: Vec<Document>| doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} };

    let split = explain(&db, aggregate("c", vec![group.clone()]), "queryPlanner").await;
    let parts = split.get_document("splitPipeline").unwrap();
    assert_eq!(parts.get_array("shardsPart").unwrap().len(), 1);
    let merger = parts.get_array("mergerPart").unwrap();
    assert!(merger[0].as_document().unwrap().contains_key("$mergeCursors"), "{merger:?}");
    assert!(
        merger[1].as_document().unwrap().get_document("$group").unwrap().get_bool("$doingMerge").unwrap()
    );
    let mut shards: Vec<&String> = split.get_document("shards").unwrap().keys().collect();
    shards.sort();
    assert_eq!(shards, ["shard0", "shard1"]);

    let sort = explain(&db, aggregate("c", vec![doc! { "$sort": { "mod": 1 } }]), "queryPlanner").await;
    assert_eq!(sort.get_str("mergeType").unwrap(), "mongos");

    let one =
        explain(&db, aggregate("c", vec![doc! { "$match": { "n": 5 } }, group.clone()]), "executionStats")
            .await;
    assert!(matches!(one.get("splitPipeline"), Some(bson::Bson::Null)), "{one}");
    assert_eq!(one.get_document("shards").unwrap().keys().collect::<Vec<_>>(), ["shard0"]);

    let plain = explain(&db, aggregate("plain", vec![group]), "queryPlanner").await;
    assert!(plain.contains_key("explainVersion"), "{plain}");
    assert_eq!(plain.get_document("command").unwrap().get_str("$db").unwrap(), "explained");

    db.run_command(doc! { "create": "view", "viewOn": "c", "pipeline": [{ "$match": { "mod": 1 } }] })
        .await
        .unwrap();
    let view = explain(&db, doc! { "find": "view", "filter": { "n": 5 } }, "queryPlanner").await;
    assert!(view.contains_key("shards"), "{view}");

    for (command, code) in [
        (doc! { "explain": { "nosuch": 1 } }, 59),
        (doc! { "explain": { "find": "c" }, "verbosity": "much" }, 2),
        (
            doc! { "explain": { "delete": "c", "deletes": [{ "q": { "n": 1 }, "limit": 1 }, { "q": { "n": 2 }, "limit": 1 }] } },
            16,
        ),
        (doc! { "explain": 1 }, 14),
    ] {
        let error = db.run_command(command.clone()).await.unwrap_err();
        let mongodb::error::ErrorKind::Command(failed) = &*error.kind else { panic!("{command}: {error}") };
        assert_eq!(failed.code, code, "{command}: {}", failed.message);
    }
    let error = client.database("nosuch").run_command(doc! { "explain": { "find": "c" } }).await.unwrap_err();
    assert!(error.to_string().contains("database nosuch not found"), "{error}");
}
