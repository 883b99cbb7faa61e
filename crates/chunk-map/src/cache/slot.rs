//! One cached thing that is refreshed by at most one future at a time.
//!
//! Every event that makes it stale gets a number; a refresh that began after an event covers it. Readers who were
//! told of an event wait for its number; all others only for events that concern everyone (`blocking`).
//!
//! ```text
//! need      number of the last event        blocking  number of the last event that stops every reader
//! done      all events up to here are covered by what is published: readable while done >= blocking
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use crate::error::CatalogError;

/// What a slot holds.
pub(super) trait Cached: Clone + Send + Sync + 'static {
    /// What a stale event can ask for.
    type Version: Copy + PartialEq + Send + Sync + 'static;

    /// Is this at least as new as the version that an event asked for?
    fn reaches(&self, wanted: Self::Version) -> bool;
}

/// Whom a stale event concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Everyone who reads.
    Everyone,
    /// Only those who ask for what is newer than the event.
    TheTold,
}

/// What a reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Something that is not known to be stale for everyone.
    Readable,
    /// Whatever covers all events so far.
    Refreshed,
}

type Refresh = BoxFuture<'static, Result<(), CatalogError>>;

pub(super) struct Slot<V: Cached> {
    current: ArcSwapOption<V>,
    readable: AtomicBool,
    /// Was it read since the last sweep? For eviction.
    used: AtomicBool,
    state: Mutex<State<V>>,
}

struct State<V: Cached> {
    need: u64,
    blocking: u64,
    done: u64,
    /// Events that are not covered; of those that ask for no version only the first.
    events: Vec<Event<V::Version>>,
    running: Option<WeakShared<Refresh>>,
    /// Events up to here are covered by the refresh that is under way, as long as that lives.
    covering: (u64, Weak<()>),
}

impl<V: Cached> State<V> {
    /// Is this event left to a refresh that did not begin yet?
    fn is_open(&self, event: &Event<V::Version>) -> bool {
        let (covered, alive) = &self.covering;
        event.number > *covered || alive.strong_count() == 0
    }
}

struct Event<W> {
    number: u64,
    wanted: Option<W>,
}

/// Versions that are remembered singly; what comes on top is covered by the next refresh only.
const MAX_EVENTS: usize = 32;

impl<V: Cached> Default for Slot<V> {
    fn default() -> Self {
        Self {
            current: ArcSwapOption::empty(),
            readable: AtomicBool::new(false),
            used: AtomicBool::new(false),
            state: Mutex::new(State {
                need: 1,
                blocking: 1,
                done: 0,
                events: vec![Event { number: 1, wanted: None }],
                running: None,
                covering: (0, Weak::new()),
            }),
        }
    }
}

impl<V: Cached> Slot<V> {
    /// The value, when nobody need wait for another one.
    pub(super) fn readable(&self) -> Option<V> {
        if !self.readable.load(Ordering::Acquire) {
            return None;
        }
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.last()
    }

    /// The value that was published last, stale or not.
    pub(super) fn last(&self) -> Option<V> {
        self.current.load().as_deref().cloned()
    }

    pub(super) fn was_ever_loaded(&self) -> bool {
        self.current.load().is_some()
    }

    /// Clears the mark that `readable` sets, and says whether it was there.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Notes a stale event. One that asks for what is there already is none.
    pub(super) fn mark(&self, wanted: Option<V::Version>, scope: Scope) {
        let mut state = self.state.lock();
        if let (Some(wanted), Some(current)) = (wanted, self.current.load().as_deref())
            && current.reaches(wanted)
        {
            return;
        }
        let known = state.events.iter().find(|event| event.wanted.is_some() && event.wanted == wanted);
        let number = match known {
            // A second voice for the same version: whoever covers one covers both.
            Some(event) => event.number,
            None => {
                state.need += 1;
                let number = state.need;
                if wanted.is_some() && state.events.len() < MAX_EVENTS {
                    state.events.push(Event { number, wanted });
                } else if !state.events.iter().any(|event| event.wanted.is_none() && state.is_open(event)) {
                    state.events.push(Event { number, wanted: None });
                }
                number
            }
        };
        if scope == Scope::Everyone {
            state.blocking = state.blocking.max(number);
        }
        self.readable.store(state.done >= state.blocking, Ordering::Release);
    }

    /// Waits until what is wanted is there. `start` makes the future that loads the next value from the last one.
    pub(super) async fn wait<F>(
        self: &Arc<Self>,
        want: Want,
        start: impl Fn(Option<V>) -> F,
    ) -> Result<V, CatalogError>
    where
        F: Future<Output = Result<V, CatalogError>> + Send + 'static,
    {
        let mut target = None;
        loop {
            let refresh = {
                let mut state = self.state.lock();
                let target = *target.get_or_insert(match want {
                    Want::Readable => state.blocking,
                    Want::Refreshed => state.need,
                });
                if state.done >= target
                    && let Some(value) = self.last()
                {
                    return Ok(value);
                }
                match state.running.as_ref().and_then(WeakShared::upgrade) {
                    Some(running) => running,
                    None => self.begin(&mut state, &start)?,
                }
            };
            refresh.await?;
        }
    }

    fn begin<F>(
        self: &Arc<Self>,
        state: &mut State<V>,
        start: impl Fn(Option<V>) -> F,
    ) -> Result<Shared<Refresh>, CatalogError>
    where
        F: Future<Output = Result<V, CatalogError>> + Send + 'static,
    {
        let covers = state.need;
        let load = start(self.last());
        // The slot does not keep its own future alive, nor the future its slot.
        let slot = Arc::downgrade(self);
        let alive = Arc::new(());
        state.covering = (covers, Arc::downgrade(&alive));
        let refresh: Refresh = async move {
            let _alive = alive;
            let result = load.await;
            if let Some(slot) = slot.upgrade() {
                return slot.end(covers, result);
            }
            result.map(|_| ())
        }
        .boxed();
        let refresh = refresh.shared();
        state.running = refresh.downgrade();
        Ok(refresh)
    }

    /// Publishes the result of the refresh that covers all events up to `covers`.
    fn end(&self, covers: u64, result: Result<V, CatalogError>) -> Result<(), CatalogError> {
        let mut state = self.state.lock();
        state.running = None;
        let value = result?;
        state.events.retain(|event| {
            event.number > covers && !event.wanted.is_some_and(|wanted| value.reaches(wanted))
        });
        // Events that were folded into an earlier one are covered only with it.
        state.done = state.events.iter().map(|event| event.number - 1).min().unwrap_or(state.need);
        self.current.store(Some(Arc::new(value)));
        self.readable.store(state.done >= state.blocking, Ordering::Release);
        Ok(())
    }
}
