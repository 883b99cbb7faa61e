//! Documents in error texts, as the server prints them: `{ a: 1, b: "x" }`.

use std::fmt::{self, Display, Formatter, Write};

use document::{Doc, Value};

/// Longest text of one document: an error must not carry a client's 16 MB back to it.
const MAX_CHARS: usize = 2_000;

/// Prints a document as the server's messages do, cut off when it is long.
pub(super) struct ShellText<'a>(pub(super) Doc<'a>);

impl Display for ShellText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = Bounded { text: String::new() };
        // An error here only says that the text is full.
        if write_doc(&mut text, self.0).is_err() {
            text.text.push_str("...");
        }
        f.write_str(&text.text)
    }
}

/// Takes text up to its bound, then fails.
struct Bounded {
    text: String,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let left = MAX_CHARS.saturating_sub(self.text.len());
        if part.len() <= left {
            self.text.push_str(part);
            return Ok(());
        }
        let cut = (0..=left).rev().find(|at| part.is_char_boundary(*at)).unwrap_or(0);
        self.text.push_str(part.get(..cut).unwrap_or_default());
        Err(fmt::Error)
    }
}

fn write_doc(out: &mut Bounded, doc: Doc<'_>) -> fmt::Result {
    if doc.is_empty() {
        return out.write_str("{}");
    }
    let mut separator = "{ ";
    for field in doc {
        write!(out, "{separator}{}: ", field.name())?;
        write_value(out, field.value())?;
        separator = ", ";
    }
    out.write_str(" }")
}

fn write_value(out: &mut Bounded, value: Value<'_>) -> fmt::Result {
    let text = |bytes| String::from_utf8_lossy(bytes);
    match value {
        // A double shows its point.
        Value::Double(n) if n.fract() == 0.0 && n.abs() < 1e15 => write!(out, "{n:.1}"),
        Value::Double(n) => write!(out, "{n}"),
        Value::String(s) | Value::Symbol(s) => write!(out, "\"{}\"", text(s)),
        Value::Document(doc) => write_doc(out, doc),
        Value::Array(items) if items.is_empty() => out.write_str("[]"),
        Value::Array(items) => {
            let mut separator = "[ ";
            for item in items {
                out.write_str(separator)?;
                write_value(out, item.value())?;
                separator = ", ";
            }
            out.write_str(" ]")
        }
        Value::Binary { subtype, bytes } => {
            write!(out, "BinData({subtype}, ")?;
            write_hex(out, bytes)?;
            out.write_str(")")
        }
        Value::Undefined => out.write_str("undefined"),
        Value::ObjectId(id) => {
            out.write_str("ObjectId('")?;
            write_hex(out, &id)?;
            out.write_str("')")
        }
        Value::Bool(flag) => write!(out, "{flag}"),
        Value::DateTime(ms) => write!(out, "new Date({ms})"),
        Value::Null => out.write_str("null"),
        Value::Regex { pattern, options } => write!(out, "/{}/{}", text(pattern), text(options)),
        Value::DbPointer { namespace, id } => {
            write!(out, "DBRef('{}',", text(namespace))?;
            write_hex(out, &id)?;
            out.write_str(")")
        }
        Value::JavaScript(code) | Value::JavaScriptWithScope { code, .. } => out.write_str(&text(code)),
        Value::Int32(n) => write!(out, "{n}"),
        Value::Int64(n) => write!(out, "{n}"),
        Value::Timestamp(time) => write!(out, "Timestamp({}, {})", time.seconds, time.increment),
        Value::Decimal128(_) => out.write_str("NumberDecimal(...)"),
        Value::MinKey => out.write_str("MinKey"),
        Value::MaxKey => out.write_str("MaxKey"),
    }
}

fn write_hex(out: &mut Bounded, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_look_as_in_the_servers_messages_and_are_cut_off() {
        let doc = bson::rawdoc! { "q": { "a": { "$gte": 99 } }, "s": "x", "d": 1.0, "f": 1.5, "l": [1, 2_i64], "e": {}, "n": [] };
        let doc = Doc::new(doc.as_bytes()).unwrap();
        assert_eq!(
            ShellText(doc).to_string(),
            "{ q: { a: { $gte: 99 } }, s: \"x\", d: 1.0, f: 1.5, l: [ 1, 2 ], e: {}, n: [] }"
        );
        let long = bson::rawdoc! { "s": "ä".repeat(5_000) };
        let text = ShellText(Doc::new(long.as_bytes()).unwrap()).to_string();
        assert!(text.len() < 2_100 && text.ends_with("..."), "{}", text.len());
    }
}
