//! Slow operations: which of them go to the log, and the line that tells of them.
//!
//! The line has mongod's shape (id 51803) with what a mongos knows, and one attribute of our own, `shardMillis`: how long
//! the command waited for each shard, and for the config servers. A fast operation costs two looks at the clock.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use document::{Doc, Field, Value};

use super::asked::Asked;
use super::log_book::{Component, Json, write_json_string};
use crate::Router;
use crate::command::Op;
use crate::reply::Reply;

/// `slowms` that nobody changed.
const SLOW_MS: i32 = 100;
/// Most bytes of the client's command in a line (mongod: `maxLogSizeKB`).
const MAX_COMMAND_BYTES: usize = 10 * 1024;

/// What is slow, and how much of it is logged.
#[derive(Debug)]
pub struct SlowLog {
    threshold_ms: AtomicI32,
    /// The bits of a double.
    sample_rate: AtomicU64,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self { threshold_ms: AtomicI32::new(SLOW_MS), sample_rate: AtomicU64::new(1.0_f64.to_bits()) }
    }
}

impl SlowLog {
    /// What takes longer is slow; with a negative number everything is.
    #[must_use]
    pub fn threshold_ms(&self) -> i32 {
        self.threshold_ms.load(Ordering::Relaxed)
    }

    /// Changes it.
    pub fn set_threshold_ms(&self, ms: i32) {
        self.threshold_ms.store(ms, Ordering::Relaxed);
    }

    /// Which share of the slow operations is logged, 0 to 1.
    #[must_use]
    pub fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Ordering::Relaxed))
    }

    /// Changes it.
    pub fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// Is an operation that took so long to be logged? As in a mongod, one of exactly the threshold is not.
    fn wants(&self, took: Duration) -> bool {
        let slow = u64::try_from(self.threshold_ms()).map_or(true, |ms| took > Duration::from_millis(ms));
        let rate = self.sample_rate();
        slow && (rate >= 1.0 || rand::random::<f64>() < rate)
    }
}

/// A command has ended: logs it when it was slow, or when everything is to be logged.
pub(crate) fn ended(op: &Op<'_>, reply: &Reply, took: Duration, asked: &Asked) {
    let router = op.router;
    if !router.slow_log().wants(took) && !router.settings().log.is_verbose(Component::Command) {
        return;
    }
    log(op, reply, took, asked);
}

fn log(op: &Op<'_>, reply: &Reply, took: Duration, asked: &Asked) {
    let (client, request) = (op.client, &op.request);
    let body = reply.body();
    let cursor = body.get_doc("cursor");
    let id = cursor.and_then(|cursor| cursor.get_i64("id"));
    let batch =
        cursor.and_then(|cursor| cursor.get_array("firstBatch").or_else(|| cursor.get_array("nextBatch")));
    let n = body.get_i64("n");
    let of = |name: &str| n.filter(|_| op.command.name == name);
    let failed = !reply.is_ok();
    let concern =
        |concern: Option<Doc<'_>>| concern.map(|concern| tracing::field::display(Json(concern).to_string()));
    let application = client.application();
    tracing::info!(
        c = "COMMAND",
        id = 51803,
        ctx = %format_args!("conn{}", client.id()),
        "type" = "command",
        ns = %namespace(op),
        appName = application,
        command.json = %command(request.body, MAX_COMMAND_BYTES),
        nShards = shards(op.router, asked),
        cursorid = id.filter(|id| *id != 0),
        cursorExhausted = (id == Some(0)).then_some(true),
        nMatched = of("update"),
        nModified = body.get_i64("nModified"),
        ninserted = of("insert"),
        ndeleted = of("delete"),
        nreturned = batch.map(|batch| batch.iter().count() as u64),
        ok = failed.then_some(0),
        errMsg = body.get_str("errmsg").filter(|_| failed),
        errName = body.get_str("codeName").filter(|_| failed),
        errCode = body.get_i64("code").filter(|_| failed),
        reslen = body.as_bytes().len() as u64,
        readConcern.json = concern(request.generic.read_concern),
        writeConcern.json = concern(request.generic.write_concern),
        remote = %client.address(),
        protocol = request.protocol(),
        shardMillis.json = %shard_millis(op.router, asked),
        durationMillis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "Slow query"
    );
}

/// `db.collection`, or `db.$cmd` for commands that name none.
fn namespace(op: &Op<'_>) -> String {
    let request = &op.request;
    let collection = match request.name {
        "getMore" => request.body.get_str("collection"),
        _ if op.command.admin_only => None,
        _ => request.target.as_str().filter(|name| !name.is_empty()),
    };
    format!("{}.{}", request.db, collection.unwrap_or("$cmd"))
}

fn shards(router: &Router, asked: &Asked) -> u64 {
    let config = router.servers().config_set().name();
    asked.sets().iter().filter(|asked| asked.set != *config).count() as u64
}

/// `{"<shard>": <milliseconds>, ...}`
fn shard_millis(router: &Router, asked: &Asked) -> String {
    let list = router.registry().snapshot();
    let config = router.servers().config_set().name();
    let mut out = String::from("{");
    for (index, set) in asked.sets().iter().enumerate() {
        let shard = list.iter().find(|shard| *shard.set_name == *set.set).map(|shard| shard.id.as_str());
        let name = if set.set == *config { "config" } else { shard.unwrap_or(&set.set) };
        let comma = if index > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = out.write_str(comma);
        let _ = write_json_string(&mut out, name);
        let _ = write!(out, ":{}", set.waited.as_millis());
    }
    out.push('}');
    out
}

/// The client's command as JSON: secrets hidden, and no longer than `most` bytes.
fn command(body: Doc<'_>, most: usize) -> String {
    let secrets: &[&str] = match body.first().map(Field::name) {
        Some("createUser" | "updateUser") => &["pwd"],
        Some("saslStart" | "saslContinue") => &["payload"],
        Some("authenticate") => &["key", "nonce"],
        _ => &[],
    };
    let mut out = String::from("{");
    for (index, field) in body.iter().enumerate() {
        let mut item = String::new();
        if index > 0 {
            item.push(',');
        }
        let _ = write_json_string(&mut item, field.name());
        item.push(':');
        if secrets.contains(&field.name()) {
            item.push_str("\"xxx\"");
        } else if field.raw().len() > most {
            let _ = write!(item, "\"({} bytes)\"", field.raw().len());
        } else {
            let text = value_json(field.value());
            if out.len() + text.len() > most {
                let _ = write!(item, "\"({} bytes)\"", field.raw().len());
            } else {
                item.push_str(&text);
            }
        }
        if out.len() + item.len() > most {
            out.push_str(",\"truncated\":true");
            break;
        }
        out.push_str(&item);
    }
    out.push('}');
    out
}

fn value_json(value: Value<'_>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = super::log_book::write_value(&mut out, value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(doc: &bson::RawDocumentBuf, most: usize) -> String {
        command(Doc::new(doc.as_bytes()).unwrap(), most)
    }

    #[test]
    fn what_is_slow_follows_the_settings() {
        let log = SlowLog::default();
        assert!(!log.wants(Duration::from_millis(100)));
        assert!(log.wants(Duration::from_millis(101)));
        log.set_sample_rate(0.0);
        assert!(!log.wants(Duration::from_secs(5)));
        log.set_sample_rate(1.0);
        log.set_threshold_ms(-1);
        assert!(log.wants(Duration::ZERO));
    }

    #[test]
    fn commands_are_bounded_and_hide_secrets() {
        let user = bson::rawdoc! { "createUser": "a", "pwd": "secret", "roles": [] };
        assert_eq!(shown(&user, 1000), r#"{"createUser":"a","pwd":"xxx","roles":[]}"#);
        let long = bson::rawdoc! { "find": "c", "filter": { "a": "x".repeat(500) }, "limit": 1 };
        assert_eq!(shown(&long, 200), r#"{"find":"c","filter":"(521 bytes)","limit":1}"#);
        let mut many = document::DocBuf::new();
        for n in 0..100 {
            many.append(&format!("f{n}"), n);
        }
        let text = command(many.as_doc(), 200);
        assert!(text.len() < 250 && text.ends_with(",\"truncated\":true}"), "{text}");
    }
}
