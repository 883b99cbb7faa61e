//! The tokio-util codec of the client listener.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use crate::compress::CompressorSet;
use crate::error::WireError;
use crate::frame::{Frame, cut_frame, reserve_for_read};
use crate::limits::MAX_CLIENT_MESSAGE_BYTES;

/// Cuts frames off a stream (opening compressed ones) and writes encoded messages to it.
///
/// An error of the decoder always means: close the connection. A frame that it gives is whole, and what is wrong
/// inside it is told by [`crate::OpMsg::parse`].
#[derive(Debug, Clone)]
pub struct MessageCodec {
    max: usize,
    compressors: CompressorSet,
}

impl MessageCodec {
    /// A codec for clients: messages up to [`MAX_CLIENT_MESSAGE_BYTES`], compressed in one of these ways.
    pub fn for_clients(compressors: CompressorSet) -> MessageCodec {
        MessageCodec { max: MAX_CLIENT_MESSAGE_BYTES, compressors }
    }
}

impl Decoder for MessageCodec {
    type Item = Frame;
    type Error = WireError;

    fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Frame>, WireError> {
        match cut_frame(buf, self.max)? {
            Some(frame) => Ok(Some(frame.decompress(self.compressors, self.max)?)),
            None => {
                reserve_for_read(buf);
                Ok(None)
            }
        }
    }
}

impl Encoder<Bytes> for MessageCodec {
    type Error = WireError;

    fn encode(&mut self, message: Bytes, buf: &mut BytesMut) -> Result<(), WireError> {
        buf.extend_from_slice(&message);
        Ok(())
    }
}

impl Encoder<BytesMut> for MessageCodec {
    type Error = WireError;

    fn encode(&mut self, message: BytesMut, buf: &mut BytesMut) -> Result<(), WireError> {
        // An empty write buffer takes the message over without a copy.
        if buf.is_empty() {
            *buf = message;
        } else {
            buf.extend_from_slice(&message);
        }
        Ok(())
    }
}
