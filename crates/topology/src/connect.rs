//! Making a connection: name look-up, TCP, handshake as an internal client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use wire::WireError;

use crate::address::ServerAddress;
use crate::connection::{Connection, Stream};
use crate::error::TopologyError;
use crate::hello::{HelloReply, Purpose, write_first_hello};
use crate::options::{Authentication, Handshake, Transport};

/// First keepalive probe of a silent connection, and the time between probes. Three lost ones end it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;

/// Makes connections that have said hello.
#[derive(Debug)]
pub(crate) struct Connector {
    handshake: Handshake,
    timeout: Duration,
}

/// A connection and what its server said first.
pub(crate) struct Connected {
    pub(crate) connection: Connection,
    pub(crate) hello: HelloReply,
    /// How long the server took to answer.
    pub(crate) round_trip: Duration,
}

impl Connector {
    pub(crate) fn new(handshake: Handshake, timeout: Duration) -> Connector {
        Connector { handshake, timeout }
    }

    /// Connects within the connect timeout. Cancel-safe: a dropped attempt closes its socket.
    pub(crate) async fn connect(
        &self,
        address: &ServerAddress,
        purpose: Purpose,
    ) -> Result<Connected, TopologyError> {
        let deadline = Instant::now() + self.timeout;
        let timed_out = || TopologyError::ConnectTimeout { address: address.clone() };
        let stream = timeout_at(deadline, dial(address)).await.map_err(|_| timed_out())??;
        let stream = match self.handshake.transport {
            Transport::Plain => Stream::Plain(stream),
        };
        let mut connection = Connection::new(address.clone(), stream);
        let mut request = BytesMut::new();
        write_first_hello(&mut request, &self.handshake, purpose)
            .map_err(|error| protocol(address, error))?;
        let started = Instant::now();
        let exchange = async {
            connection.send(&mut request, Some(deadline)).await?;
            connection.recv(Some(deadline)).await
        };
        let reply = exchange.await.map_err(|error| match error {
            TopologyError::DeadlineExceeded => timed_out(),
            // Nothing but a hello was ever sent on it.
            TopologyError::Network { address, source } => TopologyError::Connect { address, source },
            other => other,
        })?;
        let round_trip = started.elapsed();
        let hello = HelloReply::parse(address, reply)?;
        connection.set_compression(self.handshake.compressors, hello.compressor);
        match self.handshake.authentication {
            Authentication::None => {}
        }
        Ok(Connected { connection, hello, round_trip })
    }

    /// Fails when the member does not speak the router's wire version.
    pub(crate) fn check_version(
        &self,
        address: &ServerAddress,
        hello: &HelloReply,
    ) -> Result<(), TopologyError> {
        check_version(address, hello, self.handshake.wire_version)
    }

    pub(crate) fn wire_version(&self) -> i32 {
        self.handshake.wire_version
    }
}

/// Fails when the member does not speak this wire version.
pub(crate) fn check_version(
    address: &ServerAddress,
    hello: &HelloReply,
    required: i32,
) -> Result<(), TopologyError> {
    let (min, max) = (hello.min_wire_version, hello.max_wire_version);
    if (min..=max).contains(&required) {
        Ok(())
    } else {
        Err(TopologyError::Incompatible { address: address.clone(), min, max, required })
    }
}

fn protocol(address: &ServerAddress, source: WireError) -> TopologyError {
    TopologyError::Protocol { address: address.clone(), source: Arc::new(source) }
}

async fn dial(address: &ServerAddress) -> Result<TcpStream, TopologyError> {
    let not_found =
        |source| TopologyError::HostNotFound { address: address.clone(), source: Arc::new(source) };
    // Addresses in figures need no look-up, which would run on the blocking pool.
    let candidates: Vec<SocketAddr> = match address.host().parse() {
        Ok(ip) => vec![SocketAddr::new(ip, address.port())],
        Err(_) => {
            tokio::net::lookup_host((address.host(), address.port())).await.map_err(not_found)?.collect()
        }
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in &candidates {
        match TcpStream::connect(candidate).await.and_then(tune) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    if candidates.is_empty() {
        return Err(not_found(last));
    }
    Err(TopologyError::Connect { address: address.clone(), source: Arc::new(last) })
}

fn tune(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
