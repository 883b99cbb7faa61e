//! Placeholder of the public types whose bodies follow.
#![allow(clippy::todo, missing_docs, unused_variables, clippy::needless_pass_by_value, clippy::unused_async)]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::broadcast;
use tokio::time::Instant;
use wire::Reply;

use crate::{ConnectionString, ReadPreference, ServerAddress, TopologyError, TopologyOptions};

/// All replica sets that a router knows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Topology;

/// A set's host list, as its primary confirmed it.
#[derive(Debug, Clone)]
pub struct HostsChanged {
    pub set_name: Arc<str>,
    pub hosts: ConnectionString,
}

impl Topology {
    pub fn new(options: TopologyOptions) -> Topology {
        todo!()
    }
    pub fn options(&self) -> &TopologyOptions {
        todo!()
    }
    /// The set of this name, monitored from now on; an existing one is given back as it is.
    pub fn add(&self, set: &ConnectionString) -> Result<Arc<ReplicaSet>, TopologyError> {
        todo!()
    }
    pub fn get(&self, set_name: &str) -> Option<Arc<ReplicaSet>> {
        todo!()
    }
    pub fn remove(&self, set_name: &str) -> bool {
        todo!()
    }
    pub fn sets(&self) -> Vec<Arc<ReplicaSet>> {
        todo!()
    }
    pub fn subscribe(&self) -> broadcast::Receiver<HostsChanged> {
        todo!()
    }
    pub async fn shutdown(&self) {
        todo!()
    }
}

#[derive(Debug)]
pub struct ReplicaSet;

/// What a caller saw go wrong on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    NotPrimary,
    Network,
    Shutdown,
}

impl ReplicaSet {
    pub fn name(&self) -> &Arc<str> {
        todo!()
    }
    /// A member to ask right now, without waiting.
    pub fn select(&self, preference: &ReadPreference) -> Option<Arc<Server>> {
        todo!()
    }
    /// A member to ask, waited for until `deadline` (50) or the selection timeout (133).
    pub async fn wait(
        &self,
        preference: &ReadPreference,
        deadline: Option<Instant>,
    ) -> Result<Arc<Server>, TopologyError> {
        todo!()
    }
    pub fn primary(&self) -> Option<Arc<Server>> {
        todo!()
    }
    /// The member at this address (a cursor goes on where it was opened).
    pub fn server(&self, address: &ServerAddress) -> Option<Arc<Server>> {
        todo!()
    }
    pub fn report(&self, server: &Server, failure: Failure) {
        todo!()
    }
    /// Body of the last hello reply of a member; first one after `wait`.
    pub fn hello_reply(&self) -> Option<Bytes> {
        todo!()
    }
    /// `set/h:p,h:p` of the current members.
    pub fn connection_string(&self) -> ConnectionString {
        todo!()
    }
}

#[derive(Debug)]
pub struct Server;

impl Server {
    pub fn address(&self) -> &ServerAddress {
        todo!()
    }
    pub fn set_name(&self) -> &Arc<str> {
        todo!()
    }
    pub async fn checkout(self: &Arc<Self>, deadline: Option<Instant>) -> Result<PooledConn, TopologyError> {
        todo!()
    }
    pub fn pool_stats(&self) -> PoolStats {
        todo!()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct PoolStats {
    pub in_use: usize,
    pub idle: usize,
    pub connecting: usize,
    pub waiting: usize,
    pub created: u64,
}

#[derive(Debug)]
pub struct PooledConn;

impl PooledConn {
    pub fn server(&self) -> &Arc<Server> {
        todo!()
    }
    /// Sends one whole OP_MSG (its requestId is set here) and reads the answer. Not cancel-safe for the connection: a
    /// dropped exchange closes it.
    pub async fn exchange(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<Reply, TopologyError> {
        todo!()
    }
    pub async fn send(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<(), TopologyError> {
        todo!()
    }
    pub async fn recv(&mut self, deadline: Option<Instant>) -> Result<Reply, TopologyError> {
        todo!()
    }
    /// Sends a message with moreToCome: no answer comes.
    pub async fn send_no_reply(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<(), TopologyError> {
        todo!()
    }
}
