//! Merges of partial groups that the router makes: what they look like, and how the shards' streams become groups.

use document::{Doc, DocBuf, Value};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::aggregate::Aggregation;
use super::find_spec::DEFAULT_FIRST_BATCH;
use super::merge_here::{FirstBatch, first_batch};
use super::open::Opened;
use super::pipeline::Stage;
use super::split::skip_and_limit;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::group::{Accumulator, GroupSpec, Grouped, Groups, Refusal};
use crate::cursor::{CursorKind, GetMoreOptions, RouterCursor, ShardCursor};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// From so many groups on, sorting them does not hold up the runtime's other work.
const MANY_GROUPS: usize = 20_000;

/// A merge of groups, and what a shard would run instead.
#[derive(Debug, Clone)]
pub(super) struct GroupMerge {
    pub(super) spec: GroupSpec,
    pub(super) stages: Vec<DocBuf>,
}

impl GroupMerge {
    /// From the stages of a merge: a merging `$group`, then at most one `$sort`, skips and limits, and `{$project:
    /// {_id: 0}}`. `None` when there is more, or an accumulator that is left to shards.
    pub(super) fn new(stages: &[DocBuf]) -> Option<Self> {
        let parsed: Vec<Stage<'_>> = stages
            .iter()
            .filter_map(|stage| stage.as_doc().first().map(|field| (stage.as_doc(), field)))
            .map(|(doc, field)| Stage { doc, name: field.name(), argument: field.value() })
            .collect();
        let (group, mut rest) = parsed.split_first()?;
        let group =
            group.argument_doc().filter(|spec| group.name == "$group" && spec.contains("$doingMerge"))?;
        let mut spec = GroupSpec { accumulators: accumulators(group)?, ..GroupSpec::default() };
        if let Some((sort, behind)) = rest.split_first()
            && sort.name == "$sort"
        {
            spec.sort = sort_of(sort.argument_doc()?, &spec)?;
            rest = behind;
        }
        (spec.skip, spec.limit, rest) = skip_and_limit(0, None, rest);
        if let [project] = rest
            && is_without_id(project)
        {
            spec.without_id = true;
            rest = &[];
        }
        rest.is_empty().then(|| Self { spec, stages: stages.to_vec() })
    }
}

fn accumulators(group: Doc<'_>) -> Option<Vec<(Box<str>, Accumulator)>> {
    let mut found = Vec::new();
    for field in group {
        if matches!(field.name(), "_id" | "$doingMerge") {
            continue;
        }
        let operator = field.value().as_doc()?.first()?;
        found.push((field.name().into(), Accumulator::new(operator.name())?));
    }
    Some(found)
}

/// The parts of a sort by what has one value in each group.
fn sort_of(pattern: Doc<'_>, spec: &GroupSpec) -> Option<Vec<(Box<str>, bool)>> {
    let mut sort: Vec<(Box<str>, bool)> = Vec::new();
    for part in pattern {
        let descending = match part.value().as_i64()? {
            1 => false,
            -1 => true,
            _ => return None,
        };
        let head = part.name().split('.').next()?;
        let is_known = head == "_id"
            || spec.accumulators.iter().any(|(name, accumulator)| &**name == head && accumulator.is_scalar());
        if !is_known {
            return None;
        }
        sort.push((part.name().into(), descending));
    }
    // Twice the same path, or none: a shard says what is wrong.
    let paths: std::collections::HashSet<&str> = sort.iter().map(|(path, _)| &**path).collect();
    (!sort.is_empty() && paths.len() == sort.len()).then_some(sort)
}

fn is_without_id(stage: &Stage<'_>) -> bool {
    stage.name == "$project"
        && stage.argument_doc().is_some_and(|spec| {
            let mut fields = spec.iter();
            let first = fields.next();
            fields.next().is_none()
                && first.is_some_and(|field| {
                    field.name() == "_id" && matches!(field.value(), Value::Int32(0) | Value::Bool(false))
                })
        })
}

/// Merges what the shards send and gives the first batch. A refusal means that a shard is to merge: nothing was given yet,
/// and the shards' cursors are closed.
pub(super) async fn run(
    op: &Op<'_>,
    aggregation: &Aggregation<'_>,
    opened: Opened,
    spec: &GroupSpec,
) -> CommandResult<Result<Reply, Refusal>> {
    let mut groups = Groups::new(spec, &op.router.group_budget());
    if let Err(refusal) = collect(op, opened.streams, &mut groups).await? {
        return Ok(Err(refusal));
    }
    let grouped = if groups.len() > MANY_GROUPS && !spec.sort.is_empty() {
        let spec = spec.clone();
        let sorted = tokio::task::spawn_blocking(move || Grouped::new(groups, &spec)).await;
        sorted.map_err(|_| CommandError::new(ErrorCode::InternalError, "sorting the groups failed"))?
    } else {
        Grouped::new(groups, spec)
    };
    let grouped = match grouped {
        Ok(grouped) => grouped,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let size = aggregation.batch_size.unwrap_or(DEFAULT_FIRST_BATCH);
    let first = FirstBatch { size, single: false, kind: CursorKind::Normal, no_timeout: false };
    let cursor = RouterCursor::of_groups(grouped);
    let reply = first_batch(op, cursor, first, aggregation.reply_ns, opened.at).await?;
    Ok(Ok(reply.at(opened.operation_time)))
}

/// Takes the batches of all shards as they come, until all are exhausted.
async fn collect(
    op: &Op<'_>,
    streams: Vec<ShardCursor>,
    groups: &mut Groups,
) -> CommandResult<Result<(), Refusal>> {
    let options =
        GetMoreOptions { deadline: op.deadline, api: op.request.generic.api, ..GetMoreOptions::default() };
    let mut fetches = FuturesUnordered::new();
    let mut at_hand = streams;
    loop {
        for mut stream in at_hand.drain(..) {
            while let Some(partial) = stream.batch().peek() {
                if let Err(refusal) = groups.add(partial) {
                    return Ok(Err(refusal));
                }
                stream.advance();
            }
            if !stream.is_exhausted() {
                let batch_size = i64::try_from(stream.modest_batch()).ok();
                fetches.push(async move {
                    let fetched =
                        stream.fetch(op.router.servers(), GetMoreOptions { batch_size, ..options }).await;
                    fetched.map(|()| stream)
                });
            }
        }
        match fetches.next().await {
            None => return Ok(Ok(())),
            Some(fetched) => at_hand.push(fetched?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(pipeline: &bson::RawDocumentBuf) -> Option<GroupMerge> {
        let array = pipeline.get_array("p").unwrap();
        let stages: Vec<DocBuf> = Doc::new(array.as_bytes())
            .unwrap()
            .iter()
            .filter_map(|stage| stage.value().as_doc().map(DocBuf::from))
            .collect();
        GroupMerge::new(&stages)
    }

    #[test]
    fn common_groups_and_what_orders_them_are_merged_here() {
        let group = bson::rawdoc! { "$group": {
            "_id": "$$ROOT._id", "n": { "$sum": "$$ROOT.n" }, "all": { "$push": "$$ROOT.all" }, "$doingMerge": true,
        } };
        let odd = bson::rawdoc! { "$group": { "_id": "$$ROOT._id", "d": { "$stdDevPop": "$$ROOT.d" }, "$doingMerge": true } };
        let g = || group.clone();
        for (pipeline, here) in [
            (bson::rawdoc! { "p": [g()] }, true),
            (
                bson::rawdoc! { "p": [g(), { "$sort": { "n": -1, "_id.a": 1 } }, { "$skip": 2 }, { "$limit": 5 }] },
                true,
            ),
            (bson::rawdoc! { "p": [g(), { "$project": { "_id": 0 } }] }, true),
            (bson::rawdoc! { "p": [g(), { "$project": { "_id": 1 } }] }, false),
            (bson::rawdoc! { "p": [g(), { "$sort": { "all": 1 } }] }, false),
            (bson::rawdoc! { "p": [g(), { "$sort": { "other": 1 } }] }, false),
            (bson::rawdoc! { "p": [g(), { "$sort": { "n": { "$meta": "textScore" } } }] }, false),
            (bson::rawdoc! { "p": [g(), { "$limit": 5 }, { "$sort": { "n": 1 } }] }, false),
            (bson::rawdoc! { "p": [g(), { "$match": { "n": 1 } }] }, false),
            (bson::rawdoc! { "p": [odd] }, false),
            (bson::rawdoc! { "p": [{ "$group": { "_id": "$a" } }] }, false),
        ] {
            assert_eq!(merge(&pipeline).is_some(), here, "{pipeline:?}");
        }
        let paged = bson::rawdoc! { "p": [g(), { "$sort": { "n": -1 } }, { "$limit": 9 }, { "$skip": 2 }] };
        let spec = merge(&paged).unwrap().spec;
        assert_eq!((spec.skip, spec.limit), (2, Some(7)));
        assert_eq!(spec.sort, [("n".into(), true)]);
    }
}
