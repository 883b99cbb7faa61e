//! `./dev demo`: a sharded cluster behind Pointsman, with data, and a short show of what the router does.
//!
//! `demo [--once] [--port N]`. Each line of the show is checked against the servers' own counters and profilers and
//! against the process's resident size; with `--once` the exit status says whether all of it was right.

mod data;
mod show;

use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::Cluster;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout};

const DEFAULT_PORT: u16 = 27_017;
/// Far above what it takes on a slow machine: a hang shall end the demo, not the patience of its user.
const SHOW_LIMIT: Duration = Duration::from_secs(300);

struct Options {
    once: bool,
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<bool> {
    let options = options()?;
    let mut builder = Cluster::builder().shards(3).cache_gb(0.5);
    if options.port != 0 {
        ensure!(
            TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).is_ok(),
            "port {} is taken: ./dev demo --port N",
            options.port
        );
        builder = builder.router_port(options.port);
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(stopped);

    let begin = Instant::now();
    let cluster = tokio::select! {
        cluster = builder.start() => cluster?,
        () = &mut stopped => bail!("stopped while the cluster started"),
    };
    println!("config servers, 3 shards and Pointsman started in {:.1} s", begin.elapsed().as_secs_f64());
    println!("connection string: {}\n", cluster.uri()?);

    let shown = tokio::select! {
        shown = timeout(SHOW_LIMIT, show::run(&cluster)) => shown,
        () = &mut stopped => bail!("stopped"),
    };
    let good = match shown {
        Ok(Ok(good)) => good,
        Ok(Err(error)) => {
            println!("WRONG  {error:#}");
            false
        }
        Err(_) => {
            println!("WRONG  the show did not end within {SHOW_LIMIT:?}");
            false
        }
    };
    if !good {
        cluster.keep_logs();
        println!("\nlogs: {}", cluster.dir().display());
    }
    if !options.once {
        println!("\n{} stays up until Ctrl-C", cluster.uri()?);
        stopped.await;
    }
    Ok(good)
}

fn options() -> Result<Options> {
    let mut options = Options { once: false, port: DEFAULT_PORT };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--once" => options.once = true,
            "--port" => options.port = arguments.next().context("--port needs a number")?.parse()?,
            other => bail!("unknown argument {other}; usage: ./dev demo [--once] [--port N]"),
        }
    }
    Ok(options)
}
