/// Why bytes are not a BSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The bytes end before the document does, or go on behind it.
    #[error("invalid BSON length: {announced} announced, {available} bytes available")]
    Length {
        /// Length that the document claims, in bytes.
        announced: i64,
        /// Bytes that are there.
        available: usize,
    },
    /// No zero byte at the end of the document.
    #[error("invalid BSON: the document does not end with a zero byte")]
    Terminator,
    /// A field that does not fit its document, a name without an end, a value of an impossible size.
    #[error("invalid BSON: malformed field at offset {offset}")]
    Field {
        /// Offset from the start of the outermost document.
        offset: usize,
    },
    /// A type byte that BSON does not know.
    #[error("invalid BSON: unrecognized type {code:#04x} at offset {offset}")]
    Type {
        /// The type byte.
        code: u8,
        /// Offset from the start of the outermost document.
        offset: usize,
    },
    /// More than [`crate::MAX_DEPTH`] levels.
    #[error("BSON nesting depth exceeds the limit of {max}", max = crate::MAX_DEPTH)]
    Depth,
}

impl DocumentError {
    /// MongoDB's error code: 15 Overflow for nesting, 22 InvalidBSON for the rest (seen on 6.0.5).
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Depth => 15,
            Self::Length { .. } | Self::Terminator | Self::Field { .. } | Self::Type { .. } => 22,
        }
    }
}
