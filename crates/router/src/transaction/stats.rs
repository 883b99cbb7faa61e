//! Counters of transactions, as serverStatus shows them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use document::DocWriter;

use super::state::Commit;

/// Counters; one set a router.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    started: AtomicU64,
    aborted: AtomicU64,
    committed: AtomicU64,
    contacted: AtomicU64,
    requests: AtomicU64,
    foreign: AtomicU64,
    /// By the order of [`WAYS`].
    ways: [Way; WAYS.len()],
}

/// The ways to commit, by mongos's names.
const WAYS: [&str; 6] =
    ["noShards", "singleShard", "singleWriteShard", "readOnly", "twoPhaseCommit", "recoverWithToken"];

#[derive(Debug, Default)]
struct Way {
    initiated: AtomicU64,
    successful: AtomicU64,
    micros: AtomicU64,
}

impl Stats {
    pub(super) fn started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn aborted(&self) {
        self.aborted.fetch_add(1, Ordering::Relaxed);
    }

    /// A statement came for a transaction that was not begun here.
    pub(super) fn foreign(&self) {
        self.foreign.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such statements came.
    pub(crate) fn foreign_statements(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// A request goes to a participant.
    pub(super) fn asks(&self, first: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if first {
            self.contacted.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn commit_begins(&self, commit: &Commit) {
        if let Some(way) = self.way(commit) {
            way.initiated.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn committed(&self, commit: &Commit, took: Duration) {
        self.committed.fetch_add(1, Ordering::Relaxed);
        if let Some(way) = self.way(commit) {
            way.successful.fetch_add(1, Ordering::Relaxed);
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            way.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    fn way(&self, commit: &Commit) -> Option<&Way> {
        self.ways.get(match commit {
            Commit::Nothing => 0,
            Commit::One(_) => 1,
            Commit::SingleWrite { .. } => 2,
            Commit::ReadOnly(_) => 3,
            Commit::TwoPhase { .. } => 4,
            Commit::Recover(_) => 5,
        })
    }

    /// Writes them; `open` transactions are neither committed nor aborted, `active` ones run a command right now.
    pub(crate) fn write(&self, w: &mut DocWriter<'_>, open: usize, active: usize) {
        let number = |counter: &AtomicU64| long(counter.load(Ordering::Relaxed));
        w.put("currentOpen", count(open));
        w.put("currentActive", count(active));
        w.put("currentInactive", count(open.saturating_sub(active)));
        w.put("totalStarted", number(&self.started));
        w.put("totalAborted", number(&self.aborted));
        w.put("totalCommitted", number(&self.committed));
        w.put("totalContactedParticipants", number(&self.contacted));
        w.put("totalRequestsTargeted", number(&self.requests));
        w.doc("commitTypes", |w| {
            for (name, way) in WAYS.iter().zip(&self.ways) {
                w.doc(name, |w| {
                    w.put("initiated", number(&way.initiated));
                    w.put("successful", number(&way.successful));
                    w.put("successfulDurationMicros", number(&way.micros));
                });
            }
        });
    }
}

fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
