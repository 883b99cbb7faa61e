//! A server's answer, kept in one mutable buffer: a router changes its tail and its header in place and passes a
//! 16 MB batch on without copying it.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use document::Doc;

use crate::bits::put_i32_at;
use crate::error::WireError;
use crate::flags::MsgFlags;
use crate::header::{HEADER_LEN, Header, OpCode, set_request_id, set_response_to};
use crate::sections::{Section, open};

/// Where the body of a message starts that has its body first: header, flags, kind byte.
const BODY_AT: usize = HEADER_LEN + 4 + 1;

/// An OP_MSG from a server with exactly one section, the body. A checksum was verified and dropped.
#[derive(Debug)]
pub struct Reply {
    frame: BytesMut,
    header: Header,
    flags: MsgFlags,
}

impl Reply {
    /// Takes a whole message as an answer. `header` is that of `frame`, as [`crate::cut_bytes`] gives both.
    /// Only the length and the end of the body are checked: its fields are checked as they are read.
    pub fn parse(header: Header, mut frame: BytesMut) -> Result<Reply, WireError> {
        if header.opcode != OpCode::MSG {
            return Err(WireError::OpCode(header.opcode.0));
        }
        let (flags, mut sections) = open(&frame)?;
        let body = match sections.next()? {
            Some(Section::Body(body)) => body,
            Some(Section::Sequence { .. }) => return Err(WireError::ReplySections),
            None => return Err(WireError::NoBody),
        };
        if sections.next()?.is_some() {
            return Err(WireError::ReplySections);
        }
        frame.truncate(body.end);
        let flags = flags.without(MsgFlags::CHECKSUM_PRESENT);
        let mut reply = Reply { frame, header, flags };
        reply.seal()?;
        Ok(reply)
    }

    /// The header as the server sent it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The flag bits; never the checksum's.
    pub fn flags(&self) -> MsgFlags {
        self.flags
    }

    /// The server sends another reply without being asked.
    pub fn more_to_come(&self) -> bool {
        self.flags.contains(MsgFlags::MORE_TO_COME)
    }

    /// Fails when this answers another request than `request_id`.
    pub fn expect_response_to(&self, request_id: i32) -> Result<(), WireError> {
        let got = self.header.response_to;
        if got == request_id { Ok(()) } else { Err(WireError::ResponseTo { expected: request_id, got }) }
    }

    /// The body.
    pub fn body(&self) -> Doc<'_> {
        // Checked by `parse` and kept so by the edits: the fallback cannot be seen.
        Doc::new(self.body_bytes()).unwrap_or(Doc::empty())
    }

    /// The bytes of the body.
    pub fn body_bytes(&self) -> &[u8] {
        self.frame.get(BODY_AT..).unwrap_or_default()
    }

    /// Where in the whole message the body is.
    pub fn body_range(&self) -> Range<usize> {
        BODY_AT..self.frame.len()
    }

    /// Length of the whole message as it stands now.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Never true: a reply has a body.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Cuts the body at `keep` bytes (an offset in the body where a field starts, or its terminator), lets `append`
    /// write whole fields to the end, and closes the body again. Nothing before `keep` is copied.
    pub fn replace_tail(&mut self, keep: usize, append: impl FnOnce(&mut BytesMut)) -> Result<(), WireError> {
        let keep = keep.clamp(4, self.body_bytes().len().saturating_sub(1).max(4));
        self.frame.truncate(BODY_AT + keep);
        append(&mut self.frame);
        self.frame.put_u8(0);
        self.seal()
    }

    /// Makes this the answer to another message: numbers are rewritten in place, flags cleared but for `flags`
    /// (add the checksum bit when the client wants one). What comes back is the whole message.
    pub fn into_frame(mut self, request_id: i32, response_to: i32, flags: MsgFlags) -> BytesMut {
        set_request_id(&mut self.frame, request_id);
        set_response_to(&mut self.frame, response_to);
        put_flags(&mut self.frame, flags);
        if flags.contains(MsgFlags::CHECKSUM_PRESENT) {
            let length = i32::try_from(self.frame.len() + 4).unwrap_or(i32::MAX);
            put_i32_at(&mut self.frame, 0, length);
            let checksum = crc32c::crc32c(&self.frame);
            self.frame.put_u32_le(checksum);
        }
        self.frame
    }

    /// The body alone, sharing the message's buffer.
    pub fn into_body(mut self) -> Bytes {
        self.frame.split_off(BODY_AT.min(self.frame.len())).freeze()
    }

    /// Puts the lengths of the body and of the message right.
    fn seal(&mut self) -> Result<(), WireError> {
        let length = self.frame.len();
        let fits = i32::try_from(length).map_err(|_| WireError::MessageTooLarge(length))?;
        let body =
            i32::try_from(length.saturating_sub(BODY_AT)).map_err(|_| WireError::MessageTooLarge(length))?;
        put_i32_at(&mut self.frame, 0, fits);
        put_i32_at(&mut self.frame, BODY_AT, body);
        put_flags(&mut self.frame, self.flags);
        self.header.length = length;
        Ok(())
    }
}

fn put_flags(frame: &mut BytesMut, flags: MsgFlags) {
    if let Some(slot) = frame.get_mut(HEADER_LEN..HEADER_LEN + 4) {
        slot.copy_from_slice(&flags.bits().to_le_bytes());
    }
}
