//! Shard keys: which part of a document or of a filter decides where it lives. Pure, no I/O.
//!
//! In flow raw documents, queries and filters (borrowed [`document::Doc`]s, validated by whoever read them from a
//! socket); out come a [`ShardKey`] (one point of the key space) or [`KeyRanges`] (a superset of the points that
//! can match). Only `document` is called.
//!
//! ```text
//! insert, replacement ──► KeyPattern::key_from_document ──► ShardKey ─┐
//! write by key        ──► KeyPattern::key_from_query    ──► ShardKey ─┼─► chunk-map: who owns it
//! any filter          ──► KeyPattern::ranges            ──► KeyRanges ┘
//! ```
//!
//! Ranges are what a mongos computes, over-approximations included (seen on 6.0.5: the table in
//! `chunk-map/tests/targeting_table.rs`): documents that match a filter are inside its ranges, never the other way round.
//!
//! Names to read first: [`KeyPattern`], [`ShardKey`], [`KeyRanges`].
//!
//! Limits: a full-key equality costs no allocation for keys of up to 40 bytes; work on hostile filters is bounded
//! (see `bounds`), what goes beyond targets every shard.

mod bounds;
mod collation;
mod equality;
mod error;
pub mod hash;
mod key;
mod pattern;
mod write;

pub use bounds::{KeyRange, KeyRanges};
pub use collation::{Collation, is_collatable};
pub use error::ShardKeyError;
pub use key::ShardKey;
pub use pattern::{KeyField, KeyPattern};
pub use write::{UpdateStyle, exact_id, has_exact_id, update_style};
