//! OP_COMPRESSED both ways.
//!
//! `originalOpcode:i32, uncompressedSize:i32, compressorId:u8, data`. The size is checked against the limit before
//! anything is decoded, output grows with what the decoder really makes of the input and never past the size, and the
//! size must be met exactly: a bomb cannot win.

use std::cell::RefCell;

use bytes::{BufMut, BytesMut};

use crate::bits::{i32_at, put_i32_at};
use crate::error::WireError;
use crate::frame::Frame;
use crate::header::{HEADER_LEN, Header, OpCode};

const INFO_LEN: usize = 9;
/// Output room that is made before the decoder has shown what it makes of its input.
const FIRST_STEP_BYTES: usize = 64 * 1024;
/// Snappy's best copy element makes 64 bytes of 3; more than this much for a byte cannot be true.
const SNAPPY_MAX_RATIO: usize = 22;
const ZLIB_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;

/// A way to compress messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressor {
    /// Id 0: not at all.
    Noop,
    /// Id 1.
    Snappy,
    /// Id 2.
    Zlib,
    /// Id 3.
    Zstd,
}

impl Compressor {
    /// All of them, in the order a server prefers them.
    pub const ALL: [Compressor; 4] =
        [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib, Compressor::Noop];

    /// The compressor with this id.
    pub fn from_id(id: u8) -> Option<Compressor> {
        Self::ALL.into_iter().find(|compressor| compressor.id() == id)
    }

    /// The compressor with this name.
    pub fn from_name(name: &str) -> Option<Compressor> {
        Self::ALL.into_iter().find(|compressor| compressor.name() == name)
    }

    /// Its number on the wire.
    pub fn id(self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// Its name in `hello` and in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// A set of compressors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompressorSet(u8);

impl CompressorSet {
    /// None.
    pub const NONE: CompressorSet = CompressorSet(0);
    /// All.
    pub const ALL: CompressorSet = CompressorSet(0b1111);

    /// The set with one more.
    #[must_use]
    pub fn with(self, compressor: Compressor) -> CompressorSet {
        CompressorSet(self.0 | 1 << compressor.id())
    }

    /// True when it is in the set.
    pub fn contains(self, compressor: Compressor) -> bool {
        self.0 & (1 << compressor.id()) != 0
    }

    /// True when there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members, in the order a server prefers them.
    pub fn iter(self) -> impl Iterator<Item = Compressor> {
        Compressor::ALL.into_iter().filter(move |compressor| self.contains(*compressor))
    }
}

impl FromIterator<Compressor> for CompressorSet {
    fn from_iter<I: IntoIterator<Item = Compressor>>(iter: I) -> Self {
        iter.into_iter().fold(CompressorSet::NONE, CompressorSet::with)
    }
}

impl Frame {
    /// Opens an OP_COMPRESSED; any other message comes back as it is. The result is at most `max` bytes long.
    pub fn decompress(self, allowed: CompressorSet, max: usize) -> Result<Frame, WireError> {
        if self.header().opcode != OpCode::COMPRESSED {
            return Ok(self);
        }
        let (header, out, compressor) = decompress(self.header(), self.body(), allowed, max)?;
        Ok(Frame::new(header, out.freeze(), Some(compressor)))
    }
}

/// Opens the body of an OP_COMPRESSED into a message of its own.
pub fn decompress(
    header: &Header,
    body: &[u8],
    allowed: CompressorSet,
    max: usize,
) -> Result<(Header, BytesMut, Compressor), WireError> {
    let info = (i32_at(body, 0), i32_at(body, 4), body.get(8), body.get(INFO_LEN..));
    let (Some(opcode), Some(announced), Some(id), Some(data)) = info else {
        return Err(WireError::Truncated("compressed part"));
    };
    if opcode == OpCode::COMPRESSED.0 {
        return Err(WireError::Compression("compressed twice"));
    }
    let size = usize::try_from(announced)
        .ok()
        .filter(|size| *size <= max.saturating_sub(HEADER_LEN))
        .ok_or(WireError::Compression("uncompressed size out of range"))?;
    let compressor = Compressor::from_id(*id)
        .filter(|compressor| allowed.contains(*compressor))
        .ok_or(WireError::Compression("compressor was not agreed on"))?;
    let length = HEADER_LEN + size;
    let mut out = BytesMut::new();
    Header::put(
        &mut out,
        i32::try_from(length).unwrap_or(i32::MAX),
        header.request_id,
        header.response_to,
        OpCode(opcode),
    );
    match compressor {
        Compressor::Noop => noop(data, size, &mut out),
        Compressor::Snappy => snappy(data, size, &mut out),
        Compressor::Zlib => zlib(data, size, &mut out),
        Compressor::Zstd => zstd(data, size, &mut out),
    }?;
    if out.len() != length {
        return Err(WireError::Compression("uncompressed size does not match"));
    }
    let header = Header { length, opcode: OpCode(opcode), ..*header };
    Ok((header, out, compressor))
}

fn noop(data: &[u8], size: usize, out: &mut BytesMut) -> Result<(), WireError> {
    if data.len() != size {
        return Err(WireError::Compression("uncompressed size does not match"));
    }
    out.extend_from_slice(data);
    Ok(())
}

fn snappy(data: &[u8], size: usize, out: &mut BytesMut) -> Result<(), WireError> {
    let bad = |_| WireError::Compression("snappy data is corrupt");
    if snap::raw::decompress_len(data).map_err(bad)? != size {
        return Err(WireError::Compression("uncompressed size does not match"));
    }
    if size / SNAPPY_MAX_RATIO > data.len() {
        return Err(WireError::Compression("uncompressed size is impossible"));
    }
    let start = out.len();
    out.resize(start + size, 0);
    let room = out.get_mut(start..).unwrap_or_default();
    snap::raw::Decoder::new().decompress(data, room).map_err(bad)?;
    Ok(())
}

thread_local! {
    static INFLATE: RefCell<flate2::Decompress> = RefCell::new(flate2::Decompress::new(true));
    static DEFLATE: RefCell<flate2::Compress> =
        RefCell::new(flate2::Compress::new(flate2::Compression::new(ZLIB_LEVEL), true));
    static ZSTD_IN: RefCell<Option<zstd::stream::raw::Decoder<'static>>> = const { RefCell::new(None) };
    static ZSTD_OUT: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
}

/// Output so far and the room for more: grows by as much as was made, up to the size.
struct Growing<'a> {
    out: &'a mut BytesMut,
    filled: usize,
    end: usize,
}

impl<'a> Growing<'a> {
    fn new(out: &'a mut BytesMut, size: usize) -> Growing<'a> {
        let filled = out.len();
        Growing { out, filled, end: filled + size }
    }

    /// The free room, `None` when all of the size is filled.
    fn room(&mut self) -> &mut [u8] {
        if self.filled == self.out.len() {
            let grown = self.out.len() + self.filled.max(FIRST_STEP_BYTES);
            self.out.resize(grown.min(self.end), 0);
        }
        self.out.get_mut(self.filled..).unwrap_or_default()
    }

    fn finish(self) -> bool {
        let full = self.filled == self.end;
        self.out.truncate(self.filled);
        full
    }
}

fn zlib(data: &[u8], size: usize, out: &mut BytesMut) -> Result<(), WireError> {
    let bad = WireError::Compression("zlib data is corrupt");
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(true);
        let mut growing = Growing::new(out, size);
        let mut rest = data;
        let mut tail = [0u8; 1];
        loop {
            let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
            let room = growing.room();
            let full = room.is_empty();
            // With all of the size filled, one spare byte shows whether there is more to come.
            let room = if full { &mut tail[..] } else { room };
            let Ok(status) = inflate.decompress(rest, room, flate2::FlushDecompress::None) else {
                return Err(bad);
            };
            let read = usize::try_from(inflate.total_in() - before_in).unwrap_or(usize::MAX);
            let made = usize::try_from(inflate.total_out() - before_out).unwrap_or(usize::MAX);
            if full && made > 0 {
                return Err(WireError::Compression("uncompressed size does not match"));
            }
            rest = rest.get(read..).unwrap_or_default();
            growing.filled += made;
            if status == flate2::Status::StreamEnd {
                return if growing.finish() && rest.is_empty() {
                    Ok(())
                } else {
                    Err(WireError::Compression("uncompressed size does not match"))
                };
            }
            if read == 0 && made == 0 {
                return Err(bad);
            }
        }
    })
}

fn zstd(data: &[u8], size: usize, out: &mut BytesMut) -> Result<(), WireError> {
    use zstd::stream::raw::{InBuffer, Operation, OutBuffer};
    let bad = WireError::Compression("zstd data is corrupt");
    ZSTD_IN.with_borrow_mut(|slot| {
        let decoder = match slot {
            Some(decoder) => decoder,
            None => match zstd::stream::raw::Decoder::new() {
                Ok(decoder) => slot.insert(decoder),
                Err(_) => return Err(WireError::Compression("no zstd context")),
            },
        };
        if decoder.reinit().is_err() {
            return Err(bad);
        }
        let mut growing = Growing::new(out, size);
        let mut input = InBuffer::around(data);
        let mut tail = [0u8; 1];
        loop {
            let before = input.pos();
            let room = growing.room();
            let full = room.is_empty();
            let mut output = OutBuffer::around(if full { &mut tail[..] } else { room });
            let Ok(hint) = decoder.run(&mut input, &mut output) else { return Err(bad) };
            let made = output.pos();
            if full && made > 0 {
                return Err(WireError::Compression("uncompressed size does not match"));
            }
            growing.filled += made;
            if hint == 0 && input.pos() == data.len() {
                return if growing.finish() {
                    Ok(())
                } else {
                    Err(WireError::Compression("uncompressed size does not match"))
                };
            }
            if input.pos() == before && made == 0 {
                return Err(bad);
            }
        }
    })
}

/// Appends `message` (one whole message) to `out` as OP_COMPRESSED. When compressing makes it no smaller it still goes
/// out compressed, as a server does it.
pub fn compress_frame(compressor: Compressor, message: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
    let header = Header::parse(message, usize::MAX)?.ok_or(WireError::Truncated("header"))?;
    let data = message.get(HEADER_LEN..).unwrap_or_default();
    let size = i32::try_from(data.len()).map_err(|_| WireError::MessageTooLarge(message.len()))?;
    let start = out.len();
    Header::put(out, 0, header.request_id, header.response_to, OpCode::COMPRESSED);
    out.put_i32_le(header.opcode.0);
    out.put_i32_le(size);
    out.put_u8(compressor.id());
    let result = match compressor {
        Compressor::Noop => {
            out.extend_from_slice(data);
            Ok(())
        }
        Compressor::Snappy => compress_snappy(data, out),
        Compressor::Zlib => compress_zlib(data, out),
        Compressor::Zstd => compress_zstd(data, out),
    };
    match (result, i32::try_from(out.len() - start)) {
        (Ok(()), Ok(length)) => {
            put_i32_at(out, start, length);
            Ok(())
        }
        (Err(error), _) => {
            out.truncate(start);
            Err(error)
        }
        (Ok(()), Err(_)) => {
            out.truncate(start);
            Err(WireError::MessageTooLarge(message.len()))
        }
    }
}

fn compress_snappy(data: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
    let start = out.len();
    out.resize(start + snap::raw::max_compress_len(data.len()), 0);
    let room = out.get_mut(start..).unwrap_or_default();
    let made = snap::raw::Encoder::new()
        .compress(data, room)
        .map_err(|_| WireError::Compression("snappy refused the message"))?;
    out.truncate(start + made);
    Ok(())
}

fn compress_zlib(data: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
    let failed = WireError::Compression("zlib refused the message");
    DEFLATE.with_borrow_mut(|deflate| {
        deflate.reset();
        let start = out.len();
        // zlib's own bound: stored blocks of 16 KiB with five bytes each, header and trailer.
        out.resize(start + data.len() + data.len() / 1000 + 64, 0);
        let room = out.get_mut(start..).unwrap_or_default();
        match deflate.compress(data, room, flate2::FlushCompress::Finish) {
            Ok(flate2::Status::StreamEnd) => {
                out.truncate(start + usize::try_from(deflate.total_out()).unwrap_or(usize::MAX));
                Ok(())
            }
            _ => Err(failed),
        }
    })
}

fn compress_zstd(data: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
    let failed = || WireError::Compression("zstd refused the message");
    ZSTD_OUT.with_borrow_mut(|slot| {
        let encoder = match slot {
            Some(encoder) => encoder,
            None => slot.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|_| failed())?),
        };
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(data.len()), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let made = encoder.compress_to_buffer(data, room).map_err(|_| failed())?;
        out.truncate(start + made);
        Ok(())
    })
}
