//! Sets of intervals of values: sorted, disjoint, each end open or closed.

use std::cmp::Ordering;

use crate::key::Element;

/// One end of an interval, as a point on a line where each value has a place before, at and behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) value: Element,
    pub(crate) inclusive: bool,
}

/// All values between two ends; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) low: End,
    pub(crate) high: End,
}

impl Interval {
    /// `None` if no value is inside.
    pub(crate) fn new(low: End, high: End) -> Option<Self> {
        let filled = match low.value.order(&high.value) {
            Ordering::Less => true,
            Ordering::Equal => low.inclusive && high.inclusive,
            Ordering::Greater => false,
        };
        filled.then_some(Self { low, high })
    }

    pub(crate) fn point(value: Element) -> Self {
        let end = End { value, inclusive: true };
        Self { low: end.clone(), high: end }
    }

    pub(crate) fn is_point(&self) -> bool {
        self.low.value.order(&self.high.value).is_eq()
    }
}

/// Which of two lower ends lets in less.
fn order_lows(a: &End, b: &End) -> Ordering {
    a.value.order(&b.value).then_with(|| b.inclusive.cmp(&a.inclusive))
}

/// Which of two upper ends lets in more.
fn order_highs(a: &End, b: &End) -> Ordering {
    a.value.order(&b.value).then_with(|| a.inclusive.cmp(&b.inclusive))
}

/// Is there a value after `high` and before `low`, or do the two meet?
fn is_gap(high: &End, low: &End) -> bool {
    match high.value.order(&low.value) {
        Ordering::Less => true,
        Ordering::Equal => !high.inclusive && !low.inclusive,
        Ordering::Greater => false,
    }
}

/// A set of values of one key field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IntervalSet {
    intervals: Vec<Interval>,
}

impl FromIterator<Interval> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = Interval>>(intervals: I) -> Self {
        let mut intervals: Vec<Interval> = intervals.into_iter().collect();
        intervals.sort_by(|a, b| order_lows(&a.low, &b.low));
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for next in intervals {
            match merged.last_mut() {
                Some(last) if !is_gap(&last.high, &next.low) => {
                    if order_highs(&next.high, &last.high).is_gt() {
                        last.high = next.high;
                    }
                }
                _ => merged.push(next),
            }
        }
        Self { intervals: merged }
    }
}

impl IntervalSet {
    pub(crate) fn empty() -> Self {
        Self::default()
    }

    pub(crate) fn all() -> Self {
        let end = |value| End { value, inclusive: true };
        Self { intervals: vec![Interval { low: end(Element::min_key()), high: end(Element::max_key()) }] }
    }

    pub(crate) fn point(value: Element) -> Self {
        Self { intervals: vec![Interval::point(value)] }
    }

    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.intervals.len()
    }

    pub(crate) fn into_intervals(self) -> Vec<Interval> {
        self.intervals
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let (mut left, mut right) = (self.intervals.iter().peekable(), other.intervals.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let low = if order_lows(&a.low, &b.low).is_ge() { &a.low } else { &b.low };
            let a_ends_first = order_highs(&a.high, &b.high).is_le();
            let high = if a_ends_first { &a.high } else { &b.high };
            common.extend(Interval::new(low.clone(), high.clone()));
            if a_ends_first {
                left.next();
            } else {
                right.next();
            }
        }
        Self { intervals: common }
    }

    pub(crate) fn complement(&self) -> Self {
        let mut low = End { value: Element::min_key(), inclusive: true };
        let mut gaps = Vec::with_capacity(self.intervals.len() + 1);
        for Interval { low: start, high: end } in &self.intervals {
            let before = End { value: start.value.clone(), inclusive: !start.inclusive };
            gaps.extend(Interval::new(low, before));
            low = End { value: end.value.clone(), inclusive: !end.inclusive };
        }
        gaps.extend(Interval::new(low, End { value: Element::max_key(), inclusive: true }));
        Self { intervals: gaps }
    }
}

#[cfg(test)]
mod tests;
