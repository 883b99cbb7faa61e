//! Ports for servers.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};
use rand::RngExt;

/// Below the kernel's default range for outgoing connections (32768 and up): a member that is restarted must find its port
/// again, and a port of that range may meanwhile be the local end of somebody's connection.
const SERVER_PORTS: std::ops::Range<u16> = 12_000..32_000;

/// A port that nobody listens on now. Two processes may still choose the same one: whoever starts a server on it must be
/// ready to try another.
pub(crate) fn free_port() -> Result<u16> {
    let mut rng = rand::rng();
    for _ in 0..1_000 {
        let port = rng.random_range(SERVER_PORTS);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port in {SERVER_PORTS:?}")
}
