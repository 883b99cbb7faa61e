//! From a filter to ranges of the key space, by the rules of index bounds on an index that holds no arrays.
//!
//! ```text
//! filter ─► filter.rs: a box, one set of intervals a key field ─► flatten.rs: ranges of whole keys
//!           interval.rs: sets of intervals, ∩ ∪ ¬        predicate.rs, regex.rs, expr.rs: one predicate's set
//! ```
//!
//! What is not understood constrains nothing, so a result can only be too wide. Work on set operations is bounded
//! by a budget, beyond which sets are no longer intersected (wider again).

mod expr;
mod filter;
mod flatten;
mod interval;
mod predicate;
mod regex;

use document::Doc;

use crate::collation::Collation;
use crate::error::ShardKeyError;
use crate::key::ShardKey;
use crate::pattern::KeyPattern;

/// The part of the key space that a filter can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRanges {
    /// All of it: every shard that owns chunks.
    All,
    /// None of it: the shard of the first chunk is asked, so that somebody gives the empty answer.
    Empty,
    /// One key: its chunk, or the first chunk if no chunk holds it (all MaxKey).
    Key(ShardKey),
    /// Several parts, in order.
    Ranges(Vec<KeyRange>),
}

/// Every key from `min` to `max`. Both ends count as inside whatever the operators were, as in mongos: `{a: {$lt:
/// 100}}` also touches the chunk that starts at 100 (seen on 6.0.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub min: ShardKey,
    /// The upper end.
    pub max: ShardKey,
}

pub(crate) fn ranges(
    pattern: &KeyPattern,
    filter: Doc<'_>,
    collation: Collation,
) -> Result<KeyRanges, ShardKeyError> {
    match filter::FilterBounds::new(pattern, collation).of(filter) {
        Some(sets) => flatten::flatten(&sets),
        None => Ok(KeyRanges::All),
    }
}
