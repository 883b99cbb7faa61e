//! Cursors of this router: streams of shards' documents, merged, handed out in batches.
//!
//! A [`ShardCursor`] is one cursor on one member with the batch it sent last. A [`RouterCursor`] owns one for each
//! shard of a query and gives their documents in order. The [`CursorTable`] keeps router cursors between a client's
//! getMores. In flow shards' replies, out flow batches spliced from their bytes; a document is copied once, from
//! the shard's message to the client's.
//!
//! [`group`] merges partial groups: a [`RouterCursor`] then gives what is left of them.
//!
//! Limits: memory is one batch a shard, two where batches are asked for ahead of the client; a batch to the client
//! ends at 16 MiB; idle cursors are killed after `cursorTimeoutMillis`, those of a client that is gone after
//! `pointsmanGoneClientCursorTimeoutMillis`.

mod batch;
mod graveyard;
pub mod group;
mod merge;
mod shard_cursor;
mod table;

pub use batch::{Batch, CursorReply};
pub use graveyard::Graveyard;
pub use merge::{BatchEnd, Order, Partial, RouterCursor};
pub use shard_cursor::{CursorSession, GetMoreOptions, ShardCursor};
pub(crate) use table::cursor_id;
pub use table::{CheckedOut, CursorKind, CursorTable, Owner};
