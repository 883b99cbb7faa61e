//! Sharded collections for tests, made through the router.

use anyhow::Result;
use bson::{Bson, Document, doc};

use crate::cluster::Cluster;

impl Cluster {
    /// Makes the database with `shard0` as its primary shard and shards the collection.
    ///
    /// # Errors
    /// When the router refuses.
    pub async fn shard_collection(&self, ns: &str, key: Document) -> Result<()> {
        let db = ns.split_once('.').map_or(ns, |(db, _)| db);
        self.admin(doc! { "enableSharding": db, "primaryShard": "shard0" }).await?;
        self.admin(doc! { "shardCollection": ns, "key": key }).await?;
        Ok(())
    }

    /// Splits the chunk that holds `middle` there.
    ///
    /// # Errors
    /// When the router refuses.
    pub async fn split_at(&self, ns: &str, middle: Document) -> Result<()> {
        self.admin(doc! { "split": ns, "middle": middle }).await?;
        Ok(())
    }

    /// Moves the chunk that holds this key; does not wait for the donor to delete its copy.
    ///
    /// # Errors
    /// When the router refuses.
    pub async fn move_chunk(&self, ns: &str, key: Document, to: &str) -> Result<()> {
        self.admin(doc! { "moveChunk": ns, "find": key, "to": to }).await?;
        Ok(())
    }

    /// Shards the collection on `{field: 1}` with one chunk a shard: shard i begins at `bounds[i - 1]`.
    ///
    /// # Errors
    /// When the router refuses.
    pub async fn spread(&self, ns: &str, field: &str, bounds: &[i64]) -> Result<()> {
        self.shard_collection(ns, doc! { field: 1 }).await?;
        for (bound, shard) in bounds.iter().zip(self.shards().iter().skip(1)) {
            self.split_at(ns, doc! { field: *bound }).await?;
            self.move_chunk(ns, doc! { field: *bound }, shard.name()).await?;
        }
        Ok(())
    }
}

/// The shard of each chunk, in the order of the chunks.
#[must_use]
pub fn owners(chunks: &[Document]) -> Vec<String> {
    chunks.iter().filter_map(|chunk| chunk.get("shard").and_then(Bson::as_str)).map(str::to_owned).collect()
}
