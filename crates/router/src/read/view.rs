//! Views of sharded collections: a shard answers with the resolved view, and the command runs on what is under it.
//!
//! The router does not know views: it takes their names for unsharded collections, and the primary shard answers
//! `CommandOnShardedViewNotSupportedOnMongod` with `resolvedView: {ns, pipeline, collation}` (seen on 6.0.5).

use chunk_map::Namespace;
use document::{Doc, DocBuf, DocWriter, Value};

use super::aggregate::{self, Aggregation};
use super::find_spec::FindSpec;
use super::pipeline;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::Route;
use crate::reply::Reply;

/// A view, down to the collection under it.
struct Resolved {
    ns: Namespace,
    pipeline: DocBuf,
    collation: Option<DocBuf>,
}

impl Resolved {
    fn parse(error: &CommandError) -> CommandResult<Self> {
        let malformed =
            || CommandError::new(ErrorCode::InternalError, "a shard's answer has no resolved view");
        let view = error.extra().get_doc("resolvedView").ok_or_else(malformed)?;
        // What servers say of a series beside its view, they read in its first stage.
        let unmixed = view.get("timeseriesMayContainMixedData").is_some_and(|mixed| !mixed.is_truthy());
        let mut pipeline = DocBuf::from(view.get_array("pipeline").ok_or_else(malformed)?);
        if unmixed {
            pipeline = assuming_one_schema(pipeline.as_doc());
        }
        Ok(Self {
            ns: view.get_str("ns").and_then(Namespace::parse).ok_or_else(malformed)?,
            pipeline,
            collation: view.get_doc("collation").map(DocBuf::from),
        })
    }

    /// The view's pipeline, then `stages`.
    fn with(&self, stages: &[DocBuf]) -> DocBuf {
        let mut array = DocBuf::new();
        array.write(|w| {
            let view = self.pipeline.as_doc().iter().filter_map(|stage| stage.value().as_doc());
            for (index, stage) in view.chain(stages.iter().map(DocBuf::as_doc)).enumerate() {
                w.put(&index.to_string(), stage);
            }
        });
        array
    }

    async fn run(
        &self,
        op: &Op<'_>,
        stages: &[DocBuf],
        batch_size: Option<u64>,
        options: &[u8],
        allow_disk_use: Option<bool>,
    ) -> CommandResult<Reply> {
        let array = self.with(stages);
        let stages = pipeline::trusted(array.as_doc());
        let reply_ns = op.namespace()?;
        let aggregation = Aggregation {
            ns: &self.ns,
            reply_ns: reply_ns.as_str(),
            stages: &stages,
            pipeline: array.as_doc(),
            collation: self.collation.as_ref().map(DocBuf::as_doc),
            variables: op.request.body.get_doc("let"),
            batch_size,
            allow_disk_use,
            options,
        };
        // Views are resolved down to their collection at once: a second answer of the kind cannot come.
        Box::pin(aggregate::run(op, &aggregation)).await
    }
}

/// The pipeline of a series whose buckets hold values of one type a field: lets shards use the buckets' bounds.
fn assuming_one_schema(pipeline: Doc<'_>) -> DocBuf {
    let stages: Vec<DocBuf> = pipeline
        .iter()
        .filter_map(|stage| stage.value().as_doc())
        .map(|stage| match stage.get_doc("$_internalUnpackBucket") {
            Some(unpack) => {
                let mut assuming = DocBuf::new();
                assuming.append_doc("$_internalUnpackBucket", |w| {
                    w.elements(unpack.elements());
                    if !unpack.contains("assumeNoMixedSchemaData") {
                        w.put("assumeNoMixedSchemaData", true);
                    }
                });
                assuming
            }
            None => DocBuf::from(stage),
        })
        .collect();
    aggregate::array_of(&stages)
}

fn stage<'v>(name: &str, value: impl Into<Value<'v>>) -> DocBuf {
    let mut stage = DocBuf::new();
    stage.append(name, value);
    stage
}

/// Statistics of a sharded time series are those of its buckets: a shard does not resolve the name for these stages.
pub(super) async fn statistics_of_buckets(
    op: &Op<'_>,
    client: &Aggregation<'_>,
) -> CommandResult<Option<Reply>> {
    let Some((first, rest)) = client.stages.split_first() else { return Ok(None) };
    if !matches!(first.name, "$collStats" | "$indexStats" | "$planCacheStats") {
        return Ok(None);
    }
    let buckets = Namespace::new(client.ns.db(), &format!("system.buckets.{}", client.ns.coll()));
    let Some(Route::Sharded(routing)) = op.router.route_if_exists(&buckets).await? else { return Ok(None) };
    let mut stages = vec![DocBuf::from(first.doc)];
    if first.name == "$indexStats"
        && let Some(options) = &routing.timeseries
    {
        let mut convert = DocBuf::new();
        convert.append_doc("$_internalConvertBucketIndexStats", |w| {
            for name in ["timeField", "metaField"] {
                if let Some(field) = options.as_doc().field(name) {
                    w.elements(field.raw());
                }
            }
        });
        stages.push(convert);
    }
    stages.extend(rest.iter().map(|stage| DocBuf::from(stage.doc)));
    let array = aggregate::array_of(&stages);
    let stages = pipeline::trusted(array.as_doc());
    let aggregation = Aggregation { ns: &buckets, stages: &stages, pipeline: array.as_doc(), ..*client };
    aggregate::run(op, &aggregation).await.map(Some)
}

/// An aggregate on a view.
pub(super) async fn aggregate(
    op: &Op<'_>,
    client: &Aggregation<'_>,
    error: &CommandError,
) -> CommandResult<Reply> {
    let resolved = Resolved::parse(error)?;
    let stages: Vec<DocBuf> = client.stages.iter().map(|stage| DocBuf::from(stage.doc)).collect();
    resolved.run(op, &stages, client.batch_size, client.options, client.allow_disk_use).await
}

/// A find on a view.
pub(super) async fn find(op: &Op<'_>, spec: &FindSpec<'_>, error: &CommandError) -> CommandResult<Reply> {
    let resolved = Resolved::parse(error)?;
    let body = op.request.body;
    let refuse = |option: &str| {
        Err(CommandError::new(
            ErrorCode::InvalidPipelineOperator,
            format!("Option {option} not supported in aggregation."),
        ))
    };
    for option in ["min", "max"] {
        if body.get_doc(option).is_some_and(|doc| !doc.is_empty()) {
            return refuse(option);
        }
    }
    for option in ["returnKey", "showRecordId", "noCursorTimeout", "allowPartialResults"] {
        if body.get(option).is_some_and(Value::is_truthy) {
            return refuse(option);
        }
    }
    if body.get("tailable").is_some_and(Value::is_truthy) {
        return Err(CommandError::new(
            ErrorCode::InvalidPipelineOperator,
            "Tailable cursors are not supported in aggregation.",
        ));
    }
    if spec.single_batch && spec.limit != Some(1) {
        return refuse("singleBatch");
    }
    let mut stages = Vec::new();
    if !spec.filter.is_empty() {
        stages.push(stage("$match", spec.filter));
    }
    // The order on disk is a hint in disguise.
    let natural = spec.sort.filter(|sort| sort.contains("$natural"));
    if let Some(sort) = spec.sort.filter(|_| natural.is_none()) {
        stages.push(stage("$sort", sort));
    }
    if spec.skip > 0 {
        stages.push(stage("$skip", i64::try_from(spec.skip).unwrap_or(i64::MAX)));
    }
    if let Some(limit) = spec.limit {
        stages.push(stage("$limit", i64::try_from(limit).unwrap_or(i64::MAX)));
    }
    if let Some(projection) = spec.projection {
        stages.push(stage("$project", projection));
    }
    let mut options = DocBuf::new();
    match (natural, body.field("hint")) {
        (Some(natural), _) => {
            options.append("hint", natural);
        }
        (None, Some(hint)) => {
            options.append_elements(hint.raw());
        }
        (None, None) => {}
    }
    let allow_disk_use = body.get("allowDiskUse").map(Value::is_truthy);
    resolved.run(op, &stages, spec.batch_size, options.as_doc().elements(), allow_disk_use).await
}

/// The client's hint, as an element.
fn hint(body: Doc<'_>) -> &[u8] {
    body.field("hint").map_or(&[], |field| field.raw())
}

/// A count on a view: `{n, ok}`.
pub(super) async fn count(op: &Op<'_>, error: &CommandError) -> CommandResult<Reply> {
    let resolved = Resolved::parse(error)?;
    let body = op.request.body;
    let mut stages = Vec::new();
    if let Some(query) = body.get_doc("query").filter(|query| !query.is_empty()) {
        stages.push(stage("$match", query));
    }
    if let Some(skip) = body.get_i64("skip").filter(|skip| *skip > 0) {
        stages.push(stage("$skip", skip));
    }
    if let Some(limit) = body.get_i64("limit").filter(|limit| *limit != 0) {
        stages.push(stage("$limit", limit.saturating_abs()));
    }
    stages.push(stage("$count", "count"));
    let reply = resolved.run(op, &stages, None, hint(body), None).await?;
    if op.explain.is_some() {
        return Ok(reply);
    }
    let n = first_document(&reply).and_then(|doc| doc.get_i64("count")).unwrap_or(0);
    let mut doc = DocBuf::new();
    doc.append("n", i32::try_from(n).map_or(Value::Int64(n), Value::Int32));
    Ok(Reply::ok_with(doc.as_doc()))
}

/// A distinct on a view: `{values, ok}`.
pub(super) async fn distinct(op: &Op<'_>, error: &CommandError) -> CommandResult<Reply> {
    let resolved = Resolved::parse(error)?;
    let stages = distinct_stages(op)?;
    let reply = resolved.run(op, &stages, None, &[], None).await?;
    Ok(if op.explain.is_some() { reply } else { values_of(&reply) })
}

/// A distinct under a collation over several shards: one shard unites the values, since only servers can compare them.
pub(super) async fn distinct_by_group(op: &Op<'_>) -> CommandResult<Reply> {
    let owned = distinct_stages(op)?;
    let array = aggregate::array_of(&owned);
    let stages = pipeline::trusted(array.as_doc());
    let ns = op.namespace()?;
    let aggregation = Aggregation {
        ns: &ns,
        reply_ns: ns.as_str(),
        stages: &stages,
        pipeline: array.as_doc(),
        collation: op.request.body.get_doc("collation").filter(|collation| !collation.is_empty()),
        variables: None,
        batch_size: None,
        allow_disk_use: None,
        options: &[],
    };
    let reply = aggregate::run(op, &aggregation).await?;
    Ok(values_of(&reply))
}

/// A distinct as stages (mongos 5.0): each array on the path is unwound, then one set is made of the values.
fn distinct_stages(op: &Op<'_>) -> CommandResult<Vec<DocBuf>> {
    let body = op.request.body;
    let key = match body.get("key") {
        Some(Value::String(_)) => body.get_str("key").unwrap_or_default(),
        Some(other) => return Err(CommandError::wrong_type("distinct.key", other, "string")),
        None => {
            return Err(CommandError::new(
                ErrorCode(40414),
                "BSON field 'distinct.key' is missing but a required field",
            ));
        }
    };
    let mut stages = Vec::new();
    if let Some(query) = body.get_doc("query").filter(|query| !query.is_empty()) {
        stages.push(stage("$match", query));
    }
    let ends = key.match_indices('.').map(|(at, _)| at).chain(std::iter::once(key.len()));
    for end in ends {
        let prefix = key.get(..end).unwrap_or_default();
        let mut unwind = DocBuf::new();
        unwind.append("path", format!("${prefix}").as_str()).append("preserveNullAndEmptyArrays", true);
        stages.push(stage("$unwind", &unwind));
    }
    if let Some((parent, _)) = key.rsplit_once('.') {
        let mut is_object = DocBuf::new();
        is_object.append_doc(parent, |w: &mut DocWriter<'_>| w.put("$_internalSchemaType", "object"));
        stages.push(stage("$match", &is_object));
    }
    let mut group = DocBuf::new();
    group
        .append("_id", Value::Null)
        .append_doc("distinct", |w| w.put("$addToSet", format!("${key}").as_str()));
    stages.push(stage("$group", &group));
    Ok(stages)
}

fn first_document(reply: &Reply) -> Option<Doc<'_>> {
    reply.body().get_doc("cursor")?.get_array("firstBatch")?.first()?.value().as_doc()
}

fn values_of(reply: &Reply) -> Reply {
    let values = first_document(reply).and_then(|doc| doc.get_array("distinct")).unwrap_or(Doc::empty());
    let mut doc = DocBuf::new();
    doc.append("values", Value::Array(values));
    Reply::ok_with(doc.as_doc())
}
