//! The time between the order to shut down and the end, in which a router still serves but tells clients to leave.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Set once, when the process is told to end.
#[derive(Debug, Default)]
pub struct Quiesce {
    until: OnceLock<Instant>,
    begun: CancellationToken,
}

impl Quiesce {
    /// One that begins with this token.
    #[must_use]
    pub const fn new(begun: CancellationToken) -> Self {
        Self { until: OnceLock::new(), begun }
    }

    /// Tells clients to leave, and when the end comes. Only the first call counts.
    pub fn begin(&self, limit: Duration) {
        self.until.get_or_init(|| Instant::now() + limit);
        self.begun.cancel();
    }

    /// Has it begun?
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Waits for the beginning.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// The token that is cancelled at the beginning.
    #[must_use]
    pub const fn token(&self) -> &CancellationToken {
        &self.begun
    }

    /// What is left until the end.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.until.get().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}
