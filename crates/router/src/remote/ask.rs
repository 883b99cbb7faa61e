//! One request to one member of a set, asked again where mongos would.

use std::sync::Arc;

use bytes::BytesMut;
use chunk_map::ShardId;
use tokio::time::{Duration, Instant};
use topology::{Failure, ReadPreference, ReplicaSet, Server, TopologyError};

use super::hedge::Hedge;
use super::servers::Servers;
use crate::Router;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::local::asked;
use crate::reply::Summary;

/// Attempts after the first (mongos 5.0: `kMaxNumRetries` of its fan-out sender).
const MAX_RETRIES: usize = 3;

/// A shard's own limit (`maxTimeMSOpOnly`) answers first; this much later the router stops to wait for it.
const DEADLINE_SLACK: Duration = Duration::from_millis(100);

/// Which failures allow to send the same bytes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// None but those before anything was sent: plain writes.
    Never,
    /// The server did not run it, or running it twice is harmless: reads, retryable writes, idempotent DDL.
    Idempotent,
    /// Only when the member says that it is no primary.
    NotPrimary,
}

impl Retry {
    const fn allows(self, code: ErrorCode) -> bool {
        match self {
            Self::Never => false,
            Self::Idempotent => code.is_retriable(),
            Self::NotPrimary => code.is_not_primary(),
        }
    }
}

/// A shard's reply that says `ok: 1`.
#[derive(Debug)]
pub struct ShardReply {
    /// The message, editable in place.
    pub reply: wire::Reply,
    /// What one look at it told.
    pub summary: Summary,
    /// Who answered: later requests of a cursor go there.
    pub server: Arc<Server>,
}

impl ShardReply {
    /// Its `writeConcernError`.
    fn concern_error(&self) -> Option<CommandError> {
        let error =
            self.summary.has_write_concern_error.then(|| self.reply.body().get_doc("writeConcernError"))?;
        error.map(CommandError::from_reply)
    }
}

impl Router {
    /// Asks the member of a shard that `preference` selects.
    pub async fn ask_shard(
        &self,
        shard: &ShardId,
        request: &mut BytesMut,
        preference: &ReadPreference,
        retry: Retry,
        deadline: Option<Instant>,
    ) -> CommandResult<ShardReply> {
        let set = self.shard_set(shard).await?;
        self.servers().ask_set(&set, request, preference, retry, deadline).await
    }
}

impl Op<'_> {
    /// Asks a shard for this command. A statement of a transaction goes to the primary whatever `preference` says, with the
    /// fields that join the shard to the transaction, and never twice.
    pub async fn ask(
        &self,
        shard: &ShardId,
        request: &mut BytesMut,
        preference: &ReadPreference,
        retry: Retry,
    ) -> CommandResult<ShardReply> {
        let set = self.router.shard_set(shard).await?;
        self.ask_set(shard, &set, request, preference, retry).await
    }

    /// As [`Self::ask`], for callers that keep the shard's set.
    pub async fn ask_set(
        &self,
        shard: &ShardId,
        set: &Arc<ReplicaSet>,
        request: &mut BytesMut,
        preference: &ReadPreference,
        retry: Retry,
    ) -> CommandResult<ShardReply> {
        match &self.transaction {
            None => {
                let hedge = self.hedge(preference);
                let servers = self.router.servers();
                servers.ask_member(set, request, preference, retry, self.deadline, hedge.as_ref()).await
            }
            Some(statement) => {
                let asked = statement.ask(shard, set, request, self.deadline).await;
                if let Err(error) = &asked
                    && error.is_settled()
                {
                    // No one asks again, but the transaction's next run should know better.
                    self.router.note_stale(error);
                }
                asked
            }
        }
    }
}

impl Servers {
    /// Asks the member of a set that `preference` selects.
    pub async fn ask_set(
        &self,
        set: &Arc<ReplicaSet>,
        request: &mut BytesMut,
        preference: &ReadPreference,
        retry: Retry,
        deadline: Option<Instant>,
    ) -> CommandResult<ShardReply> {
        self.ask_member(set, request, preference, retry, deadline, None).await
    }

    /// As [`Self::ask_set`]; with a hedge, one more member is asked at the same time.
    async fn ask_member(
        &self,
        set: &Arc<ReplicaSet>,
        request: &mut BytesMut,
        preference: &ReadPreference,
        retry: Retry,
        deadline: Option<Instant>,
        hedge: Option<&Hedge>,
    ) -> CommandResult<ShardReply> {
        let mut attempt = 0;
        loop {
            let server = match set.select(preference) {
                Some(server) => server,
                None => set.wait(preference, deadline).await.map_err(transport_error)?,
            };
            let answered = match hedge {
                None => self.exchange(set, &server, request, deadline).await,
                // Boxed: few reads are hedged, and all would carry its state.
                Some(hedge) => Box::pin(hedge.exchange(set, &server, request, preference, deadline)).await,
            };
            let error = match answered {
                Ok(answer) if answer.summary.ok => {
                    // A primary that steps down after it wrote says so in the write concern's error.
                    let concern = answer.concern_error();
                    match concern {
                        Some(error) if attempt < MAX_RETRIES && retry.allows(error.code()) => {
                            if error.code().is_not_primary() {
                                set.report(&server, Failure::NotPrimary);
                            }
                            error
                        }
                        _ => return Ok(answer),
                    }
                }
                Ok(answer) => {
                    let error = CommandError::from_reply(answer.reply.body())
                        .from_server(answer.server.address().as_str());
                    if attempt >= MAX_RETRIES || !retry.allows(error.code()) {
                        return Err(error);
                    }
                    error
                }
                Err(error) => {
                    let safe = error.is_before_send() && error.is_network();
                    let error = transport_error(error);
                    if attempt >= MAX_RETRIES || !(safe || retry.allows(error.code())) {
                        return Err(error);
                    }
                    error
                }
            };
            attempt += 1;
            tracing::debug!(set = %set.name(), server = %server.address(), %error, attempt, "asking again");
        }
    }

    /// One exchange with one member. Times of the reply are taken over, failures are reported to the set's monitor.
    pub async fn exchange(
        &self,
        set: &ReplicaSet,
        server: &Arc<Server>,
        request: &mut BytesMut,
        deadline: Option<Instant>,
    ) -> Result<ShardReply, TopologyError> {
        let deadline = deadline.map(|deadline| deadline + DEADLINE_SLACK);
        let begun = Instant::now();
        let answered = async {
            let mut connection = server.checkout(deadline).await?;
            connection.exchange(request, deadline).await
        };
        let answered = answered.await;
        asked::note(set.name(), begun.elapsed());
        match answered {
            Ok(reply) => {
                let summary = Summary::of(reply.body());
                self.clock().observe(&summary.times);
                if let Some(code) = summary.code.filter(|_| !summary.ok) {
                    if code.is_not_primary() {
                        set.report(server, Failure::NotPrimary);
                    } else if code.is_shutdown() {
                        set.report(server, Failure::Shutdown);
                    }
                }
                Ok(ShardReply { reply, summary, server: Arc::clone(server) })
            }
            Err(error) => {
                if error.is_network() {
                    set.report(server, Failure::Network);
                }
                Err(error)
            }
        }
    }
}

/// The error of a failed exchange, with MongoDB's code.
pub(crate) fn transport_error(error: TopologyError) -> CommandError {
    CommandError::new(ErrorCode(error.code()), error.to_string())
}
