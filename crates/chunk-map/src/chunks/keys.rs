//! A sorted list of keys in one block of memory.

use std::cmp::Ordering;

use document::order::compare_values;
use document::{Doc, ElementType, Field, Value};
use smallvec::SmallVec;

/// Keys in ascending order, each a document with empty names.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    bytes: Box<[u8]>,
    /// Where each key ends in `bytes`.
    ends: Box<[u32]>,
}

impl KeyTable {
    pub(super) fn new<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for key in keys {
            bytes.extend_from_slice(key);
            // A page holds some hundred keys of at most 16 MiB: what does not fit reads as an empty key.
            ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        Self { bytes: bytes.into(), ends: ends.into() }
    }

    pub(super) fn get(&self, index: usize) -> Option<Doc<'_>> {
        let end = usize::try_from(*self.ends.get(index)?).ok()?;
        let start = match index.checked_sub(1) {
            Some(before) => usize::try_from(*self.ends.get(before)?).ok()?,
            None => 0,
        };
        Doc::new(self.bytes.get(start..end)?).ok()
    }

    /// How many keys are at or below this one.
    pub(super) fn count_up_to(&self, key: &Wanted<'_>) -> usize {
        self.partition_point(|known| key.compare_to(known).is_ge())
    }

    /// How many keys are below this one.
    pub(super) fn count_below(&self, key: &Wanted<'_>) -> usize {
        self.partition_point(|known| key.compare_to(known).is_gt())
    }

    fn partition_point(&self, before: impl Fn(Doc<'_>) -> bool) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.get(middle).unwrap_or(Doc::empty())) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.ends)
    }
}

/// A key that is looked for, decoded once for all comparisons.
pub(super) struct Wanted<'k> {
    values: SmallVec<[Value<'k>; 3]>,
}

impl<'k> Wanted<'k> {
    pub(super) fn new(key: Doc<'k>) -> Self {
        Self { values: key.iter().map(Field::value).collect() }
    }

    fn compare_to(&self, known: Doc<'_>) -> Ordering {
        if let Some(ordering) = self.first_differs(known) {
            return ordering;
        }
        let mut known = known.iter();
        for value in &self.values {
            let Some(other) = known.next() else { return Ordering::Greater };
            let ordering = compare_values(*value, other.value());
            if ordering.is_ne() {
                return ordering;
            }
        }
        if known.next().is_some() { Ordering::Less } else { Ordering::Equal }
    }

    /// Most searches are for an ObjectId or a hash among others of their type, and most comparisons are decided by
    /// the first value: read where it must be, behind the length, the type and the empty name.
    fn first_differs(&self, known: Doc<'_>) -> Option<Ordering> {
        let (head, value) = known.as_bytes().split_at_checked(6)?;
        let ordering = match (self.values.first()?, head.get(4..)?) {
            (Value::ObjectId(wanted), [OBJECT_ID, 0]) => wanted.cmp(value.first_chunk::<12>()?),
            (Value::Int64(wanted), [INT64, 0]) => wanted.cmp(&i64::from_le_bytes(*value.first_chunk::<8>()?)),
            _ => return None,
        };
        ordering.is_ne().then_some(ordering)
    }
}

const OBJECT_ID: u8 = ElementType::ObjectId as u8;
const INT64: u8 = ElementType::Int64 as u8;
