//! `aggregate`: whole pipelines to one shard, cut ones merged here or on a shard.

use bytes::BytesMut;
use chunk_map::{Namespace, ShardId};
use document::splice;
use document::{Doc, DocBuf, Value};
use topology::ReadPreference;

use super::arguments::check_arguments;
pub(super) use super::arguments::{batch_size, options, pipeline_array};
use super::find_spec::DEFAULT_FIRST_BATCH;
use super::open;
use super::pipeline::{self, Stage};
use super::split::{Merge, Split, split};
use super::{merge_groups, merge_here, merge_on_shard};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{CursorKind, Partial};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, Route, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// The collection's name in the replies of pipelines that read none.
pub(super) const COLLECTIONLESS: &str = "$cmd.aggregate";

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

impl<'a> Aggregation<'a> {
    /// What a client's command asks for, beside its pipeline and what [`options`] takes of it.
    pub(super) fn of_client(
        body: Doc<'a>,
        ns: &'a Namespace,
        stages: &'a [Stage<'a>],
        pipeline: Doc<'a>,
        options: &'a [u8],
    ) -> CommandResult<Self> {
        Ok(Self {
            ns,
            reply_ns: ns.as_str(),
            stages,
            pipeline,
            collation: body.get_doc("collation").filter(|collation| !collation.is_empty()),
            variables: body.get_doc("let"),
            batch_size: batch_size(body)?,
            allow_disk_use: body.get("allowDiskUse").map(Value::is_truthy),
            options,
        })
    }
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
    check_arguments(body, op.explain.is_some())?;
    crate::write::concern::check(op.request.generic.write_concern)?;
    if op.request.target.as_str().is_none() {
        return super::collectionless::aggregate(op).await;
    }
    op.request.collection()?;
    let ns = op.namespace()?;
    let array = pipeline_array(body)?;
    let stages = pipeline::parse(array)?;
    if op.transaction.is_some() {
        pipeline::check_in_transaction(&stages)?;
    }
    super::collectionless::check_on_collection(op, &stages)?;
    let options = options(body);
    let aggregation = Aggregation::of_client(body, &ns, &stages, array, &options)?;
    if stages.iter().any(|stage| stage.name == "$changeStream") {
        return super::change_stream::open(op, &aggregation).await;
    }
    if let Some(reply) = super::view::statistics_of_buckets(op, &aggregation).await? {
        return Ok(reply);
    }
    match run(op, &aggregation).await {
        Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
            super::view::aggregate(op, &aggregation, &error).await
        }
        other => other,
    }
}

/// How an aggregation is run, decided on one routing snapshot.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) destinations: Destinations,
    pub(super) how: How,
    /// The pipeline when it is not as the client wrote it: its output is resolved.
    pub(super) pipeline: Option<DocBuf>,
    /// Collation of the collection.
    pub(super) default_collation: Option<DocBuf>,
    /// Shard that a merge must run on.
    pub(super) merger: Option<ShardId>,
    /// It writes its documents somewhere.
    pub(super) writes: bool,
}

/// What is sent to whom.
#[derive(Debug)]
pub(super) enum How {
    /// The client's pipeline to the primary shard.
    Passthrough,
    /// The whole pipeline to the one shard that is concerned.
    Whole,
    /// A part to each shard, the rest over their merged streams.
    Cut(Split),
}

/// Runs (or explains) an aggregation until its routing is fresh.
pub(super) async fn run(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    let mut retries = StaleRetries::of_read(op);
    loop {
        match attempt(op, aggregation).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn attempt(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    match plan(op, aggregation).await? {
        Some(plan) => execute(op, aggregation, &plan).await,
        None if op.explain.is_some() => Err(crate::ddl::scatter::database_not_found(aggregation.ns.db())),
        None if aggregation.stages.first().is_some_and(|stage| stage.name == "$collStats") => {
            let error = crate::ddl::scatter::database_not_found(aggregation.ns.db());
            Err(error.context("Unable to retrieve information for $collStats stage"))
        }
        None => Ok(open::empty(aggregation.reply_ns)),
    }
}

/// Runs or explains what was planned.
pub(super) async fn execute(op: &Op<'_>, aggregation: &Aggregation<'_>, plan: &Plan) -> CommandResult<Reply> {
    if op.explain.is_some() {
        return super::explain::aggregate::explain(op, aggregation, plan).await;
    }
    match &plan.how {
        How::Passthrough | How::Whole => whole(op, aggregation, plan).await,
        How::Cut(split) => cut(op, aggregation, plan, split).await,
    }
}

/// Targets and cuts. `None` when the database does not exist.
async fn plan(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Option<Plan>> {
    let filter = super::leading_match::of(aggregation.stages);
    let target = op.router.target_read(op, aggregation.ns, filter.as_doc(), aggregation.collation).await?;
    let Some((route, destinations)) = target else { return Ok(None) };
    let output = super::output::resolve(op, aggregation).await?;
    let output_is_sharded = output.as_ref().is_some_and(|output| output.sharded);
    let writes = output.is_some();
    let sharded = matches!(route, Route::Sharded(_));
    let pipeline = output
        .filter(|_| sharded || output_is_sharded)
        .map(|output| with_output(aggregation.stages, output.stage.as_doc()));
    let stages = pipeline.as_ref().map(|pipeline| pipeline::trusted(pipeline.as_doc()));
    let stages = stages.as_deref().unwrap_or(aggregation.stages);
    let mut merger = None;
    let how = if !sharded {
        if output_is_sharded { How::Whole } else { How::Passthrough }
    } else {
        let primary = if writes && !output_is_sharded || stages.iter().any(joins) {
            Some(op.router.database(aggregation.ns.db()).await?.primary.clone())
        } else {
            None
        };
        match &*destinations {
            [only] if !writes || output_is_sharded || primary.as_ref() == Some(&only.shard) => How::Whole,
            _ => {
                let foreign = sharded_foreign(op, aggregation).await?;
                let mut split =
                    split(stages, |name| foreign.iter().any(|known| known == name), output_is_sharded);
                if split.needs_primary(output_is_sharded) {
                    merger = primary;
                }
                // What may be written to disk is merged on a shard, as by mongos; and text is compared by shards.
                let collation = aggregation.collation.or_else(|| route.default_collation());
                if !writes && aggregation.allow_disk_use != Some(true) && collation.is_none_or(is_simple) {
                    split.merge_groups_here();
                }
                How::Cut(split)
            }
        }
    };
    let default_collation = route.default_collation().map(DocBuf::from);
    Ok(Some(Plan { destinations, how, pipeline, default_collation, merger, writes }))
}

/// Does the collation compare text byte by byte?
fn is_simple(collation: Doc<'_>) -> bool {
    collation.get_str("locale") == Some("simple")
}

/// Stages that are run on the primary shard if they join collections that are not sharded.
fn joins(stage: &Stage<'_>) -> bool {
    matches!(stage.name, "$lookup" | "$facet")
}

/// The pipeline with another last stage.
pub(super) fn with_output(stages: &[Stage<'_>], output: Doc<'_>) -> DocBuf {
    let before = stages.split_last().map_or(&[][..], |(_, before)| before);
    let stages: Vec<DocBuf> =
        before.iter().map(|stage| stage.doc).chain(std::iter::once(output)).map(DocBuf::from).collect();
    array_of(&stages)
}

async fn whole(op: &Op<'_>, aggregation: &Aggregation<'_>, plan: &Plan) -> CommandResult<Reply> {
    let Some(destination) = plan.destinations.first() else { return Ok(open::empty(aggregation.reply_ns)) };
    let batch = aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH);
    let pipeline = plan.pipeline.as_ref().map_or(aggregation.pipeline, DocBuf::as_doc);
    let part = if matches!(plan.how, How::Passthrough) { Part::Passthrough } else { Part::Whole };
    let request = request(op, aggregation, plan, pipeline, batch, part);
    let mut request = request.finish_on(aggregation.ns.db(), |out| destination.versions.write(out))?;
    let set = op.router.shard_set(&destination.shard).await?;
    let (preference, retry) = if plan.writes {
        (ReadPreference::PRIMARY, Retry::Never)
    } else {
        (op.read_preference()?, Retry::Idempotent)
    };
    let shard = &destination.shard;
    let answer = op.ask_set(shard, &set, &mut request, &preference, retry).await?;
    super::prepared::wait(op, &set, &answer.server, open::cursor_id(&answer)).await?;
    Ok(open::pass_through_as(op, shard, set, answer, aggregation.ns, aggregation.reply_ns, || {
        open::owner(op, aggregation.reply_ns, CursorKind::Normal, false)
    }))
}

async fn cut(op: &Op<'_>, aggregation: &Aggregation<'_>, plan: &Plan, split: &Split) -> CommandResult<Reply> {
    match &split.merge {
        Merge::Stream { skip, limit } => {
            // What writes begins with its first batch: while cursors are opened, stale answers must cost nothing.
            let first = if plan.writes { 0 } else { aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH) };
            let opened = open_parts(op, aggregation, plan, split, first).await?;
            // Nothing comes out of what writes: its first batch is its end.
            let batch_size = aggregation.batch_size.filter(|size| !plan.writes || *size > 0);
            let aggregation = Aggregation { batch_size, ..*aggregation };
            merge_here::stream(op, &aggregation, opened, split.order(), *skip, *limit).await
        }
        Merge::Sum { field, id } => {
            let opened = open_parts(op, aggregation, plan, split, DEFAULT_FIRST_BATCH).await?;
            merge_here::sum(op, aggregation, opened, field, id.as_deref()).await
        }
        Merge::Groups(merge) => {
            let opened = open_parts(op, aggregation, plan, split, DEFAULT_FIRST_BATCH).await?;
            match merge_groups::run(op, aggregation, opened, &merge.spec).await? {
                Ok(reply) => Ok(reply),
                Err(refusal) => {
                    tracing::debug!(ns = %aggregation.ns, ?refusal, "groups are merged on a shard");
                    on_shard(op, aggregation, plan, split, &merge.stages).await
                }
            }
        }
        Merge::Stages(stages) => on_shard(op, aggregation, plan, split, stages).await,
    }
}

/// Lets a shard run what is left of the pipeline. The first batches stay with the cursors that it reads.
async fn on_shard(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
    split: &Split,
    stages: &[DocBuf],
) -> CommandResult<Reply> {
    let opened = open_parts(op, aggregation, plan, split, 0).await?;
    let merged = merge_on_shard::run(op, aggregation, plan, opened, split, stages).await;
    let by_mongos = plan.merger.is_none()
        && aggregation.allow_disk_use != Some(true)
        && !stages.iter().any(|stage| {
            stage.as_doc().first().is_some_and(|stage| {
                matches!(stage.name(), "$lookup" | "$graphLookup" | "$unionWith" | "$out" | "$merge")
            })
        });
    if by_mongos { merged.map_err(CommandError::of_own_merge) } else { merged }
}

/// Opens the shards' parts of the pipeline.
async fn open_parts(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
    split: &Split,
    first_batch: u64,
) -> CommandResult<open::Opened> {
    let part = if split.needs_merge { Part::Partial } else { Part::Plain };
    let pipeline = array_of(&split.shards);
    let template =
        request(op, aggregation, plan, pipeline.as_doc(), first_batch, part).template_on(aggregation.ns.db());
    let (db, collection) = (aggregation.ns.db(), aggregation.ns.coll());
    open::open_on_all(op, &template, &plan.destinations, db, collection, Partial::Refused)
        .await
        .map_err(CommandError::of_remote_cursor)
}

/// Which of the joined collections are sharded.
pub(super) async fn sharded_foreign(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
) -> CommandResult<Vec<String>> {
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
    plan: &Plan,
    pipeline: Doc<'_>,
    batch_size: u64,
    part: Part,
) -> ShardRequest<'a> {
    let mut request = ShardRequest::new(op, pipeline.as_bytes().len() + aggregation.options.len() + 128);
    put_aggregate(op, request.out(), aggregation, plan, pipeline, Some(batch_size), part);
    let request = request.read_concern(&plan.destinations);
    if plan.writes { request.write_concern() } else { request.no_write_concern() }
}

/// The fields of a shard's part, in a command or in an explain of one (without a batch size).
pub(super) fn put_aggregate(
    op: &Op<'_>,
    out: &mut BytesMut,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
    pipeline: Doc<'_>,
    batch_size: Option<u64>,
    part: Part,
) {
    put_target(out, aggregation.ns);
    splice::put_array(out, "pipeline", pipeline);
    match batch_size {
        Some(size) => put_cursor(out, size),
        None => splice::open_doc(out, "cursor").finish(out),
    }
    if let Some(allow) = aggregation.allow_disk_use {
        splice::put_bool(out, "allowDiskUse", allow);
    }
    out.extend_from_slice(aggregation.options);
    put_variables(op, out, aggregation.variables, part);
    if let Some(collation) = effective_collation(aggregation, plan, part) {
        splice::put_doc(out, "collation", collation.as_doc());
    }
    splice::put_bool(out, "fromMongos", part != Part::Passthrough);
    if part == Part::Partial {
        splice::put_bool(out, "needsMerge", true);
    }
}

/// `aggregate: <collection>`, or 1 for pipelines that read none.
pub(super) fn put_target(out: &mut BytesMut, ns: &Namespace) {
    if ns.coll() == COLLECTIONLESS {
        splice::put_i32(out, "aggregate", 1);
    } else {
        splice::put_str(out, "aggregate", ns.coll());
    }
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
pub(super) fn effective_collation(aggregation: &Aggregation<'_>, plan: &Plan, part: Part) -> Option<DocBuf> {
    if let Some(collation) = aggregation.collation {
        return Some(DocBuf::from(collation));
    }
    if part == Part::Passthrough {
        return None;
    }
    Some(plan.default_collation.clone().unwrap_or_else(|| {
        let mut simple = DocBuf::new();
        simple.append("locale", "simple");
        simple
    }))
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
