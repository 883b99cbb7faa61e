//! The values of an `$addToSet`, each once.

use std::cmp::Ordering;
use std::hash::BuildHasher;

use document::order::compare_values;
use document::{Field, Fields, Value};
use hashbrown::HashTable;

use super::keys::{hash_value, nameless, short, spread};

/// Up to so many values are compared one by one.
const FEW: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ValueSet {
    /// Elements without names.
    elements: Vec<u8>,
    count: usize,
    /// Hash and place of each element, once there are many.
    index: Option<Box<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    hasher: foldhash::fast::RandomState,
    table: HashTable<(u32, u32)>,
}

impl ValueSet {
    /// Adds a value if it is not in; how many bytes that took. `None` when there are too many.
    pub(super) fn add(&mut self, field: Field<'_>) -> Option<usize> {
        let value = field.value();
        if self.index.is_none() && self.count >= FEW {
            let mut index = Box::<Index>::default();
            let mut at = 0;
            for element in Fields::over_elements(&self.elements) {
                index.add(index.hash(element.value()), u32::try_from(at).ok()?);
                at += element.raw().len();
            }
            self.index = Some(index);
        }
        let hash = match &self.index {
            None => {
                if Fields::over_elements(&self.elements).any(|known| equal(known.value(), value)) {
                    return Some(0);
                }
                0
            }
            Some(index) => {
                let hash = index.hash(value);
                if index.contains(hash, value, &self.elements) {
                    return Some(0);
                }
                hash
            }
        };
        let at = u32::try_from(self.elements.len()).ok()?;
        let before = self.elements.capacity();
        nameless(field, &mut self.elements);
        self.count += 1;
        if let Some(index) = &mut self.index {
            index.add(hash, at);
        }
        let entries = if self.index.is_some() { 2 * size_of::<(u32, u32)>() } else { 0 };
        Some(self.elements.capacity() - before + entries)
    }

    pub(super) fn elements(&self) -> &[u8] {
        &self.elements
    }
}

impl Index {
    fn hash(&self, value: Value<'_>) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hash_value(value, &mut hasher);
        short(std::hash::Hasher::finish(&hasher))
    }

    fn add(&mut self, hash: u32, at: u32) {
        self.table.insert_unique(spread(hash), (hash, at), |(hash, _)| spread(*hash));
    }

    fn contains(&self, hash: u32, value: Value<'_>, elements: &[u8]) -> bool {
        let same = |&(of, at): &(u32, u32)| {
            of == hash
                && usize::try_from(at)
                    .ok()
                    .and_then(|at| Fields::over_elements(elements.get(at..)?).next())
                    .is_some_and(|known| equal(known.value(), value))
        };
        self.table.find(spread(hash), same).is_some()
    }
}

fn equal(left: Value<'_>, right: Value<'_>) -> bool {
    compare_values(left, right) == Ordering::Equal
}
