//! Databases, collections and indexes.

pub mod create;
pub mod drop;
pub mod indexes;
pub mod list;
pub mod stats;
