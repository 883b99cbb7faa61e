//! What is cached, and how it gets fresh again.
//!
//! ```text
//! reader ── current and readable? ──► snapshot (no lock that a refresh holds, no await)
//!    │ no
//!    └──► slot.rs: join the refresh that is under way, or start it ──► refresh.rs: ask the source, build, publish
//! ```
//!
//! A refresh is a future that its waiters drive together: when the one who polls it goes away, another goes on, and
//! when all go away it ends.

mod catalog;
mod refresh;
mod registry;
mod slot;
mod statistics;

pub use catalog::{CatalogCache, Routing};
pub use registry::{ShardList, ShardRegistry};
pub use statistics::CacheStatistics;

#[cfg(test)]
mod tests;
