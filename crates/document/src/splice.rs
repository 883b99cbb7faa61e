//! Editing by copying: top-level fields are dropped, replaced or added, all others are copied as bytes.

use bytes::{BufMut, BytesMut};

use crate::view::Doc;

/// What to do with one field of the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Copy it.
    Yes,
    /// Leave it out.
    No,
}

/// A document that is being written to the end of a buffer: elements go in, `finish` closes it.
#[derive(Debug)]
pub struct Open {
    start: usize,
}

/// Starts a document at the end of `out`.
pub fn open(out: &mut BytesMut) -> Open {
    let start = out.len();
    out.put_i32_le(0);
    Open { start }
}

impl Open {
    /// Ends the document: terminator and length. Everything written to `out` since [`open`] is its content.
    pub fn finish(self, out: &mut BytesMut) {
        out.put_u8(0);
        let length = i32::try_from(out.len() - self.start).unwrap_or(i32::MAX);
        if let Some(slot) = out.get_mut(self.start..self.start + 4) {
            slot.copy_from_slice(&length.to_le_bytes());
        }
    }
}

/// Copies the fields of `doc` for which `keep` says so, in runs as long as possible.
pub fn copy_fields(doc: Doc<'_>, out: &mut BytesMut, mut keep: impl FnMut(&[u8]) -> Keep) {
    let bytes = doc.elements();
    let mut run_start = 0;
    let mut at = 0;
    let mut fields = doc.iter();
    for field in &mut fields {
        let end = at + field.raw().len();
        if keep(field.name_bytes()) == Keep::No {
            out.extend_from_slice(bytes.get(run_start..at).unwrap_or_default());
            run_start = end;
        }
        at = end;
    }
    out.extend_from_slice(bytes.get(run_start..at).unwrap_or_default());
}

/// Writes one element: type byte, name, value bytes.
pub fn put_element(out: &mut BytesMut, code: u8, name: &str, value: &[u8]) {
    out.put_u8(code);
    out.extend_from_slice(name.as_bytes());
    out.put_u8(0);
    out.extend_from_slice(value);
}

/// Writes an int64 element.
pub fn put_i64(out: &mut BytesMut, name: &str, value: i64) {
    put_element(out, 0x12, name, &value.to_le_bytes());
}

/// Writes an int32 element.
pub fn put_i32(out: &mut BytesMut, name: &str, value: i32) {
    put_element(out, 0x10, name, &value.to_le_bytes());
}

/// Writes a double element.
pub fn put_f64(out: &mut BytesMut, name: &str, value: f64) {
    put_element(out, 0x01, name, &value.to_le_bytes());
}

/// Writes a bool element.
pub fn put_bool(out: &mut BytesMut, name: &str, value: bool) {
    put_element(out, 0x08, name, &[u8::from(value)]);
}

/// Writes a timestamp element.
pub fn put_timestamp(out: &mut BytesMut, name: &str, value: crate::Timestamp) {
    put_element(out, 0x11, name, &value.as_u64().to_le_bytes());
}

/// Writes a string element.
pub fn put_str(out: &mut BytesMut, name: &str, value: &str) {
    put_element(out, 0x02, name, &i32::try_from(value.len() + 1).unwrap_or(i32::MAX).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.put_u8(0);
}

/// Writes a sub-document element.
pub fn put_doc(out: &mut BytesMut, name: &str, value: Doc<'_>) {
    put_element(out, 0x03, name, value.as_bytes());
}

/// Writes an array element.
pub fn put_array(out: &mut BytesMut, name: &str, value: Doc<'_>) {
    put_element(out, 0x04, name, value.as_bytes());
}

/// Starts a sub-document element; close it with [`Open::finish`].
pub fn open_doc(out: &mut BytesMut, name: &str) -> Open {
    put_element(out, 0x03, name, &[]);
    open(out)
}

/// Starts an array element; its items are named `0`, `1`, ...; close it with [`Open::finish`].
pub fn open_array(out: &mut BytesMut, name: &str) -> Open {
    put_element(out, 0x04, name, &[]);
    open(out)
}
