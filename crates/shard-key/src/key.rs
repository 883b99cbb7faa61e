//! One point of the key space.

use std::cmp::Ordering;

use document::order::{FieldNames, compare_docs};
use document::{Doc, ElementType, Field, Fields, Value};
use smallvec::SmallVec;

/// A full shard-key value: a BSON document whose field names are empty, for order does not look at them.
/// [`crate::KeyPattern::name_fields`] gives the names back.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ShardKey {
    bytes: SmallVec<[u8; 40]>,
}

impl ShardKey {
    pub(crate) fn builder() -> KeyBuilder {
        KeyBuilder { bytes: SmallVec::from_slice(&[0; 4]) }
    }

    /// The key with the values of `bound`, whatever its field names are.
    #[must_use]
    pub fn from_values_of(bound: Doc<'_>) -> Self {
        let mut builder = Self::builder();
        for field in bound {
            builder.push(field);
        }
        builder.finish()
    }

    /// The key whose bytes (a document with empty names) were taken by [`ShardKey::as_doc`].
    #[must_use]
    pub fn from_nameless(doc: Doc<'_>) -> Self {
        Self { bytes: SmallVec::from_slice(doc.as_bytes()) }
    }

    /// The values in key order, as a document with empty names.
    #[must_use]
    pub fn as_doc(&self) -> Doc<'_> {
        Doc::new(&self.bytes).unwrap_or(Doc::empty())
    }

    /// The values in key order.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.as_doc().iter().map(Field::value)
    }

    /// Its value at this place of the pattern.
    #[must_use]
    pub fn value(&self, index: usize) -> Option<Value<'_>> {
        self.values().nth(index)
    }

    /// Is each value MaxKey? Such a key belongs to no chunk.
    #[must_use]
    pub fn is_all_max_key(&self) -> bool {
        self.as_doc().iter().all(|field| field.element_type() == ElementType::MaxKey)
    }

    /// Is each value MinKey?
    #[must_use]
    pub fn is_all_min_key(&self) -> bool {
        self.as_doc().iter().all(|field| field.element_type() == ElementType::MinKey)
    }
}

impl PartialOrd for ShardKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.order(other))
    }
}

impl ShardKey {
    /// The server's order. Not `Ord`: `1` and `1.0` are the same point, yet different bytes.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        compare_docs(self.as_doc(), other.as_doc(), FieldNames::Ignored)
    }
}

impl std::fmt::Debug for ShardKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// Builds a key value by value.
pub(crate) struct KeyBuilder {
    bytes: SmallVec<[u8; 40]>,
}

impl KeyBuilder {
    pub(crate) fn push_raw(&mut self, kind: ElementType, value: &[u8]) {
        self.bytes.extend_from_slice(&[kind as u8, 0]);
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn push(&mut self, field: Field<'_>) {
        self.push_raw(field.element_type(), field.value_bytes());
    }

    pub(crate) fn push_element(&mut self, element: &Element) {
        self.bytes.extend_from_slice(&element.bytes);
    }

    pub(crate) fn push_i64(&mut self, n: i64) {
        self.push_raw(ElementType::Int64, &n.to_le_bytes());
    }

    pub(crate) fn finish(mut self) -> ShardKey {
        self.bytes.push(0);
        // A key is part of a message, and messages are bounded far below 2 GiB.
        let length = i32::try_from(self.bytes.len()).unwrap_or(i32::MAX);
        if let Some(slot) = self.bytes.first_chunk_mut::<4>() {
            *slot = length.to_le_bytes();
        }
        ShardKey { bytes: self.bytes }
    }
}

/// One value, owned: a BSON element with an empty name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Element {
    bytes: SmallVec<[u8; 24]>,
}

impl Element {
    pub(crate) fn raw(kind: ElementType, value: &[u8]) -> Self {
        let mut bytes = SmallVec::from_slice(&[kind as u8, 0]);
        bytes.extend_from_slice(value);
        Self { bytes }
    }

    pub(crate) fn of(field: Field<'_>) -> Self {
        Self::raw(field.element_type(), field.value_bytes())
    }

    pub(crate) fn new(value: Value<'_>) -> Self {
        let mut bytes = Vec::with_capacity(24);
        document::DocWriter::new(&mut bytes).value("", value);
        Self { bytes: SmallVec::from_slice(&bytes) }
    }

    pub(crate) fn int64(n: i64) -> Self {
        Self::raw(ElementType::Int64, &n.to_le_bytes())
    }

    pub(crate) fn min_key() -> Self {
        Self::raw(ElementType::MinKey, &[])
    }

    pub(crate) fn max_key() -> Self {
        Self::raw(ElementType::MaxKey, &[])
    }

    pub(crate) fn value(&self) -> Value<'_> {
        Fields::over_elements(&self.bytes).next().map_or(Value::Undefined, Field::value)
    }

    pub(crate) fn order(&self, other: &Self) -> Ordering {
        document::order::compare_values(self.value(), other.value())
    }
}

impl std::fmt::Debug for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value().fmt(f)
    }
}
