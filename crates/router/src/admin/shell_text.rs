//! Documents in error texts, as the server prints them: `{ a: 1, b: "x" }`.

use std::fmt::{Display, Formatter, Result};

use document::{Doc, Value};

/// A document, or the bounds of a chunk, in the server's words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shell<'a>(pub(super) Doc<'a>);

impl Display for Shell<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.0.is_empty() {
            return f.write_str("{}");
        }
        for (index, field) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "{ " } else { ", " })?;
            write!(f, "{}: ", field.name())?;
            value(f, field.value())?;
        }
        f.write_str(" }")
    }
}

fn value(f: &mut Formatter<'_>, value: Value<'_>) -> Result {
    match value {
        Value::Double(n) if n.fract() == 0.0 => write!(f, "{n:.1}"),
        Value::Double(n) => write!(f, "{n}"),
        Value::String(text) => write!(f, "\"{}\"", String::from_utf8_lossy(text)),
        Value::Document(doc) => Shell(doc).fmt(f),
        Value::Array(items) if items.is_empty() => f.write_str("[]"),
        Value::Array(items) => {
            f.write_str("[")?;
            for (index, item) in items.iter().enumerate() {
                f.write_str(if index == 0 { " " } else { ", " })?;
                self::value(f, item.value())?;
            }
            f.write_str(" ]")
        }
        Value::ObjectId(id) => {
            f.write_str("ObjectId('")?;
            id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("')")
        }
        Value::Bool(flag) => write!(f, "{flag}"),
        Value::DateTime(ms) => write!(f, "new Date({ms})"),
        Value::Null => f.write_str("null"),
        Value::Undefined => f.write_str("undefined"),
        Value::Int32(n) => write!(f, "{n}"),
        Value::Int64(n) => write!(f, "{n}"),
        Value::Timestamp(time) => write!(f, "Timestamp({}, {})", time.seconds, time.increment),
        Value::MinKey => f.write_str("MinKey"),
        Value::MaxKey => f.write_str("MaxKey"),
        Value::Binary { subtype, bytes } => {
            write!(f, "BinData({subtype}, ")?;
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
            f.write_str(")")
        }
        other => write!(f, "{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_read_as_the_server_prints_them() {
        for (doc, text) in [
            (bson::rawdoc! {}, "{}"),
            (bson::rawdoc! { "a": 1, "b": "x" }, r#"{ a: 1, b: "x" }"#),
            (bson::rawdoc! { "a": 1.0, "b": [1, { "c": null }] }, "{ a: 1.0, b: [ 1, { c: null } ] }"),
            (bson::rawdoc! { "a": bson::RawBson::MinKey, "b": true }, "{ a: MinKey, b: true }"),
        ] {
            assert_eq!(Shell(Doc::new(doc.as_bytes()).unwrap()).to_string(), text);
        }
    }
}
