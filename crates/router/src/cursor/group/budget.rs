//! Memory for merging groups: so much for one merge, so much for all of the router's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Refusal;

/// Taken from the router's memory in steps, so that merges rarely touch the shared counter.
const STEP: usize = 256 * 1024;

/// What merges may take.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Bytes of all merges of the router.
    taken: Arc<AtomicUsize>,
    one: usize,
    all: usize,
}

/// What one merge has taken; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Budget,
    used: usize,
    taken: usize,
}

impl Budget {
    /// `one`: the most for one merge, `all`: for all whose bytes are in `taken`.
    #[must_use]
    pub const fn new(taken: Arc<AtomicUsize>, one: usize, all: usize) -> Self {
        Self { taken, one, all }
    }

    pub(super) fn reserve(&self) -> Reservation {
        Reservation { budget: self.clone(), used: 0, taken: 0 }
    }
}

impl Reservation {
    pub(super) const fn bytes(&self) -> usize {
        self.used
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.used += bytes;
        if self.used > self.budget.one {
            return Err(Refusal::Memory);
        }
        if self.used <= self.taken {
            return Ok(());
        }
        let more = (self.used - self.taken).next_multiple_of(STEP);
        let before = self.budget.taken.fetch_add(more, Ordering::Relaxed);
        self.taken += more;
        if before + more > self.budget.all { Err(Refusal::Memory) } else { Ok(()) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.taken, Ordering::Relaxed);
    }
}
