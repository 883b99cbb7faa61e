//! Opening the cursors of one query on all of its shards at once.
//!
//! A shard's cursor keeps the ownership filter of the moment it was opened: cursors that are opened one after the
//! other see moved documents twice or not at all. So all are opened together, stale answers are retried only while
//! none has been handed out, and only getMores may be lazy (seen on 6.0.5).

use std::sync::Arc;

use bytes::BytesMut;
use chunk_map::{Namespace, ShardId};
use document::{Value, splice};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Duration, Instant};
use topology::{ReadPreference, ReplicaSet};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{CursorKind, CursorReply, CursorSession, Owner, Partial, RouterCursor, ShardCursor};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::Destinations;
use crate::remote::{Retry, ShardReply, Template};
use crate::reply::Reply;
use crate::session::SessionId;
use crate::transaction::Statement;

/// How long a failed fan-out waits for the other shards' answers, so that their connections can go on.
const PATIENCE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Streams that were opened on several shards.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) streams: Vec<ShardCursor>,
    pub(crate) at: Option<document::Timestamp>,
    pub(crate) operation_time: Option<document::Timestamp>,
    /// Whether a shard that could not be asked was left out.
    pub(crate) partial: Partial,
}

impl Op<'_> {
    /// The session of the command.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.request.generic.lsid.and_then(SessionId::from_lsid)
    }

    /// The command's read preference.
    pub(crate) fn read_preference(&self) -> CommandResult<ReadPreference> {
        self.request.read_preference()
    }
}

/// Sends the template to all destinations at once. All have answered when this succeeds; on an error the cursors of
/// those that did are closed.
pub(crate) async fn open_on_all(
    op: &Op<'_>,
    template: &Template,
    destinations: &Destinations,
    db: &str,
    collection: &str,
    partial: Partial,
) -> CommandResult<Opened> {
    let preference = op.read_preference()?;
    let asked = destinations.iter().map(|destination| {
        let preference = &preference;
        async move {
            let mut request = template.finish(|out| destination.versions.write(out))?;
            let set = op.router.shard_set(&destination.shard).await?;
            let shard = &destination.shard;
            let answer = op.ask_set(shard, &set, &mut request, preference, Retry::Idempotent).await?;
            let opened = stream(op, shard, Arc::clone(&set), answer, db, collection)?;
            super::prepared::wait(op, &set, opened.0.server(), opened.0.id()).await?;
            Ok::<_, CommandError>(opened)
        }
    });
    let mut asked: FuturesUnordered<_> =
        asked.enumerate().map(|(index, answer)| async move { (index, answer.await) }).collect();
    let mut opened = Opened { streams: Vec::new(), at: None, operation_time: None, partial };
    let mut indexed: Vec<(usize, ShardCursor)> = Vec::new();
    let mut failure: Option<CommandError> = None;
    let mut patience = None;
    loop {
        let next = match patience {
            None => asked.next().await,
            // After a failure the others' answers do not matter; a short wait saves their connections.
            Some(until) => tokio::time::timeout_at(until, asked.next()).await.unwrap_or(None),
        };
        let Some((index, answer)) = next else { break };
        match answer {
            Ok((stream, at, time)) => {
                indexed.push((index, stream));
                opened.at = opened.at.or(at);
                opened.operation_time = opened.operation_time.max(time);
            }
            Err(error) if partial != Partial::Refused && is_unreachable(error.code()) => {
                opened.partial = Partial::Returned;
            }
            Err(error) => {
                patience.get_or_insert_with(|| Instant::now() + PATIENCE_AFTER_FAILURE);
                // A stale answer refreshes the routing: it goes before others.
                let (first, other) = match failure.take() {
                    Some(first) if first.code().is_stale() || !error.code().is_stale() => {
                        (first, Some(error))
                    }
                    first => (error, first),
                };
                if let Some(other) = other {
                    op.router.note_stale(&other);
                }
                failure = Some(first);
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    // Merges break ties by the order of shards.
    indexed.sort_by_key(|(index, _)| *index);
    opened.streams = indexed.into_iter().map(|(_, stream)| stream).collect();
    Ok(opened)
}

type StreamAndTimes = (ShardCursor, Option<document::Timestamp>, Option<document::Timestamp>);

fn stream(
    op: &Op<'_>,
    shard: &ShardId,
    set: Arc<ReplicaSet>,
    answer: ShardReply,
    db: &str,
    collection: &str,
) -> CommandResult<StreamAndTimes> {
    let time = answer.summary.times.operation;
    let reply = CursorReply::parse(&answer.reply.into_body())?;
    let at = reply.at;
    let session = cursor_session(op, shard);
    Ok((ShardCursor::new(op.router.servers(), set, answer.server, db, collection, session, reply), at, time))
}

/// The session that a shard's cursor lives in.
fn cursor_session(op: &Op<'_>, shard: &ShardId) -> CursorSession {
    CursorSession {
        session: op.session(),
        transaction: op.transaction.as_ref().map(|statement| statement.cursor_tag(shard)),
    }
}

/// Errors that `allowPartialResults` forgives (6.0).
fn is_unreachable(code: ErrorCode) -> bool {
    code.is_retriable() || code == ErrorCode::FailedToSatisfyReadPreference
}

/// The cursor's id in a shard's answer.
pub(super) fn cursor_id(answer: &ShardReply) -> i64 {
    let cursor = answer.reply.body().get_doc("cursor");
    cursor.and_then(|cursor| cursor.get_i64("id")).unwrap_or(0)
}

/// Passes a one-shard answer on. A cursor that stays open on the shard becomes a cursor of this router.
pub(crate) fn pass_through(
    op: &Op<'_>,
    shard: &ShardId,
    set: Arc<ReplicaSet>,
    answer: ShardReply,
    collection: &str,
    owner: impl FnOnce() -> Owner,
) -> Reply {
    let ShardReply { reply, summary, server } = answer;
    let mut reply = Reply::forward(reply, &summary);
    let id = reply.body().get_doc("cursor").and_then(|cursor| cursor.get_i64("id")).unwrap_or(0);
    if id != 0 {
        let opened = CursorReply::open(id);
        let stream = ShardCursor::new(
            op.router.servers(),
            set,
            server,
            op.request.db,
            collection,
            cursor_session(op, shard),
            opened,
        );
        let id = op.router.cursors().insert(owner(), RouterCursor::single(stream));
        set_cursor_id(&mut reply, id);
    }
    reply
}

/// As [`pass_through`], of a collection that the client may know under another name (a view).
pub(crate) fn pass_through_as(
    op: &Op<'_>,
    shard: &ShardId,
    set: Arc<ReplicaSet>,
    answer: ShardReply,
    ns: &Namespace,
    reply_ns: &str,
    owner: impl FnOnce() -> Owner,
) -> Reply {
    if ns.as_str() == reply_ns {
        return pass_through(op, shard, set, answer, ns.coll(), owner);
    }
    let ShardReply { reply, summary, server } = answer;
    let body = reply.body();
    let cursor = body.get_doc("cursor").unwrap_or(document::Doc::empty());
    let id = match cursor.get_i64("id").unwrap_or(0) {
        0 => 0,
        id => {
            let opened = CursorReply::open(id);
            let session = cursor_session(op, shard);
            let stream =
                ShardCursor::new(op.router.servers(), set, server, ns.db(), ns.coll(), session, opened);
            op.router.cursors().insert(owner(), RouterCursor::single(stream).renamed())
        }
    };
    let reply = Reply::with_capacity(body.as_bytes().len(), |out| {
        let document = splice::open_doc(out, "cursor");
        let batch = cursor.get_array("firstBatch").unwrap_or(document::Doc::empty());
        splice::put_array(out, "firstBatch", batch);
        finish_cursor(
            out,
            document,
            id,
            reply_ns,
            cursor.get("atClusterTime").and_then(Value::as_timestamp),
            false,
        );
    });
    reply.at(summary.times.operation)
}

/// Overwrites the id in a cursor reply: same length, same place.
pub(crate) fn set_cursor_id(reply: &mut Reply, id: i64) {
    let body = reply.body();
    let field = body.get_doc("cursor").and_then(|cursor| cursor.field("id"));
    let at = field
        .filter(|field| field.value_bytes().len() == 8)
        .and_then(|field| body.offset_of(field.value_bytes()));
    if let Some(slot) = at.and_then(|at| reply.body_mut().get_mut(at..at + 8)) {
        slot.copy_from_slice(&id.to_le_bytes());
    }
}

/// Writes the end of a cursor document and of its reply: `id, ns, [atClusterTime], [partialResultsReturned]`.
pub(crate) fn finish_cursor(
    out: &mut BytesMut,
    cursor: splice::Open,
    id: i64,
    namespace: &str,
    at: Option<document::Timestamp>,
    partial: bool,
) {
    splice::put_i64(out, "id", id);
    splice::put_str(out, "ns", namespace);
    if let Some(at) = at {
        splice::put_timestamp(out, "atClusterTime", at);
    }
    if partial {
        splice::put_bool(out, "partialResultsReturned", true);
    }
    cursor.finish(out);
    splice::put_f64(out, "ok", 1.0);
}

/// The answer for a database or collection that does not exist.
pub(crate) fn empty(namespace: &str) -> Reply {
    Reply::build(|out| {
        let cursor = splice::open_doc(out, "cursor");
        splice::open_array(out, "firstBatch").finish(out);
        finish_cursor(out, cursor, 0, namespace, None, false);
    })
}

/// An owner for a cursor of this command.
pub(crate) fn owner(op: &Op<'_>, namespace: &str, kind: CursorKind, no_timeout: bool) -> Owner {
    Owner {
        namespace: namespace.into(),
        session: op.session(),
        transaction: op.transaction.as_ref().map(Statement::number),
        kind,
        no_timeout,
        comment: op.request.generic.comment.map(|comment| comment.raw().into()),
        time_left: op
            .deadline
            .map(|deadline| deadline.saturating_duration_since(tokio::time::Instant::now())),
        change_stream: None,
        origin: Arc::clone(op.client.origin(op.router.origins())),
    }
}
