//! `$expr`: comparisons of a key field with a constant, and `$and`/`$or` of them. They compare across types, so
//! their ranges go on to the ends of the order.

use document::{Doc, DocBuf, ElementType, Field, Value};

use super::filter::FilterBounds;
use super::interval::{End, Interval, IntervalSet};
use crate::collation::{Collation, is_collatable};
use crate::hash;
use crate::key::Element;

const MAX_DEPTH: u32 = 100;

/// The box of an aggregation expression that must be true.
pub(super) fn sets(
    bounds: &mut FilterBounds<'_>,
    expression: Field<'_>,
    depth: u32,
) -> Vec<Option<IntervalSet>> {
    let mut result = bounds.unknown();
    let Some((operator, argument)) = operation(expression.value()) else { return result };
    if depth > MAX_DEPTH {
        return result;
    }
    match operator {
        b"$and" => {
            for child in argument.value().as_array().into_iter().flatten() {
                let child = sets(bounds, child, depth + 1);
                bounds.intersect(&mut result, child);
            }
        }
        b"$or" => {
            if let Some(children) = argument.value().as_array().filter(|children| !children.is_empty()) {
                let children = children.iter().map(|child| sets(bounds, child, depth + 1)).collect();
                return bounds.union(children);
            }
        }
        b"$eq" | b"$gt" | b"$gte" | b"$lt" | b"$lte" => {
            if let Some((index, set)) = comparison(bounds, operator, argument)
                && let Some(slot) = result.get_mut(index)
            {
                *slot = set;
            }
        }
        _ => {}
    }
    result
}

/// `{$operator: argument}`
fn operation(value: Value<'_>) -> Option<(&[u8], Field<'_>)> {
    let object = value.as_doc()?;
    let mut fields = object.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) if only.name_bytes().first() == Some(&b'$') => Some((only.name_bytes(), only)),
        _ => None,
    }
}

fn comparison(
    bounds: &FilterBounds<'_>,
    operator: &[u8],
    argument: Field<'_>,
) -> Option<(usize, Option<IntervalSet>)> {
    let mut arguments = argument.value().as_array()?.iter();
    let (Some(left), Some(right), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return None;
    };
    let (index, constant, mirrored) = match (key_field(bounds, left), key_field(bounds, right)) {
        (Some(index), None) => (index, constant(right, 0)?, false),
        (None, Some(index)) => (index, constant(left, 0)?, true),
        _ => return None,
    };
    if bounds.collation == Collation::Locale && is_collatable(constant.value()) {
        return None;
    }
    let hashed = bounds.pattern.fields().get(index).is_some_and(|field| field.hashed);
    let set = match (operator, mirrored) {
        (b"$eq", _) => equal(&constant, hashed),
        _ if hashed => return None,
        (b"$gt", false) | (b"$lt", true) => above(constant, false),
        (b"$gte", false) | (b"$lte", true) => above(constant, true),
        (b"$lt", false) | (b"$gt", true) => below(constant, false),
        (b"$lte", false) | (b"$gte", true) => below(constant, true),
        _ => return None,
    };
    Some((index, set))
}

/// `"$a.b"` of a key field.
fn key_field(bounds: &FilterBounds<'_>, field: Field<'_>) -> Option<usize> {
    let path = field.value().as_str()?.strip_prefix('$')?;
    bounds.pattern.fields().iter().position(|known| *known.path == *path)
}

fn equal(constant: &Element, hashed: bool) -> Option<IntervalSet> {
    let points = match constant.value() {
        Value::Null => vec![Element::raw(ElementType::Undefined, &[]), constant.clone()],
        _ => vec![constant.clone()],
    };
    let place = |point: Element| if hashed { Element::int64(hash::hash_value(point.value())) } else { point };
    Some(points.into_iter().map(|point| Interval::point(place(point))).collect())
}

fn above(constant: Element, inclusive: bool) -> Option<IntervalSet> {
    let low = End { value: constant, inclusive };
    Some(Interval::new(low, End { value: Element::max_key(), inclusive: true }).into_iter().collect())
}

fn below(constant: Element, inclusive: bool) -> Option<IntervalSet> {
    // A field that is missing is below null in expressions, and null in shard keys.
    let inclusive = inclusive || matches!(constant.value(), Value::Null);
    let high = End { value: constant, inclusive };
    Some(Interval::new(End { value: Element::min_key(), inclusive: true }, high).into_iter().collect())
}

/// The value of an expression without fields and variables, for literals and integer arithmetic.
fn constant(field: Field<'_>, depth: u32) -> Option<Element> {
    match field.value() {
        Value::String(text) if text.first() == Some(&b'$') => None,
        // Their order among other types, or their matching, is not the order of keys.
        Value::Array(_) | Value::Undefined | Value::Regex { .. } | Value::MinKey | Value::MaxKey => None,
        Value::Document(object) => match operation(field.value()) {
            Some((b"$literal", literal)) => match literal.value() {
                Value::Array(_) | Value::Undefined | Value::Regex { .. } | Value::MinKey | Value::MaxKey => {
                    None
                }
                _ => Some(Element::of(literal)),
            },
            Some((operator, arguments)) if depth < MAX_DEPTH => arithmetic(operator, arguments, depth + 1),
            Some(_) => None,
            None => object_of_constants(object, depth),
        },
        _ => Some(Element::of(field)),
    }
}

fn object_of_constants(object: Doc<'_>, depth: u32) -> Option<Element> {
    if depth >= MAX_DEPTH || object.iter().any(|field| field.name_bytes().first() == Some(&b'$')) {
        return None;
    }
    let mut built = DocBuf::new();
    for field in object {
        let value = constant(field, depth + 1)?;
        built.append(field.name(), value.value());
    }
    Some(Element::new(Value::Document(built.as_doc())))
}

fn arithmetic(operator: &[u8], arguments: Field<'_>, depth: u32) -> Option<Element> {
    let fold: fn(i64, i64) -> Option<i64> = match operator {
        b"$add" => i64::checked_add,
        b"$multiply" => i64::checked_mul,
        b"$subtract" => i64::checked_sub,
        _ => return None,
    };
    let mut integers = Vec::new();
    for argument in arguments.value().as_array()? {
        match constant(argument, depth)?.value() {
            Value::Int32(n) => integers.push(i64::from(n)),
            Value::Int64(n) => integers.push(n),
            _ => return None,
        }
    }
    if operator == b"$subtract" && integers.len() != 2 {
        return None;
    }
    let mut integers = integers.into_iter();
    let first = integers.next()?;
    integers.try_fold(first, fold).map(Element::int64)
}
