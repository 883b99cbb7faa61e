//! Writes of documents: batches split by shard, replies merged.

pub mod delete;
pub mod find_and_modify;
pub mod insert;
pub mod update;
