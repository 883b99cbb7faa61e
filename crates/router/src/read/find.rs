//! `find`: one shard's answer passes through, several are merged.

use super::find_spec::{DEFAULT_FIRST_BATCH, FindSpec};
use super::merge_here::{FirstBatch, first_batch};
use super::open;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{Partial, RouterCursor};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Runs a find.
pub async fn find(op: &Op<'_>) -> CommandResult<Reply> {
    let spec = FindSpec::parse(op.request.body)?;
    let mut retries = StaleRetries::of_read(op);
    loop {
        match attempt(op, &spec).await {
            Err(error) if retries.again(&error) => {}
            Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
                return super::view::find(op, &spec, &error).await;
            }
            other => return other,
        }
    }
}

async fn attempt(op: &Op<'_>, spec: &FindSpec<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let Some((_, destinations)) = op.router.target_read(op, &ns, spec.filter, spec.collation).await? else {
        // No shard is there to say what is wrong with the query.
        spec.check_operators()?;
        return Ok(open::empty(ns.as_str()));
    };
    match &*destinations {
        // What leaves a shard out is the merge.
        [only] if partial(op, spec) == Partial::Refused => on_one(op, spec, only, ns.as_str()).await,
        _ => on_many(op, spec, &destinations, ns.as_str()).await.map_err(query_context),
    }
}

async fn on_one(
    op: &Op<'_>,
    spec: &FindSpec<'_>,
    destination: &Destination,
    namespace: &str,
) -> CommandResult<Reply> {
    let mut request = ShardRequest::copy(op, |_| false)
        .read_concern(std::slice::from_ref(destination))
        .finish(|out| destination.versions.write(out))?;
    let set = op.router.shard_set(&destination.shard).await?;
    let preference = op.read_preference()?;
    let shard = &destination.shard;
    let answer =
        op.ask_set(shard, &set, &mut request, &preference, Retry::Idempotent).await.map_err(query_context)?;
    super::prepared::wait(op, &set, &answer.server, open::cursor_id(&answer)).await?;
    let collection = op.request.collection()?;
    Ok(open::pass_through(op, shard, set, answer, collection, || {
        open::owner(op, namespace, spec.kind, spec.no_cursor_timeout)
    }))
}

async fn on_many(
    op: &Op<'_>,
    spec: &FindSpec<'_>,
    destinations: &Destinations,
    namespace: &str,
) -> CommandResult<Reply> {
    let order = spec.order();
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len() + 64);
    spec.write_for_many(op, &order, request.out())?;
    let template = request.read_concern(destinations).template();
    let collection = op.request.collection()?;
    let opened =
        open::open_on_all(op, &template, destinations, op.request.db, collection, partial(op, spec)).await?;
    let strip = order != crate::cursor::Order::Any;
    let cursor = RouterCursor::new(opened.streams, order, strip)
        .skip(spec.skip)
        .limit(spec.limit)
        .partial(opened.partial)
        .shard_batch(spec.batch_size.filter(|size| *size > 0));
    let first = FirstBatch {
        size: spec.batch_size.unwrap_or(DEFAULT_FIRST_BATCH),
        single: spec.single_batch,
        kind: spec.kind,
        no_timeout: spec.no_cursor_timeout,
    };
    first_batch(op, cursor, first, namespace, opened.at).await.map(|reply| reply.at(opened.operation_time))
}

/// A transaction reads all or nothing: its failed statement ends it.
fn partial(op: &Op<'_>, spec: &FindSpec<'_>) -> Partial {
    if spec.allow_partial_results && op.transaction.is_none() { Partial::Allowed } else { Partial::Refused }
}

/// Did the shard refuse the command as such? mongos parses the whole query itself, and so finds that without a shard.
pub(super) fn is_parse_error(error: &CommandError) -> bool {
    const WHILE_RUNNING: &[&str] =
        &["error processing query", "Executor error", "PlanExecutor error", "Failing command"];
    let code = error.code();
    let of_parsers =
        matches!(code.0, 2 | 4 | 9 | 14 | 40 | 72 | 167 | 168) || code.name().starts_with("Location");
    of_parsers && !WHILE_RUNNING.iter().any(|text| error.message().starts_with(text))
}

/// The context that mongos 6.0 puts before a shard's text.
fn query_context(error: CommandError) -> CommandError {
    if error.code().is_stale() || error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod {
        return error;
    }
    if is_parse_error(&error) {
        return error;
    }
    let kind = if error.code().is_retriable() { "retryable" } else { "non-retryable" };
    error.context(format_args!("Encountered {kind} error during query"))
}
