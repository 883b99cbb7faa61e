//! One connection to a server: a message out, its answer in, on the caller's own task.
//!
//! ```text
//!            send                 written                answer
//!   Idle ----------> Writing ----------------> Awaiting ---------> Idle
//!    ^                  | moreToCome request       | moreToCome reply: Awaiting its successor
//!    |__________________|                          v
//!                              any failure, or a future dropped half-way: never Idle again
//! ```
//!
//! Only an `Idle` connection with an empty read buffer may be used again; all others are closed.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use wire::{
    Compressor, CompressorSet, MAX_SERVER_MESSAGE_BYTES, OpCode, Reply, WireError, compress_frame, cut_bytes,
    decompress, reserve_for_read,
};

use crate::address::ServerAddress;
use crate::deadline::before;
use crate::error::TopologyError;

/// A read buffer that held a larger message than this is not kept: idle connections stay small.
const KEPT_BUFFER_BYTES: usize = 64 * 1024;

/// How bytes travel; TLS becomes a second variant.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
}

impl Stream {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes).await,
        }
    }

    async fn read_buf(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read_buf(buf).await,
        }
    }

    /// True when nothing has come and the other end is open, as far as is known. Costs no system call unless
    /// the socket became readable since it was last read.
    fn is_quiet(&self) -> bool {
        match self {
            Stream::Plain(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Writing,
    Awaiting(i32),
}

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Connection {
    address: ServerAddress,
    stream: Stream,
    state: State,
    read_buf: BytesMut,
    largest_read: usize,
    last_request_id: i32,
    compressor: Option<Compressor>,
    allowed: CompressorSet,
    /// Generation of the pool that made it.
    pub(crate) generation: u64,
    /// When it was last given back.
    pub(crate) idle_since: Instant,
}

impl Connection {
    pub(crate) fn new(address: ServerAddress, stream: Stream) -> Connection {
        Connection {
            address,
            stream,
            state: State::Idle,
            read_buf: BytesMut::new(),
            largest_read: 0,
            last_request_id: 0,
            compressor: None,
            allowed: CompressorSet::NONE,
            generation: 0,
            idle_since: Instant::now(),
        }
    }

    /// What the handshake agreed on.
    pub(crate) fn set_compression(&mut self, allowed: CompressorSet, chosen: Option<Compressor>) {
        self.compressor = chosen.filter(|compressor| allowed.contains(*compressor));
        self.allowed = if self.compressor.is_some() { allowed } else { CompressorSet::NONE };
    }

    /// Sends one whole message and expects an answer to it.
    pub(crate) async fn send(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<(), TopologyError> {
        let request_id = self.write(request, deadline).await?;
        self.state = State::Awaiting(request_id);
        Ok(())
    }

    /// Sends one whole message with the moreToCome flag: no answer comes.
    pub(crate) async fn send_no_reply(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<(), TopologyError> {
        self.write(request, deadline).await?;
        self.state = State::Idle;
        Ok(())
    }

    async fn write(
        &mut self,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<i32, TopologyError> {
        if self.state != State::Idle {
            return Err(TopologyError::ConnectionBusy { address: self.address.clone() });
        }
        if request.len() > MAX_SERVER_MESSAGE_BYTES {
            return Err(TopologyError::RequestTooLarge(Arc::new(WireError::MessageTooLarge(request.len()))));
        }
        // Positive numbers only, so that a log reads well; a connection never has two requests open.
        self.last_request_id = self.last_request_id.checked_add(1).unwrap_or(1);
        let request_id = self.last_request_id;
        wire::set_request_id(request, request_id);
        self.state = State::Writing;
        let written = match self.compressor {
            None => before(deadline, self.stream.write_all(request)).await,
            Some(compressor) => {
                let mut compressed = BytesMut::new();
                compress_frame(compressor, request, &mut compressed).map_err(|error| self.protocol(error))?;
                before(deadline, self.stream.write_all(&compressed)).await
            }
        };
        match written {
            Some(Ok(())) => Ok(request_id),
            Some(Err(error)) => Err(self.network(error)),
            None => Err(TopologyError::DeadlineExceeded),
        }
    }

    /// Reads the answer to what was sent.
    pub(crate) async fn recv(&mut self, deadline: Option<Instant>) -> Result<Reply, TopologyError> {
        let State::Awaiting(request_id) = self.state else {
            return Err(TopologyError::ConnectionBusy { address: self.address.clone() });
        };
        let (header, frame) = loop {
            match cut_bytes(&mut self.read_buf, MAX_SERVER_MESSAGE_BYTES) {
                Ok(Some(cut)) => break cut,
                Ok(None) => {}
                Err(error) => return Err(self.protocol(error)),
            }
            reserve_for_read(&mut self.read_buf);
            match before(deadline, self.stream.read_buf(&mut self.read_buf)).await {
                Some(Ok(0)) => return Err(self.network(io::ErrorKind::UnexpectedEof.into())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(self.network(error)),
                None => return Err(TopologyError::DeadlineExceeded),
            }
        };
        self.largest_read = self.largest_read.max(frame.len());
        let parsed = if header.opcode == OpCode::COMPRESSED {
            let body = frame.get(wire::HEADER_LEN..).unwrap_or_default();
            decompress(&header, body, self.allowed, MAX_SERVER_MESSAGE_BYTES)
                .and_then(|(header, frame, _)| Reply::parse(header, frame))
        } else {
            Reply::parse(header, frame)
        };
        let reply = parsed
            .and_then(|reply| reply.expect_response_to(request_id).map(|()| reply))
            .map_err(|error| self.protocol(error))?;
        // Each reply of an exhaust stream answers the one before it.
        self.state =
            if reply.more_to_come() { State::Awaiting(reply.header().request_id) } else { State::Idle };
        Ok(reply)
    }

    /// True when the connection has nothing open: the next exchange cannot meet leftovers of the last.
    pub(crate) fn is_clean(&self) -> bool {
        self.state == State::Idle && self.read_buf.is_empty()
    }

    /// True when it is clean and the other end has not closed it meanwhile.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_clean() && self.stream.is_quiet()
    }

    /// Before it waits in a pool: no large buffer stays with it.
    pub(crate) fn rest(&mut self) {
        self.idle_since = Instant::now();
        if self.largest_read > KEPT_BUFFER_BYTES {
            self.read_buf = BytesMut::new();
            self.largest_read = 0;
        }
    }

    fn network(&self, source: io::Error) -> TopologyError {
        TopologyError::Network { address: self.address.clone(), source: Arc::new(source) }
    }

    fn protocol(&self, source: WireError) -> TopologyError {
        TopologyError::Protocol { address: self.address.clone(), source: Arc::new(source) }
    }
}
