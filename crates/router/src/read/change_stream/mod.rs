//! Change streams: events of a collection, a database or the cluster, in the order of cluster time.
//!
//! A stream is opened on every shard and on `config.shards` (which tells of shards that are added), never by a routing
//! table: chunks may move while it is open. In flow the shards' events with their tokens, out flow the client's batches
//! in the tokens' order ([`order`]), each with the token to resume from on any router. Memory is one batch a shard.

mod order;
mod spec;
mod stream;
mod token;

pub(crate) use stream::ChangeStream;

use chunk_map::ShardId;
use document::{Doc, DocBuf, Timestamp, Value, splice};
use topology::ReadPreference;

use super::aggregate::{Aggregation, COLLECTIONLESS, How, Plan, array_of, put_target};
use super::open;
use super::pipeline;
use super::split::{Merge, Split};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{CursorKind, CursorReply, CursorSession, Partial, RouterCursor, ShardCursor};
use crate::ddl::scatter::every_shard;
use crate::error::{CommandError, CommandResult};
use crate::remote::config::internal_request;
use crate::remote::routing::catalog_error;
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;
use spec::Spec;
use stream::{Remote, Resume, Source};
use token::Token;

/// Opens a change stream.
pub(super) async fn open(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    checked_open(op, aggregation).await.map_err(labelled)
}

async fn checked_open(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    let spec = Spec::parse(aggregation.stages)?;
    check_read_concern(op)?;
    check_namespace(op, aggregation)?;
    // The list of shards is read after this time: who is added later is told of by config.shards.
    let now = op.router.clock().cluster_time().unwrap_or_default();
    op.router.registry().reload().await.map_err(|error| catalog_error(&error))?;
    let shards = every_shard(op).await?;
    let start = Timestamp::new(now.seconds, now.increment.saturating_add(1));
    let pipeline = spec.pipeline(start);
    if op.explain.is_some() {
        return explain(op, aggregation, &pipeline).await;
    }
    let template = request(op, aggregation, array_of(&pipeline).as_doc()).template_on(aggregation.ns.db());
    let (db, collection) = (aggregation.ns.db(), aggregation.ns.coll());
    let (opened, list) = tokio::join!(
        open::open_on_all(op, &template, &shards, db, collection, Partial::Refused),
        shard_list(op, now),
    );
    let opened = opened?;
    let mut remotes: Vec<Remote> =
        opened.streams.into_iter().map(|cursor| Remote::new(Source::Shard, cursor, start)).collect();
    remotes.push(list?);
    let told = first_promise(aggregation, start);
    let mut command = DocBuf::new();
    command
        .append("ns", aggregation.ns.as_str())
        .append("pipeline", Value::Array(aggregation.pipeline))
        .append("collation", aggregation.collation.unwrap_or(Doc::empty()));
    let stream = ChangeStream {
        remotes,
        resume_from: spec.resume_from.map(|token| Resume { token, found: false }),
        command: command.into_bytes().into_boxed_slice(),
        told,
    };
    let token = stream.told.clone();
    let mut owner = open::owner(op, aggregation.reply_ns, CursorKind::TailableAwaitData, false);
    owner.change_stream = Some(Box::new(stream));
    let id = op.router.cursors().insert(owner, RouterCursor::none());
    Ok(Reply::build(|out| {
        let cursor = splice::open_doc(out, "cursor");
        splice::open_array(out, "firstBatch").finish(out);
        splice::put_doc(out, "postBatchResumeToken", token.doc());
        splice::put_i64(out, "id", id);
        splice::put_str(out, "ns", aggregation.reply_ns);
        cursor.finish(out);
        splice::put_f64(out, "ok", 1.0);
    })
    .at(opened.operation_time))
}

/// What the client may resume from before it has seen anything: what it resumed from itself, or its start.
fn first_promise(aggregation: &Aggregation<'_>, start: Timestamp) -> Token {
    let options = aggregation.stages.first().and_then(|stage| stage.argument_doc()).unwrap_or(Doc::empty());
    let resume = options.get_doc("resumeAfter").or(options.get_doc("startAfter")).and_then(Token::parse);
    resume.unwrap_or_else(|| {
        let time = options.get("startAtOperationTime").and_then(Value::as_timestamp);
        Token::high_water_mark(time.unwrap_or(start))
    })
}

/// The command for a shard. No versions: it concerns what every shard has.
fn request<'a>(op: &'a Op<'a>, aggregation: &Aggregation<'_>, pipeline: Doc<'_>) -> ShardRequest<'a> {
    let mut request = ShardRequest::new(op, pipeline.as_bytes().len() + 256);
    let out = request.out();
    put_target(out, aggregation.ns);
    splice::put_array(out, "pipeline", pipeline);
    let cursor = splice::open_doc(out, "cursor");
    splice::put_i32(out, "batchSize", 0);
    cursor.finish(out);
    splice::put_bool(out, "fromMongos", true);
    splice::put_bool(out, "needsMerge", true);
    let variables = splice::open_doc(out, "let");
    out.extend_from_slice(aggregation.variables.map_or(&[][..], Doc::elements));
    splice::put_element(out, 0x09, "NOW", &op.started_ms.to_le_bytes());
    variables.finish(out);
    match aggregation.collation.filter(|collation| !collation.is_empty()) {
        Some(collation) => splice::put_doc(out, "collation", collation),
        None => {
            let simple = splice::open_doc(out, "collation");
            splice::put_str(out, "locale", "simple");
            simple.finish(out);
        }
    }
    let concern = splice::open_doc(out, "readConcern");
    splice::put_str(out, "level", "majority");
    concern.finish(out);
    request.no_write_concern()
}

/// The stream of one shard that was added at `time`, for a stream that was opened by `command`.
async fn open_on(op: &Op<'_>, command: Doc<'_>, shard: &ShardId, time: Timestamp) -> CommandResult<Remote> {
    let broken = || CommandError::new(ErrorCode::InternalError, "a change stream forgot its own command");
    let ns = command.get_str("ns").and_then(chunk_map::Namespace::parse).ok_or_else(broken)?;
    let array = command.get_array("pipeline").ok_or_else(broken)?;
    let stages = pipeline::trusted(array);
    let aggregation = Aggregation {
        ns: &ns,
        reply_ns: ns.as_str(),
        stages: &stages,
        pipeline: array,
        collation: command.get_doc("collation").filter(|collation| !collation.is_empty()),
        variables: None,
        batch_size: None,
        allow_disk_use: None,
        options: &[],
    };
    let pipeline = array_of(&Spec::parse(&stages)?.pipeline_from(time));
    let mut request = request(op, &aggregation, pipeline.as_doc()).finish_on(ns.db(), |_| {})?;
    let set = op.router.shard_set(shard).await?;
    let preference = op.read_preference()?;
    let servers = op.router.servers();
    let answer = servers.ask_set(&set, &mut request, &preference, Retry::Idempotent, op.deadline).await?;
    let reply = CursorReply::parse(&answer.reply.into_body())?;
    let cursor = ShardCursor::new(servers, set, answer.server, ns.db(), ns.coll(), cursor_session(op), reply);
    Ok(Remote::new(Source::Shard, cursor, time))
}

/// The stream that tells of shards which are added.
async fn shard_list(op: &Op<'_>, now: Timestamp) -> CommandResult<Remote> {
    let servers = op.router.servers();
    let mut request = internal_request(servers, "config", |out| {
        splice::put_str(out, "aggregate", "shards");
        let mut source = DocBuf::new();
        source.append_doc("$changeStream", |w| {
            w.put("startAtOperationTime", Value::Timestamp(now));
            w.put("allowToRunOnConfigDB", true);
        });
        splice::put_array(out, "pipeline", array_of(&[source]).as_doc());
        let cursor = splice::open_doc(out, "cursor");
        splice::put_i32(out, "batchSize", 0);
        cursor.finish(out);
        splice::put_bool(out, "fromMongos", true);
        splice::put_bool(out, "needsMerge", true);
        let concern = splice::open_doc(out, "readConcern");
        splice::put_str(out, "level", "majority");
        concern.finish(out);
        splice::open_doc(out, "writeConcern").finish(out);
        if let Some(session) = op.session() {
            session.write(out);
        }
    })?;
    let set = std::sync::Arc::clone(servers.config_set());
    let preference = ReadPreference::PRIMARY;
    let answer = servers.ask_set(&set, &mut request, &preference, Retry::Idempotent, op.deadline).await?;
    let reply = CursorReply::parse(&answer.reply.into_body())?;
    let cursor = ShardCursor::new(servers, set, answer.server, "config", "shards", cursor_session(op), reply);
    Ok(Remote::new(Source::ShardList, cursor, now))
}

/// Change streams stand in no transaction.
fn cursor_session(op: &Op<'_>) -> CursorSession {
    CursorSession { session: op.session(), transaction: None }
}

async fn explain(op: &Op<'_>, aggregation: &Aggregation<'_>, pipeline: &[DocBuf]) -> CommandResult<Reply> {
    let mut sort = DocBuf::new();
    sort.append("_id._data", 1);
    let split = Split {
        shards: pipeline.to_vec(),
        sort: Some(sort),
        merge: Merge::Stream { skip: 0, limit: None },
        needs_merge: true,
    };
    let plan = Plan {
        destinations: every_shard(op).await?,
        how: How::Cut(split),
        pipeline: None,
        default_collation: None,
        merger: None,
        writes: false,
    };
    super::explain::aggregate::explain(op, aggregation, &plan).await
}

fn check_read_concern(op: &Op<'_>) -> CommandResult<()> {
    let level = op.request.generic.read_concern.and_then(|concern| concern.get_str("level"));
    match level {
        None | Some("majority") => Ok(()),
        Some(level) => Err(CommandError::invalid_options(format!(
            "Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: \
             {level}"
        ))),
    }
}

fn check_namespace(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<()> {
    let options = aggregation.stages.first().and_then(|stage| stage.argument_doc()).unwrap_or(Doc::empty());
    let whole_cluster = options.get("allChangesForCluster").is_some_and(Value::is_truthy);
    let (db, collection) = (op.request.db, aggregation.ns.coll());
    let on_database = collection == COLLECTIONLESS;
    let refuse = |message: String| Err(CommandError::new(ErrorCode::InvalidNamespace, message));
    if whole_cluster {
        if db == "admin" && on_database {
            return Ok(());
        }
        return Err(CommandError::invalid_options(format!(
            "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and with no \
             collection name; found {}",
            if on_database { db.to_owned() } else { aggregation.ns.as_str().to_owned() }
        )));
    }
    if matches!(db, "admin" | "config" | "local") {
        return refuse(format!("$changeStream may not be opened on the internal {db} database"));
    }
    if !on_database && collection.starts_with("system.") {
        return refuse(format!(
            "$changeStream may not be opened on the internal {} collection",
            aggregation.ns
        ));
    }
    Ok(())
}

/// Labels an error of a change stream as the server's own do: may the client resume?
pub(super) fn labelled(error: CommandError) -> CommandError {
    let code = error.code().0;
    if matches!(code, 280 | 286) {
        return error.with_label("NonResumableChangeStreamError");
    }
    let resumable = error.code().is_retriable()
        || matches!(
            code,
            6 | 7
                | 63
                | 89
                | 91
                | 133
                | 150
                | 189
                | 234
                | 262
                | 317
                | 9001
                | 10107
                | 11600
                | 11602
                | 13388
                | 13435
                | 13436
        );
    if resumable { error.with_label("ResumableChangeStreamError") } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_whether_a_stream_may_be_resumed() {
        let labels = |code| labelled(CommandError::new(ErrorCode(code), "")).labels().to_vec();
        assert_eq!(labels(280), ["NonResumableChangeStreamError"]);
        assert_eq!(labels(286), ["NonResumableChangeStreamError"]);
        for code in [6, 91, 133, 234, 10107, 13388] {
            assert_eq!(labels(code), ["ResumableChangeStreamError"], "{code}");
        }
        assert!(labels(43).is_empty() && labels(20).is_empty());
    }
}
