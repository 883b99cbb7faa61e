//! The crate against scripted members: what a caller sees of pools, elections, and members that misbehave.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests are tests

mod fake;
mod pool;
mod replica_set;
