//! Telling connections that the process ends, at no cost while it does not.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// One a process.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    wake: Notify,
}

impl Drain {
    /// From now on connections close instead of waiting for another request.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }

    /// Has it begun?
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// What will wake a task; see [`arm`].
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.wake.notified()
    }
}

/// Registers the current task, which will be woken when the drain begins and must then look at
/// [`Drain::has_begun`]. It stays registered for as long as `notified` lives: nothing is to be done per request.
pub(crate) async fn arm(mut notified: Pin<&mut Notified<'_>>) {
    poll_fn(|context: &mut Context<'_>| {
        let _ = notified.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}
