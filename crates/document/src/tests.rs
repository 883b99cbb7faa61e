use bson::{Bson, doc};
use bytes::BytesMut;
use proptest::prelude::*;

use crate::path::{Found, lookup, visit};
use crate::splice::{self, Keep};
use crate::{Doc, DocBuf, DocumentError, MAX_DEPTH, Timestamp, Value};

fn encode(document: &bson::Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

fn any_bson() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        any::<f64>().prop_map(Bson::Double),
        ".{0,12}".prop_map(Bson::String),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<i64>().prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(ms))),
        any::<[u8; 12]>().prop_map(|id| Bson::ObjectId(bson::oid::ObjectId::from_bytes(id))),
        any::<[u8; 16]>().prop_map(|b| Bson::Decimal128(bson::Decimal128::from_bytes(b))),
        (any::<u32>(), any::<u32>())
            .prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Bson::Binary(bson::Binary {
            subtype: bson::spec::BinarySubtype::Generic,
            bytes
        })),
        Just(Bson::Null),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
        Just(Bson::Undefined),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Bson::Array),
            proptest::collection::vec(("[a-z]{0,5}", inner), 0..6)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}

fn any_document() -> impl Strategy<Value = bson::Document> {
    proptest::collection::vec(("[a-z]{1,5}", any_bson()), 0..8)
        .prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #[test]
    fn what_bson_writes_is_valid_and_reads_back_field_by_field(document in any_document()) {
        let bytes = encode(&document);
        let view = Doc::validate(&bytes).unwrap();
        prop_assert_eq!(view.iter().count(), document.len());
        for (field, (name, _)) in view.iter().zip(document.iter()) {
            prop_assert_eq!(field.name(), name.as_str());
        }
        // Rebuilding every field from its decoded value gives the same bytes.
        let mut copy = DocBuf::new();
        for field in view {
            copy.append(field.name(), field.value());
        }
        prop_assert_eq!(copy.as_bytes(), &bytes[..]);
    }

    #[test]
    fn a_changed_byte_never_panics_and_agrees_with_the_bson_crate_on_structure(
        document in any_document(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = encode(&document);
        let index = at.index(bytes.len());
        bytes[index] = byte;
        let ours = Doc::validate(&bytes);
        if let Ok(view) = Doc::new(&bytes) {
            for field in view { let _ = format!("{field:?}"); }
        }
        // What the bson crate can decode entirely, we call valid.
        if bson::Document::from_reader(&bytes[..]).is_ok_and(|d| encode(&d) == bytes) {
            prop_assert!(ours.is_ok(), "{:?}", ours);
        }
    }

    #[test]
    fn cut_off_documents_are_refused(document in any_document(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&document);
        let end = at.index(bytes.len());
        prop_assert!(Doc::validate(&bytes[..end]).is_err());
    }

    #[test]
    fn a_splice_drops_and_adds_only_what_it_is_told(document in any_document()) {
        let bytes = encode(&document);
        let mut out = BytesMut::new();
        let open = splice::open(&mut out);
        splice::copy_fields(Doc::new(&bytes).unwrap(), &mut out, |name| {
            if name.first().is_some_and(|c| *c < b'm') { Keep::No } else { Keep::Yes }
        });
        splice::put_i64(&mut out, "added", 7);
        open.finish(&mut out);
        let mut expected: bson::Document =
            document.into_iter().filter(|(name, _)| !name.starts_with(|c: char| c < 'm')).collect();
        expected.insert("added", 7_i64);
        prop_assert_eq!(&out[..], &encode(&expected)[..]);
    }
}

#[test]
fn nesting_is_limited_as_the_server_limits_it() {
    let nested = |levels: usize| {
        let mut document = doc! {};
        for _ in 0..levels {
            document = doc! { "a": document };
        }
        encode(&document)
    };
    assert!(Doc::validate(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(Doc::validate(&nested(MAX_DEPTH + 1)), Err(DocumentError::Depth));
    assert_eq!(DocumentError::Depth.code(), 15);
}

#[test]
fn hostile_lengths_are_errors() {
    for bytes in [
        &[][..],
        &[5, 0, 0][..],
        &[4, 0, 0, 0][..],
        &[0xFF, 0xFF, 0xFF, 0x7F, 0][..],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0][..],
        &[6, 0, 0, 0, 0, 0][..],
        // {a: <string of length 0>}, {a: <string past the end>}, {a: <document past the end>}
        &[12, 0, 0, 0, 2, b'a', 0, 0, 0, 0, 0, 0][..],
        &[12, 0, 0, 0, 2, b'a', 0, 9, 0, 0, 0, 0][..],
        &[12, 0, 0, 0, 3, b'a', 0, 9, 0, 0, 0, 0][..],
    ] {
        assert!(Doc::validate(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn paths_walk_documents_and_stop_at_arrays() {
    let bytes = encode(&doc! { "a": { "b": { "c": 5 } }, "list": [{ "x": 1 }, { "x": 2 }], "n": 3 });
    let view = Doc::new(&bytes).unwrap();
    assert_eq!(lookup(view, "a.b.c"), Found::Value(Value::Int32(5)));
    assert_eq!(lookup(view, "a.b.z"), Found::Missing);
    assert_eq!(lookup(view, "n.b"), Found::Missing);
    assert_eq!(lookup(view, "list.x"), Found::Array);
    let mut seen = Vec::new();
    visit(view, "list.x", &mut |value| seen.push(value.as_i64()));
    visit(view, "list.1.x", &mut |value| seen.push(value.as_i64()));
    assert_eq!(seen, [Some(1), Some(2), Some(2)]);
}

#[test]
fn builder_writes_nested_documents() {
    let mut built = DocBuf::new();
    built.append("ok", 1.0).append_doc("cursor", |w| {
        w.put("id", 0_i64);
        w.array("firstBatch", [1, 2], |w, name, n| w.put(name, n));
    });
    built.append("t", Timestamp::new(7, 9));
    let expected = doc! {
        "ok": 1.0, "cursor": { "id": 0_i64, "firstBatch": [1, 2] },
        "t": bson::Timestamp { time: 7, increment: 9 },
    };
    assert_eq!(built.as_bytes(), &encode(&expected)[..]);
}
