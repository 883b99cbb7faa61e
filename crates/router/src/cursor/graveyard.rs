//! Shard cursors that nobody will read any more, to be closed on their members.
//!
//! A [`super::ShardCursor`] that is dropped before it is exhausted ends here, whatever the reason: the client closed it or
//! vanished, another shard failed, a limit ended the merge. One task closes them ([`crate::Router`] starts it).

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, timeout};

use super::shard_cursor::{Ahead, OpenCursor};
use crate::remote::Servers;

/// How long a batch that is on its way to nobody may take to end, when its cursor is killed already.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cursor to be closed.
#[derive(Debug)]
pub struct Dead {
    cursor: OpenCursor,
    /// A batch of it is on its way.
    ahead: Option<Ahead>,
}

/// Cursors to be closed. Bounded by what was open: each entry was a cursor.
#[derive(Debug, Default)]
pub struct Graveyard {
    dead: Mutex<Vec<Dead>>,
    wake: Notify,
}

impl Graveyard {
    pub(super) fn bury(&self, cursor: OpenCursor, ahead: Option<Ahead>) {
        self.dead.lock().push(Dead { cursor, ahead });
        self.wake.notify_one();
    }

    /// Waits for cursors to close, and takes them all. Cancel-safe.
    pub async fn next(&self) -> Vec<Dead> {
        loop {
            let dead = std::mem::take(&mut *self.dead.lock());
            if !dead.is_empty() {
                return dead;
            }
            self.wake.notified().await;
        }
    }
}

impl Dead {
    /// Closes it on its member. A getMore that runs there is interrupted by that, and one that comes later finds nothing.
    pub async fn kill(self, servers: &Servers) {
        self.cursor.kill(servers).await;
        if let Some(mut ahead) = self.ahead
            && timeout(PATIENCE, &mut ahead).await.is_err()
        {
            // Gives up the connection to a member that does not answer.
            ahead.abort();
        }
    }
}
