//! One transaction as a router knows it: its participants, what they did, how it ends.
//!
//! No I/O: the callers tell what they are about to send and what came back, and ask what must be sent.

use chunk_map::ShardId;
use document::{DocBuf, Timestamp};
use smallvec::SmallVec;

/// What the first statement asked for; each participant's first request says the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadConcern {
    /// As a whole document: the client's, or the cluster's default.
    Plain(DocBuf),
    /// One point in time for all participants, chosen once.
    Snapshot(Timestamp),
    /// As before, but the client chose it.
    Given(Timestamp),
}

/// One shard of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Which.
    pub shard: ShardId,
    /// `None` until it answered a statement: then its part of the transaction may not exist.
    pub read_only: Option<bool>,
    /// The statement that brought it in.
    since: u32,
    /// The cluster time before its first request: it reads at this time or a later one.
    opened: Option<Timestamp>,
}

/// Shards, in the order in which they came in.
pub type Shards = SmallVec<[ShardId; 4]>;

/// What a request to a shard must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// It starts the shard's part of the transaction.
    pub starts: bool,
    /// The shard decides over a commit of several: said on each request to it.
    pub coordinator: bool,
}

/// How a transaction is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Commit {
    /// No shard was asked for anything.
    Nothing,
    /// One shard: it commits by itself.
    One(ShardId),
    /// Several shards that only read: each commits by itself.
    ReadOnly(Shards),
    /// One shard wrote, others only read: the readers first, then the writer, whose outcome is the transaction's.
    SingleWrite {
        /// Those that only read.
        readers: Shards,
        /// The one that wrote.
        writer: ShardId,
    },
    /// Several shards wrote: the coordinator makes them agree.
    TwoPhase {
        /// The first participant.
        coordinator: ShardId,
        /// All, the coordinator among them.
        participants: Shards,
    },
    /// The outcome is asked of a shard that wrote: the commit was sent before, by this router or by another one.
    Recover(ShardId),
}

/// Where a transaction is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Statements may come.
    Open,
    /// This router will not commit it any more.
    Aborted,
    /// A commit was sent; it may come again.
    Committing(Commit),
}

/// Why a transaction takes no more statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// Aborted.
    Aborted,
    /// A commit was sent.
    Committed,
}

/// Why there is nothing to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoCommit {
    /// Aborted.
    Aborted,
    /// This participant answered no statement.
    Unanswered(ShardId),
}

/// One transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    number: i64,
    concern: ReadConcern,
    participants: SmallVec<[Participant; 4]>,
    /// The first participant that wrote.
    recovery: Option<ShardId>,
    statement: u32,
    phase: Phase,
}

impl Transaction {
    /// A new one, before its first statement.
    #[must_use]
    pub fn begin(number: i64, concern: ReadConcern) -> Self {
        Self {
            number,
            concern,
            participants: SmallVec::new(),
            recovery: None,
            statement: 0,
            phase: Phase::Open,
        }
    }

    /// One whose statements went through another router: only its outcome can be asked for.
    #[must_use]
    pub fn recover(number: i64, shard: ShardId) -> Self {
        let mut transaction = Self::begin(number, ReadConcern::Plain(DocBuf::new()));
        transaction.phase = Phase::Committing(Commit::Recover(shard));
        transaction
    }

    /// `txnNumber`
    #[must_use]
    pub const fn number(&self) -> i64 {
        self.number
    }

    /// What each participant's first request says.
    #[must_use]
    pub const fn concern(&self) -> &ReadConcern {
        &self.concern
    }

    /// The point in time that all statements read at.
    #[must_use]
    pub const fn snapshot(&self) -> Option<Timestamp> {
        match self.concern {
            ReadConcern::Snapshot(time) | ReadConcern::Given(time) => Some(time),
            ReadConcern::Plain(_) => None,
        }
    }

    /// How many statements came so far.
    #[must_use]
    pub const fn statement(&self) -> u32 {
        self.statement
    }

    /// The next statement comes. An ended transaction takes none: a request to a new participant would open a part
    /// that nobody ends.
    pub fn next_statement(&mut self) -> Result<(), Closed> {
        match self.phase {
            Phase::Open => {
                self.statement = self.statement.saturating_add(1);
                Ok(())
            }
            Phase::Aborted => Err(Closed::Aborted),
            Phase::Committing(_) => Err(Closed::Committed),
        }
    }

    /// Must a statement not go to this shard because the last of its chunks came `arrived`, after the time that the
    /// shard reads at? It would not find what came with them, and say nothing (seen on 6.0.5). Gives that time.
    #[must_use]
    pub fn conflict(&self, shard: &ShardId, arrived: Timestamp) -> Option<Timestamp> {
        let reads_at = match self.concern {
            ReadConcern::Snapshot(time) | ReadConcern::Given(time) => Some(time),
            // A shard that does not take part yet will read what it has then.
            ReadConcern::Plain(_) => {
                self.participants.iter().find(|known| known.shard == *shard).and_then(|known| known.opened)
            }
        };
        reads_at.filter(|time| arrived > *time)
    }

    /// A snapshot that nothing was read from yet becomes that of a later time.
    pub fn read_later(&mut self, now: Option<Timestamp>) {
        if let (ReadConcern::Snapshot(time), Some(now), []) = (&mut self.concern, now, &*self.participants) {
            *time = now.max(*time);
        }
    }

    /// A request is about to go to a shard, at this cluster time.
    pub fn contact(&mut self, shard: &ShardId, now: Option<Timestamp>) -> Contact {
        let starts = !self.participants.iter().any(|known| known.shard == *shard);
        if starts {
            self.participants.push(Participant {
                shard: shard.clone(),
                read_only: None,
                since: self.statement,
                opened: now,
            });
        }
        Contact { starts, coordinator: self.is_coordinator(shard) }
    }

    /// Is it the first participant?
    #[must_use]
    pub fn is_coordinator(&self, shard: &ShardId) -> bool {
        self.participants.first().is_some_and(|first| first.shard == *shard)
    }

    /// A shard answered a statement without an error. False when it took a write back, which no shard may.
    #[must_use]
    pub fn answered(&mut self, shard: &ShardId, read_only: bool) -> bool {
        let Some(participant) = self.participants.iter_mut().find(|known| known.shard == *shard) else {
            return true;
        };
        if read_only && participant.read_only == Some(false) {
            return false;
        }
        participant.read_only = Some(read_only);
        if !read_only && self.recovery.is_none() {
            self.recovery = Some(shard.clone());
        }
        true
    }

    /// May a statement that was answered by a stale-routing error from this shard be sent again? Only the first one,
    /// and only while no other shard takes part (mongos 5.0): the shard has dropped its part by itself.
    #[must_use]
    pub fn may_retarget(&self, shard: &ShardId) -> bool {
        self.phase == Phase::Open
            && self.statement == 1
            && matches!(&*self.participants, [only] if only.shard == *shard && only.read_only.is_none())
    }

    /// Forgets a participant whose part is gone. The next one that is first becomes the coordinator.
    pub fn forget(&mut self, shard: &ShardId) {
        self.participants.retain(|known| known.shard != *shard);
        if self.recovery.as_ref() == Some(shard) {
            let mut writers = self.participants.iter().filter(|known| known.read_only == Some(false));
            self.recovery = writers.next().map(|known| known.shard.clone());
        }
    }

    /// Participants that this statement brought in.
    #[must_use]
    pub fn pending(&self) -> Shards {
        self.participants
            .iter()
            .filter(|known| known.since == self.statement)
            .map(|known| known.shard.clone())
            .collect()
    }

    /// All participants.
    #[must_use]
    pub fn shards(&self) -> Shards {
        self.participants.iter().map(|known| known.shard.clone()).collect()
    }

    /// The shard that knows the outcome of a commit: the first that wrote.
    #[must_use]
    pub const fn recovery(&self) -> Option<&ShardId> {
        self.recovery.as_ref()
    }

    /// Is the transaction still to be ended by someone?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Was it ended by an abort?
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.phase == Phase::Aborted
    }

    /// How to commit. A second call repeats the first one's way, or asks for the outcome where a repetition could be
    /// taken for another transaction's.
    pub fn commit(&mut self) -> Result<Commit, NoCommit> {
        let commit = match &self.phase {
            Phase::Aborted => return Err(NoCommit::Aborted),
            // The readers are gone after the first attempt.
            Phase::Committing(Commit::SingleWrite { writer, .. }) => {
                return Ok(Commit::Recover(writer.clone()));
            }
            Phase::Committing(commit) => return Ok(commit.clone()),
            Phase::Open => self.way_to_commit()?,
        };
        self.phase = Phase::Committing(commit.clone());
        Ok(commit)
    }

    fn way_to_commit(&self) -> Result<Commit, NoCommit> {
        if let Some(unanswered) = self.participants.iter().find(|known| known.read_only.is_none()) {
            return Err(NoCommit::Unanswered(unanswered.shard.clone()));
        }
        let reads = |known: &&Participant| known.read_only == Some(true);
        let readers: Shards =
            self.participants.iter().filter(reads).map(|known| known.shard.clone()).collect();
        let mut writers = self.participants.iter().filter(|known| !reads(known));
        Ok(match (&*self.participants, writers.next(), writers.next()) {
            ([], ..) => Commit::Nothing,
            ([only], ..) => Commit::One(only.shard.clone()),
            (_, None, _) => Commit::ReadOnly(readers),
            (_, Some(writer), None) => Commit::SingleWrite { readers, writer: writer.shard.clone() },
            ([first, ..], Some(_), Some(_)) => {
                Commit::TwoPhase { coordinator: first.shard.clone(), participants: self.shards() }
            }
        })
    }

    /// Ends it without a commit: gives the shards to tell. `None` when a commit is with the shards already, which must
    /// not be crossed by an abort.
    pub fn abort(&mut self) -> Option<Shards> {
        match self.phase {
            Phase::Open | Phase::Aborted => {
                self.phase = Phase::Aborted;
                Some(self.shards())
            }
            Phase::Committing(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
