//! The two collections of the demo: an event log split by range, and sessions split by hash.

use anyhow::{Context, Result};
use bson::{DateTime, Document, doc};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use mongodb::Client;
use testkit::Cluster;

/// The database of the demo.
pub(crate) const DB: &str = "demo";
/// How many events are loaded; about 350 bytes each.
pub(crate) const EVENTS: i64 = 300_000;
/// How many sessions are loaded.
pub(crate) const SESSIONS: i64 = 30_000;
/// The event log covers this many monitored nodes.
pub(crate) const NODES: i64 = 30;
/// Every event whose number is a multiple of this is a fatal one.
pub(crate) const FATAL_EVERY: i64 = 1_500;

const APPLICATIONS: [&str; 4] = ["auth", "billing", "gateway", "search"];
/// Chunks begin at these nodes; chunk i goes to shard i / 2.
const CHUNK_STARTS: [i64; 5] = [5, 10, 15, 20, 25];
const BATCH: i64 = 1_000;
const WRITERS: usize = 4;

/// The event with this number. Neighbours in time are on different shards, so a merge has work at every document.
pub(crate) fn event(number: i64) -> Document {
    let application =
        usize::try_from(number / NODES).ok().and_then(|index| APPLICATIONS.get(index % APPLICATIONS.len()));
    doc! {
        "mon_node": node(node_of(number)),
        "application": *application.unwrap_or(&"auth"),
        "time": DateTime::from_millis(1_700_000_000_000 + number * 250),
        "level": if number % FATAL_EVERY == 0 { "fatal" } else { "info" },
        "msg": format!("{number}: {}", "the quick brown fox jumps over the lazy dog, again and again; ".repeat(4)),
        "number": number,
    }
}

/// The node of an event. 11 has no divisor in common with 30, and steps over a shard each time.
pub(crate) fn node_of(number: i64) -> i64 {
    number * 11 % NODES
}

/// The name of a monitored node.
pub(crate) fn node(index: i64) -> String {
    format!("node-{index:02}")
}

/// The shard that owns the events of the node with this index.
pub(crate) fn owner(node_index: i64) -> String {
    let chunk = CHUNK_STARTS.iter().filter(|start| **start <= node_index).count();
    format!("shard{}", chunk / 2)
}

/// Shards both collections and spreads the chunks of the event log over the shards, all through the router.
pub(crate) async fn shard(cluster: &Cluster) -> Result<()> {
    let events = format!("{DB}.events");
    cluster.admin(doc! { "enableSharding": DB, "primaryShard": "shard0" }).await?;
    let key = doc! { "mon_node": 1, "application": 1, "time": 1 };
    cluster.admin(doc! { "shardCollection": &events, "key": key }).await?;
    for start in CHUNK_STARTS {
        let middle =
            doc! { "mon_node": node(start), "application": bson::Bson::MinKey, "time": bson::Bson::MinKey };
        cluster.admin(doc! { "split": &events, "middle": middle }).await?;
    }
    for start in CHUNK_STARTS.into_iter().filter(|start| owner(*start) != "shard0") {
        let inside = doc! { "mon_node": node(start), "application": "m", "time": DateTime::from_millis(0) };
        let command =
            doc! { "moveChunk": &events, "find": inside, "to": owner(start), "_waitForDelete": true };
        cluster.admin(command).await?;
    }
    // For the show's sorted read: each shard can stream in order of time.
    let client = cluster.client().await?;
    let index = doc! { "createIndexes": "events", "indexes": [{ "key": { "time": 1 }, "name": "time_1" }] };
    client.database(DB).run_command(index).await.context("createIndexes")?;
    let sessions = format!("{DB}.sessions");
    cluster.admin(doc! { "shardCollection": sessions, "key": { "user_id": "hashed" } }).await?;
    Ok(())
}

/// Loads the event log.
pub(crate) async fn load_events(client: &Client) -> Result<()> {
    load(client, "events", EVENTS, event).await
}

/// Loads the sessions.
pub(crate) async fn load_sessions(client: &Client) -> Result<()> {
    let session = |number: i64| doc! { "user_id": number, "started": DateTime::from_millis(number * 1_000), "state": "open" };
    load(client, "sessions", SESSIONS, session).await
}

async fn load(client: &Client, name: &str, count: i64, document: impl Fn(i64) -> Document) -> Result<()> {
    let collection = client.database(DB).collection::<Document>(name);
    let starts = (0..count).step_by(usize::try_from(BATCH)?);
    let inserts = starts.map(|start| {
        let batch: Vec<Document> = (start..count.min(start + BATCH)).map(&document).collect();
        let collection = collection.clone();
        async move { collection.insert_many(batch).ordered(false).await.context("insert").map(|_| ()) }
    });
    stream::iter(inserts).buffer_unordered(WRITERS).try_collect::<()>().await
}
