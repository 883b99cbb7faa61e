//! All that a peer, client or server, can make the router do with bytes before the router knows what they mean.
#![no_main]

use bytes::BytesMut;
use document::Doc;
use libfuzzer_sys::fuzz_target;
use wire::{
    CompressorSet, MAX_CLIENT_MESSAGE_BYTES, MAX_SERVER_MESSAGE_BYTES, OpMsg, OpMsgWriter, OpQuery, Reply,
    cut_bytes, cut_frame, reserve_for_read,
};

fuzz_target!(|data: &[u8]| {
    from_a_client(data);
    from_a_server(data);
});

fn from_a_client(data: &[u8]) {
    let mut buf = BytesMut::from(data);
    while let Ok(Some(frame)) = cut_frame(&mut buf, MAX_CLIENT_MESSAGE_BYTES) {
        let Ok(frame) = frame.decompress(CompressorSet::ALL, MAX_CLIENT_MESSAGE_BYTES) else { continue };
        if let Ok(msg) = OpMsg::parse(frame.clone()) {
            Doc::validate(&msg.body_bytes()).expect("a parsed body is valid");
            for sequence in msg.sequences() {
                assert_eq!(sequence.documents().count(), sequence.len());
                assert!(!msg.body().iter().any(|field| field.name_bytes() == sequence.identifier_bytes()));
            }
            write_again(&msg);
        }
        if let Ok(query) = OpQuery::parse(frame) {
            let _ = (query.namespace(), query.command_database());
            Doc::validate(query.command().as_bytes()).expect("a parsed query is valid");
        }
    }
    let came = buf.len();
    reserve_for_read(&mut buf);
    assert!(buf.capacity() <= 3 * came + 64 * 1024, "room by announcement");
}

/// What was parsed can be written, and parses to the same.
fn write_again(msg: &OpMsg) {
    let mut out = BytesMut::new();
    let header = msg.header();
    let writer = OpMsgWriter::begin(&mut out, header.request_id, header.response_to, msg.flags());
    out.extend_from_slice(msg.body().as_bytes());
    for sequence in msg.sequences() {
        // A name that is no UTF-8 cannot be written.
        if sequence.identifier() == "\u{FFFD}" {
            return;
        }
        let open = writer.begin_sequence(&mut out, sequence.identifier());
        out.extend_from_slice(sequence.as_bytes());
        open.finish(&mut out);
    }
    writer.finish(&mut out).expect("no larger than it came");
    let again = cut_frame(&mut out, MAX_SERVER_MESSAGE_BYTES).expect("well-formed").expect("whole");
    let again = OpMsg::parse(again).expect("well-formed");
    assert_eq!(again.body(), msg.body());
    assert_eq!(again.sequences().len(), msg.sequences().len());
}

fn from_a_server(data: &[u8]) {
    let mut buf = BytesMut::from(data);
    while let Ok(Some((header, frame))) = cut_bytes(&mut buf, MAX_SERVER_MESSAGE_BYTES) {
        let Ok(mut reply) = Reply::parse(header, frame) else { continue };
        // Cut behind the first field, as a router cuts the times off.
        let keep = reply.body().first().map_or(4, |first| 4 + first.raw().len());
        reply
            .replace_tail(keep, |buf| document::splice::put_i32(buf, "added", 1))
            .expect("shorter or as long");
        assert_eq!(reply.body().as_bytes(), reply.body_bytes());
        assert!(reply.body().contains("added"));
    }
}
