//! Commands that the router answers by itself.
//!
//! What they read: the command table, the parameters, the counters, the log; what they know of the cluster is at
//! most a list of shards to pass a session's end on to. A file a family.

pub mod asked;
pub mod diagnostics;
pub mod fail_point;
pub mod handshake;
pub mod host;
pub mod identity;
pub mod log_book;
pub mod operations;
pub mod parameters;
pub mod quiesce;
pub mod server_status;
pub mod sessions;
pub mod slow_log;
pub mod stats;
mod verbosity;
