//! Queries: targeting, opening cursors on all shards at once, handing their documents out.
//!
//! - [`find`], [`aggregate`]: open cursors; one shard's answer passes through, several are merged ([`crate::cursor`]).
//! - [`get_more`], [`kill_cursors`]: go on, or end.
//! - [`count`], [`distinct`]: one answer a shard, added up or united.
//! - `open`: what the two openers share: the fan-out and its first batches.
//! - `pipeline`, `split`: what of an aggregation each shard does; `merge_here`, `merge_on_shard`: the rest of it.
//! - `view`: queries on views, as aggregations on what is under them.

pub mod aggregate;
mod collectionless;
pub mod count;
pub mod distinct;
pub mod find;
mod find_spec;
pub mod get_more;
pub mod kill_cursors;
mod merge_here;
mod merge_on_shard;
pub(crate) mod open;
mod output;
mod pipeline;
mod split;
mod view;
