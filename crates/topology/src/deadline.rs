//! Deadlines that cost nothing while nobody has to wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::time::Instant;

/// The future's output, or `None` when the deadline passes first. A timer is made only when the future is not ready
/// at the first try and there is a deadline.
pub(crate) async fn before<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let first = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await;
    match (first, deadline) {
        (Some(output), _) => Some(output),
        (None, None) => Some(future.await),
        (None, Some(deadline)) => tokio::time::timeout_at(deadline, future).await.ok(),
    }
}
