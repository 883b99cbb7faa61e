//! `pointsmanPresplit`: ranges made ahead of time and spread over shards. This command is Pointsman's own.
//!
//! ```text
//! {pointsmanPresplit: "<db>.<collection>",
//!  points: [{<prefix of the key>}, ...]                          where to split, and/or
//!  prefixes: [{...}, ...], months: {field, from, to},            each prefix, at the begin of each month
//!  shards: ["<id>", ...] | zone: "<name>",                       whom the ranges go to in turn (all, if none is named)
//!  dryRun: true}                                                 only tell
//! -> {ranges: [{min, max, shard}, ...], splits, moves, dryRun, ok}
//! ```
//!
//! - `points`: the keys that the arguments describe.
//! - here: splits where a chunk holds such a key, moves where a range is not on its shard.
//!
//! It goes through the same requests as `split` and `moveRange`; asked again it does what was left undone.

mod points;

use std::sync::Arc;

use chunk_map::{CollectionRouting, Namespace, ShardId};
use document::{Doc, DocBuf, Value, splice};
use shard_key::ShardKey;

use super::chunks::{Picked, refreshed, split_at};
use super::config_server::{self, Concern};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional};
use crate::ddl::scatter::every_shard;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{StaleRetries, catalog_error};
use crate::reply::Reply;

/// Split keys in one request: a shard takes 8192.
const KEYS_PER_SPLIT: usize = 1_000;

const ARGUMENTS: &[arguments::Argument] = &[
    optional("points", Kind::Array),
    optional("prefixes", Kind::Array),
    optional("months", Kind::Object),
    optional("shards", Kind::Array),
    optional("zone", Kind::Str),
    optional("dryRun", Kind::Bool),
];

/// One range of the plan.
struct Range {
    min: DocBuf,
    max: DocBuf,
    shard: ShardId,
}

/// Makes the plan and, unless it is a dry run, carries it out.
pub async fn presplit(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, ARGUMENTS)?;
    let routing = refreshed(op, &ns).await?;
    let keys = points::points(op.request.body, &routing.key)?;
    let shards = targets(op).await?;
    let ranges = plan(&routing, &keys, &shards);
    let dry = op.request.body.get("dryRun").is_some_and(Value::is_truthy);
    let missing = keys.iter().filter(|key| !is_bound(&routing, key)).count();
    let (splits, moves) = if dry {
        let misplaced = keys.iter().zip(&ranges).filter(|(key, range)| {
            routing.chunks.find(key).is_some_and(|chunk| *chunk.shard() != range.shard)
        });
        (missing, misplaced.count())
    } else {
        split_all(op, &ns, &keys).await?;
        (missing, move_all(op, &ns, &ranges).await?)
    };
    Ok(reply(&ranges, splits, moves, dry))
}

/// The shards that the ranges go to in turn.
async fn targets(op: &Op<'_>) -> CommandResult<Vec<ShardId>> {
    let known: Vec<ShardId> =
        every_shard(op).await?.into_iter().map(|destination| destination.shard).collect();
    let body = op.request.body;
    if body.contains("shards") && body.contains("zone") {
        return Err(CommandError::bad_value("name either shards or a zone"));
    }
    let chosen = if let Some(list) = body.get_array("shards") {
        let mut chosen = Vec::new();
        for item in list {
            let name = item.value().as_str().unwrap_or_default();
            let shard = known.iter().find(|shard| shard.as_str() == name).ok_or_else(|| {
                CommandError::new(ErrorCode::ShardNotFound, format!("Shard {name} not found"))
            })?;
            chosen.push(shard.clone());
        }
        chosen
    } else if let Some(zone) = body.get_str("zone") {
        // Zones come and go without a change of the topology's time: the list at hand may not know them.
        let list = op.router.registry().reload().await.map_err(|error| catalog_error(&error))?;
        let has_zone = |shard: &&ShardId| {
            let tags =
                list.get(shard).and_then(|entry| entry.raw.as_doc().get_array("tags").map(DocBuf::from));
            tags.is_some_and(|tags| tags.as_doc().iter().any(|tag| tag.value().as_str() == Some(zone)))
        };
        known.iter().filter(has_zone).cloned().collect()
    } else {
        known
    };
    if chosen.is_empty() {
        return Err(CommandError::new(ErrorCode::ShardNotFound, "there is no shard to move ranges to"));
    }
    Ok(chosen)
}

/// Each range begins at a key and ends at the next; shards take turns.
fn plan(routing: &CollectionRouting, keys: &[ShardKey], shards: &[ShardId]) -> Vec<Range> {
    let named = |key: &ShardKey| routing.key.name_fields(key.as_doc());
    let end = named(&routing.key.global_max());
    let ends = keys.iter().skip(1).map(named).chain(std::iter::once(end));
    keys.iter()
        .zip(ends)
        .zip(shards.iter().cycle())
        .map(|((key, max), shard)| Range { min: named(key), max, shard: shard.clone() })
        .collect()
}

fn is_bound(routing: &CollectionRouting, key: &ShardKey) -> bool {
    let chunk = routing.chunks.find(key);
    chunk.is_some_and(|chunk| ShardKey::from_nameless(chunk.min()).order(key).is_eq())
}

/// Splits until every key is a bound. Each turn sees the table of its predecessors' splits, so it ends.
async fn split_all(op: &Op<'_>, ns: &Namespace, keys: &[ShardKey]) -> CommandResult<()> {
    let mut retries = StaleRetries::new(op.router);
    loop {
        let routing = refreshed(op, ns).await?;
        let Some((chunk, inside)) = next_split(&routing, keys)? else { return Ok(()) };
        match split_at(op, ns, &chunk, &inside).await {
            Err(error) if retries.again(&error) => {}
            other => other?,
        }
    }
}

/// The first chunk that holds keys which are no bounds yet, and those keys.
fn next_split(
    routing: &Arc<CollectionRouting>,
    keys: &[ShardKey],
) -> CommandResult<Option<(Picked, Vec<DocBuf>)>> {
    let mut open = keys.iter().filter(|key| !is_bound(routing, key)).peekable();
    let Some(first) = open.peek() else { return Ok(None) };
    let chunk = Picked::at(routing, first)
        .ok_or_else(|| CommandError::new(ErrorCode::ShardKeyNotFound, "no chunk holds a split point"))?;
    let end = ShardKey::from_values_of(chunk.max.as_doc());
    let inside = open
        .take_while(|key| key.order(&end).is_lt())
        .take(KEYS_PER_SPLIT)
        .map(|key| routing.key.name_fields(key.as_doc()))
        .collect();
    Ok(Some((chunk, inside)))
}

/// Moves the chunks of ranges that are on another shard than planned; gives how many were moved.
async fn move_all(op: &Op<'_>, ns: &Namespace, ranges: &[Range]) -> CommandResult<usize> {
    let mut moves = 0;
    for range in ranges {
        let routing = refreshed(op, ns).await?;
        let (mut at, end) =
            (ShardKey::from_values_of(range.min.as_doc()), ShardKey::from_values_of(range.max.as_doc()));
        // A range may hold chunks that were there before.
        while at.order(&end).is_lt() {
            let Some(chunk) = Picked::at(&routing, &at) else { break };
            at = ShardKey::from_values_of(chunk.max.as_doc());
            if chunk.shard == range.shard {
                continue;
            }
            config_server::ask(op, Concern::Majority, |out| {
                splice::put_str(out, "_configsvrMoveRange", ns.as_str());
                splice::put_str(out, "toShard", range.shard.as_str());
                splice::put_doc(out, "min", chunk.min.as_doc());
                splice::put_doc(out, "max", chunk.max.as_doc());
                splice::put_bool(out, "waitForDelete", false);
                splice::put_i32(out, "forceJumbo", 0);
            })
            .await?;
            moves += 1;
        }
    }
    op.router.catalog().collection_stale(ns, None, None);
    Ok(moves)
}

fn reply(ranges: &[Range], splits: usize, moves: usize, dry: bool) -> Reply {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    Reply::build(|out| {
        let list = splice::open_array(out, "ranges");
        for (index, range) in ranges.iter().enumerate() {
            let item = splice::open_doc(out, &index.to_string());
            splice::put_doc(out, "min", range.min.as_doc());
            splice::put_doc(out, "max", range.max.as_doc());
            splice::put_str(out, "shard", range.shard.as_str());
            item.finish(out);
        }
        list.finish(out);
        splice::put_i32(out, "splits", count(splits));
        splice::put_i32(out, "moves", count(moves));
        splice::put_bool(out, "dryRun", dry);
        splice::put_f64(out, "ok", 1.0);
    })
}

/// The documents of an array argument.
fn documents<'a>(body: Doc<'a>, name: &str) -> CommandResult<Vec<Doc<'a>>> {
    let Some(list) = body.get_array(name) else { return Ok(Vec::new()) };
    list.iter()
        .map(|item| {
            let field = format!("pointsmanPresplit.{name}.{}", item.name());
            item.value().as_doc().ok_or_else(|| CommandError::wrong_type(&field, item.value(), "object"))
        })
        .collect()
}
