//! Queries: targeting, opening cursors on all shards at once, handing their documents out.
//!
//! - [`find`], [`aggregate`]: open cursors; one shard's answer passes through, several are merged ([`crate::cursor`]).
//! - [`get_more`], [`kill_cursors`]: go on, or end.
//! - [`count`], [`distinct`]: one answer a shard, added up or united.
//! - `open`: what the two openers share: the fan-out and its first batches.
//! - `leading_match`: which shards an aggregation concerns; `arguments`, `pipeline`, `lite`, `split`: what of an aggregation each shard does; `merge_here`, `merge_groups`, `merge_on_shard`: the rest of it.
//! - [`explain`]: what shards would do with any of these, in mongos's shapes.
//! - [`collectionless`], [`map_reduce`], [`kill_op`]: what reads no collection, or is translated.
//! - `change_stream`: events of all shards in the order of cluster time.
//! - `prepared`: what a snapshot in several batches waits for.
//! - [`reference`]: the stages and options there are, for the compatibility page.
//! - `view`: queries on views, as aggregations on what is under them.

pub mod aggregate;
mod arguments;
mod change_stream;
pub mod collectionless;
pub mod count;
pub mod distinct;
pub mod explain;
pub mod find;
mod find_spec;
pub mod get_more;
pub mod kill_cursors;
pub mod kill_op;
mod leading_match;
mod lite;
pub mod map_reduce;
mod merge_groups;
mod merge_here;
mod merge_on_shard;
pub(crate) mod open;
mod output;
pub(crate) mod pipeline;
mod prepared;
pub mod reference;
mod split;
mod sugar;
mod view;

pub(crate) use change_stream::ChangeStream;
