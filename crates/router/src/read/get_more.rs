//! `getMore`: the next batch of a cursor of this router.

use std::sync::Arc;

use bytes::BytesMut;
use document::{Value, splice};
use tokio::time::{Duration, Instant};

use super::find_spec::count;
use super::open::set_cursor_id;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{BatchEnd, CheckedOut, CursorKind, GetMoreOptions, Owner, cursor_id};
use crate::ddl::arguments;
use crate::error::{CommandError, CommandResult};
use crate::remote::ask::transport_error;
use crate::reply::{Draft, Reply};
use crate::transaction::Statement;

/// How long an awaitData getMore waits when the client says nothing.
const DEFAULT_AWAIT: Duration = Duration::from_secs(1);

/// Runs a getMore.
pub async fn get_more(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::only(op, &["collection", "batchSize", "term", "lastKnownCommittedOpTime"])?;
    let id = cursor_id(op.request.target)?;
    let body = op.request.body;
    let Some(collection) = body.get("collection") else {
        return Err(CommandError::new(
            ErrorCode(40414),
            "BSON field 'getMore.collection' is missing but a required field",
        ));
    };
    let Some(collection) = collection.as_str() else {
        return Err(CommandError::wrong_type("getMore.collection", collection, "string"));
    };
    if collection.is_empty() {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid namespace specified '{}.'", op.request.db),
        ));
    }
    let batch_size = body.get("batchSize").map(|size| count("batchSize", size)).transpose()?.flatten();
    let batch_size = batch_size.filter(|size| *size > 0);
    let mut checked_out =
        op.router.cursors().check_out(id, op.session(), op.transaction.as_ref().map(Statement::number))?;
    if let Err(error) = crate::local::fail_point::after_checkout(op) {
        let of_changes = checked_out.owner.change_stream.is_some();
        return Err(if of_changes { super::change_stream::labelled(error) } else { error });
    }
    // An error ends a router's cursor, also an error of the request (6.0): it is dropped with `checked_out`.
    let (reply, end) = next(op, &mut checked_out, collection, batch_size).await?;
    if end == BatchEnd::More {
        if let Some(deadline) = op_deadline(op, &checked_out) {
            checked_out.owner.time_left = Some(deadline.saturating_duration_since(Instant::now()));
        }
        checked_out.owner.origin = Arc::clone(op.client.origin(op.router.origins()));
        op.router.cursors().check_in(checked_out);
    }
    Ok(reply)
}

/// When the opening command's budget is over, for cursors that do not wait for data.
fn op_deadline(_op: &Op<'_>, checked_out: &CheckedOut<'_>) -> Option<Instant> {
    let left = checked_out.owner.time_left?;
    (checked_out.owner.kind != CursorKind::TailableAwaitData).then(|| Instant::now() + left)
}

/// May shards be asked for batches that the client has not asked for yet? From its first getMore on it will take more. Not in
/// transactions, whose next statement must find its participants idle; not with a budget, which is for the time that
/// the client waits; not when the end of the data is no end.
fn reads_ahead(op: &Op<'_>, owner: &Owner, deadline: Option<Instant>) -> bool {
    owner.kind == CursorKind::Normal
        && owner.transaction.is_none()
        && owner.change_stream.is_none()
        && deadline.is_none()
        && op.router.parameters().flag("pointsmanReadAhead")
}

async fn next(
    op: &Op<'_>,
    checked_out: &mut CheckedOut<'_>,
    collection: &str,
    batch_size: Option<u64>,
) -> CommandResult<(Reply, BatchEnd)> {
    let max_time = op.request.generic.max_time_ms;
    let awaits = checked_out.owner.kind == CursorKind::TailableAwaitData;
    if max_time.is_some() && !awaits {
        return Err(CommandError::bad_value(
            "maxTimeMS can only be used with getMore for tailable, awaitData cursors",
        ));
    }
    let await_ms = awaits.then(|| max_time.map_or(1000, i64::from));
    // A wait for data is no limit for the network: the shard's answer comes after it.
    let deadline = if awaits {
        let wait = max_time.map_or(DEFAULT_AWAIT, |ms| Duration::from_millis(u64::from(ms)));
        Some(Instant::now() + wait + Duration::from_secs(10))
    } else {
        op_deadline(op, checked_out)
    };
    if checked_out.owner.time_left == Some(Duration::ZERO) && !awaits {
        return Err(CommandError::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
    }
    let options = GetMoreOptions {
        batch_size: batch_size.and_then(|size| i64::try_from(size).ok()),
        await_ms,
        deadline: if awaits { None } else { deadline },
        api: op.request.generic.api,
        read_ahead: reads_ahead(op, &checked_out.owner, deadline),
    };
    if checked_out.owner.change_stream.is_some() {
        return change_stream(op, checked_out, collection, batch_size, max_time).await;
    }
    if checked_out.cursor.pass_through().is_some() {
        return forward(op, checked_out, options, deadline).await;
    }
    // Written straight into the reply: a batch may have 16 MiB.
    let mut reply = Draft::new();
    let document = splice::open_doc(reply.out(), "cursor");
    let array = splice::open_array(reply.out(), "nextBatch");
    let end = checked_out.cursor.next_batch(op.router.servers(), reply.out(), batch_size, options).await?;
    array.finish(reply.out());
    let id = if end == BatchEnd::Exhausted { 0 } else { checked_out.id() };
    let namespace = format!("{}.{collection}", op.request.db);
    let partial = checked_out.cursor.is_partial();
    super::open::finish_cursor(reply.out(), document, id, &namespace, None, partial);
    Ok((reply.finish(), end))
}

/// Events of a change stream.
async fn change_stream(
    op: &Op<'_>,
    checked_out: &mut CheckedOut<'_>,
    collection: &str,
    batch_size: Option<u64>,
    max_time: Option<u32>,
) -> CommandResult<(Reply, BatchEnd)> {
    let id = checked_out.id();
    let wait = max_time.map_or(DEFAULT_AWAIT, |ms| Duration::from_millis(u64::from(ms)));
    let mut events = BytesMut::new();
    let Some(stream) = checked_out.owner.change_stream.as_mut() else {
        return Err(CommandError::new(ErrorCode::CursorNotFound, "the cursor has no stream"));
    };
    let batch =
        stream.next_batch(op, &mut events, batch_size, wait).await.map_err(super::change_stream::labelled)?;
    let namespace = format!("{}.{collection}", op.request.db);
    let reply = Reply::with_capacity(events.len() + 256, |out| {
        let document = splice::open_doc(out, "cursor");
        let array = splice::open_array(out, "nextBatch");
        out.extend_from_slice(&events);
        array.finish(out);
        splice::put_doc(out, "postBatchResumeToken", batch.token.as_doc());
        super::open::finish_cursor(out, document, if batch.ended { 0 } else { id }, &namespace, None, false);
    });
    Ok((reply, if batch.ended { BatchEnd::Exhausted } else { BatchEnd::More }))
}

/// One shard and nothing to merge: its answer is passed on in the buffer it came in.
async fn forward(
    op: &Op<'_>,
    checked_out: &mut CheckedOut<'_>,
    options: GetMoreOptions<'_>,
    deadline: Option<Instant>,
) -> CommandResult<(Reply, BatchEnd)> {
    let gone = || CommandError::new(ErrorCode::CursorNotFound, "the cursor has no stream");
    let id = checked_out.id();
    let comment = checked_out.owner.comment.as_deref().unwrap_or_default();
    let stream = checked_out.cursor.pass_through().ok_or_else(gone)?;
    let mut request = stream.get_more_request(op.router.servers(), options, |out| {
        out.extend_from_slice(comment);
        if let Some(metadata) = op.client.metadata() {
            splice::put_doc(out, "$client", metadata);
        }
    })?;
    let server = stream.server();
    let context = format!("Error on remote shard {}", server.address());
    let answer = op
        .router
        .servers()
        .exchange(stream.set(), server, &mut request, deadline)
        .await
        .map_err(transport_error)?;
    if !answer.summary.ok {
        return Err(CommandError::from_reply(answer.reply.body()).context(context));
    }
    let mut reply = Reply::forward(answer.reply, &answer.summary);
    let left = reply
        .body()
        .get_doc("cursor")
        .and_then(|cursor| cursor.get("id"))
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if let Some(stream) = checked_out.cursor.pass_through_mut() {
        stream.set_id(left);
    }
    if left == 0 {
        return Ok((reply, BatchEnd::Exhausted));
    }
    set_cursor_id(&mut reply, id);
    Ok((reply, BatchEnd::More))
}
