//! One statement and a routing snapshot: the shards that it concerns.
//!
//! The rules are those of mongos 5.0 and 6.0: an insert by its key; an upsert by the full key in its filter; an
//! update by the ranges of its filter, or by the key of its replacement; a delete by the key in its filter. One
//! document may be looked for on several shards only by an exact `_id`.

use chunk_map::{CollectionRouting, ShardId, ShardSet, Target};
use document::{Doc, DocBuf};
use shard_key::{Collation, ShardKey, ShardKeyError, UpdateStyle, update_style};
use smallvec::SmallVec;

use super::refusal;
use super::statement::{Change, Delete, Statement, Update};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::shard_key_error;

/// Where a statement goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Aim {
    /// To one shard, with its version.
    One(Target),
    /// To the one of these shards that has the document of this `_id`.
    Any(Targets),
    /// To these shards, more than one. Outside of a transaction a part of them could not be repeated, so that it goes
    /// to all shards of the cluster without a version instead.
    Many(ShardSet),
}

/// Shards with their versions, by their ids in order.
pub(super) type Targets = SmallVec<[Target; 4]>;

/// The shards that a statement concerns.
pub(super) fn target(statement: Statement<'_, '_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    match statement {
        Statement::Insert(document) => insert(document, routing),
        Statement::Update(update) => self::update(update, routing),
        Statement::Delete(delete) => self::delete(delete, routing),
    }
}

pub(super) fn insert(document: Doc<'_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    let key = routing.key.key_from_document(document).map_err(shard_key_error)?;
    owner(&key, routing)
}

fn owner(key: &ShardKey, routing: &CollectionRouting) -> CommandResult<Aim> {
    routing.target_key(key).map(Aim::One).ok_or_else(|| refusal::no_chunk(routing, key))
}

/// The owner of a key that a filter (or a replacement) states, if its values compare as shard keys do.
fn owner_by(
    key: &ShardKey,
    stated_by: Doc<'_>,
    collation: Option<Doc<'_>>,
    routing: &CollectionRouting,
) -> CommandResult<Aim> {
    match hidden(stated_by, collation, routing) {
        Some(path) => Err(refusal::collation(routing, path)),
        None => owner(key, routing),
    }
}

/// The field of the key that the collation in effect hides.
pub(super) fn hidden<'r>(
    stated_by: Doc<'_>,
    collation: Option<Doc<'_>>,
    routing: &'r CollectionRouting,
) -> Option<&'r str> {
    if routing.collation(collation) == Collation::Simple {
        return None;
    }
    routing.key.collation_hides(stated_by).map(|field| &*field.path)
}

fn update(update: &Update<'_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    let style = style(update.change)?;
    if update.multi && style == UpdateStyle::Replacement {
        return Err(refusal::replacement_of_many());
    }
    if update.upsert {
        let key = routing
            .key
            .key_from_query(update.query)
            .ok_or_else(|| refusal::upsert_without_key(routing, update.query))?;
        return owner_by(&key, update.query, update.collation, routing)
            .map_err(|error| error.context("Failed to target upsert by query"));
    }
    let shards = shards_of(update.query, update.collation, routing)?;
    if let Aim::Many(shards) = &shards {
        if let (UpdateStyle::Replacement, Change::Document(document)) = (style, update.change) {
            return replacement(update, document, routing);
        }
        if !update.multi {
            if !is_exact_id(update.query, update.collation, routing) {
                return Err(refusal::update_of_one(routing, update, shards.len()));
            }
            return Ok(any_of(shards, routing));
        }
    }
    Ok(shards)
}

fn any_of(shards: &ShardSet, routing: &CollectionRouting) -> Aim {
    let target = |shard: &ShardId| Target { shard: shard.clone(), version: routing.shard_version(shard) };
    Aim::Any(shards.iter().map(target).collect())
}

fn style(change: Change<'_>) -> CommandResult<UpdateStyle> {
    match change {
        Change::Pipeline => Ok(UpdateStyle::Pipeline),
        Change::Document(doc) => update_style(doc.into()).map_err(|error| match error {
            ShardKeyError::MixedUpdate { .. } => refusal::mixed_styles(doc),
            other => shard_key_error(other),
        }),
    }
}

fn replacement(update: &Update<'_>, document: Doc<'_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    let key = routing
        .key
        .key_from_replacement(document, update.query)
        .map_err(|_| refusal::replacement_without_key(routing))?;
    owner_by(&key, document, update.collation, routing)
        .map_err(|error| error.context("Failed to target update by replacement document"))
}

fn delete(delete: &Delete<'_>, routing: &CollectionRouting) -> CommandResult<Aim> {
    if let Some(key) = routing.key.key_from_query(delete.query)
        && hidden(delete.query, delete.collation, routing).is_none()
        && let Some(target) = routing.target_key(&key)
    {
        return Ok(Aim::One(target));
    }
    if !delete.multi && !is_exact_id(delete.query, delete.collation, routing) {
        return Err(refusal::delete_of_one(routing, delete));
    }
    match shards_of(delete.query, delete.collation, routing)? {
        Aim::Many(shards) if !delete.multi => Ok(any_of(&shards, routing)),
        aim => Ok(aim),
    }
}

fn shards_of(query: Doc<'_>, collation: Option<Doc<'_>>, routing: &CollectionRouting) -> CommandResult<Aim> {
    let shards = routing.target_filter(query, collation).map_err(shard_key_error)?;
    Ok(match &*shards {
        [only] => Aim::One(Target { shard: only.clone(), version: routing.shard_version(only) }),
        _ => Aim::Many(shards),
    })
}

fn is_exact_id(query: Doc<'_>, collation: Option<Doc<'_>>, routing: &CollectionRouting) -> bool {
    shard_key::has_exact_id(query, collation, routing.default_collation.as_ref().map(DocBuf::as_doc))
}

/// The shard of a findAndModify: its filter must state the whole key (6.0).
pub(super) fn find_and_modify(
    query: Doc<'_>,
    collation: Option<Doc<'_>>,
    routing: &CollectionRouting,
) -> CommandResult<Target> {
    let key = routing.key.key_from_query(query).ok_or_else(|| {
        CommandError::new(
            crate::ErrorCode::ShardKeyNotFound,
            format!(
                "Query for sharded findAndModify must contain the shard key; shard key pattern: {}: add an equality on \
                 {} to the filter",
                super::shell_text::ShellText(routing.key.as_doc()),
                refusal::missing_fields(&routing.key, query)
            ),
        )
    })?;
    if let Some(path) = hidden(query, collation, routing) {
        return Err(refusal::collation(routing, path));
    }
    routing.target_key(&key).ok_or_else(|| refusal::no_chunk(routing, &key))
}

#[cfg(test)]
mod tests;
