//! Commands that the router answers by itself.

pub mod diagnostics;
pub mod fail_point;
pub mod handshake;
pub mod identity;
pub mod parameters;
pub mod sessions;
pub mod stats;
