//! Databases, collections and indexes.
//!
//! Three shapes do the work: [`primary`] (the database's primary shard coordinates), [`scatter`] (many shards, answers
//! merged), and the config servers ([`crate::admin::config_server`]). Whatever changes metadata invalidates what this
//! router knows of it, also when it failed: half of it may have been done.

pub mod arguments;
pub mod coll_mod;
pub mod create;
pub(crate) mod databases;
pub mod drop;
pub mod file_md5;
pub mod indexes;
pub mod list;
pub mod majority;
pub mod plan_cache;
pub mod primary;
pub mod rename;
pub mod scatter;
pub mod stats;
pub mod validate;
