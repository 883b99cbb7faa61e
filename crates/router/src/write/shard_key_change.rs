//! A document whose new shard key another shard owns: its shard refuses the update (WouldChangeOwningShard) and tells
//! both images; the router deletes the one and inserts the other in a transaction.
//!
//! As mongos 6.0 does it for retryable writes: a transaction under the write's own session and number, in which the
//! update is tried again first, so that the images are those of the transaction's snapshot. A client that retries
//! after the commit gets `IncompleteTransactionHistory`, as from a mongos.

use chunk_map::ShardId;
use document::{Doc, DocBuf, Timestamp, splice};

use super::batch::{self, Batch, RuntimeConstants};
use super::child::{self, Answer};
use super::internal_transaction::{InternalTransaction, Membership};
use super::outcome::ConcernError;
use super::split::Child;
use super::target::{self, Aim};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Route, Versions};
use crate::remote::{ShardReply, ShardRequest};
use crate::reply::Summary;

/// Attempts of the whole transaction when its routing turns out to be stale (mongos: `kMaxNumStaleVersionRetries`).
const MAX_ATTEMPTS: usize = 10;

const DUPLICATE: &str = "Failed to update document's shard key field. There is either an orphan for this document or \
                         _id for this collection is not globally unique.";
const FAILED: &str = "Update operation was converted into a distributed transaction because the document being updated \
                      would move shards and that transaction failed";

/// What the transaction came to.
#[derive(Debug)]
pub(super) enum Moved {
    /// The document went from one shard to another (or was upserted there).
    Across(Images, Committed),
    /// Nothing matched any more.
    Nothing(Committed),
    /// The statement did not move a document after all: its own answer.
    InPlace(ShardReply, Committed),
}

/// What a commit's reply tells.
#[derive(Debug, Default)]
pub(super) struct Committed {
    pub(super) concern_error: Option<ConcernError>,
    pub(super) operation_time: Option<Timestamp>,
    /// Who coordinated it.
    pub(super) shard: Option<ShardId>,
}

/// The two sides of the change.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) pre: DocBuf,
    pub(super) post: DocBuf,
    pub(super) upserts: bool,
}

impl Images {
    fn of(error: &CommandError) -> CommandResult<Self> {
        let extra = error.extra();
        let image = |name: &str| {
            extra.get_doc(name).map(DocBuf::from).ok_or_else(|| {
                CommandError::new(ErrorCode::InternalError, "WouldChangeOwningShard came without its images")
            })
        };
        let upserts = extra.get("shouldUpsert").and_then(document::Value::as_bool).unwrap_or(false);
        Ok(Self { pre: image("preImage")?, post: image("postImage")?, upserts })
    }
}

/// Moves the document of an update.
pub(super) async fn update(op: &Op<'_>, batch: &Batch<'_>) -> CommandResult<(ShardId, Answer)> {
    let statement = |route: &Route| {
        let unknown = || CommandError::new(ErrorCode::InternalError, "no such statement");
        let Route::Sharded(routing) = route else { return Err(unknown()) };
        let aim = target::target(batch.statements.get(0).ok_or_else(unknown)?, routing)?;
        match aim {
            Aim::One(target) => {
                Ok(Destination { shard: target.shard, versions: Versions::Sharded(target.version) })
            }
            Aim::Any(_) | Aim::Many(_) => Err(CommandError::new(ErrorCode::WouldChangeOwningShard, FAILED)),
        }
    };
    let request = |destination: &Destination, membership: Membership| {
        let child = Child {
            destination: destination.clone(),
            statements: vec![0],
            broadcast: false,
            bytes: batch.statements.raw(0).as_bytes().len(),
        };
        child::request(op, batch, &child, Some(membership))
    };
    Ok(answer(run(op, batch.collection(), statement, request).await?))
}

/// Moves the document of an update that stands in a client's transaction; `refusal` is its shard's, with both images.
pub(super) async fn update_in_transaction(
    op: &Op<'_>,
    batch: &Batch<'_>,
    refusal: &CommandError,
) -> CommandResult<(ShardId, Answer)> {
    if batch.statements.len() != 1 {
        return Err(super::progress::must_be_alone());
    }
    in_transaction(op, batch.collection(), refusal).await.map(answer)
}

/// What an update's shard would have answered, and the shard that coordinated the commit.
fn answer(moved: Moved) -> (ShardId, Answer) {
    let (mut answer, committed) = match moved {
        Moved::InPlace(ShardReply { reply, summary, .. }, committed) => {
            (Answer::parse(reply.body(), summary.times.operation), committed)
        }
        Moved::Nothing(committed) => (Answer::default(), committed),
        Moved::Across(images, committed) if images.upserts => {
            let mut id = DocBuf::new();
            if let Some(field) = images.post.as_doc().field("_id") {
                id.append_elements(field.raw());
            }
            (Answer { n: 1, upserted: vec![(0, id)], ..Answer::default() }, committed)
        }
        Moved::Across(_, committed) => (Answer { n: 1, n_modified: 1, ..Answer::default() }, committed),
    };
    answer.concern_error = committed.concern_error;
    answer.operation_time = answer.operation_time.max(committed.operation_time);
    (committed.shard.unwrap_or_else(|| ShardId::new("")), answer)
}

/// Moves the document of a findAndModify.
pub(super) async fn find_and_modify(
    op: &Op<'_>,
    constants: &RuntimeConstants,
    query: Doc<'_>,
    collation: Option<Doc<'_>>,
) -> CommandResult<Moved> {
    let statement = |route: &Route| {
        let Route::Sharded(routing) = route else {
            return Err(CommandError::new(ErrorCode::InternalError, "the collection is not sharded"));
        };
        let target = target::find_and_modify(query, collation, routing)?;
        Ok(Destination { shard: target.shard, versions: Versions::Sharded(target.version) })
    };
    let request = |destination: &Destination, membership: Membership| {
        let mut request = ShardRequest::copy(op, |_| false);
        constants.write(request.out());
        membership.write(request.out());
        request.finish(|out| destination.versions.write(out))
    };
    run(op, op.request.collection()?, statement, request).await
}

/// Runs the transaction, again when a shard says that the routing is stale.
async fn run(
    op: &Op<'_>,
    collection: &str,
    target: impl Fn(&Route) -> CommandResult<Destination>,
    request: impl Fn(&Destination, Membership) -> CommandResult<bytes::BytesMut>,
) -> CommandResult<Moved> {
    let ns = op.namespace()?;
    let mut left = MAX_ATTEMPTS;
    loop {
        let route = batch::known_route(op, &ns).await?;
        let mut transaction = InternalTransaction::new(op);
        let error = match attempt(&mut transaction, op, collection, &route, &target, &request).await {
            Ok(moved) => return Ok(moved),
            Err(error) => error,
        };
        left -= 1;
        let stale = super::progress::is_stale(error.code());
        // A shard that calls the first statement stale has ended its part by itself.
        if !(stale && transaction.has_one_participant()) {
            transaction.abort().await;
        }
        if !stale || left == 0 {
            return Err(match error.code() {
                ErrorCode::DuplicateKey => error.context(DUPLICATE),
                _ => error.context(FAILED),
            });
        }
        op.router.note_stale(&error);
        op.router
            .catalog()
            .collection_refreshed(&ns)
            .await
            .map_err(|error| crate::remote::routing::catalog_error(&error))?;
    }
}

async fn attempt(
    transaction: &mut InternalTransaction<'_>,
    op: &Op<'_>,
    collection: &str,
    route: &Route,
    target: &impl Fn(&Route) -> CommandResult<Destination>,
    request: &impl Fn(&Destination, Membership) -> CommandResult<bytes::BytesMut>,
) -> CommandResult<Moved> {
    let destination = target(route)?;
    let asked = transaction.ask(&destination.shard, |membership| request(&destination, membership)).await;
    let images = match asked {
        Err(error) if error.code() == ErrorCode::WouldChangeOwningShard => Images::of(&error)?,
        Err(error) => return Err(error),
        Ok(answer) => {
            if let Some((_, error)) = write_error(answer.reply.body(), &answer.summary) {
                return Err(error);
            }
            let committed = commit(transaction, &destination.shard).await?;
            return Ok(Moved::InPlace(answer, committed));
        }
    };
    replace(transaction, op, collection, route, images, &destination.shard).await
}

/// Moves a document in its client's transaction: the two statements join it.
pub(super) async fn in_transaction(
    op: &Op<'_>,
    collection: &str,
    refusal: &CommandError,
) -> CommandResult<Moved> {
    let images = Images::of(refusal)?;
    let route = batch::known_route(op, &chunk_map::Namespace::new(op.request.db, collection)).await?;
    let mut transaction = InternalTransaction::new(op);
    let moved = replace(&mut transaction, op, collection, &route, images, &ShardId::new("")).await;
    moved.map_err(|error| match error.code() {
        ErrorCode::DuplicateKey => error.context(DUPLICATE),
        _ => error,
    })
}

/// Deletes the one image and inserts the other.
async fn replace(
    transaction: &mut InternalTransaction<'_>,
    op: &Op<'_>,
    collection: &str,
    route: &Route,
    images: Images,
    first: &ShardId,
) -> CommandResult<Moved> {
    let mut delete = DocBuf::new();
    delete.append("q", &images.pre).append("limit", 1);
    let deleted =
        write(transaction, op, collection, route, images.pre.as_doc(), "delete", "deletes", delete.as_doc())
            .await?;
    if !may_insert(images.upserts, deleted)? {
        return commit(transaction, first).await.map(Moved::Nothing);
    }
    let post = images.post.as_doc();
    let inserted = write(transaction, op, collection, route, post, "insert", "documents", post).await?;
    if inserted != 1 {
        return Err(CommandError::new(ErrorCode::OperationFailed, "the new document was not inserted"));
    }
    let committed = commit(transaction, first).await?;
    Ok(Moved::Across(images, committed))
}

/// Does the other image follow after so many deleted ones? An upsert had found none.
fn may_insert(upserts: bool, deleted: i64) -> CommandResult<bool> {
    match (upserts, deleted) {
        (true, 0) | (false, 1) => Ok(true),
        (false, _) => Ok(false),
        (true, _) => Err(CommandError::new(
            ErrorCode::ConflictingOperationInProgress,
            "Delete matched a document when it should not have.",
        )),
    }
}

/// One statement on the shard that owns `document`; gives its `n`.
#[allow(clippy::too_many_arguments)]
async fn write(
    transaction: &mut InternalTransaction<'_>,
    op: &Op<'_>,
    collection: &str,
    route: &Route,
    document: Doc<'_>,
    command: &str,
    items: &str,
    item: Doc<'_>,
) -> CommandResult<i64> {
    let Route::Sharded(routing) = route else {
        return Err(CommandError::new(ErrorCode::InternalError, "the collection is not sharded"));
    };
    let Aim::One(target) = target::insert(document, routing)? else {
        return Err(CommandError::new(ErrorCode::InternalError, "one key has several owners"));
    };
    let asked = transaction.ask(&target.shard, |membership| {
        let mut request = ShardRequest::new(op, item.as_bytes().len() + 64);
        splice::put_str(request.out(), command, collection);
        splice::put_bool(request.out(), "ordered", true);
        membership.write(request.out());
        request.finish_with_documents(
            |out| Versions::Sharded(target.version).write(out),
            items,
            std::iter::once(item),
        )
    });
    let answer = asked.await?;
    match write_error(answer.reply.body(), &answer.summary) {
        Some((_, error)) => Err(error),
        None => Ok(answer.reply.body().get_i64("n").unwrap_or_default()),
    }
}

fn write_error(body: Doc<'_>, summary: &Summary) -> Option<(u32, CommandError)> {
    if !summary.has_write_errors {
        return None;
    }
    Answer::parse(body, None).errors.into_iter().next()
}

async fn commit(transaction: &InternalTransaction<'_>, shard: &ShardId) -> CommandResult<Committed> {
    let Some(answer) = transaction.commit().await? else { return Ok(Committed::default()) };
    Ok(Committed {
        concern_error: answer.reply.body().get_doc("writeConcernError").map(ConcernError::parse),
        operation_time: answer.summary.times.operation,
        shard: Some(shard.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No real shard lets it happen: the delete reads at the time at which the upsert found nothing.
    #[test]
    fn an_upsert_that_deletes_is_a_conflict() {
        for (upserts, deleted, inserts) in [(false, 1, true), (false, 0, false), (true, 0, true)] {
            assert_eq!(may_insert(upserts, deleted).unwrap(), inserts, "{upserts}, {deleted}");
        }
        let error = may_insert(true, 1).unwrap_err();
        assert_eq!((error.code().0, &*error.code().name()), (117, "ConflictingOperationInProgress"));
        assert!(error.message().contains("Delete matched a document"), "{error}");
    }
}
