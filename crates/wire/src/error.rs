//! What can be wrong with a message, and what its sender gets for it.

use document::DocumentError;

use crate::limits::MAX_INTERNAL_DOCUMENT_BYTES;

/// What to do with the peer that sent a malformed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Answer with this error code and go on: the message was cut off cleanly.
    Answer(i32),
    /// Close the connection without an answer: its state is unknown.
    Close,
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The announced length is less than a header or more than the limit.
    #[error("message length {announced} is not between 16 and {max}")]
    FrameLength {
        /// What the header says.
        announced: i32,
        /// The most this peer may send.
        max: usize,
    },
    /// A message that ends before a part that it must have.
    #[error("the message ends before its {0}")]
    Truncated(&'static str),
    /// No message of this kind is spoken here.
    #[error("unexpected opcode {0}")]
    OpCode(i32),
    /// One of the sixteen required flag bits is not known.
    #[error("unknown required flag bits in {0:#x}")]
    UnknownFlags(u32),
    /// The checksum does not fit the message.
    #[error("the checksum does not match the message")]
    ChecksumMismatch,
    /// The compressed message cannot be opened.
    #[error("compressed message: {0}")]
    Compression(&'static str),
    /// A reply that answers another request.
    #[error("reply to request {got}, expected one to {expected}")]
    ResponseTo {
        /// The request that was sent.
        expected: i32,
        /// The request that the reply names.
        got: i32,
    },
    /// A reply with a document sequence beside its body.
    #[error("a reply has more than a body")]
    ReplySections,
    /// The socket failed under the codec.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A section kind that is neither 0 nor 1.
    #[error("Unknown section kind {0}")]
    UnknownSectionKind(u8),
    /// No section of kind 0.
    #[error("OP_MSG messages must have a body")]
    NoBody,
    /// Two sections of kind 0.
    #[error("Multiple body sections in message")]
    SeveralBodies,
    /// Two document sequences of one name.
    #[error("Duplicate document sequence: {0}")]
    DuplicateSequence(String),
    /// A document sequence with the name of a field of the body.
    #[error("Duplicate field between body and document sequence {0}")]
    SequenceInBody(String),
    /// A section that does not fit the message.
    #[error("document sequence does not fit the message")]
    SectionLength,
    /// A document that is none, or is too deep.
    #[error(transparent)]
    Document(DocumentError),
    /// A document above the limit.
    #[error(
        "BSONObj size: {0} ({0:#x}) is invalid. Size must be between 0 and {max}(16MB)",
        max = MAX_INTERNAL_DOCUMENT_BYTES
    )]
    DocumentTooLarge(usize),
    /// What is being written does not fit into one message.
    #[error("message of {0} bytes is too large")]
    MessageTooLarge(usize),
}

impl WireError {
    /// What the sender of such a message gets (each case was tried on a mongod 6.0.5).
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::FrameLength { .. }
            | Self::Truncated(_)
            | Self::OpCode(_)
            | Self::UnknownFlags(_)
            | Self::ChecksumMismatch
            | Self::Compression(_)
            | Self::ResponseTo { .. }
            | Self::ReplySections
            | Self::Io(_) => Disposition::Close,
            Self::UnknownSectionKind(_) => Disposition::Answer(40432),
            Self::NoBody => Disposition::Answer(40587),
            Self::SeveralBodies => Disposition::Answer(40430),
            Self::DuplicateSequence(_) => Disposition::Answer(40431),
            Self::SequenceInBody(_) => Disposition::Answer(40433),
            Self::SectionLength => Disposition::Answer(15),
            Self::Document(error) => Disposition::Answer(error.code()),
            Self::DocumentTooLarge(_) | Self::MessageTooLarge(_) => Disposition::Answer(10334),
        }
    }

    /// The code of the error reply, `None` when the connection is to be closed instead.
    pub fn code(&self) -> Option<i32> {
        match self.disposition() {
            Disposition::Answer(code) => Some(code),
            Disposition::Close => None,
        }
    }
}
