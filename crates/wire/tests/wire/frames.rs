//! Cutting messages off a stream, writing them, the codec.

use bytes::{Bytes, BytesMut};
use document::{Doc, DocBuf};
use tokio_util::codec::{Decoder, Encoder};
use wire::{
    Compressor, CompressorSet, MAX_CLIENT_MESSAGE_BYTES, MessageCodec, MsgFlags, OpMsg, OpMsgWriter,
    ReplyFlags, compress_frame, cut_frame, encode_op_reply, reserve_for_read, set_request_id,
    set_response_to,
};

use crate::build::{ID, body, op_msg, parse, ping, with_checksum};

#[test]
fn messages_are_cut_where_they_end() {
    let one = op_msg(0, &[&body(ping().as_bytes())]);
    let mut buf = BytesMut::new();
    buf.extend_from_slice(&one);
    buf.extend_from_slice(&one[..20]);
    let first = cut_frame(&mut buf, MAX_CLIENT_MESSAGE_BYTES).unwrap().unwrap();
    assert_eq!(first.bytes(), &one.freeze());
    assert_eq!(first.header().request_id, ID);
    assert!(cut_frame(&mut buf, MAX_CLIENT_MESSAGE_BYTES).unwrap().is_none());
    assert_eq!(buf.len(), 20);
}

#[test]
fn a_length_is_refused_before_its_message_comes() {
    for announced in [-1, 0, 15, 48_000_001, i32::MAX, i32::MIN] {
        let mut buf = BytesMut::from(&announced.to_le_bytes()[..]);
        let error = cut_frame(&mut buf, MAX_CLIENT_MESSAGE_BYTES).unwrap_err();
        assert_eq!(error.code(), None, "{announced}: {error}");
    }
    let mut buf = BytesMut::from(&48_000_000_i32.to_le_bytes()[..]);
    assert!(cut_frame(&mut buf, MAX_CLIENT_MESSAGE_BYTES).unwrap().is_none());
}

#[test]
fn a_read_buffer_grows_with_what_came_and_not_with_what_was_promised() {
    let mut buf = BytesMut::from(&48_000_000_i32.to_le_bytes()[..]);
    buf.extend_from_slice(&[0; 12]);
    reserve_for_read(&mut buf);
    assert!((4096..64 * 1024).contains(&buf.capacity()), "{} after a header", buf.capacity());
    while buf.len() < 1_000_000 {
        let room = buf.capacity() - buf.len();
        assert!(room > 0);
        buf.extend_from_slice(&vec![0; room]);
        reserve_for_read(&mut buf);
        assert!(buf.capacity() <= buf.len() * 3 + 64 * 1024, "{} after {}", buf.capacity(), buf.len());
    }
    // No more than the rest of the message is asked for at its end.
    let mut buf = BytesMut::from(&100_000_i32.to_le_bytes()[..]);
    buf.extend_from_slice(&vec![0; 99_990]);
    reserve_for_read(&mut buf);
    assert!(buf.capacity() > buf.len());
}

#[test]
fn what_is_written_is_what_is_parsed() {
    let mut buf = BytesMut::from(&b"other bytes before"[..]);
    let before = buf.len();
    for flags in [
        MsgFlags::NONE,
        MsgFlags::CHECKSUM_PRESENT,
        MsgFlags::EXHAUST_ALLOWED.with(MsgFlags::CHECKSUM_PRESENT),
    ] {
        buf.truncate(before);
        let writer = OpMsgWriter::begin(&mut buf, 11, 12, flags);
        buf.extend_from_slice(ping().as_bytes());
        for name in ["documents", "more"] {
            let sequence = writer.begin_sequence(&mut buf, name);
            buf.extend_from_slice(ping().as_bytes());
            buf.extend_from_slice(DocBuf::new().as_bytes());
            sequence.finish(&mut buf);
        }
        assert_eq!(writer.len(&buf), buf.len() - before);
        writer.finish(&mut buf).unwrap();
        let parsed = parse(Bytes::copy_from_slice(&buf[before..])).unwrap();
        assert_eq!((parsed.header().request_id, parsed.header().response_to), (11, 12));
        assert_eq!(parsed.flags(), flags);
        assert_eq!(parsed.body(), ping().as_doc());
        assert_eq!(parsed.body_bytes(), ping().as_bytes());
        assert_eq!(parsed.sequences().len(), 2);
        let documents = parsed.sequence("documents").unwrap();
        assert_eq!((documents.len(), documents.is_empty()), (2, false));
        assert_eq!(documents.documents().collect::<Vec<_>>(), [ping().as_doc(), Doc::empty()]);
        assert!(parsed.sequence("document").is_none());
    }
}

#[test]
fn a_message_that_is_too_large_is_taken_back() {
    let mut buf = BytesMut::from(&b"kept"[..]);
    let writer = OpMsgWriter::begin(&mut buf, 0, 0, MsgFlags::NONE);
    buf.extend_from_slice(&vec![0; 49_000_000]);
    assert_eq!(writer.finish(&mut buf).unwrap_err().code(), Some(10334));
    assert_eq!(buf, "kept");
}

#[test]
fn numbers_are_rewritten_in_place() {
    let mut message = op_msg(0, &[&body(ping().as_bytes())]);
    set_request_id(&mut message, -5);
    set_response_to(&mut message, 6);
    let parsed = parse(message).unwrap();
    assert_eq!((parsed.header().request_id, parsed.header().response_to), (-5, 6));
}

#[test]
fn an_op_reply_is_laid_out_as_a_server_does_it() {
    let mut buf = BytesMut::new();
    encode_op_reply(&mut buf, 1, 2, ReplyFlags::AWAIT_CAPABLE, ping().as_doc());
    assert_eq!(buf.len(), 36 + ping().as_bytes().len());
    let numbers: Vec<i32> =
        buf[..36].chunks(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect();
    assert_eq!(numbers, [i32::try_from(buf.len()).unwrap(), 1, 2, 1, 8, 0, 0, 0, 1]);
    assert_eq!(&buf[36..], ping().as_bytes());
}

#[test]
fn the_codec_gives_frames_however_the_bytes_arrive() {
    let plain = with_checksum(&[&body(ping().as_bytes())]);
    let mut stream = BytesMut::new();
    for compressor in Compressor::ALL {
        stream.extend_from_slice(&plain);
        compress_frame(compressor, &plain, &mut stream).unwrap();
    }
    for step in [1, 7, 64, stream.len()] {
        let mut codec = MessageCodec::for_clients(CompressorSet::ALL);
        let mut buf = BytesMut::new();
        let mut got = Vec::new();
        for chunk in stream.chunks(step) {
            buf.extend_from_slice(chunk);
            while let Some(frame) = codec.decode(&mut buf).unwrap() {
                got.push(frame.compressor());
                assert_eq!(OpMsg::parse(frame).unwrap().body(), ping().as_doc());
            }
        }
        let expected: Vec<_> =
            Compressor::ALL.into_iter().flat_map(|compressor| [None, Some(compressor)]).collect();
        assert_eq!(got, expected, "in steps of {step}");
        assert!(codec.decode_eof(&mut buf).unwrap().is_none());
    }
    let mut codec = MessageCodec::for_clients(CompressorSet::NONE);
    let mut compressed = BytesMut::new();
    compress_frame(Compressor::Zlib, &plain, &mut compressed).unwrap();
    assert_eq!(codec.decode(&mut compressed).unwrap_err().code(), None);

    let mut out = BytesMut::new();
    codec.encode(plain.clone(), &mut out).unwrap();
    codec.encode(plain.clone().freeze(), &mut out).unwrap();
    assert_eq!(out, [plain.as_ref(), plain.as_ref()].concat());
}
