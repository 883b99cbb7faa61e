//! What goes wrong meanwhile: chunks move, split and merge, primaries step down, are killed and paused, routers die.
//!
//! Nothing here is judged: a disturbance that a loaded machine does not finish in time is counted and left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bson::{Bson, Document, doc};
use parking_lot::Mutex;
use testkit::{Cluster, Member, ReplicaSet};
use tokio::time::{sleep, timeout};

use crate::history::{Ledger, Random};
use crate::{ACCOUNTS, DB, ENTRIES, ITEMS};

/// Beyond so many chunks of a collection, some are merged again.
const CHUNKS: usize = 30;
const MOVE_LIMIT: Duration = Duration::from_secs(90);

/// How often each disturbance was done, and how often one was not finished.
#[derive(Default)]
pub(crate) struct Done(Mutex<BTreeMap<String, u64>>);

impl Done {
    fn note<T>(&self, what: &str, result: &Result<T>) {
        let name = if result.is_ok() { what.to_owned() } else { format!("{what} (refused or not finished)") };
        *self.0.lock().entry(name).or_default() += 1;
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}

async fn pause(ledger: &Ledger, length: Duration) {
    let slice = Duration::from_millis(200);
    let mut left = length;
    while ledger.running() && !left.is_zero() {
        sleep(left.min(slice)).await;
        left = left.saturating_sub(slice);
    }
}

fn about(random: &mut Random, length: Duration) -> Duration {
    length.mul_f64(0.6 + 0.8 * f64::from(u32::try_from(random.below(1_000)).unwrap()) / 1_000.0)
}

/// Runs a command on `admin` of a router that lives.
async fn admin(cluster: &Cluster, random: &mut Random, command: Document) -> Result<Document> {
    let routers = cluster.routers();
    let first = random.below(routers.len());
    for index in [first, first + 1] {
        let router = routers.get(index % routers.len()).context("no router")?;
        if let Ok(mut conn) = router.raw().await {
            return timeout(MOVE_LIMIT, conn.command_ok("admin", command)).await?;
        }
    }
    bail!("no router answers")
}

/// Moves one chunk after the other, and splits and merges between.
pub(crate) async fn move_chunks(
    cluster: Arc<Cluster>,
    ledger: Arc<Ledger>,
    done: Arc<Done>,
    mut random: Random,
) {
    let mut round = 0_u64;
    while ledger.running() {
        round += 1;
        let collection = [ITEMS, ITEMS, ACCOUNTS, ACCOUNTS, ENTRIES][random.below(5)];
        let ns = format!("{DB}.{collection}");
        let find = if collection == ENTRIES {
            doc! { "_id": i64::try_from(random.below(1_000_000)).unwrap() }
        } else {
            doc! { "k": random.key() }
        };
        if round.is_multiple_of(3) {
            let (what, result) = split_or_merge(&cluster, &mut random, &ns, &find).await;
            done.note(what, &result);
        }
        let to = format!("shard{}", random.below(cluster.shards().len()));
        let command = doc! { "moveChunk": &ns, "find": find, "to": to };
        let moved = admin(&cluster, &mut random, command).await;
        if moved.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn split_or_merge(
    cluster: &Cluster,
    random: &mut Random,
    ns: &str,
    find: &Document,
) -> (&'static str, Result<Document>) {
    let chunks = timeout(MOVE_LIMIT, cluster.chunks(ns)).await.unwrap_or_else(|late| Err(late.into()));
    match chunks {
        Err(error) => ("split", Err(error)),
        Ok(chunks) if chunks.len() < CHUNKS => {
            let how = if find.contains_key("k") { "middle" } else { "find" };
            ("split", admin(cluster, random, doc! { "split": ns, how: find.clone() }).await)
        }
        Ok(chunks) => {
            let shard = |chunk: &Document| chunk.get("shard").and_then(Bson::as_str).map(str::to_owned);
            let start = random.below(chunks.len());
            let pair = chunks
                .iter()
                .zip(chunks.iter().skip(1))
                .cycle()
                .skip(start)
                .take(chunks.len())
                .find(|(left, right)| shard(left) == shard(right));
            let merged = match pair.map(|(left, right)| (left.get("min"), right.get("max"))) {
                Some((Some(min), Some(max))) => {
                    let command = doc! { "mergeChunks": ns, "bounds": [min.clone(), max.clone()] };
                    admin(cluster, random, command).await
                }
                _ => Err(anyhow::anyhow!("no two chunks to merge")),
            };
            ("merge", merged)
        }
    }
}

/// Waits for the time of the next disturbance; false when the ledger ended meanwhile.
async fn next(ledger: &Ledger, random: &mut Random, every: Duration) -> bool {
    pause(ledger, about(random, every)).await;
    ledger.running()
}

/// Kills a router, lets the clients do with the other one, starts it again.
pub(crate) async fn kill_routers(
    cluster: Arc<Cluster>,
    ledger: Arc<Ledger>,
    done: Arc<Done>,
    mut random: Random,
    every: Duration,
) {
    while next(&ledger, &mut random, every).await {
        let Some(router) = cluster.routers().get(random.below(cluster.routers().len())) else { return };
        let what = if random.below(4) == 0 {
            let _ = router.terminate();
            sleep(Duration::from_millis(500)).await;
            router.kill();
            "router stopped (SIGTERM)"
        } else {
            router.kill();
            "router killed (SIGKILL)"
        };
        sleep(about(&mut random, Duration::from_secs(2))).await;
        done.note(what, &router.restart().await);
    }
}

/// Disturbs one shard after the other; each is whole again before the next one is disturbed.
pub(crate) async fn disturb_shards(
    cluster: Arc<Cluster>,
    ledger: Arc<Ledger>,
    done: Arc<Done>,
    mut random: Random,
    every: Duration,
) {
    while next(&ledger, &mut random, every).await {
        // As many chances as it has members: only those with several hold elections.
        let chances: Vec<&ReplicaSet> = cluster
            .shards()
            .iter()
            .flat_map(|shard| std::iter::repeat_n(shard, shard.members().len()))
            .collect();
        let Some(shard) = chances.get(random.below(chances.len())) else { return };
        let kind = random.below(20);
        let length = about(&mut random, Duration::from_secs(3));
        let (what, result) = if shard.members().len() > 1 {
            match kind {
                0..7 => ("election by step-down", step_down(shard).await),
                7..13 => ("election after SIGKILL of the primary", kill_primary(shard, length).await),
                13..17 => ("election while the primary is paused", pause_primary(shard, length, true).await),
                17 => ("primary paused", pause_primary(shard, length, false).await),
                _ => ("secondary killed (SIGKILL)", kill_secondary(shard, length).await),
            }
        } else if kind < 14 {
            ("only member killed (SIGKILL)", kill_primary(shard, length.div_f64(3.0)).await)
        } else {
            ("primary paused", pause_primary(shard, length, false).await)
        };
        done.note(what, &result);
        if let Err(error) = result {
            eprintln!("{what} of {}: {error:#}", shard.name());
        }
        heal(shard).await;
    }
}

async fn step_down(shard: &ReplicaSet) -> Result<()> {
    let old = shard.primary().await?;
    let command = doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5, "force": true };
    old.command("admin", command).await?;
    shard.elect_another_than(old).await?;
    Ok(())
}

async fn kill_primary(shard: &ReplicaSet, length: Duration) -> Result<()> {
    let old = shard.primary().await?;
    old.kill();
    if shard.members().len() > 1 {
        shard.elect_another_than(old).await?;
    }
    sleep(length).await;
    old.restart().await
}

async fn pause_primary(shard: &ReplicaSet, length: Duration, elect: bool) -> Result<()> {
    let old = shard.primary().await?;
    old.pause()?;
    let elected = if elect { shard.elect_another_than(old).await.map(|_| ()) } else { Ok(()) };
    sleep(length).await;
    // It still takes itself for the primary, and has requests in its queues.
    old.resume()?;
    elected
}

async fn kill_secondary(shard: &ReplicaSet, length: Duration) -> Result<()> {
    let mut secondary: Option<&Member> = None;
    for member in shard.members() {
        if member.is_secondary().await {
            secondary = Some(member);
        }
    }
    let secondary = secondary.context("no secondary")?;
    secondary.kill();
    sleep(length).await;
    secondary.restart().await
}

/// Starts and wakes every member, and waits for a primary.
pub(crate) async fn heal(shard: &ReplicaSet) {
    for member in shard.members() {
        if member.pid().is_err() {
            if let Err(error) = member.restart().await {
                eprintln!("{error:#}");
            }
        } else {
            let _ = member.resume();
        }
    }
    if let Err(error) = shard.wait_until_complete().await {
        eprintln!("{error:#}");
        if let (Ok(first), true) = (shard.member(0), shard.members().len() > 1) {
            let _ = shard.elect_another_than(first).await;
        }
    }
}
