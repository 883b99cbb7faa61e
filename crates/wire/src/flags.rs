//! The flag bits of OP_MSG.

use crate::error::WireError;

/// Flag bits of an OP_MSG. The low sixteen are required: a receiver that does not know one must refuse the
/// message; the high sixteen are optional and unknown ones are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MsgFlags(u32);

impl MsgFlags {
    /// No flag.
    pub const NONE: MsgFlags = MsgFlags(0);
    /// The message ends in a CRC-32C of all that is before it.
    pub const CHECKSUM_PRESENT: MsgFlags = MsgFlags(1);
    /// The sender sends another message without waiting: no answer to a request, more answers after a reply.
    pub const MORE_TO_COME: MsgFlags = MsgFlags(1 << 1);
    /// The client can take several answers to this request.
    pub const EXHAUST_ALLOWED: MsgFlags = MsgFlags(1 << 16);

    const REQUIRED: u32 = 0xffff;
    const KNOWN_REQUIRED: u32 = Self::CHECKSUM_PRESENT.0 | Self::MORE_TO_COME.0;

    /// Flags from their bits; a required bit that nobody knows closes the connection.
    pub fn from_bits(bits: u32) -> Result<MsgFlags, WireError> {
        if bits & Self::REQUIRED & !Self::KNOWN_REQUIRED == 0 {
            Ok(MsgFlags(bits))
        } else {
            Err(WireError::UnknownFlags(bits))
        }
    }

    /// The bits as they go on the wire.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// True when all bits of `other` are set.
    pub fn contains(self, other: MsgFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[must_use]
    pub fn with(self, other: MsgFlags) -> MsgFlags {
        MsgFlags(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[must_use]
    pub fn without(self, other: MsgFlags) -> MsgFlags {
        MsgFlags(self.0 & !other.0)
    }
}
