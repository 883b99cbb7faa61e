//! The statements that are due, cut into one child command a shard.
//!
//! Ordered: a run of statements for one shard, or one statement for many. Unordered: everything, grouped by shard;
//! what does not fit into this round is left for the next.

use chunk_map::{ChunkVersion, ShardId, ShardSet};

use super::target::Aim;
use crate::error::CommandResult;
use crate::remote::routing::{Destination, Versions};

/// Most statements of one command, the client's and a child's.
pub(super) const MAX_STATEMENTS: usize = 100_000;

/// Most bytes of statements in one child (`BSONObjMaxUserSize`; a single larger statement goes alone).
const MAX_CHILD_BYTES: usize = wire::MAX_DOCUMENT_BYTES;

/// What mongos counts for a place in an array.
const PER_STATEMENT: usize = 7;
/// What it counts for a statement's number in a retryable write.
const PER_STATEMENT_ID: usize = 11;
/// What a shard may need in its reply to say that a statement was stale; all of an unordered child may be.
const STALE_ERROR_BYTES: usize = 256;

/// One command to one shard.
#[derive(Debug, Clone)]
pub(super) struct Child {
    pub(super) destination: Destination,
    /// Places of its statements in the client's batch, in their order.
    pub(super) statements: Vec<u32>,
    /// Its statements go to every shard, without a version.
    pub(super) broadcast: bool,
    /// Estimated size of its statements.
    pub(super) bytes: usize,
}

/// What is sent in one round.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// At most one a shard, by their shards in order.
    pub(super) children: Vec<Child>,
    /// Statements that no shard can take.
    pub(super) refused: Vec<(u32, crate::CommandError)>,
    /// Statements that go to several shards, by their places in order.
    pub(super) spread: Vec<(u32, Spreading)>,
    /// Statements that every shard has taken already.
    pub(super) completed: Vec<u32>,
    /// Statements that wait for the next round.
    pub(super) left: Vec<u32>,
}

/// How a statement goes to several shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spreading {
    /// Each shard applies it once, whatever versions they have: some must not be asked twice.
    All,
    /// One of them has its document. All have to look for it by one routing table: when one of them is stale and none
    /// has found it, all look again.
    Any,
}

/// How statements are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) ordered: bool,
    pub(super) retryable: bool,
    /// Most statements of one child.
    pub(super) most: usize,
}

impl Rules {
    /// What a statement of so many bytes counts for.
    fn weight(self, bytes: usize) -> usize {
        let ids = if self.retryable { PER_STATEMENT_ID } else { 0 };
        let floor = if self.ordered { 0 } else { STALE_ERROR_BYTES };
        bytes.max(floor) + PER_STATEMENT + ids
    }
}

/// What is known of the statements, as far as the cut needs it.
pub(super) trait Source {
    /// Where a statement goes.
    fn aim(&self, statement: u32) -> CommandResult<Aim>;
    /// Its size in bytes.
    fn bytes(&self, statement: u32) -> usize;
    /// All shards of the cluster, in order.
    fn all_shards(&self) -> &[ShardId];
    /// The shards that took a broadcast statement in an earlier round.
    fn taken(&self, statement: u32) -> Option<&ShardSet>;
}

/// Cuts the statements of a sharded collection.
pub(super) fn split(source: &impl Source, due: impl Iterator<Item = u32>, rules: Rules) -> Plan {
    let mut plan = Plan::default();
    for statement in due {
        let placed = match source.aim(statement) {
            Ok(aim) => plan.place(source, statement, aim, rules),
            Err(error) => {
                if rules.ordered && !plan.children.is_empty() {
                    break;
                }
                plan.refused.push((statement, error));
                !rules.ordered
            }
        };
        if !placed {
            if rules.ordered {
                break;
            }
            plan.left.push(statement);
        }
    }
    plan
}

/// Cuts statements that all go to one place.
pub(super) fn for_one(
    destination: &Destination,
    due: impl Iterator<Item = u32>,
    bytes: impl Fn(u32) -> usize,
    rules: Rules,
) -> Plan {
    let mut child = Child::new(destination.clone(), false);
    let mut due = due.peekable();
    while let Some(statement) = due.next_if(|statement| child.fits(rules.weight(bytes(*statement)), rules)) {
        child.push(statement, rules.weight(bytes(statement)));
    }
    let left = if rules.ordered { Vec::new() } else { due.collect() };
    Plan { children: vec![child], left, ..Plan::default() }
}

impl Plan {
    /// Puts a statement into this round; `false` when it has to wait (ordered: when the round ends before it).
    fn place(&mut self, source: &impl Source, statement: u32, aim: Aim, rules: Rules) -> bool {
        let weight = rules.weight(source.bytes(statement));
        let taken = source.taken(statement).filter(|taken| !taken.is_empty());
        match aim {
            // What some shards have taken goes to the others, wherever the documents are now.
            Aim::Many(_) => self.place_on_all(source, statement, weight, rules),
            _ if taken.is_some() => self.place_on_all(source, statement, weight, rules),
            Aim::One(target) => {
                let other = |child: &Child| child.broadcast || child.destination.shard != target.shard;
                if rules.ordered && (self.children.first().is_some_and(other) || !self.spread.is_empty()) {
                    return false;
                }
                if !self.has_room(&target.shard, false, weight, rules) {
                    return false;
                }
                self.push(&target.shard, target.version, false, statement, weight);
                true
            }
            Aim::Any(targets) => {
                if rules.ordered && !self.children.is_empty() {
                    return false;
                }
                if !targets.iter().all(|target| self.has_room(&target.shard, false, weight, rules)) {
                    return false;
                }
                for target in &targets {
                    self.push(&target.shard, target.version, false, statement, weight);
                }
                self.spread.push((statement, Spreading::Any));
                true
            }
        }
    }

    fn place_on_all(&mut self, source: &impl Source, statement: u32, weight: usize, rules: Rules) -> bool {
        if rules.ordered && !self.children.is_empty() {
            return false;
        }
        let taken = source.taken(statement);
        let open = || {
            let has_taken = |shard: &&ShardId| taken.is_some_and(|taken| taken.contains(*shard));
            source.all_shards().iter().filter(move |shard| !has_taken(shard))
        };
        if open().next().is_none() {
            self.completed.push(statement);
            return !rules.ordered;
        }
        if !open().all(|shard| self.has_room(shard, true, weight, rules)) {
            return false;
        }
        for shard in open() {
            self.push(shard, ChunkVersion::IGNORED, true, statement, weight);
        }
        self.spread.push((statement, Spreading::All));
        true
    }

    fn find(&self, shard: &ShardId) -> Result<usize, usize> {
        self.children.binary_search_by(|child| child.destination.shard.cmp(shard))
    }

    fn has_room(&self, shard: &ShardId, broadcast: bool, weight: usize, rules: Rules) -> bool {
        match self.find(shard).ok().and_then(|at| self.children.get(at)) {
            Some(child) => child.broadcast == broadcast && child.fits(weight, rules),
            None => true,
        }
    }

    fn push(
        &mut self,
        shard: &ShardId,
        version: ChunkVersion,
        broadcast: bool,
        statement: u32,
        weight: usize,
    ) {
        let at = self.find(shard).unwrap_or_else(|at| {
            let destination = Destination { shard: shard.clone(), versions: Versions::Sharded(version) };
            self.children.insert(at, Child::new(destination, broadcast));
            at
        });
        if let Some(child) = self.children.get_mut(at) {
            child.push(statement, weight);
        }
    }
}

impl Child {
    const fn new(destination: Destination, broadcast: bool) -> Self {
        Self { destination, statements: Vec::new(), broadcast, bytes: 0 }
    }

    fn fits(&self, weight: usize, rules: Rules) -> bool {
        self.statements.is_empty()
            || (self.statements.len() < rules.most && self.bytes + weight <= MAX_CHILD_BYTES)
    }

    fn push(&mut self, statement: u32, weight: usize) {
        self.statements.push(statement);
        self.bytes += weight;
    }
}

#[cfg(test)]
mod tests;
