//! Commands to the config servers, and reads of their collections.

use bytes::BytesMut;
use document::{Doc, DocBuf, Timestamp, splice};
use tokio::time::{Duration, Instant};
use topology::ReadPreference;
use wire::{MsgFlags, OpMsgWriter};

use super::ask::{Retry, ShardReply};
use super::servers::Servers;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// Time for one read of metadata (`kDefaultConfigCommandTimeout`).
const READ_LIMIT: Duration = Duration::from_secs(30);

/// What a read of a config collection asks for.
#[derive(Debug, Clone)]
pub struct ConfigFind {
    /// Collection in the database `config`.
    pub collection: &'static str,
    /// The filter.
    pub filter: DocBuf,
    /// The order.
    pub sort: Option<DocBuf>,
    /// How fresh and how consistent.
    pub concern: Concern,
    /// Which member.
    pub preference: ReadPreference,
}

/// Read concern of a metadata read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Majority, not older than the highest `$configTime` seen: a router reads what it (or a peer) caused.
    Majority,
    /// One point in time, not older than the highest `$configTime` seen; the reply tells which.
    Snapshot,
    /// That point in time.
    SnapshotAt(Timestamp),
}

/// The documents of a read, and the time that they were read at (snapshots only).
#[derive(Debug, Default)]
pub struct ConfigDocuments {
    /// In the order asked for.
    pub documents: Vec<DocBuf>,
    /// `atClusterTime` of the snapshot.
    pub at: Option<Timestamp>,
}

/// A request of the router's own: `fill` writes the command, the rest follows.
pub(crate) fn internal_request(
    servers: &Servers,
    db: &str,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<BytesMut> {
    let mut out = BytesMut::with_capacity(512);
    let writer = OpMsgWriter::begin(&mut out, 0, 0, MsgFlags::NONE);
    let body = splice::open(&mut out);
    fill(&mut out);
    splice::put_str(&mut out, "$db", db);
    servers.clock().write_request(&mut out);
    body.finish(&mut out);
    writer
        .finish(&mut out)
        .map_err(|error| CommandError::new(ErrorCode::BSONObjectTooLarge, error.to_string()))?;
    Ok(out)
}

impl Servers {
    /// Runs a command on the config servers' primary. `fill` writes its fields, `writeConcern` included.
    pub async fn config_command(
        &self,
        db: &str,
        retry: Retry,
        deadline: Option<Instant>,
        fill: impl FnOnce(&mut BytesMut) + Send,
    ) -> CommandResult<ShardReply> {
        let mut request = internal_request(self, db, fill)?;
        self.ask_set(self.config_set(), &mut request, &ReadPreference::PRIMARY, retry, deadline).await
    }

    /// Reads a config collection to its end.
    pub async fn config_find(&self, find: &ConfigFind) -> CommandResult<ConfigDocuments> {
        let deadline = Some(Instant::now() + READ_LIMIT);
        let mut request = internal_request(self, "config", |out| self.write_find(out, find))?;
        let answer = self
            .ask_set(self.config_set(), &mut request, &find.preference, Retry::Idempotent, deadline)
            .await?;
        let mut found = ConfigDocuments::default();
        let mut cursor = take_batch(answer.reply.body(), "firstBatch", &mut found)?;
        // A cursor goes on where it was opened.
        let server = answer.server;
        while cursor != 0 {
            let mut request = internal_request(self, "config", |out| {
                splice::put_i64(out, "getMore", cursor);
                splice::put_str(out, "collection", find.collection);
            })?;
            let answer = self
                .exchange(self.config_set(), &server, &mut request, deadline)
                .await
                .map_err(super::ask::transport_error)?;
            if !answer.summary.ok {
                return Err(CommandError::from_reply(answer.reply.body()));
            }
            cursor = take_batch(answer.reply.body(), "nextBatch", &mut found)?;
        }
        Ok(found)
    }

    fn write_find(&self, out: &mut BytesMut, find: &ConfigFind) {
        splice::put_str(out, "find", find.collection);
        splice::put_doc(out, "filter", find.filter.as_doc());
        if let Some(sort) = &find.sort {
            splice::put_doc(out, "sort", sort.as_doc());
        }
        let concern = splice::open_doc(out, "readConcern");
        match find.concern {
            Concern::Majority => {
                splice::put_str(out, "level", "majority");
                if let Some(time) = self.clock().config_time() {
                    let after = splice::open_doc(out, "afterOpTime");
                    splice::put_timestamp(out, "ts", time);
                    splice::put_i64(out, "t", -1);
                    after.finish(out);
                }
            }
            Concern::Snapshot => {
                splice::put_str(out, "level", "snapshot");
                if let Some(time) = self.clock().config_time() {
                    splice::put_timestamp(out, "afterClusterTime", time);
                }
            }
            Concern::SnapshotAt(time) => {
                splice::put_str(out, "level", "snapshot");
                splice::put_timestamp(out, "atClusterTime", time);
            }
        }
        concern.finish(out);
        let limit = i64::try_from(READ_LIMIT.as_millis()).unwrap_or(i64::MAX);
        splice::put_i64(out, "maxTimeMSOpOnly", limit);
        if !find.preference.is_primary() {
            splice::put_doc(out, "$readPreference", find.preference.to_doc().as_doc());
        }
    }
}

/// Takes the documents of one batch over; gives the cursor's id, 0 when it is exhausted.
fn take_batch(body: Doc<'_>, batch: &str, into: &mut ConfigDocuments) -> CommandResult<i64> {
    let malformed = || CommandError::new(ErrorCode::InternalError, "a config server's reply has no cursor");
    let cursor = body.get_doc("cursor").ok_or_else(malformed)?;
    for item in cursor.get_array(batch).ok_or_else(malformed)? {
        let doc = item.value().as_doc().ok_or_else(malformed)?;
        into.documents.push(DocBuf::from(doc));
    }
    if let Some(at) = cursor.get("atClusterTime").and_then(document::Value::as_timestamp) {
        into.at = Some(at);
    }
    cursor.get_i64("id").ok_or_else(malformed)
}
