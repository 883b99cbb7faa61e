//! Real MongoDB clusters for tests, benches and the demo.
//!
//! In: how many config members, shards, members a shard and routers. Out: a [`Cluster`] of real `mongod` processes with
//! the router under test in front, shards added through the router's own `addShard`, and handles to look at and to
//! disturb every process of it. It may call everything; no product crate may call it.
//!
//! ```text
//! Cluster ── routers: [Router]                      the built `pointsman`, started with mongos's own flags
//!         ├─ config:  ReplicaSet ── members: [Member]   one mongod process each
//!         └─ shards:  [ReplicaSet] ── members: [Member]
//! ```
//!
//! Read [`Cluster::builder`], [`Member`] and [`raw::RawConn`] first. Every process dies with the one that started it,
//! also after a `kill -9` of that one, and each cluster has its own folder under the temporary directory, which goes
//! away with it; when a test panics the logs stay and their path is printed.
//!
//! | environment | effect |
//! |---|---|
//! | `POINTSMAN_BIN` | the router to start (else `pointsman` beside the running executable's profile folder) |
//! | `MONGOD`, `POINTSMAN_MONGOD` | the server to start, see `./dev help` |
//! | `POINTSMAN_KEEP` | set: folders are kept whole |
//!
//! It does not build the router: `cargo nextest run --workspace` and `./dev` do.

mod binaries;
mod child;
mod cluster;
mod ddl;
mod member;
mod network;
mod observe;
mod port;
pub mod raw;
mod replica_set;
mod router;
mod usage;
mod wait;
mod workdir;

pub use binaries::{mongod_path, router_path};
pub use cluster::{Cluster, ClusterBuilder};
pub use ddl::owners;
pub use member::Member;
pub use observe::{OpCounters, ProfiledOp};
pub use replica_set::ReplicaSet;
pub use router::Router;
pub use usage::Usage;
pub use wait::{eventually, eventually_within};
