//! A sorted list of keys in one block of memory.

use std::cmp::Ordering;

use document::Doc;
use document::order::{FieldNames, compare_docs};

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

    /// How many keys are at or below `key`.
    pub(super) fn count_up_to(&self, key: Doc<'_>) -> usize {
        self.partition_point(|known| known.is_le(), key)
    }

    /// How many keys are below `key`.
    pub(super) fn count_below(&self, key: Doc<'_>) -> usize {
        self.partition_point(|known| known.is_lt(), key)
    }

    fn partition_point(&self, before: impl Fn(Ordering) -> bool, key: Doc<'_>) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let known = self.get(middle).unwrap_or(Doc::empty());
            if before(compare_docs(known, key, FieldNames::Ignored)) {
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
