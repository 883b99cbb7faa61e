//! `aggregate`: whole pipelines to one shard, cut ones merged here or on a shard.

use bytes::BytesMut;
use chunk_map::Namespace;
use document::splice::{self, Keep};
use document::{Doc, DocBuf, Value};

use super::find_spec::{DEFAULT_FIRST_BATCH, count};
use super::open;
use super::pipeline::{self, Stage};
use super::split::{Merge, split};
use super::{merge_here, merge_on_shard};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::CursorKind;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, Route, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;
use crate::request::is_generic;

/// An aggregation on its way: a client's, or the one that a query on a view becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aggregation<'a> {
    /// The collection that is read.
    pub(super) ns: &'a Namespace,
    /// The name that replies carry: the view's, when it is one.
    pub(super) reply_ns: &'a str,
    pub(super) stages: &'a [Stage<'a>],
    /// The pipeline's array.
    pub(super) pipeline: Doc<'a>,
    pub(super) collation: Option<Doc<'a>>,
    /// `let` of the client.
    pub(super) variables: Option<Doc<'a>>,
    /// `None`: 101.
    pub(super) batch_size: Option<u64>,
    pub(super) allow_disk_use: Option<bool>,
    /// Other fields of the command that go along (`hint`, `bypassDocumentValidation`), as elements.
    pub(super) options: &'a [u8],
}

/// How an aggregation on a shard is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole pipeline on the primary shard of an unsharded collection.
    Passthrough,
    /// The whole pipeline on the one shard that is concerned.
    Whole,
    /// A part whose documents are merged with others'.
    Partial,
    /// As that, without partial results or sort keys.
    Plain,
}

/// Runs an aggregate.
pub async fn aggregate(op: &Op<'_>) -> CommandResult<Reply> {
    let body = op.request.body;
    check_arguments(body)?;
    let Some(collection) = op.request.target.as_str() else {
        return super::collectionless::aggregate(op).await;
    };
    if collection.is_empty() {
        op.request.collection()?;
    }
    let ns = op.namespace()?;
    let array = pipeline_array(body)?;
    let stages = pipeline::parse(array)?;
    let options = options(body);
    let aggregation = Aggregation {
        ns: &ns,
        reply_ns: ns.as_str(),
        stages: &stages,
        pipeline: array,
        collation: body.get_doc("collation").filter(|collation| !collation.is_empty()),
        variables: body.get_doc("let"),
        batch_size: batch_size(body)?,
        allow_disk_use: body.get("allowDiskUse").map(Value::is_truthy),
        options: &options,
    };
    match run(op, &aggregation).await {
        Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
            super::view::aggregate(op, &aggregation, &error).await
        }
        other => other,
    }
}

/// Runs an aggregation until its routing is fresh.
pub(super) async fn run(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    refuse_unbuilt(aggregation.stages)?;
    let mut retries = StaleRetries::of_read(op);
    loop {
        match attempt(op, aggregation).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn attempt(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    let filter = pipeline::leading_match(aggregation.stages);
    let Some((route, destinations)) =
        op.router.target_read(op, aggregation.ns, filter, aggregation.collation).await?
    else {
        if aggregation.stages.first().is_some_and(|stage| stage.name == "$collStats") {
            return Err(CommandError::new(
                ErrorCode::NamespaceNotFound,
                format!(
                    "Unable to retrieve information for $collStats stage :: caused by :: database {} not found",
                    aggregation.ns.db()
                ),
            ));
        }
        return Ok(open::empty(aggregation.reply_ns));
    };
    super::output::check_target(op, aggregation).await?;
    match route {
        Route::Config | Route::Unsharded(_) => {
            whole(op, aggregation, &route, &destinations, Part::Passthrough).await
        }
        Route::Sharded(_) if destinations.len() == 1 && !needs_primary(aggregation.stages) => {
            whole(op, aggregation, &route, &destinations, Part::Whole).await
        }
        Route::Sharded(_) => cut(op, aggregation, &route, &destinations).await,
    }
}

/// `$out` belongs to the primary shard, whoever owns the data.
fn needs_primary(stages: &[Stage<'_>]) -> bool {
    stages.last().is_some_and(Stage::writes)
}

async fn whole(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    route: &Route,
    destinations: &Destinations,
    part: Part,
) -> CommandResult<Reply> {
    let Some(destination) = destinations.first() else { return Ok(open::empty(aggregation.reply_ns)) };
    let batch = aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH);
    let request = request(op, aggregation, route, aggregation.pipeline, batch, part);
    let mut request = request.finish_on(aggregation.ns.db(), |out| destination.versions.write(out))?;
    let set = op.router.shard_set(&destination.shard).await?;
    let preference = op.read_preference()?;
    let retry = if needs_primary(aggregation.stages) { Retry::Never } else { Retry::Idempotent };
    let shard = &destination.shard;
    let answer = op.ask_set(shard, &set, &mut request, &preference, retry).await?;
    Ok(open::pass_through_as(op, shard, set, answer, aggregation.ns, aggregation.reply_ns, || {
        open::owner(op, aggregation.reply_ns, CursorKind::Normal, false)
    }))
}

async fn cut(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    route: &Route,
    destinations: &Destinations,
) -> CommandResult<Reply> {
    let sharded = sharded_foreign(op, aggregation).await?;
    let split = split(aggregation.stages, |name| sharded.iter().any(|known| known == name));
    let on_router = matches!(split.merge, Merge::Stream { .. } | Merge::Sum { .. });
    let part = if split.needs_merge { Part::Partial } else { Part::Plain };
    let first_batch = if on_router { aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH) } else { 0 };
    let pipeline = array_of(&split.shards);
    let template = request(op, aggregation, route, pipeline.as_doc(), first_batch, part)
        .template_on(aggregation.ns.db());
    let opened = open::open_on_all(
        op,
        &template,
        destinations,
        aggregation.ns.db(),
        aggregation.ns.coll(),
        open::Partial::Refused,
    )
    .await?;
    match &split.merge {
        Merge::Stream { skip, limit } => {
            merge_here::stream(op, aggregation, opened, split.order(), *skip, *limit).await
        }
        Merge::Sum { field, id } => merge_here::sum(op, aggregation, opened, field, id.as_deref()).await,
        Merge::Stages(stages) => {
            merge_on_shard::run(op, aggregation, route, destinations, opened, &split, stages).await
        }
    }
}

/// Which of the joined collections are sharded.
async fn sharded_foreign(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Vec<String>> {
    let mut foreign = Vec::new();
    aggregation.stages.iter().for_each(|stage| stage.foreign(&mut foreign));
    let mut sharded = Vec::new();
    for name in foreign {
        let ns = Namespace::new(aggregation.ns.db(), name);
        if matches!(op.router.route_if_exists(&ns).await?, Some(Route::Sharded(_))) {
            sharded.push(name.to_owned());
        }
    }
    Ok(sharded)
}

/// The command for a shard. The database is the collection's own.
pub(super) fn request<'a>(
    op: &'a Op<'a>,
    aggregation: &Aggregation<'_>,
    route: &Route,
    pipeline: Doc<'_>,
    batch_size: u64,
    part: Part,
) -> ShardRequest<'a> {
    let mut request = ShardRequest::new(op, pipeline.as_bytes().len() + aggregation.options.len() + 128);
    let out = request.out();
    splice::put_str(out, "aggregate", aggregation.ns.coll());
    splice::put_array(out, "pipeline", pipeline);
    put_cursor(out, batch_size);
    if let Some(allow) = aggregation.allow_disk_use {
        splice::put_bool(out, "allowDiskUse", allow);
    }
    out.extend_from_slice(aggregation.options);
    put_variables(op, out, aggregation.variables, part);
    if let Some(collation) = effective_collation(aggregation, route, part) {
        splice::put_doc(out, "collation", collation.as_doc());
    }
    splice::put_bool(out, "fromMongos", part != Part::Passthrough);
    if part == Part::Partial {
        splice::put_bool(out, "needsMerge", true);
    }
    let request = request.read_concern();
    if needs_primary(aggregation.stages) { request.write_concern() } else { request.no_write_concern() }
}

pub(super) fn put_cursor(out: &mut BytesMut, batch_size: u64) {
    let cursor = splice::open_doc(out, "cursor");
    splice::put_i64(out, "batchSize", i64::try_from(batch_size).unwrap_or(i64::MAX));
    cursor.finish(out);
}

/// `let`: the client's variables, and one `NOW` and `CLUSTER_TIME` for all shards. A passthrough has its own.
pub(super) fn put_variables(op: &Op<'_>, out: &mut BytesMut, variables: Option<Doc<'_>>, part: Part) {
    if part == Part::Passthrough {
        if let Some(variables) = variables {
            splice::put_doc(out, "let", variables);
        }
        return;
    }
    let open = splice::open_doc(out, "let");
    out.extend_from_slice(variables.map_or(&[][..], Doc::elements));
    splice::put_element(out, 0x09, "NOW", &op.started_ms.to_le_bytes());
    if let Some(time) = op.router.clock().cluster_time() {
        splice::put_timestamp(out, "CLUSTER_TIME", time);
    }
    open.finish(out);
}

/// The client's collation, else the collection's; said explicitly to every shard (`simple` when there is none), so
/// that all agree.
pub(super) fn effective_collation(
    aggregation: &Aggregation<'_>,
    route: &Route,
    part: Part,
) -> Option<DocBuf> {
    if let Some(collation) = aggregation.collation {
        return Some(DocBuf::from(collation));
    }
    if part == Part::Passthrough {
        return None;
    }
    Some(route.default_collation().map_or_else(
        || {
            let mut simple = DocBuf::new();
            simple.append("locale", "simple");
            simple
        },
        DocBuf::from,
    ))
}

/// An array of stages.
pub(super) fn array_of(stages: &[DocBuf]) -> DocBuf {
    let mut array = DocBuf::new();
    array.write(|w| {
        for (index, stage) in stages.iter().enumerate() {
            w.put(&index.to_string(), stage);
        }
    });
    array
}

/// The shard that runs the merge when nothing speaks for one: spread over those that were asked.
pub(super) fn any_of(destinations: &Destinations) -> Option<&Destination> {
    let index = rand::random_range(0..destinations.len().max(1));
    destinations.get(index)
}

/// Fields of the client's command that are neither read here nor generic.
fn options(body: Doc<'_>) -> BytesMut {
    let mut out = BytesMut::new();
    splice::copy_fields(body, &mut out, |name| match name {
        b"aggregate"
        | b"pipeline"
        | b"cursor"
        | b"collation"
        | b"let"
        | b"allowDiskUse"
        | b"explain"
        | b"fromMongos"
        | b"needsMerge"
        | b"isMapReduceCommand" => Keep::No,
        _ if is_generic(name) => Keep::No,
        _ => Keep::Yes,
    });
    out
}

/// What mongos refuses before it looks at the pipeline.
fn check_arguments(body: Doc<'_>) -> CommandResult<()> {
    if body.contains("exchange") {
        return Err(CommandError::new(ErrorCode(51028), "Cannot specify exchange option to a mongos"));
    }
    if body.contains("runtimeConstants") {
        return Err(CommandError::new(
            ErrorCode(51143),
            "Cannot specify runtime constants option to a mongos",
        ));
    }
    for internal in ["needsMerge", "fromMongos", "isMapReduceCommand"] {
        if body.get(internal).is_some_and(Value::is_truthy) {
            return Err(CommandError::new(
                ErrorCode(51089),
                "Internal parameter(s) [needsMerge, fromMongos] cannot be set to 'true' when sent to mongos",
            ));
        }
    }
    if body.get("explain").is_some_and(Value::is_truthy) {
        return Err(CommandError::not_supported("explain"));
    }
    if !body.contains("cursor") {
        return Err(CommandError::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    Ok(())
}

pub(super) fn pipeline_array(body: Doc<'_>) -> CommandResult<Doc<'_>> {
    match body.get("pipeline") {
        Some(Value::Array(array)) => Ok(array),
        Some(other) => Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!("'pipeline' option must be specified as an array, got {}", other.element_type().name()),
        )),
        None => Err(CommandError::new(
            ErrorCode(40414),
            "BSON field 'aggregate.pipeline' is missing but a required field",
        )),
    }
}

pub(super) fn batch_size(body: Doc<'_>) -> CommandResult<Option<u64>> {
    match body.get("cursor") {
        Some(Value::Document(cursor)) => {
            cursor.get("batchSize").map(|size| count("batchSize", size)).transpose().map(Option::flatten)
        }
        Some(other) => Err(CommandError::wrong_type("aggregate.cursor", other, "object")),
        None => Ok(None),
    }
}

/// Stages that come with the next reads.
fn refuse_unbuilt(stages: &[Stage<'_>]) -> CommandResult<()> {
    for stage in stages {
        if matches!(
            stage.name,
            "$changeStream" | "$currentOp" | "$listLocalSessions" | "$shardedDataDistribution"
        ) {
            return Err(CommandError::not_supported(stage.name));
        }
    }
    Ok(())
}
