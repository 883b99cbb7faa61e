//! What it gives and costs to ask shards for batches ahead of the client, with and without in one run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bson::{Document, RawDocument, doc};
use testkit::Cluster;
use testkit::raw::{OP_MSG, RawConn, frame, msg_body};

use crate::merge::{COLLECTION, Costs, DATABASE, SHARDS, load};

/// Documents of one batch.
const BATCH: i64 = 1_000;
/// What the client does with a batch: nothing, or something that takes 5 ms.
const WORK: [Duration; 2] = [Duration::ZERO, Duration::from_millis(5)];

/// Loads documents over four shards and drains them in both ways, in turns.
pub(crate) async fn run(router: Option<std::path::PathBuf>, documents: i64, rounds: usize) -> Result<()> {
    let mut builder = Cluster::builder().shards(SHARDS).members(1).routers(1).cache_gb(1.0);
    if let Some(router) = router {
        builder = builder.router_binary(router);
    }
    let cluster = builder.start().await?;
    load(&cluster, documents).await.context("loading")?;
    let mut conn = cluster.router(0)?.raw().await?;
    println!("| documents | work a batch | batch | ahead | wall s | router CPU s | shards' CPU s |");
    for round in 0..=rounds {
        for (name, sort) in [("sorted", doc! { "r": 1, "_id": 1 }), ("as they come", doc! {})] {
            for work in WORK {
                for batch in [Some(BATCH), None] {
                    for ahead in [false, true] {
                        let set = doc! { "setParameter": 1, "pointsmanReadAhead": ahead };
                        conn.command_ok("admin", set).await?;
                        let before = Costs::of(&cluster)?;
                        let started = Instant::now();
                        let seen = drain(&mut conn, sort.clone(), batch, work).await?;
                        let took = started.elapsed().as_secs_f64();
                        ensure!(seen == usize::try_from(documents)?, "{seen} of {documents} documents came");
                        let after = Costs::of(&cluster)?;
                        // The first round warms up.
                        if round > 0 {
                            println!(
                                "| {name} | {work:?} | {batch:?} | {ahead} | {took:.3} | {:.3} | {:.3} |",
                                after.router.cpu.saturating_sub(before.router.cpu).as_secs_f64(),
                                after.shards.saturating_sub(before.shards).as_secs_f64()
                            );
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Reads all, and works for a while after each batch. Replies are not decoded beyond what is counted: the client should
/// not be what is measured.
async fn drain(conn: &mut RawConn, sort: Document, batch: Option<i64>, work: Duration) -> Result<usize> {
    let mut command = doc! { "find": COLLECTION, "sort": sort, "$db": DATABASE };
    if let Some(batch) = batch {
        command.insert("batchSize", batch);
    }
    let (mut seen, mut name) = (0, "firstBatch");
    loop {
        let request = frame(conn.next_id(), OP_MSG, &msg_body(0, &command)?);
        conn.send(&request).await?;
        let reply = conn.receive().await?.context("the router closed the connection")?;
        let reply = RawDocument::from_bytes(reply.body.get(5..).context("a short reply")?)?;
        let cursor = reply.get_document("cursor").with_context(|| format!("{reply:?}"))?;
        seen += cursor.get_array(name)?.into_iter().count();
        let id = cursor.get_i64("id")?;
        if !work.is_zero() {
            tokio::time::sleep(work).await;
        }
        if id == 0 {
            return Ok(seen);
        }
        command = doc! { "getMore": id, "collection": COLLECTION, "$db": DATABASE };
        if let Some(batch) = batch {
            command.insert("batchSize", batch);
        }
        name = "nextBatch";
    }
}
