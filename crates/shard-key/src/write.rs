//! What the targeting of writes asks of a statement beside its key.

use document::{Doc, Field, Value};

use crate::collation::is_collatable;
use crate::equality::Equalities;
use crate::error::ShardKeyError;

/// The three kinds of updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateStyle {
    /// A whole document.
    Replacement,
    /// `{$set: ...}`
    Operators,
    /// `[{$set: ...}]`
    Pipeline,
}

/// The style of `u` of an update statement, or of `update` of findAndModify.
pub fn update_style(update: Value<'_>) -> Result<UpdateStyle, ShardKeyError> {
    let doc = match update {
        Value::Array(_) => return Ok(UpdateStyle::Pipeline),
        Value::Document(doc) => doc,
        _ => return Err(ShardKeyError::UpdateType),
    };
    let mut operators = doc.iter().map(|field| field.name_bytes().first() == Some(&b'$'));
    let Some(first) = operators.next() else { return Ok(UpdateStyle::Replacement) };
    if operators.any(|operator| operator != first) {
        return Err(ShardKeyError::MixedUpdate { update: format!("{doc:?}") });
    }
    Ok(if first { UpdateStyle::Operators } else { UpdateStyle::Replacement })
}

/// The value that a query fixes `_id` to, if it does so exactly.
#[must_use]
pub fn exact_id(query: Doc<'_>) -> Option<Value<'_>> {
    Equalities::of_path(query, "_id").map(Field::value)
}

/// Does a query match at most the one document of an `_id`? A collation of the request that is not the
/// collection's own makes an `_id` that holds strings inexact.
#[must_use]
pub fn has_exact_id(query: Doc<'_>, request: Option<Doc<'_>>, collection_default: Option<Doc<'_>>) -> bool {
    let Some(id) = exact_id(query) else { return false };
    let Some(request) = request.filter(|doc| !doc.is_empty()) else { return true };
    if !is_collatable(id) {
        return true;
    }
    match collection_default {
        Some(default) => same_collation(request, default),
        None => request.get_str("locale") == Some("simple"),
    }
}

/// Does the collation of a request say nothing that the stored one does not? (The stored one has all its fields.)
fn same_collation(request: Doc<'_>, stored: Doc<'_>) -> bool {
    request.iter().all(|field| {
        stored
            .get(field.name())
            .is_some_and(|value| document::order::compare_values(field.value(), value).is_eq())
    }) && ["strength", "caseLevel", "numericOrdering", "backwards", "normalization"]
        .iter()
        .all(|name| request.contains(name) || is_default(name, stored))
        && ["caseFirst", "alternate", "maxVariable"]
            .iter()
            .all(|name| request.contains(name) || is_default(name, stored))
}

fn is_default(name: &str, stored: Doc<'_>) -> bool {
    let Some(value) = stored.get(name) else { return true };
    match name {
        "strength" => value.as_i64() == Some(3),
        "caseFirst" => value.as_str() == Some("off"),
        "alternate" => value.as_str() == Some("non-ignorable"),
        "maxVariable" => value.as_str() == Some("punct"),
        _ => value.as_bool() == Some(false),
    }
}
