//! All sets of a router, by name.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::broadcast;

use crate::address::ConnectionString;
use crate::context::Context;
use crate::error::TopologyError;
use crate::options::TopologyOptions;
use crate::replica_set::ReplicaSet;

/// A set's host list, as its primary confirmed it.
#[derive(Debug, Clone)]
pub struct HostsChanged {
    /// The set.
    pub set_name: Arc<str>,
    /// Its hosts from now on.
    pub hosts: ConnectionString,
}

/// All replica sets that a router knows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Topology {
    context: Arc<Context>,
    sets: Arc<RwLock<HashMap<Arc<str>, Arc<ReplicaSet>>>>,
}

impl Topology {
    /// A topology without sets. Must be called in a tokio runtime, which its tasks then run on.
    pub fn new(options: TopologyOptions) -> Topology {
        Topology { context: Arc::new(Context::new(options)), sets: Arc::default() }
    }

    /// The options it was made with.
    pub fn options(&self) -> &TopologyOptions {
        &self.context.options
    }

    /// The set of this name, monitored from now on. A set that is known already is given back as it is: its own
    /// members know its hosts better than any seed list.
    pub fn add(&self, set: &ConnectionString) -> Result<Arc<ReplicaSet>, TopologyError> {
        if set.hosts.is_empty() {
            return Err(TopologyError::NoSeeds);
        }
        if self.context.stop.is_cancelled() {
            return Err(TopologyError::ShuttingDown);
        }
        let mut sets = self.sets.write();
        if let Some(known) = sets.get(&set.set_name) {
            return Ok(Arc::clone(known));
        }
        let started = ReplicaSet::start(set, &self.context);
        sets.insert(Arc::clone(&set.set_name), Arc::clone(&started));
        Ok(started)
    }

    /// The set of this name.
    pub fn get(&self, set_name: &str) -> Option<Arc<ReplicaSet>> {
        self.sets.read().get(set_name).cloned()
    }

    /// Forgets a set: monitoring ends, pools are closed, who waits for it is told so. False when it is not known.
    pub fn remove(&self, set_name: &str) -> bool {
        let removed = self.sets.write().remove(set_name);
        if let Some(set) = &removed {
            set.close();
        }
        removed.is_some()
    }

    /// All sets.
    pub fn sets(&self) -> Vec<Arc<ReplicaSet>> {
        self.sets.read().values().cloned().collect()
    }

    /// Changes of host lists from now on. A reader that lags must look at [`ReplicaSet::connection_string`] of all sets.
    pub fn subscribe(&self) -> broadcast::Receiver<HostsChanged> {
        self.context.hosts_changed.subscribe()
    }

    /// Ends all monitors, closes all pools, waits for all tasks.
    pub async fn shutdown(&self) {
        let sets = std::mem::take(&mut *self.sets.write());
        for set in sets.into_values() {
            set.close();
        }
        self.context.stop().await;
    }
}
