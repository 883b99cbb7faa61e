//! A whole sharded cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use bson::{Document, doc};
use futures_util::future::{try_join, try_join_all};
use mongodb::Client;

use crate::binaries::{mongod_path, router_path};
use crate::member::{MemberOptions, Role};
use crate::network::Network;
use crate::replica_set::ReplicaSet;
use crate::router::{Router, RouterOptions};
use crate::workdir::WorkDir;

/// What a cluster shall have. Default: one config member, two shards of one member, one router, the balancer stopped.
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    config_members: usize,
    shards: usize,
    members: usize,
    members_of: Vec<(usize, usize)>,
    routers: usize,
    adds_shards: bool,
    first_router_port: Option<u16>,
    cache_gb: f64,
    balancer: bool,
    partitionable: bool,
    mongod: Option<PathBuf>,
    router_binary: Option<PathBuf>,
    shard_parameters: Vec<(String, String)>,
    config_parameters: Vec<(String, String)>,
    router_parameters: Vec<(String, String)>,
    router_arguments: Vec<String>,
}

impl ClusterBuilder {
    /// How many members the config servers' replica set has.
    #[must_use]
    pub fn config_members(mut self, count: usize) -> Self {
        self.config_members = count;
        self
    }

    /// How many shards; they are named `shard0`, `shard1`, …
    #[must_use]
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = count;
        self
    }

    /// How many members each shard has.
    #[must_use]
    pub fn members(mut self, count: usize) -> Self {
        self.members = count;
        self
    }

    /// How many members one shard has when it has not as many as the others.
    #[must_use]
    pub fn members_of(mut self, shard: usize, count: usize) -> Self {
        self.members_of.push((shard, count));
        self
    }

    /// How many routers.
    #[must_use]
    pub fn routers(mut self, count: usize) -> Self {
        self.routers = count;
        self
    }

    /// The port of the first router; else each has a free one.
    #[must_use]
    pub fn router_port(mut self, port: u16) -> Self {
        self.first_router_port = Some(port);
        self
    }

    /// WiredTiger's cache of each shard member (default 0.25, the least there is).
    #[must_use]
    pub fn cache_gb(mut self, gigabytes: f64) -> Self {
        self.cache_gb = gigabytes;
        self
    }

    /// Lets the balancer run.
    #[must_use]
    pub fn balancer(mut self) -> Self {
        self.balancer = true;
        self
    }

    /// Members can be cut off by [`crate::Member::isolate`]: all their traffic goes through forwarders of this process.
    #[must_use]
    pub fn partitionable(mut self) -> Self {
        self.partitionable = true;
        self
    }

    /// Another `mongod` than [`mongod_path`] gives.
    #[must_use]
    pub fn mongod(mut self, path: impl Into<PathBuf>) -> Self {
        self.mongod = Some(path.into());
        self
    }

    /// Another router than [`router_path`] gives, for example a real `mongos`.
    #[must_use]
    pub fn router_binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.router_binary = Some(path.into());
        self
    }

    /// A `--setParameter` of every shard member.
    #[must_use]
    pub fn shard_parameter(mut self, name: &str, value: &str) -> Self {
        self.shard_parameters.push((name.into(), value.into()));
        self
    }

    /// A `--setParameter` of every config member.
    #[must_use]
    pub fn config_parameter(mut self, name: &str, value: &str) -> Self {
        self.config_parameters.push((name.into(), value.into()));
        self
    }

    /// A `--setParameter` of every router.
    #[must_use]
    pub fn router_parameter(mut self, name: &str, value: &str) -> Self {
        self.router_parameters.push((name.into(), value.into()));
        self
    }

    /// One more argument of every router.
    #[must_use]
    pub fn router_argument(mut self, argument: &str) -> Self {
        self.router_arguments.push(argument.into());
        self
    }

    /// No router: shards are added on the config servers themselves, which is how the kit tests itself.
    #[must_use]
    pub fn without_router(self) -> Self {
        self.routers(0)
    }

    /// The replica sets run, but none of them is a shard yet: the test calls `addShard` itself.
    #[must_use]
    pub fn without_added_shards(mut self) -> Self {
        self.adds_shards = false;
        self
    }

    /// Starts it all; done when every shard is added and every router answers.
    ///
    /// # Errors
    /// Names the process that did not come up, with the end of its log.
    pub async fn start(self) -> Result<Cluster> {
        let dir = Arc::new(WorkDir::create()?);
        let started = self.start_in(&dir).await;
        if started.is_err() {
            dir.keep_logs();
        }
        started
    }

    async fn start_in(self, dir: &Arc<WorkDir>) -> Result<Cluster> {
        // The lookup may fetch the server: not on a thread that drives other tasks.
        let mongod = match self.mongod.clone() {
            Some(path) => path,
            None => tokio::task::spawn_blocking(mongod_path).await??,
        };
        let network = self.partitionable.then(Network::new);
        let options = |role, set_name: String, cache_gb, parameters: &[(String, String)]| MemberOptions {
            mongod: mongod.clone(),
            role,
            set_name,
            cache_gb,
            parameters: member_parameters(role, parameters),
            dir: Arc::clone(dir),
            network: network.clone(),
        };
        let config_options = options(Role::Config, "config0".into(), 0.25, &self.config_parameters);
        let shard_sets = (0..self.shards).map(|index| {
            let shard = options(Role::Shard, format!("shard{index}"), self.cache_gb, &self.shard_parameters);
            let own = self.members_of.iter().rev().find(|(of, _)| *of == index).map(|(_, count)| *count);
            ReplicaSet::start(shard, own.unwrap_or(self.members))
        });
        let (config, shards) =
            try_join(ReplicaSet::start(config_options, self.config_members), try_join_all(shard_sets))
                .await?;
        if !self.balancer {
            config.command("admin", doc! { "_configsvrBalancerStop": 1 }).await?;
        }
        let routers = self.start_routers(&config, dir).await?;
        let cluster = Cluster { routers, shards, config, dir: Arc::clone(dir) };
        if self.adds_shards {
            cluster.add_shards().await?;
        }
        Ok(cluster)
    }

    async fn start_routers(&self, config: &ReplicaSet, dir: &Arc<WorkDir>) -> Result<Vec<Router>> {
        if self.routers == 0 {
            return Ok(Vec::new());
        }
        let mut parameters = vec![("enableTestCommands".to_owned(), "1".to_owned())];
        parameters.extend(self.router_parameters.iter().cloned());
        let options = Arc::new(RouterOptions {
            binary: self.router_binary.clone().map_or_else(router_path, Ok)?,
            config_db: config.connection_string(),
            parameters,
            arguments: self.router_arguments.clone(),
            dir: Arc::clone(dir),
        });
        let starts = (0_u16..).take(self.routers).map(|index| {
            // Drivers' suites look for a second router on the next port.
            let port = self.first_router_port.map(|first| first.saturating_add(index));
            Router::start_new(format!("router{index}"), port, Arc::clone(&options))
        });
        try_join_all(starts).await
    }
}

fn member_parameters(role: Role, more: &[(String, String)]) -> Vec<(String, String)> {
    let own = match role {
        // A range that just left a shard could not come back for 15 minutes.
        Role::Shard => ("orphanCleanupDelaySecs", "0"),
        // Resharding waits at least five minutes by default.
        Role::Config => ("reshardingMinimumOperationDurationMillis", "0"),
    };
    let all = [("enableTestCommands", "1"), ("diagnosticDataCollectionEnabled", "false"), own];
    all.into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain(more.iter().cloned())
        .collect()
}

/// A running sharded cluster; everything ends when it is dropped.
pub struct Cluster {
    routers: Vec<Router>,
    shards: Vec<ReplicaSet>,
    config: ReplicaSet,
    dir: Arc<WorkDir>,
}

impl Cluster {
    /// What to start.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            config_members: 1,
            shards: 2,
            members: 1,
            members_of: Vec::new(),
            routers: 1,
            adds_shards: true,
            first_router_port: None,
            cache_gb: 0.25,
            balancer: false,
            partitionable: false,
            mongod: None,
            router_binary: None,
            shard_parameters: Vec::new(),
            config_parameters: Vec::new(),
            router_parameters: Vec::new(),
            router_arguments: Vec::new(),
        }
    }

    async fn add_shards(&self) -> Result<()> {
        for shard in &self.shards {
            let hosts = shard.connection_string();
            if let Some(router) = self.routers.first() {
                let command = doc! { "addShard": hosts, "name": shard.name() };
                router.raw().await?.command_ok("admin", command).await?;
            } else {
                let command = doc! {
                    "_configsvrAddShard": hosts,
                    "name": shard.name(),
                    "writeConcern": { "w": "majority", "wtimeout": 60_000 },
                };
                self.config.command("admin", command).await?;
            }
        }
        Ok(())
    }

    /// A driver connected to all routers, with the driver's own defaults.
    ///
    /// # Errors
    /// When there is no router.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::with_uri_str(self.uri()?).await?)
    }

    /// The connection string of all routers.
    ///
    /// # Errors
    /// When there is no router.
    pub fn uri(&self) -> Result<String> {
        self.router(0)?;
        let hosts: Vec<String> = self.routers.iter().map(Router::address).collect();
        Ok(format!("mongodb://{}/", hosts.join(",")))
    }

    /// Runs one command on `admin` of the first router; an answer without `ok: 1` is an error.
    ///
    /// # Errors
    /// When the command fails.
    pub async fn admin(&self, command: Document) -> Result<Document> {
        self.router(0)?.raw().await?.command_ok("admin", command).await
    }

    /// One router.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn router(&self, index: usize) -> Result<&Router> {
        self.routers.get(index).with_context(|| format!("the cluster has no router {index}"))
    }

    /// All routers.
    #[must_use]
    pub fn routers(&self) -> &[Router] {
        &self.routers
    }

    /// One shard.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn shard(&self, index: usize) -> Result<&ReplicaSet> {
        self.shards.get(index).with_context(|| format!("the cluster has no shard {index}"))
    }

    /// The shard with this id.
    ///
    /// # Errors
    /// When there is none.
    pub fn shard_named(&self, id: &str) -> Result<&ReplicaSet> {
        self.shards.iter().find(|shard| shard.name() == id).with_context(|| format!("no shard {id}"))
    }

    /// All shards.
    #[must_use]
    pub fn shards(&self) -> &[ReplicaSet] {
        &self.shards
    }

    /// The config servers.
    #[must_use]
    pub fn config(&self) -> &ReplicaSet {
        &self.config
    }

    /// The folder with the logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves the logs where they are when the cluster ends.
    pub fn keep_logs(&self) {
        self.dir.keep_logs();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // In this order: routers do not log lost servers, and no data folder goes while its server writes.
        self.routers.iter().for_each(Router::kill);
        for set in self.shards.iter().chain([&self.config]) {
            set.members().iter().for_each(crate::member::Member::kill);
        }
    }
}
