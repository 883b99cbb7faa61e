//! Exact order of numbers across int32, int64, double and decimal128: by mathematical value, never through a
//! conversion that rounds. `NaN < -Infinity < ... < Infinity`, and `-0 = 0`.

use std::cmp::Ordering;

use super::decimal::{Decimal, FiniteDecimal};
use crate::value::Value;

/// A numeric value, sorted out by how it compares.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// NaN of a double or a decimal: equal to each other.
    NaN,
    /// An infinity of a double or a decimal.
    Infinity {
        /// Is it the negative one?
        negative: bool,
    },
    /// int32 or int64.
    Int(i64),
    /// A finite double.
    Double(f64),
    /// A finite decimal.
    Decimal(FiniteDecimal),
}

impl Number {
    /// The number that a value is, if it is of a numeric type.
    #[must_use]
    pub fn new(value: Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Int32(n) => Self::Int(i64::from(n)),
            Value::Int64(n) => Self::Int(n),
            Value::Double(n) if n.is_nan() => Self::NaN,
            Value::Double(n) if n.is_infinite() => Self::Infinity { negative: n < 0.0 },
            Value::Double(n) => Self::Double(n),
            Value::Decimal128(bytes) => match Decimal::decode(bytes) {
                Decimal::NaN => Self::NaN,
                Decimal::Infinity { negative } => Self::Infinity { negative },
                Decimal::Finite(finite) => Self::Decimal(finite),
            },
            _ => return None,
        })
    }

    /// Compares by value.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(&b),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Self::Int(a), Self::Double(b)) => int_to_double(a, b),
            (Self::Double(a), Self::Int(b)) => int_to_double(b, a).reverse(),
            (Self::Decimal(a), Self::Decimal(b)) => a.compare(b),
            (Self::Decimal(a), Self::Int(b)) => a.compare(b.into()),
            (Self::Int(a), Self::Decimal(b)) => FiniteDecimal::from(a).compare(b),
            (Self::Decimal(a), Self::Double(b)) => decimal_to_double(a, b),
            (Self::Double(a), Self::Decimal(b)) => decimal_to_double(b, a).reverse(),
            _ => self.region().cmp(&other.region()),
        }
    }

    /// Where on the line it stands when one of two numbers is not finite.
    const fn region(self) -> i8 {
        match self {
            Self::NaN => -2,
            Self::Infinity { negative: true } => -1,
            Self::Int(_) | Self::Double(_) | Self::Decimal(_) => 0,
            Self::Infinity { negative: false } => 1,
        }
    }
}

fn int_to_double(int: i64, double: f64) -> Ordering {
    // 2^63 is exact in a double.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if double >= LIMIT {
        return Ordering::Less;
    }
    if double < -LIMIT {
        return Ordering::Greater;
    }
    #[allow(clippy::cast_possible_truncation)] // in range, and truncation is what is wanted
    let whole = double.trunc() as i64;
    int.cmp(&whole).then_with(|| 0.0.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal))
}

fn decimal_to_double(decimal: FiniteDecimal, double: f64) -> Ordering {
    let double_sign: i8 = if double == 0.0 {
        0
    } else if double < 0.0 {
        -1
    } else {
        1
    };
    let signs = decimal.signum().cmp(&double_sign);
    if signs.is_ne() || double_sign == 0 {
        return signs;
    }
    let magnitudes = compare_magnitudes(decimal, double.abs());
    if double_sign < 0 { magnitudes.reverse() } else { magnitudes }
}

/// Compares `coefficient × 10^exponent` with a positive double, both not zero.
fn compare_magnitudes(decimal: FiniteDecimal, double: f64) -> Ordering {
    let (mantissa, binary_exponent) = split(double);
    // Powers of two of the leading bits, as bounds: log2(10) is between 3.3219 and 3.3220.
    let leading = |bits: u32| i64::from(127 - bits);
    let (low, high) = (i64::from(decimal.exponent) * 33_219, i64::from(decimal.exponent) * 33_220);
    let (low, high) = (low.min(high).div_euclid(10_000), low.max(high).div_euclid(10_000) + 1);
    let decimal_lead = leading(decimal.coefficient.leading_zeros());
    let double_lead = leading(u128::from(mantissa).leading_zeros()) + i64::from(binary_exponent);
    if decimal_lead + high + 1 < double_lead {
        return Ordering::Less;
    }
    if decimal_lead + low > double_lead + 1 {
        return Ordering::Greater;
    }
    // Of about the same size, so that the exponents are of the size of a double's: compare exactly, in
    // integers, after both sides were multiplied by what makes them whole.
    let mut left = Natural::from(decimal.coefficient);
    let mut right = Natural::from(u128::from(mantissa));
    let fives = decimal.exponent.unsigned_abs();
    if decimal.exponent >= 0 {
        left.multiply_by_power_of_five(fives);
    } else {
        right.multiply_by_power_of_five(fives);
    }
    let twos = decimal.exponent - binary_exponent;
    if twos >= 0 {
        left.shift_left(twos.unsigned_abs());
    } else {
        right.shift_left(twos.unsigned_abs());
    }
    left.compare(&right)
}

/// A positive finite double as `mantissa × 2^exponent`.
fn split(double: f64) -> (u64, i32) {
    let bits = double.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    // Eleven bits always fit.
    match i32::try_from((bits >> 52) & 0x7FF).unwrap_or(0) {
        0 => (fraction, -1074),
        stored => (fraction | 1 << 52, stored - 1075),
    }
}

/// A natural number of any size, least significant limb first.
struct Natural {
    limbs: Vec<u32>,
}

impl From<u128> for Natural {
    fn from(n: u128) -> Self {
        let mut limbs = Vec::with_capacity(48);
        limbs.extend(
            n.to_le_bytes().chunks_exact(4).filter_map(|c| c.first_chunk().map(|c| u32::from_le_bytes(*c))),
        );
        Self { limbs }
    }
}

impl Natural {
    fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for limb in &mut self.limbs {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            (*limb, carry) = halves(product);
        }
        if carry > 0 {
            self.limbs.push(halves(carry).0);
        }
    }

    fn multiply_by_power_of_five(&mut self, power: u32) {
        const FIVE_TO_13: u32 = 1_220_703_125;
        for _ in 0..power / 13 {
            self.multiply(FIVE_TO_13);
        }
        self.multiply(5u32.pow(power % 13));
    }

    fn shift_left(&mut self, bits: u32) {
        self.multiply(1 << (bits % 32));
        let whole = usize::try_from(bits / 32).unwrap_or(0);
        self.limbs.splice(0..0, std::iter::repeat_n(0, whole));
    }

    fn compare(&self, other: &Self) -> Ordering {
        let significant = |n: &Self| n.limbs.iter().rposition(|&limb| limb != 0).map_or(0, |at| at + 1);
        significant(self).cmp(&significant(other)).then_with(|| {
            let length = significant(self);
            let digits = |n: &Self| n.limbs.iter().take(length).rev().copied().collect::<Vec<_>>();
            digits(self).cmp(&digits(other))
        })
    }
}

/// Low and high half.
#[allow(clippy::cast_possible_truncation)] // each half is cut out on purpose
const fn halves(n: u64) -> (u32, u64) {
    (n as u32, n >> 32)
}
