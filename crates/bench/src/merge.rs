//! A large sorted merge: what it costs the router beside the shards, and whether memory stays flat.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::doc;
use futures_util::TryStreamExt;
use testkit::{Cluster, Usage};

pub(crate) const DATABASE: &str = "bench";
pub(crate) const COLLECTION: &str = "merged";
pub(crate) const SHARDS: usize = 4;

/// Loads documents over four shards, reads them all in an order that is no shard key, and prints what it cost.
pub(crate) async fn run(router: Option<std::path::PathBuf>, documents: i64, pause: Duration) -> Result<()> {
    let mut builder = Cluster::builder().shards(SHARDS).members(1).routers(1).cache_gb(1.0);
    if let Some(router) = router {
        builder = builder.router_binary(router);
    }
    let cluster = builder.start().await?;
    load(&cluster, documents).await.context("loading")?;
    let before = Costs::of(&cluster)?;
    let started = Instant::now();
    let mut peak = before.router.rss_bytes;
    let client = cluster.client().await?;
    let collection = client.database(DATABASE).collection::<bson::RawDocumentBuf>(COLLECTION);
    let mut cursor = collection.find(doc! {}).sort(doc! { "r": 1, "_id": 1 }).batch_size(1000).await?;
    let mut seen = 0_i64;
    let mut last: Option<(i64, i64)> = None;
    while let Some(document) = cursor.try_next().await? {
        let key = (document.get_i64("r")?, document.get_i64("_id")?);
        ensure!(last.is_none_or(|last| last < key), "out of order: {last:?} before {key:?}");
        last = Some(key);
        seen += 1;
        if seen % 50_000 == 0 {
            peak = peak.max(Costs::of(&cluster)?.router.rss_bytes);
        }
        if seen == documents / 2 && !pause.is_zero() {
            tokio::time::sleep(pause).await;
            peak = peak.max(Costs::of(&cluster)?.router.rss_bytes);
        }
    }
    ensure!(seen == documents, "{seen} of {documents} documents came");
    let after = Costs::of(&cluster)?;
    let router = after.router.cpu.saturating_sub(before.router.cpu);
    let shards = after.shards.saturating_sub(before.shards);
    println!("{seen} documents of {SHARDS} shards in order, {:.1} s", started.elapsed().as_secs_f64());
    println!(
        "CPU: router {:.2} s, shards together {:.2} s: {:.1} %",
        router.as_secs_f64(),
        shards.as_secs_f64(),
        100.0 * router.as_secs_f64() / shards.as_secs_f64().max(1e-9)
    );
    println!(
        "router memory: {:.1} MiB before, {:.1} MiB at most, {:.1} MiB after",
        mib(before.router.rss_bytes),
        mib(peak),
        mib(after.router.rss_bytes)
    );
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // printed with one digit
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// CPU used so far.
pub(crate) struct Costs {
    pub(crate) router: Usage,
    pub(crate) shards: Duration,
}

impl Costs {
    pub(crate) fn of(cluster: &Cluster) -> Result<Self> {
        let mut shards = Duration::ZERO;
        for shard in cluster.shards() {
            shards += shard.member(0)?.usage()?.cpu;
        }
        Ok(Self { router: cluster.router(0)?.usage()?, shards })
    }
}

/// Hashes documents over the shards.
pub(crate) async fn load(cluster: &Cluster, documents: i64) -> Result<()> {
    cluster
        .admin(doc! { "shardCollection": format!("{DATABASE}.{COLLECTION}"), "key": { "_id": "hashed" } })
        .await?;
    let client = cluster.client().await?;
    let collection = client.database(DATABASE).collection::<bson::Document>(COLLECTION);
    collection.create_index(mongodb::IndexModel::builder().keys(doc! { "r": 1, "_id": 1 }).build()).await?;
    let text = "x".repeat(140);
    let mut at = 0;
    while at < documents {
        let end = (at + 5_000).min(documents);
        let batch =
            (at..end).map(|id| doc! { "_id": id, "r": id.wrapping_mul(7_919) % 1_000_003, "text": &text });
        collection.insert_many(batch).ordered(false).await?;
        at = end;
    }
    Ok(())
}
