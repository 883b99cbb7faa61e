//! Groups over three shards: merged by the router, by a shard, and by the server's own routing code, in one run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use testkit::raw::{RawConn, is_ok};
use testkit::{Cluster, Usage};

const DATABASE: &str = "bench";
const COLLECTION: &str = "grouped";
/// Shards that own data; one more owns nothing and runs the server's own routing code.
const SHARDS: usize = 3;
/// A few groups beside the many.
const FEW: i64 = 1_000;

/// What is asked for, and of whom.
struct Way<'a> {
    name: &'a str,
    address: String,
    /// The process whose CPU is read.
    pid: u32,
    command: Document,
    more: &'a str,
}

impl<'a> Way<'a> {
    fn by_router(cluster: &Cluster, name: &'a str, command: Document) -> Result<Self> {
        let router = cluster.router(0)?;
        Ok(Self { name, address: router.address(), pid: router.pid()?, command, more: "getMore" })
    }

    /// By the server's own routing code, on a shard that owns nothing.
    fn by_server(cluster: &Cluster, command: Document) -> Result<Self> {
        let idle = cluster.shard(SHARDS)?.member(0)?;
        let (address, pid) = (idle.address(), idle.pid()?);
        Ok(Self { name: "cluster*", address, pid, command, more: "clusterGetMore" })
    }
}

/// What one way cost.
struct Cost {
    took: Duration,
    cpu: Duration,
    shards: Duration,
    grown: u64,
}

/// Loads documents with `keys` different keys and prints what it costs to group them.
pub(crate) async fn run(
    router: Option<std::path::PathBuf>,
    documents: i64,
    keys: i64,
    rounds: usize,
) -> Result<()> {
    let mut builder = Cluster::builder().shards(SHARDS + 1).members(1).routers(1).cache_gb(1.0);
    if let Some(router) = router {
        builder = builder.router_binary(router);
    }
    let cluster = builder.start().await?;
    load(&cluster, documents, keys).await.context("loading")?;
    println!("{documents} documents over {SHARDS} shards, {} processors", host_processors());
    println!("| query | by | wall | CPU of it | CPU of the shards | memory grown at most |");
    println!("|---|---|---|---|---|---|");
    let many = vec![doc! { "$group": { "_id": "$key", "n": { "$sum": 1 }, "v": { "$sum": "$r" } } }];
    let few = vec![doc! { "$group": { "_id": "$few", "n": { "$sum": 1 }, "v": { "$avg": "$r" } } }];
    let top = vec![
        doc! { "$group": { "_id": "$key", "n": { "$sum": 1 } } },
        doc! { "$sort": { "n": -1, "_id": 1 } },
        doc! { "$limit": 10 },
    ];
    for (what, pipeline, expected) in [
        (format!("group by {keys} keys"), many, keys),
        (format!("group by {FEW} keys"), few, FEW),
        (format!("ten largest of {keys} groups"), top, 10),
    ] {
        for way in ways(&cluster, &pipeline)? {
            let mut costs = Vec::new();
            for _ in 0..rounds {
                costs.push(measure(&cluster, &way, expected).await?);
            }
            print_row(&what, &way, &costs);
        }
    }
    let sorted = doc! { "filter": { "r": { "$lt": 200_000 } }, "sort": { "r": 1, "_id": 1 } };
    for way in sorted_ways(&cluster, &sorted)? {
        let mut costs = Vec::new();
        for _ in 0..rounds {
            costs.push(measure(&cluster, &way, -1).await?);
        }
        print_row("find with sort, a fifth of all", &way, &costs);
    }
    Ok(())
}

fn host_processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn ways<'a>(cluster: &Cluster, pipeline: &[Document]) -> Result<Vec<Way<'a>>> {
    let aggregate = |name: &str| doc! { name: COLLECTION, "pipeline": pipeline.to_vec(), "cursor": {} };
    let mut on_shard = aggregate("aggregate");
    on_shard.insert("allowDiskUse", true);
    let mut by_server = aggregate("clusterAggregate");
    by_server.extend(doc! { "readConcern": {}, "writeConcern": {} });
    Ok(vec![
        Way::by_router(cluster, "pointsman", aggregate("aggregate"))?,
        Way::by_router(cluster, "pointsman, merged on a shard", on_shard)?,
        Way::by_server(cluster, by_server)?,
    ])
}

fn sorted_ways<'a>(cluster: &Cluster, find: &Document) -> Result<Vec<Way<'a>>> {
    let mut here = doc! { "find": COLLECTION };
    here.extend(find.clone());
    let mut by_server = doc! { "clusterFind": COLLECTION, "readConcern": {} };
    by_server.extend(find.clone());
    Ok(vec![Way::by_router(cluster, "pointsman", here)?, Way::by_server(cluster, by_server)?])
}

async fn measure(cluster: &Cluster, way: &Way<'_>, expected: i64) -> Result<Cost> {
    let before = Usage::of(way.pid)?;
    let shards = shards_cpu(cluster)?;
    Usage::reset_peak(way.pid)?;
    let started = Instant::now();
    let found = read_all(way).await?;
    let took = started.elapsed();
    ensure!(expected < 0 || found == expected, "{}: {found} instead of {expected}", way.name);
    let after = Usage::of(way.pid)?;
    Ok(Cost {
        took,
        cpu: after.cpu.saturating_sub(before.cpu),
        shards: shards_cpu(cluster)?.saturating_sub(shards),
        grown: after.peak_rss_bytes.saturating_sub(before.rss_bytes),
    })
}

/// How many documents the query gives, read in batches of the size that the server likes.
async fn read_all(way: &Way<'_>) -> Result<i64> {
    let mut conn = RawConn::connect(&way.address).await?;
    let mut reply = conn.command(DATABASE, way.command.clone()).await?;
    let mut found = 0;
    loop {
        ensure!(is_ok(&reply), "{}: {reply}", way.name);
        let cursor = reply.get_document("cursor")?;
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"))?;
        found += i64::try_from(batch.len())?;
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok(found);
        }
        let more = doc! { way.more: id, "collection": COLLECTION, "batchSize": 5_000 };
        reply = conn.command(DATABASE, more).await?;
    }
}

fn shards_cpu(cluster: &Cluster) -> Result<Duration> {
    let mut cpu = Duration::ZERO;
    for shard in cluster.shards().iter().take(SHARDS) {
        cpu += shard.member(0)?.usage()?.cpu;
    }
    Ok(cpu)
}

/// The round that took the least time.
fn print_row(what: &str, way: &Way<'_>, costs: &[Cost]) {
    let Some(best) = costs.iter().min_by_key(|cost| cost.took) else { return };
    println!(
        "| {what} | {} | {:.2} s | {:.2} s | {:.2} s | {} MiB |",
        way.name,
        best.took.as_secs_f64(),
        best.cpu.as_secs_f64(),
        best.shards.as_secs_f64(),
        best.grown >> 20
    );
}

async fn load(cluster: &Cluster, documents: i64, keys: i64) -> Result<()> {
    let ns = format!("{DATABASE}.{COLLECTION}");
    cluster.admin(doc! { "enableSharding": DATABASE, "primaryShard": "shard0" }).await?;
    cluster.admin(doc! { "shardCollection": &ns, "key": { "_id": 1 } }).await?;
    for (shard, at) in [("shard1", documents / 3), ("shard2", documents / 3 * 2)] {
        cluster.admin(doc! { "split": &ns, "middle": { "_id": at } }).await?;
        cluster.admin(doc! { "moveChunk": &ns, "find": { "_id": at }, "to": shard }).await?;
    }
    let client = cluster.client().await?;
    let collection = client.database(DATABASE).collection::<Document>(COLLECTION);
    let text = "x".repeat(100);
    let mut at = 0;
    while at < documents {
        let end = (at + 5_000).min(documents);
        let batch = (at..end).map(|id| {
            doc! {
                "_id": id, "key": id.wrapping_mul(7_919) % keys, "few": id % FEW,
                "r": id.wrapping_mul(104_729) % 1_000_003, "text": &text,
            }
        });
        collection.insert_many(batch).ordered(false).await?;
        at = end;
    }
    collection.create_index(mongodb::IndexModel::builder().keys(doc! { "r": 1, "_id": 1 }).build()).await?;
    Ok(())
}
