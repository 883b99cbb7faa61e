//! What a client gets for a malformed message. Each row was sent to a mongod 6.0.5; code and text are its answer,
//! "close" means that it closed the connection.

use document::DocBuf;
use wire::{Disposition, MAX_INTERNAL_DOCUMENT_BYTES, OpQuery};

use crate::build::{body, frame, message, nested, op_msg, parse, ping, sequence, with_checksum};

/// Name, code, text (empty: any), sections.
type Row = (&'static str, Option<i32>, &'static str, Vec<Vec<u8>>);

const CLOSE: Option<i32> = None;

/// A document whose length says something else.
fn with_length(length: i32) -> Vec<u8> {
    let mut bytes = ping().into_bytes();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[test]
fn each_malformed_message_gets_what_a_server_answers() {
    let ping = ping().into_bytes();
    let good = body(&ping);
    let length = i32::try_from(ping.len()).unwrap();
    let documents = |bytes: &[u8], length| sequence("documents", bytes, length);
    let rows: Vec<Row> = vec![
        ("unknown kind", Some(40432), "Unknown section kind 5", vec![vec![5], ping.clone()]),
        ("unknown kind behind a body", Some(40432), "Unknown section kind 5", vec![good.clone(), vec![5]]),
        ("no body", Some(40587), "OP_MSG messages must have a body", vec![documents(&ping, None)]),
        ("nothing", Some(40587), "OP_MSG messages must have a body", vec![]),
        ("two bodies", Some(40430), "Multiple body sections in message", vec![good.clone(), good.clone()]),
        ("a lone kind byte", Some(40430), "Multiple body sections in message", vec![good.clone(), vec![0]]),
        (
            "two sequences of one name",
            Some(40431),
            "Duplicate document sequence: documents",
            vec![good.clone(), documents(&ping, None), documents(&ping, None)],
        ),
        (
            "a sequence and a field of one name",
            Some(40433),
            "Duplicate field between body and document sequence ping",
            vec![sequence("ping", &ping, None), good.clone()],
        ),
        ("a section past the end", Some(15), "", vec![good.clone(), documents(&ping, Some(5000))]),
        ("a negative section", Some(15), "", vec![good.clone(), documents(&ping, Some(-1))]),
        ("a section shorter than its length", Some(15), "", vec![good.clone(), documents(&ping, Some(3))]),
        (
            "an endless identifier",
            Some(15),
            "",
            vec![good.clone(), vec![1, 8, 0, 0, 0, b'a', b'b', b'c', b'd']],
        ),
        ("half a section length", Some(15), "", vec![good.clone(), vec![1, 5, 0]]),
        (
            "a document past its section",
            Some(22),
            "",
            vec![good.clone(), documents(&ping[..ping.len() - 1], None)],
        ),
        ("a body past the end", Some(22), "", vec![body(&with_length(500))]),
        ("a body that ends early", Some(22), "", vec![body(&with_length(length - 1))]),
        ("a negative body", Some(22), "", vec![body(&with_length(-1))]),
        ("a body of four bytes", Some(22), "", vec![body(&with_length(4))]),
        ("an unknown type", Some(22), "", vec![body(&[8, 0, 0, 0, 0x44, b'x', 0, 0])]),
        ("a string past the end", Some(22), "", vec![body(&[13, 0, 0, 0, 2, b'x', 0, 255, 0, 0, 0, 0, 0])]),
        ("a bool of two", Some(22), "", vec![body(&[9, 0, 0, 0, 8, b'x', 0, 2, 0])]),
        ("201 levels", Some(15), "", vec![body(nested(201).as_bytes())]),
        ("300 levels", Some(15), "", vec![body(nested(300).as_bytes())]),
        (
            "201 levels in a sequence",
            Some(15),
            "",
            vec![good.clone(), documents(nested(201).as_bytes(), None)],
        ),
    ];
    for (name, code, text, sections) in rows {
        let sections: Vec<&[u8]> = sections.iter().map(Vec::as_slice).collect();
        for bytes in [op_msg(0, &sections), with_checksum(&sections)] {
            let error = parse(bytes).expect_err(name);
            assert_eq!(error.code(), code, "{name}: {error}");
            if !text.is_empty() {
                assert_eq!(error.to_string(), text, "{name}");
            }
        }
    }
}

#[test]
fn what_a_server_lets_pass_passes() {
    let good = body(ping().as_bytes());
    let rows: Vec<(&str, u32, Vec<Vec<u8>>)> = vec![
        ("a plain command", 0, vec![good.clone()]),
        ("an unknown optional flag", 1 << 17, vec![good.clone()]),
        ("exhaust", 1 << 16, vec![good.clone()]),
        ("no answer wanted", 2, vec![good.clone()]),
        ("200 levels", 0, vec![body(nested(200).as_bytes())]),
        ("200 levels in a sequence", 0, vec![good.clone(), sequence("d", nested(200).as_bytes(), None)]),
        ("an empty sequence", 0, vec![good.clone(), sequence("d", b"", None)]),
        ("a sequence before the body", 0, vec![sequence("d", ping().as_bytes(), None), good.clone()]),
        ("invalid UTF-8", 0, vec![body(&[15, 0, 0, 0, 2, b'x', 0, 3, 0, 0, 0, 0xff, 0xfe, 0, 0])]),
    ];
    for (name, flags, sections) in rows {
        let sections: Vec<&[u8]> = sections.iter().map(Vec::as_slice).collect();
        let parsed = parse(op_msg(flags, &sections)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(parsed.flags().bits(), flags);
    }
}

#[test]
fn broken_envelopes_close_the_connection() {
    let good = body(ping().as_bytes());
    let mut wrong_checksum = with_checksum(&[&good]);
    let last = wrong_checksum.len() - 1;
    wrong_checksum[last] ^= 1;
    let rows = [
        ("required flag 2", op_msg(1 << 2, &[&good])),
        ("required flag 15", op_msg(1 << 15, &[&good])),
        ("wrong checksum", wrong_checksum),
        ("a checksum and nothing else", message(2013, &[1, 0, 0, 0])),
        ("no flags", message(2013, &[])),
        ("opcode 99", message(99, &[0; 40])),
    ];
    for (name, bytes) in rows {
        let error = parse(bytes).expect_err(name);
        assert_eq!(error.disposition(), Disposition::Close, "{name}: {error}");
        assert_eq!(error.code(), CLOSE);
    }
}

#[test]
fn a_document_above_the_limit_is_refused_with_its_size() {
    let sized = |size: usize| {
        let mut doc = DocBuf::new();
        // Type, name, length, terminator, and the document's own five bytes.
        doc.append("x", &"x".repeat(size - 13));
        assert_eq!(doc.as_bytes().len(), size);
        doc
    };
    let good = body(ping().as_bytes());
    let most = sized(MAX_INTERNAL_DOCUMENT_BYTES);
    parse(op_msg(0, &[&body(most.as_bytes())])).unwrap();
    let large = sized(MAX_INTERNAL_DOCUMENT_BYTES + 1);
    for sections in
        [vec![body(large.as_bytes())], vec![good.clone(), sequence("documents", large.as_bytes(), None)]]
    {
        let sections: Vec<&[u8]> = sections.iter().map(Vec::as_slice).collect();
        let error = parse(op_msg(0, &sections)).unwrap_err();
        assert_eq!(error.code(), Some(10334));
        assert_eq!(
            error.to_string(),
            "BSONObj size: 16793601 (0x1004001) is invalid. Size must be between 0 and 16793600(16MB)"
        );
    }
}

#[test]
fn a_malformed_query_is_an_error_and_its_fields_selector_is_not() {
    let mut start = vec![0; 4];
    start.extend_from_slice(b"admin.$cmd\0");
    start.extend_from_slice(&[0; 4]);
    start.extend_from_slice(&[255; 4]);
    let query = |rest: &[u8]| frame(message(2004, &[&start, rest].concat())).and_then(OpQuery::parse);
    let doc = ping().into_bytes();
    let parsed = query(&doc).unwrap();
    assert_eq!(parsed.namespace(), "admin.$cmd");
    assert_eq!(parsed.command_database(), Some("admin"));
    assert_eq!(parsed.command().first().unwrap().name(), "ping");
    assert!(query(&[doc.as_slice(), doc.as_slice()].concat()).is_ok());

    let mut wrapped = DocBuf::new();
    wrapped.append("$query", &ping()).append("$readPreference", &DocBuf::new());
    assert_eq!(query(wrapped.as_bytes()).unwrap().command().first().unwrap().name(), "ping");

    assert_eq!(query(&doc[..doc.len() - 3]).unwrap_err().code(), Some(22));
    assert_eq!(query(nested(300).as_bytes()).unwrap_err().code(), Some(15));
    for cut in 0..start.len() {
        let bytes = message(2004, &start[..cut]);
        assert!(frame(bytes).and_then(OpQuery::parse).is_err(), "{cut} bytes");
    }
}
