//! Dotted paths (`a.b.0.c`), with the server's array semantics.

use crate::value::Value;
use crate::view::Doc;

/// What a dotted path finds when arrays are not looked into: how a shard key reads a document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found<'a> {
    /// The value at the end of the path (which may itself be an array).
    Value(Value<'a>),
    /// Nothing there: a field is missing, or the path leads through something that is no document.
    Missing,
    /// An array stands on the way: the path has many answers.
    Array,
}

/// Follows `path` through sub-documents only.
#[must_use]
pub fn lookup<'a>(doc: Doc<'a>, path: &str) -> Found<'a> {
    let mut doc = doc;
    let mut rest = path;
    loop {
        let (head, tail) = match rest.split_once('.') {
            Some((head, tail)) => (head, Some(tail)),
            None => (rest, None),
        };
        let Some(value) = doc.get(head) else { return Found::Missing };
        let Some(tail) = tail else { return Found::Value(value) };
        match value {
            Value::Document(inner) => {
                doc = inner;
                rest = tail;
            }
            Value::Array(_) => return Found::Array,
            _ => return Found::Missing,
        }
    }
}

/// Calls `visit` with every value that `path` reaches, looking into arrays on the way as a query does: by index when
/// the next part is a number, and into each sub-document element. An array at the end of the path is visited whole.
pub fn visit<'a>(doc: Doc<'a>, path: &str, visit: &mut impl FnMut(Value<'a>)) {
    let (head, tail) = match path.split_once('.') {
        Some((head, tail)) => (head, Some(tail)),
        None => (path, None),
    };
    let Some(value) = doc.get(head) else { return };
    let Some(tail) = tail else {
        visit(value);
        return;
    };
    match value {
        Value::Document(inner) => self::visit(inner, tail, visit),
        Value::Array(items) => {
            let part = tail.split('.').next().unwrap_or(tail);
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                self::visit(items, tail, visit);
            }
            for item in items {
                if let Value::Document(inner) = item.value() {
                    self::visit(inner, tail, visit);
                }
            }
        }
        _ => {}
    }
}
