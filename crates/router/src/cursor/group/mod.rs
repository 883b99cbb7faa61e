//! Partial groups of several shards as one result, merged by this router.
//!
//! In flow the documents that `$group` gives on a shard that was told `needsMerge`: `_id` and one partial result an
//! accumulator; out come the groups as one server would give them, in order if a sort follows. Pure but for the
//! memory that is taken from the router's budget. Shapes and results are those of 6.0.5 (its merging `$group` was
//! given the same partial results).
//!
//! Limits: a merge that would take more memory than [`Budget`] allows, or that meets a partial result whose sum is not
//! computed here (decimals), is refused ([`Refusal`]); a shard makes it then.
//!
//! Read [`Groups`] first. A group is a number: its key stands in [`keys`], its results in one [`column`] an accumulator.

mod budget;
mod chunked;
mod column;
mod held;
mod keys;
mod result;
mod set;
mod total;

pub use budget::Budget;
pub use column::Accumulator;
pub use result::Grouped;

use budget::Reservation;
use column::Column;
use document::{Doc, Value};
use keys::Keys;

/// Why the router does not merge these groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// They would take too much memory.
    Memory,
    /// A partial result, or a value to sort by, of a form that is left to servers.
    Form,
}

/// What is merged, in which order, and how much of it is given.
#[derive(Debug, Clone, Default)]
pub struct GroupSpec {
    /// Names and accumulators, as they stand in the shards' documents.
    pub accumulators: Vec<(Box<str>, Accumulator)>,
    /// Paths into the merged documents; descending?
    pub sort: Vec<(Box<str>, bool)>,
    /// Groups that are left out.
    pub skip: u64,
    /// Groups that are given after those, if there is a limit.
    pub limit: Option<u64>,
    /// The documents go out without their key (`$count`).
    pub without_id: bool,
}

/// Groups on their way.
#[derive(Debug)]
pub struct Groups {
    keys: Keys,
    columns: Vec<Column>,
    /// What a new group takes beside its key.
    per_group: usize,
    memory: Reservation,
}

impl Groups {
    /// No groups yet.
    #[must_use]
    pub fn new(spec: &GroupSpec, budget: &Budget) -> Self {
        let columns: Vec<Column> =
            spec.accumulators.iter().map(|(name, accumulator)| Column::new(name, *accumulator)).collect();
        let per_group = Keys::PER_GROUP + columns.iter().map(Column::width).sum::<usize>();
        Self { keys: Keys::default(), columns, per_group, memory: budget.reserve() }
    }

    /// How many groups there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.len() == 0
    }

    /// What they take, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Adds what a shard knows of one group.
    pub fn add(&mut self, partial: Doc<'_>) -> Result<(), Refusal> {
        let mut fields = partial.iter();
        let id = fields.next().filter(|field| field.name_bytes() == b"_id").ok_or(Refusal::Form)?;
        let (group, is_new) = self.keys.find_or_add(id).ok_or(Refusal::Memory)?;
        if is_new {
            self.memory.take(self.per_group + id.raw().len())?;
            self.columns.iter_mut().for_each(Column::push);
        }
        for column in &mut self.columns {
            let field = fields.next().filter(|field| field.name_bytes() == column.name().as_bytes());
            let grown = column.add(group, field.ok_or(Refusal::Form)?)?;
            if grown > 0 {
                self.memory.take(grown)?;
            }
        }
        Ok(())
    }

    /// The value at the head of a sort path: of the key or of an accumulator.
    fn value(&self, group: u32, name: &str) -> Option<Value<'_>> {
        if name == "_id" {
            return self.keys.id(group).map(document::Field::value);
        }
        self.columns.iter().find(|column| column.name() == name)?.value(group)
    }
}

#[cfg(test)]
mod tests;
