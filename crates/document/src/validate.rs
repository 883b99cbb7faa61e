//! One pass over a document and all below it, without recursion: what a hostile peer cannot make deep.

use crate::error::DocumentError;
use crate::value::ElementType;
use crate::view::{decode, prefix, value_size};

/// Most levels of nesting below a document (the server's own limit for parsed BSON, 6.0).
pub const MAX_DEPTH: usize = 200;

/// Checks every element of every level of a document whose own frame was checked already.
pub(crate) fn validate(bytes: &[u8]) -> Result<(), DocumentError> {
    // End offsets of the documents that we are in. Depth is bounded, so is this.
    let mut ends: Vec<usize> = Vec::with_capacity(8);
    let mut at = 4;
    let mut end = bytes.len();
    loop {
        let &code = bytes.get(at).ok_or(DocumentError::Field { offset: at })?;
        if at + 1 == end {
            if code != 0 {
                return Err(DocumentError::Terminator);
            }
            at = end;
            match ends.pop() {
                Some(outer) => end = outer,
                None => return Ok(()),
            }
            continue;
        }
        let malformed = DocumentError::Field { offset: at };
        let kind = ElementType::from_byte(code).ok_or(DocumentError::Type { code, offset: at })?;
        // The terminator of this document is no part of any element.
        let rest = bytes.get(at + 1..end - 1).ok_or(malformed)?;
        let name_length = rest.iter().position(|&byte| byte == 0).ok_or(malformed)?;
        let value_at = at + 1 + name_length + 1;
        let value = bytes.get(value_at..end - 1).ok_or(malformed)?;
        let size = value_size(kind, value).ok_or(malformed)?;
        match kind {
            ElementType::Document | ElementType::Array => {
                enter(&mut ends, end)?;
                at = value_at + 4;
                end = value_at + size;
                continue;
            }
            ElementType::JavaScriptWithScope => {
                let value = value.get(..size).ok_or(malformed)?;
                if decode(kind, value).is_none() {
                    return Err(malformed);
                }
                let code_size = value.get(4..).and_then(prefix).ok_or(malformed)?;
                let scope_at = value_at + 8 + usize::try_from(code_size).map_err(|_| malformed)?;
                enter(&mut ends, end)?;
                at = scope_at + 4;
                end = value_at + size;
                continue;
            }
            ElementType::Bool if value.first().is_none_or(|&byte| byte > 1) => return Err(malformed),
            // The old binary form repeats its length inside.
            ElementType::Binary if value.get(4) == Some(&2) && size < 9 => return Err(malformed),
            _ => {}
        }
        at = value_at + size;
    }
}

fn enter(ends: &mut Vec<usize>, end: usize) -> Result<(), DocumentError> {
    // Levels below the outermost document: 200 pass, 201 do not (seen on 6.0.5).
    if ends.len() >= MAX_DEPTH {
        return Err(DocumentError::Depth);
    }
    ends.push(end);
    Ok(())
}
