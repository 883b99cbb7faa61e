//! One command's hold on its session's transaction, and what each of its requests carries because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use chunk_map::{CollectionRouting, ShardId};
use document::{DocBuf, Timestamp, splice};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Duration, Instant};
use tokio_util::task::TaskTracker;
use topology::{ReadPreference, ReplicaSet};

use super::admission::{self, Admission, Asked};
use super::end::abort_on_shards;
use super::labels::TRANSIENT;
use super::state::{Closed, Commit, NoCommit, ReadConcern, Transaction};
use super::stats::Stats;
use super::table::Record;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::envelope::add_to_body;
use crate::remote::{Retry, Servers, ShardReply};
use crate::request::ApiParameters;
use crate::session::SessionId;

/// How long a failed statement's answer waits for the abort on the shards; it goes on behind the answer.
const ABORT_WAIT: Duration = Duration::from_secs(2);

/// How mongos calls what a transaction cannot read at its time.
const SNAPSHOT_ERROR: &str = "a non-retryable snapshot error";

/// What a getMore on a cursor of a transaction says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CursorTag {
    pub(crate) number: i64,
    coordinator: bool,
}

impl CursorTag {
    /// Writes it; the shard takes part already.
    pub(crate) fn write(self, out: &mut BytesMut) {
        splice::put_i64(out, "txnNumber", self.number);
        splice::put_bool(out, "autocommit", false);
        if self.coordinator {
            splice::put_bool(out, "coordinator", true);
        }
    }
}

/// A statement of a transaction on its way. Dropped before it is settled (its client is gone, say), it aborts.
#[derive(Debug)]
pub(crate) struct Statement {
    session: SessionId,
    number: i64,
    record: Mutex<OwnedMutexGuard<Record>>,
    /// What the shards know and what this router knows are the same.
    settled: AtomicBool,
    servers: Arc<Servers>,
    tasks: TaskTracker,
    stats: Arc<Stats>,
}

impl Statement {
    /// Checks the command's place in its transaction, and waits for its session's other command.
    pub(super) async fn begin(op: &Op<'_>) -> CommandResult<Self> {
        let generic = &op.request.generic;
        let (Some(session), Some(number)) = (op.session(), generic.txn_number) else {
            return Err(CommandError::invalid_options("a transaction needs a session and a number"));
        };
        admission::check_command(op)?;
        let mut record = check_out(op, session).await?;
        let asked = Asked {
            number,
            starts: generic.start_transaction,
            commits: op.command.name == "commitTransaction",
        };
        let admitted =
            admission::admit(&session, record.transaction.as_ref().map(Transaction::number), asked);
        if admitted.as_ref().is_err_and(|error| error.code() == ErrorCode::NoSuchTransaction) {
            op.router.transactions().stats().foreign();
        }
        match admitted? {
            Admission::Begin => {
                let concern =
                    admission::read_concern(generic.read_concern, op.router.clock().cluster_time(), || {
                        op.router.defaults().read_concern()
                    })?;
                abort_predecessor(op, session, &mut record);
                op.router.transactions().stats().started();
                record.start(Transaction::begin(number, concern), api_elements(&generic.api));
            }
            Admission::Recover => {
                let shard = recovery_shard(op)?;
                abort_predecessor(op, session, &mut record);
                record.start(Transaction::recover(number, shard), api_elements(&generic.api));
            }
            Admission::Continue => {
                let api = api_elements(&generic.api);
                if api.as_doc().as_bytes() != record.api.as_doc().as_bytes() {
                    return Err(CommandError::new(
                        ErrorCode::APIMismatchError,
                        format!(
                            "API parameter mismatch: transaction-continuing command used {:?}, the transaction's first \
                             command used {:?}",
                            api.as_doc(),
                            record.api.as_doc()
                        ),
                    ));
                }
            }
        }
        if !admission::ends(op.command)
            && let Some(transaction) = &mut record.transaction
        {
            transaction.next_statement().map_err(|closed| refuse(number, closed))?;
        }
        record.used = Instant::now();
        Ok(Self {
            session,
            number,
            record: Mutex::new(record),
            settled: AtomicBool::new(admission::ends(op.command)),
            servers: Arc::clone(op.router.servers()),
            tasks: op.router.tasks().clone(),
            stats: Arc::clone(op.router.transactions().stats()),
        })
    }

    /// The point in time that all of the transaction's reads are at.
    pub(crate) fn snapshot(&self) -> Option<Timestamp> {
        self.record.lock().transaction.as_ref().and_then(Transaction::snapshot)
    }

    /// Refuses to ask a shard for what reached it after the time that its part of the transaction reads at. Shards of 6.0.5
    /// do not see that: their version is right, the documents are not there yet.
    pub(crate) fn check_arrivals(&self, routing: &CollectionRouting, shard: &ShardId) -> CommandResult<()> {
        let arrived = routing.chunks.last_arrival(shard);
        let mut record = self.record.lock();
        let Some(transaction) = &mut record.transaction else { return Ok(()) };
        if transaction.conflict(shard, arrived).is_some() {
            transaction.read_later(self.servers.clock().cluster_time());
        }
        let Some(reads_at) = transaction.conflict(shard, arrived) else { return Ok(()) };
        let error = CommandError::new(
            ErrorCode::MigrationConflict,
            format!(
                "Chunks of {} reached the shard {shard} at time {}, after the time {} that the transaction reads at there. \
                 Run the transaction again",
                routing.ns,
                shown(arrived),
                shown(reads_at)
            ),
        );
        Err(self.ended_by(error, transaction.statement(), SNAPSHOT_ERROR))
    }

    /// An error that ends the transaction, which may be run again.
    fn ended_by(&self, error: CommandError, statement: u32, what: &str) -> CommandError {
        error
            .context(format_args!(
                "Transaction {}:{} was aborted on statement {statement} due to: {what}",
                self.session, self.number
            ))
            .with_label(TRANSIENT)
            .settled()
    }

    /// For a cursor that was opened on this shard by this statement.
    pub(crate) fn cursor_tag(&self, shard: &ShardId) -> CursorTag {
        let mut record = self.record.lock();
        record.has_cursors = true;
        let coordinator =
            record.transaction.as_ref().is_some_and(|transaction| transaction.is_coordinator(shard));
        CursorTag { number: self.number, coordinator }
    }

    /// `txnNumber`
    pub(crate) const fn number(&self) -> i64 {
        self.number
    }

    /// Asks a shard. Never a second time: what a statement did is only known while its answers arrive.
    pub(crate) async fn ask(
        &self,
        shard: &ShardId,
        set: &Arc<ReplicaSet>,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> CommandResult<ShardReply> {
        self.join(shard, set, request)?;
        let asked =
            self.servers.ask_set(set, request, &ReadPreference::PRIMARY, Retry::Never, deadline).await;
        match asked {
            Ok(answer) => {
                self.answered(shard, answer.summary.read_only)?;
                Ok(answer)
            }
            Err(error) => Err(self.failed(shard, error).await),
        }
    }

    /// Adds what joins the shard to the transaction.
    fn join(&self, shard: &ShardId, set: &Arc<ReplicaSet>, request: &mut BytesMut) -> CommandResult<()> {
        let mut record = self.record.lock();
        let Some(transaction) = &mut record.transaction else { return Ok(()) };
        let contact = transaction.contact(shard, self.servers.clock().cluster_time());
        self.stats.asks(contact.starts);
        let mut fields = BytesMut::with_capacity(128);
        if contact.starts {
            match transaction.concern() {
                ReadConcern::Plain(concern) => splice::put_doc(&mut fields, "readConcern", concern.as_doc()),
                ReadConcern::Snapshot(at) | ReadConcern::Given(at) => write_snapshot(&mut fields, *at),
            }
            splice::put_bool(&mut fields, "startTransaction", true);
            record.sets.push((shard.clone(), Arc::clone(set)));
        }
        drop(record);
        if contact.coordinator {
            splice::put_bool(&mut fields, "coordinator", true);
        }
        splice::put_bool(&mut fields, "autocommit", false);
        add_to_body(request, &fields)
    }

    fn answered(&self, shard: &ShardId, read_only: Option<bool>) -> CommandResult<()> {
        let mut record = self.record.lock();
        let Some(transaction) = &mut record.transaction else { return Ok(()) };
        if transaction.answered(shard, read_only.unwrap_or(false)) {
            return Ok(());
        }
        Err(took_back(shard))
    }

    /// What an error of a shard means for the transaction.
    async fn failed(&self, shard: &ShardId, error: CommandError) -> CommandError {
        let code = error.code();
        let is_stale = code.is_stale() || code == ErrorCode::StaleEpoch;
        if is_stale && self.retarget(shard) {
            return error;
        }
        if is_stale || code.is_snapshot() {
            let statement = self.record.lock().transaction.as_ref().map_or(0, Transaction::statement);
            let what = if is_stale { "an error from cluster data placement change" } else { SNAPSHOT_ERROR };
            return self.ended_by(error, statement, what);
        }
        if code == ErrorCode::CommandOnShardedViewNotSupportedOnMongod {
            self.drop_pending().await;
        }
        error
    }

    /// The shard is forgotten, and the statement targeted again, if that is allowed.
    fn retarget(&self, shard: &ShardId) -> bool {
        let mut record = self.record.lock();
        let Some(transaction) = &mut record.transaction else { return false };
        if !transaction.may_retarget(shard) {
            return false;
        }
        transaction.forget(shard);
        record.sets.retain(|(known, _)| known != shard);
        true
    }

    /// A view was resolved: what runs instead may go to other shards, so those that this statement brought in are told
    /// that they do not take part.
    async fn drop_pending(&self) {
        let targets = {
            let mut record = self.record.lock();
            let Some(transaction) = &mut record.transaction else { return };
            let pending = transaction.pending();
            let targets = record.targets(&pending);
            if let Some(transaction) = &mut record.transaction {
                pending.iter().for_each(|shard| transaction.forget(shard));
            }
            record.sets.retain(|(known, _)| !pending.contains(known));
            targets
        };
        abort_on_shards(Arc::clone(&self.servers), self.session, self.number, targets).await;
    }

    /// Counters.
    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How the transaction is to be committed.
    pub(super) fn commit(&self) -> Result<Commit, NoCommit> {
        self.record.lock().transaction.as_mut().map_or(Ok(Commit::Nothing), Transaction::commit)
    }

    /// The shards to abort on; `None` when a commit is with them already.
    pub(super) fn abort(&self) -> Option<super::state::Shards> {
        let mut record = self.record.lock();
        let transaction = record.transaction.as_mut()?;
        if transaction.is_open() {
            self.stats.aborted();
        }
        transaction.abort()
    }

    /// Is this shard the coordinator?
    pub(super) fn is_coordinator(&self, shard: &ShardId) -> bool {
        self.record.lock().transaction.as_ref().is_some_and(|transaction| transaction.is_coordinator(shard))
    }

    /// Ends the transaction on all participants because its statement failed, whatever they answer.
    pub(super) async fn abort_after_failure(&self) {
        if let Some(aborting) = self.spawn_abort() {
            // An unreachable shard does not keep the client from its answer.
            let _ = tokio::time::timeout(ABORT_WAIT, aborting).await;
        }
    }

    /// The command is over, and what the shards know is what this router knows.
    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    fn spawn_abort(&self) -> Option<tokio::task::JoinHandle<()>> {
        self.settle();
        let targets = {
            let shards = self.abort()?;
            self.record.lock().targets(&shards)
        };
        if targets.is_empty() {
            return None;
        }
        let servers = Arc::clone(&self.servers);
        Some(self.tasks.spawn(abort_on_shards(servers, self.session, self.number, targets)))
    }

    /// Writes `recoveryToken`: the shard that knows the outcome, once there is one.
    pub(super) fn write_recovery_token(&self, out: &mut BytesMut) {
        let record = self.record.lock();
        let token = splice::open_doc(out, "recoveryToken");
        if let Some(shard) = record.transaction.as_ref().and_then(Transaction::recovery) {
            splice::put_str(out, "recoveryShardId", shard.as_str());
        }
        token.finish(out);
    }

    /// Did the transaction open cursors? They end with it.
    pub(super) fn has_cursors(&self) -> bool {
        self.record.lock().has_cursors
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        if !self.settled.load(Ordering::Relaxed) {
            drop(self.spawn_abort());
        }
    }
}

impl Record {
    fn start(&mut self, transaction: Transaction, api: DocBuf) {
        self.transaction = Some(transaction);
        self.sets.clear();
        self.api = api;
        self.has_cursors = false;
    }
}

fn took_back(shard: &ShardId) -> CommandError {
    CommandError::new(
        ErrorCode(51113),
        format!(
            "Participant shard {shard} claimed to be read-only for a transaction after previously claiming to have done a write"
        ),
    )
}

fn shown(time: Timestamp) -> String {
    format!("{}:{}", time.seconds, time.increment)
}

/// `readConcern: {level: "snapshot", atClusterTime}`
pub(crate) fn write_snapshot(out: &mut BytesMut, at: Timestamp) {
    let concern = splice::open_doc(out, "readConcern");
    splice::put_str(out, "level", "snapshot");
    splice::put_timestamp(out, "atClusterTime", at);
    concern.finish(out);
}

async fn check_out(op: &Op<'_>, session: SessionId) -> CommandResult<OwnedMutexGuard<Record>> {
    let wait = op.router.transactions().check_out(session);
    match op.deadline {
        None => Ok(wait.await),
        Some(deadline) => tokio::time::timeout_at(deadline, wait)
            .await
            .map_err(|_| CommandError::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit")),
    }
}

/// The session's last transaction was left open: its shards learn of it from the new one only if they take part in it.
fn abort_predecessor(op: &Op<'_>, session: SessionId, record: &mut Record) {
    let Some(transaction) = record.transaction.as_mut().filter(|transaction| transaction.is_open()) else {
        return;
    };
    let number = transaction.number();
    op.router.transactions().stats().aborted();
    let Some(shards) = transaction.abort().filter(|shards| !shards.is_empty()) else { return };
    let targets = record.targets(&shards);
    op.router.tasks().spawn(abort_on_shards(Arc::clone(op.router.servers()), session, number, targets));
}

fn refuse(number: i64, closed: Closed) -> CommandError {
    let (code, what) = match closed {
        Closed::Aborted => (ErrorCode::NoSuchTransaction, "aborted"),
        Closed::Committed => (ErrorCode::TransactionCommitted, "committed"),
    };
    CommandError::new(code, format!("Transaction with {{ txnNumber: {number} }} has been {what}."))
}

/// The shard that the client's token names.
fn recovery_shard(op: &Op<'_>) -> CommandResult<ShardId> {
    let Some(token) = op.request.body.get("recoveryToken") else {
        return Err(CommandError::new(
            ErrorCode(50940),
            "Cannot recover the transaction decision without a recoveryToken",
        ));
    };
    let token = token
        .as_doc()
        .ok_or_else(|| CommandError::wrong_type("commitTransaction.recoveryToken", token, "object"))?;
    token.get_str("recoveryShardId").map(ShardId::new).ok_or_else(|| {
        CommandError::new(
            ErrorCode::NoSuchTransaction,
            "Recovery token is empty, meaning the transaction only performed reads and can be safely retried",
        )
    })
}

fn api_elements(api: &ApiParameters<'_>) -> DocBuf {
    let mut elements = DocBuf::new();
    if let Some(version) = api.version {
        elements.append("apiVersion", version);
    }
    if let Some(strict) = api.strict {
        elements.append("apiStrict", strict);
    }
    if let Some(errors) = api.deprecation_errors {
        elements.append("apiDeprecationErrors", errors);
    }
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No real shard does it; when it counts is tested with the state ([`super::super::state`]).
    #[test]
    fn a_shard_that_takes_its_write_back_is_refused() {
        let error = took_back(&ShardId::new("shard1"));
        assert_eq!((error.code().0, &*error.code().name()), (51113, "Location51113"));
        assert!(error.message().contains("shard1 claimed to be read-only"), "{error}");
    }
}
