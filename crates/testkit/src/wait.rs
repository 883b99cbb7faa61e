//! Waiting for a condition instead of for a while.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout};

const POLL: Duration = Duration::from_millis(20);
const DEFAULT_LIMIT: Duration = Duration::from_secs(30);

/// Waits until `condition` is true, at most 30 seconds.
///
/// # Errors
/// Names `what` when the time is over.
pub async fn eventually<F, Fut>(what: &str, condition: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    eventually_within(DEFAULT_LIMIT, what, condition).await
}

/// As [`eventually`], with a limit of its own.
///
/// # Errors
/// Names `what` when the time is over.
pub async fn eventually_within<F, Fut>(limit: Duration, what: &str, mut condition: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    let end = Instant::now() + limit;
    loop {
        // A condition that hangs (a stopped server) must not hide that the time is over.
        if timeout(limit, condition()).await.unwrap_or(false) {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!("not within {limit:?}: {what}");
        }
        sleep(POLL).await;
    }
}
