//! The sessions that were used here lately.
//!
//! Time is counted in periods, one a refresh: a session in use writes nothing but the number of the period, and only
//! once in each.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use document::DocWriter;
use parking_lot::Mutex;

use super::SessionId;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// Most sessions at a time (`maxSessions`).
const MAX_SESSIONS: usize = 1_000_000;

/// Periods without a use after which a session is forgotten: half an hour of five minutes each.
const FORGET_AFTER: u32 = 6;

/// The sessions of this router.
#[derive(Debug, Default)]
pub struct Registry {
    /// The period of each session's last use.
    used: DashMap<SessionId, AtomicU32, foldhash::fast::RandomState>,
    period: AtomicU32,
    /// Ended by their clients since the last refresh.
    ended: Mutex<Vec<SessionId>>,
    last_job: Mutex<Job>,
}

/// The refreshes so far, and what the last one did.
#[derive(Debug, Default, Clone, Copy)]
struct Job {
    count: i32,
    millis: i32,
    at: i64,
    refreshed: i32,
    ended: i32,
}

/// What a refresh has to tell the cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Used since the last refresh.
    pub(super) used: Vec<SessionId>,
    /// Ended since the last refresh.
    pub(super) ended: Vec<SessionId>,
}

impl Registry {
    /// A command names the session.
    pub fn seen(&self, session: SessionId) -> CommandResult<()> {
        let period = self.period.load(Ordering::Relaxed);
        if let Some(known) = self.used.get(&session) {
            if known.load(Ordering::Relaxed) != period {
                known.store(period, Ordering::Relaxed);
            }
            return Ok(());
        }
        admit(session, self.used.len())?;
        self.used.insert(session, AtomicU32::new(period));
        Ok(())
    }

    /// Its client ended it: its record goes with the next refresh.
    pub fn end(&self, sessions: &[SessionId]) {
        for session in sessions {
            self.used.remove(session);
        }
        let mut ended = self.ended.lock();
        // More than fits is left to the records' own time-out.
        let room = MAX_SESSIONS.saturating_sub(ended.len());
        ended.extend(sessions.iter().take(room));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// A refresh has ended that began at `at` (milliseconds since 1970).
    pub(super) fn refreshed(&self, due: &Due, at: i64, took: Duration) {
        let whole = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let mut job = self.last_job.lock();
        *job = Job {
            count: job.count.saturating_add(1),
            millis: i32::try_from(took.as_millis()).unwrap_or(i32::MAX),
            at,
            refreshed: whole(due.used.len()),
            ended: whole(due.ended.len()),
        };
    }

    /// `logicalSessionRecordCache` of serverStatus.
    pub(crate) fn write_status(&self, w: &mut DocWriter<'_>) {
        let job = *self.last_job.lock();
        w.put("activeSessionsCount", i32::try_from(self.len()).unwrap_or(i32::MAX));
        w.put("sessionsCollectionJobCount", job.count);
        w.put("lastSessionsCollectionJobDurationMillis", job.millis);
        w.put("lastSessionsCollectionJobTimestamp", document::Value::DateTime(job.at));
        w.put("lastSessionsCollectionJobEntriesRefreshed", job.refreshed);
        w.put("lastSessionsCollectionJobEntriesEnded", job.ended);
    }

    /// Begins the next period: gives what the last one brought, and forgets what nobody used for long.
    pub(super) fn next_period(&self) -> Due {
        let last = self.period.fetch_add(1, Ordering::Relaxed);
        let mut used = Vec::new();
        self.used.retain(|session, period| {
            // A command that runs right now may have read either number.
            let age = last.wrapping_add(1).wrapping_sub(period.load(Ordering::Relaxed));
            if age <= 1 {
                used.push(*session);
            }
            age <= FORGET_AFTER
        });
        Due { used, ended: std::mem::take(&mut *self.ended.lock()) }
    }

    /// A refresh failed: its sessions are told by the next one.
    pub(super) fn put_back(&self, due: &Due) {
        let period = self.period.load(Ordering::Relaxed);
        for session in &due.used {
            if let Some(known) = self.used.get(session) {
                known.store(period, Ordering::Relaxed);
            }
        }
        self.end(&due.ended);
    }
}

/// May one more session be known?
fn admit(session: SessionId, known: usize) -> CommandResult<()> {
    if known < MAX_SESSIONS {
        return Ok(());
    }
    Err(CommandError::new(
        ErrorCode::TooManyLogicalSessions,
        format!(
            "Unable to add session {session} into the cache because the number of active sessions is too high"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_sessions_are_enough() {
        assert!(admit(A, MAX_SESSIONS - 1).is_ok());
        let error = admit(A, MAX_SESSIONS).unwrap_err();
        assert_eq!((error.code().0, &*error.code().name()), (261, "TooManyLogicalSessions"));
        assert!(error.message().contains("the number of active sessions is too high"), "{error}");
    }

    const A: SessionId = SessionId([1; 16]);
    const B: SessionId = SessionId([2; 16]);

    #[test]
    fn a_refresh_tells_what_was_used_since_the_last_one() {
        let registry = Registry::default();
        registry.seen(A).unwrap();
        registry.seen(B).unwrap();
        registry.seen(A).unwrap();
        let mut due = registry.next_period();
        due.used.sort_by_key(|session| session.0);
        assert_eq!(due, Due { used: vec![A, B], ended: vec![] });
        registry.seen(B).unwrap();
        assert_eq!(registry.next_period(), Due { used: vec![B], ended: vec![] });
        registry.end(&[A]);
        assert_eq!(registry.next_period(), Due { used: vec![], ended: vec![A] });
        assert_eq!(registry.len(), 1);
    }

    #[test]
    fn what_could_not_be_told_is_told_the_next_time() {
        let registry = Registry::default();
        registry.seen(A).unwrap();
        registry.end(&[B]);
        let due = registry.next_period();
        registry.put_back(&due);
        assert_eq!(registry.next_period(), due);
    }

    #[test]
    fn a_session_that_nobody_uses_is_forgotten() {
        let registry = Registry::default();
        registry.seen(A).unwrap();
        for _ in 0..=FORGET_AFTER {
            assert_eq!(registry.len(), 1);
            registry.next_period();
        }
        assert!(registry.is_empty());
    }
}
