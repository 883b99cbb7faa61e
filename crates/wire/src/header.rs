//! The sixteen bytes before every message.

use bytes::BytesMut;

use crate::bits::{i32_at, put_i32_at};
use crate::error::WireError;

/// Bytes of a message header.
pub const HEADER_LEN: usize = 16;

/// What kind of message follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpCode(pub i32);

impl OpCode {
    /// The answer to an [`OpCode::QUERY`].
    pub const REPLY: OpCode = OpCode(1);
    /// The request of drivers that do not know yet whom they talk to.
    pub const QUERY: OpCode = OpCode(2004);
    /// Another message, compressed.
    pub const COMPRESSED: OpCode = OpCode(2012);
    /// The message of every command and every answer.
    pub const MSG: OpCode = OpCode(2013);
}

/// A parsed message header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of the whole message, these sixteen bytes included. Checked against the limits.
    pub length: usize,
    /// The sender's number of this message.
    pub request_id: i32,
    /// The number of the message this one answers.
    pub response_to: i32,
    /// What follows.
    pub opcode: OpCode,
}

impl Header {
    /// Reads a header, `Ok(None)` when fewer than sixteen bytes have come. The length is checked against the
    /// least a message can have and against `max` before anyone uses it.
    pub fn parse(bytes: &[u8], max: usize) -> Result<Option<Header>, WireError> {
        let Some(announced) = i32_at(bytes, 0) else { return Ok(None) };
        let length = match usize::try_from(announced) {
            Ok(length) if (HEADER_LEN..=max).contains(&length) => length,
            _ => return Err(WireError::FrameLength { announced, max }),
        };
        let (Some(request_id), Some(response_to), Some(opcode)) =
            (i32_at(bytes, 4), i32_at(bytes, 8), i32_at(bytes, 12))
        else {
            return Ok(None);
        };
        Ok(Some(Header { length, request_id, response_to, opcode: OpCode(opcode) }))
    }

    /// Appends a header.
    pub fn put(buf: &mut BytesMut, length: i32, request_id: i32, response_to: i32, opcode: OpCode) {
        let mut bytes = [0u8; HEADER_LEN];
        for (slot, value) in bytes.chunks_exact_mut(4).zip([length, request_id, response_to, opcode.0]) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        buf.extend_from_slice(&bytes);
    }
}

/// Overwrites the requestId of the message that starts at the buffer's first byte.
pub fn set_request_id(frame: &mut BytesMut, request_id: i32) {
    put_i32_at(frame, 4, request_id);
}

/// Overwrites the responseTo of the message that starts at the buffer's first byte.
pub fn set_response_to(frame: &mut BytesMut, response_to: i32) {
    put_i32_at(frame, 8, response_to);
}
