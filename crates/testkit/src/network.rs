//! A network that can be cut: a forwarder before each member, at the address that everybody is told.
//!
//! An isolated member hears nobody and nobody hears it: bytes in both directions stop, connections stay open, as when
//! packets are dropped. What the member itself sends arrives at the forwarders of the others, which know the sender by
//! the process that holds the other end of the connection.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::port::Port;

const CHUNK_BYTES: usize = 64 * 1024;

/// Which members of a cluster are cut off now.
#[derive(Debug)]
pub(crate) struct Network {
    /// Process id by public port.
    isolated: Mutex<BTreeMap<u16, u32>>,
    changes: watch::Sender<u64>,
}

impl Network {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { isolated: Mutex::new(BTreeMap::new()), changes: watch::Sender::new(0) })
    }

    pub(crate) fn isolate(&self, public_port: u16, pid: u32) {
        self.isolated.lock().insert(public_port, pid);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn reconnect(&self, public_port: u16) {
        self.isolated.lock().remove(&public_port);
        self.changes.send_modify(|count| *count += 1);
    }

    fn is_cut(&self, target_port: u16, source_port: u16) -> bool {
        let isolated = self.isolated.lock();
        !isolated.is_empty()
            && (isolated.contains_key(&target_port)
                || isolated.values().any(|pid| owns_port(*pid, source_port)))
    }
}

/// The forwarder of one member; ends when dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    port: Port,
    network: Arc<Network>,
    task: AbortHandle,
}

impl Forwarder {
    /// Forwards a free port to `private_port`.
    pub(crate) async fn start(private_port: u16, network: &Arc<Network>) -> Result<Self> {
        let (port, listener) = loop {
            let port = Port::free()?;
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await {
                break (port, listener);
            }
        };
        let accepting = accept(listener, port.number(), private_port, Arc::clone(network));
        let task = tokio::spawn(accepting).abort_handle();
        Ok(Self { port, network: Arc::clone(network), task })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, private_port: u16, network: Arc<Network>) {
    while let Ok((client, peer)) = listener.accept().await {
        let link = Link { network: Arc::clone(&network), target: port, source: peer.port() };
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, private_port)).await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            // When one side ends, both halves are dropped: the other side sees it closed too.
            tokio::select! {
                () = link.forward(from_client, to_server) => {}
                () = link.forward(from_server, to_client) => {}
            }
        });
    }
}

struct Link {
    network: Arc<Network>,
    target: u16,
    source: u16,
}

impl Link {
    async fn forward(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut changes = self.network.changes.subscribe();
        let mut cut = self.network.is_cut(self.target, self.source);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = from.read(&mut chunk).await.unwrap_or(0);
            loop {
                if changes.has_changed().unwrap_or(false) {
                    changes.mark_unchanged();
                    cut = self.network.is_cut(self.target, self.source);
                }
                if !cut {
                    break;
                }
                if changes.changed().await.is_err() {
                    return;
                }
                cut = self.network.is_cut(self.target, self.source);
            }
            let Some(bytes) = chunk.get(..read) else { return };
            if bytes.is_empty() || to.write_all(bytes).await.is_err() {
                return;
            }
        }
    }
}

/// Whether `pid` holds a socket with this local port.
fn owns_port(pid: u32, port: u16) -> bool {
    let Ok(table) = std::fs::read_to_string("/proc/net/tcp") else { return false };
    let local = format!("0100007F:{port:04X}");
    let inode = |line: &str| -> Option<String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (*fields.get(1)? == local).then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    let inodes: Vec<String> = table.lines().filter_map(inode).collect();
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        std::fs::read_link(descriptor.path())
            .is_ok_and(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
    })
}
