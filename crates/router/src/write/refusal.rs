//! Why a statement cannot be targeted, in mongos's words, and what would have to be added to it.

use chunk_map::CollectionRouting;
use document::{Doc, DocBuf};
use shard_key::{KeyPattern, ShardKey};

use super::shell_text::ShellText;
use super::statement::{Change, Delete, Update};
use crate::codes::ErrorCode;
use crate::error::CommandError;

fn shard_key_not_found(message: String) -> CommandError {
    CommandError::new(ErrorCode::ShardKeyNotFound, message)
}

/// The fields of the shard key that the filter does not set, as a text.
pub(super) fn missing_fields(key: &KeyPattern, query: Doc<'_>) -> String {
    let is_set = |path: &str| {
        let mut one = DocBuf::new();
        one.append(path, 1);
        KeyPattern::parse(one.as_doc()).is_ok_and(|pattern| pattern.key_from_query(query).is_some())
    };
    let missing: Vec<String> = key
        .fields()
        .iter()
        .filter(|field| !is_set(&field.path))
        .map(|field| format!("'{}'", field.path))
        .collect();
    match &*missing {
        [] => "the shard key".to_owned(),
        names => names.join(" and "),
    }
}

/// Only a key of nothing but MaxKey belongs to no chunk.
pub(super) fn no_chunk(routing: &CollectionRouting, key: &ShardKey) -> CommandError {
    let named = routing.key.name_fields(key.as_doc());
    shard_key_not_found(format!(
        "Cannot target single shard using key {} for namespace {}",
        ShellText(named.as_doc()),
        routing.ns
    ))
}

/// The key is in the filter, but compares by a locale's rules there.
pub(super) fn collation(routing: &CollectionRouting, path: &str) -> CommandError {
    shard_key_not_found(format!(
        "Cannot target single shard due to collation of key {path} for namespace {}",
        routing.ns
    ))
}

pub(super) fn upsert_without_key(routing: &CollectionRouting, query: Doc<'_>) -> CommandError {
    shard_key_not_found(format!(
        "Failed to target upsert by query :: could not extract exact shard key; shard key pattern: {}: add an equality \
         on {} to the filter",
        ShellText(routing.key.as_doc()),
        missing_fields(&routing.key, query)
    ))
}

pub(super) fn replacement_without_key(routing: &CollectionRouting) -> CommandError {
    shard_key_not_found(format!(
        "Failed to target update by replacement document :: could not extract exact shard key; shard key pattern: {}: \
         its fields must be single values in the document",
        ShellText(routing.key.as_doc())
    ))
}

pub(super) fn replacement_of_many() -> CommandError {
    CommandError::invalid_options("Replacement-style updates cannot be {multi:true}")
}

pub(super) fn mixed_styles(update: Doc<'_>) -> CommandError {
    CommandError::new(
        ErrorCode::UnsupportedFormat,
        format!("update document {} has mixed $operator and non-$operator style fields", ShellText(update)),
    )
}

pub(super) fn update_of_one(routing: &CollectionRouting, update: &Update<'_>, shards: usize) -> CommandError {
    CommandError::invalid_options(format!(
        "A {{multi:false}} update on a sharded collection must contain an exact match on _id (and have the collection \
         default collation) or target a single shard (and have the simple collation), but this update targeted {shards} \
         shards. Update request: {}, shard key pattern: {}: add an equality on {} to the filter",
        ShellText(normalized(update).as_doc()),
        ShellText(routing.key.as_doc()),
        missing_fields(&routing.key, update.query)
    ))
}

pub(super) fn delete_of_one(routing: &CollectionRouting, delete: &Delete<'_>) -> CommandError {
    shard_key_not_found(format!(
        "A single delete on a sharded collection must contain an exact match on _id (and have the collection default \
         collation) or contain the shard key (and have the simple collation). Delete request: {}, shard key pattern: \
         {}: add an equality on {} to the filter",
        ShellText(delete.raw),
        ShellText(routing.key.as_doc()),
        missing_fields(&routing.key, delete.query)
    ))
}

/// The statement as the server prints it: its own fields, with the defaults of the two flags.
fn normalized(update: &Update<'_>) -> DocBuf {
    let mut doc = DocBuf::new();
    doc.append("q", update.query);
    match update.change {
        Change::Document(change) => doc.append("u", change),
        Change::Pipeline => match update.raw.field("u") {
            Some(field) => doc.append_elements(field.raw()),
            None => &mut doc,
        },
    };
    doc.append("multi", update.multi).append("upsert", update.upsert);
    for field in update.raw {
        if matches!(field.name(), "c" | "arrayFilters" | "hint" | "collation") {
            doc.append_elements(field.raw());
        }
    }
    doc
}
