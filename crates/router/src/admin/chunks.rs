//! split, moveChunk, moveRange, mergeChunks, clearJumboFlag: one chunk, picked by a key or by its bounds.

use std::sync::Arc;

use bytes::BytesMut;
use chunk_map::{CollectionRouting, Namespace, ShardId};
use document::{Doc, DocBuf, Value, splice};
use shard_key::{KeyPattern, ShardKey};
use tokio::time::Instant;
use topology::ReadPreference;

use super::config_server::{self, Concern};
use super::shell_text::Shell;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional, required};
use crate::ddl::primary::pass_on;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{StaleRetries, shard_key_error};
use crate::remote::{Retry, ShardReply, ShardRequest};
use crate::reply::Reply;

/// One chunk of a collection.
pub(super) struct Picked {
    pub(super) routing: Arc<CollectionRouting>,
    pub(super) shard: ShardId,
    /// Both with the names of the shard key's fields.
    pub(super) min: DocBuf,
    pub(super) max: DocBuf,
}

impl Picked {
    /// The chunk that holds a key.
    pub(super) fn at(routing: &Arc<CollectionRouting>, key: &ShardKey) -> Option<Self> {
        let chunk = routing.chunks.find(key)?;
        let pattern = &routing.key;
        let max = chunk.max().map_or_else(
            || pattern.name_fields(pattern.global_max().as_doc()),
            |max| pattern.name_fields(max),
        );
        Some(Self {
            routing: Arc::clone(routing),
            shard: chunk.shard().clone(),
            min: pattern.name_fields(chunk.min()),
            max,
        })
    }

    /// The chunk of the key that an equality query gives.
    fn by_query(routing: &Arc<CollectionRouting>, query: Doc<'_>) -> CommandResult<Self> {
        routing.key.key_from_query(query).and_then(|key| Self::at(routing, &key)).ok_or_else(|| {
            CommandError::without_code(format!("no shard key found in chunk query {}", Shell(query)))
        })
    }

    /// The chunk with exactly these bounds.
    fn by_bounds(routing: &Arc<CollectionRouting>, min: Doc<'_>, max: Doc<'_>) -> CommandResult<Self> {
        let pattern = &routing.key;
        let (low, high) = full_bounds(pattern, min, max)?;
        Self::at(routing, &low)
            .filter(|chunk| ShardKey::from_values_of(chunk.min.as_doc()).order(&low).is_eq())
            .filter(|chunk| ShardKey::from_values_of(chunk.max.as_doc()).order(&high).is_eq())
            .ok_or_else(|| {
                CommandError::without_code(format!(
                    "no chunk found with the shard key bounds [{},{})",
                    Shell(min),
                    Shell(max)
                ))
            })
    }

    fn write_bounds(&self, out: &mut BytesMut, min: &str, max: &str) {
        splice::put_doc(out, min, self.min.as_doc());
        splice::put_doc(out, max, self.max.as_doc());
    }

    /// What tells a shard which incarnation of the collection is meant.
    fn write_identity(&self, out: &mut BytesMut) {
        splice::put_element(out, 0x07, "epoch", &self.routing.epoch);
        splice::put_timestamp(out, "timestamp", self.routing.timestamp);
    }
}

/// Both bounds of a chunk, each with all fields of the key.
fn full_bounds(pattern: &KeyPattern, min: Doc<'_>, max: Doc<'_>) -> CommandResult<(ShardKey, ShardKey)> {
    full_key(pattern, min).zip(full_key(pattern, max)).ok_or_else(|| {
        CommandError::without_code(format!(
            "shard key bounds [{},{}) are not valid for shard key pattern {}",
            Shell(min),
            Shell(max),
            Shell(pattern.as_doc())
        ))
    })
}

/// The key that a document with exactly the pattern's fields is, in any order.
fn full_key(pattern: &KeyPattern, doc: Doc<'_>) -> Option<ShardKey> {
    let mut ordered = DocBuf::new();
    for field in pattern.fields() {
        ordered.append_elements(doc.field(&field.path)?.raw());
    }
    (doc.iter().count() == pattern.fields().len()).then(|| ShardKey::from_values_of(ordered.as_doc()))
}

/// The collection as the config servers have it now.
pub(super) async fn refreshed(op: &Op<'_>, ns: &Namespace) -> CommandResult<Arc<CollectionRouting>> {
    op.router.catalog().collection_stale(ns, None, None);
    op.router.route(ns).await?.sharded().cloned().ok_or_else(|| not_sharded(ns))
}

/// As mongos words it.
pub(crate) fn not_sharded(ns: &Namespace) -> CommandError {
    CommandError::new(ErrorCode::NamespaceNotSharded, format!("Collection {ns} is not sharded."))
}

/// Two documents in an array.
fn bounds(value: Value<'_>) -> CommandResult<(Doc<'_>, Doc<'_>)> {
    let malformed = || CommandError::without_code("bounds must be an array of two documents");
    let mut items = value.as_array().ok_or_else(malformed)?.iter().map(|field| field.value().as_doc());
    match (items.next().flatten(), items.next().flatten(), items.next()) {
        (Some(min), Some(max), None) => Ok((min, max)),
        _ => Err(malformed()),
    }
}

/// A document argument; one that is empty counts as left out.
fn document_argument<'a>(op: &Op<'a>, name: &str) -> CommandResult<Option<Doc<'a>>> {
    match op.request.body.iter().skip(1).find(|field| field.name() == name).map(|field| field.value()) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Document(doc)) => Ok(Some(doc).filter(|doc| !doc.is_empty())),
        Some(other) => Err(CommandError::wrong_type(&format!("{}.{name}", op.command.name), other, "object")),
    }
}

/// The chunk that `find` or `bounds` names.
fn pick(op: &Op<'_>, routing: &Arc<CollectionRouting>) -> CommandResult<Picked> {
    match (document_argument(op, "find")?, op.request.body.get("bounds")) {
        (Some(query), None) => Picked::by_query(routing, query),
        (None, Some(value)) => {
            let (min, max) = bounds(value)?;
            Picked::by_bounds(routing, min, max)
        }
        _ => Err(CommandError::without_code(
            "need to specify either a find query, or both lower and upper bounds of a chunk",
        )),
    }
}

/// Asks the primary of a shard on `admin`. Such a command names the incarnation itself and carries no versions.
async fn ask_owner(
    op: &Op<'_>,
    shard: &ShardId,
    retry: Retry,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<ShardReply> {
    let mut request = ShardRequest::new(op, 512);
    fill(request.out());
    let mut request = request.finish_on("admin", |_| {})?;
    op.router.ask_shard(shard, &mut request, &ReadPreference::PRIMARY, retry, op.deadline).await
}

/// Splits a chunk in two: at `middle`, else at the median of its documents.
pub async fn split(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::plain_namespace(op)?;
    let mut retries = StaleRetries::new(op.router);
    loop {
        match split_once(op, &ns).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn split_once(op: &Op<'_>, ns: &Namespace) -> CommandResult<Reply> {
    let find = document_argument(op, "find")?;
    let middle = document_argument(op, "middle")?;
    let has_bounds = op.request.body.contains("bounds");
    let refusal = match (find.is_some(), has_bounds, middle.is_some()) {
        (false, false, false) => Some("need to specify find/bounds or middle"),
        (true, true, _) => Some("cannot specify bounds and find at the same time"),
        (true, _, true) => Some("cannot specify find and middle together"),
        (_, true, true) => Some("cannot specify bounds and middle together"),
        _ => None,
    };
    if let Some(text) = refusal {
        return Err(CommandError::without_code(text));
    }
    let routing = refreshed(op, ns).await?;
    let (chunk, split_key) = match middle {
        Some(middle) => at_middle(&routing, middle)?,
        None => {
            let chunk = pick(op, &routing)?;
            let median = median(op, ns, &chunk).await?;
            (chunk, median)
        }
    };
    split_at(op, ns, &chunk, &[split_key]).await?;
    Ok(Reply::ok())
}

/// Has the chunk's owner split it at these keys.
pub(super) async fn split_at(
    op: &Op<'_>,
    ns: &Namespace,
    chunk: &Picked,
    keys: &[DocBuf],
) -> CommandResult<()> {
    let answered = ask_owner(op, &chunk.shard, Retry::Never, |out| {
        splice::put_str(out, "splitChunk", ns.as_str());
        splice::put_str(out, "from", chunk.shard.as_str());
        splice::put_doc(out, "keyPattern", chunk.routing.key.as_doc());
        chunk.write_identity(out);
        chunk.write_bounds(out, "min", "max");
        let list = splice::open_array(out, "splitKeys");
        for (index, key) in keys.iter().enumerate() {
            splice::put_doc(out, &index.to_string(), key.as_doc());
        }
        list.finish(out);
    })
    .await;
    op.router.catalog().collection_stale(ns, None, Some(&chunk.shard));
    answered.map(|_| ())
}

fn at_middle(routing: &Arc<CollectionRouting>, middle: Doc<'_>) -> CommandResult<(Picked, DocBuf)> {
    let pattern = &routing.key;
    let chunk = full_key(pattern, middle).and_then(|key| Some((Picked::at(routing, &key)?, key)));
    let Some((chunk, key)) = chunk else {
        return Err(CommandError::without_code(format!(
            "new split key {} is not valid for shard key pattern {}",
            Shell(middle),
            Shell(pattern.as_doc())
        )));
    };
    if ShardKey::from_values_of(chunk.min.as_doc()).order(&key).is_eq() {
        return Err(CommandError::without_code(format!(
            "new split key {} is a boundary key of existing chunk [{},{})",
            Shell(middle),
            Shell(chunk.min.as_doc()),
            Shell(chunk.max.as_doc())
        )));
    }
    let named = pattern.name_fields(key.as_doc());
    Ok((chunk, named))
}

async fn median(op: &Op<'_>, ns: &Namespace, chunk: &Picked) -> CommandResult<DocBuf> {
    let answer = ask_owner(op, &chunk.shard, Retry::Idempotent, |out| {
        splice::put_str(out, "splitVector", ns.as_str());
        splice::put_doc(out, "keyPattern", chunk.routing.key.as_doc());
        chunk.write_bounds(out, "min", "max");
        splice::put_bool(out, "force", true);
    })
    .await?;
    let found = answer.reply.body().get_array("splitKeys").and_then(Doc::first);
    found.and_then(|key| key.value().as_doc()).map(DocBuf::from).ok_or_else(|| {
        CommandError::new(ErrorCode::CannotSplit, "unable to find median in chunk, possibly empty")
    })
}

/// Moves the chunk that a key or its bounds name.
pub async fn move_chunk(op: &Op<'_>) -> CommandResult<Reply> {
    let started = Instant::now();
    let ns = arguments::plain_namespace(op)?;
    let to = match op.request.body.get("to") {
        Some(Value::String(name)) => String::from_utf8_lossy(name),
        _ => return Err(CommandError::new(ErrorCode::TypeMismatch, "'to' must be of type String")),
    };
    if to.is_empty() {
        return Err(CommandError::without_code("you have to specify where you want to move the chunk"));
    }
    let routing = refreshed(op, &ns).await?;
    let to = ShardId::new(&to);
    require_shard(op, &ns, &to).await?;
    let chunk = pick(op, &routing)?;
    let flag = |names: [&str; 2]| {
        names.iter().find_map(|name| op.request.body.get(name)).is_some_and(Value::is_truthy)
    };
    let answered = config_server::ask(op, Concern::Majority, |out| {
        splice::put_str(out, "_configsvrMoveRange", ns.as_str());
        splice::put_str(out, "toShard", to.as_str());
        chunk.write_bounds(out, "min", "max");
        splice::put_bool(out, "waitForDelete", flag(["waitForDelete", "_waitForDelete"]));
        splice::put_i32(out, "forceJumbo", i32::from(flag(["forceJumbo", "forceJumbo"])));
        write_throttle(op, out);
    })
    .await;
    let catalog = op.router.catalog();
    catalog.collection_stale(&ns, None, Some(&chunk.shard));
    catalog.collection_stale(&ns, None, Some(&to));
    answered?;
    let millis = i32::try_from(started.elapsed().as_millis()).unwrap_or(i32::MAX);
    Ok(Reply::build(|out| {
        splice::put_i32(out, "millis", millis);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// `secondaryThrottle: {secondaryThrottle, writeConcern}` when the client says anything of the kind.
fn write_throttle(op: &Op<'_>, out: &mut BytesMut) {
    let said = ["secondaryThrottle", "_secondaryThrottle"].iter().find_map(|name| op.request.body.get(name));
    let Some(said) = said.filter(|value| *value != Value::Null) else { return };
    if let Value::Document(options) = said {
        return splice::put_doc(out, "secondaryThrottle", options);
    }
    let throttle = splice::open_doc(out, "secondaryThrottle");
    splice::put_bool(out, "secondaryThrottle", said.is_truthy());
    if let Some(concern) = op.request.generic.write_concern.filter(|_| said.is_truthy()) {
        splice::put_doc(out, "writeConcern", concern);
    }
    throttle.finish(out);
}

async fn require_shard(op: &Op<'_>, ns: &Namespace, shard: &ShardId) -> CommandResult<()> {
    op.router.registry().shard(shard).await.map(|_| ()).map_err(|error| {
        if error.code() == ErrorCode::ShardNotFound.0 {
            return CommandError::new(
                ErrorCode::ShardNotFound,
                format!(
                    "Could not move chunk in '{ns}' to shard '{shard}' because that shard does not exist"
                ),
            );
        }
        crate::remote::routing::catalog_error(&error)
    })
}

const MOVE_RANGE: &[arguments::Argument] = &[
    required("toShard", Kind::Str),
    optional("min", Kind::Object),
    optional("max", Kind::Object),
    optional("waitForDelete", Kind::SafeBool),
    optional("forceJumbo", Kind::SafeBool),
    optional("secondaryThrottle", Kind::Any),
];

/// Moves any range; the config servers cut the chunk that holds its lower end.
pub async fn move_range(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, MOVE_RANGE)?;
    if op.request.body.get_doc("min").is_none() {
        return Err(CommandError::invalid_options("Missing required parameter 'min'"));
    }
    let truthy = |name: &str| op.request.body.get(name).is_some_and(Value::is_truthy);
    let answered = config_server::ask(op, Concern::Majority, |out| {
        splice::put_str(out, "_configsvrMoveRange", ns.as_str());
        arguments::copy(op, out, &["toShard", "min", "max"]);
        splice::put_bool(out, "waitForDelete", truthy("waitForDelete"));
        splice::put_i32(out, "forceJumbo", i32::from(truthy("forceJumbo")));
        write_throttle(op, out);
    })
    .await;
    op.router.catalog().collection_stale(&ns, None, None);
    answered?;
    Ok(Reply::ok())
}

/// Makes one chunk of several that lie side by side on one shard.
pub async fn merge_chunks(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::plain_namespace(op)?;
    let Some(value) = op.request.body.get("bounds") else {
        return Err(CommandError::without_code("no bounds were specified"));
    };
    let (min, max) = bounds(value)?;
    if min.is_empty() || max.is_empty() {
        return Err(CommandError::without_code("no min or max key in bounds specified"));
    }
    let mut retries = StaleRetries::new(op.router);
    loop {
        match merge_once(op, &ns, min, max).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn merge_once(op: &Op<'_>, ns: &Namespace, min: Doc<'_>, max: Doc<'_>) -> CommandResult<Reply> {
    let routing = refreshed(op, ns).await?;
    let pattern = &routing.key;
    let (low, high) = full_bounds(pattern, min, max)?;
    let first = Picked::at(&routing, &low).ok_or_else(|| {
        shard_key_error(shard_key::ShardKeyError::Bound {
            bound: Shell(min).to_string(),
            pattern: Shell(pattern.as_doc()).to_string(),
        })
    })?;
    let answered = ask_owner(op, &first.shard, Retry::NotPrimary, |out| {
        splice::put_str(out, "mergeChunks", ns.as_str());
        let bounds = splice::open_array(out, "bounds");
        splice::put_doc(out, "0", pattern.name_fields(low.as_doc()).as_doc());
        splice::put_doc(out, "1", pattern.name_fields(high.as_doc()).as_doc());
        bounds.finish(out);
        first.write_identity(out);
    })
    .await;
    op.router.catalog().collection_stale(ns, None, Some(&first.shard));
    Ok(pass_on(answered?))
}

/// Lets the balancer move a chunk again that it gave up on.
pub async fn clear_jumbo_flag(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::plain_namespace(op)?;
    let routing = refreshed(op, &ns).await?;
    let chunk = pick(op, &routing)?;
    config_server::forward(op, Concern::Majority, |out| {
        splice::put_str(out, "_configsvrClearJumboFlag", ns.as_str());
        splice::put_element(out, 0x07, "epoch", &routing.epoch);
        chunk.write_bounds(out, "minKey", "maxKey");
    })
    .await
}
