//! Views over bytes of any kind, and edits of documents that are valid.
#![no_main]

use bytes::BytesMut;
use document::splice::{Keep, copy_fields, open};
use document::{Doc, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // A view over anything ends, whatever it sees.
    if let Ok(doc) = Doc::new(data) {
        walk(doc, 0);
    }
    let Ok(doc) = Doc::validate(data) else { return };
    let mut fields = doc.iter();
    let count = fields.by_ref().count();
    assert!(!fields.is_malformed(), "a valid document reads to its end");
    walk(doc, 0);

    let mut copy = BytesMut::new();
    let writing = open(&mut copy);
    copy_fields(doc, &mut copy, |_| Keep::Yes);
    writing.finish(&mut copy);
    assert_eq!(&copy[..], data, "a copy of all fields is the document");

    let mut every_other = 0;
    let mut copy = BytesMut::new();
    let writing = open(&mut copy);
    copy_fields(doc, &mut copy, |_| {
        every_other += 1;
        if every_other % 2 == 0 { Keep::Yes } else { Keep::No }
    });
    writing.finish(&mut copy);
    let half = Doc::validate(&copy).expect("some fields of a valid document are a valid document");
    assert_eq!(half.iter().count(), count / 2);

    // The bson crate sees the same fields, where it can read the document.
    if let Ok(theirs) = bson::RawDocument::from_bytes(data) {
        let names: Result<Vec<_>, _> =
            theirs.iter().map(|field| field.map(|(name, _)| name.as_str())).collect();
        if let Ok(names) = names {
            assert!(names.into_iter().eq(doc.iter().map(|field| field.name())));
        }
    }
});

/// Looks at every value of every level.
fn walk(doc: Doc<'_>, depth: usize) {
    for field in doc.iter() {
        let _ =
            (field.name(), field.raw().len(), doc.offset_of(field.raw()).expect("a field is a part of it"));
        let _ = document::path::lookup(doc, "a.b.0");
        match field.value() {
            Value::Document(inner)
            | Value::Array(inner)
            | Value::JavaScriptWithScope { scope: inner, .. }
                if depth < document::MAX_DEPTH =>
            {
                walk(inner, depth + 1);
            }
            value => {
                let _ = (value.as_str(), value.as_i64(), value.is_truthy());
            }
        }
    }
}
