//! Merges that the router makes: sorted or plain streams with skip and limit, and sums of counts.

use document::{Value, splice};

use super::aggregate::Aggregation;
use super::find_spec::DEFAULT_FIRST_BATCH;
use super::open::{self, Opened};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{BatchEnd, CursorKind, GetMoreOptions, Order, RouterCursor};
use crate::error::{CommandError, CommandResult};
use crate::reply::{Draft, Reply};

/// Gives the first batch of the merged stream, and keeps the rest as a cursor.
pub(super) async fn stream(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    opened: Opened,
    order: Order,
    skip: u64,
    limit: Option<u64>,
) -> CommandResult<Reply> {
    let strip = order != Order::Any;
    let cursor = RouterCursor::new(opened.streams, order, strip)
        .skip(skip)
        .limit(limit)
        .shard_batch(aggregation.batch_size.filter(|size| *size > 0));
    let size = aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH);
    let first = FirstBatch { size, single: false, kind: CursorKind::Normal, no_timeout: false };
    first_batch(op, cursor, first, aggregation.reply_ns, opened.at)
        .await
        .map(|reply| reply.at(opened.operation_time))
}

/// What the first batch of a router's cursor is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstBatch {
    pub(super) size: u64,
    /// No second one.
    pub(super) single: bool,
    pub(super) kind: CursorKind,
    pub(super) no_timeout: bool,
}

/// Takes the first batch of a merged stream, and keeps the rest as a cursor.
pub(super) async fn first_batch(
    op: &Op<'_>,
    mut cursor: RouterCursor,
    first: FirstBatch,
    namespace: &str,
    at: Option<document::Timestamp>,
) -> CommandResult<Reply> {
    let options =
        GetMoreOptions { deadline: op.deadline, api: op.request.generic.api, ..GetMoreOptions::default() };
    // Written straight into the reply: a batch may have 16 MiB.
    let mut reply = Draft::new();
    let document = splice::open_doc(reply.out(), "cursor");
    let array = splice::open_array(reply.out(), "firstBatch");
    let end = cursor.next_batch(op.router.servers(), reply.out(), Some(first.size), options).await?;
    array.finish(reply.out());
    let partial = cursor.is_partial();
    let id = if end == BatchEnd::Exhausted || first.single {
        drop(cursor);
        0
    } else {
        op.router.cursors().insert(open::owner(op, namespace, first.kind, first.no_timeout), cursor)
    };
    open::finish_cursor(reply.out(), document, id, namespace, at, partial);
    Ok(reply.finish())
}

/// Adds up one number a shard. No shard sent a document: there was nothing to count, and the answer is empty.
pub(super) async fn sum(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    opened: Opened,
    field: &str,
    id: Option<&[u8]>,
) -> CommandResult<Reply> {
    let mut total: Option<i64> = None;
    let mut is_long = false;
    let mut streams = opened.streams;
    for stream in &mut streams {
        if stream.batch().is_empty() && !stream.is_exhausted() {
            let options = GetMoreOptions {
                deadline: op.deadline,
                api: op.request.generic.api,
                ..GetMoreOptions::default()
            };
            stream.fetch(op.router.servers(), options).await?;
        }
        while let Some(doc) = stream.batch().peek() {
            let value = doc.get(field);
            // A sum of longs is a long on one server too.
            is_long |= matches!(value, Some(Value::Int64(_)));
            let Some(n) = value.and_then(Value::as_i64) else {
                return Err(CommandError::new(
                    ErrorCode::InternalError,
                    format!("a shard counted {doc:?}, which has no number {field}"),
                ));
            };
            total = Some(total.unwrap_or(0).saturating_add(n));
            stream.advance();
        }
    }
    drop(streams);
    let reply = Reply::build(|out| {
        let cursor = splice::open_doc(out, "cursor");
        let batch = splice::open_array(out, "firstBatch");
        if let Some(total) = total {
            let doc = splice::open_doc(out, "0");
            out.extend_from_slice(id.unwrap_or_default());
            match i32::try_from(total) {
                Ok(small) if !is_long => splice::put_i32(out, field, small),
                _ => splice::put_i64(out, field, total),
            }
            doc.finish(out);
        }
        batch.finish(out);
        open::finish_cursor(out, cursor, 0, aggregation.reply_ns, opened.at, false);
    });
    Ok(reply.at(opened.operation_time))
}
