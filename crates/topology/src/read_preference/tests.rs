//! Each row was sent to a mongod 6.0.5 as `$readPreference` of a ping.

use document::{DocBuf, Value};

use super::{ReadMode, ReadPreference};

fn doc(fill: impl FnOnce(&mut document::DocWriter<'_>)) -> DocBuf {
    let mut doc = DocBuf::new();
    doc.write(fill);
    doc
}

fn mode(name: &str, fill: impl FnOnce(&mut document::DocWriter<'_>)) -> DocBuf {
    doc(|w| {
        w.put("mode", name);
        fill(w);
    })
}

fn refusal(doc: &DocBuf) -> Option<(i32, String)> {
    ReadPreference::from_doc(doc.as_doc()).err().map(|error| (error.code(), error.to_string()))
}

#[test]
fn what_a_server_refuses_is_refused_with_its_words() {
    let rows = [
        (doc(|_| {}), 4, "Missing expected field \"mode\""),
        (doc(|w| w.put("mode", 5)), 14, "\"mode\" had the wrong type. Expected string, found int"),
        (
            mode("foo", |_| {}),
            2,
            "Could not parse $readPreference mode 'foo'. Only the modes 'primary', 'primaryPreferred', 'secondary', \
             'secondaryPreferred', and 'nearest' are supported. :: caused by :: Enumeration value 'foo' for field \
             'mode' is not a valid value.",
        ),
        (
            mode("primary", |w| w.array("tags", [1], |w, index, _| w.doc(index, |w| w.put("a", "b")))),
            2,
            "Only empty tags are allowed with primary read preference",
        ),
        (
            mode("secondary", |w| w.put("tags", "x")),
            14,
            "\"tags\" had the wrong type. Expected array, found string",
        ),
        (
            mode("primary", |w| w.put("maxStalenessSeconds", 100)),
            2,
            "maxStalenessSeconds can not be set for the primary mode",
        ),
        (
            mode("primary", |w| w.put("maxStalenessSeconds", 50)),
            160,
            "maxStalenessSeconds value can not be less than 90",
        ),
        (
            mode("secondary", |w| w.put("maxStalenessSeconds", "x")),
            14,
            "Expected field \"maxStalenessSeconds\" to have numeric type, but found string",
        ),
        (
            mode("secondary", |w| w.put("maxStalenessSeconds", -1)),
            2,
            "maxStalenessSeconds must be a non-negative integer",
        ),
        (
            mode("secondary", |w| w.put("maxStalenessSeconds", 90.5)),
            2,
            "Expected field \"maxStalenessSeconds\" to have a value exactly representable as a 64-bit integer, but \
             found maxStalenessSeconds: 90.5",
        ),
        (
            mode("primary", |w| w.doc("hedge", |_| {})),
            72,
            "cannot enable hedging for $readPreference mode \"primaryOnly\"",
        ),
        (
            mode("nearest", |w| w.doc("hedge", |w| w.put("enabled", 5))),
            14,
            "BSON field 'hedge.enabled' is the wrong type 'int', expected type 'bool'",
        ),
        (
            mode("nearest", |w| w.doc("hedge", |w| w.put("x", 1))),
            40415,
            "BSON field 'hedge.x' is an unknown field.",
        ),
    ];
    for (doc, code, text) in rows {
        assert_eq!(refusal(&doc), Some((code, text.to_owned())), "{doc:?}");
    }
    let error = ReadPreference::parse(Value::from("x")).unwrap_err();
    assert_eq!(error.code(), 14);
    assert_eq!(error.to_string(), "$readPreference has incorrect type: expected object but got string");
}

#[test]
fn what_a_server_takes_is_taken() {
    let rows = [
        mode("primary", |w| w.array("tags", [1], |w, index, _| w.doc(index, |_| {}))),
        mode("primary", |w| w.put("maxStalenessSeconds", 0)),
        mode("primary", |w| w.doc("hedge", |w| w.put("enabled", false))),
        mode("secondary", |w| w.array("tags", [5], |w, index, value| w.put(index, value))),
        mode("secondary", |w| w.put("maxStalenessSeconds", 90.0)),
        mode("secondary", |w| w.put("maxStalenessSeconds", 1_i64 << 40)),
        mode("nearest", |w| w.put("other", 1)),
    ];
    for doc in rows {
        assert_eq!(refusal(&doc), None, "{doc:?}");
    }
}

#[test]
fn it_is_printed_and_sent_on_as_it_was_read() {
    let sent = mode("secondary", |w| {
        w.array("tags", [Some("ny"), None], |w, index, value| {
            w.doc(index, |w| value.into_iter().for_each(|value| w.put("dc", value)));
        });
        w.put("maxStalenessSeconds", 120_i64);
        w.doc("hedge", |w| w.put("enabled", true));
    });
    let preference = ReadPreference::from_doc(sent.as_doc()).unwrap();
    assert_eq!(preference.to_doc(), sent);
    assert_eq!(
        preference.to_string(),
        "{ mode: \"secondary\", tags: [ { dc: \"ny\" }, {} ], maxStalenessSeconds: 120, hedge: { enabled: true } }"
    );
    assert_eq!(ReadPreference::of(ReadMode::Nearest).to_string(), "{ mode: \"nearest\" }");
}
