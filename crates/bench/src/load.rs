//! A closed loop of clients on raw connections: each sends, waits for the answer, sends again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scenario::Requests;

/// What came out of one run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Of each operation, unsorted.
    pub(crate) latencies: Vec<Duration>,
}

/// Drives one middle. All clients share one thread, so that the load itself costs as little as it can.
pub(crate) async fn drive(
    address: &str,
    requests: Requests,
    connections: usize,
    duration: Duration,
    seed: u64,
) -> Result<Outcome> {
    let address = address.to_owned();
    let run = move || -> Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let start = Instant::now();
            let clients =
                (0..connections).map(|number| client(&address, requests, number, seed, start + duration));
            let all = try_join_all(clients).await?;
            let latencies: Vec<Duration> = all.into_iter().flatten().collect();
            Ok(Outcome { operations: u64::try_from(latencies.len())?, elapsed: start.elapsed(), latencies })
        })
    };
    tokio::task::spawn_blocking(run).await?
}

async fn client(
    address: &str,
    requests: Requests,
    number: usize,
    seed: u64,
    until: Instant,
) -> Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    let mut session = [0_u8; 16];
    let unique = (seed << 32) | u64::try_from(number)?;
    let (head, tail) = session.split_at_mut(8);
    head.copy_from_slice(&unique.to_le_bytes());
    tail.copy_from_slice(&u64::from(std::process::id()).wrapping_add(nanos()).to_le_bytes());
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut n = unique << 20;
    while Instant::now() < until {
        n += 1;
        let body = requests(n, &session);
        let message = frame(body.as_bytes(), n)?;
        let sent = Instant::now();
        stream.write_all(&message).await?;
        let length = receive(&mut stream, &mut buffer).await?;
        latencies.push(sent.elapsed());
        if latencies.len() == 1 {
            check(buffer.get(21..length).unwrap_or_default())?;
        }
    }
    Ok(latencies)
}

fn nanos() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::from(since.subsec_nanos()))
}

fn frame(body: &[u8], n: u64) -> Result<Vec<u8>> {
    let mut message = Vec::with_capacity(body.len() + 21);
    message.extend_from_slice(&i32::try_from(body.len() + 21)?.to_le_bytes());
    message.extend_from_slice(&i32::try_from(n & 0x7FFF_FFFF)?.to_le_bytes());
    message.extend_from_slice(&0_i32.to_le_bytes());
    message.extend_from_slice(&2013_i32.to_le_bytes());
    message.extend_from_slice(&[0; 5]);
    message.extend_from_slice(body);
    Ok(message)
}

async fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<usize> {
    let mut have = 0;
    loop {
        if let Some(length) = buffer.get(..have).and_then(|bytes| bytes.first_chunk::<4>()) {
            let length = usize::try_from(i32::from_le_bytes(*length))?;
            if have >= length {
                return Ok(length);
            }
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
        }
        let room = buffer.get_mut(have..).unwrap_or_default();
        match stream.read(room).await? {
            0 => bail!("the other end closed the connection"),
            more => have += more,
        }
    }
}

/// The first answer of each client must be a success, or the numbers mean nothing.
fn check(body: &[u8]) -> Result<()> {
    let reply = bson::Document::from_reader(body)?;
    let ok = reply.get("ok").is_some_and(|ok| matches!(ok, bson::Bson::Double(1.0) | bson::Bson::Int32(1)));
    if !ok || reply.contains_key("writeErrors") {
        bail!("an operation failed: {reply}");
    }
    if let Ok(cursor) = reply.get_document("cursor")
        && cursor.get_array("firstBatch").is_ok_and(Vec::is_empty)
    {
        bail!("a find found nothing: {reply}");
    }
    Ok(())
}
