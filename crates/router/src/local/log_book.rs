//! The last lines of the log, for `getLog`, and how much is logged.
//!
//! The binary's subscriber writes into it and asks it for the level; `setParameter logLevel` changes the level. It is
//! the only thing that the router and the log share.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};

use document::{Doc, Value};
use parking_lot::Mutex;

pub use super::verbosity::{Component, Verbosities};

/// Lines kept, as in a mongod.
const LINES: usize = 1024;
/// A longer line is cut: the ring is bounded in bytes too.
const MAX_LINE_BYTES: usize = 10 * 1024;

/// The recent log.
#[derive(Debug, Default)]
pub struct LogBook {
    verbosities: Verbosities,
    global: Mutex<Ring>,
    start_warnings: Mutex<Ring>,
}

/// One named log.
#[derive(Debug, Default, Clone)]
pub struct Ring {
    /// All lines ever written.
    pub total: i64,
    /// The last of them.
    pub lines: VecDeque<Box<str>>,
}

impl Ring {
    fn push(&mut self, line: &str) {
        let mut end = line.len().min(MAX_LINE_BYTES);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.get(..end).unwrap_or_default().into());
        self.total += 1;
    }
}

impl LogBook {
    /// How much is logged, by component: 0 is information, each step more is another level of debugging.
    #[must_use]
    pub const fn verbosities(&self) -> &Verbosities {
        &self.verbosities
    }

    /// Changes what counts for components that have no verbosity of their own.
    pub fn set_verbosity(&self, verbosity: u8) {
        self.verbosities.set_default(verbosity);
        self.changed();
    }

    /// Is more than information wanted of this component?
    #[must_use]
    pub fn is_verbose(&self, component: Component) -> bool {
        self.verbosities.highest() > 0 && self.verbosities.level(component) > 0
    }

    /// A verbosity was changed: places in the code that were found to be silent before are asked again.
    pub(super) fn changed(&self) {
        self.verbosities.find_highest();
        tracing::callsite::rebuild_interest_cache();
    }

    /// Keeps a line.
    pub fn keep(&self, line: &str, start_warning: bool) {
        self.global.lock().push(line);
        if start_warning {
            self.start_warnings.lock().push(line);
        }
    }

    /// A copy of the log of this name.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<Ring> {
        match name {
            "global" => Some(self.global.lock().clone()),
            "startupWarnings" => Some(self.start_warnings.lock().clone()),
            _ => None,
        }
    }
}

/// A document as relaxed extended JSON, for log lines.
#[derive(Debug, Clone, Copy)]
pub struct Json<'a>(pub Doc<'a>);

impl Display for Json<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_document(f, self.0, false)
    }
}

fn write_document(f: &mut impl fmt::Write, doc: Doc<'_>, array: bool) -> fmt::Result {
    f.write_str(if array { "[" } else { "{" })?;
    for (index, field) in doc.iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        if !array {
            write_json_string(f, field.name())?;
            f.write_str(":")?;
        }
        write_value(f, field.value())?;
    }
    f.write_str(if array { "]" } else { "}" })
}

pub(super) fn write_value(f: &mut impl fmt::Write, value: Value<'_>) -> fmt::Result {
    match value {
        Value::Document(doc) => write_document(f, doc, false),
        Value::Array(doc) => write_document(f, doc, true),
        Value::Bool(flag) => write!(f, "{flag}"),
        Value::Int32(n) => write!(f, "{n}"),
        Value::Int64(n) => write!(f, "{n}"),
        Value::Double(n) if n.is_finite() => write!(f, "{n:?}"),
        Value::Double(n) => write!(f, "{{\"$numberDouble\":\"{n}\"}}"),
        Value::Null | Value::Undefined => f.write_str("null"),
        Value::String(_) => write_json_string(f, value.as_str().unwrap_or_default()),
        Value::DateTime(ms) => write!(f, "{{\"$date\":{{\"$numberLong\":\"{ms}\"}}}}"),
        Value::Timestamp(time) => {
            write!(f, "{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}", time.seconds, time.increment)
        }
        Value::ObjectId(id) => {
            f.write_str("{\"$oid\":\"")?;
            id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("\"}")
        }
        Value::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
            f.write_str("{\"$uuid\":\"")?;
            for (index, byte) in bytes.iter().enumerate() {
                f.write_str(if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" })?;
                write!(f, "{byte:02x}")?;
            }
            f.write_str("\"}")
        }
        // Rare in what is logged: readable beats exact.
        other => write_json_string(f, &format!("{other:?}")),
    }
}

/// A JSON string with its quotes.
pub fn write_json_string(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if u32::from(c) < 0x20 => write!(out, "\\u{:04x}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_last_lines_and_counts_all() {
        let book = LogBook::default();
        for n in 0..LINES + 3 {
            book.keep(&n.to_string(), n == 0);
        }
        let ring = book.read("global").unwrap();
        assert_eq!((ring.total, ring.lines.len()), (1027, LINES));
        assert_eq!(ring.lines.front().unwrap().as_ref(), "3");
        assert_eq!(book.read("startupWarnings").unwrap().total, 1);
        assert!(book.read("x").is_none());
    }

    #[test]
    fn documents_are_logged_as_json() {
        let doc = bson::rawdoc! { "a\"\n": [1, 2.0, null], "b": { "c": true, "d": "é\u{1}" } };
        let doc = Doc::new(doc.as_bytes()).unwrap();
        assert_eq!(Json(doc).to_string(), r#"{"a\"\n":[1,2.0,null],"b":{"c":true,"d":"é\u0001"}}"#);
    }
}
