//! Groups over several shards: merged by the router where it knows how, by a shard otherwise, and always as the server's
//! own routing code does.

use bson::{Bson, Document, doc};
use mongodb::Client;
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "grp";
const DOCUMENTS: i32 = 900;

async fn start() -> (Cluster, Client, RawConn, RawConn) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("grp.c", "x", &[300, 600]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let documents = (0..DOCUMENTS).map(|n| {
        let mut document = doc! {
            "_id": n, "x": n, "g": n % 7, "t": format!("t{}", n % 11), "sub": { "a": n % 3, "b": format!("{}", n % 2) },
            "i": n, "l": Bson::Int64(i64::from(n) << 40), "d": f64::from(n) * 0.1, "big": i32::MAX - n,
            "huge": Bson::Int64(i64::MAX - i64::from(n)), "arr": [n % 2, n % 5],
            "mixed": match n % 4 { 0 => Bson::Int32(n), 1 => Bson::Int64(i64::from(n)), 2 => Bson::Double(f64::from(n) / 2.0), _ => Bson::from("text") },
            "money": Bson::Decimal128(format!("{n}.25").parse().unwrap()),
            "o": { format!("f{}", n % 7): n % 7 },
        };
        if n % 3 == 0 {
            document.insert("some", n % 4);
        }
        if n % 5 == 0 {
            document.insert("key", Bson::Null);
        } else if n % 5 < 3 {
            document.insert("key", n % 5);
        }
        document
    });
    client.database(DB).collection::<Document>("c").insert_many(documents).await.unwrap();
    let router = cluster.router(0).unwrap().raw().await.unwrap();
    let shard = cluster.shard(0).unwrap().member(0).unwrap().raw().await.unwrap();
    (cluster, client, router, shard)
}

/// A command of the server's own routing code on a shard; what it knows of chunks gets fresh by its failures.
async fn routed(conn: &mut RawConn, command: Document) -> Document {
    for _ in 0..10 {
        let reply = conn.command(DB, command.clone()).await.unwrap();
        if !reply.get_i32("code").is_ok_and(|code| code == 13388) {
            return reply;
        }
        conn.command_ok("admin", doc! { "flushRouterConfig": 1 }).await.unwrap();
    }
    panic!("stale for good: {command}");
}

/// Everything that a pipeline gives, by the router or by the server's own routing code.
async fn all(
    conn: &mut RawConn,
    first: &str,
    more: &str,
    pipeline: &[Document],
    options: &Document,
) -> Vec<Document> {
    let mut command = doc! { first: "c", "pipeline": pipeline.to_vec(), "cursor": { "batchSize": 50 } };
    if first == "clusterAggregate" {
        command.insert("readConcern", doc! {});
        command.insert("writeConcern", doc! {});
    }
    command.extend(options.clone());
    let mut reply = routed(conn, command).await;
    let mut found = Vec::new();
    loop {
        assert!(is_ok(&reply), "{first} {pipeline:?}: {reply}");
        let cursor = reply.get_document("cursor").unwrap();
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).unwrap();
        found.extend(batch.iter().map(|group| group.as_document().unwrap().clone()));
        let id = cursor.get_i64("id").unwrap();
        if id == 0 {
            return found;
        }
        reply = conn.command(DB, doc! { more: id, "collection": "c" }).await.unwrap();
    }
}

/// In an order of its own: what the order of groups, of a list and of a set is, nobody promises.
fn unordered(groups: Vec<Document>) -> Vec<Vec<u8>> {
    let mut groups: Vec<Vec<u8>> = groups
        .into_iter()
        .map(|mut group| {
            for name in ["all", "set"] {
                if let Ok(list) = group.get_array_mut(name) {
                    list.sort_by_key(|item| bson::serialize_to_vec(&doc! { "": item.clone() }).unwrap());
                }
            }
            bson::serialize_to_vec(&group).unwrap()
        })
        .collect();
    groups.sort();
    groups
}

fn accumulators() -> Document {
    doc! {
        "n": { "$sum": 1 }, "c": { "$count": {} }, "i": { "$sum": "$i" }, "l": { "$sum": "$l" }, "d": { "$sum": "$d" }, "big": { "$sum": "$big" },
        "huge": { "$sum": "$huge" }, "mixed": { "$sum": "$mixed" }, "none": { "$sum": "$none" }, "avg": { "$avg": "$i" }, "avgMixed": { "$avg": "$mixed" },
        "avgNone": { "$avg": "$t" }, "min": { "$min": "$some" }, "max": { "$max": "$mixed" }, "minNone": { "$min": "$none" },
        "all": { "$push": "$i" }, "set": { "$addToSet": "$some" }, "o": { "$mergeObjects": "$o" },
    }
}

/// How often a shard merged what others sent.
async fn merges_on_shards(cluster: &Cluster) -> usize {
    let merging = doc! { "command.pipeline.0.$mergeCursors": { "$exists": true } };
    cluster.profiled(DB, merging).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_merges_groups_as_servers_do() {
    let (cluster, _client, mut router, mut shard) = start().await;
    let mut pipelines: Vec<Vec<Document>> = Vec::new();
    for id in ["$g", "$t", "$sub", "$key", "$arr", "$sub.a", "$none"] {
        let mut group = doc! { "_id": id };
        let mut accumulators = accumulators();
        if id != "$g" {
            // Which of several documents comes last differs.
            accumulators.remove("o");
        }
        group.extend(accumulators);
        pipelines.push(vec![doc! { "$group": group }]);
    }
    pipelines.extend([
        vec![doc! { "$group": { "_id": { "a": "$sub.a", "k": "$key" }, "n": { "$sum": "$i" } } }],
        vec![doc! { "$group": { "_id": "$x" } }],
        vec![doc! { "$sortByCount": "$t" }],
        vec![doc! { "$match": { "x": { "$gte": 250 } } }, doc! { "$sortByCount": { "$mod": ["$x", 13] } }],
        vec![doc! { "$bucket": { "groupBy": "$x", "boundaries": [0, 250, 500.5, 700_i64], "default": "rest" } }],
        vec![doc! { "$unwind": "$arr" }, doc! { "$group": { "_id": "$arr", "s": { "$sum": "$i" } } }],
    ]);
    let in_order = [
        vec![doc! { "$group": { "_id": "$t", "s": { "$sum": "$i" } } }, doc! { "$sort": { "s": -1 } }],
        vec![
            doc! { "$group": { "_id": "$i", "m": { "$max": "$g" } } },
            doc! { "$sort": { "m": 1, "_id": -1 } },
            doc! { "$skip": 30 },
            doc! { "$limit": 123 },
        ],
        vec![
            doc! { "$group": { "_id": "$sub", "s": { "$avg": "$d" } } },
            doc! { "$sort": { "_id.b": 1, "_id.a": -1 } },
        ],
        vec![doc! { "$group": { "_id": "$g" } }, doc! { "$sort": { "_id": 1 } }, doc! { "$limit": 3 }],
        vec![doc! { "$group": { "_id": "$g" } }, doc! { "$count": "groups" }],
        vec![doc! { "$count": "n" }, doc! { "$limit": 5 }],
    ];
    cluster.start_profiling(DB).await.unwrap();
    for pipeline in &pipelines {
        let found = all(&mut router, "aggregate", "getMore", pipeline, &doc! {}).await;
        assert_eq!(merges_on_shards(&cluster).await, 0, "{pipeline:?}");
        let expected = all(&mut shard, "clusterAggregate", "clusterGetMore", pipeline, &doc! {}).await;
        assert!(
            unordered(found.clone()) == unordered(expected.clone()),
            "{pipeline:?}: {found:#?} instead of {expected:#?}"
        );
    }
    for pipeline in &in_order {
        let found = all(&mut router, "aggregate", "getMore", pipeline, &doc! {}).await;
        let expected = all(&mut shard, "clusterAggregate", "clusterGetMore", pipeline, &doc! {}).await;
        assert_eq!(found, expected, "{pipeline:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_router_does_not_merge_a_shard_does() {
    let (cluster, _client, mut router, mut shard) = start().await;
    cluster.start_profiling(DB).await.unwrap();
    let group = |fields: Document| {
        let mut group = doc! { "_id": "$g" };
        group.extend(fields);
        vec![doc! { "$group": group }]
    };
    let en = doc! { "collation": { "locale": "en", "strength": 2 } };
    let mut merges = 0;
    for (pipeline, options) in [
        (group(doc! { "s": { "$sum": "$money" } }), doc! {}),
        (group(doc! { "s": { "$stdDevPop": "$g" } }), doc! {}),
        (group(doc! { "s": { "$sum": 1 } }), en),
        (group(doc! { "s": { "$sum": 1 } }), doc! { "allowDiskUse": true }),
        (
            vec![
                doc! { "$group": { "_id": "$arr", "n": { "$sum": 1 } } },
                doc! { "$sort": { "_id": 1, "n": 1 } },
            ],
            doc! {},
        ),
        (
            vec![
                doc! { "$sort": { "x": 1 } },
                doc! { "$group": { "_id": "$g", "f": { "$first": "$x" }, "l": { "$last": "$x" } } },
            ],
            doc! {},
        ),
    ] {
        let found = all(&mut router, "aggregate", "getMore", &pipeline, &options).await;
        merges += 1;
        assert_eq!(merges_on_shards(&cluster).await, merges, "{pipeline:?}");
        let expected = all(&mut shard, "clusterAggregate", "clusterGetMore", &pipeline, &options).await;
        merges = merges_on_shards(&cluster).await;
        assert!(
            unordered(found.clone()) == unordered(expected.clone()),
            "{pipeline:?}: {found:#?} instead of {expected:#?}"
        );
    }
    // More groups than there is memory for.
    let many =
        vec![doc! { "$group": { "_id": "$x", "t": { "$push": "$t" } } }, doc! { "$sort": { "_id": 1 } }];
    let before = all(&mut router, "aggregate", "getMore", &many, &doc! {}).await;
    assert_eq!(merges_on_shards(&cluster).await, merges);
    let small = doc! { "setParameter": 1, "pointsmanGroupMergeMaxBytes": 10_000 };
    router.command_ok("admin", small).await.unwrap();
    let after = all(&mut router, "aggregate", "getMore", &many, &doc! {}).await;
    assert_eq!(merges_on_shards(&cluster).await, merges + 1);
    assert_eq!(before, after);
    // Both ways leave nothing open behind.
    for shard in cluster.shards() {
        testkit::eventually(&format!("{} has no open cursor", shard.name()), || async {
            let status = shard.command("admin", doc! { "serverStatus": 1 }).await.unwrap();
            let cursors = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
            cursors.get_document("open").unwrap().get_i64("total").unwrap() == 0
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_tells_who_merges() {
    let (_cluster, _client, mut router, mut shard) = start().await;
    let group = doc! { "$group": { "_id": "$g", "n": { "$sum": 1 } } };
    let odd = doc! { "$group": { "_id": "$g", "n": { "$stdDevPop": "$i" } } };
    let sort = doc! { "$sort": { "n": 1 } };
    for (pipeline, disk, alike) in [
        (vec![group.clone()], false, true),
        (vec![group.clone(), sort], false, true),
        (vec![group.clone()], true, true),
        (vec![doc! { "$sortByCount": "$g" }], false, true),
        // A mongos merges this by itself.
        (vec![odd], false, false),
    ] {
        let explained = |name: &str| {
            let mut command = doc! { name: "c", "pipeline": pipeline.clone(), "cursor": {} };
            if disk {
                command.insert("allowDiskUse", true);
            }
            doc! { "explain": command, "verbosity": "queryPlanner" }
        };
        let found = router.command_ok(DB, explained("aggregate")).await.unwrap();
        let expected = routed(&mut shard, explained("clusterAggregate")).await;
        let merge = |reply: &Document| reply.get_str("mergeType").unwrap().to_owned();
        assert_eq!(
            merge(&found) == merge(&expected),
            alike,
            "{pipeline:?}: {} {}",
            merge(&found),
            merge(&expected)
        );
    }
}
