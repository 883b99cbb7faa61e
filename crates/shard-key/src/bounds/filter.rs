//! The logical structure of a filter: a box of the key space, one set of values a key field.

use document::{Doc, Field, Value};

use super::expr;
use super::interval::IntervalSet;
use super::predicate::{self, Predicate};
use crate::collation::Collation;
use crate::equality::is_operators;
use crate::pattern::KeyPattern;

/// A set a key field; `None` where nothing is known.
type Sets = Vec<Option<IntervalSet>>;

/// Logical operators are followed this deep.
const MAX_DEPTH: u32 = 100;
/// Intervals that may be read and written by intersections for one filter, in all.
const WORK_LIMIT: usize = 1_000_000;

/// The walk over one filter.
pub(super) struct FilterBounds<'p> {
    pub(super) pattern: &'p KeyPattern,
    pub(super) collation: Collation,
    /// `$text` and `$near` go everywhere, whatever stands beside them.
    everywhere: bool,
    work: usize,
}

impl<'p> FilterBounds<'p> {
    pub(super) const fn new(pattern: &'p KeyPattern, collation: Collation) -> Self {
        Self { pattern, collation, everywhere: false, work: 0 }
    }

    /// The box of a filter; `None` if it does not constrain the first field, without which no index would be used.
    pub(super) fn of(mut self, filter: Doc<'_>) -> Option<Vec<IntervalSet>> {
        let sets = self.conjunction(filter, 0);
        if self.everywhere || sets.first().is_none_or(Option::is_none) {
            return None;
        }
        Some(sets.into_iter().map(|set| set.unwrap_or_else(IntervalSet::all)).collect())
    }

    pub(super) fn unknown(&self) -> Sets {
        vec![None; self.pattern.fields().len()]
    }

    fn conjunction(&mut self, filter: Doc<'_>, depth: u32) -> Sets {
        let mut sets = self.unknown();
        if depth > MAX_DEPTH {
            return sets;
        }
        for field in filter {
            let name = field.name_bytes();
            if name.first() != Some(&b'$') {
                self.path(&mut sets, "", field, depth);
                continue;
            }
            match name {
                b"$and" => {
                    for child in documents(field) {
                        let child = self.conjunction(child, depth + 1);
                        self.intersect(&mut sets, child);
                    }
                }
                b"$or" => {
                    let children: Vec<Sets> =
                        documents(field).map(|child| self.conjunction(child, depth + 1)).collect();
                    let child = self.union(children);
                    self.intersect(&mut sets, child);
                }
                b"$nor" => {
                    for child in documents(field) {
                        let child = self.negated(child);
                        self.intersect(&mut sets, child);
                    }
                }
                b"$expr" => {
                    let child = expr::sets(self, field, 0);
                    self.intersect(&mut sets, child);
                }
                b"$text" => self.everywhere = true,
                _ => {}
            }
        }
        sets
    }

    /// `{path: ...}`, with the path that it is relative to.
    fn path(&mut self, sets: &mut Sets, prefix: &str, field: Field<'_>, depth: u32) {
        let operators = match field.value() {
            Value::Document(object) if is_operators(object) => object,
            _ => return self.predicates(sets, prefix, field.name(), &[Predicate::equals(field)]),
        };
        for operator in operators {
            match operator.name_bytes() {
                b"$near" | b"$nearSphere" | b"$geoNear" => self.everywhere = true,
                b"$elemMatch" if depth < MAX_DEPTH => {
                    if let Value::Document(inner) = operator.value()
                        && !is_operators(inner)
                    {
                        let below = format!("{prefix}{}.", field.name());
                        for inner in inner.iter().filter(|inner| !inner.name().starts_with('$')) {
                            self.path(sets, &below, inner, depth + 1);
                        }
                    }
                }
                _ => {}
            }
        }
        self.predicates(sets, prefix, field.name(), &predicate::parse(operators));
    }

    fn predicates(&mut self, sets: &mut Sets, prefix: &str, name: &str, predicates: &[Predicate<'_>]) {
        let fields = self.pattern.fields();
        let Some(index) = fields.iter().position(|known| known.path.strip_prefix(prefix) == Some(name))
        else {
            return;
        };
        let hashed = fields.get(index).is_some_and(|field| field.hashed);
        for predicate in predicates {
            let mut child = self.unknown();
            if let Some(slot) = child.get_mut(index) {
                *slot = predicate.set(hashed, self.collation);
            }
            self.intersect(sets, child);
        }
    }

    /// The complement of a filter that is one exact predicate on one key field; of others nothing is known.
    fn negated(&self, filter: Doc<'_>) -> Sets {
        let mut sets = self.unknown();
        let mut fields = filter.iter();
        if let (Some(field), None) = (fields.next(), fields.next())
            && let Some(index) = self.pattern.fields().iter().position(|known| *known.path == *field.name())
            && let Some(slot) = sets.get_mut(index)
            && self.pattern.fields().get(index).is_some_and(|known| !known.hashed)
        {
            let predicates = match field.value() {
                Value::Document(object) if is_operators(object) => predicate::parse(object),
                _ => vec![Predicate::equals(field)],
            };
            *slot = predicate::exact_conjunction(&predicates, self.collation).map(|set| set.complement());
        }
        sets
    }

    pub(super) fn intersect(&mut self, sets: &mut Sets, other: Sets) {
        for (set, other) in sets.iter_mut().zip(other) {
            *set = match (set.take(), other) {
                (Some(a), Some(b)) => Some(self.intersection(a, b)),
                (a, b) => a.or(b),
            };
        }
    }

    fn intersection(&mut self, a: IntervalSet, b: IntervalSet) -> IntervalSet {
        self.work += a.len() + b.len();
        if self.work > WORK_LIMIT {
            // Both contain what is looked for; the smaller one is the better answer.
            return if a.len() <= b.len() { a } else { b };
        }
        a.intersection(&b)
    }

    /// One box around several: field by field, as mongos does, which loses what belongs together.
    pub(super) fn union(&mut self, boxes: Vec<Sets>) -> Sets {
        // A box without a value for some field is empty and adds nothing.
        let filled: Vec<Sets> = boxes
            .into_iter()
            .filter(|sets| !sets.iter().any(|set| set.as_ref().is_some_and(IntervalSet::is_empty)))
            .collect();
        if filled.is_empty() {
            // `$or: []` is refused by shards; of alternatives that are all empty nothing is left.
            return vec![Some(IntervalSet::empty()); self.pattern.fields().len()];
        }
        let mut columns: Vec<Option<Vec<IntervalSet>>> = vec![Some(Vec::new()); self.pattern.fields().len()];
        for sets in filled {
            for (column, set) in columns.iter_mut().zip(sets) {
                match (column.as_mut(), set) {
                    (Some(column), Some(set)) => column.push(set),
                    _ => *column = None,
                }
            }
        }
        let join = |sets: Vec<IntervalSet>| sets.into_iter().flat_map(IntervalSet::into_intervals).collect();
        columns.into_iter().map(|column| column.map(join)).collect()
    }
}

/// The documents of an array; what is none is skipped (shards refuse such filters).
fn documents(field: Field<'_>) -> impl Iterator<Item = Doc<'_>> {
    field.value().as_array().into_iter().flatten().filter_map(|item| item.value().as_doc())
}
