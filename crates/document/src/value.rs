//! One BSON value, decoded just as far as its type asks for.

use crate::view::Doc;

/// The type byte of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum ElementType {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Bool = 0x08,
    DateTime = 0x09,
    Null = 0x0A,
    Regex = 0x0B,
    DbPointer = 0x0C,
    JavaScript = 0x0D,
    Symbol = 0x0E,
    JavaScriptWithScope = 0x0F,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MinKey = 0xFF,
    MaxKey = 0x7F,
}

impl ElementType {
    /// The type with this byte, if there is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x01 => Self::Double,
            0x02 => Self::String,
            0x03 => Self::Document,
            0x04 => Self::Array,
            0x05 => Self::Binary,
            0x06 => Self::Undefined,
            0x07 => Self::ObjectId,
            0x08 => Self::Bool,
            0x09 => Self::DateTime,
            0x0A => Self::Null,
            0x0B => Self::Regex,
            0x0C => Self::DbPointer,
            0x0D => Self::JavaScript,
            0x0E => Self::Symbol,
            0x0F => Self::JavaScriptWithScope,
            0x10 => Self::Int32,
            0x11 => Self::Timestamp,
            0x12 => Self::Int64,
            0x13 => Self::Decimal128,
            0xFF => Self::MinKey,
            0x7F => Self::MaxKey,
            _ => return None,
        })
    }

    /// The name that the server uses for it in error texts and in `$type` (`"int"`, `"objectId"`, ...).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::String => "string",
            Self::Document => "object",
            Self::Array => "array",
            Self::Binary => "binData",
            Self::Undefined => "undefined",
            Self::ObjectId => "objectId",
            Self::Bool => "bool",
            Self::DateTime => "date",
            Self::Null => "null",
            Self::Regex => "regex",
            Self::DbPointer => "dbPointer",
            Self::JavaScript => "javascript",
            Self::Symbol => "symbol",
            Self::JavaScriptWithScope => "javascriptWithScope",
            Self::Int32 => "int",
            Self::Timestamp => "timestamp",
            Self::Int64 => "long",
            Self::Decimal128 => "decimal",
            Self::MinKey => "minKey",
            Self::MaxKey => "maxKey",
        }
    }
}

/// A BSON timestamp (cluster time, chunk version): compared as one unsigned 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch (or the major version of a chunk).
    pub seconds: u32,
    /// Ordinal within the second (or the minor version of a chunk).
    pub increment: u32,
}

impl Timestamp {
    /// The timestamp with these parts.
    #[must_use]
    pub const fn new(seconds: u32, increment: u32) -> Self {
        Self { seconds, increment }
    }

    /// From its wire form (little-endian 64 bit, read into a number).
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // each half is cut out on purpose
    pub const fn from_u64(raw: u64) -> Self {
        Self { seconds: (raw >> 32) as u32, increment: raw as u32 }
    }

    /// Its wire form as a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        ((self.seconds as u64) << 32) | self.increment as u64
    }
}

/// A value, borrowed from the bytes it stands in. Strings are bytes: a server stores invalid UTF-8 as it comes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    Double(f64),
    String(&'a [u8]),
    Document(Doc<'a>),
    Array(Doc<'a>),
    /// For subtype 2 the bytes still start with their inner length.
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    Undefined,
    ObjectId([u8; 12]),
    Bool(bool),
    /// Milliseconds since the epoch.
    DateTime(i64),
    Null,
    Regex {
        pattern: &'a [u8],
        options: &'a [u8],
    },
    DbPointer {
        namespace: &'a [u8],
        id: [u8; 12],
    },
    JavaScript(&'a [u8]),
    Symbol(&'a [u8]),
    JavaScriptWithScope {
        code: &'a [u8],
        scope: Doc<'a>,
    },
    Int32(i32),
    Timestamp(Timestamp),
    Int64(i64),
    /// Little-endian IEEE 754-2008 decimal128 (BID), as on the wire.
    Decimal128([u8; 16]),
    MinKey,
    MaxKey,
}

impl<'a> Value<'a> {
    /// Its type.
    #[must_use]
    pub const fn element_type(self) -> ElementType {
        match self {
            Self::Double(_) => ElementType::Double,
            Self::String(_) => ElementType::String,
            Self::Document(_) => ElementType::Document,
            Self::Array(_) => ElementType::Array,
            Self::Binary { .. } => ElementType::Binary,
            Self::Undefined => ElementType::Undefined,
            Self::ObjectId(_) => ElementType::ObjectId,
            Self::Bool(_) => ElementType::Bool,
            Self::DateTime(_) => ElementType::DateTime,
            Self::Null => ElementType::Null,
            Self::Regex { .. } => ElementType::Regex,
            Self::DbPointer { .. } => ElementType::DbPointer,
            Self::JavaScript(_) => ElementType::JavaScript,
            Self::Symbol(_) => ElementType::Symbol,
            Self::JavaScriptWithScope { .. } => ElementType::JavaScriptWithScope,
            Self::Int32(_) => ElementType::Int32,
            Self::Timestamp(_) => ElementType::Timestamp,
            Self::Int64(_) => ElementType::Int64,
            Self::Decimal128(_) => ElementType::Decimal128,
            Self::MinKey => ElementType::MinKey,
            Self::MaxKey => ElementType::MaxKey,
        }
    }

    /// The text of a string that is valid UTF-8.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The sub-document (not an array).
    #[must_use]
    pub const fn as_doc(self) -> Option<Doc<'a>> {
        match self {
            Self::Document(doc) => Some(doc),
            _ => None,
        }
    }

    /// The elements of an array, as a document with the names `0`, `1`, ...
    #[must_use]
    pub const fn as_array(self) -> Option<Doc<'a>> {
        match self {
            Self::Array(doc) => Some(doc),
            _ => None,
        }
    }

    /// The boolean, only of type bool.
    #[must_use]
    pub const fn as_bool(self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// The timestamp.
    #[must_use]
    pub const fn as_timestamp(self) -> Option<Timestamp> {
        match self {
            Self::Timestamp(time) => Some(time),
            _ => None,
        }
    }

    /// Truth as the server's `trueValue`: numbers by non-zero, null and undefined false, anything else true.
    #[must_use]
    pub fn is_truthy(self) -> bool {
        match self {
            Self::Bool(flag) => flag,
            Self::Int32(n) => n != 0,
            Self::Int64(n) => n != 0,
            Self::Double(n) => n != 0.0,
            Self::Null | Self::Undefined => false,
            _ => true,
        }
    }

    /// An integer of any numeric type whose value is integral and fits; decimals are not looked at.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int32(n) => Some(i64::from(n)),
            Self::Int64(n) => Some(n),
            Self::Double(n) => integral(n),
            _ => None,
        }
    }

    /// Any number as an integer, as the server reads its options: doubles cut, decimals rounded, what is beyond the ends
    /// of int64 at that end, NaN zero. `None` when it is no number.
    #[must_use]
    pub fn to_i64_saturating(self) -> Option<i64> {
        match self {
            Self::Double(n) if n.is_nan() => Some(0),
            Self::Double(n) => Some(integral(n.trunc()).unwrap_or(if n < 0.0 { i64::MIN } else { i64::MAX })),
            Self::Decimal128(bytes) => Some(crate::order::decimal::Decimal::decode(bytes).round_to_i64()),
            other => other.as_i64(),
        }
    }

    /// Is it of one of the four numeric types?
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Int32(_) | Self::Int64(_) | Self::Double(_) | Self::Decimal128(_))
    }
}

/// The integer that a double is, if it is one.
fn integral(n: f64) -> Option<i64> {
    // 2^63 is exact in a double and the first value that does not fit.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if n.fract() == 0.0 && (-LIMIT..LIMIT).contains(&n) {
        #[allow(clippy::cast_possible_truncation)] // checked on the line above
        return Some(n as i64);
    }
    None
}
