//! Administration of the sharded cluster.

pub mod balancer;
pub mod chunks;
pub mod collections;
pub mod defaults;
pub mod routing;
pub mod shards;
