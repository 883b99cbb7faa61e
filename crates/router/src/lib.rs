//! What happens to a command between a client and the shards.
//!
//! In flows a parsed message of one client ([`Router::serve`]), out comes the message that answers it. Between them:
//! the command's row ([`command::table`]), a routing snapshot (`chunk_map`), a shard request spliced from the
//! client's bytes ([`remote`]), one shard's reply passed on or many merged ([`read`], [`write`]).
//!
//! May call `topology` (connections), `chunk_map` (routing), `shard_key`, `wire`, `document`. It never touches a
//! socket, and no handler knows who listens.
//!
//! Names to read first: [`Router`], [`command::Command`], [`command::Op`], [`reply::Reply`].

pub mod admin;
pub mod client;
pub mod clock;
pub mod codes;
pub mod command;
pub mod cursor;
pub mod ddl;
pub mod error;
pub mod local;
pub mod origin;
pub mod read;
pub mod remote;
pub mod reply;
pub mod request;
mod router;
pub mod session;
mod startup;
pub mod transaction;
pub mod write;

pub use client::Client;
pub use codes::ErrorCode;
pub use error::{CommandError, CommandResult};
pub use router::{Outcome, Process, Router, Settings};
pub use startup::StartError;

/// The server version whose behaviour this router gives.
pub const SERVER_VERSION: &str = "6.0.5";
