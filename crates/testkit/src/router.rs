//! The router under test as a process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bson::doc;
use mongodb::Client;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::child::Process;
use crate::port::Port;
use crate::raw::RawConn;
use crate::usage::Usage;
use crate::workdir::WorkDir;

const START_LIMIT: Duration = Duration::from_secs(30);

/// What routers are started with.
#[derive(Debug)]
pub(crate) struct RouterOptions {
    pub(crate) binary: PathBuf,
    pub(crate) config_db: String,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) arguments: Vec<String>,
    pub(crate) dir: Arc<WorkDir>,
}

/// One router process.
pub struct Router {
    name: String,
    port: Port,
    options: Arc<RouterOptions>,
    process: Process,
}

impl Router {
    /// Starts a router, on `port` or on a free one.
    pub(crate) async fn start_new(
        name: String,
        port: Option<u16>,
        options: Arc<RouterOptions>,
    ) -> Result<Self> {
        for _ in 0..20 {
            let router = Self {
                name: name.clone(),
                port: port.map_or_else(Port::free, |number| Ok(Port::named(number)))?,
                options: Arc::clone(&options),
                process: Process::default(),
            };
            match router.start().await? {
                Started::Ready => return Ok(router),
                Started::Ended(_) if port.is_none() && router.log_says("address").unwrap_or(false) => {}
                Started::Ended(how) => bail!("{name} ended at start ({how}):\n{}", router.log_tail()),
            }
        }
        bail!("no port for {name}")
    }

    async fn start(&self) -> Result<Started> {
        let output = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let child = self.process.start(&self.options.binary, &self.arguments(), output)?;
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = child.exit_status()? {
                return Ok(Started::Ended(status.to_string()));
            }
            if matches!(timeout(Duration::from_secs(5), self.is_ready()).await, Ok(Ok(true))) {
                return Ok(Started::Ready);
            }
            if Instant::now() > end {
                bail!("{} did not answer hello within {START_LIMIT:?}:\n{}", self.name, self.log_tail());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--configdb".into(),
            self.options.config_db.clone(),
            "--port".into(),
            self.port.number().to_string(),
            "--bind_ip".into(),
            "127.0.0.1".into(),
        ];
        for (name, value) in &self.options.parameters {
            arguments.push("--setParameter".into());
            arguments.push(format!("{name}={value}"));
        }
        arguments.extend(self.options.arguments.iter().cloned());
        arguments
    }

    async fn is_ready(&self) -> Result<bool> {
        let hello = self.raw().await?.command_ok("admin", doc! { "hello": 1 }).await?;
        Ok(hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"))
    }

    fn log_says(&self, what: &str) -> Result<bool> {
        Ok(std::fs::read_to_string(self.log_path())?.to_lowercase().contains(what))
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(15);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    /// `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Its connection string.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address())
    }

    /// Where its output goes.
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

    /// Whether the process is there and has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.child().and_then(|child| child.exit_status()).is_ok_and(|status| status.is_none())
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// When it is not running.
    pub fn terminate(&self) -> Result<()> {
        self.process.signal(Signal::TERM)
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again on the same port; kills it first when it runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&self) -> Result<()> {
        self.kill();
        match self.start().await? {
            Started::Ready => Ok(()),
            Started::Ended(how) => bail!("{} ended at start ({how}):\n{}", self.name, self.log_tail()),
        }
    }

    /// A plain connection to it.
    ///
    /// # Errors
    /// When it does not listen.
    pub async fn raw(&self) -> Result<RawConn> {
        RawConn::connect(&self.address()).await
    }

    /// A driver connected to this router alone.
    ///
    /// # Errors
    /// When the driver cannot be made.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::with_uri_str(self.uri()).await?)
    }
}

enum Started {
    Ready,
    Ended(String),
}
