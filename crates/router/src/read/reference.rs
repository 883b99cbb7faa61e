//! What of aggregation and of the options of queries there is: the rows of `docs/compatibility.md`.
//!
//! The rows of stages are checked against `split`, so that the page says what is done.

/// Where a stage runs when a pipeline concerns several shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// Each shard does it to its own documents.
    OnEachShard,
    /// Each shard does a part of it, the merge does the rest.
    InHalves,
    /// Over the merged stream only.
    AfterTheMerge,
    /// The router answers from what it knows itself.
    OnTheRouter,
    /// Not on this server: as a 6.0 without the feature.
    Refused,
}

impl Runs {
    /// For the page.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::OnEachShard => "each shard",
            Self::InHalves => "each shard a part, the merge the rest",
            Self::AfterTheMerge => "the merge",
            Self::OnTheRouter => "the router",
            Self::Refused => "refused",
        }
    }
}

/// One stage of a pipeline.
#[derive(Debug)]
pub struct StageRow {
    /// Its name.
    pub name: &'static str,
    /// Where it runs.
    pub runs: Runs,
    /// Who merges, and what else is to be known.
    pub note: &'static str,
}

const fn stage(name: &'static str, runs: Runs, note: &'static str) -> StageRow {
    StageRow { name, runs, note }
}

use Runs::{AfterTheMerge, InHalves, OnEachShard, OnTheRouter, Refused};

/// Merged by the router.
const HERE: &str = "merged by the router";
/// Merged on a shard over `$mergeCursors`.
const SHARD: &str = "merged on a shard";

/// All stages that a client may send.
pub const STAGES: &[StageRow] = &[
    stage("$addFields", OnEachShard, ""),
    stage(
        "$bucket",
        InHalves,
        "as `$group` and `$sort`; bounds that are texts or expressions: the merge alone, on a shard",
    ),
    stage("$bucketAuto", AfterTheMerge, SHARD),
    stage("$changeStream", OnEachShard, "events are put in order by the router; must come first"),
    stage("$changeStreamSplitLargeEvent", Refused, "not in 6.0.5"),
    stage("$collStats", OnEachShard, "must come first"),
    stage("$count", InHalves, HERE),
    stage("$currentOp", OnEachShard, "on admin; with `localOps: true` the router's own commands"),
    stage("$densify", AfterTheMerge, SHARD),
    stage("$documents", OnTheRouter, "must come first; what follows is run by a shard"),
    stage("$facet", AfterTheMerge, "merged on the primary shard"),
    stage("$fill", AfterTheMerge, SHARD),
    stage("$geoNear", InHalves, HERE),
    stage("$graphLookup", OnEachShard, "each shard asks for the other collection by itself"),
    stage(
        "$group",
        InHalves,
        "merged by the router for `$sum $avg $min $max $count $first $last $push $addToSet $mergeObjects` with nothing behind it \
         but `$sort $skip $limit`; on a shard for other accumulators or stages, decimals in sums, a collation, `allowDiskUse: true`, \
         a `$sort` before it, or more than `pointsmanGroupMergeMaxBytes`",
    ),
    stage("$indexStats", OnEachShard, "must come first"),
    stage("$limit", InHalves, HERE),
    stage("$listCachedAndActiveUsers", OnTheRouter, "none while nobody logs in"),
    stage("$listLocalSessions", OnTheRouter, "the sessions that this router knows"),
    stage("$listSessions", OnEachShard, "on config.system.sessions"),
    stage("$lookup", OnEachShard, "of a sharded collection; of another one: the merge, on the primary shard"),
    stage("$match", OnEachShard, "one that may come first decides which shards are asked"),
    stage(
        "$merge",
        OnEachShard,
        "into a sharded collection, without a stage that merges before; else by the merge, on a shard",
    ),
    stage("$operationMetrics", Refused, "Atlas only"),
    stage("$out", AfterTheMerge, "on the primary shard"),
    stage("$planCacheStats", OnEachShard, "must come first"),
    stage("$project", OnEachShard, ""),
    stage("$redact", OnEachShard, ""),
    stage("$replaceRoot", OnEachShard, ""),
    stage("$replaceWith", OnEachShard, ""),
    stage("$sample", InHalves, HERE),
    stage("$search", Refused, "Atlas only"),
    stage("$searchMeta", Refused, "Atlas only"),
    stage("$set", OnEachShard, ""),
    stage("$setWindowFields", AfterTheMerge, SHARD),
    stage("$shardedDataDistribution", OnEachShard, "on admin; merged on a shard"),
    stage("$skip", AfterTheMerge, HERE),
    stage("$sort", InHalves, HERE),
    stage("$sortByCount", InHalves, HERE),
    stage("$unionWith", AfterTheMerge, SHARD),
    stage("$unset", OnEachShard, ""),
    stage("$unwind", OnEachShard, ""),
];

/// Does the server (6.0.5, outside of Atlas) know a stage of this name? Internal ones are not asked about.
pub(super) fn is_known(name: &str) -> bool {
    STAGES.iter().any(|row| row.name == name && row.runs != Refused)
}

/// An option of a query.
#[derive(Debug)]
pub struct OptionRow {
    /// The commands that know it.
    pub commands: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What becomes of it.
    pub does: &'static str,
}

const fn option(commands: &'static str, name: &'static str, does: &'static str) -> OptionRow {
    OptionRow { commands, name, does }
}

const SHARDS_DO: &str = "done by the shards";
const QUERIES: &str = "find, aggregate, count, distinct";

/// The options of queries.
pub const OPTIONS: &[OptionRow] = &[
    option("find, count, distinct", "filter, query", "decides which shards are asked"),
    option("find", "sort", "merged by the router in the server's order of all types"),
    option("find", "projection", "done by the shards, `$meta` too"),
    option("find, count", "skip, limit", "the shards are told their sum, the router applies both once"),
    option("find, aggregate, getMore", "batchSize", "first 101 without it; a batch has 16 MiB at most"),
    option("find", "singleBatch", "works"),
    option("find, aggregate, count, distinct", "hint", SHARDS_DO),
    option("find", "min, max", SHARDS_DO),
    option("find", "returnKey, showRecordId", SHARDS_DO),
    option(
        "find",
        "noCursorTimeout",
        "the cursor is not killed for idleness (`cursorTimeoutMillis`), but when its client is gone",
    ),
    option(
        "find",
        "allowPartialResults",
        "answers without shards that cannot be reached: `partialResultsReturned`",
    ),
    option("find", "tailable, awaitData", "on one shard, as on mongos"),
    option("find", "oplogReplay", "taken, without effect, as by 6.0"),
    option(
        "find, aggregate",
        "allowDiskUse",
        "done by the shards; groups are merged on a shard when it is true",
    ),
    option("aggregate", "bypassDocumentValidation", SHARDS_DO),
    option("aggregate", "exchange, fromMongos, needsMerge, runtimeConstants", "refused, as by mongos"),
    option("aggregate, explain", "explain", "all three verbosities, in the shapes of mongos"),
    option("find, aggregate", "let", "works; `$$NOW` and `$$CLUSTER_TIME` are one on all shards"),
    option(
        QUERIES,
        "collation",
        "done by the shards; distinct values of several shards by a `$group` that a shard merges",
    ),
    option("all", "comment", "goes to the shards, inherited by getMore"),
    option(
        "all",
        "maxTimeMS",
        "a budget for all shards and all getMores together; of a waiting getMore how long it waits",
    ),
    option(
        QUERIES,
        "readConcern",
        "local, available, majority, linearizable (one shard), snapshot with `atClusterTime`",
    ),
    option(QUERIES, "$readPreference mode, tags, maxStalenessSeconds", "works"),
    option(
        QUERIES,
        "$readPreference hedge",
        "a second request to one more member, the first answer wins, not for aggregate (as mongos); `nearest` is hedged unless it says not (`readHedgingMode`, `maxTimeMSForHedgedReads`)",
    ),
    option(
        "getMore, killCursors",
        "cursor id",
        "found by its id alone, bound to its session and transaction",
    ),
    option(
        "currentOp, killOp",
        "op",
        "`<shard>:<number>` on a shard, a number of `$currentOp {localOps: true}` here",
    ),
];

/// Where an answer is not that of mongos 6.0.5, and why: what a sweep of some thousand commands against the server's own
/// routing code left over. Differences of text alone that no program reads are not listed.
pub const DIFFERENCES: &[(&str, &str)] = &[
    (
        "`find` with `term`",
        "refused (9): mongos passes it on, and a shard that hears of a higher term steps down or dies",
    ),
    (
        "stages that routers and shards send each other (`$_internal...`, `$mergeCursors`, `$queue`, ...)",
        "refused at any depth (5491300): 6.0.5 runs most of them for anybody",
    ),
    ("`$operationMetrics`", "unknown (40324): 6.0.5 says that it is switched off (115)"),
    (
        "`cursor.ns` of a query on a view that one shard answers in one batch",
        "the view's name, as in every other answer: mongos gives the collection's under it",
    ),
    (
        "`$collStats`, `$planCacheStats` on a sharded time series",
        "answered from its buckets: mongos fails (166, 40602)",
    ),
    (
        "`find` on a view with `skip` and `limit` beyond int64 together",
        "answered: mongos fails (15958) after an overflow",
    ),
    ("`explain` of a `find` with `let`", "works: mongos 6.0.5 forgets the variables (17276)"),
    (
        "`{aggregate: 1}` and databases that do not exist",
        "what is wrong with a stage's argument is found by shards, and none is asked: the error is that of the source, or there \
         is none",
    ),
    (
        "`explain` of a pipeline over several shards",
        "`splitPipeline` shows stages as the client wrote them, not rewritten ones, and no projection that mongos would add; \
         `mergeType` says who really merges: a shard also where mongos would",
    ),
    (
        "`$limit` and `$skip` in `splitPipeline.mergerPart`",
        "`$skip` comes first: mongos swaps them and adds them up; the result is the same",
    ),
];

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};
    use document::Doc;

    use super::*;
    use crate::read::pipeline;
    use crate::read::split::{Merge, split};

    /// One valid pipeline a stage.
    fn sample(name: &str) -> bson::RawDocumentBuf {
        let spec: Bson = match name {
            "$count" | "$unset" => "field".into(),
            "$sortByCount" | "$unwind" => "$field".into(),
            "$limit" | "$skip" => 5.into(),
            "$lookup" | "$graphLookup" => doc! { "from": "sharded", "as": "a" }.into(),
            "$group" => doc! { "_id": "$a", "n": { "$sum": "$b" } }.into(),
            "$bucket" => doc! { "groupBy": "$a", "boundaries": [0, 5] }.into(),
            "$sort" => doc! { "a": 1 }.into(),
            "$sample" => doc! { "size": 3 }.into(),
            "$geoNear" => doc! { "near": [0, 0], "distanceField": "d" }.into(),
            "$unionWith" | "$out" => "other".into(),
            "$merge" => doc! { "into": "other" }.into(),
            "$facet" => doc! { "x": [] }.into(),
            "$collStats" | "$listSessions" => doc! {}.into(),
            _ => doc! { "x": 1 }.into(),
        };
        bson::RawDocumentBuf::try_from(&doc! { "p": [{ name: spec }] }).unwrap()
    }

    #[test]
    fn the_rows_say_what_is_done() {
        // Those that are not split: another file has them.
        let elsewhere = ["$changeStream", "$shardedDataDistribution"];
        let rows = STAGES
            .iter()
            .filter(|row| !matches!(row.runs, OnTheRouter | Refused) && !elsewhere.contains(&row.name));
        for row in rows {
            let pipeline = sample(row.name);
            let array = pipeline.get_array("p").unwrap();
            let stages = pipeline::parse(Doc::new(array.as_bytes()).unwrap()).unwrap();
            let mut split = split(&stages, |name| name == "sharded", true);
            split.merge_groups_here();
            let here = !matches!(split.merge, Merge::Stages(_));
            let merges = match &split.merge {
                Merge::Stream { skip, limit } => *skip > 0 || limit.is_some() || split.sort.is_some(),
                _ => true,
            };
            let runs = match (split.shards.is_empty(), merges) {
                (false, false) => OnEachShard,
                (false, true) => InHalves,
                (true, _) => AfterTheMerge,
            };
            assert_eq!(runs, row.runs, "{}", row.name);
            if row.note == HERE {
                assert!(here, "{}", row.name);
            }
            if row.note == SHARD {
                assert!(!here, "{}", row.name);
            }
            assert_eq!(
                split.needs_primary(false),
                row.note.contains("merged on the primary shard") || row.name == "$out",
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn the_rows_are_in_order() {
        assert!(STAGES.is_sorted_by_key(|row| row.name.to_lowercase()));
    }
}
