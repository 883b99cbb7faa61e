//! One child command: spliced from the client's statements, sent to its shard, its answer read.

use bytes::BytesMut;
use chunk_map::ShardId;
use document::{Doc, DocBuf, Timestamp, splice};
use topology::ReadPreference;

use super::batch::Batch;
use super::internal_transaction::Membership;
use super::outcome::{ConcernError, Names, parse_upserted};
use super::split::Child;
use super::statement::Kind;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::{Retry, ShardReply, ShardRequest};

/// What a shard says that it did.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) n: i64,
    pub(super) n_modified: i64,
    /// Places in the child, and documents with the one field `_id`.
    pub(super) upserted: Vec<(u32, DocBuf)>,
    /// Places in the child, in order.
    pub(super) errors: Vec<(u32, CommandError)>,
    pub(super) concern_error: Option<ConcernError>,
    pub(super) retried: Vec<i32>,
    /// Places in the child of what `retried` names.
    pub(super) retried_places: Vec<u32>,
    pub(super) operation_time: Option<Timestamp>,
}

impl Answer {
    /// Reads a reply with `ok: 1`.
    pub(super) fn parse(body: Doc<'_>, operation_time: Option<Timestamp>) -> Self {
        let mut answer = Self { operation_time, ..Self::default() };
        for field in body {
            let value = field.value();
            match field.name() {
                "n" => answer.n = value.as_i64().unwrap_or_default(),
                "nModified" => answer.n_modified = value.as_i64().unwrap_or_default(),
                "upserted" => answer.upserted = value.as_array().map(parse_upserted).unwrap_or_default(),
                "writeErrors" => answer.errors = value.as_array().map(parse_errors).unwrap_or_default(),
                "writeConcernError" => answer.concern_error = value.as_doc().map(ConcernError::parse),
                "retriedStmtIds" => {
                    let ids = value.as_array().into_iter().flatten();
                    let ids = ids.filter_map(|id| id.value().as_i64());
                    answer.retried = ids.filter_map(|id| i32::try_from(id).ok()).collect();
                    answer.retried.sort_unstable();
                }
                _ => {}
            }
        }
        answer
    }
}

fn parse_errors(items: Doc<'_>) -> Vec<(u32, CommandError)> {
    let mut errors: Vec<(u32, CommandError)> = items
        .iter()
        .filter_map(|item| {
            let item = item.value().as_doc()?;
            let place = item.get_i64("index").and_then(|at| u32::try_from(at).ok())?;
            Some((place, CommandError::from_write_error(item)))
        })
        .collect();
    errors.sort_by_key(|(place, _)| *place);
    errors
}

/// Sends a child and reads its answer.
pub(super) async fn send(op: &Op<'_>, batch: &Batch<'_>, child: &Child) -> CommandResult<Answer> {
    let mut request = request(op, batch, child, None)?;
    let shard = &child.destination.shard;
    let ShardReply { reply, summary, .. } = op
        .ask(shard, &mut request, &ReadPreference::PRIMARY, retry(op))
        .await
        .map_err(|error| unavailable(op, error, shard))?;
    let mut answer = Answer::parse(reply.body(), summary.times.operation);
    if !answer.retried.is_empty() {
        let ids = child.statements.iter().map(|statement| batch.options.statement_ids.of(*statement));
        let retried = (0..).zip(ids).filter(|(_, id)| answer.retried.binary_search(id).is_ok());
        answer.retried_places = retried.map(|(place, _)| place).collect();
    }
    Ok(answer)
}

/// Retryable writes may be sent again: their statement ids make a second attempt harmless. Others never.
pub(super) const fn retry(op: &Op<'_>) -> Retry {
    if op.request.generic.txn_number.is_some() && !op.request.in_transaction() {
        Retry::Idempotent
    } else {
        Retry::Never
    }
}

/// The context that mongos puts before an error of the way to a shard.
fn unavailable(op: &Op<'_>, error: CommandError, shard: &ShardId) -> CommandError {
    let code = error.code();
    if code == ErrorCode::FailedToSatisfyReadPreference {
        return error.context(format_args!(
            "Write results unavailable from failing to target a host in the shard {shard}"
        ));
    }
    if !(code.is_network() || code == ErrorCode::NetworkInterfaceExceededTimeLimit) {
        return error;
    }
    let set = op.router.registry().snapshot().get(shard).map(|shard| shard.host.to_string());
    error.context(format_args!(
        "Write results unavailable from {}",
        set.as_deref().unwrap_or_else(|| shard.as_str())
    ))
}

/// The child's bytes: the command's options, then the client's statements as they came, in a section of their own.
/// In a transaction its fields stand for the write concern.
pub(super) fn request(
    op: &Op<'_>,
    batch: &Batch<'_>,
    child: &Child,
    transaction: Option<Membership>,
) -> CommandResult<BytesMut> {
    let kind = batch.statements.kind();
    let options = &batch.options;
    let retryable = op.request.generic.txn_number.is_some();
    let ids = if retryable { child.statements.len() * 11 } else { 0 };
    let mut request = ShardRequest::new(op, child.bytes + ids + 256);
    let out = request.out();
    splice::put_str(out, kind.command(), batch.collection());
    splice::put_bool(out, "ordered", options.ordered);
    if options.bypass_validation {
        splice::put_bool(out, "bypassDocumentValidation", true);
    }
    if let Some(variables) = options.let_variables {
        splice::put_doc(out, "let", variables);
    }
    if let Some(uuid) = options.collection_uuid {
        out.extend_from_slice(uuid.raw());
    }
    // The strict stable API knows no such field; `$$NOW` may then differ between shards by milliseconds.
    if kind != Kind::Insert && op.request.generic.api.strict != Some(true) {
        batch.constants.write(out);
    }
    if batch.is_time_series() {
        splice::put_bool(out, "isTimeseriesNamespace", true);
    }
    if retryable {
        // Without them a shard that sees a second child of the batch takes it for a retry of the first, and drops it.
        let array = splice::open_array(out, "stmtIds");
        let mut names = Names::default();
        for statement in &child.statements {
            splice::put_i32(out, names.next(), options.statement_ids.of(*statement));
        }
        array.finish(out);
    }
    let statements = child.statements.iter().map(|statement| batch.statements.raw(*statement));
    let request = match transaction {
        Some(membership) => {
            membership.write(request.out());
            request
        }
        None => request.write_concern(),
    };
    request.finish_with_documents(|out| child.destination.versions.write(out), kind.items(), statements)
}
