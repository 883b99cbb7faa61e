//! commitTransaction, abortTransaction, and the abort that no client asked for.

use std::sync::Arc;

use bytes::BytesMut;
use chunk_map::ShardId;
use document::{Doc, splice};
use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::{Duration, Instant};
use topology::ReadPreference;

use super::Statement;
use super::state::{Commit, NoCommit, Shards};
use super::table::Target;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments;
use crate::error::{CommandError, CommandResult};
use crate::remote::config::internal_request;
use crate::remote::envelope::add_to_body;
use crate::remote::{Retry, Servers, ShardReply, ShardRequest};
use crate::reply::Reply;
use crate::session::SessionId;

/// Time for an abort that nobody waits for.
const ABORT_LIMIT: Duration = Duration::from_secs(15);

/// Runs a commitTransaction.
pub async fn commit(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::only(op, &["recoveryToken", "commitTimestamp", "durableTimestamp"])?;
    let statement = statement(op)?;
    let commit = statement.commit().map_err(|why| no_commit(statement, &why))?;
    let begun = Instant::now();
    statement.stats().commit_begins(&commit);
    let result = match &commit {
        Commit::Nothing => Ok(Reply::ok()),
        Commit::One(shard) => tell(op, statement, shard, "commitTransaction").await.map(pass_on),
        Commit::ReadOnly(shards) => tell_all(op, statement, shards, "commitTransaction").await,
        Commit::SingleWrite { readers, writer } => {
            // While no reader failed nothing is decided; the writer's answer is the transaction's.
            tell_all(op, statement, readers, "commitTransaction").await?;
            tell(op, statement, writer, "commitTransaction").await.map(pass_on)
        }
        Commit::TwoPhase { coordinator, participants } => {
            coordinate(op, statement, coordinator, participants).await
        }
        Commit::Recover(shard) => coordinate(op, statement, shard, &Shards::new()).await,
    };
    if result.is_ok() {
        statement.stats().committed(&commit, begun.elapsed());
    }
    forget_cursors(op, statement);
    result
}

/// Runs an abortTransaction.
pub async fn abort(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::only(op, &["recoveryToken"])?;
    let statement = statement(op)?;
    let Some(shards) = statement.abort() else {
        return Err(CommandError::new(
            ErrorCode::TransactionCommitted,
            format!("Transaction {} is being committed or has been committed", statement.number()),
        ));
    };
    if shards.is_empty() {
        return Err(CommandError::new(
            ErrorCode::NoSuchTransaction,
            "no known command has been sent by this router for this transaction",
        ));
    }
    let result = tell_all(op, statement, &shards, "abortTransaction").await;
    forget_cursors(op, statement);
    result
}

fn statement<'s>(op: &'s Op<'_>) -> CommandResult<&'s Statement> {
    op.transaction.as_ref().ok_or_else(|| {
        CommandError::new(ErrorCode(125), format!("{} must be run within a transaction", op.command.name))
    })
}

fn no_commit(statement: &Statement, why: &NoCommit) -> CommandError {
    let number = statement.number();
    let text = match why {
        NoCommit::Aborted => format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
        NoCommit::Unanswered(shard) => format!(
            "Cannot commit transaction {number} because a previous statement on the transaction participant {shard} was \
             unsuccessful"
        ),
    };
    CommandError::new(ErrorCode::NoSuchTransaction, text)
}

fn pass_on(answer: ShardReply) -> Reply {
    Reply::forward(answer.reply, &answer.summary)
}

/// The shards have closed them.
fn forget_cursors(op: &Op<'_>, statement: &Statement) {
    if statement.has_cursors()
        && let Some(session) = op.session()
    {
        for mut stream in op.router.cursors().kill_transaction(session, statement.number()) {
            stream.set_id(0);
        }
    }
}

/// Tells one participant.
async fn tell(
    op: &Op<'_>,
    statement: &Statement,
    shard: &ShardId,
    command: &str,
) -> CommandResult<ShardReply> {
    ask(op, statement, shard, |out| splice::put_i32(out, command, 1)).await
}

/// Tells several participants at once: the first failure, else the last answer.
async fn tell_all(
    op: &Op<'_>,
    statement: &Statement,
    shards: &Shards,
    command: &str,
) -> CommandResult<Reply> {
    let mut last = Reply::ok();
    let mut doubtful = None;
    for answer in join_all(shards.iter().map(|shard| tell(op, statement, shard, command))).await {
        let answer = answer?;
        let has_error = answer.summary.has_write_concern_error;
        last = pass_on(answer);
        if has_error && doubtful.is_none() {
            doubtful = Some(std::mem::replace(&mut last, Reply::ok()));
        }
    }
    Ok(doubtful.unwrap_or(last))
}

/// Hands the decision to a shard, or asks it for the outcome when it is given no participants.
async fn coordinate(
    op: &Op<'_>,
    statement: &Statement,
    shard: &ShardId,
    participants: &Shards,
) -> CommandResult<Reply> {
    let answer = ask(op, statement, shard, |out| {
        splice::put_i32(out, "coordinateCommitTransaction", 1);
        let list = splice::open_array(out, "participants");
        for (index, participant) in participants.iter().enumerate() {
            let item = splice::open_doc(out, &index.to_string());
            splice::put_str(out, "shardId", participant.as_str());
            item.finish(out);
        }
        list.finish(out);
    });
    answer.await.map(pass_on)
}

/// One request to one participant; asked again where that is harmless, which it is: the outcome never changes.
async fn ask(
    op: &Op<'_>,
    statement: &Statement,
    shard: &ShardId,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<ShardReply> {
    let mut request = ShardRequest::new(op, 128);
    fill(request.out());
    let mut request = request.write_concern().finish_on("admin", |_| {})?;
    let mut fields = BytesMut::with_capacity(32);
    if statement.is_coordinator(shard) {
        splice::put_bool(&mut fields, "coordinator", true);
    }
    splice::put_bool(&mut fields, "autocommit", false);
    add_to_body(&mut request, &fields)?;
    let set = op.router.shard_set(shard).await?;
    op.router
        .servers()
        .ask_set(&set, &mut request, &ReadPreference::PRIMARY, Retry::Idempotent, op.deadline)
        .await
}

/// Aborts on participants, whatever they answer: a shard that is not reached drops its part when its time is over.
pub(super) async fn abort_on_shards(
    servers: Arc<Servers>,
    session: SessionId,
    number: i64,
    targets: SmallVec<[Target; 4]>,
) {
    let deadline = Some(Instant::now() + ABORT_LIMIT);
    let servers = &servers;
    join_all(targets.into_iter().map(|target| async move {
        let request = internal_request(servers, "admin", |out| {
            splice::put_i32(out, "abortTransaction", 1);
            session.write(out);
            splice::put_i64(out, "txnNumber", number);
            splice::put_bool(out, "autocommit", false);
            if target.coordinator {
                splice::put_bool(out, "coordinator", true);
            }
            splice::put_doc(out, "writeConcern", Doc::empty());
        });
        let Ok(mut request) = request else { return };
        let primary = ReadPreference::PRIMARY;
        let asked = servers.ask_set(&target.set, &mut request, &primary, Retry::Idempotent, deadline);
        if let Err(error) = asked.await {
            tracing::debug!(set = %target.set.name(), number, %error, "a transaction was not aborted");
        }
    }))
    .await;
}
