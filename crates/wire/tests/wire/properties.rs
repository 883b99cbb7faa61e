//! Whatever comes, nothing panics, and what was written comes back.

use bytes::{Bytes, BytesMut};
use document::{Doc, DocBuf};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{
    Compressor, CompressorSet, Frame, MAX_CLIENT_MESSAGE_BYTES, MsgFlags, OpMsg, OpMsgWriter, OpQuery, Reply,
    compress_frame, cut_bytes, cut_frame,
};

use crate::build::message;

/// All that can be done with bytes from a stranger.
fn try_everything(bytes: &[u8]) {
    let mut buf = BytesMut::from(bytes);
    while let Ok(Some(frame)) = cut_frame(&mut buf, MAX_CLIENT_MESSAGE_BYTES) {
        let Ok(frame) = frame.decompress(CompressorSet::ALL, MAX_CLIENT_MESSAGE_BYTES) else { continue };
        if let Ok(msg) = OpMsg::parse(frame.clone()) {
            assert!(Doc::validate(&msg.body_bytes()).is_ok());
            for sequence in msg.sequences() {
                assert_eq!(sequence.documents().count(), sequence.len());
            }
        }
        if let Ok(query) = OpQuery::parse(frame) {
            let _ = (query.namespace(), query.command().iter().count());
        }
    }
    let mut buf = BytesMut::from(bytes);
    while let Ok(Some((header, frame))) = cut_bytes(&mut buf, MAX_CLIENT_MESSAGE_BYTES) {
        if let Ok(mut reply) = Reply::parse(header, frame) {
            let _ = reply.body().iter().count();
            reply.replace_tail(reply.body_bytes().len() / 2, |_| {}).unwrap();
            assert_eq!(reply.body().as_bytes(), reply.body_bytes());
        }
    }
}

fn document() -> impl Strategy<Value = DocBuf> {
    vec(("[a-z]{1,8}", prop_oneof![any::<i64>().prop_map(Ok), "[ -~]{0,20}".prop_map(Err)]), 0..8).prop_map(
        |fields| {
            let mut doc = DocBuf::new();
            for (name, value) in &fields {
                match value {
                    Ok(number) => doc.append(name, *number),
                    Err(text) => doc.append(name, text),
                };
            }
            doc
        },
    )
}

/// A good message: body, sequences with names that no field has, checksum or none.
fn good() -> impl Strategy<Value = (DocBuf, Vec<Vec<DocBuf>>, bool, Bytes)> {
    (document(), vec(vec(document(), 0..4), 0..3), any::<bool>()).prop_map(|(body, sequences, checksum)| {
        let mut buf = BytesMut::new();
        let flags = if checksum { MsgFlags::CHECKSUM_PRESENT } else { MsgFlags::NONE };
        let writer = OpMsgWriter::begin(&mut buf, 1, 2, flags);
        buf.extend_from_slice(body.as_bytes());
        for (index, documents) in sequences.iter().enumerate() {
            let sequence = writer.begin_sequence(&mut buf, &format!("SEQUENCE{index}"));
            documents.iter().for_each(|document| buf.extend_from_slice(document.as_bytes()));
            sequence.finish(&mut buf);
        }
        writer.finish(&mut buf).unwrap();
        (body, sequences, checksum, buf.freeze())
    })
}

proptest! {
    #[test]
    fn what_was_written_comes_back((body, sequences, checksum, bytes) in good(), id in 0u8..4) {
        let compressor = Compressor::from_id(id).unwrap();
        let mut compressed = BytesMut::new();
        compress_frame(compressor, &bytes, &mut compressed).unwrap();
        let opened = Frame::from_bytes(compressed.freeze(), MAX_CLIENT_MESSAGE_BYTES).unwrap()
            .decompress(CompressorSet::ALL, MAX_CLIENT_MESSAGE_BYTES).unwrap();
        prop_assert_eq!(opened.bytes(), &bytes);
        let parsed = OpMsg::parse(opened).unwrap();
        prop_assert_eq!(parsed.body(), body.as_doc());
        prop_assert_eq!(parsed.has_checksum(), checksum);
        prop_assert_eq!(parsed.sequences().len(), sequences.len());
        for (got, sent) in parsed.sequences().zip(&sequences) {
            let sent: Vec<_> = sent.iter().map(DocBuf::as_doc).collect();
            prop_assert_eq!(got.documents().collect::<Vec<_>>(), sent);
        }
    }

    #[test]
    fn a_message_with_a_changed_byte_never_panics(
        (_, _, checksum, bytes) in good(), at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let mut changed = bytes.to_vec();
        let at = at.index(changed.len());
        let is_change = std::mem::replace(&mut changed[at], to) != to;
        try_everything(&changed);
        // A checksum covers all but the length, which would be another message.
        if checksum && is_change && at >= 4 && at != 16 {
            let parsed = Frame::from_bytes(changed.into(), MAX_CLIENT_MESSAGE_BYTES).and_then(OpMsg::parse);
            prop_assert!(parsed.is_err());
        }
    }

    #[test]
    fn a_message_cut_short_never_panics((_, _, _, bytes) in good(), at in any::<prop::sample::Index>()) {
        let cut = &bytes[..at.index(bytes.len())];
        try_everything(cut);
        // Whole again by its header only.
        let mut whole = message(2013, cut.get(16..).unwrap_or_default());
        try_everything(&whole);
        whole.truncate(whole.len() / 2);
        try_everything(&whole);
    }

    #[test]
    fn noise_never_panics(opcode in prop_oneof![Just(2013), Just(2012), Just(2004), any::<i32>()], payload in vec(any::<u8>(), 0..200)) {
        try_everything(&message(opcode, &payload));
        try_everything(&payload);
    }
}
