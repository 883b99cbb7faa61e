//! Queries: targeting, opening cursors, merging streams.

pub mod aggregate;
pub mod count;
pub mod distinct;
pub mod find;
pub mod get_more;
pub mod kill_cursors;
