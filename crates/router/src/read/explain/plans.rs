//! The plans of several shards as one: `SINGLE_SHARD`, `SHARD_MERGE`, `SHARD_MERGE_SORT`, `SHARD_WRITE`.

use bytes::BytesMut;
use document::{Doc, Value, splice};

use super::about;
use crate::command::Op;
use crate::ddl::scatter::Answer;
use crate::reply::Reply;

/// The counters that are added up over the shards.
const TOTALS: &[&str] = &["nReturned", "executionTimeMillis", "totalKeysExamined", "totalDocsExamined"];

/// Most bytes of the shards' plans; what would go beyond is left out with a warning (the server's limit of a document).
const MAX_PLANS_BYTES: usize = wire::MAX_DOCUMENT_BYTES - 64 * 1024;

/// The whole reply but for the command.
pub(super) fn reply(op: &Op<'_>, stage: &str, answers: &[Answer], elapsed_ms: i64) -> Reply {
    let bodies: Vec<(&Answer, Doc<'_>)> =
        answers.iter().filter_map(|answer| answer.body().map(|body| (answer, body))).collect();
    Reply::build(|out| {
        let planner = splice::open_doc(out, "queryPlanner");
        splice::put_i32(out, "mongosPlannerVersion", 1);
        let plan = splice::open_doc(out, "winningPlan");
        splice::put_str(out, "stage", stage);
        let shards = splice::open_array(out, "shards");
        for (index, (answer, body)) in bodies.iter().enumerate() {
            put_shard_plan(out, index, answer, *body);
        }
        shards.finish(out);
        plan.finish(out);
        planner.finish(out);
        let stats: Vec<(&Answer, Doc<'_>)> = bodies
            .iter()
            .filter_map(|(answer, body)| Some((*answer, body.get_doc("executionStats")?)))
            .collect();
        if !stats.is_empty() {
            put_statistics(out, stage, &stats, elapsed_ms);
        }
        about::put_server(out, op);
        splice::put_f64(out, "ok", 1.0);
    })
}

fn put_shard_plan(out: &mut BytesMut, index: usize, answer: &Answer, body: Doc<'_>) {
    let shard = splice::open_doc(out, &index.to_string());
    splice::put_str(out, "shardName", answer.shard.as_str());
    splice::put_str(out, "connectionString", &answer.host);
    if let Some(info) = body.get_doc("serverInfo") {
        splice::put_doc(out, "serverInfo", info);
    }
    if let Some(planner) = body.get_doc("queryPlanner") {
        put_bounded(out, planner.elements());
    }
    shard.finish(out);
}

/// Copies elements unless the reply would grow too large.
fn put_bounded(out: &mut BytesMut, elements: &[u8]) {
    if out.len() + elements.len() > MAX_PLANS_BYTES {
        splice::put_str(out, "warning", "output truncated due to nearing BSON max user size");
    } else {
        out.extend_from_slice(elements);
    }
}

fn put_statistics(out: &mut BytesMut, stage: &str, stats: &[(&Answer, Doc<'_>)], elapsed_ms: i64) {
    let total = |name: &str| -> i64 {
        stats.iter().map(|(_, doc)| doc.get(name).and_then(Value::as_i64).unwrap_or(0)).sum()
    };
    let put_totals = |out: &mut BytesMut| {
        for name in TOTALS {
            let sum = if *name == "executionTimeMillis" { elapsed_ms } else { total(name) };
            put_number(out, name, sum);
        }
    };
    let statistics = splice::open_doc(out, "executionStats");
    put_totals(out);
    let stages = splice::open_doc(out, "executionStages");
    splice::put_str(out, "stage", stage);
    put_totals(out);
    splice::put_i64(out, "totalChildMillis", total("executionTimeMillis"));
    let shards = splice::open_array(out, "shards");
    for (index, (answer, doc)) in stats.iter().enumerate() {
        let shard = splice::open_doc(out, &index.to_string());
        splice::put_str(out, "shardName", answer.shard.as_str());
        put_bounded(out, doc.elements());
        shard.finish(out);
    }
    shards.finish(out);
    stages.finish(out);
    if stats.iter().any(|(_, doc)| doc.contains("allPlansExecution")) {
        let all = splice::open_array(out, "allPlansExecution");
        for (index, (answer, doc)) in stats.iter().enumerate() {
            let shard = splice::open_doc(out, &index.to_string());
            splice::put_str(out, "shardName", answer.shard.as_str());
            splice::put_array(out, "allPlans", doc.get_array("allPlansExecution").unwrap_or(Doc::empty()));
            shard.finish(out);
        }
        all.finish(out);
    }
    statistics.finish(out);
}

fn put_number(out: &mut BytesMut, name: &str, number: i64) {
    match i32::try_from(number) {
        Ok(small) => splice::put_i32(out, name, small),
        Err(_) => splice::put_i64(out, name, number),
    }
}
