//! hello: how a driver learns that it speaks to a router, and how its monitor waits for changes.
//!
//! A router's answer never changes but once: when the process is told to end, every waiting hello fails with
//! `ShutdownInProgress`, so that drivers look elsewhere while commands still work (mongos 5.0).

use document::{Doc, DocWriter, Value};
use tokio::time::Duration;
use wire::{Compressor, CompressorSet, MAX_CLIENT_MESSAGE_BYTES, MAX_DOCUMENT_BYTES};

use super::host;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

const MAX_WRITE_BATCH_SIZE: i32 = 100_000;
const SESSION_TIMEOUT_MINUTES: i32 = 30;
/// What a 6.0 cluster can do. Versions below are spoken too: the form of a message does not depend on it.
const MAX_WIRE_VERSION: i32 = 17;
const MIN_WIRE_VERSION: i32 = 0;

/// `hello`
pub async fn hello(op: &Op<'_>) -> CommandResult<Reply> {
    answer(op, "isWritablePrimary").await
}

/// `isMaster`
pub async fn is_master(op: &Op<'_>) -> CommandResult<Reply> {
    answer(op, "ismaster").await
}

async fn answer(op: &Op<'_>, primary_field: &str) -> CommandResult<Reply> {
    let body = op.request.body;
    let wait = read_wait(op)?;
    take_metadata(op)?;
    let agreed = negotiate(op)?;
    if let Some(wait) = wait
        && !op.router.quiesce().is_on()
    {
        let _waits = op.router.stats().hello_waits();
        tokio::select! {
            biased;
            () = op.router.quiesce().begun() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    if op.router.quiesce().is_on() {
        // Not an error of a shard: it goes out as it is, with the code that makes drivers leave.
        return Ok(Reply::error(&leaving(op)));
    }
    let mut doc = document::DocBuf::with_capacity(512);
    doc.write(|w| {
        w.put(primary_field, true);
        w.put("msg", "isdbgrid");
        topology_version(w, op, 0);
        if body.contains("helloOk") {
            w.put("helloOk", true);
        }
        w.put("maxBsonObjectSize", i32::try_from(MAX_DOCUMENT_BYTES).unwrap_or(i32::MAX));
        w.put("maxMessageSizeBytes", i32::try_from(MAX_CLIENT_MESSAGE_BYTES).unwrap_or(i32::MAX));
        w.put("maxWriteBatchSize", MAX_WRITE_BATCH_SIZE);
        w.put("localTime", host::now());
        w.put("logicalSessionTimeoutMinutes", SESSION_TIMEOUT_MINUTES);
        w.put("connectionId", i32::try_from(op.client.id()).unwrap_or(i32::MAX));
        w.put("maxWireVersion", MAX_WIRE_VERSION);
        w.put("minWireVersion", MIN_WIRE_VERSION);
        if !agreed.is_empty() {
            w.array("compression", &agreed, |w, index, compressor| w.put(index, compressor.name()));
        }
        w.put("ok", 1.0);
    });
    Ok(Reply::from_doc(doc.as_doc()))
}

fn topology_version(w: &mut DocWriter<'_>, op: &Op<'_>, counter: i64) {
    w.doc("topologyVersion", |w| {
        w.put("processId", Value::ObjectId(op.router.process_id()));
        w.put("counter", counter);
    });
}

fn leaving(op: &Op<'_>) -> CommandError {
    let left = i64::try_from(op.router.quiesce().remaining().as_millis()).unwrap_or(i64::MAX);
    let mut version = document::DocBuf::new();
    version.append("processId", Value::ObjectId(op.router.process_id())).append("counter", 1_i64);
    CommandError::new(ErrorCode::ShutdownInProgress, "Mongos is in quiesce mode and will shut down")
        .with_extra("topologyVersion", &version)
        .with_extra("remainingQuiesceTimeMillis", left)
}

/// How long to hold the answer back: `None` to answer at once.
fn read_wait(op: &Op<'_>) -> CommandResult<Option<Duration>> {
    let body = op.request.body;
    let name = op.command.name;
    let (version, limit) = match (body.get("topologyVersion"), body.get("maxAwaitTimeMS")) {
        (None, None) if op.request.exhaust_allowed() => {
            return Err(refuse(51763, "An exhaust request must specify 'maxAwaitTimeMS'"));
        }
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(refuse(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'"));
        }
        (Some(_), None) => {
            return Err(refuse(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'"));
        }
        (Some(version), Some(limit)) => (version, limit),
    };
    if !limit.is_number() {
        return Err(CommandError::wrong_type(
            &format!("{name}.maxAwaitTimeMS"),
            limit,
            "[long, int, decimal, double]",
        ));
    }
    let limit = limit.as_i64().unwrap_or(0);
    let limit = u64::try_from(limit).map_err(|_| {
        refuse(51024, &format!("BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '{limit}'"))
    })?;
    let version = version
        .as_doc()
        .ok_or_else(|| CommandError::wrong_type(&format!("{name}.topologyVersion"), version, "object"))?;
    let (process, counter) = read_topology_version(name, version)?;
    if counter < 0 {
        return Err(refuse(31372, "topologyVersion must have a non-negative counter"));
    }
    // The later answers of a stream stand for requests with the version that the first one told.
    if op.client.is_streaming() {
        return Ok(Some(Duration::from_millis(limit)));
    }
    if process != op.router.process_id() {
        return Ok(None);
    }
    if counter > 0 {
        return Err(refuse(
            31382,
            &format!(
                "Received a topology version with counter: {counter} which is greater than the server topology \
                 version counter: 0"
            ),
        ));
    }
    Ok(Some(Duration::from_millis(limit)))
}

fn read_topology_version(name: &str, version: Doc<'_>) -> CommandResult<([u8; 12], i64)> {
    let field = |part: &str| {
        version.get(part).ok_or_else(|| {
            refuse(
                40414,
                &format!("BSON field '{name}.topologyVersion.{part}' is missing but a required field"),
            )
        })
    };
    let wrong = |part: &str, value, expected| {
        CommandError::wrong_type(&format!("{name}.topologyVersion.{part}"), value, expected)
    };
    let process = match field("processId")? {
        Value::ObjectId(id) => id,
        other => return Err(wrong("processId", other, "objectId")),
    };
    match field("counter")? {
        Value::Int64(counter) => Ok((process, counter)),
        other => Err(wrong("counter", other, "long")),
    }
}

fn take_metadata(op: &Op<'_>) -> CommandResult<()> {
    let metadata = match op.request.body.get("client") {
        None => None,
        Some(Value::Document(doc)) => Some(doc),
        // An empty one: the check of "only in the first hello" comes before that of the type (seen on 6.0.5).
        Some(_) if op.client.said_hello() => Some(Doc::empty()),
        Some(other) => {
            return Err(CommandError::new(
                ErrorCode::TypeMismatch,
                format!(
                    "The client metadata document must be a document, not {}",
                    other.element_type().name()
                ),
            ));
        }
    };
    op.client.set_metadata(metadata, &op.router.settings().host, crate::SERVER_VERSION)?;
    if let Some(doc) = metadata {
        let context = format!("conn{}", op.client.id());
        tracing::info!(
            c = "NETWORK", id = 51800, ctx = %context, remote = %op.client.address(), client = %context,
            doc.json = %super::log_book::Json(doc), "client metadata"
        );
    }
    Ok(())
}

/// What both sides can, in the client's order (seen on 6.0.5). A hello that does not ask is told what was agreed on.
fn negotiate(op: &Op<'_>) -> CommandResult<Vec<Compressor>> {
    let Some(asked) = op.request.body.get("compression") else {
        return Ok(op.client.compressors().iter().collect());
    };
    let field = || format!("{}.compression", op.command.name);
    let asked = asked.as_array().ok_or_else(|| CommandError::wrong_type(&field(), asked, "array"))?;
    let mut agreed = Vec::new();
    for item in asked {
        let name = item.value().as_str().ok_or_else(|| {
            CommandError::wrong_type(&format!("{}.{}", field(), item.name()), item.value(), "string")
        })?;
        if let Some(compressor) = Compressor::from_name(name)
            && op.router.settings().compressors.contains(&compressor)
            && !agreed.contains(&compressor)
        {
            agreed.push(compressor);
        }
    }
    op.client.agree_on(agreed.iter().copied().fold(CompressorSet::NONE, CompressorSet::with));
    Ok(agreed)
}

fn refuse(code: i32, message: &str) -> CommandError {
    CommandError::new(ErrorCode(code), message)
}
