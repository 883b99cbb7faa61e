//! One client connection: bytes in, [`Router::serve`], bytes out.
//!
//! One task and no channel a connection. A request costs one read and one write; the read buffer is as large as the
//! client's requests lately were, and a large one is not kept (an idle connection holds a few KiB).

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use router::{Client, Outcome, Router};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::{Frame, HEADER_LEN, Header, MAX_CLIENT_MESSAGE_BYTES, cut_frame};

use crate::drain::{Drain, arm};

/// A new read buffer.
const LEAST_READ_BYTES: usize = 2 * 1024;
/// The largest buffer that a connection keeps, and the largest step for a message that has only begun to come.
const MOST_KEPT_BYTES: usize = 64 * 1024;

/// Why a connection ended, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed it.
    Client,
    /// The network broke it.
    Broken,
    /// The client sent what is no message.
    Malformed,
    /// A fail point, or a message that cannot be answered.
    Refused,
    /// The process ends.
    Drain,
}

/// Serves a client until one of both sides has enough.
pub(crate) async fn serve<S>(router: &Router, client: &Client, stream: S, drain: &Drain) -> End
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut connection =
        Connection { router, client, stream, buffer: BytesMut::new(), step: LEAST_READ_BYTES };
    let mut notified = pin!(drain.notified());
    arm(notified.as_mut()).await;
    loop {
        let frame = match connection.next_frame(drain).await {
            Ok(frame) => frame,
            Err(end) => return end,
        };
        let size = frame.bytes().len();
        if let Err(end) = connection.answer(frame).await {
            return end;
        }
        connection.forget(size);
    }
}

struct Connection<'r, S> {
    router: &'r Router,
    client: &'r Client,
    stream: S,
    buffer: BytesMut,
    /// What the next read makes room for.
    step: usize,
}

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// The next whole message. Cancel-safe: bytes that came stay in the buffer.
    async fn next_frame(&mut self, drain: &Drain) -> Result<Frame, End> {
        loop {
            if let Some(frame) =
                cut_frame(&mut self.buffer, MAX_CLIENT_MESSAGE_BYTES).map_err(|_| End::Malformed)?
            {
                // The set is empty until the client and the router agreed on something.
                return frame
                    .decompress(self.client.compressors(), MAX_CLIENT_MESSAGE_BYTES)
                    .map_err(|_| End::Malformed);
            }
            self.make_room();
            let idle = self.buffer.is_empty();
            let mut read = pin!(self.stream.read_buf(&mut self.buffer));
            let came = std::future::poll_fn(|context| {
                if let Poll::Ready(came) = read.as_mut().poll(context) {
                    return Poll::Ready(Some(came));
                }
                // The task was registered with the drain when the connection began.
                if drain.has_begun() && idle { Poll::Ready(None) } else { Poll::Pending }
            })
            .await;
            match came {
                None => return Err(End::Drain),
                Some(Ok(0)) => return Err(End::Client),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(end_of(&error)),
            }
        }
    }

    /// Makes room for the next read. A large message gets as much room as bytes of it have come (so the buffer
    /// doubles), never what its header announces.
    fn make_room(&mut self) {
        let came = self.buffer.len();
        let wanted = match Header::parse(&self.buffer, usize::MAX) {
            Ok(Some(header)) => header.length.saturating_sub(came).clamp(1, came.max(MOST_KEPT_BYTES)),
            _ => self.step.saturating_sub(came).max(HEADER_LEN),
        };
        if self.buffer.capacity() - came < wanted.min(self.step / 2).max(1) {
            self.buffer.reserve(wanted);
        }
    }

    /// Serves one message and writes what there is to write, again and again when it asks for a stream.
    async fn answer(&mut self, frame: Frame) -> Result<(), End> {
        let size = frame.bytes().len();
        let mut last = None;
        loop {
            let outcome = self.outcome(frame.clone(), last).await?;
            let (reply, again) = match outcome {
                Outcome::Send(reply) => (reply, None),
                Outcome::SendAndServeAgain(reply, number) => (reply, Some(number)),
                Outcome::Silence => {
                    self.router.stats().exchanged(size, 0);
                    return Ok(());
                }
                Outcome::Close => return Err(End::Refused),
            };
            self.router.stats().exchanged(if last.is_none() { size } else { 0 }, reply.len());
            self.stream.write_all(&reply).await.map_err(|error| end_of(&error))?;
            if again.is_none() || !self.buffer.is_empty() {
                return Ok(());
            }
            last = again;
        }
    }

    /// Serves a message and looks out for the client meanwhile. What it sends in between stays in the buffer; when it
    /// is gone, a read is given up and a write runs to its end.
    async fn outcome(&mut self, frame: Frame, last: Option<i32>) -> Result<Outcome, End> {
        let Self { router, client, stream, buffer, .. } = self;
        let (router, client) = (*router, *client);
        let watched = frame.clone();
        let mut served = pin!(async move {
            match last {
                None => router.serve(client, frame).await,
                Some(last) => router.serve_again(client, frame, last).await,
            }
        });
        // With bytes of the next message in the buffer nothing can be learned from reading on.
        let mut watching = buffer.is_empty();
        if watching && buffer.capacity() == 0 {
            buffer.reserve(LEAST_READ_BYTES);
        }
        loop {
            tokio::select! {
                biased;
                outcome = &mut served => return Ok(outcome),
                came = stream.read_buf(buffer), if watching => match came {
                    Ok(0) | Err(_) if router.may_abandon(watched.clone()) => {
                        router.stats().command_abandoned();
                        return Err(End::Client);
                    }
                    // Bytes of the next message; or the end of a client whose write is on its way.
                    _ => watching = false,
                },
            }
        }
    }

    /// After a request of this size: the next read expects one like it, and nothing large is kept.
    fn forget(&mut self, size: usize) {
        self.step = size.next_power_of_two().clamp(LEAST_READ_BYTES, MOST_KEPT_BYTES).max(self.step / 2);
        if self.buffer.is_empty() && size > MOST_KEPT_BYTES {
            self.buffer = BytesMut::new();
        }
    }
}

fn end_of(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            End::Client
        }
        _ => End::Broken,
    }
}

/// Serves a client and counts and logs its coming and going.
pub(crate) async fn run<S>(
    router: Arc<Router>,
    client: Arc<Client>,
    stream: S,
    drain: Arc<Drain>,
    quiet: bool,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    router.operations().connected(&client);
    let guard = Counted(&router, &client);
    let end = serve(&router, &client, stream, &drain).await;
    let left = router.stats().connections().saturating_sub(1);
    drop(guard);
    if !quiet {
        let context = format!("conn{}", client.id());
        tracing::info!(
            c = "NETWORK", id = 22944, ctx = %context, remote = %client.address(), connectionId = client.id(),
            connectionCount = left, reason = ?end, "Connection ended"
        );
    }
}

/// Takes the connection off the count, also when the task is dropped.
struct Counted<'r>(&'r Router, &'r Client);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.operations().disconnected(self.1);
        self.0.stats().connection_closed();
    }
}

#[cfg(test)]
mod tests;
