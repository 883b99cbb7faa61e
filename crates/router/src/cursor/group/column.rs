//! The results of one accumulator, for all groups.

use std::cmp::Ordering;

use bytes::{BufMut, BytesMut};
use document::order::compare_values;
use document::{Doc, Field, Fields, Value, splice};

use super::Refusal;
use super::chunked::Chunked;
use super::held::Held;
use super::keys::nameless;
use super::set::ValueSet;
use super::total::{Kind, Partial, Total};
use crate::cursor::merge::put_index;

/// Accumulators whose partial results are merged here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Accumulator {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    MergeObjects,
}

impl Accumulator {
    /// By the name of the operator.
    #[must_use]
    pub fn new(operator: &str) -> Option<Self> {
        Some(match operator {
            "$sum" => Self::Sum,
            "$avg" => Self::Avg,
            "$min" => Self::Min,
            "$max" => Self::Max,
            "$first" => Self::First,
            "$last" => Self::Last,
            "$push" => Self::Push,
            "$addToSet" => Self::AddToSet,
            "$mergeObjects" => Self::MergeObjects,
            _ => return None,
        })
    }

    /// Does it give values that can be sorted by as they are?
    #[must_use]
    pub const fn is_scalar(self) -> bool {
        !matches!(self, Self::Push | Self::AddToSet | Self::MergeObjects)
    }
}

/// Its results so far.
#[derive(Debug)]
pub(super) struct Column {
    name: Box<str>,
    results: Results,
}

#[derive(Debug)]
enum Results {
    Sums(Chunked<Total>, Chunked<Kind>),
    /// Sums and how many numbers are in them.
    Means(Chunked<(Total, i64)>),
    /// The first (`Less`) or last one in order.
    Extremes(Ordering, Chunked<Held>),
    Firsts(Chunked<Held>),
    Lasts(Chunked<Held>),
    /// Elements without names.
    Lists(Chunked<Vec<u8>>),
    Sets(Chunked<ValueSet>),
    /// Elements of documents.
    Objects(Chunked<Vec<u8>>),
}

impl Column {
    pub(super) fn new(name: &str, accumulator: Accumulator) -> Self {
        let results = match accumulator {
            Accumulator::Sum => Results::Sums(Chunked::default(), Chunked::default()),
            Accumulator::Avg => Results::Means(Chunked::default()),
            Accumulator::Min => Results::Extremes(Ordering::Less, Chunked::default()),
            Accumulator::Max => Results::Extremes(Ordering::Greater, Chunked::default()),
            Accumulator::First => Results::Firsts(Chunked::default()),
            Accumulator::Last => Results::Lasts(Chunked::default()),
            Accumulator::Push => Results::Lists(Chunked::default()),
            Accumulator::AddToSet => Results::Sets(Chunked::default()),
            Accumulator::MergeObjects => Results::Objects(Chunked::default()),
        };
        Self { name: name.into(), results }
    }

    pub(super) const fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that each group takes, beside what its values take.
    pub(super) const fn width(&self) -> usize {
        match self.results {
            Results::Sums(..) => size_of::<Total>() + size_of::<Kind>(),
            Results::Means(_) => size_of::<(Total, i64)>(),
            Results::Extremes(..) | Results::Firsts(_) | Results::Lasts(_) => size_of::<Held>(),
            Results::Lists(_) | Results::Objects(_) => size_of::<Vec<u8>>(),
            Results::Sets(_) => size_of::<ValueSet>(),
        }
    }

    /// One more group.
    pub(super) fn push(&mut self) {
        match &mut self.results {
            Results::Sums(totals, kinds) => {
                totals.push(Total::default());
                kinds.push(Kind::Int);
            }
            Results::Means(means) => means.push((Total::default(), 0)),
            Results::Extremes(_, held) | Results::Firsts(held) | Results::Lasts(held) => {
                held.push(Held::Nothing);
            }
            Results::Lists(lists) | Results::Objects(lists) => lists.push(Vec::new()),
            Results::Sets(sets) => sets.push(ValueSet::default()),
        }
    }

    /// Adds a shard's result; how many bytes that took.
    pub(super) fn add(&mut self, group: u32, partial: Field<'_>) -> Result<usize, Refusal> {
        let value = partial.value();
        match &mut self.results {
            Results::Sums(totals, kinds) => {
                let partial = Partial::new(value).ok_or(Refusal::Form)?;
                totals.get_mut(group).ok_or(Refusal::Form)?.add(partial);
                let kind = kinds.get_mut(group).ok_or(Refusal::Form)?;
                *kind = partial.kind.max(*kind);
                Ok(0)
            }
            Results::Means(means) => {
                let mean = value.as_doc().ok_or(Refusal::Form)?;
                let partial = mean.get("ps").and_then(Partial::new).ok_or(Refusal::Form)?;
                let count = mean.get_i64("count").ok_or(Refusal::Form)?;
                let (total, counted) = means.get_mut(group).ok_or(Refusal::Form)?;
                total.add(partial);
                *counted = counted.saturating_add(count);
                Ok(0)
            }
            Results::Extremes(wanted, held) => {
                // As in the shards: what is not there is no least value.
                if matches!(value, Value::Null | Value::Undefined) {
                    return Ok(0);
                }
                let held = held.get_mut(group).ok_or(Refusal::Form)?;
                match held.field() {
                    Some(known) if compare_values(value, known.value()) != *wanted => Ok(0),
                    _ => Ok(held.set(partial)),
                }
            }
            Results::Firsts(held) => {
                let held = held.get_mut(group).ok_or(Refusal::Form)?;
                Ok(if held.field().is_none() { held.set(partial) } else { 0 })
            }
            Results::Lasts(held) => Ok(held.get_mut(group).ok_or(Refusal::Form)?.set(partial)),
            Results::Lists(lists) => {
                let values = value.as_array().ok_or(Refusal::Form)?;
                let list = lists.get_mut(group).ok_or(Refusal::Form)?;
                let before = list.capacity();
                for value in values {
                    nameless(value, list);
                }
                Ok(list.capacity() - before)
            }
            Results::Sets(sets) => {
                let values = value.as_array().ok_or(Refusal::Form)?;
                let set = sets.get_mut(group).ok_or(Refusal::Form)?;
                let mut grown = 0;
                for value in values {
                    grown += set.add(value).ok_or(Refusal::Memory)?;
                }
                Ok(grown)
            }
            Results::Objects(objects) => {
                let more = match value {
                    Value::Document(more) => more,
                    Value::Null | Value::Undefined => return Ok(0),
                    _ => return Err(Refusal::Form),
                };
                let object = objects.get_mut(group).ok_or(Refusal::Form)?;
                let before = object.capacity();
                unite(object, more);
                Ok(object.capacity().saturating_sub(before))
            }
        }
    }

    /// The result of a group that is no array and no document.
    pub(super) fn value(&self, group: u32) -> Option<Value<'_>> {
        match &self.results {
            Results::Sums(totals, kinds) => Some(totals.get(group)?.value(*kinds.get(group)?)),
            Results::Means(means) => {
                let (total, count) = means.get(group)?;
                Some(mean(*total, *count))
            }
            Results::Extremes(_, held) | Results::Firsts(held) | Results::Lasts(held) => {
                Some(held.get(group)?.field().map_or(Value::Null, Field::value))
            }
            Results::Lists(_) | Results::Sets(_) | Results::Objects(_) => None,
        }
    }

    /// Writes the result of a group as a field.
    pub(super) fn write(&self, group: u32, out: &mut BytesMut) {
        let held = match &self.results {
            Results::Lists(lists) => return put_array(out, &self.name, lists.get(group).map(Vec::as_slice)),
            Results::Sets(sets) => {
                return put_array(out, &self.name, sets.get(group).map(ValueSet::elements));
            }
            Results::Objects(objects) => {
                let object = splice::open_doc(out, &self.name);
                out.extend_from_slice(objects.get(group).map(Vec::as_slice).unwrap_or_default());
                return object.finish(out);
            }
            Results::Extremes(_, held) | Results::Firsts(held) | Results::Lasts(held) => {
                held.get(group).and_then(Held::field)
            }
            Results::Sums(..) | Results::Means(_) => None,
        };
        if let Some(held) = held {
            return splice::put_element(out, held.element_type() as u8, &self.name, held.value_bytes());
        }
        match self.value(group) {
            Some(Value::Int32(n)) => splice::put_i32(out, &self.name, n),
            Some(Value::Int64(n)) => splice::put_i64(out, &self.name, n),
            Some(Value::Double(n)) => splice::put_f64(out, &self.name, n),
            _ => splice::put_element(out, 0x0A, &self.name, &[]),
        }
    }
}

/// Nothing was a number: there is no mean.
fn mean(total: Total, count: i64) -> Value<'static> {
    #[allow(clippy::cast_precision_loss)] // as the server divides
    match count {
        0 => Value::Null,
        count => Value::Double(total.as_f64() / count as f64),
    }
}

/// Takes the fields of a document into another one: known ones keep their place and change their value.
fn unite(object: &mut Vec<u8>, more: Doc<'_>) {
    if object.is_empty() {
        object.extend_from_slice(more.elements());
        return;
    }
    let mut united = Vec::with_capacity(object.len() + more.elements().len());
    for known in Fields::over_elements(object) {
        let changed = more.iter().find(|field| field.name_bytes() == known.name_bytes());
        united.extend_from_slice(changed.unwrap_or(known).raw());
    }
    for field in more {
        if !Fields::over_elements(object).any(|known| known.name_bytes() == field.name_bytes()) {
            united.extend_from_slice(field.raw());
        }
    }
    *object = united;
}

fn put_array(out: &mut BytesMut, name: &str, elements: Option<&[u8]>) {
    let array = splice::open_array(out, name);
    for (index, element) in (0..).zip(Fields::over_elements(elements.unwrap_or_default())) {
        out.put_u8(element.element_type() as u8);
        put_index(out, index);
        out.put_u8(0);
        out.extend_from_slice(element.value_bytes());
    }
    array.finish(out);
}
