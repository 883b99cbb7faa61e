//! The rounds of one insert, update or delete.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use chunk_map::{Namespace, ShardId, ShardList, ShardSet, Target};
use document::{Timestamp, splice};
use futures_util::future::join_all;

use super::child::Answer;
use super::options::Options;
use super::progress::Progress;
use super::split::{self, Plan, Rules};
use super::statement::{Kind, Statements};
use super::target::{self, Aim};
use super::time_series;
use super::{child, concern, insert, shard_key_change};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::databases::ensure_database;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Route, catalog_error};
use crate::reply::Reply;
use crate::transaction;

/// Rounds in a row in which nothing was applied and the routing table did not change (mongos 5.0).
const MAX_IDLE_ROUNDS: u32 = 5;

/// One command, read and checked.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) statements: Statements<'a>,
    pub(super) options: Options<'a>,
    pub(super) constants: RuntimeConstants,
    /// The collection that the client named.
    named: Namespace,
    /// The buckets under it, when it is a sharded time series.
    buckets: Option<Namespace>,
}

/// `$$NOW` and `$$CLUSTER_TIME`: the same on all shards.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuntimeConstants {
    now_ms: i64,
    cluster_time: Timestamp,
}

impl RuntimeConstants {
    pub(super) fn new(op: &Op<'_>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            now_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            cluster_time: op.router.clock().cluster_time().unwrap_or_default(),
        }
    }

    /// Writes `runtimeConstants`.
    pub(super) fn write(&self, out: &mut BytesMut) {
        let open = splice::open_doc(out, "runtimeConstants");
        splice::put_element(out, 0x09, "localNow", &self.now_ms.to_le_bytes());
        splice::put_timestamp(out, "clusterTime", self.cluster_time);
        open.finish(out);
    }
}

impl Batch<'_> {
    /// The name of the collection that shards are told.
    pub(super) fn collection(&self) -> &str {
        self.namespace().coll()
    }

    /// Do the statements hold measurements, and the shards buckets?
    pub(super) const fn is_time_series(&self) -> bool {
        self.buckets.is_some()
    }

    /// May all shards look again for the one document of a statement? Updates that share a child may not: the shard
    /// does not say which of them it applied. They are broadcast as mongos 6.0 does it: one that races with a
    /// migration may miss its document.
    fn may_look_again(&self) -> bool {
        self.options.ordered || self.statements.len() == 1 || self.statements.kind() == Kind::Delete
    }

    const fn namespace(&self) -> &Namespace {
        match &self.buckets {
            Some(buckets) => buckets,
            None => &self.named,
        }
    }
}

/// Runs an insert, update or delete.
pub(super) async fn run(op: &Op<'_>, kind: Kind) -> CommandResult<Reply> {
    concern::check(op.request.generic.write_concern)?;
    let options = Options::parse(kind, &op.request)?;
    let statements = Statements::parse(kind, &op.request)?;
    options.check_count(statements.len())?;
    // Dispatch counted the command; opcounters count statements.
    let more = statements.len().saturating_sub(1);
    op.router.stats().more_statements(op.command, u64::try_from(more).unwrap_or(u64::MAX));
    let named = op.namespace()?;
    let mut arena = Vec::new();
    let statements = match statements {
        Statements::Insert(documents) => Statements::Insert(insert::with_ids(documents, &mut arena)),
        other => other,
    };
    let constants = RuntimeConstants::new(op);
    let mut batch = Batch { statements, options, constants, named, buckets: None };
    let progress = rounds(op, &mut batch).await?;
    if concern::is_unacknowledged(op.request.generic.write_concern) {
        return Ok(Reply::ok());
    }
    Ok(progress.outcome.into_reply(kind, batch.options.ordered, batch.statements.len()))
}

async fn rounds(op: &Op<'_>, batch: &mut Batch<'_>) -> CommandResult<Progress> {
    let mut progress = Progress::new(batch.statements.len(), batch.options.ordered);
    let mut table = Table { route: route(op, batch, Freshness::Known).await?, refusals_are_final: false };
    let (mut rounds, mut idle) = (0_u32, 0_u32);
    loop {
        let settled = progress.settled();
        let known = Version::of(&table.route);
        let was_stale = match round(op, batch, &mut table, &mut progress).await {
            Ok(was_stale) => was_stale,
            // Nothing was sent: the command as a whole failed.
            Err(error) if rounds == 0 || op.transaction.is_some() => return Err(error),
            Err(error) => {
                progress.abort(&error);
                return Ok(progress);
            }
        };
        rounds += 1;
        if progress.take_moving().is_some() {
            let (shard, answer) = match shard_key_change::update(op, batch).await {
                Ok((shard, answer)) => (shard, Ok(answer)),
                Err(error) => (ShardId::new(""), Err(error)),
            };
            progress.moved(&shard, answer);
            return Ok(progress);
        }
        if progress.is_finished() {
            return Ok(progress);
        }
        if was_stale {
            match route(op, batch, Freshness::Refreshed).await {
                Ok(route) => table.route = route,
                Err(error) => {
                    progress.abort(&error);
                    return Ok(progress);
                }
            }
        }
        idle = if progress.settled() > settled || Version::of(&table.route) != known { 0 } else { idle + 1 };
        if idle > MAX_IDLE_ROUNDS {
            progress.abort(&no_progress(batch, progress.settled(), rounds));
            return Ok(progress);
        }
    }
}

/// The routing table of the rounds.
struct Table {
    route: Route,
    /// It was read anew since the command came in: what cannot be targeted now cannot be targeted.
    refusals_are_final: bool,
}

/// One round: cut, send to all shards at once, take the answers. Says whether one of them was stale.
async fn round(
    op: &Op<'_>,
    batch: &mut Batch<'_>,
    table: &mut Table,
    progress: &mut Progress,
) -> CommandResult<bool> {
    let mut plan = plan(op, batch, table, progress).await?;
    if let Some(routing) = table.route.sharded() {
        for child in plan.children.iter().filter(|child| !child.broadcast) {
            op.check_arrivals(routing, &child.destination.shard)?;
        }
    }
    progress.begin(&mut plan);
    let batch = &*batch;
    let sent = plan.children.iter().map(|child| child::send(op, batch, child));
    let answers = match &*plan.children {
        // The common case needs no set of futures.
        [only] => vec![child::send(op, batch, only).await],
        _ => join_all(sent).await,
    };
    if op.transaction.is_some() {
        let errors = || answers.iter().filter_map(|answer| answer.as_ref().err());
        if let Some(error) = errors().find(|error| ends_transaction(error)) {
            return Err(error.clone());
        }
        if let Some(refusal) = errors().find(|error| error.code() == ErrorCode::WouldChangeOwningShard) {
            let (shard, answer) = shard_key_change::update_in_transaction(op, batch, refusal).await?;
            progress.moved(&shard, Ok(answer));
            return Ok(false);
        }
        let failed = |answer: &Result<Answer, CommandError>| match answer {
            Ok(answer) => !answer.errors.is_empty(),
            Err(error) => !super::progress::is_stale(error.code()),
        };
        if answers.iter().any(failed) {
            progress.end_with(&plan.children, answers);
            return Ok(false);
        }
    }
    let mut was_stale = false;
    for (child, answer) in plan.children.iter().zip(answers) {
        progress.record(child, answer, |error| {
            was_stale = true;
            tracing::debug!(%error, shard = %child.destination.shard, "a shard did not apply statements");
            op.router.note_stale(error);
            if error.code() == ErrorCode::ShardNotFound {
                op.router.catalog().collection_stale(batch.namespace(), None, None);
            }
        });
    }
    progress.end();
    Ok(was_stale)
}

/// In a transaction an error that its client may answer by running it again is the command's, not a statement's.
fn ends_transaction(error: &CommandError) -> bool {
    error.is_settled() || !super::progress::is_stale(error.code()) && transaction::is_transient(error)
}

/// Cuts what is due by a table that no shard has called stale.
async fn plan(
    op: &Op<'_>,
    batch: &mut Batch<'_>,
    table: &mut Table,
    progress: &Progress,
) -> CommandResult<Plan> {
    loop {
        let plan = cut(op, batch, &table.route, progress).await?;
        let Some(routing) = table.route.sharded() else { return Ok(plan) };
        let stale = plan
            .children
            .iter()
            .any(|child| !child.broadcast && routing.is_stale_for(&child.destination.shard));
        let refused = !plan.refused.is_empty() && !table.refusals_are_final;
        if !stale && !refused {
            return Ok(plan);
        }
        if refused {
            // Another table may know better. No shard is marked, so that nobody else waits for it.
            op.router.catalog().collection_stale(batch.namespace(), None, Some(&ShardId::new("")));
            table.refusals_are_final = true;
        }
        table.route = route(op, batch, Freshness::Refreshed).await?;
    }
}

async fn cut(op: &Op<'_>, batch: &Batch<'_>, route: &Route, progress: &Progress) -> CommandResult<Plan> {
    let rules = Rules {
        ordered: batch.options.ordered,
        retryable: op.request.generic.txn_number.is_some(),
        most: progress.most(),
    };
    let bytes = |statement| batch.statements.raw(statement).as_bytes().len();
    match route {
        Route::Config => Ok(split::for_one(&Destination::config(), progress.due(), bytes, rules)),
        Route::Unsharded(database) => {
            Ok(split::for_one(&Destination::unsharded(database), progress.due(), bytes, rules))
        }
        Route::Sharded(_) => {
            let shards = op.router.registry().list().await.map_err(|error| catalog_error(&error))?;
            let in_transaction = op.transaction.is_some();
            let source = Source { batch, route, progress, shards, all: OnceCell::new(), in_transaction };
            Ok(split::split(&source, progress.due(), rules))
        }
    }
}

struct Source<'s, 'a> {
    batch: &'s Batch<'a>,
    route: &'s Route,
    progress: &'s Progress,
    shards: Arc<ShardList>,
    /// Their ids, made when the first statement wants them.
    all: OnceCell<Vec<ShardId>>,
    in_transaction: bool,
}

impl split::Source for Source<'_, '_> {
    fn aim(&self, statement: u32) -> CommandResult<Aim> {
        let unknown = || CommandError::new(ErrorCode::InternalError, "no such statement");
        let routing = self.route.sharded().ok_or_else(unknown)?;
        let statement = self.batch.statements.get(statement).ok_or_else(unknown)?;
        let aim = if self.batch.is_time_series() {
            time_series::target(statement, routing)?
        } else {
            target::target(statement, routing)?
        };
        let target = |shard: ShardId| Target { version: routing.shard_version(&shard), shard };
        Ok(match aim {
            // A transaction can be run again as a whole: only the shards that are concerned, with their versions.
            Aim::Many(shards) if self.in_transaction => Aim::Any(shards.into_iter().map(target).collect()),
            aim if self.in_transaction => aim,
            Aim::Any(targets) if !self.batch.may_look_again() => {
                Aim::Many(targets.into_iter().map(|target| target.shard).collect())
            }
            aim => aim,
        })
    }

    fn bytes(&self, statement: u32) -> usize {
        self.batch.statements.raw(statement).as_bytes().len()
    }

    fn all_shards(&self) -> &[ShardId] {
        self.all.get_or_init(|| self.shards.iter().map(|shard| shard.id.clone()).collect())
    }

    fn taken(&self, statement: u32) -> Option<&ShardSet> {
        self.progress.taken(statement)
    }
}

/// How new the routing table must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// As it is known.
    Known,
    /// Newer than what the shards called stale.
    Refreshed,
}

/// Where the collection is. A database that does not exist is created; a name without chunks may be a time series.
async fn route(op: &Op<'_>, batch: &mut Batch<'_>, freshness: Freshness) -> CommandResult<Route> {
    let named = batch.named.clone();
    let found = route_of(op, &named, freshness).await?;
    batch.buckets = None;
    if !matches!(found, Route::Unsharded(_)) || named.coll().starts_with("system.") {
        return Ok(found);
    }
    let buckets = time_series::buckets_of(&named);
    match route_of(op, &buckets, freshness).await? {
        sharded @ Route::Sharded(_) => {
            batch.buckets = Some(buckets);
            Ok(sharded)
        }
        _ => Ok(found),
    }
}

pub(super) async fn known_route(op: &Op<'_>, ns: &Namespace) -> CommandResult<Route> {
    route_of(op, ns, Freshness::Known).await
}

async fn route_of(op: &Op<'_>, ns: &Namespace, freshness: Freshness) -> CommandResult<Route> {
    loop {
        let found = match freshness {
            Freshness::Known => op.router.route(ns).await,
            Freshness::Refreshed => match op.router.catalog().collection_refreshed(ns).await {
                Ok(_) => op.router.route(ns).await,
                Err(error) => Err(catalog_error(&error)),
            },
        };
        match found {
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => {
                ensure_database(op.router, ns.db(), op.deadline).await?;
            }
            other => return other,
        }
    }
}

/// What tells one state of the routing table from another.
#[derive(Debug, PartialEq)]
enum Version {
    Config,
    Database(ShardId, Option<Timestamp>, Option<i32>),
    Collection(Timestamp, Timestamp),
}

impl Version {
    fn of(route: &Route) -> Self {
        match route {
            Route::Config => Self::Config,
            Route::Unsharded(database) => Self::Database(
                database.primary.clone(),
                database.version.map(|version| version.timestamp),
                database.version.map(|version| version.last_mod),
            ),
            Route::Sharded(routing) => Self::Collection(routing.timestamp, routing.chunks.version()),
        }
    }
}

fn no_progress(batch: &Batch<'_>, completed: usize, rounds: u32) -> CommandError {
    CommandError::new(
        ErrorCode::NoProgressMade,
        format!(
            "no progress was made executing batch write op in {} after {MAX_IDLE_ROUNDS} rounds ({completed} ops \
             completed in {rounds} rounds total)",
            batch.namespace()
        ),
    )
}
