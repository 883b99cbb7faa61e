//! Large unordered and ordered inserts over hashed shards: what they cost the router beside the shards.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use testkit::Cluster;

const DATABASE: &str = "bench";
const SHARDS: usize = 3;
const BATCH: i64 = 1_000;

/// Inserts documents in batches of a thousand, unordered and then ordered, and prints what each cost.
pub(crate) async fn run(router: Option<PathBuf>, documents: i64) -> Result<()> {
    let mut builder = Cluster::builder().shards(SHARDS).members(1).routers(1).cache_gb(1.0);
    if let Some(router) = router {
        builder = builder.router_binary(router);
    }
    let cluster = builder.start().await?;
    let client = cluster.client().await?;
    // An ordered batch of hashed keys is a run of one or two documents after the other, on any router: fewer will do.
    for (ordered, documents) in [(false, documents), (true, documents / 20)] {
        let name = if ordered { "ordered" } else { "unordered" };
        cluster
            .admin(doc! { "shardCollection": format!("{DATABASE}.{name}"), "key": { "_id": "hashed" } })
            .await?;
        let collection = client.database(DATABASE).collection::<Document>(name);
        // Connections and routing tables are there before it is measured.
        collection.insert_many((-BATCH..0).map(document)).ordered(ordered).await?;
        let before = costs(&cluster)?;
        let started = Instant::now();
        let mut at = 0;
        while at < documents {
            let end = (at + BATCH).min(documents);
            let inserted = collection.insert_many((at..end).map(document)).ordered(ordered).await?;
            ensure!(i64::try_from(inserted.inserted_ids.len())? == end - at, "not all were inserted");
            at = end;
        }
        let seconds = started.elapsed().as_secs_f64();
        let after = costs(&cluster)?;
        let (router, shards) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        println!(
            "{name}: {documents} documents of {} bytes in {seconds:.1} s; CPU: router {:.2} s, shards together {:.2} s: \
             {:.1} %",
            document(0).to_vec()?.len(),
            router.as_secs_f64(),
            shards.as_secs_f64(),
            100.0 * router.as_secs_f64() / shards.as_secs_f64().max(1e-9)
        );
    }
    Ok(())
}

/// CPU of the router and of all shards.
fn costs(cluster: &Cluster) -> Result<(Duration, Duration)> {
    let mut shards = Duration::ZERO;
    for shard in cluster.shards() {
        shards += shard.member(0)?.usage()?.cpu;
    }
    Ok((cluster.router(0)?.usage()?.cpu, shards))
}

/// A document of 200 bytes.
fn document(id: i64) -> Document {
    doc! { "_id": id, "n": id.wrapping_mul(7_919), "level": "info", "text": "x".repeat(144) }
}
