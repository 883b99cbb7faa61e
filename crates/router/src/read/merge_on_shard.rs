//! Merges that a shard makes: it reads the others' cursors by `$mergeCursors` and runs what is left of the pipeline.
//!
//! Only over internal connections and never on a config server: 6.0.5 dies of it otherwise. The cursors must have been
//! opened with an empty first batch and under the session of this command (seen on 6.0.5).

use document::{DocBuf, DocWriter, splice};

use super::aggregate::{
    Aggregation, Part, Plan, any_of, array_of, effective_collation, put_cursor, put_target, put_variables,
};
use super::find_spec::DEFAULT_FIRST_BATCH;
use super::open::{self, Opened};
use super::split::Split;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{CursorKind, ShardCursor};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::Destinations;
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Hands the opened cursors to one shard, which answers for all.
pub(super) async fn run(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
    opened: Opened,
    split: &Split,
    stages: &[DocBuf],
) -> CommandResult<Reply> {
    let mut opened = opened;
    let reply = merge(op, aggregation, plan, &opened, split, stages).await?;
    // The cursors belong to the merging shard now.
    opened.streams.iter_mut().for_each(crate::cursor::ShardCursor::release);
    Ok(reply.at(opened.operation_time))
}

async fn merge(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    plan: &Plan,
    opened: &Opened,
    split: &Split,
    stages: &[DocBuf],
) -> CommandResult<Reply> {
    let shard = match &plan.merger {
        Some(merger) => merger.clone(),
        None => {
            let any = any_of(&plan.destinations)
                .ok_or_else(|| CommandError::new(ErrorCode::InternalError, "no shard to merge on"))?;
            any.shard.clone()
        }
    };
    let mut pipeline = vec![merge_cursors(op, aggregation, &plan.destinations, &opened.streams, split)];
    pipeline.extend(stages.iter().cloned());
    let pipeline = array_of(&pipeline);
    let mut request = ShardRequest::new(op, pipeline.as_bytes().len() + 256);
    let out = request.out();
    put_target(out, aggregation.ns);
    splice::put_array(out, "pipeline", pipeline.as_doc());
    put_cursor(out, aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH));
    if let Some(allow) = aggregation.allow_disk_use {
        splice::put_bool(out, "allowDiskUse", allow);
    }
    put_variables(op, out, aggregation.variables, Part::Partial);
    if let Some(collation) = effective_collation(aggregation, plan, Part::Partial) {
        splice::put_doc(out, "collation", collation.as_doc());
    }
    splice::put_bool(out, "fromMongos", true);
    let request = request.read_concern(&[]);
    let request = if plan.writes { request.write_concern() } else { request.no_write_concern() };
    let ignored = chunk_map::ChunkVersion::IGNORED.to_document();
    let unversioned = super::collectionless::unversioned(&plan.destinations);
    let mut request = request.finish_on(aggregation.ns.db(), |out| {
        if !unversioned {
            splice::put_element(out, 0x03, "shardVersion", &ignored);
        }
    })?;
    let set = op.router.shard_set(&shard).await?;
    let preference = topology::ReadPreference::PRIMARY;
    // Never asked twice: the first attempt took the cursors.
    let answer = op.ask_set(&shard, &set, &mut request, &preference, Retry::Never).await?;
    Ok(open::pass_through_as(op, &shard, set, answer, aggregation.ns, aggregation.reply_ns, || {
        open::owner(op, aggregation.reply_ns, CursorKind::Normal, false)
    }))
}

/// `{$mergeCursors: {...}}` over the opened cursors.
fn merge_cursors(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    destinations: &Destinations,
    streams: &[ShardCursor],
    split: &Split,
) -> DocBuf {
    let mut stage = DocBuf::new();
    stage.append_doc("$mergeCursors", |w| {
        if let Some(sort) = &split.sort {
            w.put("sort", sort);
        }
        w.put("compareWholeSortKey", false);
        w.array("remotes", streams.iter().zip(destinations), |w, index, (stream, destination)| {
            w.doc(index, |w| remote(w, stream, destination.shard.as_str()));
        });
        w.put("tailableMode", "normal");
        w.put("nss", aggregation.ns.as_str());
        w.put("allowPartialResults", false);
        w.put("recordRemoteOpWaitTime", false);
        // The merging shard sends its getMores under these.
        if let Some(statement) = &op.transaction {
            if let Some(session) = op.session() {
                w.put("lsid", &session.to_doc());
            }
            w.put("txnNumber", statement.number());
            w.put("autocommit", false);
        }
    });
    stage
}

fn remote(w: &mut DocWriter<'_>, stream: &ShardCursor, shard: &str) {
    w.put("shardId", shard);
    w.put("hostAndPort", stream.server().address().as_str());
    w.doc("cursorResponse", |w| {
        w.doc("cursor", |w| {
            w.put("id", stream.id());
            let (db, collection) = stream.namespace();
            w.put("ns", format!("{db}.{collection}").as_str());
            w.array("firstBatch", std::iter::empty::<i32>(), |w, index, item| w.put(index, item));
        });
        w.put("ok", 1.0);
    });
}
