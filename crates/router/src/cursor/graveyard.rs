//! Shard cursors that nobody will read any more, to be closed on their members.
//!
//! A [`super::ShardCursor`] that is dropped before it is exhausted ends here, whatever the reason: the client closed it or
//! vanished, another shard failed, a limit ended the merge. One task closes them ([`crate::Router`] starts it).

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::shard_cursor::OpenCursor;

/// Cursors to be closed. Bounded by what was open: each entry was a cursor.
#[derive(Debug, Default)]
pub struct Graveyard {
    dead: Mutex<Vec<OpenCursor>>,
    wake: Notify,
}

impl Graveyard {
    pub(super) fn bury(&self, cursor: OpenCursor) {
        self.dead.lock().push(cursor);
        self.wake.notify_one();
    }

    /// Waits for cursors to close, and takes them all. Cancel-safe.
    pub async fn next(&self) -> Vec<OpenCursor> {
        loop {
            let dead = std::mem::take(&mut *self.dead.lock());
            if !dead.is_empty() {
                return dead;
            }
            self.wake.notified().await;
        }
    }
}
