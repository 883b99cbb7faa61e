//! One replica set: what its members are, and which of them to ask.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::address::{ConnectionString, ServerAddress};
use crate::context::Context;
use crate::description::SetDescription;
use crate::error::TopologyError;
use crate::hello::HelloReply;
use crate::monitor::Watch;
use crate::read_preference::ReadPreference;
use crate::registry::HostsChanged;
use crate::sdam::{Effect, Sdam};
use crate::server::Server;

/// What a caller read in a member's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The member says that it is no primary: its connections stay, another primary is looked for.
    NotPrimary,
    /// The member cannot be reached: its connections go. (Pooled connections tell this by themselves.)
    Network,
    /// The member is shutting down: its connections go.
    Shutdown,
}

/// A monitored replica set.
pub struct ReplicaSet {
    name: Arc<str>,
    context: Arc<Context>,
    this: Weak<ReplicaSet>,
    stop: CancellationToken,
    state: Mutex<State>,
    description: ArcSwap<SetDescription>,
    changed: Notify,
    hello: ArcSwapOption<Bytes>,
}

struct State {
    sdam: Sdam,
    members: HashMap<ServerAddress, Watched>,
}

struct Watched {
    server: Arc<Server>,
    stop: CancellationToken,
}

impl ReplicaSet {
    /// Starts to monitor the seeds.
    pub(crate) fn start(set: &ConnectionString, context: &Arc<Context>) -> Arc<ReplicaSet> {
        let name = Arc::clone(&set.set_name);
        let sdam = Sdam::new(Arc::clone(&name), context.connector.wire_version(), &set.hosts);
        let this = Arc::new_cyclic(|this| ReplicaSet {
            name,
            context: Arc::clone(context),
            this: Weak::clone(this),
            stop: context.stop.child_token(),
            state: Mutex::new(State { sdam, members: HashMap::new() }),
            description: ArcSwap::from_pointee(SetDescription::new(Vec::new())),
            changed: Notify::new(),
            hello: ArcSwapOption::empty(),
        });
        let seeds = set.hosts.iter().cloned().map(Effect::Add).collect();
        this.event(|_| seeds);
        this
    }

    /// The set's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The members as they are known now.
    pub fn description(&self) -> Arc<SetDescription> {
        self.description.load_full()
    }

    /// A member to ask, without waiting; `None` when none is known that the preference allows.
    pub fn select(&self, preference: &ReadPreference) -> Option<Arc<Server>> {
        let options = &self.context.options;
        self.description.load().select(preference, options.local_threshold, options.heartbeat)
    }

    /// Another member that the preference allows as well, for a second request; `None` when there is none.
    pub fn select_another(&self, preference: &ReadPreference, than: &Server) -> Option<Arc<Server>> {
        let options = &self.context.options;
        self.description.load().select_another(preference, than, options.local_threshold, options.heartbeat)
    }

    /// A member to ask. Waits for one until the deadline (50 DeadlineExceeded), at most for the selection timeout
    /// (133); fails at once when every member that answers is of another version (188) or set. Cancel-safe.
    pub async fn wait(
        &self,
        preference: &ReadPreference,
        deadline: Option<Instant>,
    ) -> Result<Arc<Server>, TopologyError> {
        if let Some(server) = self.select(preference) {
            return Ok(server);
        }
        let options = &self.context.options;
        let limit = Instant::now() + options.selection_timeout;
        let until = deadline.map_or(limit, |deadline| deadline.min(limit));
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(server) = self.select(preference) {
                return Ok(server);
            }
            let description = self.description.load_full();
            if let Some(error) = description.hopeless() {
                return Err((*error).clone());
            }
            if Instant::now() >= until {
                return Err(if deadline.is_some_and(|deadline| deadline <= limit) {
                    TopologyError::DeadlineExceeded
                } else {
                    TopologyError::NoServer {
                        set_name: Arc::clone(&self.name),
                        preference: preference.to_string(),
                        last: description.any_error(),
                    }
                });
            }
            for server in description.servers() {
                server.wake();
            }
            let again = (Instant::now() + options.min_heartbeat).min(until);
            tokio::select! {
                () = self.stop.cancelled() => return Err(TopologyError::ShuttingDown),
                () = changed => {}
                () = sleep_until(again) => {}
            }
        }
    }

    /// The primary, if one is known.
    pub fn primary(&self) -> Option<Arc<Server>> {
        self.description.load().primary().cloned()
    }

    /// The member at this address: a cursor goes on where it was opened.
    pub fn server(&self, address: &ServerAddress) -> Option<Arc<Server>> {
        self.description.load().server(address).cloned()
    }

    /// A caller read this failure in a reply of the member: it is chosen no more until it says hello again, which it is
    /// asked to do at once.
    pub fn report(&self, server: &Server, failure: Failure) {
        let address = server.address();
        let error = match failure {
            Failure::NotPrimary => TopologyError::NotPrimary { address: address.clone() },
            Failure::Network => TopologyError::Network {
                address: address.clone(),
                source: Arc::new(std::io::ErrorKind::ConnectionReset.into()),
            },
            Failure::Shutdown => TopologyError::PoolClosed { address: address.clone() },
        };
        self.event(|sdam| sdam.on_failure(address, error));
        server.wake();
    }

    /// The body of the latest hello reply of any member; there is one after the first [`ReplicaSet::wait`] that went
    /// well. A config server's carries `$configTime` and `$topologyTime`.
    pub fn hello_reply(&self) -> Option<Bytes> {
        self.hello.load().as_deref().cloned()
    }

    /// The set with its hosts: those that the last primary named, else all that are known.
    pub fn connection_string(&self) -> ConnectionString {
        let state = self.state.lock();
        let confirmed = state.sdam.confirmed();
        let hosts = if confirmed.is_empty() {
            state.sdam.members().map(|member| member.address.clone()).collect()
        } else {
            confirmed.to_vec()
        };
        ConnectionString { set_name: Arc::clone(&self.name), hosts }
    }

    /// Ends monitoring and closes all pools.
    pub(crate) fn close(&self) {
        self.stop.cancel();
        let members = std::mem::take(&mut self.state.lock().members);
        for watched in members.into_values() {
            watched.server.pool().close();
        }
        self.description.store(Arc::new(SetDescription::new(Vec::new())));
        self.changed.notify_waiters();
    }

    pub(crate) fn is_usable(&self, address: &ServerAddress) -> bool {
        self.state.lock().sdam.members().any(|member| member.address == *address && member.has_data())
    }

    pub(crate) fn on_hello(&self, address: &ServerAddress, hello: &HelloReply, round_trip: Option<Duration>) {
        self.event(|sdam| {
            if let Some(sample) = round_trip {
                sdam.on_round_trip(address, sample);
            }
            let effects = sdam.on_hello(address, hello, Instant::now());
            // Before anyone can be told of the member; a stranger's times are not ours.
            if sdam.members().any(|member| member.address == *address && member.error.is_none()) {
                self.hello.store(Some(Arc::new(hello.body.clone())));
            }
            effects
        });
    }

    /// The monitor lost a member; it tries again by itself.
    pub(crate) fn on_monitor_failure(&self, address: &ServerAddress, error: TopologyError) {
        self.event(|sdam| sdam.on_failure(address, error));
    }

    /// A pooled connection failed, and its pool is cleared.
    pub(crate) fn on_pool_failure(&self, address: &ServerAddress, error: TopologyError) {
        tracing::debug!(set = %self.name, server = %address, %error, "member failed");
        self.event(|sdam| {
            let mut effects = sdam.on_failure(address, error);
            effects.retain(|effect| !matches!(effect, Effect::ClearPool(_)));
            effects
        });
        if let Some(server) = self.server(address) {
            server.wake();
        }
    }

    /// Runs one event through the state machine, does what follows from it, publishes the result.
    fn event(&self, event: impl FnOnce(&mut Sdam) -> Vec<Effect>) {
        let mut confirmed = None;
        let mut to_clear = Vec::new();
        let mut to_close = Vec::new();
        {
            let mut state = self.state.lock();
            if self.stop.is_cancelled() {
                return;
            }
            for effect in event(&mut state.sdam) {
                match effect {
                    Effect::Add(address) => {
                        let watched = self.watch(address.clone());
                        state.members.insert(address, watched);
                    }
                    Effect::Remove(address) => to_close.extend(state.members.remove(&address)),
                    Effect::ClearPool(address) => {
                        to_clear
                            .extend(state.members.get(&address).map(|watched| Arc::clone(&watched.server)));
                    }
                    Effect::HostsConfirmed(hosts) => confirmed = Some(hosts),
                }
            }
            let members = state
                .sdam
                .members()
                .filter_map(|member| {
                    let watched = state.members.get(&member.address)?;
                    Some((member.clone(), Arc::clone(&watched.server)))
                })
                .collect();
            self.description.store(Arc::new(SetDescription::new(members)));
        }
        self.changed.notify_waiters();
        for server in to_clear {
            server.pool().clear(None);
        }
        for watched in to_close {
            watched.stop.cancel();
            watched.server.pool().close();
        }
        if let Some(hosts) = confirmed {
            let hosts = ConnectionString { set_name: Arc::clone(&self.name), hosts };
            tracing::info!(set = %self.name, %hosts, "replica set has new hosts");
            // Nobody may be listening yet.
            drop(self.context.hosts_changed.send(HostsChanged { set_name: Arc::clone(&self.name), hosts }));
        }
    }

    fn watch(&self, address: ServerAddress) -> Watched {
        let server = Arc::new(Server::new(
            address,
            Weak::clone(&self.this),
            Arc::clone(&self.name),
            Arc::clone(&self.context),
        ));
        let stop = self.stop.child_token();
        let set = Weak::clone(&self.this);
        Watch { server: Arc::clone(&server), set, context: Arc::clone(&self.context) }.start(&stop);
        Watched { server, stop }
    }
}

impl std::fmt::Debug for ReplicaSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaSet")
            .field("name", &self.name)
            .field("description", &self.description.load())
            .finish()
    }
}
