//! One member of a set, as callers hold it: an address and a pool.

use std::future::Future;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::address::ServerAddress;
use crate::connection::Connection;
use crate::context::Context;
use crate::error::TopologyError;
use crate::hello::Purpose;
use crate::pool::{Pool, PoolStats, PooledConn};
use crate::replica_set::ReplicaSet;

/// A member of a replica set. It stays usable as long as somebody holds it, also when the set has forgotten it.
pub struct Server {
    address: ServerAddress,
    set_name: Arc<str>,
    set: Weak<ReplicaSet>,
    context: Arc<Context>,
    pool: Pool,
    /// Ends the wait of the monitor before its next attempt.
    pub(crate) check_now: Notify,
    /// Asks for a hello out of turn.
    pub(crate) ask_now: Notify,
}

impl Server {
    pub(crate) fn new(
        address: ServerAddress,
        set: Weak<ReplicaSet>,
        set_name: Arc<str>,
        context: Arc<Context>,
    ) -> Server {
        let pool = Pool::new(context.options.pool.clone());
        Server { address, set_name, set, context, pool, check_now: Notify::new(), ask_now: Notify::new() }
    }

    /// Where it listens.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// The set it is of.
    pub fn set_name(&self) -> &Arc<str> {
        &self.set_name
    }

    /// A connection, waited for until the deadline, at most for the pool's own limit. Cancel-safe.
    pub async fn checkout(self: &Arc<Self>, deadline: Option<Instant>) -> Result<PooledConn, TopologyError> {
        self.pool.checkout(self, deadline).await
    }

    /// The pool's numbers.
    pub fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Runs a task of this server's until it ends or the router does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.context.spawn(task);
    }

    /// A new connection that has proved to be one to this member.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<Connection, TopologyError> {
        let connected = self.context.connector.connect(&self.address, purpose).await?;
        self.context.connector.check_version(&self.address, &connected.hello)?;
        match connected.hello.set_name.as_deref() {
            Some(name) if name == &*self.set_name => Ok(connected.connection),
            other => Err(TopologyError::WrongSetName {
                address: self.address.clone(),
                expected: Arc::clone(&self.set_name),
                got: other.unwrap_or("none").to_owned(),
            }),
        }
    }

    /// A connection of this generation of the pool failed.
    pub(crate) fn failed(&self, generation: u64, error: &TopologyError) {
        if !self.pool.clear(Some(generation)) {
            return;
        }
        if let Some(set) = self.set.upgrade() {
            set.on_pool_failure(&self.address, error.clone());
        }
    }

    /// Asks for a check of this member at once.
    pub(crate) fn wake(&self) {
        self.check_now.notify_one();
        self.ask_now.notify_one();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).field("pool", &self.pool.stats()).finish()
    }
}
