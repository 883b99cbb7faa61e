//! What the demo shows. Every statement is taken from the servers or the kernel and compared with what must be.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use futures_util::TryStreamExt;
use mongodb::{Client, Collection};
use testkit::{Cluster, OpCounters, Usage};
use tokio::time::Instant;

use crate::data::{self, DB, EVENTS, FATAL_EVERY, NODES, SESSIONS};

/// How much more memory than before the router may use while it merges: the bound that the project promises.
const FLAT_BYTES: u64 = 16 * 1024 * 1024;
/// A shard's insert counter also counts its own bookkeeping.
const BOOKKEEPING: i64 = 200;
/// On a busy machine the shards may by chance not be seen at work at the same time.
const PARALLEL_TRIES: usize = 10;

/// Runs the show; false when a statement was wrong.
pub(crate) async fn run(cluster: &Cluster) -> Result<bool> {
    let client = cluster.client().await?;
    data::shard(cluster).await?;
    let mut good = true;
    let mut say = |name: &str, result: Result<String>| match result {
        Ok(line) => println!("ok     {name:13} {line}"),
        Err(error) => {
            good = false;
            println!("WRONG  {name:13} {error:#}");
        }
    };
    say("event log", event_log(cluster, &client).await);
    say("hashed key", hashed(cluster, &client).await);
    say("one shard", one_shard(cluster, &client).await);
    say("all shards", all_shards(cluster, &client).await);
    say("sorted merge", sorted_merge(cluster, &client).await);
    Ok(good)
}

async fn event_log(cluster: &Cluster, client: &Client) -> Result<String> {
    let chunks = cluster.chunks(&format!("{DB}.events")).await?.len();
    let (elapsed, writes) = written(cluster, data::load_events(client)).await?;
    let mut expected = BTreeMap::new();
    for node in 0..NODES {
        *expected.entry(data::owner(node)).or_insert(0) += EVENTS / NODES;
    }
    for (shard, wanted) in &expected {
        let counted = writes.get(shard).copied().unwrap_or_default();
        ensure!(
            (*wanted..wanted + BOOKKEEPING).contains(&counted),
            "{shard} counted {counted} inserts, not {wanted}"
        );
        let stored = stored(cluster, shard, "events").await?;
        ensure!(stored == *wanted, "{shard} holds {stored} events, not {wanted}");
    }
    Ok(format!(
        "{EVENTS} inserts in {elapsed:.1} s, {chunks} chunks by range; inserts counted by {}",
        list(&writes)
    ))
}

async fn hashed(cluster: &Cluster, client: &Client) -> Result<String> {
    let (elapsed, writes) = written(cluster, data::load_sessions(client)).await?;
    let mut total = 0;
    for shard in cluster.shards() {
        let stored = stored(cluster, shard.name(), "sessions").await?;
        // A hash spreads evenly: a third each, give or take.
        ensure!(stored > SESSIONS / 5, "{} holds {stored} of {SESSIONS} sessions", shard.name());
        total += stored;
    }
    ensure!(total == SESSIONS, "the shards hold {total} sessions, not {SESSIONS}");
    Ok(format!("{SESSIONS} inserts in {elapsed:.1} s, by hash; inserts counted by {}", list(&writes)))
}

async fn one_shard(cluster: &Cluster, client: &Client) -> Result<String> {
    let node = 7;
    let filter = doc! { "mon_node": data::node(node), "application": "auth" };
    let (asked, found) = asked(cluster, client, filter, "one shard").await?;
    let expected = (0..EVENTS).filter(|n| data::node_of(*n) == node && (n / NODES) % 4 == 0).count();
    ensure!(found == expected, "{found} documents, not {expected}");
    let names: Vec<&str> = asked.keys().map(String::as_str).collect();
    ensure!(
        names == [data::owner(node)],
        "the profilers of {names:?} saw it, not that of {} alone",
        data::owner(node)
    );
    Ok(format!(
        "find by shard key prefix: {found} documents; 1 shard asked, by the profilers: {}",
        names.join(", ")
    ))
}

async fn all_shards(cluster: &Cluster, client: &Client) -> Result<String> {
    let expected = usize::try_from(EVENTS / FATAL_EVERY)?;
    for _ in 0..PARALLEL_TRIES {
        let (asked, found) = asked(cluster, client, doc! { "level": "fatal" }, "all shards").await?;
        ensure!(found == expected, "{found} documents, not {expected}");
        ensure!(asked.len() == cluster.shards().len(), "only the profilers of {:?} saw it", asked.keys());
        let last_start = asked.values().map(|span| span.start_ms).max().context("no span")?;
        let first_end = asked.values().map(|span| span.end_ms).min().context("no span")?;
        if last_start < first_end {
            let times: Vec<String> = asked
                .iter()
                .map(|(shard, span)| format!("{shard} {} ms", span.end_ms - span.start_ms))
                .collect();
            return Ok(format!(
                "find without shard key: {found} documents; {} shards asked at the same time: {}",
                asked.len(),
                times.join(", ")
            ));
        }
    }
    anyhow::bail!("in {PARALLEL_TRIES} queries the shards never worked at the same time")
}

async fn sorted_merge(cluster: &Cluster, client: &Client) -> Result<String> {
    let events = events(client);
    let router = cluster.router(0)?;
    let pid = router.pid()?;
    let before = router.usage()?.rss_bytes;
    Usage::reset_peak(pid)?;
    let begin = Instant::now();
    let mut cursor = events.find(doc! {}).sort(doc! { "time": 1 }).batch_size(2_000).await?;
    let (mut next, mut bytes) = (0, 0);
    while cursor.advance().await? {
        let document = cursor.current();
        let number = document.get_i64("number")?;
        // Event `number` has the time `number`: the order, and each event exactly once.
        ensure!(number == next, "event {number} came where event {next} belongs");
        next += 1;
        bytes += document.as_bytes().len();
    }
    ensure!(next == EVENTS, "{next} of {EVENTS} events came");
    let elapsed = begin.elapsed().as_secs_f64();
    let after = router.usage()?;
    let grown = after.peak_rss_bytes.saturating_sub(before);
    ensure!(grown <= FLAT_BYTES, "the router grew from {} to {} MiB", mib(before), mib(after.peak_rss_bytes));
    let mut newest_first = events.find(doc! {}).sort(doc! { "time": -1 }).limit(100).await?;
    let mut expected = EVENTS;
    while newest_first.advance().await? {
        expected -= 1;
        let number = newest_first.current().get_i64("number")?;
        ensure!(number == expected, "newest first: event {number} came where event {expected} belongs");
    }
    ensure!(expected == EVENTS - 100, "newest first: {} events came", EVENTS - expected);
    Ok(format!(
        "{next} documents ({} MiB) in order of time in {elapsed:.1} s; router's memory: {} MiB before, {} MiB at most, {} MiB after",
        mib(u64::try_from(bytes)?),
        mib(before),
        mib(after.peak_rss_bytes),
        mib(after.rss_bytes),
    ))
}

/// How long `load` took in seconds, and the inserts that each shard counted meanwhile.
async fn written(
    cluster: &Cluster,
    load: impl Future<Output = Result<()>>,
) -> Result<(f64, BTreeMap<String, i64>)> {
    let before = cluster.op_counters().await?;
    let begin = Instant::now();
    load.await?;
    let elapsed = begin.elapsed().as_secs_f64();
    let after = cluster.op_counters().await?;
    let zero = OpCounters::default();
    let delta = |shard: &String, now: OpCounters| (now - *before.get(shard).unwrap_or(&zero)).insert;
    Ok((elapsed, after.iter().map(|(shard, now)| (shard.clone(), delta(shard, *now))).collect()))
}

/// What a shard itself has of a collection.
async fn stored(cluster: &Cluster, shard: &str, collection: &str) -> Result<i64> {
    let reply = cluster.shard_named(shard)?.command(DB, doc! { "count": collection }).await?;
    let n = reply.get("n").context("n")?;
    n.as_i64().or_else(|| n.as_i32().map(i64::from)).context("n is no number")
}

/// When a shard worked on an operation.
struct Span {
    start_ms: i64,
    end_ms: i64,
}

/// Runs a find through the router: which shards' profilers saw it, and how many documents came.
async fn asked(
    cluster: &Cluster,
    client: &Client,
    filter: Document,
    comment: &str,
) -> Result<(BTreeMap<String, Span>, usize)> {
    cluster.start_profiling(DB).await?;
    let cursor = events(client).find(filter).comment(Bson::from(comment)).await?;
    let found: Vec<Document> = cursor.try_collect().await?;
    cluster.stop_profiling(DB).await?;
    let mut spans = BTreeMap::new();
    for op in cluster.profiled(DB, doc! { "op": "query", "command.comment": comment }).await? {
        let end_ms = op.entry.get_datetime("ts").map(|ts: &DateTime| ts.timestamp_millis())?;
        let millis = op.entry.get("millis").context("millis")?;
        let millis = millis.as_i64().or_else(|| millis.as_i32().map(i64::from)).context("millis")?;
        spans.insert(op.shard, Span { start_ms: end_ms - millis, end_ms });
    }
    Ok((spans, found.len()))
}

fn events(client: &Client) -> Collection<Document> {
    client.database(DB).collection("events")
}

fn list(writes: &BTreeMap<String, i64>) -> String {
    writes.iter().map(|(shard, count)| format!("{shard} {count}")).collect::<Vec<_>>().join(", ")
}

fn mib(bytes: u64) -> String {
    let tenths = bytes * 10 / (1024 * 1024);
    format!("{}.{}", tenths / 10, tenths % 10)
}
