//! Writing OP_MSG into a buffer, at its end, without intermediate copies.

use bytes::{BufMut, BytesMut};

use crate::bits::put_i32_at;
use crate::error::WireError;
use crate::flags::MsgFlags;
use crate::header::{HEADER_LEN, Header, OpCode};
use crate::limits::MAX_SERVER_MESSAGE_BYTES;
use crate::sections::{KIND_BODY, KIND_SEQUENCE};

/// A message being written: after [`OpMsgWriter::begin`] the caller appends exactly one document (the body), then
/// any number of sequences, then [`OpMsgWriter::finish`] puts the length right. The buffer may hold other messages
/// before this one.
#[derive(Debug)]
#[must_use = "a message without finish has no length"]
pub struct OpMsgWriter {
    start: usize,
    flags: MsgFlags,
}

/// A section of kind 1 being written: the caller appends documents, then [`SequenceWriter::finish`].
#[derive(Debug)]
#[must_use = "a sequence without finish has no length"]
pub struct SequenceWriter {
    start: usize,
}

impl OpMsgWriter {
    /// Writes header, flags and the kind byte of the body.
    pub fn begin(buf: &mut BytesMut, request_id: i32, response_to: i32, flags: MsgFlags) -> OpMsgWriter {
        let start = buf.len();
        Header::put(buf, 0, request_id, response_to, OpCode::MSG);
        buf.put_u32_le(flags.bits());
        buf.put_u8(KIND_BODY);
        OpMsgWriter { start, flags }
    }

    /// Begins a document sequence; the body must be complete.
    pub fn begin_sequence(&self, buf: &mut BytesMut, identifier: &str) -> SequenceWriter {
        buf.put_u8(KIND_SEQUENCE);
        let start = buf.len();
        buf.put_i32_le(0);
        // A zero byte would end the name early and shift all that follows.
        buf.extend(identifier.bytes().filter(|byte| *byte != 0));
        buf.put_u8(0);
        SequenceWriter { start }
    }

    /// Bytes of the message so far.
    pub fn len(&self, buf: &BytesMut) -> usize {
        buf.len().saturating_sub(self.start)
    }

    /// Ends the message: its length, and its checksum when the flag asks for one. A message above
    /// [`MAX_SERVER_MESSAGE_BYTES`] is taken off the buffer again.
    pub fn finish(self, buf: &mut BytesMut) -> Result<(), WireError> {
        let checksum_len = if self.flags.contains(MsgFlags::CHECKSUM_PRESENT) { 4 } else { 0 };
        let length = buf.len().saturating_sub(self.start) + checksum_len;
        let wire_length = match i32::try_from(length) {
            Ok(wire_length) if length <= MAX_SERVER_MESSAGE_BYTES => wire_length,
            _ => {
                buf.truncate(self.start);
                return Err(WireError::MessageTooLarge(length));
            }
        };
        put_i32_at(buf, self.start, wire_length);
        if checksum_len != 0 {
            let checksum = crc32c::crc32c(buf.get(self.start..).unwrap_or_default());
            buf.put_u32_le(checksum);
        }
        Ok(())
    }

    /// One whole message with a body and nothing else.
    pub fn write(
        buf: &mut BytesMut,
        request_id: i32,
        response_to: i32,
        flags: MsgFlags,
        body: document::Doc<'_>,
    ) -> Result<(), WireError> {
        buf.reserve(HEADER_LEN + 9 + body.as_bytes().len());
        let writer = OpMsgWriter::begin(buf, request_id, response_to, flags);
        buf.extend_from_slice(body.as_bytes());
        writer.finish(buf)
    }
}

impl SequenceWriter {
    /// Ends the section.
    pub fn finish(self, buf: &mut BytesMut) {
        // A section longer than an i32 is in a message that `OpMsgWriter::finish` refuses.
        let length = i32::try_from(buf.len().saturating_sub(self.start)).unwrap_or(i32::MAX);
        put_i32_at(buf, self.start, length);
    }
}

/// Closes a message that has only a body, whose fields were all appended: the body's terminator and both lengths. The
/// message starts with the buffer.
pub fn seal_message(buf: &mut BytesMut) -> Result<(), WireError> {
    const BODY_AT: usize = HEADER_LEN + 5;
    buf.put_u8(0);
    let too_large = WireError::MessageTooLarge(buf.len());
    if buf.len() > MAX_SERVER_MESSAGE_BYTES || buf.len() < BODY_AT {
        return Err(too_large);
    }
    let (Ok(length), Ok(body)) = (i32::try_from(buf.len()), i32::try_from(buf.len() - BODY_AT)) else {
        return Err(too_large);
    };
    put_i32_at(buf, 0, length);
    put_i32_at(buf, BODY_AT, body);
    Ok(())
}
