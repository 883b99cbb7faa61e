//! How many requests a transaction costs its shards.

use std::collections::BTreeMap;

use bson::doc;
use testkit::Cluster;

use crate::*;

/// How often each shard ran the commands that end transactions, from its own counters.
async fn ends(cluster: &Cluster) -> BTreeMap<(usize, String), i64> {
    let mut counts = BTreeMap::new();
    for shard in 0..3 {
        let status =
            cluster.shard(shard).unwrap().command("admin", doc! { "serverStatus": 1 }).await.unwrap();
        let commands = status.get_document("metrics").unwrap().get_document("commands").unwrap().clone();
        for name in
            ["commitTransaction", "abortTransaction", "prepareTransaction", "coordinateCommitTransaction"]
        {
            let total = commands.get_document(name).unwrap().get_i64("total").unwrap();
            counts.insert((shard, name.to_owned()), total);
        }
    }
    counts
}

/// How often the profilers saw each operation on the collection since they were started.
async fn statements(cluster: &Cluster) -> BTreeMap<(usize, String), i64> {
    let mut counts = BTreeMap::new();
    for op in cluster.profiled(DB, doc! { "ns": "t.r" }).await.unwrap() {
        let shard = op.shard.trim_start_matches("shard").parse().unwrap();
        *counts.entry((shard, op.entry.get_str("op").unwrap().to_owned())).or_default() += 1;
    }
    counts
}

/// What each shard ran while `work` ran.
async fn ran(cluster: &Cluster, work: impl Future<Output = ()>) -> Vec<(usize, String, i64)> {
    let before = ends(cluster).await;
    // It forgets what it saw before.
    cluster.start_profiling(DB).await.unwrap();
    work.await;
    cluster.stop_profiling(DB).await.unwrap();
    let mut after = ends(cluster).await;
    after.extend(statements(cluster).await);
    let ran = after.into_iter().map(|(key, total)| {
        let n = total - before.get(&key).copied().unwrap_or(0);
        (key.0, key.1, n)
    });
    ran.filter(|(_, _, n)| *n != 0).collect()
}

fn list(ran: &[(usize, String, i64)]) -> Vec<(usize, &str, i64)> {
    ran.iter().map(|(shard, name, n)| (*shard, &**name, *n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_round_trip_is_made_that_the_protocol_does_not_need() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    // Both shards know the collection.
    for x in [10, 110, 210] {
        conn.command_ok(DB, add(x, 0)).await.unwrap();
    }
    // Four statements, two shards that write: each goes once; one request hands the decision over; the two-phase commit
    // is the coordinator's own.
    let two = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 1);
        for x in [10, 110, 20, 120] {
            transaction.ok(&mut conn, add(x, 1)).await;
        }
        assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    })
    .await;
    assert_eq!(
        list(&two),
        [
            (0, "commitTransaction", 1),
            (0, "coordinateCommitTransaction", 1),
            (0, "prepareTransaction", 1),
            (0, "update", 2),
            (1, "commitTransaction", 1),
            (1, "prepareTransaction", 1),
            (1, "update", 2),
        ]
    );
    // One shard commits by itself.
    let one = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 2);
        for x in [10, 20] {
            transaction.ok(&mut conn, add(x, 1)).await;
        }
        assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    })
    .await;
    assert_eq!(list(&one), [(0, "commitTransaction", 1), (0, "update", 2)]);
    // One that writes and one that reads need no coordinator.
    let single = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 3);
        transaction.ok(&mut conn, doc! { "find": "r", "filter": { "x": 10 } }).await;
        transaction.ok(&mut conn, add(110, 1)).await;
        assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    })
    .await;
    assert_eq!(
        list(&single),
        [(0, "commitTransaction", 1), (0, "query", 1), (1, "commitTransaction", 1), (1, "update", 1)]
    );
    // An update of many goes to the shards that it concerns, not to all.
    let many = ran(&cluster, async {
        let mut transaction = Transaction::new(1, 4);
        let update = doc! { "update": "r", "updates": [
            { "q": { "x": { "$lt": 150 } }, "u": { "$inc": { "v": 1 } }, "multi": true },
        ] };
        assert_eq!(transaction.ok(&mut conn, update).await.get_i32("n").unwrap(), 15);
        assert!(is_ok(&transaction.end(&mut conn, "abortTransaction").await));
    })
    .await;
    assert_eq!(
        list(&many),
        [(0, "abortTransaction", 1), (0, "update", 1), (1, "abortTransaction", 1), (1, "update", 1)]
    );
}
