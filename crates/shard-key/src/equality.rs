//! Equalities that a query states outright: what makes one key out of a query, without any planning.

use document::{Doc, ElementType, Field, Value};
use smallvec::SmallVec;

use crate::pattern::{KeyPattern, lookup};

/// What a path leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<T> {
    Value(T),
    Missing,
    Array,
}

/// `$and`s inside of `$and`s (and `$or`s of one) are followed this deep; documents are bounded too, this keeps the stack small.
const MAX_DEPTH: u32 = 32;

/// The value of each field of a pattern that a query fixes.
pub(crate) struct Equalities<'a> {
    pub(crate) values: SmallVec<[Option<Field<'a>>; 4]>,
}

impl<'a> Equalities<'a> {
    /// `None` when a field is fixed twice or to something that is no storable key value.
    pub(crate) fn collect(pattern: &KeyPattern, query: Doc<'a>) -> Option<Self> {
        let mut found = Self { values: SmallVec::from_elem(None, pattern.fields().len()) };
        found.conjunction(pattern.fields(), query, 0).ok()?;
        Some(found)
    }

    /// The value that a query fixes one path to.
    pub(crate) fn of_path(query: Doc<'a>, path: &str) -> Option<Field<'a>> {
        let mut found = Self { values: SmallVec::from_elem(None, 1) };
        found.conjunction(&[path], query, 0).ok()?;
        found.values.first().copied().flatten()
    }

    fn conjunction<P: AsRef<str>>(
        &mut self,
        paths: &[P],
        query: Doc<'a>,
        depth: u32,
    ) -> Result<(), Unusable> {
        for field in query {
            let name = field.name_bytes();
            if name.first() == Some(&b'$') {
                let children = || field.value().as_array().into_iter().flatten();
                // An alternative to nothing is no alternative.
                let is_and = name == b"$and" || name == b"$or" && children().count() == 1;
                if is_and && depth < MAX_DEPTH {
                    for child in children() {
                        if let Value::Document(child) = child.value() {
                            self.conjunction(paths, child, depth + 1)?;
                        }
                    }
                }
                continue;
            }
            for (index, path) in paths.iter().map(AsRef::as_ref).enumerate() {
                let Some(rest) = path.as_bytes().strip_prefix(name) else { continue };
                if rest.is_empty() {
                    self.predicate(index, field)?;
                } else if let (Some(&b'.'), Value::Document(object)) = (rest.first(), field.value())
                    && !is_operators(object)
                    && let Some(rest) = path.get(name.len() + 1..)
                    && let Found::Value(inner) = lookup(object, rest)
                {
                    self.set(index, inner)?;
                }
            }
        }
        Ok(())
    }

    /// `{path: value}`, or `{path: {$eq: value, ...}}`.
    fn predicate(&mut self, index: usize, field: Field<'a>) -> Result<(), Unusable> {
        let operators = match field.value() {
            Value::Document(object) if is_operators(object) => object,
            _ => return self.set(index, field),
        };
        for operator in operators {
            match operator.name_bytes() {
                b"$eq" => self.set(index, operator)?,
                b"$in" | b"$all" => {
                    let mut items = operator.value().as_array().into_iter().flatten();
                    if let (Some(only), None) = (items.next(), items.next()) {
                        self.set(index, only)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn set(&mut self, index: usize, field: Field<'a>) -> Result<(), Unusable> {
        let slot = self.values.get_mut(index).ok_or(Unusable)?;
        if slot.is_some() || !is_storable(field) {
            return Err(Unusable);
        }
        *slot = Some(field);
        Ok(())
    }
}

/// The query does not make one key.
struct Unusable;

fn is_storable(field: Field<'_>) -> bool {
    match field.element_type() {
        ElementType::Array | ElementType::Regex | ElementType::Undefined => false,
        ElementType::Document => field
            .value()
            .as_doc()
            .is_some_and(|object| object.iter().all(|inner| inner.name_bytes().first() != Some(&b'$'))),
        _ => true,
    }
}

/// Is a sub-document of a query a set of operators? A DBRef starts with a dollar too, and is a value.
pub(crate) fn is_operators(object: Doc<'_>) -> bool {
    object.first().is_some_and(|first| {
        let name = first.name_bytes();
        name.first() == Some(&b'$') && !matches!(name, b"$ref" | b"$id" | b"$db")
    })
}
