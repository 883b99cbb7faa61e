//! The transactions of this router: one a session, and what ends them when no client does.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use document::DocBuf;
use smallvec::SmallVec;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use topology::ReplicaSet;

use super::end::abort_on_shards;
use super::state::{Shards, Transaction};
use super::stats::Stats;
use crate::Router;
use crate::session::SessionId;

/// Forgotten after this time without a statement: as long as a session lives (`localLogicalSessionTimeoutMinutes`).
const FORGET_AFTER: Duration = Duration::from_secs(30 * 60);

/// What a session's transaction is here.
#[derive(Debug)]
pub(super) struct Record {
    /// The last one; `None` before the first.
    pub(super) transaction: Option<Transaction>,
    /// Where its participants are.
    pub(super) sets: SmallVec<[(chunk_map::ShardId, Arc<ReplicaSet>); 4]>,
    /// The stable API's parameters of the first statement, as elements.
    pub(super) api: DocBuf,
    /// Cursors were opened that end with it.
    pub(super) has_cursors: bool,
    /// When the last statement came.
    pub(super) used: Instant,
}

/// All transactions. A session runs one command at a time: whoever holds the lock.
#[derive(Debug, Default)]
pub struct Transactions {
    sessions: DashMap<SessionId, Arc<Mutex<Record>>, foldhash::fast::RandomState>,
    stats: Arc<Stats>,
}

impl Record {
    fn new() -> Self {
        Self {
            transaction: None,
            sets: SmallVec::new(),
            api: DocBuf::new(),
            has_cursors: false,
            used: Instant::now(),
        }
    }

    /// The sets of these shards, with whether each is the coordinator.
    pub(super) fn targets(&self, shards: &Shards) -> SmallVec<[Target; 4]> {
        let find = |shard: &chunk_map::ShardId| self.sets.iter().find(|(known, _)| known == shard);
        shards
            .iter()
            .filter_map(|shard| {
                let (_, set) = find(shard)?;
                let coordinator =
                    self.transaction.as_ref().is_some_and(|transaction| transaction.is_coordinator(shard));
                Some(Target { set: Arc::clone(set), coordinator })
            })
            .collect()
    }
}

/// One participant to be told of the end.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) set: Arc<ReplicaSet>,
    pub(super) coordinator: bool,
}

impl Transactions {
    /// Waits for the session's other command, if one runs.
    pub(super) async fn check_out(&self, session: SessionId) -> OwnedMutexGuard<Record> {
        let record =
            Arc::clone(&self.sessions.entry(session).or_insert_with(|| Arc::new(Mutex::new(Record::new()))));
        record.lock_owned().await
    }

    /// Counters.
    pub(crate) const fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Writes the section of serverStatus.
    pub(crate) fn write_status(&self, w: &mut document::DocWriter<'_>) {
        let (mut open, mut active) = (0, 0);
        for entry in &self.sessions {
            match entry.value().try_lock() {
                Ok(record) => {
                    open += usize::from(record.transaction.as_ref().is_some_and(Transaction::is_open));
                }
                // Its command runs right now.
                Err(_) => {
                    open += 1;
                    active += 1;
                }
            }
        }
        self.stats.write(w, open, active);
    }

    /// Is there none, open or ended?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Ends the open ones that `matches`, and gives what must be told to shards. One whose command runs right now is
    /// left alone.
    fn abandon(
        &self,
        matches: impl Fn(&SessionId, &Record) -> bool,
    ) -> Vec<(SessionId, i64, SmallVec<[Target; 4]>)> {
        let mut abandoned = Vec::new();
        for entry in &self.sessions {
            let Ok(mut record) = entry.value().try_lock() else { continue };
            let is_open = record.transaction.as_ref().is_some_and(Transaction::is_open);
            if !is_open || !matches(entry.key(), &record) {
                continue;
            }
            let Some(transaction) = &mut record.transaction else { continue };
            let number = transaction.number();
            let Some(shards) = transaction.abort() else { continue };
            self.stats.aborted();
            abandoned.push((*entry.key(), number, record.targets(&shards)));
        }
        abandoned
    }

    /// Forgets sessions that did nothing for long.
    fn forget_idle(&self) {
        self.sessions.retain(|_, record| {
            // Nobody can take a second reference while this holds the map's lock.
            Arc::strong_count(record) > 1
                || record.try_lock().map_or(true, |record| record.used.elapsed() < FORGET_AFTER)
        });
    }
}

impl Router {
    /// Ends the transactions of sessions that are over by now. Their limit is the shards' own
    /// (`transactionLifetimeLimitSeconds`), which an operator may have raised: no transaction ends here before it.
    pub(crate) async fn reap_transactions(&self) {
        self.abandon_transactions(&|_, record| record.used.elapsed() >= FORGET_AFTER).await;
        self.transactions().forget_idle();
    }

    /// Aborts every open transaction: the router stops, and its clients go on elsewhere from the start.
    pub async fn abort_all_transactions(&self) {
        self.abandon_transactions(&|_, _| true).await;
    }

    /// Aborts the open transactions of sessions, without waiting for the shards.
    pub(crate) fn abort_transactions_of(&self, matches: impl Fn(&SessionId) -> bool) {
        self.tasks().spawn(self.abandon_transactions(&|session, _| matches(session)));
    }

    fn abandon_transactions(
        &self,
        matches: &dyn Fn(&SessionId, &Record) -> bool,
    ) -> impl Future<Output = ()> + Send + use<> {
        let abandoned = self.transactions().abandon(matches);
        let servers = Arc::clone(self.servers());
        async move {
            let aborts = abandoned.into_iter().map(|(session, number, targets)| {
                abort_on_shards(Arc::clone(&servers), session, number, targets)
            });
            futures_util::future::join_all(aborts).await;
        }
    }
}
