//! Whose connections they are: all that come from one address with one driver and application count as one client.
//!
//! A cursor belongs to no connection: a pooled driver goes on with it on another one. But when the last connection of the
//! client that used it last is gone, nobody knows its id any more. An [`Origin`] knows since when there is none; the
//! cursor table closes what such a client left ([`crate::cursor::CursorTable::kill_of_gone`]).
//!
//! Two processes of one application on one machine, or behind one address, cannot be told apart: they are one client, and
//! the idle time-out ends the cursors of either. That errs on the side that no cursor in use is ever closed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use document::Doc;
use parking_lot::Mutex;
use tokio::time::Instant;

/// What tells clients apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// `None` on a Unix socket. All loopback addresses are one: a driver may reach `localhost` by either family.
    address: Option<IpAddr>,
    /// Driver, its version, application and platform, as far as the first hello named them.
    names: [Option<Box<str>>; 4],
}

impl Identity {
    pub(crate) fn new(peer: Option<SocketAddr>, metadata: Option<Doc<'_>>) -> Self {
        let address = peer.map(|peer| match peer.ip().to_canonical() {
            ip if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        });
        let text = |part: &str, name: &str| metadata?.get_doc(part)?.get_str(name).map(Into::into);
        let platform = metadata.and_then(|doc| doc.get_str("platform")).map(Into::into);
        let names =
            [text("driver", "name"), text("driver", "version"), text("application", "name"), platform];
        Self { address, names }
    }
}

/// One client, as far as it can be told apart from others.
#[derive(Debug, Default)]
pub struct Origin(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    open: usize,
    /// When the last of them was closed.
    gone: Option<Instant>,
}

impl Origin {
    /// One of its connections was closed.
    pub(crate) fn leave(&self) {
        let mut connections = self.0.lock();
        connections.open = connections.open.saturating_sub(1);
        if connections.open == 0 {
            connections.gone = Some(Instant::now());
        }
    }

    fn join(&self) {
        let mut connections = self.0.lock();
        connections.open += 1;
        connections.gone = None;
    }

    /// Has it had no connection for this long?
    pub(crate) fn is_gone_for(&self, grace: Duration) -> bool {
        self.0.lock().gone.is_some_and(|gone| gone.elapsed() >= grace)
    }
}

/// The clients that have a connection, or cursors.
#[derive(Debug, Default)]
pub struct Origins(Mutex<HashMap<Identity, Arc<Origin>, foldhash::fast::RandomState>>);

impl Origins {
    /// A connection turns out to be of this client.
    pub(crate) fn join(&self, identity: Identity) -> Arc<Origin> {
        let mut origins = self.0.lock();
        let origin = Arc::clone(origins.entry(identity).or_default());
        origin.join();
        origin
    }

    /// Forgets those that nothing refers to: neither a connection nor a cursor.
    pub(crate) fn sweep(&self) {
        // Others get hold of one only by `join`, which waits.
        self.0.lock().retain(|_, origin| Arc::strong_count(origin) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(peer: &str, driver: &str) -> Identity {
        let metadata =
            bson::rawdoc! { "driver": { "name": driver, "version": "1" }, "os": { "type": "Linux" } };
        Identity::new(Some(peer.parse().unwrap()), Some(Doc::new(metadata.as_bytes()).unwrap()))
    }

    #[test]
    fn address_and_metadata_tell_clients_apart_and_ports_do_not() {
        let one = identity("10.0.0.1:1000", "a");
        assert_eq!(one, identity("10.0.0.1:2000", "a"));
        assert_ne!(one, identity("10.0.0.2:1000", "a"));
        assert_ne!(one, identity("10.0.0.1:1000", "b"));
        assert_ne!(one, Identity::new(Some("10.0.0.1:1000".parse().unwrap()), None));
        assert_eq!(identity("127.0.0.1:1", "a"), identity("[::1]:2", "a"));
    }

    #[test]
    fn a_client_is_gone_with_its_last_connection_and_forgotten_with_its_last_cursor() {
        let origins = Origins::default();
        let known = || origins.0.lock().len();
        let (at_once, later) = (Duration::ZERO, Duration::from_secs(3600));
        let first = origins.join(identity("10.0.0.1:1000", "a"));
        let second = origins.join(identity("10.0.0.1:2000", "a"));
        assert!(Arc::ptr_eq(&first, &second));
        first.leave();
        assert!(!first.is_gone_for(at_once));
        second.leave();
        assert!(first.is_gone_for(at_once) && !first.is_gone_for(later));
        // It comes back.
        drop(origins.join(identity("10.0.0.1:3000", "a")));
        assert!(!first.is_gone_for(at_once));
        first.leave();
        assert!(first.is_gone_for(at_once));
        origins.sweep();
        assert_eq!(known(), 1);
        drop((first, second));
        origins.sweep();
        assert_eq!(known(), 0);
    }
}
