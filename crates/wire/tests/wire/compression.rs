//! OP_COMPRESSED: right sizes or nothing.

use bytes::BytesMut;
use document::DocBuf;
use wire::{
    Compressor, CompressorSet, MAX_CLIENT_MESSAGE_BYTES, MAX_SERVER_MESSAGE_BYTES, OpMsg, WireError,
    compress_frame,
};

use crate::build::{ID, body, frame, message, op_msg, ping};

/// An OP_COMPRESSED with anything in it.
fn compressed(opcode: i32, size: i32, id: u8, data: &[u8]) -> BytesMut {
    let mut payload = opcode.to_le_bytes().to_vec();
    payload.extend_from_slice(&size.to_le_bytes());
    payload.push(id);
    payload.extend_from_slice(data);
    message(2012, &payload)
}

fn open(bytes: BytesMut) -> Result<OpMsg, WireError> {
    OpMsg::parse(frame(bytes)?.decompress(CompressorSet::ALL, MAX_CLIENT_MESSAGE_BYTES)?)
}

/// The data of a message as each compressor makes it.
fn data_of(compressor: Compressor, message: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    compress_frame(compressor, message, &mut out).unwrap();
    out[25..].to_vec()
}

#[test]
fn each_compressor_gives_back_what_it_got() {
    let mut large = DocBuf::new();
    for index in 0..200_000 {
        large.append("f", index * 7919);
    }
    for doc in [ping(), DocBuf::new(), large] {
        let plain = op_msg(0, &[&body(doc.as_bytes())]);
        for compressor in Compressor::ALL {
            let mut out = BytesMut::from(&b"before"[..]);
            compress_frame(compressor, &plain, &mut out).unwrap();
            let opened = frame(out.split_off(6))
                .unwrap()
                .decompress(CompressorSet::NONE.with(compressor), MAX_CLIENT_MESSAGE_BYTES)
                .unwrap();
            assert_eq!(opened.bytes(), &plain, "{compressor:?}");
            assert_eq!((opened.compressor(), opened.header().request_id), (Some(compressor), ID));
        }
    }
}

#[test]
fn names_and_ids_are_those_of_the_protocol() {
    let expected = [(0, "noop"), (1, "snappy"), (2, "zlib"), (3, "zstd")];
    for (id, name) in expected {
        let compressor = Compressor::from_id(id).unwrap();
        assert_eq!((compressor.id(), compressor.name()), (id, name));
        assert_eq!(Compressor::from_name(name), Some(compressor));
    }
    assert_eq!(Compressor::from_id(4), None);
    let two: CompressorSet = [Compressor::Zlib, Compressor::Snappy].into_iter().collect();
    assert_eq!(two.iter().collect::<Vec<_>>(), [Compressor::Snappy, Compressor::Zlib]);
}

#[test]
fn a_size_that_is_not_met_exactly_closes_the_connection() {
    let plain = op_msg(0, &[&body(ping().as_bytes())]);
    let size = i32::try_from(plain.len() - 16).unwrap();
    for compressor in Compressor::ALL {
        let data = data_of(compressor, &plain);
        assert!(open(compressed(2013, size, compressor.id(), &data)).is_ok(), "{compressor:?}");
        for wrong in [size - 1, size + 1, size + 100_000, 0, -5, i32::MAX, 47_999_985] {
            let error = open(compressed(2013, wrong, compressor.id(), &data)).unwrap_err();
            assert_eq!(error.code(), None, "{compressor:?} {wrong}: {error}");
        }
        for cut in 0..data.len() {
            assert!(
                open(compressed(2013, size, compressor.id(), &data[..cut])).is_err(),
                "{compressor:?} {cut}"
            );
        }
        let more = [data.as_slice(), data.as_slice()].concat();
        assert!(open(compressed(2013, size, compressor.id(), &more)).is_err(), "{compressor:?} twice");
    }
}

#[test]
fn a_bomb_does_not_win() {
    // 40 MB of zeros in a few KB, announced as 1000 bytes.
    let zeros = message(2013, &vec![0; 40_000_000]);
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let data = data_of(compressor, &zeros);
        assert!(open(compressed(2013, 1000, compressor.id(), &data)).is_err(), "{compressor:?}");
        // Above the limit of a message it is refused by its word.
        let large = i32::try_from(MAX_SERVER_MESSAGE_BYTES).unwrap();
        assert!(open(compressed(2013, large, compressor.id(), &data)).is_err(), "{compressor:?}");
    }
}

#[test]
fn strange_envelopes_close_the_connection() {
    let plain = op_msg(0, &[&body(ping().as_bytes())]);
    let size = i32::try_from(plain.len() - 16).unwrap();
    let rows = [
        ("compressed twice", compressed(2012, size, 0, &plain[16..])),
        ("an unknown compressor", compressed(2013, size, 9, &plain[16..])),
        ("zlib garbage", compressed(2013, size, 2, b"abcabc")),
        ("zstd garbage", compressed(2013, size, 3, b"abcabc")),
        ("snappy garbage", compressed(2013, size, 1, b"abcabc")),
        ("no data", message(2012, &[0; 8])),
        ("nothing", message(2012, &[])),
    ];
    for (name, bytes) in rows {
        assert_eq!(open(bytes).expect_err(name).code(), None, "{name}");
    }
    // After all of that, a good one still opens: no context is left broken.
    for compressor in Compressor::ALL {
        open(compressed(2013, size, compressor.id(), &data_of(compressor, &plain))).unwrap();
    }
}
