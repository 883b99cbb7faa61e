//! Merged groups in their order, handed out one by one.

use std::cmp::Ordering;

use bytes::{BufMut, BytesMut};
use document::order::compare_values;
use document::path::{Found, lookup};
use document::{Value, splice};

use super::{GroupSpec, Groups, Refusal};
use crate::cursor::merge::put_index;

/// What one entry of an order takes.
const PER_ENTRY: usize = size_of::<u32>();

/// The groups of a query, as far as they were not handed out yet.
#[derive(Debug)]
pub struct Grouped {
    groups: Groups,
    /// Numbers of groups in their order, if a sort was asked for.
    order: Option<Vec<u32>>,
    next: usize,
    end: usize,
    without_id: bool,
}

impl Grouped {
    /// Sorts them, leaves out what is skipped or beyond the limit. Takes CPU time for large results.
    pub fn new(mut groups: Groups, spec: &GroupSpec) -> Result<Self, Refusal> {
        let all = groups.len();
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let end = spec.limit.map_or(all, |limit| size(limit.saturating_add(spec.skip)).min(all));
        let order = if spec.sort.is_empty() {
            None
        } else {
            groups.memory.take(all * PER_ENTRY)?;
            Some(order(&groups, &spec.sort, end)?)
        };
        Ok(Self { groups, order, next: size(spec.skip).min(end), end, without_id: spec.without_id })
    }

    /// Is everything handed out?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next >= self.end
    }

    /// Writes the next group as an array element. `false` when there is none.
    pub fn put_next(&mut self, out: &mut BytesMut, index: u64) -> bool {
        if self.is_empty() {
            return false;
        }
        let group = match &self.order {
            Some(order) => order.get(self.next).copied(),
            None => u32::try_from(self.next).ok(),
        };
        let Some(group) = group else { return false };
        out.put_u8(0x03);
        put_index(out, index);
        out.put_u8(0);
        let document = splice::open(out);
        if !self.without_id
            && let Some(id) = self.groups.keys.id(group)
        {
            splice::put_element(out, id.element_type() as u8, "_id", id.value_bytes());
        }
        for column in &self.groups.columns {
            column.write(group, out);
        }
        document.finish(out);
        self.next += 1;
        true
    }

    /// Takes a step back: the group that was written last did not fit.
    pub const fn take_back(&mut self) {
        self.next = self.next.saturating_sub(1);
    }
}

/// The numbers of the first `wanted` groups in order.
fn order(groups: &Groups, sort: &[(Box<str>, bool)], wanted: usize) -> Result<Vec<u32>, Refusal> {
    let count = u32::try_from(groups.len()).map_err(|_| Refusal::Memory)?;
    for group in 0..count {
        for (path, _) in sort {
            // An array sorts by its least or greatest element: left to servers.
            if key(groups, group, path).is_none_or(|value| matches!(value, Value::Array(_))) {
                return Err(Refusal::Form);
            }
        }
    }
    let compare = |a: &u32, b: &u32| {
        for (path, descending) in sort {
            let (Some(left), Some(right)) = (key(groups, *a, path), key(groups, *b, path)) else { continue };
            let order = compare_values(left, right);
            if order != Ordering::Equal {
                return if *descending { order.reverse() } else { order };
            }
        }
        // Ties are nobody's promise; this makes them the same each time.
        a.cmp(b)
    };
    let mut order: Vec<u32> = (0..count).collect();
    if wanted > 0 && wanted < order.len() {
        order.select_nth_unstable_by(wanted - 1, compare);
    }
    order.truncate(wanted);
    order.sort_unstable_by(compare);
    Ok(order)
}

/// What a group is sorted by. `None` when an array stands on the way.
fn key<'g>(groups: &'g Groups, group: u32, path: &str) -> Option<Value<'g>> {
    let Some((head, tail)) = path.split_once('.') else {
        return Some(groups.value(group, path).unwrap_or(Value::Null));
    };
    match groups.value(group, head) {
        Some(Value::Document(doc)) => match lookup(doc, tail) {
            Found::Value(value) => Some(value),
            Found::Missing => Some(Value::Null),
            Found::Array => None,
        },
        Some(Value::Array(_)) => None,
        _ => Some(Value::Null),
    }
}
