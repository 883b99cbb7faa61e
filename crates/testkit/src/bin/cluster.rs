//! A cluster for hand work: see [`USAGE`].

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use testkit::Cluster;

const USAGE: &str = "\
cluster [--shards N] [--members N] [--routers N] [--port N] [--cache-gb X] [-- COMMAND…]
Starts real servers and this router, runs COMMAND with MONGODB_URI set and ends with its exit status;
without COMMAND it stays until Ctrl-C.";

#[tokio::main]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        eprintln!("cluster: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run() -> Result<ExitCode> {
    let mut builder = Cluster::builder();
    let mut arguments = std::env::args().skip(1);
    let mut command = Vec::new();
    while let Some(flag) = arguments.next() {
        if flag == "--" {
            command = arguments.by_ref().collect();
            break;
        }
        if flag == "--help" || flag == "-h" {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        let value = arguments.next().with_context(|| format!("{flag} needs a value"))?;
        builder = match flag.as_str() {
            "--shards" => builder.shards(value.parse()?),
            "--members" => builder.members(value.parse()?),
            "--routers" => builder.routers(value.parse()?),
            "--port" => builder.router_port(value.parse()?),
            "--cache-gb" => builder.cache_gb(value.parse()?),
            _ => bail!("unknown flag {flag}\n{USAGE}"),
        };
    }
    let cluster = builder.start().await?;
    // Without routers the address is the config server's: for looking at metadata by hand.
    let uri = cluster.uri().or_else(|_| {
        Ok::<_, anyhow::Error>(format!("mongodb://{}/", cluster.config().member(0)?.address()))
    })?;
    let Some((program, rest)) = command.split_first() else {
        println!("{uri}");
        for set in cluster.shards().iter().chain([cluster.config()]) {
            println!("  {}", set.connection_string());
        }
        println!("logs in {}; Ctrl-C ends it", cluster.dir().display());
        tokio::signal::ctrl_c().await?;
        return Ok(ExitCode::SUCCESS);
    };
    // It ends with this process as the servers do; the thread that starts it waits for it, and so outlives it.
    let mut child = Command::new("setpriv");
    child.args(["--pdeathsig", "KILL", "--", program]).args(rest).env("MONGODB_URI", &uri);
    let status = tokio::task::spawn_blocking(move || child.status()).await??;
    if !status.success() {
        cluster.keep_logs();
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
