//! The processes that are compared.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::{Cluster, Usage};

/// What stands between client and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Nothing: the shard itself.
    Direct,
    /// HAProxy in TCP mode in front of the shard.
    Forwarder,
    /// Pointsman.
    Pointsman,
    /// `clusterFind` and its like on a shard that owns none of the data.
    ServerRouting,
    /// A mongos.
    Mongos,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Direct, Self::Forwarder, Self::Pointsman, Self::ServerRouting, Self::Mongos];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Forwarder => "haproxy",
            Self::Pointsman => "pointsman",
            Self::ServerRouting => "cluster*",
            Self::Mongos => "mongos",
        }
    }
}

/// One of them, running.
pub(crate) struct Middle {
    kind: Kind,
    address: String,
    pid: u32,
    /// Ends with this value, if it is ours.
    _process: Option<Ours>,
}

struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Middle {
    /// All that can run here.
    pub(crate) async fn all(cluster: &Cluster, mongos: Option<&Path>) -> Result<Vec<Self>> {
        let shard = cluster.shard(0)?.member(0)?;
        let idle = cluster.shard(3)?.member(0)?;
        let router = cluster.router(0)?;
        let mut middles = vec![
            Self { kind: Kind::Direct, address: shard.address(), pid: shard.pid()?, _process: None },
            Self { kind: Kind::Pointsman, address: router.address(), pid: router.pid()?, _process: None },
            Self { kind: Kind::ServerRouting, address: idle.address(), pid: idle.pid()?, _process: None },
        ];
        middles.push(Self::haproxy(cluster, &shard.address()).await?);
        if let Some(path) = mongos {
            middles.push(Self::mongos(cluster, path).await?);
        }
        middles.sort_by_key(|middle| middle.kind);
        Ok(middles)
    }

    async fn haproxy(cluster: &Cluster, shard: &str) -> Result<Self> {
        let port = free_port()?;
        let template = include_str!("../haproxy.cfg");
        let configuration = template.replace("@PORT@", &port.to_string()).replace("@SERVER@", shard);
        let path = cluster.dir().join("haproxy.cfg");
        std::fs::File::create(&path)?.write_all(configuration.as_bytes())?;
        let child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("haproxy is needed (Debian: apt install haproxy)")?;
        Self::started(Kind::Forwarder, port, child).await
    }

    async fn mongos(cluster: &Cluster, path: &Path) -> Result<Self> {
        let port = free_port()?;
        let child = Command::new(path)
            .args(["--configdb", &cluster.config().connection_string(), "--port", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", path.display()))?;
        Self::started(Kind::Mongos, port, child).await
    }

    async fn started(kind: Kind, port: u16, child: Child) -> Result<Self> {
        let address = format!("127.0.0.1:{port}");
        let pid = child.id();
        let middle = Self { kind, address: address.clone(), pid, _process: Some(Ours(child)) };
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(&address).await.is_ok() {
                return Ok(middle);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("{} does not listen on {address}", kind.name())
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        Ok(Usage::of(self.pid)?.cpu)
    }
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
