//! A request to a server, spliced from the client's bytes.
//!
//! The command's own fields are copied as they are; everything generic is written anew, so that nothing a client
//! invents (`shardVersion`, `$topologyTime`, `$client`, ...) ever reaches a shard.

use bytes::BytesMut;
use document::splice::{self, Keep, Open};
use document::{Doc, Value};
use tokio::time::Instant;
use wire::{MsgFlags, OpMsgWriter};

use super::defaults::{Defaults, put_read_concern};
use super::routing::{Destination, Versions};
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::request::{Request, is_generic};
use crate::session::SessionId;

/// A request that is being written: fields first, then [`ShardRequest::finish`].
#[derive(Debug)]
pub struct ShardRequest<'a> {
    out: BytesMut,
    writer: OpMsgWriter,
    body: Open,
    op: &'a Op<'a>,
}

/// A complete request whose versions are still open: cloned for each shard of a fan-out.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: BytesMut,
}

impl<'a> ShardRequest<'a> {
    /// An empty request with room for `capacity` more bytes.
    #[must_use]
    pub fn new(op: &'a Op<'a>, capacity: usize) -> Self {
        let mut out = BytesMut::with_capacity(capacity + 640);
        let writer = OpMsgWriter::begin(&mut out, 0, 0, MsgFlags::NONE);
        let body = splice::open(&mut out);
        Self { out, writer, body, op }
    }

    /// The client's command with its own fields, but for those that `drop` names.
    #[must_use]
    pub fn copy(op: &'a Op<'a>, drop: impl Fn(&[u8]) -> bool) -> Self {
        let mut request = Self::new(op, op.request.body.as_bytes().len());
        splice::copy_fields(op.request.body, &mut request.out, |name| {
            if is_generic(name) || drop(name) { Keep::No } else { Keep::Yes }
        });
        request
    }

    /// Where the command's fields are written.
    pub const fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// The client's `readConcern`, else the cluster's default. An internal connection must say one (6.0).
    /// In a transaction it belongs to the first request of each participant, which [`Op::ask`] knows.
    #[must_use]
    pub fn read_concern(mut self, destinations: &[Destination]) -> Self {
        if self.op.transaction.is_some() {
            return self;
        }
        if let Some(at) = self.op.chosen_snapshot() {
            crate::transaction::write_snapshot(&mut self.out, at);
            return self;
        }
        let unsharded = destinations.iter().any(|one| matches!(one.versions, Versions::Unsharded(_)));
        match self.op.request.generic.read_concern.filter(|concern| !concern.is_empty()) {
            Some(concern) => put_read_concern(&mut self.out, concern, unsharded),
            None => self.op.router.defaults().write_read_concern(&mut self.out, unsharded),
        }
        self
    }

    /// The client's `writeConcern`, else the cluster's default. An internal connection must say one (6.0), but not with a
    /// statement of a transaction.
    #[must_use]
    pub fn write_concern(mut self) -> Self {
        if self.op.in_statement() {
            return self;
        }
        match self.op.request.generic.write_concern.filter(|concern| !concern.is_empty()) {
            Some(concern) => put_write_concern(&mut self.out, concern, self.op.router.defaults()),
            None => self.op.router.defaults().write_write_concern(&mut self.out),
        }
        self
    }

    /// An explicit empty `writeConcern`: for aggregates that write nothing.
    #[must_use]
    pub fn no_write_concern(mut self) -> Self {
        if self.op.in_statement() {
            return self;
        }
        splice::put_doc(&mut self.out, "writeConcern", Doc::empty());
        self
    }

    /// Writes what each request carries and closes the body. `versions` writes `shardVersion` and `databaseVersion`.
    pub fn finish(self, versions: impl FnOnce(&mut BytesMut)) -> CommandResult<BytesMut> {
        let db = self.op.request.db;
        self.finish_on(db, versions)
    }

    /// As [`Self::finish`], on another database than the client's.
    pub fn finish_on(mut self, db: &str, versions: impl FnOnce(&mut BytesMut)) -> CommandResult<BytesMut> {
        write_generic(&mut self.out, self.op, db);
        versions(&mut self.out);
        self.body.finish(&mut self.out);
        self.writer.finish(&mut self.out).map_err(too_large)?;
        Ok(self.out)
    }

    /// As [`Self::finish`], with documents in a section of their own behind the body.
    pub fn finish_with_documents<'d>(
        mut self,
        versions: impl FnOnce(&mut BytesMut),
        identifier: &str,
        documents: impl Iterator<Item = Doc<'d>>,
    ) -> CommandResult<BytesMut> {
        write_generic(&mut self.out, self.op, self.op.request.db);
        versions(&mut self.out);
        self.body.finish(&mut self.out);
        let sequence = self.writer.begin_sequence(&mut self.out, identifier);
        for document in documents {
            self.out.extend_from_slice(document.as_bytes());
        }
        sequence.finish(&mut self.out);
        self.writer.finish(&mut self.out).map_err(too_large)?;
        Ok(self.out)
    }

    /// Everything but the versions: for a fan-out.
    #[must_use]
    pub fn template(self) -> Template {
        let db = self.op.request.db;
        self.template_on(db)
    }

    /// As [`Self::template`], on another database than the client's.
    #[must_use]
    pub fn template_on(mut self, db: &str) -> Template {
        write_generic(&mut self.out, self.op, db);
        // The lengths are written when a shard's copy is finished.
        Template { bytes: self.out }
    }
}

impl Template {
    /// One shard's copy.
    pub fn finish(&self, versions: impl FnOnce(&mut BytesMut)) -> CommandResult<BytesMut> {
        let mut out = BytesMut::with_capacity(self.bytes.len() + 192);
        out.extend_from_slice(&self.bytes);
        versions(&mut out);
        wire::seal_message(&mut out).map_err(too_large)?;
        Ok(out)
    }
}

/// Where the body of a message begins: behind header, flags and kind byte.
const BODY_AT: usize = 21;

/// Gives a complete message at most this time: `maxTimeMSOpOnly` is lowered to it, or added.
pub(crate) fn limit_time(message: &mut BytesMut, most_ms: i64) -> CommandResult<()> {
    let body = message.get(BODY_AT..).unwrap_or_default();
    let there = Doc::prefix_of(body).ok().and_then(|doc| {
        let field = doc.field("maxTimeMSOpOnly")?;
        Some((field.value().as_i64()?, BODY_AT + doc.offset_of(field.value_bytes())?))
    });
    match there {
        None => {
            let mut field = BytesMut::new();
            splice::put_i64(&mut field, "maxTimeMSOpOnly", most_ms);
            add_to_body(message, &field)
        }
        Some((limit, at)) if limit > most_ms => {
            if let Some(slot) = message.get_mut(at..at + 8) {
                slot.copy_from_slice(&most_ms.to_le_bytes());
            }
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

/// Adds fields to the body of a complete message; what follows the body moves behind them.
pub(crate) fn add_to_body(message: &mut BytesMut, fields: &[u8]) -> CommandResult<()> {
    let malformed = || CommandError::new(crate::ErrorCode::InternalError, "a request without a body");
    let length =
        message.get(BODY_AT..BODY_AT + 4).and_then(|length| length.try_into().ok()).map(i32::from_le_bytes);
    let length = length.and_then(|length| usize::try_from(length).ok()).ok_or_else(malformed)?;
    let end = BODY_AT + length;
    if length < 5 || end > message.len() {
        return Err(malformed());
    }
    // The body's terminator and all that follows it.
    let rest = message.split_off(end - 1);
    message.extend_from_slice(fields);
    message.unsplit(rest);
    let body = i32::try_from(length + fields.len()).map_err(|_| malformed())?;
    let whole = i32::try_from(message.len()).map_err(|_| malformed())?;
    for (at, value) in [(0, whole), (BODY_AT, body)] {
        if let Some(slot) = message.get_mut(at..at + 4) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

fn too_large(error: wire::WireError) -> CommandError {
    CommandError::new(crate::ErrorCode::BSONObjectTooLarge, error.to_string())
}

/// `w: 0` would hide stale routing: shards are asked for `w: 1`, and the client's reply is cut down instead. A concern
/// without `w` has the cluster's: a shard would take it for 1 (seen on 6.0.5).
fn put_write_concern(out: &mut BytesMut, concern: Doc<'_>, defaults: &Defaults) {
    let open = splice::open_doc(out, "writeConcern");
    if !concern.contains("w") {
        defaults.write_w(out);
    }
    for field in concern {
        if field.name() == "w" && field.value().as_i64() == Some(0) {
            splice::put_i32(out, "w", 1);
        } else {
            out.extend_from_slice(field.raw());
        }
    }
    open.finish(out);
}

/// Session, times, client, ... of the operation: the same for every shard.
fn write_generic(out: &mut BytesMut, op: &Op<'_>, db: &str) {
    let Request { generic, .. } = &op.request;
    if let Some(session) = generic.lsid.and_then(SessionId::from_lsid) {
        session.write(out);
        if let Some(number) = generic.txn_number {
            splice::put_i64(out, "txnNumber", number);
        }
    }
    if let Some(comment) = generic.comment {
        out.extend_from_slice(comment.raw());
    }
    if let Some(ms) = generic.max_time_ms {
        splice::put_i64(out, "maxTimeMS", i64::from(ms));
    }
    write_time_limit(out, op.deadline);
    generic.api.write(out);
    if let Some(preference) = generic.read_preference
        && preference.get("mode").and_then(Value::as_str) != Some("primary")
    {
        splice::put_doc(out, "$readPreference", preference);
    }
    splice::put_str(out, "$db", db);
    op.router.clock().write_request(out);
    if let Some(metadata) = op.client.metadata() {
        splice::put_doc(out, "$client", metadata);
    }
}

/// `maxTimeMSOpOnly`: what is left of the client's budget, at least 1 (0 would mean none).
pub(crate) fn write_time_limit(out: &mut BytesMut, deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        splice::put_i64(out, "maxTimeMSOpOnly", i64::try_from(left).unwrap_or(i64::MAX).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_added_or_lowered_and_never_raised() {
        for (had, most, has) in [(None, 150, 150), (Some(10_000), 150, 150), (Some(20), 150, 20)] {
            let mut message = BytesMut::new();
            let writer = OpMsgWriter::begin(&mut message, 0, 0, MsgFlags::NONE);
            let body = splice::open(&mut message);
            splice::put_str(&mut message, "find", "c");
            if let Some(ms) = had {
                splice::put_i64(&mut message, "maxTimeMSOpOnly", ms);
            }
            splice::put_str(&mut message, "$db", "d");
            body.finish(&mut message);
            writer.finish(&mut message).unwrap();
            limit_time(&mut message, most).unwrap();
            let body = Doc::new(message.get(BODY_AT..).unwrap()).unwrap();
            assert_eq!(body.get_i64("maxTimeMSOpOnly"), Some(has), "{had:?}");
            assert_eq!((body.get_str("find"), body.get_str("$db")), (Some("c"), Some("d")));
            assert_eq!(message.get(..4).unwrap(), i32::try_from(message.len()).unwrap().to_le_bytes());
        }
    }
}
