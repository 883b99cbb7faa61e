//! The wire protocol: bytes from a socket in, messages out, and back.
//!
//! Two kinds of peer speak it to a router. **Clients** are hostile until proven otherwise: [`cut_frame`] takes
//! one [`Frame`] off the read buffer, [`Frame::decompress`] opens it, [`OpMsg::parse`] finds its body and its
//! document sequences and validates every byte. **Servers** answer with a [`Reply`], which keeps the frame in one
//! mutable buffer so that a router can change its tail and its header in place and pass it on.
//! [`OpMsgWriter`] writes a message into a buffer that the caller splices the body into.
//!
//! ```text
//! socket bytes -> cut_frame -> Frame -> decompress -> OpMsg   (client to router)
//!                                                  -> Reply   (server to router)
//!                                                  -> OpQuery (hello of old drivers)
//! OpMsgWriter / encode_op_reply -> (compress_frame) -> socket bytes
//! ```
//!
//! Nothing is copied on the way in, no length is believed before it was checked, and no buffer is sized by a
//! number that a peer announced: see [`reserve_for_read`]. What a peer gets for a malformed message is told by
//! [`WireError::disposition`]: an error reply with a code, or a closed connection. The cases and codes were read
//! off a mongod 6.0.5.
//!
//! May call: `document`. Does no I/O; the tokio-util codec is a feature that adds no runtime.

mod bits;
#[cfg(feature = "codec")]
mod codec;
mod compress;
mod error;
mod flags;
mod frame;
mod header;
mod legacy;
mod limits;
mod msg;
mod reply;
mod sections;
mod writer;

#[cfg(feature = "codec")]
pub use codec::MessageCodec;
pub use compress::{Compressor, CompressorSet, compress_frame, decompress};
pub use error::{Disposition, WireError};
pub use flags::MsgFlags;
pub use frame::{Frame, cut_bytes, cut_frame, reserve_for_read};
pub use header::{HEADER_LEN, Header, OpCode, set_request_id, set_response_to};
pub use legacy::{OpQuery, ReplyFlags, encode_op_reply};
pub use limits::{
    MAX_CLIENT_MESSAGE_BYTES, MAX_DOCUMENT_BYTES, MAX_INTERNAL_DOCUMENT_BYTES, MAX_NESTING,
    MAX_SERVER_MESSAGE_BYTES,
};
pub use msg::{DocumentSequence, Documents, OpMsg};
pub use reply::Reply;
pub use writer::{OpMsgWriter, SequenceWriter, seal_message};
