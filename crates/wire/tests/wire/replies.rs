//! A server's answer: read, edited at its end, passed on.

use bytes::{BufMut, BytesMut};
use document::{Doc, DocBuf};
use wire::{MAX_SERVER_MESSAGE_BYTES, MsgFlags, OpMsgWriter, Reply, WireError, cut_bytes};

use crate::build::{body, message, op_msg, parse, ping, sequence, with_checksum};

fn reply(mut bytes: BytesMut) -> Result<Reply, WireError> {
    let (header, frame) = cut_bytes(&mut bytes, MAX_SERVER_MESSAGE_BYTES)?.unwrap();
    Reply::parse(header, frame)
}

fn answer() -> DocBuf {
    let mut doc = DocBuf::new();
    doc.append("n", 3).append("ok", 1.0).append("$configTime", 1_i64).append("operationTime", 2_i64);
    doc
}

#[test]
fn the_tail_is_replaced_without_touching_what_is_before_it() {
    for bytes in [op_msg(0, &[&body(answer().as_bytes())]), with_checksum(&[&body(answer().as_bytes())])] {
        let mut reply = reply(bytes).unwrap();
        assert_eq!(reply.body(), answer().as_doc());
        let keep = reply.body().offset_of(reply.body().field("$configTime").unwrap().raw()).unwrap();
        reply
            .replace_tail(keep, |buf| {
                document::splice::put_i32(buf, "a", 7);
                document::splice::put_str(buf, "b", "text");
            })
            .unwrap();
        let mut expected = DocBuf::new();
        expected.append("n", 3).append("ok", 1.0).append("a", 7).append("b", "text");
        assert_eq!(reply.body(), expected.as_doc());
        for flags in [MsgFlags::NONE, MsgFlags::CHECKSUM_PRESENT] {
            let mut copy = BytesMut::new();
            OpMsgWriter::write(&mut copy, 0, 0, MsgFlags::NONE, reply.body()).unwrap();
            let passed_on = self::reply(copy).unwrap().into_frame(41, 42, flags);
            let parsed = parse(passed_on).unwrap();
            assert_eq!((parsed.header().request_id, parsed.header().response_to), (41, 42));
            assert_eq!(parsed.has_checksum(), flags == MsgFlags::CHECKSUM_PRESENT);
            assert_eq!(parsed.body(), expected.as_doc());
        }
        assert_eq!(reply.into_body(), expected.as_bytes());
    }
}

#[test]
fn a_tail_can_be_cut_anywhere_without_a_panic() {
    let length = answer().as_bytes().len();
    for keep in 0..length + 10 {
        let mut reply = reply(op_msg(0, &[&body(answer().as_bytes())])).unwrap();
        reply.replace_tail(keep, |_| {}).unwrap();
        assert_eq!(reply.len(), reply.body_range().end);
        assert!(Doc::new(reply.body_bytes()).is_ok(), "{keep}");
    }
    let mut whole = reply(op_msg(0, &[&body(answer().as_bytes())])).unwrap();
    whole.replace_tail(length - 1, |_| {}).unwrap();
    assert_eq!(whole.body(), answer().as_doc());
}

#[test]
fn an_answer_must_be_to_the_question_and_have_a_body_and_no_more() {
    let good = body(ping().as_bytes());
    let reply_to = |response_to: i32| {
        let mut bytes = op_msg(0, &[&good]);
        wire::set_response_to(&mut bytes, response_to);
        reply(bytes).unwrap()
    };
    assert!(reply_to(5).expect_response_to(5).is_ok());
    assert!(matches!(reply_to(5).expect_response_to(6), Err(WireError::ResponseTo { expected: 6, got: 5 })));

    let documents = sequence("documents", ping().as_bytes(), None);
    for bytes in [
        op_msg(0, &[]),
        op_msg(0, &[&documents]),
        op_msg(0, &[&good, &documents]),
        op_msg(0, &[&good, &good]),
        op_msg(0, &[&good, &[0]]),
        op_msg(4, &[&good]),
        message(1, &[0; 30]),
        message(2013, &[0; 2]),
    ] {
        assert!(reply(bytes.clone()).is_err(), "{bytes:?}");
    }
    let more = reply(op_msg(2, &[&good])).unwrap();
    assert!(more.more_to_come());
    assert!(!parse(more.into_frame(0, 0, MsgFlags::NONE)).unwrap().more_to_come());
}

#[test]
fn a_corrupt_answer_reads_as_an_empty_one_at_worst() {
    let mut bytes = BytesMut::from(answer().as_bytes());
    bytes[6] = 0x44;
    let reply = reply(op_msg(0, &[&body(&bytes)])).unwrap();
    assert_eq!(reply.body().get("ok"), None);
    let mut edited = reply;
    edited.replace_tail(4, |buf| buf.put_slice(&[10, b'x', 0])).unwrap();
    assert!(edited.body().contains("x"));
}
