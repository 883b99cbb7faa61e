//! Explaining an aggregation: how it is cut, and what each shard makes of its part.

use bytes::BytesMut;
use document::{Doc, DocBuf, splice};
use futures_util::future::join_all;

use super::super::aggregate::{Aggregation, How, Part, Plan, array_of, put_aggregate, sharded_foreign};
use super::super::split::{Merge, Split};
use super::about;
use crate::command::Op;
use crate::error::CommandResult;
use crate::remote::routing::Destination;
use crate::remote::{Retry, ShardReply, ShardRequest};
use crate::reply::Reply;

/// Explains what was planned.
pub(in crate::read) async fn explain(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
) -> CommandResult<Reply> {
    let whole = plan.pipeline.as_ref().map_or(aggregation.pipeline, DocBuf::as_doc);
    let (pipeline, part, split) = match &plan.how {
        How::Passthrough => (DocBuf::from(whole), Part::Passthrough, None),
        How::Whole => (DocBuf::from(whole), Part::Whole, None),
        How::Cut(split) => {
            let part = if split.needs_merge { Part::Partial } else { Part::Plain };
            (array_of(&split.shards), part, Some(split))
        }
    };
    let template = request(op, aggregation, plan, pipeline.as_doc(), part).template_on(aggregation.ns.db());
    let preference = op.read_preference()?;
    let asked = plan.destinations.iter().map(|destination| {
        let (template, preference) = (&template, &preference);
        async move {
            let mut request = template.finish(|out| destination.versions.write(out))?;
            op.router
                .ask_shard(&destination.shard, &mut request, preference, Retry::Idempotent, op.deadline)
                .await
        }
    });
    let answers: Vec<ShardReply> = join_all(asked).await.into_iter().collect::<CommandResult<_>>()?;
    let by_shard = !passes_through(op, aggregation, plan).await?;
    Ok(Reply::build(|out| {
        about::put_server(out, op);
        match answers.first() {
            Some(answer) if !by_shard => put_passthrough(out, answer.reply.body()),
            _ => {
                put_split(out, aggregation, plan, split);
                put_shards(out, &plan.destinations, &answers);
            }
        }
        about::put_command(out, op, !by_shard);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Is it one shard's explain as it is? mongos shows the one shard as such where it had to look at other namespaces.
async fn passes_through(op: &Op<'_>, aggregation: &Aggregation<'_>, plan: &Plan) -> CommandResult<bool> {
    if !matches!(plan.how, How::Passthrough) || aggregation.stages.iter().any(|stage| stage.name == "$out") {
        return Ok(false);
    }
    Ok(sharded_foreign(op, aggregation).await?.is_empty())
}

/// The explain of one shard's part. It carries no write concern: a shard refuses that here (seen on 6.0.5).
fn request<'a>(
    op: &'a Op<'a>,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
    pipeline: Doc<'_>,
    part: Part,
) -> ShardRequest<'a> {
    let mut request = ShardRequest::new(op, pipeline.as_bytes().len() + aggregation.options.len() + 128);
    let out = request.out();
    let inner = splice::open_doc(out, "explain");
    put_aggregate(op, out, aggregation, plan, pipeline, None, part);
    inner.finish(out);
    splice::put_str(out, "verbosity", op.explain.unwrap_or("queryPlanner"));
    request
}

/// One shard's own explain, without what is said about the router instead.
fn put_passthrough(out: &mut BytesMut, body: Doc<'_>) {
    splice::copy_fields(body, out, |name| {
        let elsewhere = matches!(name, b"serverInfo" | b"serverParameters" | b"command" | b"ok");
        if elsewhere || crate::reply::is_internal(name) { splice::Keep::No } else { splice::Keep::Yes }
    });
}

fn put_split(out: &mut BytesMut, aggregation: &Aggregation<'_>, plan: &Plan, split: Option<&Split>) {
    let Some(split) = split else {
        splice::put_element(out, 0x0a, "splitPipeline", &[]);
        return;
    };
    let (merge_type, merge) = match &split.merge {
        Merge::Stream { skip, limit } => ("mongos", stream_stages(*skip, *limit)),
        Merge::Sum { .. } => ("mongos", split.explained_sum()),
        Merge::Groups(merge) => ("mongos", merge.stages.clone()),
        Merge::Stages(stages) if plan.merger.is_some() => ("primaryShard", stages.clone()),
        Merge::Stages(stages) => ("anyShard", stages.clone()),
    };
    splice::put_str(out, "mergeType", merge_type);
    let parts = splice::open_doc(out, "splitPipeline");
    splice::put_array(out, "shardsPart", array_of(&split.shards).as_doc());
    let mut merger = vec![merge_cursors(aggregation, split)];
    merger.extend(merge);
    splice::put_array(out, "mergerPart", array_of(&merger).as_doc());
    parts.finish(out);
}

fn stream_stages(skip: u64, limit: Option<u64>) -> Vec<DocBuf> {
    let mut stages = Vec::new();
    let mut push = |name: &str, n: u64| {
        let mut stage = DocBuf::new();
        stage.append(name, i64::try_from(n).unwrap_or(i64::MAX));
        stages.push(stage);
    };
    if skip > 0 {
        push("$skip", skip);
    }
    if let Some(limit) = limit {
        push("$limit", limit);
    }
    stages
}

fn merge_cursors(aggregation: &Aggregation<'_>, split: &Split) -> DocBuf {
    let mut stage = DocBuf::new();
    stage.append_doc("$mergeCursors", |w| {
        if let Some(sort) = &split.sort {
            w.put("sort", sort);
        }
        w.put("compareWholeSortKey", false);
        w.put("tailableMode", "normal");
        w.put("nss", aggregation.ns.as_str());
        w.put("allowPartialResults", false);
        w.put("recordRemoteOpWaitTime", false);
    });
    stage
}

/// `shards: {<id>: {host, stages | queryPlanner, executionStats}}`
fn put_shards(out: &mut BytesMut, destinations: &[Destination], answers: &[ShardReply]) {
    let shards = splice::open_doc(out, "shards");
    for (destination, answer) in destinations.iter().zip(answers) {
        let shard = splice::open_doc(out, destination.shard.as_str());
        splice::put_str(out, "host", answer.server.address().as_str());
        let body = answer.reply.body();
        for name in ["stages", "queryPlanner", "executionStats"] {
            if let Some(field) = body.field(name) {
                out.extend_from_slice(field.raw());
            }
        }
        shard.finish(out);
    }
    shards.finish(out);
}
