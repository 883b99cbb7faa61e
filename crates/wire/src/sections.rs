//! The sections of an OP_MSG: where the body is, where each document sequence is.
//!
//! The order of the checks is that of a mongod (seen on 6.0.5): a message that is wrong in two ways gets the error
//! of the first section that is wrong.

use std::ops::Range;

use document::Doc;

use crate::bits::{cstr_at, len_at, u32_at};
use crate::error::WireError;
use crate::flags::MsgFlags;
use crate::header::HEADER_LEN;

const FLAGS_LEN: usize = 4;
const CHECKSUM_LEN: usize = 4;
pub(crate) const KIND_BODY: u8 = 0;
pub(crate) const KIND_SEQUENCE: u8 = 1;

/// One section, as ranges of the whole message.
pub(crate) enum Section {
    /// Kind 0. Its length and its last byte were checked, its fields were not.
    Body(Range<usize>),
    /// Kind 1. Its documents were not looked at.
    Sequence { identifier: Range<usize>, documents: Range<usize> },
}

/// A walk over the sections of one message.
pub(crate) struct Sections<'a> {
    bytes: &'a [u8],
    at: usize,
    has_body: bool,
}

/// Reads the flags, checks the checksum when there is one, and gives a walk over the sections.
pub(crate) fn open(message: &[u8]) -> Result<(MsgFlags, Sections<'_>), WireError> {
    let bits = u32_at(message, HEADER_LEN).ok_or(WireError::Truncated("flag bits"))?;
    let flags = MsgFlags::from_bits(bits)?;
    let mut bytes = message;
    if flags.contains(MsgFlags::CHECKSUM_PRESENT) {
        let end = message.len().checked_sub(CHECKSUM_LEN).filter(|end| *end >= HEADER_LEN + FLAGS_LEN);
        let (covered, sent) = end
            .and_then(|end| Some((message.get(..end)?, u32_at(message, end)?)))
            .ok_or(WireError::Truncated("checksum"))?;
        if crc32c::crc32c(covered) != sent {
            return Err(WireError::ChecksumMismatch);
        }
        bytes = covered;
    }
    Ok((flags, Sections { bytes, at: HEADER_LEN + FLAGS_LEN, has_body: false }))
}

impl Sections<'_> {
    /// The next section, `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Section>, WireError> {
        let Some(kind) = self.bytes.get(self.at) else { return Ok(None) };
        let start = self.at + 1;
        match *kind {
            KIND_BODY => self.body(start).map(Some),
            KIND_SEQUENCE => self.sequence(start).map(Some),
            other => Err(WireError::UnknownSectionKind(other)),
        }
    }

    fn body(&mut self, start: usize) -> Result<Section, WireError> {
        if std::mem::replace(&mut self.has_body, true) {
            return Err(WireError::SeveralBodies);
        }
        let doc = Doc::prefix_of(self.bytes.get(start..).unwrap_or_default()).map_err(WireError::Document)?;
        self.at = start + doc.as_bytes().len();
        Ok(Section::Body(start..self.at))
    }

    fn sequence(&mut self, start: usize) -> Result<Section, WireError> {
        let left = self.bytes.len().saturating_sub(start);
        let length = len_at(self.bytes, start).filter(|length| (4..=left).contains(length));
        let end = start + length.ok_or(WireError::SectionLength)?;
        let section = self.bytes.get(..end).ok_or(WireError::SectionLength)?;
        let (identifier, documents) = cstr_at(section, start + 4).ok_or(WireError::SectionLength)?;
        self.at = end;
        Ok(Section::Sequence {
            identifier: start + 4..start + 4 + identifier.len(),
            documents: documents..end,
        })
    }
}
