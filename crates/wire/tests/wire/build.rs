//! Messages built byte by byte, so that they can be wrong.

use bytes::{BufMut, Bytes, BytesMut};
use document::DocBuf;
use wire::{Frame, Header, MAX_CLIENT_MESSAGE_BYTES, OpCode, OpMsg, WireError};

pub(crate) const ID: i32 = 7;

/// A message of any opcode; its header is right.
pub(crate) fn message(opcode: i32, payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    let length = i32::try_from(payload.len() + 16).unwrap();
    Header::put(&mut out, length, ID, 0, OpCode(opcode));
    out.extend_from_slice(payload);
    out
}

/// An OP_MSG with these sections.
pub(crate) fn op_msg(flags: u32, sections: &[&[u8]]) -> BytesMut {
    let mut payload = flags.to_le_bytes().to_vec();
    sections.iter().for_each(|section| payload.extend_from_slice(section));
    message(2013, &payload)
}

/// An OP_MSG with a right checksum.
pub(crate) fn with_checksum(sections: &[&[u8]]) -> BytesMut {
    let mut out = op_msg(1, sections);
    let length = i32::try_from(out.len() + 4).unwrap();
    out[..4].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c(&out);
    out.put_u32_le(checksum);
    out
}

pub(crate) fn ping() -> DocBuf {
    let mut doc = DocBuf::new();
    doc.append("ping", 1).append("$db", "admin");
    doc
}

/// A section of kind 0 with anything in it.
pub(crate) fn body(bytes: &[u8]) -> Vec<u8> {
    [&[0], bytes].concat()
}

/// A section of kind 1; `length` instead of the right one.
pub(crate) fn sequence(identifier: &str, documents: &[u8], length: Option<i32>) -> Vec<u8> {
    let mut out = vec![1];
    let right = i32::try_from(4 + identifier.len() + 1 + documents.len()).unwrap();
    out.extend_from_slice(&length.unwrap_or(right).to_le_bytes());
    out.extend_from_slice(identifier.as_bytes());
    out.push(0);
    out.extend_from_slice(documents);
    out
}

/// `levels` documents below the outermost.
pub(crate) fn nested(levels: usize) -> DocBuf {
    let mut doc = DocBuf::new();
    doc.append("a", 1);
    for _ in 0..levels {
        let mut outer = DocBuf::new();
        outer.append("a", &doc);
        doc = outer;
    }
    doc
}

pub(crate) fn frame(bytes: impl Into<Bytes>) -> Result<Frame, WireError> {
    Frame::from_bytes(bytes.into(), MAX_CLIENT_MESSAGE_BYTES)
}

pub(crate) fn parse(bytes: impl Into<Bytes>) -> Result<OpMsg, WireError> {
    OpMsg::parse(frame(bytes)?)
}
