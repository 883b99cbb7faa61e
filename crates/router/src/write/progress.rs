//! Which statements are done, which failed, which must be sent (again).
//!
//! A statement is due, in flight, or settled (applied or failed). In flight becomes due again only when its shard
//! said that it did not apply it.

use std::collections::{BTreeMap, BTreeSet};

use chunk_map::{ShardId, ShardSet};

use super::child::Answer;
use super::outcome::Outcome;
use super::split::{Child, MAX_STATEMENTS, Plan, Spreading};
use crate::codes::ErrorCode;
use crate::error::CommandError;

/// The state of one batch.
#[derive(Debug)]
pub(super) struct Progress {
    ordered: bool,
    due: Due,
    /// Statements that a stale answer sent back in this round.
    again: Vec<u32>,
    /// Statements that go to several shards, by their places, until they are settled.
    spread: BTreeMap<u32, Spread>,
    /// Statements that were looked for on several shards before, and are looked for again; the shards that answered for
    /// them.
    looked: BTreeMap<u32, ShardSet>,
    /// Spread statements that a shard has called retried, and that are in the count.
    retried: BTreeSet<u32>,
    /// The round in progress.
    tally: Tally,
    settled: usize,
    len: u32,
    /// Most statements of one child, while one is looked for that a shard did not name.
    most: usize,
    moving: Option<CommandError>,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
enum Due {
    /// All from this one on.
    From(u32),
    /// These.
    These(Vec<u32>),
}

/// One statement that goes to several shards.
#[derive(Debug, Default)]
struct Spread {
    /// Shards that need not be asked again ([`Spreading::All`]).
    taken: ShardSet,
    /// The statement has found its document ([`Spreading::Any`]).
    found: bool,
    /// Shards that answered without an error ([`Spreading::Any`]).
    answered: ShardSet,
    /// How it is spread in the round in progress.
    in_flight: Option<Spreading>,
    /// Errors of the round in progress.
    errors: Vec<CommandError>,
}

/// What the shards say of one round in which statements go to several of them.
///
/// The history of a document moves with it, also while the statement is on its way: then its old shard says that it did
/// the statement, and its new one that it was done before; after another attempt of the client both say the latter. So
/// what is called retried is counted behind everything else, and only as far as there are statements left to have done
/// it: a statement that can be retried has one document at most.
#[derive(Debug, Default)]
struct Tally {
    /// Different statements of the round.
    statements: usize,
    /// Documents of all answers but for what they call retried of statements that go to several shards.
    fresh: i64,
    /// Statements that shards call retried which had not answered for them before.
    retried: BTreeSet<u32>,
}

impl Tally {
    fn of(plan: &Plan) -> Self {
        if plan.spread.is_empty() {
            return Self::default();
        }
        let mut all: Vec<u32> =
            plan.children.iter().flat_map(|child| child.statements.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        Self { statements: all.len(), ..Self::default() }
    }

    /// Statements that may have been done but were not counted.
    fn room(&self) -> usize {
        self.statements.saturating_sub(usize::try_from(self.fresh).unwrap_or(0))
    }
}

/// Does an error say that the statement was not applied since the router's table was stale?
pub(super) const fn is_stale(code: ErrorCode) -> bool {
    code.is_stale() || matches!(code, ErrorCode::StaleEpoch)
}

impl Progress {
    pub(super) fn new(len: usize, ordered: bool) -> Self {
        Self {
            ordered,
            due: Due::From(0),
            again: Vec::new(),
            spread: BTreeMap::new(),
            looked: BTreeMap::new(),
            retried: BTreeSet::new(),
            tally: Tally::default(),
            settled: 0,
            // The batch was counted: at most 100,000.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            most: MAX_STATEMENTS,
            moving: None,
            outcome: Outcome::default(),
        }
    }

    /// The statements to send, in the client's order.
    pub(super) fn due(&self) -> impl Iterator<Item = u32> + '_ {
        let (range, list) = match &self.due {
            Due::From(next) => (*next..self.len, &[][..]),
            Due::These(list) => (0..0, &**list),
        };
        range.chain(list.iter().copied())
    }

    /// Nothing is left to send.
    pub(super) fn is_finished(&self) -> bool {
        self.due().next().is_none()
    }

    /// Statements that are applied or failed.
    pub(super) const fn settled(&self) -> usize {
        self.settled
    }

    /// Most statements of one child.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// The only statement of the batch moves its document to another shard: what its shard said.
    pub(super) const fn take_moving(&mut self) -> Option<CommandError> {
        self.moving.take()
    }

    /// The statement that moves its document is settled.
    pub(super) fn moved(&mut self, shard: &ShardId, answer: Result<Answer, CommandError>) {
        match answer {
            Ok(mut answer) => match std::mem::take(&mut answer.errors).into_iter().next() {
                Some((_, error)) => self.fail(0, error),
                None => {
                    self.outcome.add(shard, &[0], answer);
                    self.settle(0);
                }
            },
            Err(error) => self.fail(0, error),
        }
        self.due = Due::These(Vec::new());
    }

    /// The shards that took a statement that goes to all.
    pub(super) fn taken(&self, statement: u32) -> Option<&ShardSet> {
        self.spread.get(&statement).map(|spread| &spread.taken)
    }

    /// A round begins: its statements are in flight, what it left waits, what it refused has failed.
    pub(super) fn begin(&mut self, plan: &mut Plan) {
        self.tally = Tally::of(plan);
        self.again = std::mem::take(&mut plan.left);
        // What was spread before may be for one shard now.
        self.spread.retain(|_, spread| !spread.taken.is_empty());
        for (statement, spreading) in &plan.spread {
            self.spread.entry(*statement).or_default().in_flight = Some(*spreading);
        }
        if !self.ordered {
            // Whatever is not left is in flight or settled.
            self.due = Due::These(Vec::new());
        }
        for statement in std::mem::take(&mut plan.completed) {
            self.settle(statement);
        }
        for (statement, error) in std::mem::take(&mut plan.refused) {
            self.fail(statement, error);
        }
    }

    /// A child was answered. `stale` is told each error that says so.
    pub(super) fn record(
        &mut self,
        child: &Child,
        answer: Result<Answer, CommandError>,
        mut stale: impl FnMut(&CommandError),
    ) {
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                if is_stale(error.code()) {
                    stale(&error);
                }
                return self.child_failed(child, &error);
            }
        };
        for (_, error) in &answer.errors {
            if is_stale(error.code()) {
                stale(error);
            }
        }
        let errors = std::mem::take(&mut answer.errors);
        let found = answer.n > 0;
        let later = self.put_off_retried(child, &answer.retried_places).min(answer.n);
        answer.n -= later;
        answer.n_modified = (answer.n_modified - later).max(0);
        self.tally.fresh += answer.n;
        self.outcome.add(&child.destination.shard, &child.statements, answer);
        if self.ordered && !self.is_spread(child.statements.first()) {
            self.record_run(child, errors);
        } else {
            self.record_group(child, errors, found);
        }
    }

    /// Notes what a shard calls retried of statements that go to several shards; gives how many these are. What it did in
    /// an earlier round is in the count.
    fn put_off_retried(&mut self, child: &Child, places: &[u32]) -> i64 {
        let mut count = 0;
        for place in places {
            let statement = usize::try_from(*place).ok().and_then(|place| child.statements.get(place));
            let Some(statement) = statement.copied().filter(|statement| self.is_spread(Some(statement)))
            else {
                continue;
            };
            count += 1;
            let answered = self.looked.get(&statement);
            if answered.is_some_and(|answered| answered.contains(&child.destination.shard)) {
                self.retried.insert(statement);
            } else {
                self.tally.retried.insert(statement);
            }
        }
        count
    }

    /// Counts what was called retried in this round and is not in the count.
    fn count_retried(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        let new = tally.retried.iter().filter(|statement| self.retried.insert(**statement)).count();
        if new > 0 {
            let of_all = usize::try_from(self.len).unwrap_or(0).saturating_sub(self.outcome.found());
            self.outcome.found_before(new.min(tally.room()).min(of_all));
        }
    }

    /// A statement failed in a transaction, which ends with it: what the other answers say is told, nothing is sent again.
    pub(super) fn end_with(&mut self, children: &[Child], answers: Vec<Result<Answer, CommandError>>) {
        let mut failed: Option<(u32, CommandError)> = None;
        for (child, answer) in children.iter().zip(answers) {
            let (place, error) = match answer {
                Ok(mut answer) => {
                    let first = std::mem::take(&mut answer.errors).into_iter().next();
                    self.outcome.add(&child.destination.shard, &child.statements, answer);
                    let Some(first) = first else { continue };
                    first
                }
                Err(error) => (0, error),
            };
            let statement = usize::try_from(place).ok().and_then(|place| child.statements.get(place));
            let Some(statement) = statement.copied() else { continue };
            if failed.as_ref().is_none_or(|(first, _)| statement < *first) {
                failed = Some((statement, error));
            }
        }
        if let Some((statement, error)) = failed {
            self.fail(statement, error);
        }
        self.due = Due::These(Vec::new());
    }

    fn is_spread(&self, statement: Option<&u32>) -> bool {
        let spread = statement.and_then(|statement| self.spread.get(statement));
        spread.is_some_and(|spread| spread.in_flight.is_some())
    }

    /// All answers of the round are in.
    pub(super) fn end(&mut self) {
        self.count_retried();
        let in_flight: Vec<u32> =
            self.spread.iter().filter(|(_, spread)| spread.in_flight.is_some()).map(|(at, _)| *at).collect();
        for statement in in_flight {
            let Some(spread) = self.spread.get_mut(&statement) else { continue };
            let spreading = spread.in_flight.take();
            let errors = std::mem::take(&mut spread.errors);
            if errors.is_empty() || spread.found {
                self.spread.remove(&statement);
                self.settle(statement);
            } else if errors.iter().all(|error| is_stale(error.code())) {
                if spreading == Some(Spreading::Any) {
                    let answered = std::mem::take(&mut spread.answered);
                    self.looked.entry(statement).or_default().extend(answered);
                }
                self.send_again(statement);
            } else {
                self.spread.remove(&statement);
                self.fail(statement, combined(errors));
            }
        }
        if !self.ordered {
            self.again.sort_unstable();
            self.due = Due::These(std::mem::take(&mut self.again));
        }
    }

    /// Nothing more can be sent: what is due fails with this error (ordered: the first of it).
    pub(super) fn abort(&mut self, error: &CommandError) {
        let due: Vec<u32> = if self.ordered { self.due().take(1).collect() } else { self.due().collect() };
        self.due = Due::These(Vec::new());
        for statement in due {
            self.fail(statement, error.clone());
        }
    }

    /// A document would move to another shard. The shard does not say which statement did it: a batch of one moves it,
    /// in a longer one it is found by halves (only retryable statements get here, which may be sent again).
    fn would_move(&mut self, child: &Child, error: &CommandError) {
        if self.len == 1 {
            self.moving = Some(error.clone());
        } else if child.statements.len() == 1 {
            self.most = MAX_STATEMENTS;
            for statement in &child.statements {
                self.fail(*statement, must_be_alone());
            }
        } else {
            self.most = child.statements.len().div_ceil(2);
            if !self.ordered {
                self.again.extend_from_slice(&child.statements);
            }
        }
    }

    /// No answer, or one that says nothing of single statements.
    fn child_failed(&mut self, child: &Child, error: &CommandError) {
        if error.code() == ErrorCode::WouldChangeOwningShard && !self.is_spread(child.statements.first()) {
            return self.would_move(child, error);
        }
        // Ordered: behind the first nothing was tried.
        let failed = if self.ordered { 1 } else { child.statements.len() };
        for statement in child.statements.iter().take(failed) {
            match self.spread.get_mut(statement) {
                Some(spread) => spread.errors.push(error.clone()),
                None if is_stale(error.code()) => self.send_again(*statement),
                None => self.fail(*statement, error.clone()),
            }
        }
    }

    /// The shard stopped at its first error.
    fn record_run(&mut self, child: &Child, errors: Vec<(u32, CommandError)>) {
        let Some((place, error)) = errors.into_iter().next() else {
            if let Some(last) = child.statements.last() {
                self.settled += child.statements.len();
                self.due = Due::From(last + 1);
            }
            return;
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let Some(statement) = child.statements.get(place).copied() else { return };
        self.settled += place;
        self.due = Due::From(statement);
        if !is_stale(error.code()) {
            self.fail(statement, error);
        }
    }

    /// The shard tried each statement by itself.
    fn record_group(&mut self, child: &Child, errors: Vec<(u32, CommandError)>, found: bool) {
        let mut errors = errors.into_iter().peekable();
        for (place, statement) in (0_u32..).zip(&child.statements) {
            let error = errors.next_if(|(at, _)| *at == place).map(|(_, error)| error);
            match (self.spread.get_mut(statement), error) {
                (Some(spread), Some(error)) => spread.errors.push(error),
                (Some(spread), None) if spread.in_flight == Some(Spreading::All) => {
                    spread.taken.push(child.destination.shard.clone());
                }
                // How many of several statements found theirs is not told; only deletes are sent like that, and a
                // delete may be tried again.
                (Some(spread), None) => {
                    spread.answered.push(child.destination.shard.clone());
                    spread.found |= found && child.statements.len() == 1;
                }
                (None, None) => self.settle(*statement),
                (None, Some(error)) if is_stale(error.code()) => self.send_again(*statement),
                (None, Some(error)) => self.fail(*statement, error),
            }
        }
    }

    fn settle(&mut self, statement: u32) {
        self.settled += 1;
        if self.ordered {
            self.due = Due::From(statement + 1);
        }
    }

    fn send_again(&mut self, statement: u32) {
        // Ordered: it is due still.
        if !self.ordered {
            self.again.push(statement);
        }
    }

    fn fail(&mut self, statement: u32, error: CommandError) {
        self.settled += 1;
        self.outcome.fail(statement, error);
        if self.ordered {
            self.due = Due::These(Vec::new());
        }
    }
}

pub(super) fn must_be_alone() -> CommandError {
    CommandError::invalid_options(
        "Document shard key value updates that cause the doc to move shards must be sent with write batch of size 1",
    )
}

/// One error of the errors of several shards for one statement: one code stays, several become one of its own.
fn combined(errors: Vec<CommandError>) -> CommandError {
    // What is stale says nothing beside a real error.
    let mut real = errors.into_iter().filter(|error| !is_stale(error.code()));
    let Some(first) = real.next() else {
        return CommandError::new(ErrorCode::InternalError, "no error to report");
    };
    let rest: Vec<CommandError> = real.collect();
    if rest.iter().all(|error| error.code() == first.code()) {
        return first;
    }
    let all: Vec<CommandError> = std::iter::once(first).chain(rest).collect();
    let texts: Vec<&str> = all.iter().map(CommandError::message).collect();
    let message = format!("multiple errors for op : {}", texts.join(" :: and :: "));
    let mut info = document::DocBuf::new();
    info.write(|w| {
        w.array("causedBy", &all, |w, name, error| {
            w.doc(name, |w| {
                w.put("code", error.code().0);
                w.put("codeName", error.code().name().as_ref());
                w.put("errmsg", error.message());
            });
        });
    });
    CommandError::new(ErrorCode::MultipleErrorsOccurred, message).with_extra("errInfo", &info)
}

#[cfg(test)]
mod tests;
