use std::cmp::Ordering;

use proptest::prelude::*;

use super::decimal::{Decimal, FiniteDecimal};
use super::{FieldNames, compare_docs, compare_values};
use crate::{DocBuf, Timestamp, Value};

/// A value that owns its parts.
#[derive(Debug, Clone)]
enum Owned {
    Int32(i32),
    Int64(i64),
    Double(f64),
    Decimal([u8; 16]),
    String(String),
    Symbol(String),
    Binary(u8, Vec<u8>),
    ObjectId([u8; 12]),
    Bool(bool),
    DateTime(i64),
    Timestamp(u32, u32),
    Null,
    Undefined,
    MinKey,
    MaxKey,
    Document(Vec<(String, Owned)>),
    Array(Vec<Owned>),
}

impl Owned {
    fn append(&self, name: &str, buf: &mut DocBuf) {
        match self {
            Self::Int32(n) => buf.append(name, *n),
            Self::Int64(n) => buf.append(name, *n),
            Self::Double(n) => buf.append(name, *n),
            Self::Decimal(bytes) => buf.append(name, Value::Decimal128(*bytes)),
            Self::String(text) => buf.append(name, text),
            Self::Symbol(text) => buf.append(name, Value::Symbol(text.as_bytes())),
            Self::Binary(subtype, bytes) => buf.append(name, Value::Binary { subtype: *subtype, bytes }),
            Self::ObjectId(id) => buf.append(name, Value::ObjectId(*id)),
            Self::Bool(flag) => buf.append(name, *flag),
            Self::DateTime(ms) => buf.append(name, Value::DateTime(*ms)),
            Self::Timestamp(t, i) => buf.append(name, Timestamp::new(*t, *i)),
            Self::Null => buf.append(name, Value::Null),
            Self::Undefined => buf.append(name, Value::Undefined),
            Self::MinKey => buf.append(name, Value::MinKey),
            Self::MaxKey => buf.append(name, Value::MaxKey),
            Self::Document(fields) => {
                let mut inner = DocBuf::new();
                for (name, value) in fields {
                    value.append(name, &mut inner);
                }
                buf.append(name, &inner)
            }
            Self::Array(items) => {
                let mut inner = DocBuf::new();
                for (index, value) in items.iter().enumerate() {
                    value.append(&index.to_string(), &mut inner);
                }
                buf.append(name, Value::Array(inner.as_doc()))
            }
        };
    }
}

fn encode(decimal: FiniteDecimal) -> [u8; 16] {
    let exponent = u128::try_from(decimal.exponent + 6176).unwrap();
    (u128::from(decimal.negative) << 127 | exponent << 113 | decimal.coefficient).to_le_bytes()
}

/// Numbers that come close to each other across types.
fn number() -> impl Strategy<Value = Owned> {
    let decimal = |exponents: std::ops::Range<i32>| {
        (any::<bool>(), 0..10u128.pow(34), 0..34u32, exponents).prop_map(|(negative, c, drop, exponent)| {
            Owned::Decimal(encode(FiniteDecimal { negative, coefficient: c / 10u128.pow(drop), exponent }))
        })
    };
    let near = prop_oneof![-3i64..3, Just(1i64 << 53), Just(-(1i64 << 53)), Just(i64::MAX), Just(i64::MIN)];
    prop_oneof![
        any::<i32>().prop_map(Owned::Int32),
        any::<i64>().prop_map(Owned::Int64),
        near.clone().prop_map(Owned::Int64),
        (near.clone(), -2i32..3).prop_map(|(n, ulps)| {
            #[allow(clippy::cast_precision_loss)]
            let n = n as f64;
            Owned::Double((0..ulps.abs()).fold(n, |n, _| if ulps > 0 { n.next_up() } else { n.next_down() }))
        }),
        any::<f64>().prop_map(Owned::Double),
        (-50i32..50, -9i32..9).prop_map(|(e, m)| Owned::Double(f64::from(m) * 10f64.powi(e))),
        decimal(-60..30),
        decimal(-6176..6112),
        (near, -3i32..4).prop_map(|(n, tenths)| {
            // n + tenths / 10
            let scaled = i128::from(n) * 10 + i128::from(tenths);
            Owned::Decimal(encode(FiniteDecimal {
                negative: scaled < 0,
                coefficient: scaled.unsigned_abs(),
                exponent: -1,
            }))
        }),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| Owned::Decimal(nearby(n))),
    ]
}

/// The decimal of 34 digits that a double is cut to.
fn nearby(n: f64) -> [u8; 16] {
    let text = format!("{:.60e}", n.abs());
    let (digits, exponent) = text.split_once('e').unwrap();
    let digits: String = digits.chars().filter(char::is_ascii_digit).take(34).collect();
    encode(FiniteDecimal {
        negative: n < 0.0,
        coefficient: digits.parse().unwrap(),
        exponent: exponent.parse::<i32>().unwrap() - 33,
    })
}

fn any_value() -> impl Strategy<Value = Owned> {
    let leaf = prop_oneof![
        4 => number(),
        1 => "[ab\0é😀]{0,3}".prop_map(Owned::String),
        1 => "[ab]{0,2}".prop_map(Owned::Symbol),
        1 => (0u8..6, proptest::collection::vec(any::<u8>(), 0..3)).prop_map(|(s, b)| Owned::Binary(s, b)),
        1 => any::<[u8; 12]>().prop_map(Owned::ObjectId),
        1 => any::<bool>().prop_map(Owned::Bool),
        1 => any::<i64>().prop_map(Owned::DateTime),
        1 => any::<(u32, u32)>().prop_map(|(t, i)| Owned::Timestamp(t, i)),
        1 => prop_oneof![Just(Owned::Null), Just(Owned::Undefined), Just(Owned::MinKey), Just(Owned::MaxKey)],
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(("[ab]{0,1}", inner.clone()), 0..3).prop_map(Owned::Document),
            proptest::collection::vec(inner, 0..3).prop_map(Owned::Array),
        ]
    })
}

fn compare(a: &Owned, b: &Owned) -> Ordering {
    let (mut left, mut right) = (DocBuf::new(), DocBuf::new());
    a.append("v", &mut left);
    b.append("v", &mut right);
    compare_values(left.as_doc().get("v").unwrap(), right.as_doc().get("v").unwrap())
}

/// Digits of a finite number before and behind the point, without zeros at the outer ends; and its sign.
type Digits = (bool, Vec<u8>, Vec<u8>);

fn exact(value: &Owned) -> Option<Digits> {
    let plain = |negative: bool, text: String| {
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let whole = whole.trim_start_matches('0').as_bytes().to_vec();
        let part = part.trim_end_matches('0').as_bytes().to_vec();
        Some((negative && !(whole.is_empty() && part.is_empty()), whole, part))
    };
    match value {
        Owned::Int32(n) => plain(*n < 0, n.unsigned_abs().to_string()),
        Owned::Int64(n) => plain(*n < 0, n.unsigned_abs().to_string()),
        // No double has more than 1074 digits behind the point, and Rust prints them all.
        Owned::Double(n) if n.is_finite() => plain(*n < 0.0, format!("{:.1074}", n.abs())),
        Owned::Decimal(bytes) => match Decimal::decode(*bytes) {
            Decimal::Finite(d) => {
                let digits = d.coefficient.to_string();
                let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
                let text = if d.exponent >= 0 {
                    digits + &zeros(d.exponent)
                } else {
                    let missing = -d.exponent + 1 - i32::try_from(digits.len()).unwrap();
                    let padded = zeros(missing) + &digits;
                    let point = padded.len() - usize::try_from(-d.exponent).unwrap();
                    format!("{}.{}", &padded[..point], &padded[point..])
                };
                plain(d.negative, text)
            }
            _ => None,
        },
        _ => None,
    }
}

fn compare_digits((negative, whole, part): &Digits, other: &Digits) -> Ordering {
    let magnitude = |whole: &Vec<u8>, part: &Vec<u8>, b: &Digits| {
        whole.len().cmp(&b.1.len()).then_with(|| whole.cmp(&b.1)).then_with(|| part.cmp(&b.2))
    };
    match (negative, other.0) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => magnitude(whole, part, other),
        (true, true) => magnitude(whole, part, other).reverse(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn order_is_total(values in proptest::collection::vec(any_value(), 3)) {
        let [a, b, c] = [&values[0], &values[1], &values[2]];
        prop_assert_eq!(compare(a, a), Ordering::Equal);
        prop_assert_eq!(compare(a, b), compare(b, a).reverse());
        if compare(a, b).is_le() && compare(b, c).is_le() {
            prop_assert!(compare(a, c).is_le());
        }
        if compare(a, b).is_eq() {
            prop_assert_eq!(compare(a, c), compare(b, c));
        }
    }

    #[test]
    fn order_of_numbers_is_total(a in number(), b in number(), c in number()) {
        prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
            prop_assert!(compare(&a, &c).is_le());
        }
    }

    #[test]
    fn numbers_compare_as_their_digits_do(a in number(), b in number()) {
        if let (Some(x), Some(y)) = (exact(&a), exact(&b)) {
            prop_assert_eq!(compare(&a, &b), compare_digits(&x, &y), "{:?} {:?}", a, b);
        }
    }

    /// A double and decimals one digit to each side of it: where a conversion would round them together.
    #[test]
    fn decimals_beside_a_double(n in any::<f64>().prop_filter("finite", |n| n.is_finite()), step in -1i8..2) {
        let Decimal::Finite(mut d) = Decimal::decode(nearby(n)) else { unreachable!() };
        d.coefficient = d.coefficient.saturating_add_signed(i128::from(step)).min(10u128.pow(34) - 1);
        let (a, b) = (Owned::Double(n), Owned::Decimal(encode(d)));
        prop_assert_eq!(compare(&a, &b), compare_digits(&exact(&a).unwrap(), &exact(&b).unwrap()));
    }
}

#[test]
fn names_are_ignored_or_weigh_less_than_types() {
    let mut a = DocBuf::new();
    a.append("a", 2).append("x", 1);
    let mut b = DocBuf::new();
    b.append("b", 1).append("y", "");
    assert_eq!(compare_docs(a.as_doc(), b.as_doc(), FieldNames::Ignored), Ordering::Greater);
    assert_eq!(compare_docs(a.as_doc(), b.as_doc(), FieldNames::Compared), Ordering::Less);
    let mut c = DocBuf::new();
    c.append("a", 2);
    assert_eq!(compare_docs(c.as_doc(), a.as_doc(), FieldNames::Ignored), Ordering::Less);
    let mut d = DocBuf::new();
    d.append("0", "text");
    assert_eq!(compare_docs(d.as_doc(), a.as_doc(), FieldNames::Compared), Ordering::Greater);
}

#[test]
fn decimals_round_half_to_even_and_clamp() {
    let round = |negative, coefficient, exponent| {
        Decimal::Finite(FiniteDecimal { negative, coefficient, exponent }).round_to_i64()
    };
    for (coefficient, exponent, expected) in [
        (15, -1, 2),
        (25, -1, 2),
        (35, -1, 4),
        (5, -1, 0),
        (6, -1, 1),
        (19_999_999, -7, 2),
        (5, 0, 5),
        (5, 3, 5000),
    ] {
        assert_eq!(round(false, coefficient, exponent), expected);
        assert_eq!(round(true, coefficient, exponent), -expected);
    }
    assert_eq!(round(false, 1 << 63, 0), i64::MAX);
    assert_eq!(round(true, 1 << 63, 0), i64::MIN);
    assert_eq!(round(true, (1 << 63) + 1, 0), i64::MIN);
    assert_eq!(round(false, 1, 6111), i64::MAX);
    assert_eq!(round(false, 9, -6176), 0);
    assert_eq!(round(false, 92_233_720_368_547_758_075, -1), i64::MAX);
    assert_eq!(Decimal::NaN.round_to_i64(), 0);
    assert_eq!(Decimal::Infinity { negative: true }.round_to_i64(), i64::MIN);
}
