//! First contact with the cluster, and what goes on beside the commands.

use std::sync::Arc;
use std::time::Duration;

use document::{Doc, DocBuf, Value, splice};
use topology::{ReadPreference, TopologyError};

use crate::Router;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::remote::Retry;
use crate::remote::config::{Concern, ConfigFind};
use crate::reply::Summary;

/// Between two attempts to reach the config servers (mongos tries for ever).
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Between two looks for transactions that nobody ended.
const TRANSACTION_MONITOR: Duration = Duration::from_secs(60);
/// Between two reads of the shard list, and of the default concerns.
const RELOAD: Duration = Duration::from_secs(30);
/// Between two pings in config.mongos.
const PING: Duration = Duration::from_secs(10);

/// Why a router cannot start at all: waiting would not help.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config servers are not what `--configdb` says, or not of a version that this router speaks.
    #[error("{0}")]
    Cluster(Arc<TopologyError>),
    /// The process was told to end before the config servers answered.
    #[error("interrupted before the config servers answered")]
    Interrupted,
}

impl Router {
    /// Reaches the config servers and reads what a router must know before it listens: waits for as long as they do not
    /// answer, fails by name when they answer as something else.
    pub async fn connect(self: &Arc<Self>) -> Result<(), StartError> {
        loop {
            let attempt = tokio::select! {
                biased;
                () = self.shutdown().cancelled() => return Err(StartError::Interrupted),
                attempt = self.first_contact() => attempt,
            };
            match attempt {
                Ok(()) => break,
                Err(Contact::Never(error)) => return Err(StartError::Cluster(error)),
                Err(Contact::NotYet(error)) => {
                    tracing::warn!(%error, "Error initializing sharding state, sleeping for 2 seconds and retrying");
                    tokio::select! {
                        () = self.shutdown().cancelled() => return Err(StartError::Interrupted),
                        () = tokio::time::sleep(RETRY_PAUSE) => {}
                    }
                }
            }
        }
        if let Err(error) = self.refresh_defaults().await {
            tracing::warn!(%error, "could not read the default read and write concern");
        }
        self.start_background_tasks();
        Ok(())
    }

    async fn first_contact(&self) -> Result<(), Contact> {
        let config = self.servers().config_set();
        config.wait(&ReadPreference::NEAREST, None).await.map_err(Contact::from)?;
        // No time is known yet: the config servers' own hello has the floor of the first reads.
        if let Some(hello) = config.hello_reply()
            && let Ok(body) = Doc::new(&hello)
        {
            self.clock().observe(&Summary::of(body).times);
        }
        let version = ConfigFind {
            collection: "version",
            filter: DocBuf::new(),
            sort: None,
            concern: Concern::Majority,
            preference: ReadPreference::NEAREST,
        };
        let found = self.servers().config_find(&version).await.map_err(Contact::NotYet)?;
        let cluster = found.documents.first().and_then(|doc| doc.as_doc().get("clusterId"));
        if let Some(Value::ObjectId(id)) = cluster {
            tracing::info!(cluster_id = ?id, "connected to the config servers");
        }
        self.registry()
            .list()
            .await
            .map(|_| ())
            .map_err(|error| Contact::NotYet(CommandError::new(ErrorCode(error.code()), error.to_string())))
    }

    /// Reads the cluster's default read and write concern.
    pub async fn refresh_defaults(&self) -> CommandResult<()> {
        let answer = self
            .servers()
            .config_command("admin", Retry::Idempotent, None, |out| {
                splice::put_i32(out, "getDefaultRWConcern", 1);
            })
            .await?;
        self.defaults().update(answer.reply.body());
        Ok(())
    }

    fn start_background_tasks(self: &Arc<Self>) {
        let (servers, shutdown) = (Arc::clone(self.servers()), self.shutdown().clone());
        let tasks = self.tasks().clone();
        self.tasks().spawn(async move {
            loop {
                let dead = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    dead = servers.graveyard().next() => dead,
                };
                for cursor in dead {
                    let servers = Arc::clone(&servers);
                    tasks.spawn(async move {
                        cursor.kill(&servers).await;
                    });
                }
            }
        });
        let router = Arc::clone(self);
        let monitor = self.parameters().int("clientCursorMonitorFrequencySecs");
        let monitor = Duration::from_secs(u64::try_from(monitor).unwrap_or(0).max(1));
        self.every(monitor, move || {
            let router = Arc::clone(&router);
            async move {
                let limit = router.parameters().millis("cursorTimeoutMillis");
                drop(router.cursors().kill_idle(limit));
                let grace = router.parameters().millis("pointsmanGoneClientCursorTimeoutMillis");
                if !grace.is_zero() {
                    drop(router.cursors().kill_of_gone(grace));
                }
                router.origins().sweep();
            }
        });
        let router = Arc::clone(self);
        self.every(TRANSACTION_MONITOR, move || {
            let router = Arc::clone(&router);
            async move { router.reap_transactions().await }
        });
        if !self.parameters().flag("disableLogicalSessionCacheRefresh") {
            let router = Arc::clone(self);
            self.every(self.parameters().millis("logicalSessionRefreshMillis"), move || {
                let router = Arc::clone(&router);
                async move {
                    if let Err(error) = router.refresh_sessions().await {
                        tracing::warn!(%error, "could not refresh the records of sessions");
                    }
                }
            });
        }
        let router = Arc::clone(self);
        self.every(RELOAD, move || {
            let router = Arc::clone(&router);
            async move {
                if let Err(error) = router.registry().reload().await {
                    tracing::warn!(%error, "could not read the list of shards");
                }
                if let Err(error) = router.refresh_defaults().await {
                    tracing::warn!(%error, "could not read the default read and write concern");
                }
            }
        });
        let router = Arc::clone(self);
        self.every(PING, move || {
            let router = Arc::clone(&router);
            async move {
                if let Err(error) = router.ping_config().await {
                    tracing::warn!(%error, "could not write to config.mongos");
                }
            }
        });
    }

    /// Runs `job` at once and then in this interval, until shutdown.
    fn every<F>(&self, interval: Duration, mut job: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown().clone();
        self.tasks().spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    _ = ticks.tick() => job().await,
                }
            }
        });
    }

    /// `config.mongos`: tools list routers from it, `sh.status()` calls those active that pinged lately.
    async fn ping_config(&self) -> CommandResult<()> {
        let up = self.started().elapsed().map_or(0, |up| i64::try_from(up.as_secs()).unwrap_or(i64::MAX));
        let now = millis(std::time::SystemTime::now());
        let created = millis(self.started());
        let host = self.settings().host.clone();
        self.servers()
            .config_command("config", Retry::Idempotent, None, move |out| {
                let mut set = DocBuf::new();
                set.append("_id", &host);
                set.write(|w| w.array("advisoryHostFQDNs", [], |w, name, host: &str| w.put(name, host)));
                set.append("created", Value::DateTime(created))
                    .append("mongoVersion", crate::SERVER_VERSION)
                    .append("ping", Value::DateTime(now))
                    .append("up", up)
                    .append("waiting", true);
                splice::put_str(out, "update", "mongos");
                let updates = splice::open_array(out, "updates");
                let update = splice::open_doc(out, "0");
                let query = splice::open_doc(out, "q");
                splice::put_str(out, "_id", &host);
                query.finish(out);
                let change = splice::open_doc(out, "u");
                splice::put_doc(out, "$set", set.as_doc());
                change.finish(out);
                splice::put_bool(out, "upsert", true);
                update.finish(out);
                updates.finish(out);
                let concern = splice::open_doc(out, "writeConcern");
                splice::put_str(out, "w", "majority");
                splice::put_i32(out, "wtimeout", 15_000);
                concern.finish(out);
            })
            .await
            .map(|_| ())
    }
}

fn millis(time: std::time::SystemTime) -> i64 {
    time.duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How a first contact failed.
enum Contact {
    /// Try again.
    NotYet(CommandError),
    /// It will never work.
    Never(Arc<TopologyError>),
}

impl From<TopologyError> for Contact {
    fn from(error: TopologyError) -> Self {
        let fatal = |error: &TopologyError| {
            matches!(error, TopologyError::Incompatible { .. } | TopologyError::WrongSetName { .. })
        };
        match error {
            TopologyError::NoServer { last: Some(last), .. } if fatal(&last) => Self::Never(last),
            error if fatal(&error) => Self::Never(Arc::new(error)),
            error => Self::NotYet(CommandError::new(ErrorCode(error.code()), error.to_string())),
        }
    }
}
