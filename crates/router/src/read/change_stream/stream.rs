//! An open change stream: the streams of all shards and of `config.shards`, as one.

use bytes::BytesMut;
use document::splice::{self, Keep};
use document::{Doc, Timestamp, Value};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Duration, Instant};

use super::order::{self, Next, Place};
use super::token::{self, Token};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::cursor::{GetMoreOptions, ShardCursor};
use crate::error::{CommandError, CommandResult};
use crate::remote::Retry;
use crate::remote::config::internal_request;

/// How long one shard is waited for at a time: an event on another one waits no longer for the silence of this one.
const SHARD_WAIT: Duration = Duration::from_millis(250);
/// The same, once an event is at hand and the others were nudged.
const HELD_WAIT: Duration = Duration::from_millis(10);
/// Most bytes of events in one batch; the first event is always taken.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;

/// What a stream is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A shard's events.
    Shard,
    /// The list of shards: its events are for the router.
    ShardList,
}

/// One member stream.
#[derive(Debug)]
pub(super) struct Remote {
    source: Source,
    cursor: ShardCursor,
    promised: Token,
    /// The shard was made to write something at this time already.
    nudged: Option<Timestamp>,
}

impl Remote {
    pub(super) fn new(source: Source, cursor: ShardCursor, start: Timestamp) -> Self {
        let promised = cursor.post_batch().and_then(Token::parse);
        Self {
            source,
            cursor,
            promised: promised.unwrap_or_else(|| Token::high_water_mark(start)),
            nudged: None,
        }
    }

    fn place(&self) -> Place<'_> {
        Place {
            next: self.cursor.batch().peek().and_then(event_token),
            promised: self.promised.data(),
            ended: self.cursor.is_exhausted(),
        }
    }

    async fn fetch(&mut self, op: &Op<'_>, wait: Duration) -> CommandResult<()> {
        let ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).max(1);
        let options = GetMoreOptions { await_ms: Some(ms), ..GetMoreOptions::default() };
        self.cursor.fetch(op.router.servers(), options).await?;
        if let Some(token) = self.cursor.post_batch().and_then(Token::parse) {
            self.promised = token;
        }
        Ok(())
    }
}

/// Where an event stands: its sort key, which no stage of the client can change.
fn event_token(event: Doc<'_>) -> Option<&str> {
    let key = event.get("$sortKey")?;
    let parts = key.as_array()?;
    match parts.first()?.value() {
        Value::Document(token) => token.get_str("_data"),
        value => value.as_str(),
    }
}

/// An event that the client has seen already.
#[derive(Debug)]
pub(super) struct Resume {
    pub(super) token: Token,
    /// A shard has brought it again.
    pub(super) found: bool,
}

/// An open change stream.
#[derive(Debug)]
pub struct ChangeStream {
    pub(super) remotes: Vec<Remote>,
    /// The event that must come first, as it was the last one seen.
    pub(super) resume_from: Option<Resume>,
    /// What to ask a shard that is added: everything of the command but its start, by its own bytes.
    pub(super) command: Box<[u8]>,
    /// The last token that the client was told.
    pub(super) told: Token,
}

/// What a batch ended with.
#[derive(Debug)]
pub(crate) struct Batch {
    /// No event follows.
    pub(crate) ended: bool,
    /// `postBatchResumeToken`
    pub(crate) token: document::DocBuf,
}

impl ChangeStream {
    fn places(&self) -> Vec<Place<'_>> {
        self.remotes.iter().map(Remote::place).collect()
    }

    /// Writes events as array elements to `out`; waits up to `wait` for the first.
    pub(crate) async fn next_batch(
        &mut self,
        op: &Op<'_>,
        out: &mut BytesMut,
        batch_size: Option<u64>,
        wait: Duration,
    ) -> CommandResult<Batch> {
        let deadline = Instant::now() + wait;
        let start = out.len();
        let mut given = 0_u64;
        let mut asked = false;
        let mut ended = false;
        loop {
            if batch_size.is_some_and(|size| given >= size) {
                break;
            }
            match order::next(&self.places()) {
                Next::Event(index) => {
                    let Some(size) = self.event_size(index) else { break };
                    if given > 0 && out.len() - start + size > MAX_BATCH_BYTES {
                        break;
                    }
                    if self.take(op, index, out, given).await? {
                        given += 1;
                    }
                }
                Next::End => {
                    self.told_end();
                    ended = true;
                    break;
                }
                Next::Ask => {
                    let now = Instant::now();
                    if given > 0 || (asked && now >= deadline) {
                        break;
                    }
                    asked = true;
                    self.ask(op, deadline.saturating_duration_since(now)).await?;
                }
            }
        }
        if !ended && order::next(&self.places()) == Next::End {
            self.told_end();
            ended = true;
        } else if !ended {
            self.tell_promise();
        }
        Ok(Batch { ended, token: self.told.doc().into() })
    }

    fn event_size(&self, index: usize) -> Option<usize> {
        Some(self.remotes.get(index)?.cursor.batch().peek()?.as_bytes().len())
    }

    /// Hands one event out; `false` when it was not for the client.
    async fn take(
        &mut self,
        op: &Op<'_>,
        index: usize,
        out: &mut BytesMut,
        given: u64,
    ) -> CommandResult<bool> {
        let Some(remote) = self.remotes.get_mut(index) else { return Ok(false) };
        let Some(event) = remote.cursor.batch().peek() else { return Ok(false) };
        if remote.source == Source::ShardList {
            let added = added_shard(event);
            remote.cursor.advance();
            if let Some((shard, time)) = added {
                self.open_added(op, &shard, time).await?;
            }
            return Ok(false);
        }
        let data = event_token(event).unwrap_or_default();
        if let Some(resume) = &mut self.resume_from {
            match data.cmp(resume.token.data()) {
                std::cmp::Ordering::Less => {
                    remote.cursor.advance();
                    return Ok(false);
                }
                // Several shards may bring the same one (an invalidation).
                std::cmp::Ordering::Equal => {
                    remote.cursor.advance();
                    resume.found = true;
                    return Ok(false);
                }
                std::cmp::Ordering::Greater if resume.found => self.resume_from = None,
                std::cmp::Ordering::Greater => return Err(not_found(&resume.token)),
            }
        }
        if let Some(token) = event.get_doc("_id").and_then(Token::parse) {
            self.told = token;
        }
        put_event(out, given, event);
        remote.cursor.advance();
        Ok(true)
    }

    /// The token of the end: that of the invalidation which came first.
    fn told_end(&mut self) {
        let ended = self.remotes.iter().filter(|remote| remote.cursor.is_exhausted());
        if let Some(first) = ended.min_by(|a, b| a.promised.data().cmp(b.promised.data())) {
            self.told = first.promised.clone();
        }
    }

    /// Between events the client is told how far all streams are read; never less than before.
    fn tell_promise(&mut self) {
        let places = self.places();
        if matches!(order::next(&places), Next::Event(_)) {
            return;
        }
        let lowest = self
            .remotes
            .iter()
            .filter(|remote| remote.cursor.batch().is_empty())
            .min_by(|a, b| a.promised.data().cmp(b.promised.data()));
        if let Some(lowest) = lowest.filter(|lowest| lowest.promised.data() > self.told.data())
            && self.resume_from.as_ref().is_none_or(|resume| resume.found)
        {
            self.told = lowest.promised.clone();
        }
    }

    /// Asks the streams that have nothing at hand. Shards that only keep an event of another one back are made to write
    /// something first: what they promise moves with their oplog alone, which a silent shard moves every ten seconds.
    async fn ask(&mut self, op: &Op<'_>, left: Duration) -> CommandResult<()> {
        let held = order::holders(&self.places())
            .and_then(|(data, holders)| Some((token::cluster_time(data)?, holders)));
        let wait = match held {
            Some((time, holders)) => {
                let after = Timestamp::new(time.seconds, time.increment.saturating_add(1));
                self.nudge(op, &holders, after).await;
                HELD_WAIT.min(left)
            }
            None if self.remotes.len() > 1 => SHARD_WAIT.min(left),
            None => left,
        };
        let mut fetches: FuturesUnordered<_> = self
            .remotes
            .iter_mut()
            .filter(|remote| remote.cursor.batch().is_empty() && !remote.cursor.is_exhausted())
            .map(|remote| remote.fetch(op, wait))
            .collect();
        while let Some(fetched) = fetches.next().await {
            fetched?;
        }
        Ok(())
    }

    async fn nudge(&mut self, op: &Op<'_>, holders: &[usize], time: Timestamp) {
        let mut notes: FuturesUnordered<_> = self
            .remotes
            .iter_mut()
            .enumerate()
            .filter(|(index, remote)| holders.contains(index) && remote.nudged < Some(time))
            .map(|(_, remote)| {
                remote.nudged = Some(time);
                note(op, remote.cursor.set(), time)
            })
            .collect();
        while let Some(noted) = notes.next().await {
            if let Err(error) = noted {
                // Then the event comes when the shard writes by itself.
                tracing::debug!(%error, "a silent shard could not be made to write");
            }
        }
    }

    /// Opens the stream of a shard that was added, from the moment it was.
    async fn open_added(&mut self, op: &Op<'_>, shard: &str, time: Timestamp) -> CommandResult<()> {
        if let Err(error) = op.router.registry().reload().await {
            tracing::warn!(%error, "could not read the list of shards");
        }
        let id = chunk_map::ShardId::new(shard);
        let set = op.router.shard_set(&id).await?;
        if self
            .remotes
            .iter()
            .any(|remote| remote.source == Source::Shard && remote.cursor.set().name() == set.name())
        {
            return Ok(());
        }
        let command = Doc::new(&self.command).unwrap_or(Doc::empty());
        let after = Timestamp::new(time.seconds, time.increment.saturating_add(1));
        let remote = super::open_on(op, command, &id, after).await?;
        self.remotes.push(remote);
        Ok(())
    }
}

/// Has a shard write a no-op at this time or later, and waits until a majority has it.
async fn note(op: &Op<'_>, set: &std::sync::Arc<topology::ReplicaSet>, time: Timestamp) -> CommandResult<()> {
    let servers = op.router.servers();
    let mut request = internal_request(servers, "admin", |out| {
        splice::put_i32(out, "appendOplogNote", 1);
        splice::put_timestamp(out, "maxClusterTime", time);
        let data = splice::open_doc(out, "data");
        splice::put_str(out, "msg", "change stream waits for this shard");
        data.finish(out);
        let concern = splice::open_doc(out, "writeConcern");
        splice::put_str(out, "w", "majority");
        splice::put_i32(out, "wtimeout", 1000);
        concern.finish(out);
    })?;
    let primary = topology::ReadPreference::PRIMARY;
    let deadline = Some(Instant::now() + Duration::from_secs(2));
    servers.ask_set(set, &mut request, &primary, Retry::Idempotent, deadline).await.map(|_| ())
}

/// A shard's name and time, if the event of `config.shards` says that it was added.
fn added_shard(event: Doc<'_>) -> Option<(String, Timestamp)> {
    if event.get_str("operationType") != Some("insert") {
        return None;
    }
    let name = event.get_doc("documentKey")?.get_str("_id")?;
    Some((name.to_owned(), event.get("clusterTime")?.as_timestamp()?))
}

fn not_found(resume: &Token) -> CommandError {
    CommandError::new(
        ErrorCode(280),
        format!("cannot resume stream; the resume token was not found. {{_data: \"{}\"}}", resume.data()),
    )
}

/// Writes one array element without the merge's metadata.
fn put_event(out: &mut BytesMut, index: u64, event: Doc<'_>) {
    let open = splice::open_doc(out, &index.to_string());
    splice::copy_fields(event, out, |name| if name == b"$sortKey" { Keep::No } else { Keep::Yes });
    open.finish(out);
}
