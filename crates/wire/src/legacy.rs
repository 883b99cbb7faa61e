//! OP_QUERY and OP_REPLY: the first words of drivers that do not know yet what the other side speaks.

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use document::Doc;

use crate::bits::{cstr_at, put_i32_at};
use crate::error::WireError;
use crate::frame::Frame;
use crate::header::{HEADER_LEN, Header, OpCode};

const FLAGS_LEN: usize = 4;
const SKIP_AND_RETURN_LEN: usize = 8;

/// A parsed OP_QUERY.
#[derive(Debug, Clone)]
pub struct OpQuery {
    frame: Frame,
    namespace: Range<usize>,
    query: Range<usize>,
}

impl OpQuery {
    /// Parses and validates an OP_QUERY. A selector of fields behind the query is left alone.
    pub fn parse(frame: Frame) -> Result<OpQuery, WireError> {
        if frame.header().opcode != OpCode::QUERY {
            return Err(WireError::OpCode(frame.header().opcode.0));
        }
        let bytes: &[u8] = frame.bytes();
        let start = HEADER_LEN + FLAGS_LEN;
        let (name, after_name) = cstr_at(bytes, start).ok_or(WireError::Truncated("namespace"))?;
        let namespace = start..start + name.len();
        let at = after_name + SKIP_AND_RETURN_LEN;
        let rest = bytes.get(at..).ok_or(WireError::Truncated("query"))?;
        let length = Doc::prefix_of(rest).map_err(WireError::Document)?.as_bytes().len();
        let query = at..at + length;
        Doc::validate(bytes.get(query.clone()).unwrap_or_default()).map_err(WireError::Document)?;
        Ok(OpQuery { frame, namespace, query })
    }

    /// The header of the message.
    pub fn header(&self) -> &Header {
        self.frame.header()
    }

    /// The message as it came.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// `<database>.<collection>`; a name that is no UTF-8 reads as the empty string.
    pub fn namespace(&self) -> &str {
        std::str::from_utf8(self.frame.bytes().get(self.namespace.clone()).unwrap_or_default())
            .unwrap_or_default()
    }

    /// The database, when this is a command (`<database>.$cmd`).
    pub fn command_database(&self) -> Option<&str> {
        self.namespace().strip_suffix(".$cmd")
    }

    /// The query, taken out of its `$query` (or `query`) wrapper when it has one.
    pub fn command(&self) -> Doc<'_> {
        let query = self.query();
        match query.first() {
            Some(first) if matches!(first.name_bytes(), b"$query" | b"query") => {
                first.value().as_doc().unwrap_or(query)
            }
            _ => query,
        }
    }

    /// The query as it came.
    pub fn query(&self) -> Doc<'_> {
        Doc::new(self.frame.bytes().get(self.query.clone()).unwrap_or_default()).unwrap_or(Doc::empty())
    }
}

/// Flag bits of an OP_REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyFlags(pub i32);

impl ReplyFlags {
    /// The query failed; the document says why in `$err`.
    pub const QUERY_FAILURE: ReplyFlags = ReplyFlags(2);
    /// Set on every answer to a command (seen on 6.0.5).
    pub const AWAIT_CAPABLE: ReplyFlags = ReplyFlags(8);
}

/// Appends an OP_REPLY with one document.
pub fn encode_op_reply(
    buf: &mut BytesMut,
    request_id: i32,
    response_to: i32,
    flags: ReplyFlags,
    doc: Doc<'_>,
) {
    let start = buf.len();
    Header::put(buf, 0, request_id, response_to, OpCode::REPLY);
    buf.put_i32_le(flags.0);
    buf.put_i64_le(0);
    buf.put_i32_le(0);
    buf.put_i32_le(1);
    buf.extend_from_slice(doc.as_bytes());
    let length = i32::try_from(buf.len() - start).unwrap_or(i32::MAX);
    put_i32_at(buf, start, length);
}
