//! Auditors: all accounts, added up in snapshots of all kinds, must always have the same sum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use bson::{Bson, Document, Timestamp, doc};
use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::options::{ReadConcern, TransactionOptions};
use testkit::Cluster;
use testkit::raw::RawConn;
use tokio::time::sleep;

use crate::checker::Opening;
use crate::history::{Ledger, Random};
use crate::verdict::within;
use crate::{ACCOUNTS, DB, ENTRIES};

/// Adds up all accounts until the ledger is closed.
pub(crate) async fn run(
    cluster: Arc<Cluster>,
    ledger: Arc<Ledger>,
    client: Client,
    mut random: Random,
    opening: Opening,
) {
    // A router that is new chooses a point in time that it knows of, which may be before the accounts were opened.
    let opened = now(&cluster).await;
    while ledger.running() {
        let how = match random.below(4) {
            0 => How::TransactionGroup,
            1 => How::TransactionFind,
            2 => How::SnapshotGroup,
            _ => How::SnapshotFind,
        };
        let router = random.below(cluster.routers().len());
        let read = async {
            match how {
                How::SnapshotGroup | How::SnapshotFind => {
                    sum_in_snapshot(&cluster, router, how, opened).await
                }
                How::TransactionGroup | How::TransactionFind => {
                    Ok((sum_in_transaction(&client, how).await?, None))
                }
            }
        };
        let how = how.name();
        match within(&ledger, how, read).await {
            Some(Ok(((count, sum), at))) => {
                ledger.snapshots.fetch_add(1, Ordering::Relaxed);
                if let Some(fault) = opening.judge_sum(how, count, sum) {
                    ledger.fault(fault.rule, format!("{} at {at:?}", fault.text));
                    if let Some(at) = at {
                        diagnose(&cluster, opening, &at).await;
                    }
                }
            }
            _ => {
                ledger.failed_reads.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    TransactionGroup,
    TransactionFind,
    SnapshotGroup,
    SnapshotFind,
}

impl How {
    const fn name(self) -> &'static str {
        match self {
            Self::TransactionGroup => "aggregate in a snapshot transaction",
            Self::TransactionFind => "find in a snapshot transaction",
            Self::SnapshotGroup => "aggregate with read concern snapshot",
            Self::SnapshotFind => "find with read concern snapshot",
        }
    }
}

type Sum = (i64, i64);

fn group() -> Document {
    doc! { "$group": { "_id": null, "n": { "$sum": 1_i64 }, "sum": { "$sum": "$balance" } } }
}

fn add_up(documents: &[Document], by_group: bool) -> Sum {
    let number = |document: &Document, field| document.get_i64(field).unwrap_or_default();
    if by_group {
        return documents.first().map(|group| (number(group, "n"), number(group, "sum"))).unwrap_or_default();
    }
    let sum = documents.iter().map(|account| number(account, "balance")).sum();
    (i64::try_from(documents.len()).unwrap_or_default(), sum)
}

async fn sum_in_transaction(client: &Client, how: How) -> Result<Sum> {
    let accounts = client.database(DB).collection::<Document>(ACCOUNTS);
    let mut session = client.start_session().await?;
    let by_group = how == How::TransactionGroup;
    let options = TransactionOptions::builder().read_concern(ReadConcern::snapshot()).build();
    session.start_transaction().with_options(options).await?;
    let documents: Vec<Document> = if by_group {
        let mut cursor = accounts.aggregate([group()]).session(&mut session).await?;
        cursor.stream(&mut session).try_collect().await?
    } else {
        let mut cursor = accounts.find(doc! {}).batch_size(7).session(&mut session).await?;
        cursor.stream(&mut session).try_collect().await?
    };
    session.abort_transaction().await?;
    Ok(add_up(&documents, by_group))
}

/// A time after everything that any shard has done so far.
pub(crate) async fn now(cluster: &Cluster) -> Timestamp {
    let mut latest = Timestamp { time: 0, increment: 0 };
    for shard in cluster.shards() {
        let reply = shard.command("admin", doc! { "ping": 1 }).await.unwrap();
        latest = latest.max(reply.get_timestamp("operationTime").unwrap());
    }
    latest
}

/// Outside of transactions, on a plain connection: the point in time can be asked about afterwards.
async fn sum_in_snapshot(
    cluster: &Cluster,
    router: usize,
    how: How,
    after: Timestamp,
) -> Result<(Sum, Option<Bson>)> {
    let mut conn = cluster.router(router)?.raw().await?;
    let concern = doc! { "level": "snapshot", "afterClusterTime": after };
    let by_group = how == How::SnapshotGroup;
    let command = if by_group {
        doc! { "aggregate": ACCOUNTS, "pipeline": [group()], "cursor": {}, "readConcern": concern }
    } else {
        // In many batches: the later ones must see the same point in time.
        doc! { "find": ACCOUNTS, "batchSize": 7, "readConcern": concern }
    };
    let (documents, at) = read_all(&mut conn, command).await?;
    Ok((add_up(&documents, by_group), at))
}

/// All batches of a cursor, and the point in time that it says.
pub(crate) async fn read_all(conn: &mut RawConn, command: Document) -> Result<(Vec<Document>, Option<Bson>)> {
    let collection = command.values().next().and_then(Bson::as_str).context("collection")?.to_owned();
    let reply = conn.command_ok(DB, command).await?;
    let mut cursor = reply.get_document("cursor")?.clone();
    let at = cursor.get("atClusterTime").cloned();
    let mut documents = Vec::new();
    loop {
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"))?;
        documents.extend(batch.iter().filter_map(Bson::as_document).cloned());
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok((documents, at));
        }
        let more = doc! { "getMore": id, "collection": &collection, "batchSize": i64::try_from(batch.len().max(7)).unwrap_or(7) };
        cursor = conn.command_ok(DB, more).await?.get_document("cursor")?.clone();
    }
}

/// Says which account is wrong at that point in time, by its entries then, and what each shard holds of it.
async fn diagnose(cluster: &Cluster, opening: Opening, at: &Bson) {
    let concern = doc! { "level": "snapshot", "atClusterTime": at.clone() };
    let mut expected: BTreeMap<i64, i64> = (0..opening.accounts).map(|id| (id, opening.balance)).collect();
    let read = async |collection: &str, router: usize| -> Result<Vec<Document>> {
        let mut conn = cluster.router(router)?.raw().await?;
        let command = doc! { "find": collection, "readConcern": concern.clone() };
        Ok(read_all(&mut conn, command).await?.0)
    };
    let number = |document: &Document, field| document.get_i64(field).unwrap_or_default();
    match read(ENTRIES, 0).await {
        Ok(entries) => {
            for entry in entries {
                *expected.entry(number(&entry, "from")).or_default() -= number(&entry, "amount");
                *expected.entry(number(&entry, "to")).or_default() += number(&entry, "amount");
            }
        }
        Err(error) => eprintln!("entries at {at:?}: {error:#}"),
    }
    for router in 0..cluster.routers().len() {
        let accounts = match read(ACCOUNTS, router).await {
            Ok(accounts) => accounts,
            Err(error) => {
                eprintln!("accounts at {at:?} on router {router}: {error:#}");
                continue;
            }
        };
        for account in accounts {
            let id = number(&account, "_id");
            if expected.get(&id) == Some(&number(&account, "balance")) {
                continue;
            }
            eprintln!("router {router}: {account}, its entries make {:?}", expected.get(&id));
            for shard in cluster.shards() {
                let copy = doc! { "find": ACCOUNTS, "filter": { "_id": id }, "readConcern": concern.clone() };
                eprintln!("  {}: {:?}", shard.name(), shard.command(DB, copy).await);
            }
            let chunks = cluster.chunks(&format!("{DB}.{ACCOUNTS}")).await.unwrap_or_default();
            let key = number(&account, "k");
            let bound = |chunk: &Document, end: &str| {
                chunk.get_document(end).ok().and_then(|bound| bound.get_i64("k").ok())
            };
            for chunk in chunks.iter().filter(|chunk| {
                bound(chunk, "min").is_none_or(|min| min <= key)
                    && bound(chunk, "max").is_none_or(|max| key < max)
            }) {
                eprintln!("  {chunk}");
            }
        }
    }
}
