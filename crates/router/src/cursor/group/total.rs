//! Sums with the server's arithmetic: a double and what it lacks, and the widest type that was added.

use document::Value;

/// The type of a sum so far, from narrow to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Kind {
    #[default]
    Int,
    Long,
    Double,
}

/// A sum: `sum` and the part of it that a double of its size cannot hold. Once it is not finite, `sum` alone counts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Total {
    sum: f64,
    addend: f64,
}

/// A partial sum of a shard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Partial {
    pub(super) kind: Kind,
    sum: f64,
    addend: f64,
}

impl Partial {
    /// `[<type>, <sum>, <what it lacks>]`, or the plain number that shards send while the cluster's feature
    /// compatibility version is lower. `None` for decimals, and for what has the form of other versions.
    pub(super) fn new(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Array(parts) => {
                let mut parts = parts.iter().map(document::Field::value);
                let (Value::Int32(kind), Value::Double(sum), Value::Double(addend), None) =
                    (parts.next()?, parts.next()?, parts.next()?, parts.next())
                else {
                    return None;
                };
                let kind = match kind {
                    16 => Kind::Int,
                    18 => Kind::Long,
                    1 => Kind::Double,
                    _ => return None,
                };
                Some(Self { kind, sum, addend })
            }
            Value::Int32(n) => Some(Self { kind: Kind::Int, sum: f64::from(n), addend: 0.0 }),
            Value::Int64(n) => {
                #[allow(clippy::cast_precision_loss)] // what is lost is the addend
                let sum = n as f64;
                #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // below 2^10
                let addend = (i128::from(n) - sum as i128) as f64;
                Some(Self { kind: Kind::Long, sum, addend })
            }
            Value::Double(sum) => Some(Self { kind: Kind::Double, sum, addend: 0.0 }),
            _ => None,
        }
    }
}

/// The sum of two doubles and its exact error (Knuth's two-sum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

impl Total {
    /// Adds a shard's sum.
    pub(super) fn add(&mut self, partial: Partial) {
        self.add_double(partial.sum);
        // Of an infinite sum the rest is NaN.
        if partial.sum.is_finite() {
            self.add_double(partial.addend);
        }
    }

    fn add_double(&mut self, x: f64) {
        if !self.sum.is_finite() {
            self.sum += x;
            return;
        }
        let (x_sum, rest) = two_sum(x, self.addend);
        let (sum, addend) = two_sum(self.sum, x_sum);
        *self = if sum.is_finite() {
            Self { sum, addend: addend + rest }
        } else {
            Self { sum: self.sum + x, addend: 0.0 }
        };
    }

    /// As a double.
    pub(super) const fn as_f64(self) -> f64 {
        self.sum
    }

    /// In the type that one server gives: a sum of ints is a long when it must be, one of longs a double.
    pub(super) fn value(self, kind: Kind) -> Value<'static> {
        let whole = if kind == Kind::Double { None } else { self.whole() };
        match whole {
            None => Value::Double(self.sum),
            Some(n) => match i32::try_from(n) {
                Ok(small) if kind == Kind::Int => Value::Int32(small),
                _ => Value::Int64(n),
            },
        }
    }

    /// The sum of integers, if a long can hold it.
    #[allow(clippy::cast_possible_truncation)] // i128 saturates far beyond what is accepted
    fn whole(self) -> Option<i64> {
        if !self.sum.is_finite() {
            return None;
        }
        i64::try_from((self.sum as i128).saturating_add(self.addend as i128)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(partials: &[(Kind, f64, f64)]) -> Value<'static> {
        let (mut total, mut kind) = (Total::default(), Kind::Int);
        for &(of, sum, addend) in partials {
            total.add(Partial { kind: of, sum, addend });
            kind = kind.max(of);
        }
        total.value(kind)
    }

    /// Partial sums and what the merging `$group` of a 6.0.5 made of them.
    #[test]
    fn sums_are_those_of_a_server() {
        use Kind::{Double, Int, Long};
        let inf = f64::INFINITY;
        for (partials, expected) in [
            (&[(Int, 1.0, 0.0), (Int, 2.0, 0.0)][..], Value::Int32(3)),
            (&[(Int, 1.0, 0.0), (Long, 2.0, 0.0)], Value::Int64(3)),
            (&[(Int, 4_294_967_294.0, 0.0)], Value::Int64(4_294_967_294)),
            (&[(Double, 0.1, 0.0), (Double, 0.2, 0.0)], Value::Double(0.300_000_000_000_000_04)),
            (&[(Double, inf, f64::NAN), (Double, 1.0, 0.0)], Value::Double(inf)),
            (&[(Double, 1e308, 0.0), (Double, 1e308, 0.0)], Value::Double(inf)),
            (&[(Long, 9.223_372_036_854_776e18, 0.0), (Long, -1.0, 0.0)], Value::Int64(i64::MAX)),
            (&[(Long, 9.223_372_036_854_776e18, 0.0)], Value::Double(9.223_372_036_854_776e18)),
            (&[(Long, 9.223_372_036_854_775e18, 0.25)], Value::Int64(9_223_372_036_854_774_784)),
            (&[(Int, 5.0, 0.5)], Value::Int32(5)),
            (&[(Double, 5e-324, 0.0), (Double, 1e308, 0.0)], Value::Double(1e308)),
            (&[(Double, -0.0, 0.0)], Value::Double(0.0)),
            (&[], Value::Int32(0)),
        ] {
            assert_eq!(sum(partials), expected, "{partials:?}");
        }
        let Value::Double(n) = sum(&[(Double, inf, 0.0), (Double, -inf, 0.0)]) else { panic!() };
        assert!(n.is_nan());
    }

    #[test]
    fn what_a_double_lacks_is_kept() {
        let mut total = Total::default();
        total.add(Partial { kind: Kind::Double, sum: 1.0, addend: 0.0 });
        for _ in 0..1000 {
            total.add(Partial { kind: Kind::Double, sum: 1e-17, addend: 0.0 });
        }
        assert_eq!(total.as_f64(), 1.000_000_000_000_01);
    }

    #[test]
    fn longs_are_exact() {
        let mut total = Total::default();
        for n in [i64::MAX, -5, 3, i64::MIN + 10] {
            total.add(Partial::new(Value::Int64(n)).unwrap());
        }
        assert_eq!(total.value(Kind::Long), Value::Int64(7));
    }
}
