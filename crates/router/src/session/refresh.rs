//! Keeping the records of sessions alive: `config.system.sessions`, which all members of the cluster share.
//!
//! A session whose record is gone (half an hour without a refresh by anyone) is over: shards drop its transactions and
//! cursors, and this router drops the cursors that it holds for it.

use std::collections::{BTreeMap, HashSet};
use std::time::{Instant, SystemTime};

use bytes::BytesMut;
use chunk_map::{CollectionRouting, Namespace, ShardId};
use document::{Doc, DocBuf, splice};
use topology::ReadPreference;

use super::SessionId;
use super::registry::Due;
use crate::Router;
use crate::error::{CommandError, CommandResult};
use crate::remote::config::internal_request;
use crate::remote::routing::{Route, StaleRetries, Versions, shard_key_error};
use crate::remote::{Retry, ShardReply};

/// Where the records are.
const DATABASE: &str = "config";
const COLLECTION: &str = "system.sessions";

/// Most sessions of one command (mongos 5.0).
const MAX_BATCH: usize = 1_000;

/// What is asked of the records of some sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Refresh,
    Remove,
    Find,
}

impl Router {
    /// Tells the cluster which sessions live, and ends the cursors of those that do not.
    pub async fn refresh_sessions(&self) -> CommandResult<()> {
        let due = self.sessions().next_period();
        let (begun, at) = (Instant::now(), crate::local::host::millis(SystemTime::now()));
        let told = self.tell(&due).await;
        self.sessions().refreshed(&due, at, begun.elapsed());
        if told.is_err() {
            self.sessions().put_back(&due);
        }
        told
    }

    async fn tell(&self, due: &Due) -> CommandResult<()> {
        let mut live: HashSet<SessionId> = due.used.iter().copied().collect();
        let with_cursors = self.cursors().sessions();
        self.on_records(Ask::Refresh, &due.used).await?;
        self.on_records(Ask::Remove, &due.ended).await?;
        let idle: Vec<SessionId> =
            with_cursors.into_iter().filter(|session| !live.contains(session)).collect();
        let Some(found) = self.on_records(Ask::Find, &idle).await? else { return Ok(()) };
        live.extend(found);
        let gone: HashSet<SessionId> = idle.into_iter().filter(|session| !live.contains(session)).collect();
        if !gone.is_empty() {
            self.cursors().kill_sessions(|session| gone.contains(session));
        }
        Ok(())
    }

    /// Asks the owners of the records; `None` when there is no collection for them yet (the config servers create it).
    async fn on_records(&self, ask: Ask, sessions: &[SessionId]) -> CommandResult<Option<Vec<SessionId>>> {
        let mut found = Vec::new();
        for batch in sessions.chunks(MAX_BATCH) {
            let mut retries = StaleRetries::new(self);
            loop {
                match self.on_batch(ask, batch).await {
                    Err(error) if retries.again(&error) => {}
                    Ok(None) => return Ok(None),
                    Ok(Some(more)) => {
                        found.extend(more);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Some(found))
    }

    async fn on_batch(&self, ask: Ask, sessions: &[SessionId]) -> CommandResult<Option<Vec<SessionId>>> {
        let route = self.route(&Namespace::new(DATABASE, COLLECTION)).await?;
        let Route::Sharded(routing) = route else { return Ok(None) };
        let mut found = Vec::new();
        for (shard, sessions) in by_owner(&routing, sessions)? {
            let versions = Versions::Sharded(routing.shard_version(&shard));
            let mut request = internal_request(self.servers(), DATABASE, |out| {
                match ask {
                    Ask::Refresh => write_refresh(out, &sessions),
                    Ask::Remove => write_remove(out, &sessions),
                    Ask::Find => write_find(out, &sessions),
                }
                versions.write(out);
            })?;
            let primary = ReadPreference::PRIMARY;
            let answer = self.ask_shard(&shard, &mut request, &primary, Retry::Idempotent, None).await?;
            check(&answer)?;
            if ask == Ask::Find {
                found.extend(ids(answer.reply.body()));
            }
        }
        Ok(Some(found))
    }
}

/// The sessions of each shard.
fn by_owner(
    routing: &CollectionRouting,
    sessions: &[SessionId],
) -> CommandResult<BTreeMap<ShardId, Vec<SessionId>>> {
    let mut owners: BTreeMap<ShardId, Vec<SessionId>> = BTreeMap::new();
    for session in sessions {
        let mut record = DocBuf::new();
        record.append("_id", &session.to_doc());
        let key = routing.key.key_from_document(record.as_doc()).map_err(shard_key_error)?;
        let target = routing.target_key(&key);
        let shard = target.map_or_else(|| routing.first_chunk().shard, |target| target.shard);
        owners.entry(shard).or_default().push(*session);
    }
    Ok(owners)
}

/// An error of a single statement is the command's: all of them can be repeated.
fn check(answer: &ShardReply) -> CommandResult<()> {
    let errors = answer.reply.body().get_array("writeErrors");
    match errors.and_then(|errors| errors.first()).and_then(|item| item.value().as_doc()) {
        Some(item) => Err(CommandError::from_write_error(item)),
        None => Ok(()),
    }
}

fn ids(body: Doc<'_>) -> Vec<SessionId> {
    let batch = body.get_doc("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let records = batch.into_iter().flatten().filter_map(|item| item.value().as_doc());
    records.filter_map(|record| record.get_doc("_id").and_then(SessionId::from_lsid)).collect()
}

fn items(out: &mut BytesMut, name: &str, sessions: &[SessionId], each: impl Fn(&mut BytesMut, &SessionId)) {
    let array = splice::open_array(out, name);
    for (index, session) in sessions.iter().enumerate() {
        let item = splice::open_doc(out, &index.to_string());
        each(out, session);
        item.finish(out);
    }
    array.finish(out);
}

fn by_id(out: &mut BytesMut, session: &SessionId) {
    let query = splice::open_doc(out, "q");
    splice::put_doc(out, "_id", session.to_doc().as_doc());
    query.finish(out);
}

fn write_refresh(out: &mut BytesMut, sessions: &[SessionId]) {
    splice::put_str(out, "update", COLLECTION);
    splice::put_bool(out, "ordered", false);
    items(out, "updates", sessions, |out, session| {
        by_id(out, session);
        let pipeline = splice::open_array(out, "u");
        let stage = splice::open_doc(out, "0");
        let set = splice::open_doc(out, "$set");
        splice::put_str(out, "lastUse", "$$NOW");
        set.finish(out);
        stage.finish(out);
        pipeline.finish(out);
        splice::put_bool(out, "upsert", true);
    });
    write_majority(out);
}

fn write_remove(out: &mut BytesMut, sessions: &[SessionId]) {
    splice::put_str(out, "delete", COLLECTION);
    splice::put_bool(out, "ordered", false);
    items(out, "deletes", sessions, |out, session| {
        by_id(out, session);
        splice::put_i32(out, "limit", 0);
    });
    write_majority(out);
}

fn write_find(out: &mut BytesMut, sessions: &[SessionId]) {
    splice::put_str(out, "find", COLLECTION);
    let filter = splice::open_doc(out, "filter");
    let id = splice::open_doc(out, "_id");
    let any = splice::open_array(out, "$in");
    for (index, session) in sessions.iter().enumerate() {
        splice::put_doc(out, &index.to_string(), session.to_doc().as_doc());
    }
    any.finish(out);
    id.finish(out);
    filter.finish(out);
    let projection = splice::open_doc(out, "projection");
    splice::put_i32(out, "_id", 1);
    projection.finish(out);
    splice::put_i64(out, "batchSize", i64::try_from(MAX_BATCH).unwrap_or(i64::MAX));
    splice::put_bool(out, "singleBatch", true);
    splice::put_doc(out, "readConcern", Doc::empty());
}

fn write_majority(out: &mut BytesMut) {
    let concern = splice::open_doc(out, "writeConcern");
    splice::put_str(out, "w", "majority");
    splice::put_i32(out, "wtimeout", 15_000);
    concern.finish(out);
}
