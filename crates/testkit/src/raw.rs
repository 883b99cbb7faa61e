//! A plain wire connection: no pool, no monitor, no retry, and any bytes one likes.
//!
//! For what a driver cannot do (fields it would refuse, broken frames, old opcodes) and for the kit's own short commands,
//! where a driver's monitoring would only cost time.

use anyhow::{Context, Result, bail, ensure};
use bson::{Document, doc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The opcode of all current messages.
pub const OP_MSG: i32 = 2013;
/// The opcode of the legacy handshake.
pub const OP_QUERY: i32 = 2004;
/// The opcode of the answer to [`OP_QUERY`].
pub const OP_REPLY: i32 = 1;
/// The opcode of compressed messages.
pub const OP_COMPRESSED: i32 = 2012;

const HEADER_LENGTH: usize = 16;
const LARGEST_FRAME: usize = 64 * 1024 * 1024;

/// One message as it came.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The sender's number of this message.
    pub request_id: i32,
    /// The request that this answers.
    pub response_to: i32,
    /// What kind of message it is.
    pub opcode: i32,
    /// Everything behind the header.
    pub body: Vec<u8>,
}

impl Frame {
    /// The document of an `OP_MSG` with one section of kind 0, or the first one of an `OP_REPLY`.
    ///
    /// # Errors
    /// When the message is of another shape.
    pub fn document(&self) -> Result<Document> {
        let start = match self.opcode {
            OP_MSG => {
                ensure!(self.body.get(4) == Some(&0), "the first section is not of kind 0");
                5
            }
            OP_REPLY => 20,
            other => bail!("opcode {other} has no document here"),
        };
        let bytes = self.body.get(start..).context("message too short")?;
        Ok(Document::from_reader(bytes)?)
    }

    /// The flags of an `OP_MSG`.
    ///
    /// # Errors
    /// When the message is too short.
    pub fn flags(&self) -> Result<u32> {
        let bytes: [u8; 4] = self.body.get(..4).context("message too short")?.try_into()?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// A header and a body, with the right length.
#[must_use]
pub fn frame(request_id: i32, opcode: i32, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(HEADER_LENGTH + body.len()).unwrap_or(i32::MAX);
    frame_announcing(length, request_id, opcode, body)
}

/// A header that announces `length` whatever the body has.
#[must_use]
pub fn frame_announcing(length: i32, request_id: i32, opcode: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + body.len());
    for number in [length, request_id, 0, opcode] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

/// The body of an `OP_MSG` with these flags and one section of kind 0.
///
/// # Errors
/// When the document cannot be encoded.
pub fn msg_body(flags: u32, document: &Document) -> Result<Vec<u8>> {
    let mut body = flags.to_le_bytes().to_vec();
    body.push(0);
    document.to_writer(&mut body)?;
    Ok(body)
}

/// One connection.
#[derive(Debug)]
pub struct RawConn {
    stream: TcpStream,
    last_id: i32,
}

impl RawConn {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, last_id: 0 })
    }

    /// Sends these very bytes.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// Sends no more; answers can still be read.
    ///
    /// # Errors
    /// When the connection is closed.
    pub async fn shut_sending(&mut self) -> Result<()> {
        Ok(self.stream.shutdown().await?)
    }

    /// The next message; `None` when the other side has closed (or reset) the connection.
    ///
    /// # Errors
    /// When it closed in the middle of a message or announced a length that makes no sense.
    pub async fn receive(&mut self) -> Result<Option<Frame>> {
        let mut header = [0; HEADER_LENGTH];
        match self.stream.read_exact(&mut header).await {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let mut numbers = header
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| i32::from_le_bytes(*bytes))
            .collect::<Vec<_>>()
            .into_iter();
        let mut next = || numbers.next().unwrap_or_default();
        let (length, request_id, response_to, opcode) = (next(), next(), next(), next());
        let length = usize::try_from(length)?;
        ensure!((HEADER_LENGTH..=LARGEST_FRAME).contains(&length), "a message of {length} bytes");
        let mut body = vec![0; length - HEADER_LENGTH];
        self.stream.read_exact(&mut body).await?;
        Ok(Some(Frame { request_id, response_to, opcode, body }))
    }

    /// The number of the next request.
    pub fn next_id(&mut self) -> i32 {
        self.last_id += 1;
        self.last_id
    }

    /// Runs one command as `OP_MSG` and gives the answer, whatever its `ok` says.
    ///
    /// # Errors
    /// When the connection closes, or when the answer is not to this request.
    pub async fn command(&mut self, db: &str, mut command: Document) -> Result<Document> {
        command.insert("$db", db);
        let id = self.next_id();
        self.send(&frame(id, OP_MSG, &msg_body(0, &command)?)).await?;
        let reply = self.receive().await?.context("the server closed the connection")?;
        ensure!(reply.response_to == id, "an answer to request {} came for {id}", reply.response_to);
        reply.document()
    }

    /// As [`RawConn::command`], but an answer without `ok: 1` is an error.
    ///
    /// # Errors
    /// As [`RawConn::command`].
    pub async fn command_ok(&mut self, db: &str, command: Document) -> Result<Document> {
        let name = command.keys().next().cloned().unwrap_or_default();
        let reply = self.command(db, command).await?;
        ensure!(is_ok(&reply), "{name} failed: {reply}");
        Ok(reply)
    }

    /// The legacy handshake: an `OP_QUERY` on `admin.$cmd`.
    ///
    /// # Errors
    /// When the connection closes or the answer is no `OP_REPLY`.
    pub async fn legacy_hello(&mut self) -> Result<Document> {
        let mut body = 0_i32.to_le_bytes().to_vec();
        body.extend_from_slice(b"admin.$cmd\0");
        body.extend_from_slice(&0_i32.to_le_bytes());
        body.extend_from_slice(&(-1_i32).to_le_bytes());
        doc! { "isMaster": 1, "helloOk": true }.to_writer(&mut body)?;
        let id = self.next_id();
        self.send(&frame(id, OP_QUERY, &body)).await?;
        let reply = self.receive().await?.context("the server closed the connection")?;
        ensure!(reply.opcode == OP_REPLY, "opcode {} answers an OP_QUERY", reply.opcode);
        reply.document()
    }
}

/// Whether a reply says `ok: 1`, in whatever number type.
#[must_use]
pub fn is_ok(reply: &Document) -> bool {
    reply.get("ok").is_some_and(|ok| {
        ok.as_f64().or_else(|| ok.as_i32().map(f64::from)).is_some_and(|ok| ok == 1.0)
            || ok.as_bool() == Some(true)
    })
}
