//! Decimal128 in integers: sign, coefficient, exponent. No arithmetic, only what order and hashing ask for.

use std::cmp::Ordering;

/// The largest coefficient, 34 nines: encodings above it are not canonical and mean zero (IEEE 754-2008, BID).
const MAX_COEFFICIENT: u128 = 9_999_999_999_999_999_999_999_999_999_999_999;
/// What the stored exponent is larger by.
const BIAS: i32 = 6176;

/// A decoded decimal128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decimal {
    /// Not a number, quiet or signalling, of either sign.
    NaN,
    /// Positive or negative infinity.
    Infinity {
        /// Is it the negative one?
        negative: bool,
    },
    /// `coefficient × 10^exponent`.
    Finite(FiniteDecimal),
}

/// `±coefficient × 10^exponent`, the coefficient below 10^34.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiniteDecimal {
    /// The sign; a zero may carry one too.
    pub negative: bool,
    /// The digits.
    pub coefficient: u128,
    /// The power of ten.
    pub exponent: i32,
}

impl Decimal {
    /// Decodes the wire form (little endian, binary integer coefficient).
    #[must_use]
    pub fn decode(bytes: [u8; 16]) -> Self {
        let bits = u128::from_le_bytes(bytes);
        let negative = bits >> 127 == 1;
        if (bits >> 125) & 0b11 != 0b11 {
            let coefficient = bits & ((1 << 113) - 1);
            return Self::finite(negative, coefficient, (bits >> 113) & 0x3FFF);
        }
        match (bits >> 122) & 0b1_1111 {
            0b1_1111 => Self::NaN,
            0b1_1110 => Self::Infinity { negative },
            // The long form starts at 2^113, above the largest coefficient: always zero.
            _ => Self::finite(negative, 0, (bits >> 111) & 0x3FFF),
        }
    }

    fn finite(negative: bool, coefficient: u128, stored_exponent: u128) -> Self {
        let coefficient = if coefficient > MAX_COEFFICIENT { 0 } else { coefficient };
        // Fourteen bits always fit.
        let exponent = i32::try_from(stored_exponent).unwrap_or(0) - BIAS;
        Self::Finite(FiniteDecimal { negative, coefficient, exponent })
    }

    /// The integer nearest to it, ties to even; outside of int64 its nearest end, NaN zero. The server hashes
    /// decimals this way (seen on 6.0.5).
    #[must_use]
    pub fn round_to_i64(self) -> i64 {
        match self {
            Self::NaN => 0,
            Self::Infinity { negative } => {
                if negative {
                    i64::MIN
                } else {
                    i64::MAX
                }
            }
            Self::Finite(finite) => finite.round_to_i64(),
        }
    }
}

impl From<i64> for FiniteDecimal {
    fn from(n: i64) -> Self {
        Self { negative: n < 0, coefficient: u128::from(n.unsigned_abs()), exponent: 0 }
    }
}

impl FiniteDecimal {
    /// Is it zero (of any sign and exponent)?
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.coefficient == 0
    }

    /// -1, 0 or 1.
    #[must_use]
    pub const fn signum(self) -> i8 {
        match (self.is_zero(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    /// Compares by value: `1.0 = 1.00`.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        let signs = self.signum().cmp(&other.signum());
        if signs.is_ne() || self.is_zero() {
            return signs;
        }
        let magnitudes = self.compare_magnitude(other);
        if self.negative { magnitudes.reverse() } else { magnitudes }
    }

    /// Both are not zero.
    fn compare_magnitude(self, other: Self) -> Ordering {
        let leading = self.leading_power().cmp(&other.leading_power());
        if leading.is_ne() {
            return leading;
        }
        // The same leading power of ten: the exponents differ by less than 34 digits, and the longer coefficient
        // bounds what the shorter one grows to, so nothing overflows.
        let (a, b) = (self.coefficient, other.coefficient);
        let shift = self.exponent.abs_diff(other.exponent);
        let scale = 10u128.checked_pow(shift);
        if self.exponent >= other.exponent {
            match scale.and_then(|scale| a.checked_mul(scale)) {
                Some(a) => a.cmp(&b),
                None => Ordering::Greater,
            }
        } else {
            match scale.and_then(|scale| b.checked_mul(scale)) {
                Some(b) => a.cmp(&b),
                None => Ordering::Less,
            }
        }
    }

    /// The power of ten of its first digit.
    fn leading_power(self) -> i32 {
        // At most 34 digits.
        let digits = self.coefficient.checked_ilog10().unwrap_or(0);
        self.exponent + i32::try_from(digits).unwrap_or(0)
    }

    fn round_to_i64(self) -> i64 {
        if self.is_zero() {
            return 0;
        }
        let clamped = if self.negative { i64::MIN } else { i64::MAX };
        if self.leading_power() > 19 {
            return clamped;
        }
        let magnitude = if self.exponent >= 0 {
            10u128
                .checked_pow(self.exponent.unsigned_abs())
                .and_then(|scale| self.coefficient.checked_mul(scale))
        } else {
            Some(self.divide_half_even(self.exponent.unsigned_abs()))
        };
        let Some(magnitude) = magnitude.and_then(|n| i128::try_from(n).ok()) else { return clamped };
        let signed = if self.negative { -magnitude } else { magnitude };
        i64::try_from(signed).unwrap_or(clamped)
    }

    /// The coefficient over `10^digits`, ties to even.
    fn divide_half_even(self, digits: u32) -> u128 {
        // 10^39 is more than twice any coefficient: the quotient rounds to zero.
        let Some(divisor) = 10u128.checked_pow(digits) else { return 0 };
        let (quotient, remainder) = (self.coefficient / divisor, self.coefficient % divisor);
        match remainder.cmp(&(divisor - remainder)) {
            Ordering::Less => quotient,
            Ordering::Greater => quotient + 1,
            Ordering::Equal => quotient + (quotient & 1),
        }
    }
}
