//! Listening sockets and the loops that accept from them.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use router::{Client, Router};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection;
use crate::drain::Drain;
use crate::options::config::ListenConfig;

/// After a failed accept (no descriptors, mostly), and the most that grows to.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Sockets that clients connect to.
#[derive(Debug)]
pub(crate) struct Listeners {
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, PathBuf)>,
}

/// What the accept loops share.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) router: Arc<Router>,
    pub(crate) drain: Arc<Drain>,
    /// Cancelled when no more clients are taken.
    pub(crate) closed: CancellationToken,
    /// The connections.
    pub(crate) clients: TaskTracker,
    pub(crate) next_id: Arc<AtomicI64>,
}

/// A socket that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub(crate) struct ListenError {
    address: String,
    source: io::Error,
}

impl Listeners {
    /// Opens all sockets, or none.
    pub(crate) async fn open(config: &ListenConfig) -> Result<Self, ListenError> {
        let mut listeners = Self { tcp: Vec::new(), unix: Vec::new() };
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for name in &config.addresses {
            let failed = |source| ListenError { address: format!("{name}:{}", config.port), source };
            if name.contains('/') {
                listeners.open_unix(Path::new(name), 0o700)?;
                continue;
            }
            let bare = name.trim_start_matches('[').trim_end_matches(']');
            let found = tokio::net::lookup_host((bare, config.port)).await.map_err(failed)?;
            let wanted: Vec<SocketAddr> = found.filter(|address| config.ipv6 || address.is_ipv4()).collect();
            if wanted.is_empty() {
                return Err(failed(io::Error::new(
                    io::ErrorKind::AddrNotAvailable,
                    "it has no IPv4 address, and --ipv6 is not given",
                )));
            }
            addresses.extend(wanted);
        }
        addresses.sort_unstable();
        addresses.dedup();
        for address in addresses {
            let listener = open_tcp(address, config.backlog)
                .map_err(|source| ListenError { address: address.to_string(), source })?;
            tracing::info!(c = "NETWORK", id = 23015, ctx = "listener", address = %address.ip(), "Listening on");
            listeners.tcp.push(listener);
        }
        if let Some((directory, permissions)) = &config.unix_socket
            && !listeners.tcp.is_empty()
        {
            listeners.open_unix(&directory.join(format!("mongodb-{}.sock", config.port)), *permissions)?;
        }
        Ok(listeners)
    }

    fn open_unix(&mut self, path: &Path, permissions: u32) -> Result<(), ListenError> {
        let failed = |source| ListenError { address: path.display().to_string(), source };
        // Left over from a process that was killed. The port next to it is already ours.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions)).map_err(failed)?;
        tracing::info!(c = "NETWORK", id = 23015, ctx = "listener", address = %path.display(), "Listening on");
        self.unix.push((listener, path.to_owned()));
        Ok(())
    }

    /// Accepts clients until the gate is closed.
    pub(crate) async fn run(self, gate: Gate) {
        let loops = TaskTracker::new();
        for listener in self.tcp {
            let gate = gate.clone();
            loops.spawn(async move { gate.accept_tcp(&listener).await });
        }
        for (listener, path) in self.unix {
            let gate = gate.clone();
            loops.spawn(async move {
                gate.accept_unix(&listener).await;
                drop(listener);
                let _ = std::fs::remove_file(&path);
            });
        }
        loops.close();
        loops.wait().await;
    }
}

fn open_tcp(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // 0.0.0.0 has a socket of its own.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    TcpListener::from_std(socket.into())
}

impl Gate {
    async fn accept_tcp(&self, listener: &TcpListener) {
        self.accept(
            |context| listener.poll_accept(context),
            |(stream, peer)| {
                // Replies are whole: nothing is gained by holding them back.
                let _ = stream.set_nodelay(true);
                let _ = socket2::SockRef::from(&stream).set_keepalive(true);
                self.admit(stream, Some(peer));
            },
        )
        .await;
    }

    async fn accept_unix(&self, listener: &UnixListener) {
        self.accept(|context| listener.poll_accept(context), |(stream, _)| self.admit(stream, None)).await;
    }

    /// Takes clients until the gate is closed.
    async fn accept<T>(
        &self,
        mut next: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
        admit: impl Fn(T),
    ) {
        let mut pause = FIRST_PAUSE;
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.closed.cancelled() => return,
                accepted = std::future::poll_fn(&mut next) => accepted,
            };
            match accepted {
                Ok(client) => {
                    pause = FIRST_PAUSE;
                    admit(client);
                }
                Err(error) => pause = self.after_failure(&error, pause).await,
            }
        }
    }

    /// Starts the connection's task, unless there are too many.
    fn admit<S>(&self, stream: S, peer: Option<SocketAddr>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let client = Arc::new(Client::new(self.next_id.fetch_add(1, Ordering::Relaxed), peer));
        let quiet = self.router.parameters().flag("quiet");
        let Some(count) = self.router.stats().connection_opened() else {
            tracing::info!(
                c = "NETWORK", id = 22942, ctx = "listener", remote = %client.address(),
                "Connection refused because there are too many open connections"
            );
            return;
        };
        if !quiet {
            tracing::info!(
                c = "NETWORK", id = 22943, ctx = "listener", remote = %client.address(),
                connectionId = client.id(), connectionCount = count, "Connection accepted"
            );
        }
        self.clients.spawn(connection::run(
            Arc::clone(&self.router),
            client,
            stream,
            Arc::clone(&self.drain),
            quiet,
        ));
    }

    /// A listener never ends because of one failed accept; it waits, so that it does not spin when descriptors have
    /// run out.
    async fn after_failure(&self, error: &io::Error, pause: Duration) -> Duration {
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
            return pause;
        }
        tracing::warn!(c = "NETWORK", id = 23019, ctx = "listener", %error, "Error accepting new connection");
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
        (pause * 2).min(LONGEST_PAUSE)
    }
}
