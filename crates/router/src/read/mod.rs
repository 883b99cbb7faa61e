//! Queries: targeting, opening cursors on all shards at once, handing their documents out.
//!
//! - [`find`], [`aggregate`]: open cursors; one shard's answer passes through, several are merged ([`crate::cursor`]).
//! - [`get_more`], [`kill_cursors`]: go on, or end.
//! - [`count`], [`distinct`]: one answer a shard, added up or united.
//! - [`open`]: what the two openers share: the fan-out and its first batches.

pub mod aggregate;
pub mod count;
pub mod distinct;
pub mod find;
mod find_spec;
pub mod get_more;
pub mod kill_cursors;
mod open;
