//! Pipelines whose source is no collection: `{aggregate: 1}`, and what may only be run that way.

use chunk_map::Namespace;
use document::{Doc, DocBuf, Value, splice};

use super::aggregate::{self, Aggregation, COLLECTIONLESS, How, Plan, array_of};
use super::pipeline::{self, Stage};
use super::split::split;
use super::{change_stream, open};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::scatter::every_shard;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, Versions};
use crate::reply::Reply;

/// Stages that need no collection.
const SOURCES: &[&str] = &[
    "$changeStream",
    "$currentOp",
    "$documents",
    "$listLocalSessions",
    "$listCachedAndActiveUsers",
    "$shardedDataDistribution",
];

/// What `$shardedDataDistribution` stands for (the server's router code, 6.0.5).
const DISTRIBUTION: &[&str] = &["$_internalAllCollectionStats", "$group", "$lookup", "$match", "$project"];

/// The first stage that mongos makes of one that is short for others.
fn first_of_what_it_stands_for(name: &str) -> &str {
    match name {
        "$unset" => "$project",
        "$bucket" | "$count" | "$sortByCount" => "$group",
        "$replaceWith" => "$replaceRoot",
        "$setWindowFields" | "$densify" | "$fill" => "$sort",
        name => name,
    }
}

/// Refuses stages that read no collection on one.
pub(super) fn check_on_collection(op: &Op<'_>, stages: &[Stage<'_>]) -> CommandResult<()> {
    if op.request.db != "admin" && stages.iter().any(|stage| stage.name == "$shardedDataDistribution") {
        return Err(not_on_admin());
    }
    let refuse = |message: String| Err(CommandError::new(ErrorCode::InvalidNamespace, message));
    match stages.first().map(|stage| stage.name) {
        Some("$currentOp") => {
            refuse("$currentOp must be run against the 'admin' database with {aggregate: 1}".to_owned())
        }
        Some("$documents") => refuse("'$documents' can only be run with {aggregate: 1}".to_owned()),
        Some("$shardedDataDistribution") => refuse(
            "$shardedDataDistribution must be run against the 'admin' database with {aggregate: 1}"
                .to_owned(),
        ),
        Some(name @ ("$listLocalSessions" | "$listCachedAndActiveUsers")) => {
            refuse(format!("{name} must be run against the database with {{aggregate: 1}}, not a collection"))
        }
        _ => Ok(()),
    }
}

/// Sources that run here are checked against the stable API here; shards check their own stages.
fn check_strict(op: &Op<'_>, stages: &[Stage<'_>]) -> CommandResult<()> {
    let strict = op.request.generic.api.strict == Some(true);
    let source = stages.first().map(|stage| stage.name).filter(|name| {
        matches!(*name, "$currentOp" | "$listLocalSessions" | "$listSessions" | "$listCachedAndActiveUsers")
    });
    match source {
        Some(name) if strict => Err(CommandError::new(
            ErrorCode::APIStrictError,
            format!("{name} is not allowed with 'apiStrict: true' in API Version 1"),
        )),
        _ => Ok(()),
    }
}

/// Runs `{aggregate: 1}`.
pub(super) async fn aggregate(op: &Op<'_>) -> CommandResult<Reply> {
    let body = op.request.body;
    if !op.request.target.is_number() {
        return Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!("collection name has invalid type: {}", op.request.target.element_type().name()),
        ));
    }
    if op.request.target.to_i64_saturating() != Some(1) {
        return Err(CommandError::failed_to_parse(
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        ));
    }
    let array = aggregate::pipeline_array(body)?;
    let stages = pipeline::parse(array)?;
    if op.transaction.is_some() {
        pipeline::check_in_transaction(&stages)?;
    }
    check_strict(op, &stages)?;
    let not_valid = |what: &str| {
        Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("{{aggregate: 1}} is not valid for {what}; a collection is required."),
        ))
    };
    let Some(first) = stages.first() else {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "{aggregate: 1} is not valid for an empty pipeline.",
        ));
    };
    if first.name == "$listSessions" {
        let text = "$listSessions may only be run against config.system.sessions";
        return Err(CommandError::new(ErrorCode::InvalidNamespace, text));
    }
    if !SOURCES.contains(&first.name) {
        return not_valid(&format!("'{}'", first_of_what_it_stands_for(first.name)));
    }
    let ns = Namespace::new(op.request.db, COLLECTIONLESS);
    let options = aggregate::options(body);
    let aggregation = Aggregation::of_client(body, &ns, &stages, array, &options)?;
    match first.name {
        "$changeStream" => change_stream::open(op, &aggregation).await,
        "$currentOp" => current_op(op, &aggregation, first).await,
        "$shardedDataDistribution" => data_distribution(op, &aggregation).await,
        "$listLocalSessions" => on_documents(op, &aggregation, &local_sessions(op)).await,
        // Nobody is authenticated until authentication is built.
        "$listCachedAndActiveUsers" => on_documents(op, &aggregation, &[]).await,
        _ => documents(op, &aggregation).await,
    }
}

/// `$documents`: their pipeline runs on the primary shard, where it finds the database's collections.
async fn documents(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    let database = match op.router.database(op.request.db).await {
        Err(error) if error.code() == ErrorCode::NamespaceNotFound => {
            return Ok(open::empty(aggregation.reply_ns));
        }
        other => other?,
    };
    let destination = if database.primary.is_config() {
        let shards = every_shard(op).await?;
        aggregate::any_of(&shards).cloned().ok_or_else(no_shards)?
    } else {
        Destination::primary(&database)
    };
    let output = super::output::resolve(op, aggregation).await?;
    let pipeline =
        output.as_ref().map(|output| aggregate::with_output(aggregation.stages, output.stage.as_doc()));
    let plan = Plan {
        destinations: Destinations::from_iter([destination]),
        how: How::Whole,
        pipeline,
        default_collation: None,
        merger: None,
        writes: output.is_some(),
    };
    aggregate::execute(op, aggregation, &plan).await
}

/// What one document costs in a batch beside its bytes.
const PER_DOCUMENT_BYTES: usize = 16;
/// The most of them that the router gives in one answer by itself.
const MOST_AT_ONCE_BYTES: usize = 16 * 1024 * 1024;

/// The rest of a pipeline over documents that this router made.
async fn on_documents(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    documents: &[DocBuf],
) -> CommandResult<Reply> {
    let size: usize = documents.iter().map(|document| document.as_bytes().len() + PER_DOCUMENT_BYTES).sum();
    let fits = aggregation.batch_size.is_none_or(|most| documents.len() as u64 <= most);
    if aggregation.stages.len() == 1 && op.explain.is_none() && fits && size <= MOST_AT_ONCE_BYTES {
        // Needs no shard: it must work on a sick cluster too.
        return Ok(Reply::build(|out| {
            let cursor = splice::open_doc(out, "cursor");
            let batch = splice::open_array(out, "firstBatch");
            for (index, document) in documents.iter().enumerate() {
                splice::put_doc(out, &index.to_string(), document.as_doc());
            }
            batch.finish(out);
            open::finish_cursor(out, cursor, 0, aggregation.reply_ns, None, false);
        }));
    }
    let mut source = DocBuf::new();
    // They are data: nothing in them is an expression.
    source.append_doc("$documents", |w| {
        w.array("$literal", documents, |w, index, document| w.put(index, document));
    });
    let rest = aggregation.stages.iter().skip(1).map(|stage| DocBuf::from(stage.doc));
    let pipeline: Vec<DocBuf> = std::iter::once(source).chain(rest).collect();
    let shards = every_shard(op).await?;
    let destination = aggregate::any_of(&shards).cloned().ok_or_else(no_shards)?;
    let plan = whole_on(Destinations::from_iter([destination]), array_of(&pipeline));
    aggregate::execute(op, aggregation, &plan).await
}

fn no_shards() -> CommandError {
    CommandError::new(ErrorCode::ShardNotFound, "No shards found")
}

const fn whole_on(destinations: Destinations, pipeline: DocBuf) -> Plan {
    Plan {
        destinations,
        how: How::Whole,
        pipeline: Some(pipeline),
        default_collation: None,
        merger: None,
        writes: false,
    }
}

/// A pipeline that every shard begins.
async fn on_all_shards(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    let plan = Plan {
        destinations: every_shard(op).await?,
        how: How::Cut(split(aggregation.stages, |_| false, false)),
        pipeline: None,
        default_collation: None,
        merger: None,
        writes: false,
    };
    aggregate::execute(op, aggregation, &plan).await
}

async fn current_op(op: &Op<'_>, aggregation: &Aggregation<'_>, first: &Stage<'_>) -> CommandResult<Reply> {
    if op.request.db != "admin" {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "$currentOp must be run against the 'admin' database with {aggregate: 1}",
        ));
    }
    let local = first.argument_doc().and_then(|spec| spec.get("localOps")).is_some_and(Value::is_truthy);
    if local {
        return on_documents(op, aggregation, &op.router.operations().list(op)).await;
    }
    on_all_shards(op, aggregation).await
}

fn not_on_admin() -> CommandError {
    CommandError::new(
        ErrorCode(6_789_102),
        "The $shardedDataDistribution stage must be run on the admin database",
    )
}

/// `$shardedDataDistribution`: what each shard says of its collections, by collection, sharded ones only.
async fn data_distribution(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Reply> {
    if op.request.db != "admin" {
        return Err(not_on_admin());
    }
    let mut stages: Vec<DocBuf> = DISTRIBUTION.iter().map(|name| distribution_stage(name)).collect();
    stages.extend(aggregation.stages.iter().skip(1).map(|stage| DocBuf::from(stage.doc)));
    let array = array_of(&stages);
    let stages = pipeline::trusted(array.as_doc());
    let aggregation = Aggregation { stages: &stages, pipeline: array.as_doc(), ..*aggregation };
    on_all_shards(op, &aggregation).await
}

fn distribution_stage(name: &str) -> DocBuf {
    let path = |field: &str| format!("$storageStats.{field}");
    let mut stage = DocBuf::new();
    stage.append_doc(name, |w| match name {
        "$_internalAllCollectionStats" => {
            w.doc("stats", |w| {
                w.doc("storageStats", |w| {
                    w.put("verbose", false);
                    w.put("waitForLock", true);
                    w.put("numericOnly", false);
                });
            });
        }
        "$group" => {
            w.put("_id", "$ns");
            w.doc("shards", |w| {
                w.doc("$push", |w| {
                    w.doc("$let", |w| {
                        w.doc("vars", |w| {
                            w.doc("nOwnedDocs", |w| {
                                let operands = [path("count"), path("numOrphanDocs")];
                                w.array("$subtract", operands, |w, index, field| {
                                    w.put(index, field.as_str());
                                });
                            });
                        });
                        w.doc("in", |w| {
                            w.put("shardName", "$shard");
                            w.put("numOrphanedDocs", path("numOrphanDocs").as_str());
                            w.put("numOwnedDocuments", "$$nOwnedDocs");
                            for (name, count) in [
                                ("ownedSizeBytes", "$$nOwnedDocs".to_owned()),
                                ("orphanedSizeBytes", path("numOrphanDocs")),
                            ] {
                                w.doc(name, |w| {
                                    let factors = [path("avgObjSize"), count];
                                    w.array("$multiply", factors, |w, index, field| {
                                        w.put(index, field.as_str());
                                    });
                                });
                            }
                        });
                    });
                });
            });
        }
        "$lookup" => {
            w.doc("from", |w| {
                w.put("db", "config");
                w.put("coll", "collections");
            });
            w.put("as", "matchingShardedCollection");
            w.put("localField", "_id");
            w.put("foreignField", "_id");
        }
        "$match" => w.doc("matchingShardedCollection", |w| {
            w.array("$ne", std::iter::empty::<i32>(), |w, index, item| w.put(index, item));
        }),
        _ => {
            w.put("_id", false);
            w.put("ns", "$_id");
            w.put("shards", "$shards");
        }
    });
    stage
}

/// The sessions that something here belongs to: cursors, and the command itself.
fn local_sessions(op: &Op<'_>) -> Vec<DocBuf> {
    let mut sessions = op.router.cursors().sessions();
    sessions.extend(op.session());
    let entry = |session: crate::session::SessionId| {
        let mut doc = DocBuf::new();
        doc.append("_id", &session.to_doc()).append("lastUse", Value::DateTime(op.started_ms));
        doc
    };
    sessions.into_iter().map(entry).collect()
}

/// Destinations of a pipeline on every shard that asks for no version.
pub(super) fn unversioned(destinations: &Destinations) -> bool {
    destinations.iter().all(|destination| matches!(destination.versions, Versions::None))
}

/// `currentOp`: the same as a command, with its other fields as the filter.
pub async fn current_op_command(op: &Op<'_>) -> CommandResult<Reply> {
    let body = op.request.body;
    let flag = |name: &str| body.get(name).is_some_and(Value::is_truthy);
    let mut source = DocBuf::new();
    source.append_doc("$currentOp", |w| {
        w.put("allUsers", !flag("$ownOps"));
        w.put("idleConnections", flag("$all"));
        w.put("truncateOps", true);
    });
    let mut filter = DocBuf::new();
    for field in body.iter().skip(1) {
        let own = matches!(field.name(), "$all" | "$ownOps" | "$truncateOps");
        if !own && !crate::request::is_generic(field.name_bytes()) {
            filter.append_elements(field.raw());
        }
    }
    let mut matching = DocBuf::new();
    matching.append("$match", &filter);
    let array = array_of(&[source, matching]);
    let stages = pipeline::trusted(array.as_doc());
    let ns = Namespace::new("admin", COLLECTIONLESS);
    let aggregation = Aggregation {
        ns: &ns,
        reply_ns: ns.as_str(),
        stages: &stages,
        pipeline: array.as_doc(),
        collation: None,
        variables: None,
        // One document has to hold them all.
        batch_size: u64::try_from(i64::MAX).ok(),
        allow_disk_use: None,
        options: &[],
    };
    let reply = on_all_shards(op, &aggregation).await?;
    let cursor = reply.body().get_doc("cursor").unwrap_or(Doc::empty());
    if let Some(id) = cursor.get_i64("id").filter(|id| *id != 0) {
        drop(op.router.cursors().kill(id));
    }
    let found = cursor.get_array("firstBatch").unwrap_or(Doc::empty());
    Ok(Reply::with_capacity(found.as_bytes().len(), |out| {
        splice::put_array(out, "inprog", found);
        splice::put_f64(out, "ok", 1.0);
    }))
}
