//! The keys of groups, found by value: 1, 1.0 and decimal 1 are one key.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};

use document::order::decimal::Decimal;
use document::order::{compare_values, type_class};
use document::{Doc, Field, Fields, Value};
use hashbrown::HashTable;

use super::chunked::Chunked;

/// Bytes of a piece of key memory.
const PIECE: usize = 64 * 1024;

/// All keys, each with a number from 0 on.
#[derive(Debug, Default)]
pub(super) struct Keys {
    hasher: foldhash::fast::RandomState,
    table: HashTable<Entry>,
    spans: Chunked<Span>,
    /// Elements without a name, as the first shard that knew the key wrote its value.
    pieces: Vec<Vec<u8>>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    group: u32,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    piece: u32,
    start: u32,
    end: u32,
}

impl Keys {
    /// What a key takes beside its bytes: its span, its entry, and room in the table that is half empty at worst.
    pub(super) const PER_GROUP: usize = size_of::<Span>() + 2 * (size_of::<Entry>() + 1);

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The number of the key, and whether it is a new one. `None` when there are too many.
    pub(super) fn find_or_add(&mut self, key: Field<'_>) -> Option<(u32, bool)> {
        let value = key.value();
        let mut hasher = self.hasher.build_hasher();
        hash_value(value, &mut hasher);
        let hash = short(hasher.finish());
        let same = |entry: &Entry| {
            entry.hash == hash
                && self.id(entry.group).is_some_and(|id| compare_values(id.value(), value) == Ordering::Equal)
        };
        if let Some(entry) = self.table.find(spread(hash), same) {
            return Some((entry.group, false));
        }
        let group = u32::try_from(self.len).ok()?;
        let span = self.store(key)?;
        self.spans.push(span);
        self.len += 1;
        self.table.insert_unique(spread(hash), Entry { hash, group }, |entry| spread(entry.hash));
        Some((group, true))
    }

    /// The key of a group as a field without a name.
    pub(super) fn id(&self, group: u32) -> Option<Field<'_>> {
        let span = self.spans.get(group)?;
        let piece = self.pieces.get(usize::try_from(span.piece).ok()?)?;
        let element = piece.get(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)?;
        Fields::over_elements(element).next()
    }

    fn store(&mut self, key: Field<'_>) -> Option<Span> {
        let length = key.value_bytes().len() + 2;
        if self.pieces.last().is_none_or(|piece| piece.len() + length > PIECE) {
            self.pieces.push(Vec::new());
        }
        let index = u32::try_from(self.pieces.len() - 1).ok()?;
        let piece = self.pieces.last_mut()?;
        let start = u32::try_from(piece.len()).ok()?;
        nameless(key, piece);
        Some(Span { piece: index, start, end: u32::try_from(piece.len()).ok()? })
    }
}

/// Writes an element without a name.
pub(super) fn nameless(field: Field<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&[field.element_type() as u8, 0]);
    out.extend_from_slice(field.value_bytes());
}

/// Half of a hash: what a table entry keeps.
#[allow(clippy::cast_possible_truncation)] // cut on purpose
pub(super) const fn short(hash: u64) -> u32 {
    hash as u32
}

/// A hash for the table again, whose highest bits count too.
pub(super) const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Hashes a value so that equal ones (as the server compares) have one hash, whatever their types.
pub(super) fn hash_value(value: Value<'_>, hasher: &mut impl Hasher) {
    hasher.write_i8(type_class(value.element_type()));
    match value {
        Value::Int32(n) => hash_number(f64::from(n), hasher),
        #[allow(clippy::cast_precision_loss)] // numbers that are equal are rounded alike
        Value::Int64(n) => hash_number(n as f64, hasher),
        Value::Double(n) => hash_number(n, hasher),
        Value::Decimal128(bytes) => hash_number(rounded(bytes), hasher),
        Value::String(bytes) | Value::Symbol(bytes) | Value::JavaScript(bytes) => hasher.write(bytes),
        Value::Document(doc) => hash_doc(doc, hasher, true),
        Value::Array(doc) => hash_doc(doc, hasher, false),
        Value::Binary { subtype, bytes } => {
            hasher.write_u8(subtype);
            hasher.write(bytes);
        }
        Value::ObjectId(id) | Value::DbPointer { id, .. } => hasher.write(&id),
        Value::Bool(flag) => hasher.write_u8(u8::from(flag)),
        Value::DateTime(n) => hasher.write_i64(n),
        Value::Timestamp(time) => hasher.write_u64(time.as_u64()),
        Value::Regex { pattern, options } => {
            hasher.write(pattern);
            hasher.write(options);
        }
        Value::JavaScriptWithScope { code, scope } => {
            hasher.write(code);
            hash_doc(scope, hasher, true);
        }
        Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => {}
    }
}

fn hash_doc(doc: Doc<'_>, hasher: &mut impl Hasher, names: bool) {
    for field in doc {
        if names {
            hasher.write(field.name_bytes());
        }
        hash_value(field.value(), hasher);
    }
}

fn hash_number(n: f64, hasher: &mut impl Hasher) {
    let bits = if n.is_nan() {
        u64::MAX
    } else if n == 0.0 {
        0
    } else {
        n.to_bits()
    };
    hasher.write_u64(bits);
}

/// The double next to a decimal: what equals it exactly, if any number of another type does.
fn rounded(bytes: [u8; 16]) -> f64 {
    match Decimal::decode(bytes) {
        Decimal::NaN => f64::NAN,
        Decimal::Infinity { negative: true } => f64::NEG_INFINITY,
        Decimal::Infinity { negative: false } => f64::INFINITY,
        Decimal::Finite(finite) => {
            let sign = if finite.signum() < 0 { "-" } else { "" };
            let text = format!("{sign}{}e{}", finite.coefficient, finite.exponent);
            // Rust rounds decimal text correctly, as a conversion from an int64 does.
            text.parse().unwrap_or(0.0)
        }
    }
}
