//! What the clients did and what they were told: the input of the checker.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::checker::{Fault, Rule};

/// The number of one operation, unique in a run. Every write leaves it in what it wrote.
pub(crate) type OpId = i64;

/// What a client knows of an operation afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It was told that it is done.
    Acknowledged,
    /// It was told that it is not, and will not be.
    Refused,
    /// It was told neither.
    Unknown,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Makes the document with this shard key; its `ops` are the number of this operation.
    Insert { document: String, key: i64 },
    /// Adds the number of this operation to the document's `ops`.
    Append { document: String },
    /// As `Append`, and gives the document another shard key.
    Move { document: String, to: i64 },
    /// Takes the document away.
    Delete { document: String },
    /// Changes two accounts and adds an entry with the number of this operation.
    Transfer { from: i64, to: i64, amount: i64 },
}

/// One operation and its outcome. Events of one document are in the order in which its only client sent them.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) op: OpId,
    /// How it was sent, for the figures.
    pub(crate) kind: &'static str,
    pub(crate) action: Action,
    pub(crate) verdict: Verdict,
}

/// What all clients write into while they run.
#[derive(Default)]
pub(crate) struct Ledger {
    next: AtomicI64,
    events: Mutex<Vec<Event>>,
    faults: Mutex<Vec<Fault>>,
    stopped: AtomicBool,
    pub(crate) snapshots: AtomicU64,
    pub(crate) own_reads: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) hung: AtomicU64,
}

impl Ledger {
    pub(crate) fn next_op(&self) -> OpId {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn record(&self, op: OpId, kind: &'static str, action: Action, verdict: Verdict) {
        self.events.lock().push(Event { op, kind, action, verdict });
    }

    pub(crate) fn count(&self) -> usize {
        self.events.lock().len()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// Notes a broken promise that a client saw itself, and ends the run: what follows would only hide it.
    pub(crate) fn fault(&self, rule: Rule, text: String) {
        eprintln!("BROKEN PROMISE: {rule:?}: {text}");
        self.faults.lock().push(Fault { rule, text });
        self.stop();
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.faults.lock().clone()
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn running(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed)
    }
}

/// A small deterministic generator: a seed gives the same plans again (though not the same timing).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random =
            Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(stream.wrapping_mul(2).wrapping_add(3)) | 1);
        random.below(2);
        random.below(2);
        random
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 16) % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    pub(crate) fn key(&mut self) -> i64 {
        i64::try_from(self.below(usize::try_from(crate::SPACE).unwrap())).unwrap()
    }
}
