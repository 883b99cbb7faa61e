//! One cursor on one member of a shard.

use std::sync::Arc;

use bytes::BytesMut;
use document::splice;
use tokio::time::Instant;
use topology::{ReplicaSet, Server};

use super::batch::{Batch, CursorReply};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::remote::Servers;
use crate::remote::ask::transport_error;
use crate::remote::config::internal_request;
use crate::session::SessionId;

/// A shard's cursor and what it sent last.
#[derive(Debug)]
pub struct ShardCursor {
    set: Arc<ReplicaSet>,
    server: Arc<Server>,
    /// 0 when it is exhausted.
    id: i64,
    db: Box<str>,
    collection: Box<str>,
    session: Option<SessionId>,
    batch: Batch,
}

/// What a getMore carries besides the cursor.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetMoreOptions {
    /// Documents asked for; `None` lets the shard fill a batch.
    pub batch_size: Option<i64>,
    /// How long an awaitData cursor waits, in milliseconds.
    pub await_ms: Option<i64>,
    /// End of the client's budget.
    pub deadline: Option<Instant>,
}

impl ShardCursor {
    /// A cursor that was opened by `server`, with its first batch.
    #[must_use]
    pub fn new(
        set: Arc<ReplicaSet>,
        server: Arc<Server>,
        db: &str,
        collection: &str,
        session: Option<SessionId>,
        opened: CursorReply,
    ) -> Self {
        let CursorReply { id, batch, at: _ } = opened;
        Self { set, server, id, db: db.into(), collection: collection.into(), session, batch }
    }

    /// The documents at hand.
    #[must_use]
    pub const fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Looks for the sort key of the next document.
    pub fn scan(&mut self) {
        self.batch.scan();
    }

    /// Goes past the next document.
    pub fn advance(&mut self) {
        self.batch.advance();
    }

    /// Will the shard send no more?
    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        self.id == 0
    }

    /// The cursor's id on the shard.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Who holds it.
    #[must_use]
    pub const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The set whose member holds it.
    #[must_use]
    pub const fn set(&self) -> &Arc<ReplicaSet> {
        &self.set
    }

    /// The namespace that it reads, for getMore and killCursors.
    #[must_use]
    pub fn namespace(&self) -> (&str, &str) {
        (&self.db, &self.collection)
    }

    /// Takes over what a getMore that was forwarded by others found out.
    pub const fn set_id(&mut self, id: i64) {
        self.id = id;
    }

    /// The request for the next batch: to the member that holds the cursor, unversioned, never retried.
    pub fn get_more_request(
        &self,
        servers: &Servers,
        options: GetMoreOptions,
        extra: impl FnOnce(&mut BytesMut),
    ) -> CommandResult<BytesMut> {
        internal_request(servers, &self.db, |out| {
            splice::put_i64(out, "getMore", self.id);
            splice::put_str(out, "collection", &self.collection);
            if let Some(size) = options.batch_size {
                splice::put_i64(out, "batchSize", size);
            }
            if let Some(ms) = options.await_ms {
                splice::put_i64(out, "maxTimeMS", ms);
            }
            crate::remote::envelope::write_time_limit(out, options.deadline);
            if let Some(session) = self.session {
                session.write(out);
            }
            extra(out);
        })
    }

    /// Fetches the next batch.
    pub async fn fetch(&mut self, servers: &Servers, options: GetMoreOptions) -> CommandResult<()> {
        let mut request = self.get_more_request(servers, options, |_| {})?;
        let answer = servers
            .exchange(&self.set, &self.server, &mut request, options.deadline)
            .await
            .map_err(transport_error)?;
        if !answer.summary.ok {
            let error = CommandError::from_reply(answer.reply.body());
            if error.code() != ErrorCode::MaxTimeMSExpired {
                // The shard has closed it.
                self.id = 0;
            }
            return Err(error.context(format_args!("Error on remote shard {}", self.server.address())));
        }
        let reply = CursorReply::parse(&answer.reply.into_body())?;
        self.id = reply.id;
        self.batch = reply.batch;
        Ok(())
    }

    /// The request that closes it on its member.
    fn kill_request(&self, servers: &Servers) -> CommandResult<BytesMut> {
        internal_request(servers, &self.db, |out| {
            splice::put_str(out, "killCursors", &self.collection);
            let cursors = splice::open_array(out, "cursors");
            splice::put_i64(out, "0", self.id);
            cursors.finish(out);
            if let Some(session) = self.session {
                session.write(out);
            }
        })
    }

    /// Closes it on its member, whatever comes back: the member's own time-out is the safety net.
    pub async fn kill(self, servers: &Servers) {
        if self.id == 0 {
            return;
        }
        let Ok(mut request) = self.kill_request(servers) else { return };
        if let Err(error) = servers.exchange(&self.set, &self.server, &mut request, None).await {
            tracing::debug!(server = %self.server.address(), %error, "a shard's cursor was not closed");
        }
    }
}
