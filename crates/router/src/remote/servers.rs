//! The sets of the cluster, and the times that are gossiped with them.

use std::sync::Arc;

use topology::{ConnectionString, ReplicaSet, Topology, TopologyError, TopologyOptions};

use super::hedge::HedgeCounts;
use crate::clock::Clock;
use crate::cursor::Graveyard;

/// What every request to the cluster needs.
#[derive(Debug)]
pub struct Servers {
    topology: Topology,
    config: Arc<ReplicaSet>,
    clock: Clock,
    graveyard: Arc<Graveyard>,
    hedges: HedgeCounts,
}

impl Servers {
    /// Begins to watch the config servers.
    pub fn new(config: &ConnectionString, options: TopologyOptions) -> Result<Self, TopologyError> {
        let topology = Topology::new(options);
        let config = topology.add(config)?;
        Ok(Self {
            topology,
            config,
            clock: Clock::default(),
            graveyard: Arc::default(),
            hedges: HedgeCounts::default(),
        })
    }

    /// All sets that are watched.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The config servers.
    #[must_use]
    pub const fn config_set(&self) -> &Arc<ReplicaSet> {
        &self.config
    }

    /// The gossiped times.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How often reads were hedged.
    #[must_use]
    pub const fn hedges(&self) -> &HedgeCounts {
        &self.hedges
    }

    /// Shard cursors that are to be closed.
    #[must_use]
    pub const fn graveyard(&self) -> &Arc<Graveyard> {
        &self.graveyard
    }
}
