//! The ledger: many clients write while everything under them moves, fails and comes back; then each write that was
//! acknowledged must be there once, each that was not at most once, and no snapshot may ever show half of a transfer.
//!
//! [`keeper`] (single documents), [`batcher`] (batches), [`banker`] (transactions) and [`auditor`] (snapshots) write into
//! one [`history::Ledger`] while [`nemesis`] disturbs the cluster; [`checker`] judges. In CI it takes about two minutes; by
//! hand as long as one likes, see `docs/reliability.md`. Slowness never fails it: what is late is unknown, not wrong.
//!
//! | environment | default | |
//! |---|---|---|
//! | `LEDGER_SEED` | the clock's | the plans of clients and disturbances |
//! | `LEDGER_SECONDS` | 75 | how long the clients run |
//! | `LEDGER_MEMBERS` | 3, 1, 1 | members of every shard |
//! | `LEDGER_ELECTION_SECONDS` | 7 | about how often a shard is disturbed |
//! | `LEDGER_ROUTER_SECONDS` | 14 | about how often a router is killed |
//! | `LEDGER_KEEPERS`, `LEDGER_BANKERS`, `LEDGER_BATCHERS`, `LEDGER_AUDITORS` | 3, 3, 2, 1 | clients |

mod auditor;
mod banker;
mod batcher;
mod checker;
mod checker_tests;
mod history;
mod keeper;
mod nemesis;
mod verdict;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bson::{Document, doc};
use testkit::Cluster;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::checker::{EndState, Entry, Opening};
use crate::history::{Event, Ledger, Random, Verdict};

pub(crate) const DB: &str = "ledger";
pub(crate) const ITEMS: &str = "items";
pub(crate) const ACCOUNTS: &str = "accounts";
pub(crate) const ENTRIES: &str = "entries";
pub(crate) const SPACE: i64 = 9_000;
const OPENING: Opening = Opening { accounts: 45, balance: 1_000 };
/// Longer than any disturbance: only planned elections happen.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// So long the end state may take: transactions of dead routers end by themselves, within a minute.
const END_LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn account_key(account: i64) -> i64 {
    account * (SPACE / OPENING.accounts)
}

struct Settings {
    seed: u64,
    seconds: u64,
    members: Option<usize>,
    election: Duration,
    router: Duration,
    keepers: u64,
    bankers: u64,
    batchers: u64,
    auditors: u64,
}

impl Settings {
    fn from_environment() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is not a number")))
        };
        let seconds = |name, default| Duration::from_secs(number(name).unwrap_or(default));
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        Self {
            seed: number("LEDGER_SEED").unwrap_or(clock),
            seconds: number("LEDGER_SECONDS").unwrap_or(75),
            members: number("LEDGER_MEMBERS").map(|count| usize::try_from(count).unwrap()),
            election: seconds("LEDGER_ELECTION_SECONDS", 7),
            router: seconds("LEDGER_ROUTER_SECONDS", 14),
            keepers: number("LEDGER_KEEPERS").unwrap_or(3),
            bankers: number("LEDGER_BANKERS").unwrap_or(3),
            batchers: number("LEDGER_BATCHERS").unwrap_or(2),
            auditors: number("LEDGER_AUDITORS").unwrap_or(1),
        }
    }
}

async fn start(settings: &Settings) -> Cluster {
    let mut builder = Cluster::builder().shards(3).routers(2);
    builder = match settings.members {
        Some(members) => builder.members(members),
        None => builder.members_of(0, 3),
    };
    let cluster = builder.start().await.unwrap();
    for shard in cluster.shards() {
        if shard.members().len() > 1 {
            shard.set_election_timeout(ELECTION_TIMEOUT).await.unwrap();
        }
    }
    for collection in [ITEMS, ACCOUNTS] {
        cluster.spread(&format!("{DB}.{collection}"), "k", &[SPACE / 3, SPACE * 2 / 3]).await.unwrap();
    }
    cluster.shard_collection(&format!("{DB}.{ENTRIES}"), doc! { "_id": "hashed" }).await.unwrap();
    let accounts =
        (0..OPENING.accounts).map(|id| doc! { "_id": id, "k": account_key(id), "balance": OPENING.balance });
    let client = cluster.client().await.unwrap();
    client.database(DB).collection::<Document>(ACCOUNTS).insert_many(accounts).await.unwrap();
    cluster
}

/// Everything: at one point in time, or as it is.
async fn read_all(cluster: &Cluster, router: usize, snapshot: bool) -> anyhow::Result<EndState> {
    let mut conn = cluster.router(router)?.raw().await?;
    let mut concern = if snapshot {
        doc! { "level": "snapshot", "afterClusterTime": auditor::now(cluster).await }
    } else {
        doc! { "level": "local" }
    };
    let mut all = BTreeMap::new();
    for name in [ITEMS, ACCOUNTS, ENTRIES] {
        let find = doc! { "find": name, "batchSize": 1_000, "readConcern": concern.clone() };
        let (documents, at) = auditor::read_all(&mut conn, find).await?;
        if let Some(at) = at {
            concern = doc! { "level": "snapshot", "atClusterTime": at };
        }
        all.insert(name, documents);
    }
    let number = |document: &Document, field: &str| document.get_i64(field).unwrap();
    Ok(EndState {
        items: all[ITEMS].iter().map(keeper::item).collect(),
        accounts: all[ACCOUNTS].iter().map(|each| (number(each, "_id"), number(each, "balance"))).collect(),
        entries: all[ENTRIES]
            .iter()
            .map(|entry| Entry {
                op: number(entry, "_id"),
                from: number(entry, "from"),
                to: number(entry, "to"),
                amount: number(entry, "amount"),
            })
            .collect(),
    })
}

/// Reads until it works: elections and transactions of dead routers end within a minute or so.
async fn end_state(cluster: &Cluster, router: usize, snapshot: bool) -> EndState {
    let end = Instant::now() + END_LIMIT;
    loop {
        match timeout(Duration::from_secs(90), read_all(cluster, router, snapshot)).await {
            Ok(Ok(state)) => return state,
            late_or_failed => {
                assert!(Instant::now() < end, "the end state cannot be read: {late_or_failed:?}");
                sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Operations by kind: acknowledged, refused, unknown.
fn by_kind(events: &[Event]) -> BTreeMap<&'static str, BTreeMap<Verdict, u64>> {
    let mut kinds: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for event in events {
        *kinds.entry(event.kind).or_default().entry(event.verdict).or_default() += 1;
    }
    kinds
}

fn figures(
    ledger: &Ledger,
    events: &[Event],
    disturbances: &BTreeMap<String, u64>,
    migrations: usize,
) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<32}{:>13}{:>10}{:>10}", "operation", "acknowledged", "refused", "unknown");
    for (kind, verdicts) in by_kind(events) {
        let count = |verdict| verdicts.get(&verdict).copied().unwrap_or_default();
        let (done, refused, unknown) =
            (count(Verdict::Acknowledged), count(Verdict::Refused), count(Verdict::Unknown));
        let _ = writeln!(text, "{kind:<32}{done:>13}{refused:>10}{unknown:>10}");
    }
    let counters = [
        ("snapshots added up", &ledger.snapshots),
        ("own writes read", &ledger.own_reads),
        ("reads that failed", &ledger.failed_reads),
        ("operations that hung", &ledger.hung),
    ];
    for (name, counter) in counters {
        let _ = writeln!(text, "{name}: {}", counter.load(Ordering::Relaxed));
    }
    let _ = writeln!(text, "migrations committed: {migrations}");
    for (what, count) in disturbances {
        let _ = writeln!(text, "{what}: {count}");
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_is_there_once_whatever_fails() {
    let settings = Settings::from_environment();
    println!("LEDGER_SEED={}", settings.seed);
    let cluster = Arc::new(start(&settings).await);
    let client = cluster.client().await.unwrap();
    let ledger = Arc::new(Ledger::default());
    let addresses: Vec<String> = cluster.routers().iter().map(testkit::Router::address).collect();
    let mut stream = 0;
    let mut random = || {
        stream += 1;
        Random::new(settings.seed, stream)
    };

    let mut clients = JoinSet::new();
    for n in 0..settings.keepers {
        clients.spawn(keeper::run(format!("keeper{n}"), Arc::clone(&ledger), client.clone(), random()));
    }
    for _ in 0..settings.bankers {
        clients.spawn(banker::run(Arc::clone(&ledger), client.clone(), random(), OPENING));
    }
    for n in 0..settings.batchers {
        let name = format!("batch{n}");
        clients.spawn(batcher::run(name, Arc::clone(&ledger), addresses.clone(), random()));
    }
    for _ in 0..settings.auditors {
        let (cluster, ledger) = (Arc::clone(&cluster), Arc::clone(&ledger));
        clients.spawn(auditor::run(cluster, ledger, client.clone(), random(), OPENING));
    }
    let done = Arc::new(nemesis::Done::default());
    let shared = || (Arc::clone(&cluster), Arc::clone(&ledger), Arc::clone(&done));
    let mut disturbers = JoinSet::new();
    for _ in 0..2 {
        let (cluster, ledger, done) = shared();
        disturbers.spawn(nemesis::move_chunks(cluster, ledger, done, random()));
    }
    let (of, ledger_of, done_of) = shared();
    disturbers.spawn(nemesis::kill_routers(of, ledger_of, done_of, random(), settings.router));
    let (of, ledger_of, done_of) = shared();
    disturbers.spawn(nemesis::disturb_shards(of, ledger_of, done_of, random(), settings.election));

    let begin = Instant::now();
    let mut reported = begin;
    while ledger.running() && begin.elapsed() < Duration::from_secs(settings.seconds) {
        sleep(Duration::from_millis(250)).await;
        if reported.elapsed() > Duration::from_secs(30) {
            reported = Instant::now();
            println!(
                "{:>5} s: {} operations, {} snapshots, {:?}",
                begin.elapsed().as_secs(),
                ledger.count(),
                ledger.snapshots.load(Ordering::Relaxed),
                done.all()
            );
        }
    }
    ledger.stop();
    while let Some(ended) = disturbers.join_next().await {
        ended.unwrap();
    }
    for router in cluster.routers().iter().filter(|router| !router.is_running()) {
        router.restart().await.unwrap();
    }
    for shard in cluster.shards() {
        nemesis::heal(shard).await;
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }

    let events = ledger.events();
    let migrations = cluster.changelog("moveChunk.commit").await.map_or(0, |entries| entries.len());
    println!("{}", figures(&ledger, &events, &done.all(), migrations));
    let mut faults = ledger.faults();
    let at_once = end_state(&cluster, 0, true).await;
    faults.extend(checker::check(&events, OPENING, &at_once));
    let as_it_is = end_state(&cluster, 1, false).await;
    faults.extend(checker::check(&events, OPENING, &as_it_is));
    println!(
        "at the end: {} documents, {} accounts, {} entries",
        at_once.items.len(),
        at_once.accounts.len(),
        at_once.entries.len()
    );
    let shown: Vec<String> = faults.iter().take(20).map(ToString::to_string).collect();
    if !faults.is_empty() {
        cluster.keep_logs();
        println!("logs: {}", cluster.dir().display());
    }
    assert!(
        faults.is_empty(),
        "LEDGER_SEED={}: {} promises broken:\n{}",
        settings.seed,
        faults.len(),
        shown.join("\n")
    );
    for (kind, verdicts) in by_kind(&events) {
        assert!(verdicts.contains_key(&Verdict::Acknowledged), "no {kind} was ever acknowledged");
    }
    println!("verdict: nothing lost, nothing doubled, nothing torn");
}
