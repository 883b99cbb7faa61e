//! `explain`: what the shards would do, in the shapes of mongos 6.0.
//!
//! Each concerned shard explains the client's command as it is (`plans`); an aggregation is cut first, and each shard
//! explains its part ([`aggregate`]). What the shards say is copied, what concerns the whole is added up here.

mod about;
pub(super) mod aggregate;
mod plans;

use document::{Doc, Value};

use super::find_spec::FindSpec;
use crate::codes::ErrorCode;
use crate::command::{Op, table};
use crate::ddl::arguments;
use crate::ddl::scatter::{Answer, ask_all, database_not_found};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, Route, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;
use crate::request::{Request, is_generic};
use crate::write::explained;

/// Runs an explain.
pub async fn explain(op: &Op<'_>) -> CommandResult<Reply> {
    let inner = match op.request.target {
        Value::Document(inner) => inner,
        other => return Err(CommandError::wrong_type("explain.explain", other, "object")),
    };
    arguments::only(op, &["verbosity"])?;
    let verbosity = verbosity(op.request.body)?;
    let name = inner.first().map(document::Field::name).unwrap_or_default();
    let command = table::find(name).ok_or_else(|| {
        CommandError::new(
            ErrorCode::CommandNotFound,
            format!("Explain failed due to unknown command: {name}"),
        )
    })?;
    if let Some(db) = inner.get_str("$db").filter(|db| *db != op.request.db) {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("Mismatched $db in explain command. Expected {} but got {db}", op.request.db),
        ));
    }
    let mut request = Request::from_query(inner, op.request.db)?;
    let read_concern = request.generic.read_concern.or(op.request.generic.read_concern);
    let max_time_ms = request.generic.max_time_ms.or(op.request.generic.max_time_ms);
    request.generic = crate::request::Generic { read_concern, max_time_ms, ..op.request.generic };
    let mut explained = Op::new(op.router, op.client, request, command);
    explained.explain = Some(verbosity);
    explained.started_ms = op.started_ms;
    explained.deadline = op.deadline;
    let result = match command.name {
        "find" => Box::pin(commands(&explained, Kind::Find)).await,
        "count" => Box::pin(commands(&explained, Kind::Count)).await,
        "distinct" => Box::pin(commands(&explained, Kind::Distinct)).await,
        "update" | "delete" => Box::pin(commands(&explained, Kind::Write)).await,
        "findAndModify" => Box::pin(commands(&explained, Kind::FindAndModify)).await,
        "aggregate" => Box::pin(super::aggregate::aggregate(&explained)).await,
        _ => Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("Explain failed due to unsupported command: {name}"),
        )),
    };
    result.map(|reply| with_command(&reply, &explained))
}

fn verbosity(body: Doc<'_>) -> CommandResult<&'static str> {
    match body.get("verbosity") {
        None => Ok("allPlansExecution"),
        Some(Value::String(b"queryPlanner")) => Ok("queryPlanner"),
        Some(Value::String(b"executionStats")) => Ok("executionStats"),
        Some(Value::String(b"allPlansExecution")) => Ok("allPlansExecution"),
        Some(Value::String(other)) => Err(CommandError::bad_value(format!(
            "Enumeration value '{}' for field 'explain.verbosity' is not a valid value.",
            String::from_utf8_lossy(other)
        ))),
        Some(other) => Err(CommandError::wrong_type("explain.verbosity", other, "string")),
    }
}

/// Adds the command itself, which is not known to what made the reply.
fn with_command(reply: &Reply, op: &Op<'_>) -> Reply {
    let body = reply.body();
    let with_db = body.get_doc("command").is_none_or(|command| command.contains("$db"));
    Reply::with_capacity(body.as_bytes().len() + op.request.body.as_bytes().len() + 64, |out| {
        document::splice::copy_fields(body, out, |name| {
            if name == b"ok" || name == b"command" || crate::reply::is_internal(name) {
                document::splice::Keep::No
            } else {
                document::splice::Keep::Yes
            }
        });
        about::put_command(out, op, with_db);
        document::splice::put_f64(out, "ok", 1.0);
    })
}

/// The commands whose shards explain them whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Find,
    Count,
    Distinct,
    Write,
    FindAndModify,
}

async fn commands(op: &Op<'_>, kind: Kind) -> CommandResult<Reply> {
    let mut retries = StaleRetries::new(op.router);
    loop {
        match attempt(op, kind).await {
            Err(error) if retries.again(&error) => {}
            Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
                return on_view(op, kind, &error).await;
            }
            other => return other,
        }
    }
}

async fn on_view(op: &Op<'_>, kind: Kind, error: &CommandError) -> CommandResult<Reply> {
    match kind {
        Kind::Find => super::view::find(op, &FindSpec::parse(op.request.body)?, error).await,
        Kind::Count => super::view::count(op, error).await,
        Kind::Distinct => super::view::distinct(op, error).await,
        Kind::Write | Kind::FindAndModify => Err(error.clone()),
    }
}

async fn attempt(op: &Op<'_>, kind: Kind) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let destinations = destinations(op, kind, &ns).await?;
    let started = tokio::time::Instant::now();
    let answers = ask(op, &destinations).await?;
    let elapsed_ms = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
    Ok(plans::reply(op, stage_name(op, kind, answers.len()), &answers, elapsed_ms))
}

fn stage_name(op: &Op<'_>, kind: Kind, shards: usize) -> &'static str {
    let sorts = op.request.body.get_doc("sort").is_some_and(|sort| !sort.is_empty());
    match kind {
        Kind::Write => "SHARD_WRITE",
        _ if shards == 1 => "SINGLE_SHARD",
        _ if sorts => "SHARD_MERGE_SORT",
        _ => "SHARD_MERGE",
    }
}

async fn destinations(op: &Op<'_>, kind: Kind, ns: &chunk_map::Namespace) -> CommandResult<Destinations> {
    let body = op.request.body;
    let (filter, collation) = match kind {
        Kind::Find => {
            let spec = FindSpec::parse(body)?;
            (spec.filter, spec.collation)
        }
        Kind::Count | Kind::Distinct => {
            let collation = body.get_doc("collation").filter(|collation| !collation.is_empty());
            (body.get_doc("query").unwrap_or(Doc::empty()), collation)
        }
        Kind::Write | Kind::FindAndModify => {
            if kind == Kind::Write {
                explained::check_one(&op.request)?;
            }
            // A fresh table first: of a stale one the shards say so themselves.
            let (route, _) =
                op.router.target(ns, Doc::empty(), None).await?.ok_or_else(|| database_not_found(ns.db()))?;
            return match &route {
                Route::Config => Ok(Destinations::from_iter([Destination::config()])),
                Route::Unsharded(database) => Ok(Destinations::from_iter([Destination::unsharded(database)])),
                Route::Sharded(routing) if kind == Kind::Write => explained::batch(&op.request, routing),
                Route::Sharded(routing) => explained::find_and_modify(&op.request, routing),
            };
        }
    };
    let (_, destinations) =
        op.router.target(ns, filter, collation).await?.ok_or_else(|| database_not_found(ns.db()))?;
    Ok(destinations)
}

/// Has the client's command explained by these shards. The versions stand on the outer command: inside a shard would
/// not look at them (seen on 6.0.5).
async fn ask(op: &Op<'_>, destinations: &Destinations) -> CommandResult<Vec<Answer>> {
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len() + 128);
    let out = request.out();
    let inner = document::splice::open_doc(out, "explain");
    document::splice::copy_fields(op.request.body, out, |name| {
        if is_generic(name) && name != b"readConcern" {
            document::splice::Keep::No
        } else {
            document::splice::Keep::Yes
        }
    });
    inner.finish(out);
    document::splice::put_str(out, "verbosity", op.explain.unwrap_or("queryPlanner"));
    let template = request.template();
    let preference = op.read_preference()?;
    let answers = ask_all(op, &template, destinations, &preference, Retry::Idempotent).await;
    checked(answers)
}

/// The first failure, named after its shard.
fn checked(answers: Vec<Answer>) -> CommandResult<Vec<Answer>> {
    let bare =
        |code: ErrorCode| code.is_stale() || code == ErrorCode::CommandOnShardedViewNotSupportedOnMongod;
    for answer in &answers {
        if let Err(error) = &answer.result {
            if bare(error.code()) || super::find::is_parse_error(error) {
                return Err(error.clone());
            }
            let context = format!("Explain command on shard {} failed", answer.shard);
            return Err(error.clone().context(context));
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosities_are_the_servers_three() {
        let of = |body: bson::RawDocumentBuf| {
            verbosity(Doc::new(body.as_bytes()).unwrap()).map_err(|error| error.code().0)
        };
        assert_eq!(of(bson::rawdoc! { "explain": {} }), Ok("allPlansExecution"));
        assert_eq!(of(bson::rawdoc! { "explain": {}, "verbosity": "queryPlanner" }), Ok("queryPlanner"));
        assert_eq!(of(bson::rawdoc! { "explain": {}, "verbosity": "all" }), Err(2));
        assert_eq!(of(bson::rawdoc! { "explain": {}, "verbosity": 1 }), Err(14));
    }
}
