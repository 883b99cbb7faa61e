//! Answers and refusals are those of the server's own routing code: a shard takes `clusterFind`, `clusterAggregate` and
//! `clusterUpdate` as a mongos takes the commands. What differs on purpose stands in docs/compatibility.md.

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "orc";

/// Two shards, and a third that is only asked as a router.
async fn start() -> (Cluster, RawConn, RawConn) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("orc.r", "x", &[100]).await.unwrap();
    cluster.spread("orc.t", "k", &[100]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let db = client.database(DB);
    let documents: Vec<Document> = (0..60)
        .map(|n| {
            doc! { "_id": n, "x": n * 5, "g": n % 4, "arr": [n % 3, n % 5], "s": format!("t{}", n % 6) }
        })
        .collect();
    for name in ["r", "u"] {
        db.collection::<Document>(name).insert_many(&documents).await.unwrap();
        let index = doc! { "createIndexes": name, "indexes": [{ "key": { "g": 1 }, "name": "g_1" }] };
        db.run_command(index).await.unwrap();
    }
    db.run_command(doc! { "create": "v", "viewOn": "r", "pipeline": [{ "$match": { "g": { "$lt": 3 } } }] })
        .await
        .unwrap();
    let router = cluster.router(0).unwrap().raw().await.unwrap();
    let oracle = cluster.shard(2).unwrap().member(0).unwrap().raw().await.unwrap();
    (cluster, router, oracle)
}

/// The command in the oracle's spelling.
fn clustered(command: &Document) -> Document {
    let mut out = Document::new();
    for (index, (name, value)) in command.iter().enumerate() {
        match (index, name.as_str(), value) {
            (0, "explain", Bson::Document(inner)) => out.insert(name, clustered(inner)),
            (0, "find", _) => out.insert("clusterFind", value.clone()),
            (0, "aggregate", _) => out.insert("clusterAggregate", value.clone()),
            (0, "update", _) => out.insert("clusterUpdate", value.clone()),
            _ => out.insert(name, value.clone()),
        };
    }
    out
}

async fn ask_oracle(oracle: &mut RawConn, db: &str, command: &Document) -> Document {
    for _ in 0..10 {
        let reply = oracle.command(db, clustered(command)).await.unwrap();
        if !reply.get_i32("code").is_ok_and(|code| code == 13388) {
            return reply;
        }
        oracle.command_ok("admin", doc! { "flushRouterConfig": 1 }).await.unwrap();
    }
    panic!("stale for good: {command}");
}

/// Addresses, shards and numbers of cursors are no part of the comparison.
fn plain_text(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        if word.starts_with("127.0.0.1:") {
            "<host>"
        } else if word.starts_with("shard") && word.len() == 6 {
            "<shard>"
        } else {
            word
        }
    });
    words
        .collect::<Vec<_>>()
        .join(" ")
        .replace("clusterFind", "find")
        .replace("clusterAggregate", "aggregate")
}

/// What a client sees of a reply, in a form that can be compared. Documents in an order of their own.
fn seen(reply: &Document) -> Document {
    if !is_ok(reply) {
        let text = plain_text(reply.get_str("errmsg").unwrap());
        return doc! { "code": reply.get("code").cloned(), "codeName": reply.get("codeName").cloned(), "errmsg": text };
    }
    let Ok(cursor) = reply.get_document("cursor") else {
        let mut rest = reply.clone();
        for field in [
            "$clusterTime",
            "operationTime",
            "$configTime",
            "$topologyTime",
            "electionId",
            "opTime",
            "lastCommittedOpTime",
        ] {
            rest.remove(field);
        }
        return rest;
    };
    let mut batch: Vec<Vec<u8>> = cursor
        .get_array("firstBatch")
        .unwrap()
        .iter()
        .map(|document| bson::serialize_to_vec(document.as_document().unwrap()).unwrap())
        .collect();
    batch.sort();
    let batch: Vec<Bson> =
        batch.iter().map(|bytes| bson::deserialize_from_slice::<Document>(bytes).unwrap().into()).collect();
    doc! { "batch": batch, "ns": cursor.get_str("ns").unwrap(), "open": cursor.get_i64("id").unwrap() != 0 }
}

async fn compare(router: &mut RawConn, oracle: &mut RawConn, commands: &[Document]) {
    let mut different = Vec::new();
    for command in commands {
        let expected = seen(&ask_oracle(oracle, DB, command).await);
        let found = seen(&router.command(DB, command.clone()).await.unwrap());
        if found != expected {
            different.push(format!("{command}\n  router: {found}\n  oracle: {expected}"));
        }
    }
    assert!(different.is_empty(), "{} of {}:\n{}", different.len(), commands.len(), different.join("\n"));
}

fn find(coll: &str, options: Document) -> Document {
    let mut command = doc! { "find": coll };
    command.extend(options);
    command
}

fn aggregate(coll: &str, pipeline: impl Into<Bson>, options: Document) -> Document {
    let mut command = doc! { "aggregate": coll, "pipeline": pipeline.into(), "cursor": {} };
    command.extend(options);
    command
}

fn wrong_options() -> Vec<Document> {
    let wrong: Vec<Bson> =
        vec![5.into(), (-1).into(), Bson::Double(-2.5), "x".into(), Bson::Null, Bson::Array(vec![1.into()])];
    let mut commands = Vec::new();
    for option in [
        "filter",
        "projection",
        "sort",
        "hint",
        "skip",
        "batchSize",
        "singleBatch",
        "min",
        "max",
        "returnKey",
        "showRecordId",
        "tailable",
        "awaitData",
        "noCursorTimeout",
        "allowPartialResults",
        "collation",
        "allowDiskUse",
        "let",
        "readConcern",
        "writeConcern",
        "maxTimeMS",
        "ntoreturn",
        "readOnce",
        "nope",
        "txnNumber",
        "autocommit",
        "startTransaction",
        "$_resumeAfter",
    ] {
        for value in &wrong {
            // What it is that is skipped, or shown first, nobody promises.
            let taken =
                matches!((option, value), ("skip" | "batchSize" | "maxTimeMS" | "limit", Bson::Int32(5)));
            let given = matches!((option, value), ("apiVersion", _)) || taken;
            if !given {
                let mut command = find("r", doc! { "sort": { "_id": 1 } });
                command.insert(option, value.clone());
                commands.push(command);
            }
        }
    }
    for option in [
        "pipeline",
        "cursor",
        "allowDiskUse",
        "collation",
        "let",
        "readConcern",
        "writeConcern",
        "maxTimeMS",
        "fromMongos",
        "needsMerge",
        "nope",
        "hint",
        "bypassDocumentValidation",
    ] {
        for value in &wrong {
            if matches!((option, value), ("maxTimeMS", Bson::Int32(5))) {
                continue;
            }
            let mut command = aggregate("r", vec![doc! { "$sort": { "_id": 1 } }], doc! {});
            command.insert(option, value.clone());
            commands.push(command);
        }
    }
    for cursor in
        [doc! { "more": 1 }, doc! { "batchSize": -1 }, doc! { "batchSize": "x" }, doc! { "batchSize": 0 }]
    {
        commands.push(aggregate("r", vec![doc! { "$sort": { "_id": 1 } }], doc! { "cursor": cursor }));
    }
    for name in ["NOW", "CLUSTER_TIME", "A", "ROOT", ""] {
        let variables = doc! { name: 1 };
        commands.push(find("r", doc! { "let": variables.clone() }));
        commands.push(aggregate("r", Bson::Array(vec![]), doc! { "let": variables }));
    }
    commands.extend([
        doc! { "find": 5 },
        doc! { "find": ".x" },
        doc! { "find": "" },
        doc! { "aggregate": ".x", "pipeline": [], "cursor": {} },
    ]);
    commands
}

fn queries() -> Vec<Document> {
    let mut commands = Vec::new();
    for filter in [
        doc! { "$foo": 1 },
        doc! { "x": { "$foo": 1 } },
        doc! { "$and": 5 },
        doc! { "$or": [] },
        doc! { "x": { "$in": 5 } },
        doc! { "x": { "$type": "no" } },
        doc! { "x": { "$regex": "(" } },
        doc! { "$expr": { "$foo": 1 } },
        doc! { "$expr": { "$divide": [1, 0] } },
        doc! { "$expr": { "$divide": ["$x", 0] } },
        doc! { "$jsonSchema": { "no": 1 } },
        doc! { "$sampleRate": 2 },
        doc! { "$text": { "$search": "a" } },
        doc! { "x": { "$size": -1 } },
    ] {
        for coll in ["r", "u"] {
            commands.push(find(coll, doc! { "filter": filter.clone() }));
        }
        commands.push(doc! { "explain": find("r", doc! { "filter": filter }), "verbosity": "queryPlanner" });
    }
    // What explains tell of plans is compared elsewhere.
    commands.retain(|command| {
        let text = command.to_string();
        !command.contains_key("explain") || !(text.contains("\"$x\"") || text.contains("$text"))
    });
    let natural = doc! { "$natural": 1 };
    for options in [
        doc! { "sort": { "x": 0 } },
        doc! { "sort": { "x": { "$meta": "no" } } },
        doc! { "projection": { "a": 1, "b": 0 } },
        doc! { "projection": { "$sortKey": 1 } },
        doc! { "projection": { "x": { "$no": 1 } } },
        doc! { "hint": "no" },
        doc! { "hint": "g_1", "sort": natural.clone() },
        doc! { "hint": { "$natural": -1 }, "sort": natural.clone() },
        doc! { "sort": { "$natural": 1, "x": 1 } },
        doc! { "hint": { "$natural": 1, "x": 1 }, "sort": natural.clone() },
        doc! { "tailable": true },
        doc! { "tailable": true, "sort": { "x": 1 } },
        doc! { "tailable": true, "singleBatch": true },
        doc! { "awaitData": true },
        doc! { "collation": { "locale": "no" } },
        doc! { "collation": { "strength": 1 } },
        doc! { "min": { "g": 1 } },
        doc! { "min": { "x": 1 }, "max": { "g": 2 }, "hint": { "g": 1 } },
        doc! { "limit": i64::MAX, "skip": 1 },
        doc! { "sort": natural.clone() },
        doc! { "readConcern": { "level": "no" } },
        doc! { "readConcern": { "level": "snapshot", "atClusterTime": 5 } },
        doc! { "readConcern": { "afterClusterTime": 5 } },
        doc! { "$_requestResumeToken": false },
    ] {
        commands.push(find("r", options.clone()));
        commands.push(find("u", options));
    }
    // A sort by the order on disk is a hint on a view too.
    for options in [doc! { "sort": natural.clone() }, doc! { "sort": natural.clone(), "hint": natural }] {
        commands.push(find("v", options));
    }
    commands
}

fn stages() -> Vec<Document> {
    let stages = [
        doc! { "$lookup": 5 },
        doc! { "$lookup": { "as": "x" } },
        doc! { "$lookup": { "from": 5, "as": "x" } },
        doc! { "$lookup": { "from": "u", "as": "x", "pipeline": 5 } },
        doc! { "$lookup": { "from": "u", "as": "x", "pipeline": [{ "$merge": "z" }] } },
        doc! { "$lookup": { "from": { "db": "e", "coll": "u" }, "as": "x", "localField": "a", "foreignField": "b" } },
        doc! { "$graphLookup": 5 },
        doc! { "$graphLookup": {} },
        doc! { "$unionWith": 5 },
        doc! { "$unionWith": { "pipeline": [] } },
        doc! { "$unionWith": { "coll": "u", "pipeline": [{ "$merge": "z" }] } },
        doc! { "$facet": {} },
        doc! { "$facet": { "a": 5 } },
        doc! { "$facet": { "a": [5] } },
        doc! { "$facet": { "a.b": [] } },
        doc! { "$facet": { "a": [{ "$merge": "z" }] } },
        doc! { "$facet": { "a": [{ "$no": 1 }] } },
        doc! { "$collStats": 5 },
        doc! { "$collStats": [] },
        doc! { "$collStats": { "no": {} } },
        doc! { "$currentOp": 5 },
        doc! { "$listSessions": 5 },
        doc! { "$listLocalSessions": { "no": 1 } },
        doc! { "$out": 5 },
        doc! { "$out": { "db": "d" } },
        doc! { "$out": { "db": "d", "coll": 5 } },
        doc! { "$merge": 5 },
        doc! { "$merge": {} },
        doc! { "$merge": { "into": 5 } },
        doc! { "$merge": { "into": "z", "whenMatched": "no" } },
        doc! { "$merge": { "into": "z", "whenMatched": 5 } },
        doc! { "$merge": { "into": "z", "whenNotMatched": "no" } },
        doc! { "$merge": { "into": "z", "on": [5] } },
        doc! { "$merge": { "into": "z", "on": [] } },
        doc! { "$merge": { "into": "z", "no": 1 } },
        doc! { "$no": 1 },
        doc! { "$group": 5 },
        doc! { "$group": { "n": { "$sum": 1 } } },
        doc! { "$sort": { "x": 0 } },
        doc! { "$limit": 0 },
        doc! { "$skip": -1 },
        doc! { "$match": 5 },
        doc! { "$project": {} },
        doc! { "$unwind": "x" },
        doc! { "$bucket": { "groupBy": "$x" } },
        doc! { "$sample": {} },
        doc! { "$count": "$x" },
        doc! { "$changeStream": 5 },
        doc! { "$changeStream": { "no": 1 } },
        doc! { "$changeStream": { "fullDocument": "no" } },
        doc! { "$geoNear": {} },
        doc! { "$densify": {} },
        doc! { "$fill": {} },
        doc! { "$setWindowFields": {} },
        doc! { "$redact": "x" },
        doc! { "$documents": 5 },
        doc! { "$shardedDataDistribution": {} },
    ];
    let mut commands = Vec::new();
    for stage in &stages {
        let name = stage.keys().next().unwrap().as_str();
        commands.push(aggregate("r", vec![stage.clone()], doc! {}));
        // Of a mongos in a shard this is a shard's affair; and what is changed by which document, nobody promises.
        if !matches!(name, "$replaceWith" | "$shardedDataDistribution") {
            commands.push(aggregate("u", vec![stage.clone()], doc! {}));
        }
        // Those that write say no more of their place than of their argument.
        if !matches!(name, "$changeStream" | "$replaceWith" | "$project") {
            commands.push(doc! { "update": "r", "updates": [{ "q": { "x": 5 }, "u": [stage.clone()] }] });
        }
    }
    let merge = |extra: Document| {
        let mut spec = doc! { "into": "t" };
        spec.extend(extra);
        vec![doc! { "$match": { "x": -5 } }, doc! { "$merge": spec }]
    };
    for pipeline in [
        vec![doc! { "$set": { "y": { "$divide": ["$g", 0] } } }],
        vec![doc! { "$group": { "_id": 1, "n": { "$mergeObjects": "$g" } } }],
        vec![
            doc! { "$sort": { "_id": 1 } },
            doc! { "$bucketAuto": { "groupBy": "$s", "buckets": 3, "granularity": "R5" } },
        ],
        vec![doc! { "$group": { "_id": "$g", "n": { "$sum": "$x" } } }],
        vec![doc! { "$sort": { "_id": 1 } }, doc! { "$limit": 7 }],
        merge(doc! {}),
        merge(doc! { "on": "k" }),
        merge(doc! { "on": ["k", "k"] }),
        merge(doc! { "into": "v" }),
        vec![doc! { "$match": { "x": -5 } }, doc! { "$out": "r" }],
    ] {
        commands.push(aggregate("r", pipeline, doc! {}));
    }
    for level in ["linearizable", "snapshot"] {
        commands.push(aggregate("r", merge(doc! {}), doc! { "readConcern": { "level": level } }));
    }
    commands
}

/// One cluster for all of them: it costs more than they do.
#[tokio::test(flavor = "multi_thread")]
async fn the_router_answers_as_the_servers_own_routing_code() {
    let (_cluster, mut router, mut oracle) = start().await;
    let commands = [wrong_options(), queries(), stages()].concat();
    compare(&mut router, &mut oracle, &commands).await;
}
