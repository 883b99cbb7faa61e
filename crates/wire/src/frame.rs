//! Cutting one message off a read buffer.

use bytes::{Bytes, BytesMut};

use crate::compress::Compressor;
use crate::error::WireError;
use crate::header::{HEADER_LEN, Header};

/// What a new buffer gets, and the most before any byte of a message has come.
const READ_STEP_BYTES: usize = 16 * 1024;
/// With this much room left a read goes into what there is: a short read costs less than a new buffer.
const READ_LOW_WATER_BYTES: usize = 4 * 1024;

/// One whole message, header included, shared with the buffer it was read into.
#[derive(Debug, Clone)]
pub struct Frame {
    header: Header,
    bytes: Bytes,
    compressor: Option<Compressor>,
}

impl Frame {
    pub(crate) fn new(header: Header, bytes: Bytes, compressor: Option<Compressor>) -> Frame {
        Frame { header, bytes, compressor }
    }

    /// A frame from exactly one message.
    pub fn from_bytes(bytes: Bytes, max: usize) -> Result<Frame, WireError> {
        match Header::parse(&bytes, max)? {
            Some(header) if header.length == bytes.len() => Ok(Frame::new(header, bytes, None)),
            _ => Err(WireError::Truncated("message")),
        }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The whole message, header included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What follows the header.
    pub fn body(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// How the message came over the wire; the answer goes back the same way.
    pub fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// The whole message, header included.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

/// Takes the first message off `buf` when all of it has come. Nothing is copied.
pub fn cut_bytes(buf: &mut BytesMut, max: usize) -> Result<Option<(Header, BytesMut)>, WireError> {
    match Header::parse(buf, max)? {
        Some(header) if header.length <= buf.len() => Ok(Some((header, buf.split_to(header.length)))),
        _ => Ok(None),
    }
}

/// Takes the first message off `buf` when all of it has come, as a [`Frame`].
pub fn cut_frame(buf: &mut BytesMut, max: usize) -> Result<Option<Frame>, WireError> {
    Ok(cut_bytes(buf, max)?.map(|(header, bytes)| Frame::new(header, bytes.freeze(), None)))
}

/// Makes room for the next read. A large message that is on its way gets as much room as bytes of it have come
/// (so the buffer doubles), never what its header announces: 16 bytes from an idle peer do not cost 48 MB.
pub fn reserve_for_read(buf: &mut BytesMut) {
    let came = buf.len();
    let room = buf.capacity().saturating_sub(came);
    let wanted = match Header::parse(buf, usize::MAX) {
        Ok(Some(header)) => header.length.saturating_sub(came).clamp(1, came.max(READ_STEP_BYTES)),
        _ => READ_STEP_BYTES,
    };
    if room < wanted.min(READ_LOW_WATER_BYTES) {
        buf.reserve(wanted);
    }
}
