//! dbStats, collStats, dataSize: sums over shards; splitVector and compact, which work on one.

use std::collections::BTreeMap;

use bytes::BytesMut;
use document::{Doc, Value, splice};

use super::arguments;
use super::indexes::buckets_or_itself;
use super::primary::{Attach, PrimaryCall};
use super::scatter::{Answer, all_or_error, ask_every_shard, ask_owners, put_clean, raw_reply};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::Route;
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// A sum of numbers of any type: integral as long as all of them are.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    whole: i64,
    fraction: Option<f64>,
}

impl Sum {
    fn add(&mut self, value: Value<'_>) {
        match (value, value.as_i64()) {
            (_, Some(n)) => self.whole = self.whole.saturating_add(n),
            (Value::Double(n), None) => *self.fraction.get_or_insert(0.0) += n,
            _ => {}
        }
    }

    fn as_f64(self) -> f64 {
        float(self.whole) + self.fraction.unwrap_or(0.0)
    }

    fn put(self, out: &mut BytesMut, name: &str) {
        match self.fraction {
            Some(_) => splice::put_f64(out, name, self.as_f64()),
            None => splice::put_i64(out, name, self.whole),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // sizes for people
const fn float(n: i64) -> f64 {
    n as f64
}

fn sum<'a>(bodies: impl IntoIterator<Item = Doc<'a>>, name: &str) -> Option<Sum> {
    let mut sum = None;
    for value in bodies.into_iter().filter_map(|body| body.get(name)) {
        sum.get_or_insert_with(Sum::default).add(value);
    }
    sum
}

/// The fields of dbStats that mongos sums, in its order; `None` is where `avgObjSize` stands.
const DB_STATS: &[Option<&str>] = &[
    Some("collections"),
    Some("views"),
    Some("objects"),
    None,
    Some("dataSize"),
    Some("storageSize"),
    Some("freeStorageSize"),
    Some("indexes"),
    Some("indexSize"),
    Some("indexFreeStorageSize"),
    Some("totalSize"),
    Some("totalFreeStorageSize"),
    Some("scaleFactor"),
    Some("fsUsedSize"),
    Some("fsTotalSize"),
];

/// Sizes of a database over all shards.
pub async fn db_stats(op: &Op<'_>) -> CommandResult<Reply> {
    let template = ShardRequest::copy(op, |_| false).template();
    let answers = ask_every_shard(op, &template, &op.read_preference()?, Retry::Idempotent).await?;
    if answers.iter().any(|answer| answer.result.is_err()) {
        return Ok(raw_reply(&answers));
    }
    let bodies: Vec<Doc<'_>> = answers.iter().filter_map(Answer::body).collect();
    let of = |name: &str| sum(bodies.iter().copied(), name);
    let weighted: f64 =
        bodies.iter().map(|body| number(*body, "avgObjSize") * number(*body, "objects")).sum();
    Ok(Reply::build(|out| {
        let raw = splice::open_doc(out, "raw");
        for (answer, body) in answers.iter().zip(&bodies) {
            put_clean(out, &answer.host, *body);
        }
        raw.finish(out);
        splice::put_str(out, "db", op.request.db);
        for name in DB_STATS {
            match name {
                None => {
                    let objects = of("objects").unwrap_or_default().as_f64();
                    let average = if objects > 0.0 { weighted / objects } else { 0.0 };
                    splice::put_f64(out, "avgObjSize", average);
                }
                // The factor is the client's, the same for all.
                Some("scaleFactor") => {
                    if let Some(field) = bodies.first().and_then(|body| body.field("scaleFactor")) {
                        out.extend_from_slice(field.raw());
                    }
                }
                Some(name) => {
                    if let Some(sum) = of(name) {
                        sum.put(out, name);
                    }
                }
            }
        }
        splice::put_f64(out, "ok", 1.0);
    }))
}

fn number(body: Doc<'_>, name: &str) -> f64 {
    match body.get(name) {
        Some(Value::Double(n)) => n,
        Some(value) => value.as_i64().map_or(0.0, float),
        None => 0.0,
    }
}

/// `scale`, at least 1.
fn scale(op: &Op<'_>) -> CommandResult<i64> {
    let Some(value) = op.request.body.get("scale").filter(|value| *value != Value::Null) else {
        return Ok(1);
    };
    if !value.is_number() {
        return Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.scale' is the wrong type '{}', expected types '[long, int, decimal, double']",
                op.command.name,
                value.element_type().name()
            ),
        ));
    }
    #[allow(clippy::cast_possible_truncation)] // a fraction is cut off, as the server does
    let scale = match value {
        Value::Double(n) => n as i64,
        other => other.as_i64().unwrap_or(1),
    };
    if scale >= 1 {
        return Ok(scale);
    }
    Err(CommandError::new(
        ErrorCode(51024),
        format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"),
    ))
}

/// Sizes of a collection, in whole and on each shard. Shards are asked without the scale: sums are scaled once.
pub async fn coll_stats(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let scale = scale(op)?;
    let target = buckets_or_itself(op, &ns).await?;
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    splice::put_str(request.out(), "collStats", ns.coll());
    for field in op.request.body.iter().skip(1) {
        if field.name() != "scale" && !crate::request::is_generic(field.name_bytes()) {
            request.out().extend_from_slice(field.raw());
        }
    }
    let template = request.template();
    let preference = op.read_preference()?;
    let (route, answers) = ask_owners(op, &target, &template, &preference, Retry::Idempotent).await?;
    let answered = all_or_error(&answers)?;
    let bodies: Vec<Doc<'_>> = answered.iter().map(|(_, body)| *body).collect();
    let first = bodies.first().copied().unwrap_or(Doc::empty());
    Ok(Reply::build(|out| {
        splice::put_bool(out, "sharded", route.sharded().is_some());
        if let Route::Unsharded(database) = &route {
            splice::put_str(out, "primary", database.primary.as_str());
        }
        for field in first {
            let name = field.name();
            if matches!(name, "capped" | "max" | "userFlags" | "wiredTiger" | "indexDetails") {
                out.extend_from_slice(field.raw());
            }
        }
        splice::put_str(out, "ns", ns.as_str());
        put_sums(out, &bodies, scale);
        put_shapes(out, &bodies, scale);
        splice::put_i32(out, "scaleFactor", i32::try_from(scale).unwrap_or(i32::MAX));
        let chunks = route.sharded().map_or(1, |routing| routing.chunks.len());
        splice::put_i32(out, "nchunks", i32::try_from(chunks).unwrap_or(i32::MAX));
        let shards = splice::open_doc(out, "shards");
        for (answer, body) in &answered {
            put_clean(out, answer.shard.as_str(), *body);
        }
        shards.finish(out);
        splice::put_f64(out, "ok", 1.0);
    }))
}

fn put_sums(out: &mut BytesMut, bodies: &[Doc<'_>], scale: i64) {
    for name in ["count", "size", "storageSize", "totalIndexSize", "totalSize"] {
        if let Some(sum) = sum(bodies.iter().copied(), name) {
            let divisor = if name == "count" { 1 } else { scale };
            splice::put_i64(out, name, sum.whole / divisor);
        }
    }
    let series: Vec<Doc<'_>> = bodies.iter().filter_map(|body| body.get_doc("timeseries")).collect();
    if let Some(first) = series.first() {
        let open = splice::open_doc(out, "timeseries");
        let of = |name: &str| sum(series.iter().copied(), name).unwrap_or_default();
        for field in *first {
            match field.name() {
                "avgBucketSize" => {
                    let weighted =
                        series.iter().map(|one| number(*one, "avgBucketSize") * number(*one, "bucketCount"));
                    put_average(out, field.name(), weighted.sum(), of("bucketCount").as_f64());
                }
                "avgNumMeasurementsPerCommit" => {
                    let measured = of("numMeasurementsCommitted").as_f64();
                    put_average(out, field.name(), measured, of("numCommits").as_f64());
                }
                name if field.value().is_number() => of(name).put(out, name),
                _ => out.extend_from_slice(field.raw()),
            }
        }
        open.finish(out);
    }
}

#[allow(clippy::cast_possible_truncation)] // averages are whole numbers here
fn put_average(out: &mut BytesMut, name: &str, total: f64, count: f64) {
    splice::put_i64(out, name, if count > 0.0 { (total / count) as i64 } else { 0 });
}

/// What is no plain sum: sizes by index, averages, maxima.
fn put_shapes(out: &mut BytesMut, bodies: &[Doc<'_>], scale: i64) {
    let mut sizes: BTreeMap<&str, Sum> = BTreeMap::new();
    for field in bodies.iter().filter_map(|body| body.get_doc("indexSizes")).flatten() {
        sizes.entry(field.name()).or_default().add(field.value());
    }
    let open = splice::open_doc(out, "indexSizes");
    for (name, size) in sizes {
        splice::put_i64(out, name, size.whole / scale);
    }
    open.finish(out);
    let count: f64 = bodies.iter().map(|body| number(*body, "count")).sum();
    let weighted: f64 = bodies.iter().map(|body| number(*body, "avgObjSize") * number(*body, "count")).sum();
    splice::put_f64(out, "avgObjSize", if count > 0.0 { weighted / count } else { 0.0 });
    let most = |name: &str| bodies.iter().filter_map(|body| body.get_i64(name)).max();
    if let Some(size) = most("maxSize") {
        splice::put_i64(out, "maxSize", size / scale);
    }
    if let Some(indexes) = most("nindexes") {
        splice::put_i32(out, "nindexes", i32::try_from(indexes).unwrap_or(i32::MAX));
    }
    let mut counts = bodies.iter().filter_map(|body| body.get_i64("nindexes"));
    if let Some(first) = counts.next()
        && counts.any(|other| other != first)
    {
        splice::put_str(out, "warning", "indexes don't all match - ok if ensureIndex is running");
    }
}

/// Size of a range of keys, or of the whole collection.
pub async fn data_size(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::plain_namespace(op)?;
    let template = ShardRequest::copy(op, |_| false).template();
    let preference = op.read_preference()?;
    let (_, answers) = ask_owners(op, &ns, &template, &preference, Retry::Idempotent).await?;
    let bodies: Vec<Doc<'_>> = all_or_error(&answers)?.into_iter().map(|(_, body)| body).collect();
    let of = |name: &str| sum(bodies.iter().copied(), name).unwrap_or_default();
    Ok(Reply::build(|out| {
        if let Some(field) = bodies.first().and_then(|body| body.field("estimate")) {
            out.extend_from_slice(field.raw());
        }
        splice::put_f64(out, "size", of("size").as_f64());
        splice::put_f64(out, "numObjects", of("numObjects").as_f64());
        splice::put_i32(out, "millis", i32::try_from(of("millis").whole).unwrap_or(i32::MAX));
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Points that would split a collection into chunks of a size; only of one that lies on one shard.
pub async fn split_vector(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::plain_namespace(op)?;
    let route = op.router.route(&ns).await?;
    if route.sharded().is_some() {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "can't do command: splitVector on sharded collection",
        ));
    }
    PrimaryCall::read(ns.db())
        .attach(Attach::Unsharded)
        .forward(op, |out| {
            splice::put_str(out, "splitVector", ns.as_str());
            arguments::copy_all(op, out);
        })
        .await
}

/// Only a shard can, directly.
pub async fn compact(_op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::new(ErrorCode::CommandNotSupported, "compact not allowed through mongos"))
}
