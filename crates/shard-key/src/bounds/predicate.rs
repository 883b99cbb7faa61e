//! One predicate on one key field, and the set of values it can match.

use document::{Doc, ElementType, Field, Timestamp, Value};

use super::interval::{End, Interval, IntervalSet};
use super::regex;
use crate::collation::{Collation, is_collatable};
use crate::equality::is_operators;
use crate::hash;
use crate::key::Element;

/// Which side of a value a comparison wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
}

/// A predicate; values are fields, for their bytes go into bounds unchanged.
#[derive(Debug, Clone)]
pub(super) enum Predicate<'a> {
    /// Any of these values (regexes match by pattern).
    In(Vec<Field<'a>>),
    /// `$gt`, `$gte`, `$lt`, `$lte`: values of the same type only.
    Compare { side: Side, inclusive: bool, value: Field<'a> },
    /// `$exists: false`
    Missing,
    /// `$type` with one type.
    Type(ElementType),
    /// A complement, of what is exact.
    Not(Vec<Predicate<'a>>),
    /// Something that does not narrow the set.
    Unknown,
}

/// The predicates of `{$gt: 1, $lt: 5, ...}`, all of which must hold.
pub(super) fn parse(operators: Doc<'_>) -> Vec<Predicate<'_>> {
    let mut predicates = Vec::new();
    let compare = |side, inclusive, value| Predicate::Compare { side, inclusive, value };
    for operator in operators {
        predicates.push(match operator.name_bytes() {
            b"$eq" => Predicate::equals(operator),
            b"$gt" => compare(Side::Above, false, operator),
            b"$gte" => compare(Side::Above, true, operator),
            b"$lt" => compare(Side::Below, false, operator),
            b"$lte" => compare(Side::Below, true, operator),
            b"$in" => items(operator).map_or(Predicate::Unknown, Predicate::In),
            b"$ne" => Predicate::Not(vec![Predicate::equals(operator)]),
            b"$nin" => {
                items(operator).map_or(Predicate::Unknown, |items| Predicate::Not(vec![Predicate::In(items)]))
            }
            b"$not" => match operator.value() {
                Value::Document(inner) if is_operators(inner) => Predicate::Not(parse(inner)),
                _ => Predicate::Unknown,
            },
            b"$all" => {
                // Each item must match; an empty list matches nothing, and shards say so.
                let each = items(operator).unwrap_or_default();
                predicates.extend(each.into_iter().map(|item| match item.value() {
                    Value::Document(object) if is_operators(object) => Predicate::Unknown,
                    _ => Predicate::equals(item),
                }));
                continue;
            }
            b"$elemMatch" => {
                if let Value::Document(inner) = operator.value()
                    && is_operators(inner)
                {
                    predicates.extend(parse(inner));
                }
                continue;
            }
            b"$exists" if !operator.value().is_truthy() => Predicate::Missing,
            b"$type" => single_type(operator.value()).map_or(Predicate::Unknown, Predicate::Type),
            b"$regex" => return regex_operator(operators),
            _ => Predicate::Unknown,
        });
    }
    predicates
}

/// `{$regex: ..., $options: ...}`: all strings and regexes, its prefix only if the pattern is of type regex.
fn regex_operator(operators: Doc<'_>) -> Vec<Predicate<'_>> {
    let others = operators.iter().filter(|field| !matches!(field.name_bytes(), b"$regex" | b"$options"));
    if others.count() > 0 {
        return vec![Predicate::Unknown];
    }
    match operators.field("$regex") {
        Some(field) if field.element_type() == ElementType::Regex && !operators.contains("$options") => {
            vec![Predicate::equals(field)]
        }
        _ => vec![Predicate::Unknown],
    }
}

fn items(operator: Field<'_>) -> Option<Vec<Field<'_>>> {
    operator.value().as_array().map(|items| items.iter().collect())
}

/// The class of a `$type` with one type; several, and `"number"`, narrow nothing, as in mongos.
fn single_type(value: Value<'_>) -> Option<ElementType> {
    match value {
        Value::String(name) => {
            (0..=u8::MAX).filter_map(ElementType::from_byte).find(|kind| kind.name().as_bytes() == name)
        }
        Value::Array(items) => {
            let mut items = items.iter();
            match (items.next(), items.next()) {
                (Some(only), None) if only.element_type() != ElementType::Array => single_type(only.value()),
                _ => None,
            }
        }
        _ => match value.as_i64()? {
            -1 => Some(ElementType::MinKey),
            code => u8::try_from(code).ok().filter(|&code| code < 0x80).and_then(ElementType::from_byte),
        },
    }
}

impl<'a> Predicate<'a> {
    pub(super) fn equals(value: Field<'a>) -> Self {
        Self::In(vec![value])
    }

    /// The values that can match; `None` if all can.
    pub(super) fn set(&self, hashed: bool, collation: Collation) -> Option<IntervalSet> {
        if hashed { self.hashed_set(collation) } else { self.plain_set(collation) }
    }

    fn plain_set(&self, collation: Collation) -> Option<IntervalSet> {
        match self {
            Self::In(values) => {
                let mut intervals = Vec::with_capacity(values.len());
                for value in values {
                    if is_hidden(value.value(), collation) {
                        return None;
                    }
                    equal(*value, &mut intervals);
                }
                Some(intervals.into_iter().collect())
            }
            Self::Compare { side, inclusive, value } => compare(*side, *inclusive, *value, collation),
            Self::Missing => Some(IntervalSet::point(Element::raw(ElementType::Null, &[]))),
            Self::Type(kind) => of_type(*kind),
            Self::Not(inner) => exact_conjunction(inner, collation).map(|set| set.complement()),
            Self::Unknown => None,
        }
    }

    fn hashed_set(&self, collation: Collation) -> Option<IntervalSet> {
        match self {
            Self::In(values) => {
                let mut points = Vec::with_capacity(values.len());
                for value in values {
                    if is_hidden(value.value(), collation) || value.element_type() == ElementType::Regex {
                        return None;
                    }
                    equal(*value, &mut points);
                }
                let hashed = points.iter().map(|point| hash::hash_value(point.low.value.value()));
                Some(hashed.map(|hash| Interval::point(Element::int64(hash))).collect())
            }
            Self::Missing => Some(IntervalSet::point(Element::int64(hash::NULL_HASH))),
            Self::Compare { .. } | Self::Type(_) | Self::Not(_) | Self::Unknown => None,
        }
    }
}

/// Can a collation put values elsewhere that compare equal to this one? Regexes do not look at collations.
fn is_hidden(value: Value<'_>, collation: Collation) -> bool {
    collation == Collation::Locale && is_collatable(value)
}

/// The values that equal this one.
fn equal(value: Field<'_>, intervals: &mut Vec<Interval>) {
    match value.value() {
        Value::Null => {
            intervals.push(Interval::point(Element::raw(ElementType::Undefined, &[])));
            intervals.push(Interval::point(Element::of(value)));
        }
        Value::Array(items) => {
            // The array itself, or (were it allowed in a key) one that holds it first; index bounds have both.
            let first = items.first().map_or(Element::raw(ElementType::Undefined, &[]), Element::of);
            intervals.push(Interval::point(first));
            intervals.push(Interval::point(Element::of(value)));
        }
        Value::Regex { pattern, options } => {
            intervals.extend(regex::strings(pattern, options));
            intervals.push(Interval::point(Element::of(value)));
        }
        _ => intervals.push(Interval::point(Element::of(value))),
    }
}

/// The values of all predicates together when each is exact: a value matches if and only if it is in the set.
pub(super) fn exact_conjunction(predicates: &[Predicate<'_>], collation: Collation) -> Option<IntervalSet> {
    let mut common = IntervalSet::all();
    for predicate in predicates {
        let exact = match predicate {
            Predicate::In(values) => values.iter().all(|value| {
                !matches!(
                    value.element_type(),
                    ElementType::Array | ElementType::Regex | ElementType::Undefined | ElementType::Document
                )
            }),
            Predicate::Compare { value, .. } => {
                value.value().is_number() || matches!(value.value(), Value::String(_))
            }
            _ => false,
        };
        if !exact {
            return None;
        }
        common = common.intersection(&predicate.plain_set(collation)?);
    }
    (!predicates.is_empty()).then_some(common)
}

fn compare(side: Side, inclusive: bool, value: Field<'_>, collation: Collation) -> Option<IntervalSet> {
    let operand = value.value();
    if is_hidden(operand, collation) {
        return None;
    }
    match operand {
        Value::Null if inclusive => return Predicate::equals(value).plain_set(collation),
        Value::Null => return Some(IntervalSet::empty()),
        Value::Double(n) if n.is_nan() => return Some(not_a_number(inclusive, value)),
        Value::Decimal128(bytes) if is_nan(bytes) => return Some(not_a_number(inclusive, value)),
        _ => {}
    }
    let (lowest, highest) = bracket(operand)?;
    let end = End { value: Element::of(value), inclusive };
    let interval = match side {
        Side::Below => Interval::new(lowest, end),
        Side::Above => Interval::new(end, highest),
    };
    Some(interval.into_iter().collect())
}

fn not_a_number(inclusive: bool, value: Field<'_>) -> IntervalSet {
    if inclusive { IntervalSet::point(Element::of(value)) } else { IntervalSet::empty() }
}

fn is_nan(bytes: [u8; 16]) -> bool {
    document::order::decimal::Decimal::decode(bytes) == document::order::decimal::Decimal::NaN
}

/// The values that a comparison with this one looks at; `None` where index bounds do not narrow.
fn bracket(operand: Value<'_>) -> Option<(End, End)> {
    let closed = |value: Value<'_>| End { value: Element::new(value), inclusive: true };
    let open = |value: Value<'_>| End { value: Element::new(value), inclusive: false };
    Some(match operand {
        // NaN is below -Infinity and outside.
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal128(_) => {
            (closed(Value::Double(f64::NEG_INFINITY)), closed(Value::Double(f64::INFINITY)))
        }
        Value::String(_) | Value::Symbol(_) => {
            (closed(Value::String(b"")), open(Value::Document(Doc::empty())))
        }
        Value::Document(_) => (closed(Value::Document(Doc::empty())), open(Value::Array(Doc::empty()))),
        Value::Binary { .. } => {
            (closed(Value::Binary { subtype: 0, bytes: b"" }), open(Value::ObjectId([0; 12])))
        }
        Value::ObjectId(_) => (closed(Value::ObjectId([0; 12])), closed(Value::ObjectId([0xFF; 12]))),
        Value::Bool(_) => (closed(Value::Bool(false)), closed(Value::Bool(true))),
        Value::DateTime(_) => (closed(Value::DateTime(i64::MIN)), closed(Value::DateTime(i64::MAX))),
        Value::Timestamp(_) => (
            closed(Value::Timestamp(Timestamp::default())),
            closed(Value::Timestamp(Timestamp::new(u32::MAX, u32::MAX))),
        ),
        Value::Array(_)
        | Value::Undefined
        | Value::Null
        | Value::Regex { .. }
        | Value::DbPointer { .. }
        | Value::JavaScript(_)
        | Value::JavaScriptWithScope { .. }
        | Value::MinKey
        | Value::MaxKey => return None,
    })
}

/// All values of a type.
fn of_type(kind: ElementType) -> Option<IntervalSet> {
    let sample = match kind {
        ElementType::Null | ElementType::Undefined => {
            return Some(IntervalSet::point(Element::raw(kind, &[])));
        }
        ElementType::String | ElementType::Symbol => Value::String(b""),
        ElementType::Document => Value::Document(Doc::empty()),
        ElementType::Binary => Value::Binary { subtype: 0, bytes: b"" },
        ElementType::ObjectId => Value::ObjectId([0; 12]),
        ElementType::Bool => Value::Bool(false),
        ElementType::DateTime => Value::DateTime(0),
        ElementType::Timestamp => Value::Timestamp(Timestamp::default()),
        ElementType::Int32 | ElementType::Int64 => Value::Int32(0),
        // Of the two numeric types that have a NaN, all numbers.
        ElementType::Double | ElementType::Decimal128 => {
            let low = End { value: Element::new(Value::Double(f64::NAN)), inclusive: true };
            let high = End { value: Element::new(Value::Double(f64::INFINITY)), inclusive: true };
            return Some(Interval::new(low, high).into_iter().collect());
        }
        _ => return None,
    };
    let (low, high) = bracket(sample)?;
    Some(Interval::new(low, high).into_iter().collect())
}
