//! One point in time for all shards of a read: `readConcern: {level: "snapshot"}` outside of transactions.
//!
//! Each shard by itself would choose its own. When the router chose the time and a shard no longer has it (or the
//! chunk's history does not reach back to it), a later one is chosen and the read runs again; a time that the client
//! gave is never changed.

use std::sync::atomic::{AtomicU64, Ordering};

use document::{Timestamp, Value};

use crate::Router;
use crate::command::Op;
use crate::request::Request;

/// The time of one command's reads.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// 0: none.
    at: AtomicU64,
    /// The router chose it, not before this time.
    chosen: bool,
    not_before: Option<Timestamp>,
}

impl Snapshot {
    /// Of a command that asks for a snapshot; an empty one for others.
    pub(crate) fn of(router: &Router, request: &Request<'_>) -> Self {
        let none = Self::default();
        let Some(concern) = request.generic.read_concern else { return none };
        if concern.get_str("level") != Some("snapshot") || request.in_transaction() {
            return none;
        }
        let time = |name| concern.get(name).and_then(Value::as_timestamp);
        let snapshot = match time("atClusterTime") {
            Some(given) => Self { at: given.as_u64().into(), ..none },
            None => Self { chosen: true, not_before: time("afterClusterTime"), ..none },
        };
        snapshot.choose(router);
        snapshot
    }

    fn choose(&self, router: &Router) {
        if self.chosen {
            let at = router.clock().cluster_time().max(self.not_before);
            self.at.store(at.map_or(0, Timestamp::as_u64), Ordering::Relaxed);
        }
    }
}

impl Op<'_> {
    /// The point in time that the command reads at, outside of transactions.
    pub(crate) fn snapshot(&self) -> Option<Timestamp> {
        match self.snapshot.at.load(Ordering::Relaxed) {
            0 => None,
            raw => Some(Timestamp::from_u64(raw)),
        }
    }

    /// That time, when it is not the client's.
    pub(crate) fn chosen_snapshot(&self) -> Option<Timestamp> {
        self.snapshot().filter(|_| self.snapshot.chosen)
    }

    /// The point in time that the command is routed at: its snapshot's or its transaction's.
    pub(crate) fn routed_at(&self) -> Option<Timestamp> {
        self.transaction.as_ref().map_or_else(|| self.snapshot(), |statement| statement.snapshot())
    }

    /// A shard refused the time: chooses another one, if the router chose it.
    pub(crate) fn choose_snapshot_again(&self) -> bool {
        self.snapshot.choose(self.router);
        self.snapshot.chosen && self.transaction.is_none()
    }
}
