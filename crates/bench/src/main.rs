//! Compares what a process in the middle costs: Pointsman, a plain TCP forwarder (HAProxy), another router, and the
//! server's own routing code as a shard runs it. All are driven in one run, in turns, over the same cluster.
//!
//! ```text
//! cargo run --release -p bench -- compare [--rounds 5] [--seconds 2] [--connections 1,16,64] [--mongos PATH]
//! cargo run --release -p bench -- merge [--documents 1000000] [--pause 60]
//! cargo run --release -p bench -- read-ahead [--documents 200000]
//! cargo run --release -p bench -- insert-many [--documents 100000]
//! cargo run --release -p bench -- group [--documents 1000000] [--keys 500000]
//! ```
//!
//! The figure that counts is CPU µs an operation of the middle process, read from `/proc`; wall-clock figures are
//! printed beside it and mean little on a shared machine.

mod ahead;
mod data;
mod group;
mod insert_many;
mod load;
mod merge;
mod middle;
mod report;
mod scenario;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::middle::Middle;
use crate::report::{Report, Sample};
use crate::scenario::Scenario;

#[derive(Parser)]
#[command(about = "Measures what a router costs beside a plain forwarder")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Pointsman beside HAProxy, the server's own routing code and, if given, a mongos.
    Compare(Compare),
    /// A sorted merge of many documents: CPU beside the shards', memory.
    Merge {
        /// How many, of about 200 bytes.
        #[arg(long, default_value_t = 1_000_000)]
        documents: i64,
        /// Seconds that the client pauses in the middle.
        #[arg(long, default_value_t = 0)]
        pause: u64,
        /// The router to measure; the release build otherwise.
        #[arg(long)]
        router: Option<PathBuf>,
    },
    /// Scans of all documents, with shards asked ahead of the client and without.
    ReadAhead {
        /// How many, of about 200 bytes.
        #[arg(long, default_value_t = 200_000)]
        documents: i64,
        /// Rounds of each.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// The router to measure; the release build otherwise.
        #[arg(long)]
        router: Option<PathBuf>,
    },
    /// Batches of a thousand documents over hashed shards: CPU beside the shards'.
    InsertMany {
        /// How many, of 200 bytes.
        #[arg(long, default_value_t = 100_000)]
        documents: i64,
        /// The router to measure; the release build otherwise.
        #[arg(long)]
        router: Option<PathBuf>,
    },
    /// Groups over three shards: merged by the router, by a shard, by the server's own routing code.
    Group {
        /// How many documents.
        #[arg(long, default_value_t = 1_000_000)]
        documents: i64,
        /// How many keys they have.
        #[arg(long, default_value_t = 500_000)]
        keys: i64,
        /// Rounds of each; the fastest counts.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// The router to measure; the release build otherwise.
        #[arg(long)]
        router: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
struct Compare {
    /// Rounds of each measurement; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Numbers of client connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    connections: Vec<usize>,
    /// Only these scenarios (ping, find, insert, update, sorted).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The router to measure; the release build otherwise.
    #[arg(long)]
    router: Option<PathBuf>,
    /// A mongos to compare with.
    #[arg(long)]
    mongos: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Compare(compare) => run(compare).await,
        Command::Merge { documents, pause, router } => {
            merge::run(router, documents, Duration::from_secs(pause)).await
        }
        Command::ReadAhead { documents, rounds, router } => ahead::run(router, documents, rounds).await,
        Command::InsertMany { documents, router } => insert_many::run(router, documents).await,
        Command::Group { documents, keys, rounds, router } => {
            group::run(router, documents, keys, rounds).await
        }
    }
}

async fn run(arguments: Compare) -> Result<()> {
    let cluster = data::start(arguments.router.clone()).await?;
    let middles = Middle::all(&cluster, arguments.mongos.as_deref()).await?;
    let mut report = Report::default();
    for scenario in Scenario::ALL {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|name| name == scenario.name()) {
            continue;
        }
        for &connections in &arguments.connections {
            for round in 0..arguments.rounds {
                for middle in &middles {
                    let Some(requests) = scenario.requests(middle.kind()) else { continue };
                    let before = middle.cpu()?;
                    let duration = Duration::from_secs_f64(arguments.seconds);
                    let seed = u64::try_from(round)?;
                    let result = load::drive(middle.address(), requests, connections, duration, seed).await?;
                    let cpu = middle.cpu()?.saturating_sub(before);
                    report.add(scenario, connections, middle.kind(), Sample::new(&result, cpu));
                }
            }
            report.print_row(scenario, connections);
        }
    }
    report.print();
    Ok(())
}
