//! Ports for servers.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::{Result, bail};
use rand::RngExt;

/// Below the kernel's default range for outgoing connections (32768 and up): a member that is restarted must find its port
/// again, and a port of that range may meanwhile be the local end of somebody's connection.
const SERVER_PORTS: std::ops::Range<u16> = 12_000..32_000;

/// A TCP port that no other holder of a `Port` has, in this process or another one of this machine.
///
/// A free port alone is not enough: two servers that reuse addresses may both bind it while neither listens yet, and a
/// mongod that finds out only then aborts. So the number is also held as a name in the abstract Unix namespace, which the
/// kernel gives to one socket at a time and takes back when its process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// None for a port that the caller named.
    _held: Option<UnixDatagram>,
}

impl Port {
    /// A port that nobody holds and nobody listens on now. Servers that were not started by this crate may still take it.
    pub(crate) fn free() -> Result<Self> {
        let mut rng = rand::rng();
        for _ in 0..1_000 {
            let number = rng.random_range(SERVER_PORTS);
            if let Some(held) = hold(number)
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return Ok(Self { number, _held: Some(held) });
            }
        }
        bail!("no free port in {SERVER_PORTS:?}")
    }

    /// The port that somebody asked for by its number.
    pub(crate) fn named(number: u16) -> Self {
        Self { number, _held: None }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

fn hold(number: u16) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("pointsman-testkit-port-{number}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_held_by_one_until_it_is_dropped() {
        let port = Port::free().unwrap();
        let number = port.number();
        assert!(hold(number).is_none());
        drop(port);
        assert!(hold(number).is_some());
    }
}
