//! Sets of intervals against membership, point by point.

use proptest::prelude::*;

use super::{End, Interval, IntervalSet};
use crate::key::Element;

/// Points on the line, and between them (halves), so that open and closed ends differ.
const POINTS: std::ops::Range<i32> = -2..22;

fn at(n: i32) -> Element {
    Element::new(document::Value::Double(f64::from(n) / 2.0))
}

fn contains(set: &IntervalSet, n: i32) -> bool {
    let value = at(n);
    set.intervals().iter().any(|interval| {
        let low = interval.low.value.order(&value);
        let high = value.order(&interval.high.value);
        (low.is_lt() || low.is_eq() && interval.low.inclusive)
            && (high.is_lt() || high.is_eq() && interval.high.inclusive)
    })
}

fn set() -> impl Strategy<Value = IntervalSet> {
    let interval = (0..10i32, 0..6i32, any::<bool>(), any::<bool>()).prop_map(|(low, width, a, b)| {
        let end = |n: i32, inclusive| End { value: at(n * 2), inclusive };
        Interval::new(end(low, a), end(low + width, b))
    });
    proptest::collection::vec(interval, 0..5).prop_map(|all| all.into_iter().flatten().collect())
}

fn assert_well_formed(set: &IntervalSet) {
    for pair in set.intervals().windows(2) {
        assert!(super::is_gap(&pair[0].high, &pair[1].low), "{set:?}");
    }
}

proptest! {
    #[test]
    fn operations_are_those_of_sets(a in set(), b in set()) {
        let both: IntervalSet = a.clone().into_intervals().into_iter().chain(b.clone().into_intervals()).collect();
        let common = a.intersection(&b);
        let rest = a.complement();
        for result in [&a, &b, &both, &common, &rest] {
            assert_well_formed(result);
        }
        for n in POINTS {
            prop_assert_eq!(contains(&both, n), contains(&a, n) || contains(&b, n));
            prop_assert_eq!(contains(&common, n), contains(&a, n) && contains(&b, n));
            prop_assert_eq!(contains(&rest, n), !contains(&a, n));
        }
        prop_assert_eq!(rest.complement(), a);
    }
}

#[test]
fn all_and_nothing() {
    assert!(IntervalSet::all().complement().is_empty());
    assert_eq!(IntervalSet::empty().complement(), IntervalSet::all());
    let end = |inclusive| End { value: at(1), inclusive };
    assert!(Interval::new(end(true), end(false)).is_none());
    assert!(Interval::new(end(true), end(true)).is_some_and(|point| point.is_point()));
    assert!(IntervalSet::point(at(1)).intervals().iter().all(Interval::is_point));
}
