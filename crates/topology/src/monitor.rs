//! Watching one member: two small tasks, each with a connection of its own.
//!
//! The **monitor** keeps one awaited `hello` open, so that the member itself tells of an election at once. The
//! **pinger** asks a plain `hello` once a heartbeat, and out of turn when a caller reports a failure: it measures the
//! round trip, and it looks after the pool.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::connect::Connected;
use crate::connection::Connection;
use crate::context::Context;
use crate::error::TopologyError;
use crate::hello::{HelloReply, Purpose, TopologyVersion, write_hello};
use crate::replica_set::ReplicaSet;
use crate::server::Server;

/// What both tasks know.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) server: Arc<Server>,
    pub(crate) set: Weak<ReplicaSet>,
    pub(crate) context: Arc<Context>,
}

impl Watch {
    /// Starts both tasks; they end with the token.
    pub(crate) fn start(self, stop: &CancellationToken) {
        let context = Arc::clone(&self.context);
        let (monitor, pinger) = (self.clone(), self);
        let (first, second) = (stop.clone(), stop.clone());
        context.spawn(async move {
            first.run_until_cancelled(monitor.monitor()).await;
        });
        context.spawn(async move {
            second.run_until_cancelled(pinger.ping()).await;
        });
    }

    async fn monitor(self) {
        let mut failures = 0;
        while self.set.strong_count() > 0 {
            let attempt = Instant::now();
            let error = self.follow(&mut failures).await;
            tracing::debug!(server = %self.server.address(), %error, "monitoring failed");
            if let Some(set) = self.set.upgrade() {
                set.on_monitor_failure(self.server.address(), error);
            }
            failures += 1;
            self.pause(attempt, failures).await;
        }
    }

    /// Waits for the next attempt: none after the end of a stream that worked, then longer each time, shorter when
    /// somebody waits for this member, never shorter than the least time between two checks.
    async fn pause(&self, attempt: Instant, failures: u32) {
        let options = &self.context.options;
        let least = options.min_heartbeat;
        if failures > 1 {
            let wait = least.saturating_mul(1 << failures.saturating_sub(2).min(5)).min(options.heartbeat);
            // Either the wait is over or somebody is in a hurry.
            timeout(wait, self.server.check_now.notified()).await.ok();
        }
        sleep_until(attempt + least).await;
    }

    /// Connects and follows what the member says until that fails.
    async fn follow(&self, failures: &mut u32) -> TopologyError {
        let Connected { mut connection, hello, round_trip } =
            match self.context.connector.connect(self.server.address(), Purpose::Monitor).await {
                Ok(connected) => connected,
                Err(error) => return error,
            };
        *failures = 0;
        let mut version = hello.topology_version;
        self.learn(&hello, Some(round_trip));
        let mut request = BytesMut::new();
        loop {
            match self.next_hello(&mut connection, &mut request, version).await {
                Ok(hello) => {
                    version = hello.topology_version;
                    self.learn(&hello, None);
                }
                Err(error) => return error,
            }
        }
    }

    /// The next reply of the stream; asks for a stream when none is open. A member that knows no topology version
    /// (none since 4.4) is asked once a heartbeat.
    async fn next_hello(
        &self,
        connection: &mut Connection,
        request: &mut BytesMut,
        version: Option<TopologyVersion>,
    ) -> Result<HelloReply, TopologyError> {
        let options = &self.context.options;
        if connection.is_clean() {
            if version.is_none() {
                sleep(options.min_heartbeat).await;
                timeout(options.heartbeat, self.server.check_now.notified()).await.ok();
            }
            request.clear();
            let awaited = version.map(|version| (version, options.heartbeat));
            write_hello(request, awaited).map_err(|error| TopologyError::RequestTooLarge(Arc::new(error)))?;
            connection.send(request, Some(Instant::now() + options.connect_timeout)).await?;
        }
        let patience = options.heartbeat + options.connect_timeout;
        let reply =
            connection.recv(Some(Instant::now() + patience)).await.map_err(|error| self.silent(error))?;
        HelloReply::parse(self.server.address(), reply)
    }

    async fn ping(self) {
        let options = &self.context.options;
        let mut connection: Option<Connection> = None;
        while self.set.strong_count() > 0 {
            let started = Instant::now();
            match self.ask(&mut connection).await {
                Ok(()) => {}
                Err(error) => {
                    // The monitor decides what a member is; a lost ping only costs a sample.
                    tracing::debug!(server = %self.server.address(), %error, "ping failed");
                    connection = None;
                }
            }
            let usable = self.set.upgrade().is_some_and(|set| set.is_usable(self.server.address()));
            self.server.pool().upkeep(&self.server, usable);
            timeout(options.heartbeat, self.server.ask_now.notified()).await.ok();
            sleep_until(started + options.min_heartbeat).await;
        }
    }

    /// One plain hello.
    async fn ask(&self, slot: &mut Option<Connection>) -> Result<(), TopologyError> {
        let options = &self.context.options;
        let (hello, round_trip) = match slot {
            None => {
                let connected =
                    self.context.connector.connect(self.server.address(), Purpose::Monitor).await?;
                *slot = Some(connected.connection);
                (connected.hello, connected.round_trip)
            }
            Some(connection) => {
                let mut request = BytesMut::new();
                write_hello(&mut request, None)
                    .map_err(|error| TopologyError::RequestTooLarge(Arc::new(error)))?;
                let deadline = Some(Instant::now() + options.connect_timeout);
                let started = Instant::now();
                connection.send(&mut request, deadline).await?;
                let reply = connection.recv(deadline).await?;
                (HelloReply::parse(self.server.address(), reply)?, started.elapsed())
            }
        };
        self.learn(&hello, Some(round_trip));
        Ok(())
    }

    fn learn(&self, hello: &HelloReply, round_trip: Option<Duration>) {
        if let Some(set) = self.set.upgrade() {
            set.on_hello(self.server.address(), hello, round_trip);
        }
    }

    /// A member that says nothing for so long is gone.
    fn silent(&self, error: TopologyError) -> TopologyError {
        match error {
            TopologyError::DeadlineExceeded => {
                TopologyError::ConnectTimeout { address: self.server.address().clone() }
            }
            other => other,
        }
    }
}
