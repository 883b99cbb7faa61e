//! The numbers a router's operator may set, with mongos's defaults.

use std::time::Duration;

use wire::CompressorSet;

/// Limits and times of one server's pool. Defaults are mongos's (`ShardingTaskExecutorPool…`).
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Connections kept open also when nobody needs them.
    pub min_size: usize,
    /// The most connections to the server, in use, idle or being made.
    pub max_size: usize,
    /// The most connections being made at once.
    pub max_connecting: usize,
    /// The longest wait for a connection when the caller has no deadline.
    pub wait_timeout: Duration,
    /// An idle connection older than this is asked whether it still lives, or closed if it is above the minimum.
    pub refresh_requirement: Duration,
    /// How long that question may take.
    pub refresh_timeout: Duration,
    /// A pool that nobody used for so long is emptied to nothing.
    pub host_timeout: Duration,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            min_size: 1,
            max_size: 32767,
            max_connecting: 2,
            wait_timeout: Duration::from_secs(20),
            refresh_requirement: Duration::from_secs(60),
            refresh_timeout: Duration::from_secs(20),
            host_timeout: Duration::from_secs(300),
        }
    }
}

/// Who the router is to its servers; authentication and TLS will be told here too.
#[derive(Debug, Clone)]
pub struct Handshake {
    /// `client.driver.name` of pooled connections.
    pub driver_name: String,
    /// `client.driver.version`.
    pub driver_version: String,
    /// The wire version that this router speaks: the one of `internalClient`, and the one members must have.
    pub wire_version: i32,
    /// Compression offered to servers; none by default.
    pub compressors: CompressorSet,
    /// How the bytes travel.
    pub transport: Transport,
    /// Who the router says it is.
    pub authentication: Authentication,
}

impl Default for Handshake {
    fn default() -> Self {
        Handshake {
            driver_name: "pointsman".to_owned(),
            driver_version: env!("CARGO_PKG_VERSION").to_owned(),
            wire_version: 17,
            compressors: CompressorSet::NONE,
            transport: Transport::Plain,
            authentication: Authentication::None,
        }
    }
}

/// How bytes travel to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP without encryption.
    Plain,
}

/// How a connection proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    None,
}

/// All options of the topology.
#[derive(Debug, Clone)]
pub struct TopologyOptions {
    /// Pools.
    pub pool: PoolOptions,
    /// Handshakes.
    pub handshake: Handshake,
    /// How long a member holds an awaited hello, and how often its round trip is measured.
    pub heartbeat: Duration,
    /// The least time between two checks of one member.
    pub min_heartbeat: Duration,
    /// For a TCP connect and handshake.
    pub connect_timeout: Duration,
    /// Members within this of the fastest are equally near.
    pub local_threshold: Duration,
    /// The longest wait for a member that matches a read preference.
    pub selection_timeout: Duration,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        TopologyOptions {
            pool: PoolOptions::default(),
            handshake: Handshake::default(),
            heartbeat: Duration::from_secs(10),
            min_heartbeat: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(10),
            local_threshold: Duration::from_millis(15),
            selection_timeout: Duration::from_secs(15),
        }
    }
}
