//! Collations, as far as targeting cares: shard keys are always in simple order, so that strings compared by any
//! other rule can be anywhere.

use document::{Doc, Value};

/// How strings of a query compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Collation {
    /// By their bytes, as shard keys do.
    #[default]
    Simple,
    /// By a locale's rules.
    Locale,
}

impl Collation {
    /// The one in effect: that of the request, else the default of the collection, else simple.
    #[must_use]
    pub fn effective(request: Option<Doc<'_>>, collection_default: Option<Doc<'_>>) -> Self {
        request.filter(|doc| !doc.is_empty()).or(collection_default).map_or(Self::Simple, Self::of)
    }

    fn of(doc: Doc<'_>) -> Self {
        if doc.is_empty() || doc.get_str("locale") == Some("simple") { Self::Simple } else { Self::Locale }
    }
}

/// Can a collation change how this value compares? (strings, and what may hold them)
#[must_use]
pub const fn is_collatable(value: Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_))
}
