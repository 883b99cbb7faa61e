//! What a client may not send is stripped or refused, and no shard ever sees it.

use bson::oid::ObjectId;
use bson::{Bson, Document, Timestamp, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "forb";

/// Two shards with 100 documents each.
async fn start() -> Cluster {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("forb.c", "n", &[100]).await.unwrap();
    let coll = cluster.client().await.unwrap().database(DB).collection::<Document>("c");
    coll.insert_many((0..200).map(|n| doc! { "_id": n, "n": n })).await.unwrap();
    cluster
}

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

/// The whole cluster still works, on a new connection and for the same shards.
async fn assert_healthy(cluster: &Cluster, after: &str) {
    let mut conn = conn(cluster).await;
    let reply = conn
        .command(DB, doc! { "find": "c", "filter": {}, "batchSize": 1_000, "maxTimeMS": 10_000 })
        .await
        .unwrap();
    assert!(is_ok(&reply), "after {after}: {reply}");
    assert_eq!(batch(&reply).len(), 200, "after {after}");
    let update = doc! { "update": "c", "updates": [{ "q": { "n": 150 }, "u": { "$inc": { "x": 1 } } }], "maxTimeMS": 10_000 };
    let reply = conn.command(DB, update).await.unwrap();
    assert!(is_ok(&reply) && reply.get_i32("n").ok() == Some(1), "after {after}: {reply}");
    for shard in cluster.shards() {
        shard
            .command("admin", doc! { "ping": 1 })
            .await
            .unwrap_or_else(|error| panic!("after {after}: {error:#}"));
    }
}

fn batch(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

fn far_future() -> Bson {
    Bson::Timestamp(Timestamp { time: 4_000_000_000, increment: 1 })
}

/// Fields that a router sets itself: a client's are dropped.
fn stripped() -> Vec<(&'static str, Bson)> {
    let epoch = ObjectId::from_bytes([9; 12]);
    let wrong = doc! { "e": epoch, "t": Timestamp { time: 1, increment: 1 }, "v": Timestamp { time: 7, increment: 0 } };
    let ignored = doc! {
        "e": ObjectId::parse_str("00000000ffffffffffffffff").unwrap(),
        "t": Timestamp { time: u32::MAX, increment: u32::MAX },
        "v": Timestamp { time: 0, increment: 0 },
    };
    let uuid = Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] });
    vec![
        ("shardVersion", wrong.into()),
        ("shardVersion", ignored.into()),
        ("databaseVersion", doc! { "uuid": uuid, "timestamp": Timestamp { time: 1, increment: 1 }, "lastMod": 1 }.into()),
        ("$configTime", far_future()),
        ("$topologyTime", far_future()),
        ("$configServerState", doc! { "opTime": { "ts": far_future(), "t": 1_i64 } }.into()),
        ("$client", doc! { "application": { "name": "forged" }, "driver": { "name": "f", "version": "1" }, "os": { "type": "f" } }.into()),
        ("$replData", 1.into()),
        ("$oplogQueryData", 1.into()),
        ("$audit", doc! { "$impersonatedUsers": [] }.into()),
        ("allowImplicitCollectionCreation", false.into()),
        ("maxTimeMSOpOnly", 1_000_000.into()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn router_fields_of_a_client_reach_no_shard() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    cluster.start_profiling(DB).await.unwrap();
    for (index, (field, value)) in stripped().into_iter().enumerate() {
        let comment = format!("{index} {field}");
        let commands = [
            doc! { "find": "c", "filter": {}, "batchSize": 1_000 },
            doc! { "count": "c" },
            doc! { "aggregate": "c", "pipeline": [{ "$match": { "n": 1 } }], "cursor": {} },
            doc! { "distinct": "c", "key": "n" },
            doc! { "update": "c", "updates": [{ "q": { "n": 1 }, "u": { "$inc": { "x": 1 } } }] },
            doc! { "insert": "c", "documents": [{ "n": 1_000, "extra": true }] },
            doc! { "delete": "c", "deletes": [{ "q": { "n": 1_000 }, "limit": 0 }] },
            doc! { "findAndModify": "c", "query": { "n": 1 }, "update": { "$inc": { "x": 1 } } },
        ];
        for mut command in commands {
            let name = command.keys().next().unwrap().clone();
            command.insert("comment", &comment);
            command.insert("maxTimeMS", 20_000);
            command.insert(field, value.clone());
            let reply = conn.command(DB, command).await.unwrap();
            // Dropped, so the answer is the ordinary one; refusing it by name is as good.
            match name.as_str() {
                _ if !is_ok(&reply) => assert!(reply.get_i32("code").is_ok(), "{name} with {field}: {reply}"),
                "find" => assert_eq!(batch(&reply).len(), 200, "{name} with {field}"),
                "count" => assert_eq!(reply.get_i32("n").unwrap(), 200, "{name} with {field}"),
                "distinct" => {
                    assert_eq!(reply.get_array("values").unwrap().len(), 200, "{name} with {field}");
                }
                "update" | "insert" | "delete" => {
                    assert_eq!(reply.get_i32("n").unwrap(), 1, "{name} with {field}: {reply}");
                }
                _ => {}
            }
        }
        let seen = cluster.profiled(DB, doc! { "command.comment": &comment }).await.unwrap();
        for op in &seen {
            let entry = op.entry.to_string();
            let forged = op.entry.get_document("command").ok().and_then(|command| command.get(field));
            assert_ne!(forged, Some(&value), "{} saw the client's {field}: {entry}", op.shard);
            assert!(!entry.contains("forged"), "{} saw forged metadata: {entry}", op.shard);
        }
        if index == 0 {
            assert!(!seen.is_empty(), "the profiler sees the commands at all");
        }
        assert_healthy(&cluster, &comment).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invented_cluster_time_wedges_nobody() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let signature = doc! { "hash": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; 20] }, "keyId": 0_i64 };
    let command =
        doc! { "find": "c", "$clusterTime": { "clusterTime": far_future(), "signature": signature } };
    // Refused or ignored: both are right.
    conn.command(DB, command).await.unwrap();
    assert_healthy(&cluster, "an invented $clusterTime").await;
    let command = doc! { "find": "c", "maxTimeMS": 1_000, "readConcern": { "level": "local", "afterClusterTime": far_future() } };
    let reply = conn.command(DB, command).await.unwrap();
    assert!(!is_ok(&reply), "a read after the far future cannot succeed: {reply}");
    assert_healthy(&cluster, "an invented afterClusterTime").await;
}

async fn refused(conn: &mut RawConn, db: &str, command: Document, codes: &[i32]) {
    let shown = command.to_string();
    let reply = conn.command(db, command).await.unwrap();
    assert!(!is_ok(&reply), "{shown} was accepted: {reply}");
    let code =
        reply.get_i32("code").unwrap_or_else(|_| panic!("{shown} was refused without a code: {reply}"));
    assert!(codes.is_empty() || codes.contains(&code), "{shown}: code {code} instead of {codes:?}: {reply}");
    assert!(reply.get_str("codeName").is_ok() && reply.get_str("errmsg").is_ok(), "{shown}: {reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_parameters_are_refused() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let aggregate = |more: Document| {
        let mut command = doc! { "aggregate": "c", "pipeline": [], "cursor": {} };
        command.extend(more);
        command
    };
    let constants = doc! { "localNow": bson::DateTime::from_millis(0), "clusterTime": Timestamp { time: 1, increment: 1 } };
    refused(&mut conn, DB, aggregate(doc! { "fromMongos": true }), &[51089]).await;
    refused(&mut conn, DB, aggregate(doc! { "needsMerge": true }), &[9]).await;
    refused(&mut conn, DB, aggregate(doc! { "fromMongos": true, "needsMerge": true }), &[51089]).await;
    refused(&mut conn, DB, aggregate(doc! { "runtimeConstants": constants.clone() }), &[51143]).await;
    let exchange = doc! { "policy": "broadcast", "consumers": 2, "bufferSize": 1024 };
    refused(&mut conn, DB, aggregate(doc! { "exchange": exchange }), &[51028]).await;
    refused(&mut conn, DB, doc! { "find": "c", "runtimeConstants": constants.clone() }, &[51202]).await;
    for command in [
        doc! { "update": "c", "updates": [{ "q": { "n": 1 }, "u": { "$set": { "y": 1 } } }], "runtimeConstants": constants.clone() },
        doc! { "delete": "c", "deletes": [{ "q": { "n": 1 }, "limit": 1 }], "runtimeConstants": constants.clone() },
        doc! { "findAndModify": "c", "query": { "n": 1 }, "update": { "$set": { "y": 1 } }, "runtimeConstants": constants },
    ] {
        refused(&mut conn, DB, command, &[]).await;
    }
    let twice = doc! { "find": "c", "filter": { "n": 1 } };
    let mut bytes = twice.to_vec().unwrap();
    // The same top-level field twice: a second `filter` spliced in before the end.
    let again = doc! { "filter": { "n": 2 }, "$db": DB }.to_vec().unwrap();
    bytes.pop();
    bytes.extend_from_slice(&again[4..]);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let mut body = vec![0; 5];
    body.extend_from_slice(&bytes);
    conn.send(&testkit::raw::frame(99, testkit::raw::OP_MSG, &body)).await.unwrap();
    let reply = conn.receive().await.unwrap().unwrap().document().unwrap();
    assert!([9, 40413].contains(&reply.get_i32("code").unwrap_or(0)), "a field twice: {reply}");
    refused(&mut conn, "local", doc! { "find": "startup_log" }, &[20]).await;
    assert_healthy(&cluster, "internal parameters").await;
}

fn internal_stages() -> Vec<Document> {
    vec![
        doc! { "$mergeCursors": { "sort": {}, "compareWholeSortKey": false, "remotes": [], "nss": "forb.c", "allowPartialResults": false } },
        doc! { "$_internalInhibitOptimization": {} },
        doc! { "$_internalSplitPipeline": {} },
        doc! { "$_internalUnpackBucket": { "timeField": "t", "exclude": [], "bucketMaxSpanSeconds": 3600 } },
        doc! { "$_internalBoundedSort": { "sortKey": { "n": 1 }, "bound": { "base": "min" } } },
        doc! { "$_internalConvertBucketIndexStats": {} },
        doc! { "$_internalSetWindowFields": { "sortBy": { "n": 1 }, "output": {} } },
        doc! { "$_internalAllCollectionStats": {} },
        doc! { "$_internalReshardingIterateTransaction": {} },
        doc! { "$_internalFindAndModifyImageLookup": {} },
        doc! { "$_internalApplyOplogUpdate": { "oplogUpdate": {} } },
        doc! { "$_internalNotARealStage": {} },
        doc! { "$_addReshardingResumeId": {} },
        doc! { "$queue": [] },
        doc! { "$setVariableFromSubPipeline": {} },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_stages_are_refused_at_any_depth() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    for stage in internal_stages() {
        let nested = [
            vec![stage.clone()],
            vec![doc! { "$match": { "n": 1 } }, stage.clone()],
            vec![doc! { "$match": { "n": 1 } }, doc! { "$facet": { "a": [stage.clone()] } }],
            vec![
                doc! { "$match": { "n": 1 } },
                doc! { "$lookup": { "from": "c", "as": "x", "pipeline": [stage.clone()] } },
            ],
            vec![
                doc! { "$match": { "n": 1 } },
                doc! { "$unionWith": { "coll": "c", "pipeline": [stage.clone()] } },
            ],
        ];
        for pipeline in nested {
            refused(&mut conn, DB, doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {} }, &[]).await;
        }
        assert_healthy(&cluster, &stage.to_string()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_holds_an_internal_stage() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    conn.command_ok(DB, doc! { "create": "good", "viewOn": "c", "pipeline": [{ "$match": { "n": 1 } }] })
        .await
        .unwrap();
    for stage in internal_stages() {
        for pipeline in [vec![stage.clone()], vec![doc! { "$facet": { "a": [stage.clone()] } }]] {
            let view = doc! { "create": "bad", "viewOn": "c", "pipeline": pipeline.clone() };
            refused(&mut conn, DB, view, &[]).await;
            let change = doc! { "collMod": "good", "viewOn": "c", "pipeline": pipeline };
            refused(&mut conn, DB, change, &[]).await;
        }
    }
    assert_healthy(&cluster, "views of internal stages").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_commands_do_not_exist() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let majority = doc! { "w": "majority" };
    let commands = [
        ("admin", doc! { "_configsvrAddShard": "x/127.0.0.1:1", "writeConcern": majority.clone() }),
        ("admin", doc! { "_configsvrRemoveShard": "shard1", "writeConcern": majority.clone() }),
        (
            "admin",
            doc! { "_configsvrMoveRange": "forb.c", "toShard": "shard1", "min": { "n": bson::Bson::MinKey } },
        ),
        ("admin", doc! { "_configsvrCreateDatabase": "x", "writeConcern": majority.clone() }),
        ("admin", doc! { "_configsvrBalancerStart": 1 }),
        (DB, doc! { "_shardsvrDropCollection": "c", "writeConcern": majority.clone() }),
        (DB, doc! { "_shardsvrDropDatabase": 1, "writeConcern": majority.clone() }),
        (
            DB,
            doc! { "_shardsvrCreateCollection": "x", "shardKey": { "a": 1 }, "writeConcern": majority.clone() },
        ),
        ("admin", doc! { "_shardsvrMovePrimary": DB, "to": "shard1", "writeConcern": majority }),
        ("admin", doc! { "_recvChunkStart": "forb.c" }),
        ("admin", doc! { "_flushRoutingTableCacheUpdates": "forb.c" }),
        (DB, doc! { "clusterFind": "c" }),
        (DB, doc! { "clusterAggregate": "c", "pipeline": [], "cursor": {} }),
        (DB, doc! { "clusterInsert": "c", "documents": [{ "n": 1 }] }),
        (DB, doc! { "clusterUpdate": "c", "updates": [] }),
        (DB, doc! { "clusterDelete": "c", "deletes": [{ "q": {}, "limit": 0 }] }),
        (DB, doc! { "clusterGetMore": 1_i64, "collection": "c" }),
        (DB, doc! { "clusterCount": "c" }),
        ("admin", doc! { "splitChunk": "forb.c" }),
        ("admin", doc! { "replSetStepDown": 1 }),
        ("admin", doc! { "applyOps": [] }),
    ];
    for (db, command) in commands {
        refused(&mut conn, db, command, &[59]).await;
    }
    assert_healthy(&cluster, "internal commands").await;
    assert_eq!(cluster.config_find("shards", doc! {}, doc! {}).await.unwrap().len(), 2);
}
