//! The cluster that is measured on, and its collections.

use std::path::PathBuf;

use anyhow::{Context, Result};
use bson::doc;
use testkit::Cluster;

/// Database of everything here.
pub(crate) const DATABASE: &str = "bench";
/// Sharded on `{k: 1}`, all of it on the first shard: a targeted read or write.
pub(crate) const KEYED: &str = "keyed";
/// Sharded on `{k: 1}` over three shards.
pub(crate) const SPREAD: &str = "spread";
/// Documents in each.
pub(crate) const DOCUMENTS: i64 = 30_000;
/// Shards that own data; one more owns nothing and runs the server's own routing code.
const OWNING_SHARDS: usize = 3;

/// Starts config servers, four shards and the router, and loads the collections through it.
pub(crate) async fn start(router: Option<PathBuf>) -> Result<Cluster> {
    let mut builder = Cluster::builder().shards(OWNING_SHARDS + 1).members(1).routers(1).cache_gb(0.5);
    if let Some(router) = router {
        builder = builder.router_binary(router);
    }
    let cluster = builder.start().await?;
    cluster.admin(doc! { "enableSharding": DATABASE, "primaryShard": "shard0" }).await?;
    for collection in [KEYED, SPREAD] {
        let ns = format!("{DATABASE}.{collection}");
        cluster.admin(doc! { "shardCollection": &ns, "key": { "k": 1 } }).await?;
    }
    let ns = format!("{DATABASE}.{SPREAD}");
    for (shard, at) in [("shard1", DOCUMENTS / 3), ("shard2", DOCUMENTS / 3 * 2)] {
        cluster.admin(doc! { "split": &ns, "middle": { "k": at } }).await?;
        cluster.admin(doc! { "moveChunk": &ns, "find": { "k": at }, "to": shard }).await?;
    }
    let client = cluster.client().await?;
    for collection in [KEYED, SPREAD] {
        let target = client.database(DATABASE).collection::<bson::Document>(collection);
        for batch in 0..DOCUMENTS / 1000 {
            let documents = (0..1000).map(|offset| document(batch * 1000 + offset));
            target.insert_many(documents).await.context("loading documents")?;
        }
    }
    Ok(cluster)
}

/// A document of about 200 bytes.
pub(crate) fn document(k: i64) -> bson::Document {
    doc! {
        "_id": k, "k": k, "r": k.wrapping_mul(7_919) % 1_000_003, "level": "info",
        "msg": "a message of the length that log lines have, more or less, in the systems that we have seen so far",
    }
}
