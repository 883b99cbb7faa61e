//! The hash of hashed shard keys: MD5 over a seed and the canonical form of the value, its first eight bytes as a
//! little-endian int64. Equal to what 6.0.5 computes on every vector of `testdata/hash-vectors.jsonl`.

use document::order::decimal::Decimal;
use document::order::type_class;
use document::{Doc, ElementType, Field, Value};
use md5::{Digest, Md5};

/// The hash of null, and of a field that is missing.
pub const NULL_HASH: i64 = 2_338_878_944_348_059_895;

/// The seed of shard keys, always.
const SEED: i32 = 0;

/// The hash of a field's value.
#[must_use]
pub fn hash_field(field: Field<'_>) -> i64 {
    hash_parts(field.element_type(), field.value_bytes(), field.value())
}

/// The hash of a value.
#[must_use]
pub fn hash_value(value: Value<'_>) -> i64 {
    let mut element = Vec::with_capacity(32);
    document::DocWriter::new(&mut element).value("", value);
    document::Fields::over_elements(&element).next().map_or(NULL_HASH, hash_field)
}

fn hash_parts(kind: ElementType, raw: &[u8], value: Value<'_>) -> i64 {
    let mut md5 = Md5::new();
    md5.update(SEED.to_le_bytes());
    md5.update(i32::from(type_class(kind)).to_le_bytes());
    payload(&mut md5, kind, raw, value);
    let digest = md5.finalize();
    digest.first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn payload(md5: &mut Md5, kind: ElementType, raw: &[u8], value: Value<'_>) {
    match value {
        Value::Document(doc) | Value::Array(doc) => fields(md5, doc),
        Value::JavaScriptWithScope { code, scope } => {
            md5.update(code);
            md5.update([0]);
            fields(md5, scope);
        }
        _ => match number(value) {
            Some(n) => md5.update(n.to_le_bytes()),
            None if matches!(kind, ElementType::Undefined | ElementType::Null) => {}
            None => md5.update(raw),
        },
    }
}

fn fields(md5: &mut Md5, doc: Doc<'_>) {
    for field in doc {
        md5.update(i32::from(type_class(field.element_type())).to_le_bytes());
        md5.update(field.name_bytes());
        md5.update([0]);
        payload(md5, field.element_type(), field.value_bytes(), field.value());
    }
    // The end of a document counts as an element of class zero without a name.
    md5.update(0i32.to_le_bytes());
}

/// Numbers of all types hash by their integer: doubles truncated, decimals rounded half to even.
fn number(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => Some(truncate(n)),
        Value::Decimal128(bytes) => Some(Decimal::decode(bytes).round_to_i64()),
        _ => None,
    }
}

fn truncate(n: f64) -> i64 {
    // Exactly 2^63 becomes the smallest int64, what lies above it the largest (seen on 6.0.5).
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::float_cmp)] // this one value is special
    if n == TWO_TO_63 {
        return i64::MIN;
    }
    #[allow(clippy::cast_possible_truncation)] // truncates, saturates, NaN becomes zero: all as wanted
    let whole = n as i64;
    whole
}

#[cfg(test)]
mod tests;
