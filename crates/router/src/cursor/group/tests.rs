use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bson::{Bson, Document, RawDocumentBuf, doc};
use bytes::BytesMut;
use document::order::compare_values;
use document::{Doc, splice};
use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

fn budget(one: usize) -> Budget {
    Budget::new(Arc::new(AtomicUsize::new(0)), one, 64 * MIB)
}

fn spec(accumulators: &[(&str, &str)]) -> GroupSpec {
    let accumulators = accumulators
        .iter()
        .map(|(name, operator)| ((*name).into(), Accumulator::new(operator).unwrap()))
        .collect();
    GroupSpec { accumulators, ..GroupSpec::default() }
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn add(groups: &mut Groups, partial: &Document) -> Result<(), Refusal> {
    groups.add(Doc::new(raw(partial).as_bytes()).unwrap())
}

fn given(groups: Groups, spec: &GroupSpec) -> Vec<Document> {
    let mut grouped = Grouped::new(groups, spec).unwrap();
    let mut out = BytesMut::new();
    let array = splice::open(&mut out);
    let mut index = 0;
    while grouped.put_next(&mut out, index) {
        index += 1;
    }
    array.finish(&mut out);
    let names: Vec<String> = (0..index).map(|n| n.to_string()).collect();
    let array = RawDocumentBuf::from_bytes(out.to_vec()).unwrap();
    let array = Document::try_from(array.as_ref()).unwrap();
    assert!(array.keys().eq(names.iter()), "{array}");
    array.into_iter().map(|(_, value)| value.as_document().unwrap().clone()).collect()
}

fn merged(spec: &GroupSpec, partials: &[Document]) -> Vec<Document> {
    let mut groups = Groups::new(spec, &budget(64 * MIB));
    for partial in partials {
        add(&mut groups, partial).unwrap();
    }
    given(groups, spec)
}

/// Partial results as shards of 6.0.5 sent them, and what its merging `$group` gave.
#[test]
fn partial_results_become_those_of_one_server() {
    let spec = spec(&[
        ("s", "$sum"),
        ("a", "$avg"),
        ("mn", "$min"),
        ("mx", "$max"),
        ("f", "$first"),
        ("l", "$last"),
        ("p", "$push"),
        ("set", "$addToSet"),
        ("o", "$mergeObjects"),
    ]);
    let partials = [
        doc! {
            "_id": 1, "s": [16, 3.0, 0.0], "a": { "subTotal": 3.0, "count": 2_i64, "subTotalError": 0.0, "ps": [16, 3.0, 0.0] },
            "mn": 1, "mx": 2, "f": Bson::Null, "l": 2, "p": [1, 2], "set": [2, 1], "o": { "a": 1, "b": 2 },
        },
        doc! {
            "_id": 2, "s": [16, 0.0, 0.0], "a": { "subTotal": 0.0, "count": 0_i64, "subTotalError": 0.0, "ps": [16, 0.0, 0.0] },
            "mn": Bson::Null, "mx": Bson::Null, "f": Bson::Null, "l": Bson::Null, "p": [], "set": [], "o": {},
        },
        doc! {
            "_id": 1.0, "s": [18, 4.0, 0.0], "a": { "subTotal": 4.0, "count": 1_i64, "subTotalError": 0.0, "ps": [18, 4.0, 0.0] },
            "mn": 1.0, "mx": 4_i64, "f": 4_i64, "l": 4_i64, "p": [4_i64, 1.0], "set": [1.0, 4_i64, Bson::Null], "o": { "b": { "x": 1 }, "c": 3, "a": Bson::Null },
        },
    ];
    let expected = [
        doc! {
            "_id": 1, "s": 7_i64, "a": 7.0 / 3.0, "mn": 1, "mx": 4_i64, "f": Bson::Null, "l": 4_i64,
            "p": [1, 2, 4_i64, 1.0], "set": [2, 1, 4_i64, Bson::Null], "o": { "a": Bson::Null, "b": { "x": 1 }, "c": 3 },
        },
        doc! {
            "_id": 2, "s": 0, "a": Bson::Null, "mn": Bson::Null, "mx": Bson::Null, "f": Bson::Null, "l": Bson::Null, "p": [], "set": [], "o": {},
        },
    ];
    assert_eq!(merged(&spec, &partials), expected);
}

#[test]
fn keys_are_equal_as_the_server_compares() {
    let same: [&[Bson]; 8] = [
        &[Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0), Bson::Decimal128("1.00".parse().unwrap())],
        &[
            Bson::Double(0.5),
            Bson::Decimal128("0.5".parse().unwrap()),
            Bson::Decimal128("5E-1".parse().unwrap()),
        ],
        &[Bson::Int32(0), Bson::Double(-0.0), Bson::Decimal128("-0".parse().unwrap())],
        &[Bson::Double(f64::NAN), Bson::Decimal128("NaN".parse().unwrap())],
        &[Bson::Int64(1 << 60), Bson::Double(1.152_921_504_606_847e18)],
        &[Bson::String("x".into()), Bson::Symbol("x".into())],
        &[Bson::from(doc! { "a": [1, { "b": 2 }] }), Bson::from(doc! { "a": [1.0, { "b": 2_i64 }] })],
        &[Bson::Null],
    ];
    let different = [
        Bson::Undefined,
        Bson::from(doc! {}),
        Bson::from(doc! { "a": Bson::Null }),
        Bson::from(doc! { "b": 2, "a": 1 }),
        Bson::from(doc! { "a": 1, "b": 2 }),
        Bson::Array(vec![]),
        Bson::Array(vec![Bson::Null]),
        Bson::Int64((1 << 60) + 1),
        Bson::Decimal128("0.1".parse().unwrap()),
        Bson::Double(0.1),
        Bson::DateTime(bson::DateTime::from_millis(1)),
        Bson::Timestamp(bson::Timestamp { time: 0, increment: 1 }),
        Bson::Boolean(true),
    ];
    let spec = spec(&[("n", "$sum")]);
    let keys = same.iter().flat_map(|keys| keys.iter()).chain(&different);
    let partials: Vec<Document> = keys.map(|key| doc! { "_id": key.clone(), "n": [16, 1.0, 0.0] }).collect();
    let counts: Vec<i32> = merged(&spec, &partials).iter().map(|group| group.get_i32("n").unwrap()).collect();
    let expected: Vec<i32> = same
        .iter()
        .map(|keys| i32::try_from(keys.len()).unwrap())
        .chain(different.iter().map(|_| 1))
        .collect();
    assert_eq!(counts, expected);
}

#[test]
fn sorts_skips_and_limits_are_applied_once() {
    let partials: Vec<Document> =
        (0..50).map(|n| doc! { "_id": { "a": n % 5, "b": n }, "n": [16, f64::from(n % 7), 0.0] }).collect();
    for (skip, limit) in [(0, None), (3, None), (0, Some(7)), (5, Some(11)), (60, Some(4)), (0, Some(0))] {
        let mut spec = spec(&[("n", "$sum")]);
        spec.sort = vec![("n".into(), true), ("_id.a".into(), false), ("_id.b".into(), true)];
        (spec.skip, spec.limit) = (skip, limit);
        let mut expected: Vec<(i32, i32, i32)> = (0..50).map(|n| (-(n % 7), n % 5, -n)).collect();
        expected.sort_unstable();
        let expected: Vec<(i32, i32, i32)> = expected
            .into_iter()
            .skip(usize::try_from(skip).unwrap())
            .take(limit.map_or(50, |limit: u64| usize::try_from(limit).unwrap()))
            .collect();
        let found: Vec<(i32, i32, i32)> = merged(&spec, &partials)
            .iter()
            .map(|group| {
                let id = group.get_document("_id").unwrap();
                (-group.get_i32("n").unwrap(), id.get_i32("a").unwrap(), -id.get_i32("b").unwrap())
            })
            .collect();
        assert_eq!(found, expected, "skip {skip}, limit {limit:?}");
    }
}

#[test]
fn what_is_not_known_is_refused() {
    let sum = spec(&[("n", "$sum")]);
    for partial in [
        doc! { "_id": 1, "n": [16, 1.0, 0.0, Bson::Decimal128("1".parse().unwrap())] },
        doc! { "_id": 1, "n": Bson::Decimal128("1".parse().unwrap()) },
        doc! { "_id": 1, "n": { "subTotal": 1e19, "subTotalError": 0 } },
        doc! { "_id": 1, "n": [99, 1.0, 0.0] },
        doc! { "_id": 1, "n": "x" },
        doc! { "_id": 1 },
        doc! { "_id": 1, "m": [16, 1.0, 0.0] },
        doc! { "n": [16, 1.0, 0.0] },
    ] {
        let mut groups = Groups::new(&sum, &budget(MIB));
        assert_eq!(add(&mut groups, &partial), Err(Refusal::Form), "{partial}");
    }
    let mut by_array = spec(&[("n", "$sum")]);
    by_array.sort = vec![("_id".into(), false)];
    let mut groups = Groups::new(&by_array, &budget(MIB));
    add(&mut groups, &doc! { "_id": [1, 2], "n": [16, 1.0, 0.0] }).unwrap();
    assert_eq!(Grouped::new(groups, &by_array).map(|_| ()), Err(Refusal::Form));
}

#[test]
fn memory_is_bounded_and_given_back() {
    let taken = Arc::new(AtomicUsize::new(0));
    let budget = Budget::new(Arc::clone(&taken), 4 * MIB, 6 * MIB);
    let pushes = spec(&[("p", "$push"), ("set", "$addToSet"), ("last", "$last")]);
    let text = "x".repeat(1000);
    let fill = |groups: &mut Groups| {
        let mut n = 0;
        loop {
            let partial = doc! { "_id": n % 100, "p": [&text], "set": [format!("{text}{n}")], "last": &text };
            match add(groups, &partial) {
                Ok(()) => n += 1,
                Err(refusal) => return (n, refusal),
            }
        }
    };
    let mut first = Groups::new(&pushes, &budget);
    let (n, refusal) = fill(&mut first);
    assert_eq!(refusal, Refusal::Memory);
    assert!((500..4000).contains(&n), "{n}");
    let mut second = Groups::new(&pushes, &budget);
    let (fewer, refusal) = fill(&mut second);
    assert_eq!(refusal, Refusal::Memory);
    assert!(fewer < n, "{fewer}: what all merges take together is bounded too");
    drop(first);
    drop(second);
    assert_eq!(taken.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn half_a_million_groups_take_less_than_forty_mebibytes() {
    let sums = spec(&[("n", "$sum"), ("m", "$sum")]);
    let mut groups = Groups::new(&sums, &budget(64 * MIB));
    let mut partial = raw(&doc! { "_id": 0_i64, "n": [16, 1.0, 0.0], "m": [16, 1.0, 0.0] }).into_bytes();
    for n in 0..500_000_u64 {
        partial[9..17].copy_from_slice(&n.to_le_bytes());
        groups.add(Doc::new(&partial).unwrap()).unwrap();
    }
    assert_eq!(groups.len(), 500_000);
    assert!(groups.bytes() < 40 * MIB, "{}", groups.bytes());
}

fn value() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        (-3..3_i32).prop_map(Bson::Int32),
        (-3..3_i64).prop_map(Bson::Int64),
        (-6..6_i32).prop_map(|n| Bson::Double(f64::from(n) / 2.0)),
        (-30..30_i32).prop_map(|n| Bson::Decimal128(format!("{n}E-1").parse().unwrap())),
        prop::sample::select(vec!["", "a", "b"]).prop_map(Bson::from),
        any::<bool>().prop_map(Bson::Boolean),
        Just(Bson::Null),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Bson::Array),
            prop::collection::vec((prop::sample::select(vec!["a", "b"]), inner), 0..3).prop_map(|fields| {
                Bson::Document(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

fn compare(left: &Bson, right: &Bson) -> Ordering {
    let (left, right) = (raw(&doc! { "v": left.clone() }), raw(&doc! { "v": right.clone() }));
    let of = |raw: &RawDocumentBuf| Doc::new(raw.as_bytes()).unwrap().get("v").map(|v| format!("{v:?}"));
    let (a, b) = (Doc::new(left.as_bytes()).unwrap(), Doc::new(right.as_bytes()).unwrap());
    assert!(of(&left).is_some() && of(&right).is_some());
    compare_values(a.get("v").unwrap(), b.get("v").unwrap())
}

/// Key, sum, least, greatest, all values, each value once.
type Known = (Bson, i32, Bson, Bson, Vec<Bson>, Vec<Bson>);

proptest! {
    /// Against a plain list that is searched from its start.
    #[test]
    fn merging_is_what_a_list_of_groups_would_give(partials in prop::collection::vec((value(), value(), -100..100_i32), 0..60)) {
        let spec = spec(&[("n", "$sum"), ("min", "$min"), ("max", "$max"), ("all", "$push"), ("set", "$addToSet")]);
        let mut expected: Vec<Known> = Vec::new();
        for (key, value, n) in &partials {
            let at = expected.iter().position(|group| compare(&group.0, key).is_eq()).unwrap_or_else(|| {
                expected.push((key.clone(), 0, Bson::Null, Bson::Null, Vec::new(), Vec::new()));
                expected.len() - 1
            });
            let group = &mut expected[at];
            group.1 += n;
            if *value != Bson::Null {
                if group.2 == Bson::Null || compare(value, &group.2).is_lt() {
                    group.2 = value.clone();
                }
                if group.3 == Bson::Null || compare(value, &group.3).is_gt() {
                    group.3 = value.clone();
                }
            }
            group.4.push(value.clone());
            if !group.5.iter().any(|known| compare(known, value).is_eq()) {
                group.5.push(value.clone());
            }
        }
        let expected: Vec<Document> = expected
            .into_iter()
            .map(|(id, n, min, max, all, set)| doc! { "_id": id, "n": n, "min": min, "max": max, "all": all, "set": set })
            .collect();
        let partials: Vec<Document> = partials
            .into_iter()
            .map(|(key, value, n)| doc! {
                "_id": key, "n": [16, f64::from(n), 0.0], "min": value.clone(), "max": value.clone(), "all": [value.clone()], "set": [value],
            })
            .collect();
        prop_assert_eq!(merged(&spec, &partials), expected);
    }
}
