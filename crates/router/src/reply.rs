//! A reply to a client, on its way: always one message with one body, in one buffer.
//!
//! A shard's reply is passed on in the buffer it came in: fields that are only for routers are cut out, the gossip
//! is written to the end, the header is rewritten. A reply of our own is written into the same shape.

use bytes::{BufMut, BytesMut};
use document::{Doc, Timestamp, Value, splice};
use wire::{MsgFlags, OpMsgWriter};

use crate::clock::{Clock, Times};
use crate::codes::ErrorCode;
use crate::error::CommandError;

/// Header, flags, kind byte: where the body of every reply starts.
const BODY_AT: usize = 21;

/// One reply.
#[derive(Debug)]
pub struct Reply {
    /// A message whose numbers and lengths are right only after `seal`.
    frame: BytesMut,
    /// The highest `operationTime` that this answer rests on.
    operation_time: Option<Timestamp>,
}

/// What one look at a server's reply tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    /// `ok: 1`
    pub ok: bool,
    /// `code`
    pub code: Option<ErrorCode>,
    /// The times it gossips.
    pub times: Times,
    /// There is a `writeErrors`.
    pub has_write_errors: bool,
    /// There is a `writeConcernError`.
    pub has_write_concern_error: bool,
    /// `readOnly`: the shard's part of a transaction only read so far.
    pub read_only: Option<bool>,
}

impl Summary {
    /// Reads the top level of a reply once.
    #[must_use]
    pub fn of(body: Doc<'_>) -> Self {
        let mut summary = Self::default();
        for field in body {
            match field.name_bytes() {
                b"ok" => summary.ok = field.value().is_truthy(),
                b"code" => {
                    summary.code =
                        field.value().as_i64().and_then(|code| i32::try_from(code).ok()).map(ErrorCode);
                }
                b"$clusterTime" => {
                    summary.times.cluster = field
                        .value()
                        .as_doc()
                        .and_then(|time| time.get("clusterTime"))
                        .and_then(Value::as_timestamp);
                }
                b"operationTime" => summary.times.operation = field.value().as_timestamp(),
                b"$configTime" => summary.times.config = field.value().as_timestamp(),
                b"$topologyTime" => summary.times.topology = field.value().as_timestamp(),
                b"writeErrors" => summary.has_write_errors = true,
                b"writeConcernError" => summary.has_write_concern_error = true,
                b"readOnly" => summary.read_only = field.value().as_bool(),
                _ => {}
            }
        }
        summary
    }
}

/// Fields of a server's reply that are not for clients: gossip that the router writes anew, and what only routers
/// and members of a set read.
pub(crate) fn is_internal(name: &[u8]) -> bool {
    match name.first() {
        Some(b'$') => matches!(
            name,
            b"$clusterTime"
                | b"$configTime"
                | b"$topologyTime"
                | b"$configServerState"
                | b"$gleStats"
                | b"$replData"
                | b"$oplogQueryData"
        ),
        Some(b'o' | b'l' | b'r' | b't' | b'e') => matches!(
            name,
            b"operationTime"
                | b"lastCommittedOpTime"
                | b"readOnly"
                | b"topologyVersion"
                | b"electionId"
                | b"opTime"
        ),
        _ => false,
    }
}

/// A reply that is being written over several steps: a batch of documents goes straight to where it is sent from.
#[derive(Debug)]
pub struct Draft {
    frame: BytesMut,
}

impl Draft {
    /// An empty body.
    #[must_use]
    pub fn new() -> Self {
        let mut frame = BytesMut::with_capacity(4096);
        // The lengths are put right at the end.
        let _ = OpMsgWriter::begin(&mut frame, 0, 0, MsgFlags::NONE);
        frame.put_i32_le(0);
        Self { frame }
    }

    /// Where fields are written.
    pub const fn out(&mut self) -> &mut BytesMut {
        &mut self.frame
    }

    /// The reply.
    #[must_use]
    pub fn finish(self) -> Reply {
        let mut reply = Reply { frame: self.frame, operation_time: None };
        reply.close();
        reply
    }
}

impl Default for Draft {
    fn default() -> Self {
        Self::new()
    }
}

impl Reply {
    /// A reply of our own: `fill` writes its fields.
    #[must_use]
    pub fn build(fill: impl FnOnce(&mut BytesMut)) -> Self {
        Self::with_capacity(256, fill)
    }

    /// A reply of our own, with room for this many bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize, fill: impl FnOnce(&mut BytesMut)) -> Self {
        let mut frame = BytesMut::with_capacity(capacity + BODY_AT + 128);
        // The lengths are put right by `seal`.
        let _ = OpMsgWriter::begin(&mut frame, 0, 0, MsgFlags::NONE);
        frame.put_i32_le(0);
        fill(&mut frame);
        let mut reply = Self { frame, operation_time: None };
        reply.close();
        reply
    }

    /// `{<fields of doc>}`
    #[must_use]
    pub fn from_doc(doc: Doc<'_>) -> Self {
        Self::with_capacity(doc.as_bytes().len(), |out| out.extend_from_slice(doc.elements()))
    }

    /// `{<fields of doc>, ok: 1}`
    #[must_use]
    pub fn ok_with(doc: Doc<'_>) -> Self {
        Self::with_capacity(doc.as_bytes().len(), |out| {
            out.extend_from_slice(doc.elements());
            splice::put_f64(out, "ok", 1.0);
        })
    }

    /// `{ok: 1}`
    #[must_use]
    pub fn ok() -> Self {
        Self::build(|out| splice::put_f64(out, "ok", 1.0))
    }

    /// An error.
    #[must_use]
    pub fn error(error: &CommandError) -> Self {
        let mut doc = document::DocBuf::new();
        doc.write(|w| error.write_reply(w));
        Self::from_doc(doc.as_doc())
    }

    /// A server's reply, passed on without what is not for clients.
    #[must_use]
    pub fn forward(reply: wire::Reply, summary: &Summary) -> Self {
        let frame = reply.into_frame(0, 0, MsgFlags::NONE);
        let mut reply = Self { frame, operation_time: summary.times.operation };
        reply.drop_internal();
        if summary.has_write_concern_error {
            reply.cloak_concern();
        }
        reply
    }

    /// A state-change error in `writeConcernError` would tell the driver that the router is no primary.
    fn cloak_concern(&mut self) {
        let body = self.body();
        let Some(concern) = body.get_doc("writeConcernError") else { return };
        let error = CommandError::from_reply(concern);
        if !(error.code().is_not_primary() || error.code().is_shutdown()) {
            return;
        }
        let error = error.cloaked();
        let cloaked = Self::with_capacity(body.as_bytes().len() + 32, |out| {
            splice::copy_fields(body, out, |name| match name {
                b"writeConcernError" => splice::Keep::No,
                _ => splice::Keep::Yes,
            });
            let open = splice::open_doc(out, "writeConcernError");
            splice::put_i32(out, "code", error.code().0);
            splice::put_str(out, "codeName", &error.code().name());
            splice::put_str(out, "errmsg", error.message());
            if let Some(info) = concern.get_doc("errInfo") {
                splice::put_doc(out, "errInfo", info);
            }
            open.finish(out);
        });
        self.frame = cloaked.frame;
    }

    /// The body as it stands.
    #[must_use]
    pub fn body(&self) -> Doc<'_> {
        Doc::new(self.frame.get(BODY_AT..).unwrap_or_default()).unwrap_or(Doc::empty())
    }

    /// The body's bytes, for an edit in place that keeps every length.
    pub(crate) fn body_mut(&mut self) -> &mut [u8] {
        self.frame.get_mut(BODY_AT..).unwrap_or_default()
    }

    /// Adds fields to the end of the body.
    pub fn append(&mut self, fill: impl FnOnce(&mut BytesMut)) {
        self.frame.truncate(self.frame.len().saturating_sub(1).max(BODY_AT + 4));
        fill(&mut self.frame);
        self.close();
    }

    /// The reply rests on a read or write at this time.
    #[must_use]
    pub fn at(mut self, operation_time: Option<Timestamp>) -> Self {
        self.operation_time = self.operation_time.max(operation_time);
        self
    }

    /// The whole message: gossip added, header written. `checksum` as the client's message had one, `more` when
    /// another answer follows without a request.
    #[must_use]
    pub fn into_message(
        mut self,
        clock: &Clock,
        request_id: i32,
        response_to: i32,
        checksum: bool,
        more: bool,
    ) -> BytesMut {
        let operation_time = self.operation_time;
        self.append(|out| clock.write_reply(out, operation_time));
        let length = self.frame.len() + if checksum { 4 } else { 0 };
        let mut flags = if checksum { MsgFlags::CHECKSUM_PRESENT } else { MsgFlags::NONE };
        if more {
            flags = flags.with(MsgFlags::MORE_TO_COME);
        }
        put_i32(&mut self.frame, 0, i32::try_from(length).unwrap_or(i32::MAX));
        put_i32(&mut self.frame, 4, request_id);
        put_i32(&mut self.frame, 8, response_to);
        if let Some(slot) = self.frame.get_mut(16..20) {
            slot.copy_from_slice(&flags.bits().to_le_bytes());
        }
        if checksum {
            let sum = crc32c::crc32c(&self.frame);
            self.frame.put_u32_le(sum);
        }
        self.frame
    }

    /// The body with gossip, for the legacy OP_REPLY.
    #[must_use]
    pub fn into_body(mut self, clock: &Clock) -> BytesMut {
        let operation_time = self.operation_time;
        self.append(|out| clock.write_reply(out, operation_time));
        self.frame.split_off(BODY_AT)
    }

    /// Terminator and length of the body.
    fn close(&mut self) {
        self.frame.put_u8(0);
        let length = i32::try_from(self.frame.len() - BODY_AT).unwrap_or(i32::MAX);
        put_i32(&mut self.frame, BODY_AT, length);
    }

    /// Cuts the internal fields out in place: only what follows the first of them moves, and in a reply of a server
    /// nearly nothing does (they are its last fields).
    fn drop_internal(&mut self) {
        let body = self.body();
        let end = body.as_bytes().len() - 1;
        // (from, to) ranges of the body that stay.
        let mut kept: smallvec::SmallVec<[(usize, usize); 8]> = smallvec::SmallVec::new();
        let mut at = 4;
        for field in body {
            let next = at + field.raw().len();
            if !is_internal(field.name_bytes()) {
                match kept.last_mut() {
                    Some((_, to)) if *to == at => *to = next,
                    _ => kept.push((at, next)),
                }
            }
            at = next;
        }
        if kept.last().is_some_and(|&(from, to)| from == 4 && to == end) {
            return;
        }
        let mut write = BODY_AT + 4;
        for (from, to) in kept {
            let (from, to) = (BODY_AT + from, BODY_AT + to);
            if from != write {
                self.frame.copy_within(from..to, write);
            }
            write += to - from;
        }
        self.frame.truncate(write);
        self.close();
    }
}

fn put_i32(frame: &mut BytesMut, at: usize, value: i32) {
    if let Some(slot) = frame.get_mut(at..at + 4) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_reply(body: &bson::RawDocumentBuf) -> wire::Reply {
        let mut frame = BytesMut::new();
        OpMsgWriter::write(&mut frame, 1, 2, MsgFlags::NONE, Doc::new(body.as_bytes()).unwrap()).unwrap();
        let (header, frame) = wire::cut_bytes(&mut frame, wire::MAX_SERVER_MESSAGE_BYTES).unwrap().unwrap();
        wire::Reply::parse(header, frame).unwrap()
    }

    #[test]
    fn a_forwarded_reply_loses_what_is_internal_and_gains_the_gossip() {
        let time = |n| bson::Timestamp { time: n, increment: 1 };
        let body = bson::rawdoc! {
            "n": 1, "electionId": bson::oid::ObjectId::new(), "opTime": { "t": 1_i64 }, "ok": 1.0,
            "lastCommittedOpTime": time(3), "$configTime": time(4), "operationTime": time(5),
        };
        let shard = server_reply(&body);
        let summary = Summary::of(shard.body());
        assert!(summary.ok);
        assert_eq!(summary.times.config, Some(Timestamp::new(4, 1)));
        let clock = Clock::default();
        clock.observe(&Times { cluster: Some(Timestamp::new(9, 1)), ..Times::default() });
        let message = Reply::forward(shard, &summary).into_message(&clock, 77, 88, false, false);
        let frame = wire::Frame::from_bytes(message.freeze(), wire::MAX_SERVER_MESSAGE_BYTES).unwrap();
        assert_eq!((frame.header().request_id, frame.header().response_to), (77, 88));
        let parsed = wire::OpMsg::parse(frame).unwrap();
        let names: Vec<&str> = parsed.body().iter().map(document::Field::name).collect();
        assert_eq!(names, ["n", "ok", "operationTime", "$clusterTime"]);
        assert_eq!(parsed.body().get("operationTime").unwrap().as_timestamp(), Some(Timestamp::new(5, 1)));
    }
}
