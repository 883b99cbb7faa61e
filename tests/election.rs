//! A shard loses its primary: its writers wait for the election, nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use testkit::{Cluster, eventually_within};
use tokio::time::{Instant, timeout};

const OPERATION_LIMIT: Duration = Duration::from_secs(30);

/// Increments one counter until told to stop; gives how often that was acknowledged and the longest it took.
async fn count_up(
    cluster: Arc<Cluster>,
    k: i32,
    stop: Arc<AtomicBool>,
    progress: Arc<AtomicI32>,
) -> (i32, Duration) {
    let coll = cluster.client().await.unwrap().database("el").collection::<Document>("c");
    let mut longest = Duration::ZERO;
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let update = coll.update_one(doc! { "k": k }, doc! { "$inc": { "n": 1 } });
        let updated = timeout(OPERATION_LIMIT, async { update.await })
            .await
            .unwrap_or_else(|_| panic!("a write on k {k} hangs"))
            .unwrap_or_else(|error| panic!("a write on k {k} failed: {error}"));
        assert_eq!(updated.modified_count, 1);
        let found = coll
            .find_one(doc! { "k": k })
            .await
            .unwrap_or_else(|error| panic!("a read on k {k} failed: {error}"));
        assert!(found.unwrap().get_i32("n").unwrap() > acknowledged);
        acknowledged += 1;
        progress.store(acknowledged, Ordering::Relaxed);
        longest = longest.max(begin.elapsed());
    }
    (acknowledged, longest)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_after_the_primary_was_killed_and_other_shards_see_nothing() {
    let cluster = Arc::new(Cluster::builder().shards(2).members(3).start().await.unwrap());
    cluster.spread("el.c", "k", &[100]).await.unwrap();
    let coll = cluster.client().await.unwrap().database("el").collection::<Document>("c");
    coll.insert_many([doc! { "k": 1, "n": 0 }, doc! { "k": 101, "n": 0 }]).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let progress = [Arc::new(AtomicI32::new(0)), Arc::new(AtomicI32::new(0))];
    let start = |k, progress: &Arc<AtomicI32>| {
        tokio::spawn(count_up(Arc::clone(&cluster), k, Arc::clone(&stop), Arc::clone(progress)))
    };
    let hurt = start(1, &progress[0]);
    let other = start(101, &progress[1]);
    let advances = async |by: i32, which: usize, what: &str| {
        let target = progress[which].load(Ordering::Relaxed) + by;
        eventually_within(Duration::from_secs(60), what, || async {
            progress[which].load(Ordering::Relaxed) >= target
        })
        .await
        .unwrap();
    };
    advances(20, 0, "writes before the kill").await;

    let shard = cluster.shard(0).unwrap();
    let primary = shard.primary().await.unwrap();
    primary.kill();
    advances(20, 1, "writes on the other shard during the election").await;
    advances(20, 0, "writes after the election").await;

    primary.restart().await.unwrap();
    shard.wait_until_complete().await.unwrap();
    shard.step_down().await.unwrap();
    advances(20, 0, "writes after a step-down").await;

    stop.store(true, Ordering::Relaxed);
    let (hurt, longest_hurt) = hurt.await.unwrap();
    let (other, longest_other) = other.await.unwrap();
    for (k, acknowledged) in [(1, hurt), (101, other)] {
        let n = coll.find_one(doc! { "k": k }).await.unwrap().unwrap().get_i32("n").unwrap();
        assert_eq!(n, acknowledged, "counter {k}: an acknowledged write was lost or done twice");
    }
    println!(
        "{hurt} writes on the shard that lost its primary (longest {longest_hurt:?}), {other} on the other ({longest_other:?})"
    );
}
