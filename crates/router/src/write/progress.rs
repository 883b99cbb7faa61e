//! Which statements are done, which failed, which must be sent (again).
//!
//! A statement is due, in flight, or settled (applied or failed). In flight becomes due again only when its shard
//! said that it did not apply it.

use std::collections::BTreeMap;

use chunk_map::{ShardId, ShardSet};

use super::child::Answer;
use super::outcome::Outcome;
use super::split::{Child, MAX_STATEMENTS, Plan};
use crate::codes::ErrorCode;
use crate::error::CommandError;

/// The state of one batch.
#[derive(Debug)]
pub(super) struct Progress {
    ordered: bool,
    due: Due,
    /// Statements that a stale answer sent back in this round.
    again: Vec<u32>,
    /// Statements that go to all shards, by their places, while not all have taken them.
    spread: BTreeMap<u32, Spread>,
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

/// One statement that goes to all shards.
#[derive(Debug, Default)]
struct Spread {
    taken: ShardSet,
    /// Answers of the round in progress.
    errors: Vec<CommandError>,
    in_flight: bool,
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
        self.again = std::mem::take(&mut plan.left);
        for child in plan.children.iter().filter(|child| child.broadcast) {
            for statement in &child.statements {
                self.spread.entry(*statement).or_default().in_flight = true;
            }
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
        self.outcome.add(&child.destination.shard, &child.statements, answer);
        if child.broadcast {
            self.record_broadcast(child, errors);
        } else if self.ordered {
            self.record_run(child, errors);
        } else {
            self.record_group(child, errors);
        }
    }

    /// All answers of the round are in.
    pub(super) fn end(&mut self) {
        let in_flight: Vec<u32> = self
            .spread
            .iter()
            .filter(|(_, spread)| spread.in_flight)
            .map(|(statement, _)| *statement)
            .collect();
        for statement in in_flight {
            let Some(spread) = self.spread.get_mut(&statement) else { continue };
            spread.in_flight = false;
            let errors = std::mem::take(&mut spread.errors);
            if errors.is_empty() {
                self.spread.remove(&statement);
                self.settle(statement);
            } else if errors.iter().all(|error| is_stale(error.code())) {
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
        if error.code() == ErrorCode::WouldChangeOwningShard && !child.broadcast {
            self.would_move(child, error);
        } else if child.broadcast {
            for statement in &child.statements {
                self.spread.entry(*statement).or_default().errors.push(error.clone());
            }
        } else if is_stale(error.code()) {
            // Ordered: they are due still.
            if !self.ordered {
                self.again.extend_from_slice(&child.statements);
            }
        } else {
            let failed = if self.ordered { 1 } else { child.statements.len() };
            for statement in child.statements.iter().take(failed) {
                self.fail(*statement, error.clone());
            }
        }
    }

    fn record_broadcast(&mut self, child: &Child, errors: Vec<(u32, CommandError)>) {
        let mut errors = errors.into_iter().peekable();
        for (place, statement) in (0_u32..).zip(&child.statements) {
            let spread = self.spread.entry(*statement).or_default();
            match errors.next_if(|(at, _)| *at == place) {
                Some((_, error)) => spread.errors.push(error),
                None => spread.taken.push(child.destination.shard.clone()),
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

    fn record_group(&mut self, child: &Child, errors: Vec<(u32, CommandError)>) {
        self.settled += child.statements.len().saturating_sub(errors.len());
        for (place, error) in errors {
            let place = usize::try_from(place).ok();
            let Some(statement) = place.and_then(|place| child.statements.get(place)).copied() else {
                continue;
            };
            if is_stale(error.code()) {
                self.again.push(statement);
            } else {
                self.fail(statement, error);
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

fn must_be_alone() -> CommandError {
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
