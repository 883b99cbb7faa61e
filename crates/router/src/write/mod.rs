//! Writes of documents: a batch is split by the shards that own its documents, the answers become one.
//!
//! In flows one insert, update or delete with up to 100,000 statements, out comes one reply whose indexes are the
//! client's. Between them, as often as it takes (a *round*):
//!
//! 1. [`statement`]: the statements as views into the client's bytes, checked once;
//! 2. [`target`]: one statement and a routing snapshot -> the shards it concerns, or why there is none;
//! 3. [`split`]: the statements that are due -> one child command a shard (ordered: a run for one shard);
//! 4. [`child`]: one child spliced, sent, its answer read;
//! 5. [`progress`]: what is done, what failed, what must be sent again; [`outcome`]: the reply made of it.
//!
//! [`batch`] is the loop over the rounds, [`insert`], [`update`], [`delete`] are its entrances. [`find_and_modify`] has one
//! document and one shard. [`shard_key_change`] moves a document whose new key another shard owns.
//! A statement whose shard said "stale" was not applied, and only such a statement is ever sent twice.

mod batch;
mod child;
pub(crate) mod concern;
pub mod delete;
pub(crate) mod explained;
pub mod find_and_modify;
pub mod insert;
mod internal_transaction;
mod options;
mod outcome;
mod progress;
mod refusal;
mod shard_key_change;
mod shell_text;
mod split;
mod statement;
mod target;
mod time_series;
pub mod update;
