//! Which servers there are, which of them may be asked, and a connection to ask them on.
//!
//! [`Topology`] holds one [`ReplicaSet`] for the config servers and one for each shard. A monitor for each member
//! keeps a `hello` open and feeds what it hears to a state machine without sockets (`sdam`); the result is an immutable
//! [`SetDescription`] that [`ReplicaSet::select`] reads without a lock. Each member is a [`Server`] with one pool;
//! [`Server::checkout`] gives a [`PooledConn`], on which the caller's own task writes a request and reads the
//! [`wire::Reply`]: no task and no channel stands between an operation and its socket.
//!
//! ```text
//! member --hello--> monitor --event--> sdam --SetDescription--> select(ReadPreference) -> Server
//!                                                               Server.checkout() -> PooledConn.exchange() -> Reply
//! ```
//!
//! Flows in: seeds, hello replies, failures that callers report. Flows out: servers, replies, changes of host lists.
//! May call: `wire`, `document`. It does not know what a command means, does not retry, and does not follow the times
//! in replies. Limits: [`PoolOptions`], [`TopologyOptions`].

mod address;
mod connect;
mod connection;
mod context;
mod deadline;
mod description;
mod error;
mod hello;
mod monitor;
mod options;
mod pool;
mod read_preference;
mod registry;
mod replica_set;
mod sdam;
mod server;

pub use address::{ConnectionString, ServerAddress};
pub use description::{MemberView, SetDescription};
pub use error::TopologyError;
pub use hello::MemberKind;
pub use options::{Authentication, Handshake, PoolOptions, TopologyOptions, Transport};
pub use pool::{PoolStats, PooledConn};
pub use read_preference::{ReadMode, ReadPreference, TagSet};
pub use registry::{HostsChanged, Topology};
pub use replica_set::{Failure, ReplicaSet};
pub use server::Server;
