//! Checked little-endian reads and patches: the only place that turns bytes into numbers.

use bytes::BytesMut;

/// The four bytes at `at` as a signed number.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    let end = at.checked_add(4)?;
    Some(i32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// The four bytes at `at` as an unsigned number.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// A length at `at`: `None` when it is negative or not there.
pub(crate) fn len_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(i32_at(bytes, at)?).ok()
}

/// Overwrites the four bytes at `at`; nothing happens when they are not there.
pub(crate) fn put_i32_at(buf: &mut BytesMut, at: usize, value: i32) {
    if let Some(slot) = at.checked_add(4).and_then(|end| buf.get_mut(at..end)) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
}

/// The zero-terminated string at `at`: its bytes, and where the byte after its terminator is.
pub(crate) fn cstr_at(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let len = rest.iter().position(|b| *b == 0)?;
    Some((rest.get(..len)?, at.checked_add(len)?.checked_add(1)?))
}
