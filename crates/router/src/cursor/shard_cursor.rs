//! One cursor on one member of a shard.

use std::sync::Arc;

use bytes::BytesMut;
use document::{Doc, DocBuf, splice};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant};
use topology::{ReplicaSet, Server, TopologyError};

use super::batch::{Batch, CursorReply};
use super::graveyard::Graveyard;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::local::asked;
use crate::remote::ask::transport_error;
use crate::remote::config::internal_request;
use crate::remote::{Servers, ShardReply};
use crate::request::ApiParameters;
use crate::session::SessionId;
use crate::transaction::CursorTag;

/// How long a killCursors may take: a member that does not answer has its own time-outs.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// What one shard's batch of a merge may weigh when the client names no number of documents.
const MERGE_BATCH_BYTES: u64 = 1 << 20;
/// The fewest documents of such a batch: what a first batch has.
const LEAST_MERGE_BATCH: u64 = 101;

/// A cursor that is open on a member.
#[derive(Debug, Clone)]
pub(super) struct OpenCursor {
    set: Arc<ReplicaSet>,
    server: Arc<Server>,
    /// 0 when it is exhausted.
    id: i64,
    db: Box<str>,
    collection: Box<str>,
    session: CursorSession,
}

/// A getMore that was sent while the client reads what came before.
pub(super) type Ahead = JoinHandle<Result<ShardReply, TopologyError>>;

/// A shard's cursor and what it sent last. Dropped before its end, it is closed on its member in the background.
#[derive(Debug)]
pub struct ShardCursor {
    open: OpenCursor,
    batch: Batch,
    /// The batch after it is on its way, or has come.
    ahead: Option<Ahead>,
    /// `postBatchResumeToken` of its last answer.
    post_batch: Option<DocBuf>,
    /// Documents and bytes handed out so far: how large the documents are.
    given: (u64, u64),
    graveyard: Arc<Graveyard>,
}

impl Drop for ShardCursor {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Under whose name a cursor was opened: each getMore must say the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct CursorSession {
    /// The session.
    pub session: Option<SessionId>,
    /// The transaction.
    pub(crate) transaction: Option<CursorTag>,
}

/// What a getMore carries besides the cursor.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetMoreOptions<'a> {
    /// Documents asked for; `None` lets the shard fill a batch.
    pub batch_size: Option<i64>,
    /// How long an awaitData cursor waits, in milliseconds.
    pub await_ms: Option<i64>,
    /// End of the client's budget.
    pub deadline: Option<Instant>,
    /// Of the client's command.
    pub api: ApiParameters<'a>,
    /// Whether shards may be asked for more than this batch needs.
    pub read_ahead: bool,
}

impl ShardCursor {
    /// A cursor that was opened by `server`, with its first batch.
    #[must_use]
    pub fn new(
        servers: &Servers,
        set: Arc<ReplicaSet>,
        server: Arc<Server>,
        db: &str,
        collection: &str,
        session: CursorSession,
        opened: CursorReply,
    ) -> Self {
        let CursorReply { id, batch, at: _, post_batch } = opened;
        let open = OpenCursor { set, server, id, db: db.into(), collection: collection.into(), session };
        Self {
            open,
            batch,
            ahead: None,
            post_batch,
            given: (0, 0),
            graveyard: Arc::clone(servers.graveyard()),
        }
    }

    /// The documents at hand.
    #[must_use]
    pub const fn batch(&self) -> &Batch {
        &self.batch
    }

    /// How far a change stream was read by its last answer.
    #[must_use]
    pub fn post_batch(&self) -> Option<Doc<'_>> {
        self.post_batch.as_ref().map(DocBuf::as_doc)
    }

    /// Looks for the sort key of the next document.
    pub fn scan(&mut self) {
        self.batch.scan();
    }

    /// Goes past the next document.
    pub fn advance(&mut self) {
        let bytes = self.batch.peek().map_or(0, |doc| doc.as_bytes().len());
        self.given.0 += 1;
        self.given.1 += u64::try_from(bytes).unwrap_or(u64::MAX);
        self.batch.advance();
    }

    /// How many documents make a batch of about [`MERGE_BATCH_BYTES`]: a merge holds one batch a shard, and a shard that
    /// is asked for no number sends 16 MiB.
    #[must_use]
    pub fn modest_batch(&self) -> u64 {
        let (documents, bytes) = self.given;
        match bytes.checked_div(documents) {
            Some(average) if average > 0 => (MERGE_BATCH_BYTES / average).max(LEAST_MERGE_BATCH),
            _ => LEAST_MERGE_BATCH,
        }
    }

    /// The client's options with the number of documents that a merge asks for.
    #[must_use]
    pub(super) fn options<'a>(
        &self,
        shard_batch: Option<u64>,
        options: GetMoreOptions<'a>,
    ) -> GetMoreOptions<'a> {
        let size = shard_batch.unwrap_or_else(|| self.modest_batch());
        GetMoreOptions { batch_size: i64::try_from(size).ok(), ..options }
    }

    /// Will the shard send no more?
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.open.id == 0
    }

    /// The cursor's id on the shard.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.open.id
    }

    /// Who holds it.
    #[must_use]
    pub const fn server(&self) -> &Arc<Server> {
        &self.open.server
    }

    /// The set whose member holds it.
    #[must_use]
    pub const fn set(&self) -> &Arc<ReplicaSet> {
        &self.open.set
    }

    /// The namespace that it reads, for getMore and killCursors.
    #[must_use]
    pub fn namespace(&self) -> (&str, &str) {
        (&self.open.db, &self.open.collection)
    }

    /// Takes over what a getMore that was forwarded by others found out.
    pub const fn set_id(&mut self, id: i64) {
        self.open.id = id;
    }

    /// The request for the next batch: to the member that holds the cursor, unversioned, never retried.
    pub fn get_more_request(
        &self,
        servers: &Servers,
        options: GetMoreOptions<'_>,
        extra: impl FnOnce(&mut BytesMut),
    ) -> CommandResult<BytesMut> {
        internal_request(servers, &self.open.db, |out| {
            splice::put_i64(out, "getMore", self.open.id);
            splice::put_str(out, "collection", &self.open.collection);
            if let Some(size) = options.batch_size {
                splice::put_i64(out, "batchSize", size);
            }
            if let Some(ms) = options.await_ms {
                splice::put_i64(out, "maxTimeMS", ms);
            }
            crate::remote::envelope::write_time_limit(out, options.deadline);
            if let Some(session) = self.open.session.session {
                session.write(out);
            }
            if let Some(transaction) = self.open.session.transaction {
                transaction.write(out);
            }
            options.api.write(out);
            extra(out);
        })
    }

    /// Asks for the next batch without waiting for it: [`Self::fetch`] takes it, or the error that came instead. The
    /// cursor must be one that nothing else but its getMores uses: outside of transactions, without a time limit.
    pub fn read_ahead(&mut self, servers: &Arc<Servers>, options: GetMoreOptions<'_>) {
        if self.ahead.is_some() || self.is_exhausted() {
            return;
        }
        // What is wrong with the request, the next fetch will say.
        let Ok(mut request) = self.get_more_request(servers, options, |_| {}) else { return };
        let servers = Arc::clone(servers);
        let (set, server) = (Arc::clone(&self.open.set), Arc::clone(&self.open.server));
        self.ahead =
            Some(tokio::spawn(async move { servers.exchange(&set, &server, &mut request, None).await }));
    }

    /// Fetches the next batch.
    pub async fn fetch(&mut self, servers: &Servers, options: GetMoreOptions<'_>) -> CommandResult<()> {
        let answer = match &mut self.ahead {
            None => {
                let mut request = self.get_more_request(servers, options, |_| {})?;
                servers.exchange(&self.open.set, &self.open.server, &mut request, options.deadline).await
            }
            Some(ahead) => {
                let begun = Instant::now();
                let answer = ahead.await;
                self.ahead = None;
                asked::note(self.open.set.name(), begun.elapsed());
                answer.map_err(|error| {
                    CommandError::new(ErrorCode::InternalError, format!("reading ahead ended: {error}"))
                })?
            }
        };
        let answer = answer.map_err(transport_error)?;
        if !answer.summary.ok {
            let error = CommandError::from_reply(answer.reply.body());
            if error.code() == ErrorCode::CursorNotFound {
                // After any other error it may still be there: a command can fail before it has its cursor.
                self.open.id = 0;
            }
            return Err(error.context(format_args!("Error on remote shard {}", self.open.server.address())));
        }
        let reply = CursorReply::parse(&answer.reply.into_body())?;
        self.open.id = reply.id;
        self.batch = reply.batch;
        self.post_batch = reply.post_batch;
        Ok(())
    }

    /// Ends it here; its shard is told in the background.
    pub fn give_up(&mut self) {
        if self.open.id != 0 {
            self.graveyard.bury(self.open.clone(), self.ahead.take());
            self.open.id = 0;
        }
    }

    /// Somebody else owns the cursor on the shard from now on.
    pub const fn release(&mut self) {
        self.open.id = 0;
    }
}

impl OpenCursor {
    /// Closes it on its member, whatever comes back: the member's own time-out is the safety net.
    pub(super) async fn kill(self, servers: &Servers) {
        let request = internal_request(servers, &self.db, |out| {
            splice::put_str(out, "killCursors", &self.collection);
            let cursors = splice::open_array(out, "cursors");
            splice::put_i64(out, "0", self.id);
            cursors.finish(out);
            if let Some(session) = self.session.session {
                session.write(out);
            }
        });
        let Ok(mut request) = request else { return };
        let limit = Some(Instant::now() + KILL_LIMIT);
        if let Err(error) = servers.exchange(&self.set, &self.server, &mut request, limit).await {
            tracing::debug!(server = %self.server.address(), %error, "a shard's cursor was not closed");
        }
    }
}
