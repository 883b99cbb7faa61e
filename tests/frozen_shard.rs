//! One shard freezes: only the queries that need it suffer, and they end in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use mongodb::Collection;
use mongodb::error::ErrorKind;
use testkit::Cluster;
use tokio::task::JoinSet;
use tokio::time::Instant;

const MAX_TIME: Duration = Duration::from_millis(1_000);
const QUERIES: usize = 2_000;
const HANGING_CALLERS: usize = 16;
/// The machine itself has bad moments: the best of these rounds is what the router does.
const ROUNDS: usize = 3;

/// The 99th percentile of queries by key on the first two shards.
async fn p99(coll: &Collection<Document>) -> Duration {
    let mut took = Vec::with_capacity(QUERIES);
    for n in 0..QUERIES {
        let key = if n % 2 == 0 { 1 } else { 101 };
        let begin = Instant::now();
        let found = coll.find_one(doc! { "k": key }).await.expect("a query for a healthy shard failed");
        took.push(begin.elapsed());
        assert!(found.is_some());
    }
    took.sort_unstable();
    took[QUERIES * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_shard_slows_only_the_queries_that_need_it() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("fr.c", "k", &[100, 200]).await.unwrap();
    let healthy = cluster.client().await.unwrap().database("fr").collection::<Document>("c");
    healthy.insert_many([1, 101, 201].map(|k| doc! { "k": k })).await.unwrap();
    p99(&healthy).await;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = p99(&healthy).await;
        let frozen = cluster.shard(2).unwrap().member(0).unwrap();
        frozen.pause().unwrap();

        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicUsize::new(0));
        let mut callers = JoinSet::new();
        for caller in 0..HANGING_CALLERS {
            // Half of them through clients of their own: also new connections must not wait for the frozen shard.
            let hanging = cluster.client().await.unwrap().database("fr").collection::<Document>("c");
            let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
            callers.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    // By key, or with all the shards in it.
                    let filter = if caller % 2 == 0 {
                        doc! { "k": 201 }
                    } else {
                        doc! {}
                    };
                    let error = hanging
                        .find_one(filter)
                        .max_time(MAX_TIME)
                        .await
                        .expect_err("a frozen shard answered");
                    let took = begin.elapsed();
                    let ErrorKind::Command(command) = *error.kind else { panic!("{error}") };
                    assert_eq!(
                        (command.code, command.code_name.as_str()),
                        (50, "MaxTimeMSExpired"),
                        "{}",
                        command.message
                    );
                    assert!(took < MAX_TIME + Duration::from_secs(1), "it took {took:?}");
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        testkit::eventually("every caller has met the frozen shard once", || async {
            ended.load(Ordering::Relaxed) >= HANGING_CALLERS
        })
        .await
        .unwrap();
        let during = p99(&healthy).await;
        stop.store(true, Ordering::Relaxed);
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        frozen.resume().unwrap();
        let found = healthy.find_one(doc! { "k": 201 }).await.expect("the shard is back");
        assert!(found.is_some());
        rounds.push((before, during));
    }
    println!("p99 before and while a shard was frozen: {rounds:?}");
    let good =
        |(before, during): &(Duration, Duration)| *during <= *before * 3 / 2 + Duration::from_millis(2);
    assert!(rounds.iter().any(good), "p99 before and during: {rounds:?}");
}
