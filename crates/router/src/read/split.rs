//! Where a pipeline over several shards is cut: what every shard does, how their streams become one, what is left.
//!
//! Pure. The split is mongos 6.0's (seen on its router code): the shard part ends at the first stage that needs the
//! documents of all shards; `$sort`, `$limit`, `$group` and `$sample` leave a half of themselves on the shards.

use document::{Doc, DocBuf, Value};

use super::merge_groups::GroupMerge;
use super::pipeline::Stage;
use super::sugar;
use crate::cursor::Order;

/// A cut pipeline.
#[derive(Debug)]
pub(super) struct Split {
    /// Stages of every shard.
    pub(super) shards: Vec<DocBuf>,
    /// The order of the merged stream: the spec for `$mergeCursors`, and ours.
    pub(super) sort: Option<DocBuf>,
    /// What is done with the merged stream.
    pub(super) merge: Merge,
    /// The shards' documents are partial results (`$group`) or carry sort keys.
    pub(super) needs_merge: bool,
}

/// What is done with the merged stream.
#[derive(Debug)]
pub(super) enum Merge {
    /// The router leaves out `skip` documents and gives `limit`.
    Stream { skip: u64, limit: Option<u64> },
    /// One document a shard, whose numbers are added up: a count.
    Sum {
        /// The field that is added up.
        field: Box<str>,
        /// `_id` of the group as an element, none for `$count`.
        id: Option<Box<[u8]>>,
    },
    /// The router merges the shards' partial groups.
    Groups(Box<GroupMerge>),
    /// A shard runs these stages over the stream.
    Stages(Vec<DocBuf>),
}

impl Split {
    /// The order of the merged stream.
    pub(super) fn order(&self) -> Order {
        self.sort.as_ref().map_or(Order::Any, |sort| Order::by(sort.as_doc()))
    }

    /// A sum of counts as the stage that a merge by stages would be, for explain.
    pub(super) fn explained_sum(&self) -> Vec<DocBuf> {
        let Merge::Sum { field, id } = &self.merge else { return Vec::new() };
        let mut stage = DocBuf::new();
        stage.append_doc("$group", |w| {
            if id.is_some() {
                w.put("_id", "$$ROOT._id");
            } else {
                w.put("_id", Value::Null);
            }
            w.doc(field, |w| w.put("$sum", format!("$$ROOT.{field}").as_str()));
            w.put("$doingMerge", true);
        });
        vec![stage]
    }

    /// Lets the router merge the shards' partial groups, if it knows how and what follows is left to it.
    pub(super) fn merge_groups_here(&mut self) {
        if let Merge::Stages(stages) = &self.merge
            && let Some(merge) = GroupMerge::new(stages)
        {
            self.merge = Merge::Groups(Box::new(merge));
        }
    }

    /// Must the merge run where the database's unsharded collections are?
    pub(super) fn needs_primary(&self, output_is_sharded: bool) -> bool {
        let Merge::Stages(stages) = &self.merge else { return false };
        stages.iter().filter_map(|stage| stage.as_doc().first()).any(|field| match field.name() {
            "$lookup" | "$graphLookup" | "$out" | "$facet" => true,
            "$merge" => !output_is_sharded,
            _ => false,
        })
    }
}

/// Stages that each shard can run on its own documents.
fn is_streaming(name: &str) -> bool {
    matches!(
        name,
        "$match"
            | "$project"
            | "$addFields"
            | "$set"
            | "$unset"
            | "$replaceRoot"
            | "$replaceWith"
            | "$redact"
            | "$unwind"
            | "$indexStats"
            | "$collStats"
            | "$planCacheStats"
            | "$currentOp"
            | "$listSessions"
            | "$_internalUnpackBucket"
            | "$_internalConvertBucketIndexStats"
            | "$_internalAllCollectionStats"
    )
}

/// Accumulators whose partial results another shard merges with the same accumulator on the partial value.
const MERGEABLE: &[&str] = &[
    "$sum",
    "$avg",
    "$min",
    "$max",
    "$first",
    "$last",
    "$push",
    "$addToSet",
    "$mergeObjects",
    "$stdDevPop",
    "$stdDevSamp",
];

/// Cuts a pipeline for several shards. `foreign_is_sharded` tells of a collection of the same database whether every
/// shard may join it by itself (a sharded one: as mongos, the others are joined on the primary shard);
/// `output_is_sharded` of a last `$merge` whether each shard may write its own documents.
pub(super) fn split(
    stages: &[Stage<'_>],
    foreign_is_sharded: impl Fn(&str) -> bool,
    output_is_sharded: bool,
) -> Split {
    let mut shards: Vec<DocBuf> = Vec::new();
    for (index, stage) in stages.iter().enumerate() {
        let rest = stages.get(index + 1..).unwrap_or_default();
        match stage.name {
            name if is_streaming(name) => shards.push(DocBuf::from(stage.doc)),
            "$graphLookup" => shards.push(DocBuf::from(stage.doc)),
            "$lookup" if joins_sharded(stage, &foreign_is_sharded) => shards.push(DocBuf::from(stage.doc)),
            "$merge" if output_is_sharded => shards.push(DocBuf::from(stage.doc)),
            "$sort" => {
                let Some(pattern) = stage.argument_doc() else { break };
                shards.push(DocBuf::from(stage.doc));
                return merged(shards, Some(DocBuf::from(pattern)), None, rest);
            }
            "$sample" => {
                let Some(size) = stage.argument_doc().and_then(|sample| sample.get_i64("size")) else {
                    break;
                };
                shards.push(DocBuf::from(stage.doc));
                let mut sort = DocBuf::new();
                sort.append("$rand", -1);
                let limit = u64::try_from(size).unwrap_or(0);
                return merged(shards, Some(sort), Some(limit), rest);
            }
            "$geoNear" => {
                let distance = stage.argument_doc().and_then(|near| near.get_str("distanceField"));
                let Some(distance) = distance else { break };
                let mut sort = DocBuf::new();
                sort.append(distance, 1);
                shards.push(DocBuf::from(stage.doc));
                return merged(shards, Some(sort), None, rest);
            }
            "$limit" | "$skip" => return merged(shards, None, None, stages.get(index..).unwrap_or_default()),
            "$group" => {
                if let Some(merge) = count_group(stage).filter(|_| rest.is_empty()) {
                    shards.push(DocBuf::from(stage.doc));
                    return Split { shards, sort: None, merge, needs_merge: false };
                }
                let Some(merging) = stage.argument_doc().and_then(merging_group) else { break };
                shards.push(DocBuf::from(stage.doc));
                return with_merging_group(shards, merging, Vec::new(), rest);
            }
            "$count" => {
                let Some(field) = stage.argument.as_str() else { break };
                if rest.is_empty() {
                    shards.push(DocBuf::from(stage.doc));
                    let merge = Merge::Sum { field: field.into(), id: None };
                    return Split { shards, sort: None, merge, needs_merge: false };
                }
                match grouped(shards, stage, rest) {
                    Ok(split) => return split,
                    Err(kept) => shards = kept,
                }
                break;
            }
            "$sortByCount" | "$bucket" => {
                match grouped(shards, stage, rest) {
                    Ok(split) => return split,
                    Err(kept) => shards = kept,
                }
                break;
            }
            _ => break,
        }
    }
    let kept = shards.len();
    let merge: Vec<DocBuf> =
        stages.get(kept..).unwrap_or_default().iter().map(|stage| DocBuf::from(stage.doc)).collect();
    if merge.is_empty() {
        return Split {
            shards,
            sort: None,
            merge: Merge::Stream { skip: 0, limit: None },
            needs_merge: false,
        };
    }
    Split { shards, sort: None, merge: Merge::Stages(merge), needs_merge: true }
}

fn joins_sharded(stage: &Stage<'_>, foreign_is_sharded: &impl Fn(&str) -> bool) -> bool {
    let mut foreign = Vec::new();
    stage.foreign(&mut foreign);
    !foreign.is_empty() && foreign.into_iter().all(foreign_is_sharded)
}

/// What follows once the merged stream's order is known: the shards are told the limit, stages that change each document
/// for itself follow them there, skip and limit are applied once to the merged stream.
fn merged(
    mut shards: Vec<DocBuf>,
    sort: Option<DocBuf>,
    mut limit: Option<u64>,
    mut rest: &[Stage<'_>],
) -> Split {
    let mut skip = 0_u64;
    let mut limit_at = shards.len();
    loop {
        let left;
        if skip == 0 && limit.is_none() {
            limit_at = shards.len();
        }
        (skip, limit, left) = skip_and_limit(skip, limit, rest);
        rest = left;
        let Some((stage, behind)) = rest.split_first() else { break };
        // The sort key travels beside the document, so a stage may change what was sorted by. What drops documents
        // would change what skip and limit count.
        let unbounded = skip == 0 && limit.is_none();
        if !(reshapes(stage) || (unbounded && matches!(stage.name, "$match" | "$redact"))) {
            break;
        }
        shards.push(DocBuf::from(stage.doc));
        rest = behind;
    }
    if let Some(limit) = limit {
        // As early as may be: what follows keeps the number of documents.
        shards.insert(limit_at.min(shards.len()), limit_stage(limit.saturating_add(skip)));
    }
    if rest.is_empty() {
        let needs_merge = sort.is_some();
        return Split { shards, sort, merge: Merge::Stream { skip, limit }, needs_merge };
    }
    let mut merge = Vec::new();
    if skip > 0 {
        merge.push(skip_stage(skip));
    }
    if let Some(limit) = limit {
        merge.push(limit_stage(limit));
    }
    merge.extend(rest.iter().map(|stage| DocBuf::from(stage.doc)));
    Split { shards, sort, merge: Merge::Stages(merge), needs_merge: true }
}

/// One document in, one document out, its order unchanged.
fn reshapes(stage: &Stage<'_>) -> bool {
    matches!(stage.name, "$project" | "$addFields" | "$set" | "$unset" | "$replaceRoot" | "$replaceWith")
}

/// Takes leading `$skip`s and `$limit`s together. Stops where their order would no longer be one skip and one limit.
pub(super) fn skip_and_limit<'s, 'a>(
    mut skip: u64,
    mut limit: Option<u64>,
    stages: &'s [Stage<'a>],
) -> (u64, Option<u64>, &'s [Stage<'a>]) {
    for (index, stage) in stages.iter().enumerate() {
        match (stage.name, stage.argument_count()) {
            ("$skip", Some(n)) => match limit {
                None => skip = skip.saturating_add(n),
                // skip after limit: fewer are left, later ones.
                Some(left) => {
                    skip = skip.saturating_add(n);
                    limit = Some(left.saturating_sub(n));
                }
            },
            ("$limit", Some(n)) if n > 0 => limit = Some(limit.map_or(n, |limit| limit.min(n))),
            _ => return (skip, limit, stages.get(index..).unwrap_or_default()),
        }
    }
    (skip, limit, &[])
}

/// `{$group: {_id: <constant>, n: {$sum: <integer>}}}`: what countDocuments sends.
fn count_group(stage: &Stage<'_>) -> Option<Merge> {
    let group = stage.argument_doc()?;
    let mut fields = group.iter();
    let (id, count, None) = (fields.next()?, fields.next()?, fields.next()) else { return None };
    let constant = matches!(id.value(), Value::Null | Value::Int32(_) | Value::Int64(_) | Value::Double(_));
    if id.name() != "_id" || !constant || count.name().contains('.') {
        return None;
    }
    let accumulator = count.value().as_doc()?;
    let sum = accumulator.first().filter(|first| first.name() == "$sum")?;
    let one = matches!(sum.value(), Value::Int32(_) | Value::Int64(_));
    (one && accumulator.iter().count() == 1)
        .then(|| Merge::Sum { field: count.name().into(), id: Some(id.raw().into()) })
}

/// The `$group` that merges partial groups; `None` when an accumulator's partial form is not known.
fn merging_group(group: Doc<'_>) -> Option<DocBuf> {
    let mut merging = DocBuf::new();
    merging.append("_id", "$$ROOT._id");
    for field in group {
        if field.name() == "_id" {
            continue;
        }
        let accumulator = field.value().as_doc()?;
        let operator = accumulator.first()?;
        if accumulator.iter().count() != 1 {
            return None;
        }
        merge_accumulator(&mut merging, field.name(), operator)?;
    }
    merging.append("$doingMerge", true);
    let mut stage = DocBuf::new();
    stage.append("$group", &merging);
    Some(stage)
}

/// The accumulator that unites partial results of `operator`, which stand in the field `name`.
fn merge_accumulator(merging: &mut DocBuf, name: &str, operator: document::Field<'_>) -> Option<()> {
    let partial = format!("$$ROOT.{name}");
    let partial = partial.as_str();
    let spec = operator.value().as_doc();
    // An expression might need what only whole documents have.
    let constant = |name: &str| spec.and_then(|spec| spec.field(name)).filter(|n| n.value().is_number());
    match operator.name() {
        // `$count` takes no argument; its partial is that of `$sum`.
        "$count" => merging.append_doc(name, |w| w.put("$sum", partial)),
        known if MERGEABLE.contains(&known) => merging.append_doc(name, |w| w.put(known, partial)),
        known @ ("$top" | "$bottom") => {
            let sort = spec?.field("sortBy")?;
            merging.append_doc(name, |w| {
                w.doc(known, |w| {
                    w.elements(sort.raw());
                    w.put("output", partial);
                });
            })
        }
        known @ ("$topN" | "$bottomN") => {
            let (sort, n) = (spec?.field("sortBy")?, constant("n")?);
            merging.append_doc(name, |w| {
                w.doc(known, |w| {
                    w.elements(n.raw());
                    w.elements(sort.raw());
                    w.put("output", partial);
                });
            })
        }
        known @ ("$firstN" | "$lastN" | "$maxN" | "$minN") => {
            let n = constant("n")?;
            merging.append_doc(name, |w| {
                w.doc(known, |w| {
                    w.elements(n.raw());
                    w.put("input", partial);
                });
            })
        }
        known @ "$_internalJsReduce" => {
            let reduce = spec?.field("eval")?;
            merging.append_doc(name, |w| {
                w.doc(known, |w| {
                    w.put("data", partial);
                    w.elements(reduce.raw());
                });
            })
        }
        _ => return None,
    };
    Some(())
}

/// Cuts at a stage that is another way to write a `$group`. Gives the shards' stages back when it is none.
fn grouped(mut shards: Vec<DocBuf>, stage: &Stage<'_>, rest: &[Stage<'_>]) -> Result<Split, Vec<DocBuf>> {
    let Some((group, then)) = sugar::as_group(stage) else { return Err(shards) };
    let spec = group.as_doc().first().and_then(|field| field.value().as_doc());
    let Some(merging) = spec.and_then(merging_group) else { return Err(shards) };
    shards.push(group);
    Ok(with_merging_group(shards, merging, vec![then], rest))
}

fn with_merging_group(shards: Vec<DocBuf>, merging: DocBuf, then: Vec<DocBuf>, rest: &[Stage<'_>]) -> Split {
    let mut merge = vec![merging];
    merge.extend(then);
    merge.extend(rest.iter().map(|stage| DocBuf::from(stage.doc)));
    Split { shards, sort: None, merge: Merge::Stages(merge), needs_merge: true }
}

fn limit_stage(limit: u64) -> DocBuf {
    let mut stage = DocBuf::new();
    if limit == 0 {
        // The server refuses `$limit: 0`; a limit before a skip can leave nothing.
        stage.append_doc("$match", |w| w.put("$alwaysFalse", 1));
    } else {
        stage.append("$limit", i64::try_from(limit).unwrap_or(i64::MAX));
    }
    stage
}

fn skip_stage(skip: u64) -> DocBuf {
    let mut stage = DocBuf::new();
    stage.append("$skip", i64::try_from(skip).unwrap_or(i64::MAX));
    stage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of(pipeline: &bson::RawDocumentBuf) -> (Vec<String>, Option<String>, String) {
        let array = pipeline.get_array("p").unwrap();
        let stages = super::super::pipeline::parse(Doc::new(array.as_bytes()).unwrap()).unwrap();
        let split = split(&stages, |name| name == "sharded", true);
        let names = |stages: &[DocBuf]| -> Vec<String> {
            stages.iter().map(|stage| stage.as_doc().first().unwrap().name().to_owned()).collect()
        };
        let merge = match &split.merge {
            Merge::Stream { skip, limit } => format!("stream {skip} {limit:?}"),
            Merge::Sum { field, .. } => format!("sum {field}"),
            Merge::Stages(stages) => names(stages).join(","),
            Merge::Groups(merge) => format!("here {}", names(&merge.stages).join(",")),
        };
        (names(&split.shards), split.sort.map(|sort| format!("{sort:?}")), merge)
    }

    #[test]
    fn pipelines_are_cut_where_mongos_cuts_them() {
        for (pipeline, shards, merge) in [
            (bson::rawdoc! { "p": [] }, "", "stream 0 None"),
            (
                bson::rawdoc! { "p": [{ "$match": {} }, { "$project": { "a": 1 } }] },
                "$match,$project",
                "stream 0 None",
            ),
            (bson::rawdoc! { "p": [{ "$limit": 5 }] }, "$limit", "stream 0 Some(5)"),
            (bson::rawdoc! { "p": [{ "$skip": 5 }] }, "", "stream 5 None"),
            (bson::rawdoc! { "p": [{ "$skip": 5 }, { "$limit": 3 }] }, "$limit", "stream 5 Some(3)"),
            (bson::rawdoc! { "p": [{ "$limit": 10 }, { "$skip": 4 }] }, "$limit", "stream 4 Some(6)"),
            (bson::rawdoc! { "p": [{ "$sort": { "a": 1 } }] }, "$sort", "stream 0 None"),
            (
                bson::rawdoc! { "p": [{ "$sort": { "a": 1 } }, { "$skip": 1 }, { "$limit": 3 }, { "$project": { "x": 1 } }] },
                "$sort,$limit,$project",
                "stream 1 Some(3)",
            ),
            (bson::rawdoc! { "p": [{ "$group": { "_id": 1, "n": { "$sum": 1 } } }] }, "$group", "sum n"),
            (bson::rawdoc! { "p": [{ "$count": "c" }] }, "$count", "sum c"),
            (bson::rawdoc! { "p": [{ "$group": { "_id": "$a", "n": { "$sum": 1 } } }] }, "$group", "$group"),
            (bson::rawdoc! { "p": [{ "$group": { "_id": "$a", "n": { "$top": {} } } }] }, "", "$group"),
            (
                bson::rawdoc! { "p": [{ "$group": { "_id": "$a", "n": { "$topN": { "n": 2, "sortBy": {}, "output": "$x" } } } }] },
                "$group",
                "$group",
            ),
            (
                bson::rawdoc! { "p": [{ "$group": { "_id": "$a", "n": { "$maxN": { "n": "$q", "input": "$x" } } } }] },
                "",
                "$group",
            ),
            (bson::rawdoc! { "p": [{ "$match": {} }, { "$facet": { "a": [] } }] }, "$match", "$facet"),
            (bson::rawdoc! { "p": [{ "$lookup": { "from": "sharded" } }] }, "$lookup", "stream 0 None"),
            (bson::rawdoc! { "p": [{ "$lookup": { "from": "other" } }] }, "", "$lookup"),
            (bson::rawdoc! { "p": [{ "$sample": { "size": 4 } }] }, "$sample,$limit", "stream 0 Some(4)"),
            (
                bson::rawdoc! { "p": [{ "$sort": { "a": 1 } }, { "$match": {} }, { "$set": { "a": 1 } }, { "$limit": 3 }, { "$unset": "b" }, { "$skip": 1 }] },
                "$sort,$match,$set,$limit,$unset",
                "stream 1 Some(2)",
            ),
            (bson::rawdoc! { "p": [{ "$limit": 3 }, { "$match": {} }] }, "$limit", "$limit,$match"),
            (
                bson::rawdoc! { "p": [{ "$match": {} }, { "$merge": { "into": "x" } }] },
                "$match,$merge",
                "stream 0 None",
            ),
            (
                bson::rawdoc! { "p": [{ "$limit": 3 }, { "$merge": { "into": "x" } }] },
                "$limit",
                "$limit,$merge",
            ),
        ] {
            let (on_shards, _, merged) = split_of(&pipeline);
            assert_eq!((on_shards.join(",").as_str(), merged.as_str()), (shards, merge), "{pipeline:?}");
        }
    }
}
