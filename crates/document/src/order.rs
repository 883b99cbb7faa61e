//! The server's total order over BSON values, as its indexes and chunk bounds have it (simple collation).
//!
//! Types order by class first ([`type_class`]); inside a class by value. Numbers of the four numeric types form one
//! class and compare by their exact mathematical value ([`number`]). Checked against a 6.0.5 mongod's sort order:
//! `testdata/order-6.0.5.jsonl` holds what it answered.

pub mod decimal;
pub mod number;

use std::cmp::Ordering;

use crate::value::{ElementType, Value};
use crate::view::Doc;
use number::Number;

/// Do the field names of a document take part in a comparison?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldNames {
    /// As in values: `{a: 1} < {b: 1}`.
    Compared,
    /// As in index keys and chunk bounds: values alone, in order.
    Ignored,
}

/// The rank of a type's class; types of one rank compare by value.
#[must_use]
pub const fn type_class(kind: ElementType) -> i8 {
    match kind {
        ElementType::MinKey => -1,
        ElementType::Undefined => 0,
        ElementType::Null => 5,
        ElementType::Double | ElementType::Int32 | ElementType::Int64 | ElementType::Decimal128 => 10,
        ElementType::String | ElementType::Symbol => 15,
        ElementType::Document => 20,
        ElementType::Array => 25,
        ElementType::Binary => 30,
        ElementType::ObjectId => 35,
        ElementType::Bool => 40,
        ElementType::DateTime => 45,
        ElementType::Timestamp => 47,
        ElementType::Regex => 50,
        ElementType::DbPointer => 55,
        ElementType::JavaScript => 60,
        ElementType::JavaScriptWithScope => 65,
        ElementType::MaxKey => 127,
    }
}

/// Compares two values as the server's indexes do.
#[must_use]
pub fn compare_values(left: Value<'_>, right: Value<'_>) -> Ordering {
    match (left, right) {
        // The shapes of most keys, without a detour.
        (Value::ObjectId(a), Value::ObjectId(b)) => return a.cmp(&b),
        (Value::String(a), Value::String(b)) => return a.cmp(b),
        (Value::Int32(a), Value::Int32(b)) => return a.cmp(&b),
        (Value::Int64(a), Value::Int64(b)) => return a.cmp(&b),
        _ => {}
    }
    let classes = type_class(left.element_type()).cmp(&type_class(right.element_type()));
    classes.then_with(|| compare_in_class(left, right))
}

/// Compares two documents field by field; a document that is a prefix of the other is the smaller one.
#[must_use]
pub fn compare_docs(left: Doc<'_>, right: Doc<'_>, names: FieldNames) -> Ordering {
    let (mut left, mut right) = (left.iter(), right.iter());
    loop {
        let (a, b) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let ordering = match names {
            FieldNames::Ignored => compare_values(a.value(), b.value()),
            // The class of the value weighs more than the name of the field (seen on 6.0.5).
            FieldNames::Compared => type_class(a.element_type())
                .cmp(&type_class(b.element_type()))
                .then_with(|| a.name_bytes().cmp(b.name_bytes()))
                .then_with(|| compare_values(a.value(), b.value())),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

fn compare_in_class(left: Value<'_>, right: Value<'_>) -> Ordering {
    if let (Some(a), Some(b)) = (Number::new(left), Number::new(right)) {
        return a.compare(b);
    }
    match (left, right) {
        (Value::String(a) | Value::Symbol(a), Value::String(b) | Value::Symbol(b))
        | (Value::JavaScript(a), Value::JavaScript(b)) => a.cmp(b),
        (Value::Document(a), Value::Document(b)) => compare_docs(a, b, FieldNames::Compared),
        (Value::Array(a), Value::Array(b)) => compare_docs(a, b, FieldNames::Ignored),
        (Value::Binary { subtype: s, bytes: a }, Value::Binary { subtype: t, bytes: b }) => {
            a.len().cmp(&b.len()).then(s.cmp(&t)).then_with(|| a.cmp(b))
        }
        (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(&b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(&b),
        (Value::DateTime(a), Value::DateTime(b)) => a.cmp(&b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(&b),
        (Value::Regex { pattern: a, options: f }, Value::Regex { pattern: b, options: g }) => {
            a.cmp(b).then_with(|| f.cmp(g))
        }
        (Value::DbPointer { namespace: a, id: i }, Value::DbPointer { namespace: b, id: j }) => {
            // Of the name only the length counts (seen on 6.0.5).
            a.len().cmp(&b.len()).then_with(|| i.cmp(&j))
        }
        (
            Value::JavaScriptWithScope { code: a, scope: s },
            Value::JavaScriptWithScope { code: b, scope: t },
        ) => a.cmp(b).then_with(|| compare_docs(s, t, FieldNames::Compared)),
        // Null, undefined, MinKey, MaxKey: one value a class.
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests;
