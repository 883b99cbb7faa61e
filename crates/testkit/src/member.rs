//! One `mongod` process of a replica set.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bson::{Document, doc};
use mongodb::Client;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::child::Process;
use crate::network::{Forwarder, Network};
use crate::port::Port;
use crate::raw::RawConn;
use crate::usage::Usage;
use crate::workdir::WorkDir;

/// What a member is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Config,
    Shard,
}

/// What all members of a replica set are started with.
#[derive(Debug)]
pub(crate) struct MemberOptions {
    pub(crate) mongod: PathBuf,
    pub(crate) role: Role,
    pub(crate) set_name: String,
    pub(crate) cache_gb: f64,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) dir: Arc<WorkDir>,
    /// Set when members can be cut off.
    pub(crate) network: Option<Arc<Network>>,
}

/// mongod's exit code when its port is taken.
const ADDRESS_IN_USE: i32 = 48;
const HELLO_LIMIT: Duration = Duration::from_secs(1);
const START_LIMIT: Duration = Duration::from_secs(60);

/// One `mongod`: it can be looked at, stopped, killed and started again.
pub struct Member {
    name: String,
    port: Port,
    options: Arc<MemberOptions>,
    process: Process,
    forwarder: Option<Forwarder>,
}

impl Member {
    /// Starts a new member on a free port.
    pub(crate) async fn start_new(name: String, options: Arc<MemberOptions>) -> Result<Self> {
        for _ in 0..20 {
            let mut member = Self {
                name: name.clone(),
                port: Port::free()?,
                options: Arc::clone(&options),
                process: Process::default(),
                forwarder: None,
            };
            match member.start().await {
                Ok(()) => {
                    if let Some(network) = &options.network {
                        member.forwarder = Some(Forwarder::start(member.port.number(), network).await?);
                    }
                    return Ok(member);
                }
                Err(StartError::PortTaken) => {}
                Err(StartError::Other(error)) => return Err(error),
            }
        }
        bail!("no port for {name}")
    }

    async fn start(&self) -> Result<(), StartError> {
        let log = self.log_path();
        let offset = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let output = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
        let child = self.process.start(&self.options.mongod, &self.arguments()?, output)?;
        let end = Instant::now() + START_LIMIT;
        loop {
            // Log id 23016 is "Waiting for connections" (seen on 6.0.5); asking the port could reach somebody else's server.
            let text = read_from(&log, offset)?;
            if text.contains("\"id\":23016,") {
                return Ok(());
            }
            if let Some(status) = child.exit_status()? {
                // Exit code 48 when the port cannot be bound; an abort when it turns out taken only at listen().
                if status.code() == Some(ADDRESS_IN_USE) || text.contains("Address already in use") {
                    return Err(StartError::PortTaken);
                }
                let last: Vec<&str> = text.lines().rev().take(5).collect();
                return Err(anyhow!("{} ended at start ({status}): {last:#?}", self.name).into());
            }
            if Instant::now() > end {
                return Err(anyhow!(
                    "{} did not start within {START_LIMIT:?}, log: {}",
                    self.name,
                    log.display()
                )
                .into());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn arguments(&self) -> Result<Vec<String>> {
        let options = &self.options;
        let mut arguments = vec![
            match options.role {
                Role::Config => "--configsvr".to_owned(),
                Role::Shard => "--shardsvr".to_owned(),
            },
            "--replSet".into(),
            options.set_name.clone(),
            "--port".into(),
            self.port.number().to_string(),
            "--bind_ip".into(),
            "127.0.0.1".into(),
            "--nounixsocket".into(),
            "--dbpath".into(),
            options.dir.data(&self.name)?.display().to_string(),
            "--wiredTigerCacheSizeGB".into(),
            options.cache_gb.to_string(),
            "--oplogSize".into(),
            "512".into(),
        ];
        for (name, value) in &options.parameters {
            arguments.push("--setParameter".into());
            arguments.push(format!("{name}={value}"));
        }
        Ok(arguments)
    }

    /// Its name in this cluster, as `shard0-1`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.forwarder.as_ref().map_or(self.port.number(), Forwarder::port))
    }

    /// Where its log is.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.options.dir.log(&self.name)
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.process.child().with_context(|| self.name.clone())?.pid())
    }

    /// What it uses now.
    ///
    /// # Errors
    /// When it is not running.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid()?)
    }

    /// Freezes it (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Ends a [`Member::pause`].
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    fn forwarder(&self) -> Result<&Forwarder> {
        self.forwarder.as_ref().context("the cluster was not started with `partitionable`")
    }

    /// Cuts it off from everybody, other members and routers, in both directions; connections stay open.
    ///
    /// # Errors
    /// When the cluster is not [`crate::ClusterBuilder::partitionable`].
    pub fn isolate(&self) -> Result<()> {
        let forwarder = self.forwarder()?;
        forwarder.network().isolate(forwarder.port(), self.pid()?);
        Ok(())
    }

    /// Ends a [`Member::isolate`]: what was sent meanwhile arrives now.
    ///
    /// # Errors
    /// When the cluster is not [`crate::ClusterBuilder::partitionable`].
    pub fn reconnect(&self) -> Result<()> {
        let forwarder = self.forwarder()?;
        forwarder.network().reconnect(forwarder.port());
        Ok(())
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again on the same port and data; kills it first when it runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self) -> Result<()> {
        self.kill();
        match self.start().await {
            Ok(()) => Ok(()),
            Err(StartError::PortTaken) => bail!("the port of {} is taken", self.name),
            Err(StartError::Other(error)) => Err(error),
        }
    }

    /// A plain connection to it.
    ///
    /// # Errors
    /// When it does not listen.
    pub async fn raw(&self) -> Result<RawConn> {
        RawConn::connect(&self.address()).await
    }

    /// Runs one command on it and gives the answer if that says `ok: 1`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn command(&self, db: &str, command: Document) -> Result<Document> {
        self.raw().await?.command_ok(db, command).await.with_context(|| format!("on {}", self.name))
    }

    /// A driver connected to this member alone.
    ///
    /// # Errors
    /// When the driver cannot be made.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::with_uri_str(format!("mongodb://{}/?directConnection=true", self.address())).await?)
    }

    /// Whether it says that it is the primary. One that is paused or cut off says nothing.
    pub async fn is_primary(&self) -> bool {
        self.hello_says("isWritablePrimary").await
    }

    /// Whether it says that it is a secondary.
    pub async fn is_secondary(&self) -> bool {
        self.hello_says("secondary").await
    }

    async fn hello_says(&self, field: &str) -> bool {
        let hello = tokio::time::timeout(HELLO_LIMIT, self.command("admin", doc! { "hello": 1 })).await;
        hello.is_ok_and(|reply| reply.is_ok_and(|reply| reply.get_bool(field).unwrap_or(false)))
    }
}

enum StartError {
    PortTaken,
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for StartError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

fn read_from(path: &std::path::Path, offset: u64) -> Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
