//! From a box to ranges of whole keys.

use super::interval::{Interval, IntervalSet};
use super::{KeyRange, KeyRanges};
use crate::error::ShardKeyError;
use crate::key::{KeyBuilder, ShardKey};

/// Most ranges that one filter may ask for (the server's limit, error 17439).
const MAX_RANGES: usize = 4_000_000;

/// Leading fields with one point stay points; the first with more than that makes a range of each of its
/// intervals; each field after it reaches from its lowest to its highest value.
pub(super) fn flatten(sets: &[IntervalSet]) -> Result<KeyRanges, ShardKeyError> {
    if sets.iter().any(IntervalSet::is_empty) {
        return Ok(KeyRanges::Empty);
    }
    let points = sets.iter().take_while(|set| matches!(set.intervals(), [only] if only.is_point())).count();
    let (points, rest) = sets.split_at(points);
    let (spread, tail) = match rest.split_first() {
        Some((spread, tail)) => (spread.intervals(), tail),
        // All points: one key. The last field plays the one that spreads.
        None => match points.split_last() {
            Some((last, points)) => {
                return Ok(KeyRanges::Key(key(points, last.intervals().first(), &[], End::Low)));
            }
            None => return Ok(KeyRanges::All),
        },
    };
    if spread.len() > MAX_RANGES {
        return Err(ShardKeyError::TooManyRanges);
    }
    let ranges: Vec<KeyRange> = spread
        .iter()
        .map(|interval| KeyRange {
            min: key(points, Some(interval), tail, End::Low),
            max: key(points, Some(interval), tail, End::High),
        })
        .collect();
    match &*ranges {
        [only] if only.min.is_all_min_key() && only.max.is_all_max_key() => Ok(KeyRanges::All),
        _ => Ok(KeyRanges::Ranges(ranges)),
    }
}

#[derive(Clone, Copy)]
enum End {
    Low,
    High,
}

fn key(points: &[IntervalSet], spread: Option<&Interval>, tail: &[IntervalSet], end: End) -> ShardKey {
    let mut key = ShardKey::builder();
    for set in points {
        push(&mut key, set.intervals().first(), end);
    }
    push(&mut key, spread, end);
    for set in tail {
        let interval = match end {
            End::Low => set.intervals().first(),
            End::High => set.intervals().last(),
        };
        push(&mut key, interval, end);
    }
    key.finish()
}

fn push(key: &mut KeyBuilder, interval: Option<&Interval>, end: End) {
    if let Some(interval) = interval {
        key.push_element(match end {
            End::Low => &interval.low.value,
            End::High => &interval.high.value,
        });
    }
}
