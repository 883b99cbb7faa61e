//! The cursors that clients will come back for.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use document::Value;
use tokio::time::Instant;

use super::merge::RouterCursor;
use super::shard_cursor::ShardCursor;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::origin::Origin;
use crate::read::ChangeStream;
use crate::session::SessionId;

/// How a cursor waits for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorKind {
    /// Ends with its last document.
    Normal,
    /// Stays open at the end of a capped collection.
    Tailable,
    /// As that, and a getMore waits for data.
    TailableAwaitData,
}

/// What stays the same over a cursor's life.
#[derive(Debug)]
pub struct Owner {
    /// `<db>.<collection>` as in the replies of the opening command.
    pub namespace: Box<str>,
    /// The session that opened it: only it may go on.
    pub session: Option<SessionId>,
    /// The transaction that it was opened in: only its statements may go on.
    pub transaction: Option<i64>,
    /// How it waits.
    pub kind: CursorKind,
    /// Never killed for idleness.
    pub no_timeout: bool,
    /// `comment` of the opening command as a whole field, inherited by getMores.
    pub comment: Option<Box<[u8]>>,
    /// What is left of the opening command's `maxTimeMS` for all getMores together.
    pub time_left: Option<Duration>,
    /// A change stream has its streams here, and none in the cursor.
    pub change_stream: Option<Box<ChangeStream>>,
    /// The client that used it last.
    pub origin: Arc<Origin>,
}

/// A cursor between two getMores.
#[derive(Debug)]
struct Idle {
    owner: Owner,
    cursor: RouterCursor,
    since: Instant,
}

/// One entry: idle, or with a getMore.
#[derive(Debug)]
enum Slot {
    Idle(Box<Idle>),
    InUse {
        session: Option<SessionId>,
        transaction: Option<i64>,
        /// killCursors came in between: do not put it back.
        killed: bool,
    },
}

/// All cursors of this router.
#[derive(Debug, Default)]
pub struct CursorTable {
    slots: DashMap<i64, Slot, foldhash::fast::RandomState>,
    opened: AtomicU64,
    timed_out: AtomicU64,
    abandoned: AtomicU64,
    unknown: AtomicU64,
}

/// Counts for serverStatus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CursorCounts {
    /// Kept for a getMore, ever.
    pub opened: u64,
    /// Closed because nobody asked for more.
    pub timed_out: u64,
    /// Closed because their client was gone.
    pub abandoned: u64,
    /// getMores for a cursor that is not here: ended, or opened on another router.
    pub unknown: u64,
    /// A getMore works with them right now.
    pub pinned: u64,
    /// Over several shards.
    pub multi_target: u64,
    /// Over one shard.
    pub single_target: u64,
}

/// A cursor that a getMore works with. Give it back with [`CursorTable::check_in`]; one that is dropped instead
/// (exhausted, failed, or its client went away) is gone for good, and its shard cursors are closed.
#[derive(Debug)]
pub struct CheckedOut<'t> {
    place: Place<'t>,
    /// What stays the same.
    pub owner: Owner,
    /// The streams.
    pub cursor: RouterCursor,
}

/// The entry of a cursor in use; empties it when dropped.
#[derive(Debug)]
struct Place<'t> {
    table: &'t CursorTable,
    id: i64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.table.slots.remove_if(&self.id, |_, slot| matches!(slot, Slot::InUse { .. }));
    }
}

impl CheckedOut<'_> {
    /// The cursor's id.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.place.id
    }
}

impl CursorTable {
    /// Keeps a cursor; gives the id for the client: random, positive, told by no shard.
    pub fn insert(&self, owner: Owner, cursor: RouterCursor) -> i64 {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let slot = Slot::Idle(Box::new(Idle { owner, cursor, since: Instant::now() }));
        loop {
            let id = rand::random_range(1..i64::MAX);
            if let MapEntry::Vacant(vacant) = self.slots.entry(id) {
                vacant.insert(slot);
                return id;
            }
        }
    }

    /// Takes a cursor for a getMore.
    pub fn check_out(
        &self,
        id: i64,
        session: Option<SessionId>,
        transaction: Option<i64>,
    ) -> CommandResult<CheckedOut<'_>> {
        let MapEntry::Occupied(mut entry) = self.slots.entry(id) else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return Err(not_found(id));
        };
        match entry.get() {
            Slot::InUse { .. } => {
                Err(CommandError::new(ErrorCode::CursorInUse, format!("Cursor already in use (id: {id}).")))
            }
            Slot::Idle(idle) => {
                check_session(id, idle.owner.session, session)?;
                check_transaction(id, idle.owner.transaction, transaction)?;
                let in_use = Slot::InUse {
                    session: idle.owner.session,
                    transaction: idle.owner.transaction,
                    killed: false,
                };
                let Slot::Idle(idle) = std::mem::replace(entry.get_mut(), in_use) else {
                    return Err(not_found(id));
                };
                let Idle { owner, cursor, since: _ } = *idle;
                Ok(CheckedOut { place: Place { table: self, id }, owner, cursor })
            }
        }
    }

    /// Puts a cursor back; one that was killed meanwhile is closed instead.
    pub fn check_in(&self, checked_out: CheckedOut<'_>) {
        let CheckedOut { place, owner, cursor } = checked_out;
        if let MapEntry::Occupied(mut entry) = self.slots.entry(place.id)
            && matches!(entry.get(), Slot::InUse { killed: false, .. })
        {
            entry.insert(Slot::Idle(Box::new(Idle { owner, cursor, since: Instant::now() })));
        }
    }

    /// Kills one cursor. `None` when there is none; else what is to be closed (a cursor in use is closed by the
    /// getMore that has it).
    pub fn kill(&self, id: i64) -> Option<Vec<ShardCursor>> {
        let MapEntry::Occupied(mut entry) = self.slots.entry(id) else { return None };
        if let Slot::InUse { killed, .. } = entry.get_mut() {
            *killed = true;
            return Some(Vec::new());
        }
        match entry.remove() {
            Slot::Idle(idle) => Some(idle.cursor.into_streams()),
            Slot::InUse { .. } => Some(Vec::new()),
        }
    }

    /// The sessions that have a cursor.
    pub(crate) fn sessions(&self) -> HashSet<SessionId> {
        let session = |slot: &Slot| match slot {
            Slot::Idle(idle) => idle.owner.session,
            Slot::InUse { session, .. } => *session,
        };
        self.slots.iter().filter_map(|entry| session(entry.value())).collect()
    }

    /// Kills the cursors of sessions that `matches`; gives what is to be closed.
    pub fn kill_sessions(&self, matches: impl Fn(&SessionId) -> bool) -> Vec<ShardCursor> {
        let of_session = |slot: &Slot| match slot {
            Slot::Idle(idle) => idle.owner.session.as_ref().is_some_and(&matches),
            Slot::InUse { session, .. } => session.as_ref().is_some_and(&matches),
        };
        self.kill_all(of_session)
    }

    /// Kills the cursors of a transaction that is over; gives their streams, which the shards have closed.
    pub fn kill_transaction(&self, of: SessionId, number: i64) -> Vec<ShardCursor> {
        self.kill_all(|slot| {
            let (session, transaction) = match slot {
                Slot::Idle(idle) => (idle.owner.session, idle.owner.transaction),
                Slot::InUse { session, transaction, .. } => (*session, *transaction),
            };
            session == Some(of) && transaction == Some(number)
        })
    }

    /// Kills cursors that nobody asked for since `limit`; gives what is to be closed.
    pub fn kill_idle(&self, limit: Duration) -> Vec<ShardCursor> {
        let timed_out = &self.timed_out;
        self.kill_all(|slot| match slot {
            Slot::Idle(idle) if !idle.owner.no_timeout && idle.since.elapsed() >= limit => {
                timed_out.fetch_add(1, Ordering::Relaxed);
                true
            }
            _ => false,
        })
    }

    /// Kills cursors whose clients have had no connection since `grace`; gives what is to be closed.
    ///
    /// `noCursorTimeout` does not keep them: it speaks of a client that takes its time, not of one that is gone and that
    /// nobody can ask for the id. Such a cursor would stay open on its shards for as long as its session, or for ever.
    pub fn kill_of_gone(&self, grace: Duration) -> Vec<ShardCursor> {
        let abandoned = &self.abandoned;
        self.kill_all(|slot| match slot {
            Slot::Idle(idle) if idle.owner.origin.is_gone_for(grace) => {
                abandoned.fetch_add(1, Ordering::Relaxed);
                true
            }
            _ => false,
        })
    }

    /// The counts. One in use counts as pinned only: its shards are with the getMore.
    #[must_use]
    pub fn counts(&self) -> CursorCounts {
        let mut counts = CursorCounts {
            opened: self.opened.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            ..CursorCounts::default()
        };
        for entry in &self.slots {
            match entry.value() {
                Slot::InUse { .. } => counts.pinned += 1,
                Slot::Idle(idle) if idle.cursor.is_multi_target() => counts.multi_target += 1,
                Slot::Idle(_) => counts.single_target += 1,
            }
        }
        counts
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn kill_all(&self, matches: impl Fn(&Slot) -> bool) -> Vec<ShardCursor> {
        let ids: Vec<i64> =
            self.slots.iter().filter(|entry| matches(entry.value())).map(|entry| *entry.key()).collect();
        ids.into_iter().filter_map(|id| self.kill(id)).flatten().collect()
    }
}

fn not_found(id: i64) -> CommandError {
    CommandError::new(ErrorCode::CursorNotFound, format!("Cursor not found (id: {id})."))
}

/// The router's own numbers for the server's 50736 and 50738 (seen on 6.0.5's router code).
fn check_session(id: i64, cursor: Option<SessionId>, request: Option<SessionId>) -> CommandResult<()> {
    let refuse = |code, text: String| Err(CommandError::new(ErrorCode(code), text));
    match (cursor, request) {
        (None, None) => Ok(()),
        (Some(cursor), Some(request)) if cursor == request => Ok(()),
        (None, Some(request)) => refuse(
            50799,
            format!(
                "Cannot run getMore on cursor {id}, which was not created in a session, in session {request}"
            ),
        ),
        (Some(cursor), None) => refuse(
            50800,
            format!(
                "Cannot run getMore on cursor {id}, which was created in session {cursor}, without an lsid"
            ),
        ),
        (Some(cursor), Some(request)) => refuse(
            50801,
            format!(
                "Cannot run getMore on cursor {id}, which was created in session {cursor}, in session {request}"
            ),
        ),
    }
}

fn check_transaction(id: i64, cursor: Option<i64>, request: Option<i64>) -> CommandResult<()> {
    let refuse = |code, text: String| Err(CommandError::new(ErrorCode(code), text));
    match (cursor, request) {
        (None, None) => Ok(()),
        (Some(cursor), Some(request)) if cursor == request => Ok(()),
        (None, Some(request)) => refuse(
            50802,
            format!(
                "Cannot run getMore on cursor {id}, which was not created in a transaction, in transaction {request}"
            ),
        ),
        (Some(cursor), None) => refuse(
            50803,
            format!(
                "Cannot run getMore on cursor {id}, which was created in transaction {cursor}, without a txnNumber"
            ),
        ),
        (Some(cursor), Some(request)) => refuse(
            50804,
            format!(
                "Cannot run getMore on cursor {id}, which was created in transaction {cursor}, in transaction {request}"
            ),
        ),
    }
}

/// The id that a getMore names.
pub(crate) fn cursor_id(value: Value<'_>) -> CommandResult<i64> {
    match value {
        Value::Int64(id) => Ok(id),
        other => Err(CommandError::wrong_type("getMore.getMore", other, "long")),
    }
}
