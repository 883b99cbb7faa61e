//! What the servers themselves say about the traffic that reached them: the word of the router is no proof.

use std::collections::BTreeMap;
use std::ops::Sub;

use anyhow::{Context, Result};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;

use crate::cluster::Cluster;
use crate::replica_set::ReplicaSet;

/// The operation counters of one server. Heartbeats count as commands: compare the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpCounters {
    /// Inserted documents.
    pub insert: i64,
    /// Find commands.
    pub query: i64,
    /// Update statements.
    pub update: i64,
    /// Delete statements.
    pub delete: i64,
    /// getMore commands.
    pub getmore: i64,
    /// All other commands.
    pub command: i64,
}

impl Sub for OpCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            insert: self.insert - before.insert,
            query: self.query - before.query,
            update: self.update - before.update,
            delete: self.delete - before.delete,
            getmore: self.getmore - before.getmore,
            command: self.command - before.command,
        }
    }
}

/// One operation that a shard's profiler saw.
#[derive(Debug, Clone)]
pub struct ProfiledOp {
    /// The shard that ran it.
    pub shard: String,
    /// The profiler's entry, as `op`, `ns`, `command`, `nreturned`, `millis`.
    pub entry: Document,
}

impl ReplicaSet {
    /// The counters of the primary.
    ///
    /// # Errors
    /// When there is no primary.
    pub async fn op_counters(&self) -> Result<OpCounters> {
        let status = self.command("admin", doc! { "serverStatus": 1 }).await?;
        let counters = status.get_document("opcounters").context("opcounters")?;
        let get = |name: &str| counters.get(name).and_then(integer).unwrap_or_default();
        Ok(OpCounters {
            insert: get("insert"),
            query: get("query"),
            update: get("update"),
            delete: get("delete"),
            getmore: get("getmore"),
            command: get("command"),
        })
    }
}

impl Cluster {
    /// The counters of every shard's primary, by shard id.
    ///
    /// # Errors
    /// When a shard has no primary.
    pub async fn op_counters(&self) -> Result<BTreeMap<String, OpCounters>> {
        let mut all = BTreeMap::new();
        for shard in self.shards() {
            all.insert(shard.name().to_owned(), shard.op_counters().await?);
        }
        Ok(all)
    }

    /// Empties the profile of `db` on every shard's primary and starts to record all operations on it.
    ///
    /// # Errors
    /// When a shard refuses.
    pub async fn start_profiling(&self, db: &str) -> Result<()> {
        for shard in self.shards() {
            let primary = shard.primary().await?;
            primary.command(db, doc! { "profile": 0 }).await?;
            let _ = primary.raw().await?.command(db, doc! { "drop": "system.profile" }).await?;
            let create = doc! { "create": "system.profile", "capped": true, "size": 16 * 1024 * 1024 };
            let _ = primary.raw().await?.command(db, create).await?;
            primary.command(db, doc! { "profile": 2, "slowms": 0, "sampleRate": 1.0 }).await?;
        }
        Ok(())
    }

    /// Ends [`Cluster::start_profiling`].
    ///
    /// # Errors
    /// When a shard refuses.
    pub async fn stop_profiling(&self, db: &str) -> Result<()> {
        for shard in self.shards() {
            shard.command(db, doc! { "profile": 0, "slowms": 100 }).await?;
        }
        Ok(())
    }

    /// What the profilers of all shards have recorded on `db` that matches `filter` (a query on `system.profile`; the
    /// `comment` of a command is `command.comment`).
    ///
    /// # Errors
    /// When a shard does not answer.
    pub async fn profiled(&self, db: &str, filter: Document) -> Result<Vec<ProfiledOp>> {
        let mut found = Vec::new();
        for shard in self.shards() {
            let client = shard.primary().await?.client().await?;
            let profile = client.database(db).collection::<Document>("system.profile");
            let entries: Vec<Document> =
                profile.find(filter.clone()).sort(doc! { "$natural": 1 }).await?.try_collect().await?;
            found.extend(
                entries.into_iter().map(|entry| ProfiledOp { shard: shard.name().to_owned(), entry }),
            );
        }
        Ok(found)
    }

    /// The entries of `config.changelog` with this `what` (as `moveChunk.commit`, `split`, `multi-split`), oldest first.
    ///
    /// # Errors
    /// When the config servers do not answer.
    pub async fn changelog(&self, what: &str) -> Result<Vec<Document>> {
        self.config_find("changelog", doc! { "what": what }, doc! { "time": 1 }).await
    }

    /// The chunks of a collection by their lower bound: `min`, `max`, `shard`, `lastmod`.
    ///
    /// # Errors
    /// When it is not sharded.
    pub async fn chunks(&self, ns: &str) -> Result<Vec<Document>> {
        let collections = self.config_find("collections", doc! { "_id": ns }, doc! {}).await?;
        let collection = collections.first().with_context(|| format!("{ns} is not sharded"))?;
        let uuid = collection.get("uuid").context("uuid")?;
        self.config_find("chunks", doc! { "uuid": uuid }, doc! { "min": 1 }).await
    }

    /// Reads the config servers' own metadata, past the router.
    ///
    /// # Errors
    /// When they do not answer.
    pub async fn config_find(
        &self,
        collection: &str,
        filter: Document,
        sort: Document,
    ) -> Result<Vec<Document>> {
        let client = self.config().primary().await?.client().await?;
        let collection = client.database("config").collection::<Document>(collection);
        Ok(collection.find(filter).sort(sort).await?.try_collect().await?)
    }
}

fn integer(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}
