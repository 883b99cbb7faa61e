//! Asking servers: which member, which connection, what is spliced into the request, when to ask again.
//!
//! - [`servers`]: the sets of the cluster and the gossiped times: what every request needs.
//! - [`envelope`]: a request spliced from the client's bytes.
//! - [`ask`]: one request to one member, asked again where mongos would.
//! - `hedge`: a read sent to one member more.
//! - [`config`]: commands to the config servers and reads of their collections.
//! - [`source`]: those reads as the routing table wants them.
//! - [`routing`]: routing snapshots for handlers, and what a stale answer invalidates.
//! - `snapshot`: one point in time for all shards of a read.
//! - [`defaults`]: read and write concern when the client says none.

pub mod ask;
pub mod config;
pub mod defaults;
pub mod envelope;
pub(crate) mod hedge;
pub mod routing;
pub mod servers;
pub(crate) mod snapshot;
pub mod source;

pub use ask::{Retry, ShardReply};
pub use envelope::{ShardRequest, Template};
pub use servers::Servers;
