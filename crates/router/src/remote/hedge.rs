//! Hedged reads: the same read sent to one more member, the first answer wins (as mongos 5.0).
//!
//! Both requests carry one `clientOperationKey`, by which the loser is killed on its member; a cursor that it had opened
//! by then is closed. The second request has a short time limit of its own (`maxTimeMSForHedgedReads`), and only its
//! success counts: with an error it is as if it had not been sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use document::{Value, splice};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant, timeout};
use topology::{ReadPreference, ReplicaSet, Server, TopologyError};

use super::ask::ShardReply;
use super::config::internal_request;
use super::envelope::{add_to_body, limit_time};
use super::servers::Servers;
use crate::command::Op;
use crate::cursor::{CursorReply, CursorSession, ShardCursor};
use crate::error::CommandError;
use crate::local::asked;

/// The commands that are hedged (mongos 5.0).
const HEDGED: &[&str] = &[
    "collStats",
    "count",
    "dataSize",
    "dbStats",
    "distinct",
    "filemd5",
    "find",
    "listCollections",
    "listIndexes",
    "planCacheListFilters",
];
/// The loser is killed again when it still runs after this: the first kill may have come before it.
const KILL_PAUSE: Duration = Duration::from_secs(1);
/// So often; then its connection is given up, which ends it too.
const KILLS: usize = 5;

/// `serverStatus().hedgingMetrics`
#[derive(Debug, Default)]
pub struct HedgeCounts {
    total: AtomicU64,
    hedged: AtomicU64,
    advantageous: AtomicU64,
}

impl HedgeCounts {
    /// Requests that might be hedged, those that were, and those that the second member answered first.
    #[must_use]
    pub fn get(&self) -> [u64; 3] {
        [&self.total, &self.hedged, &self.advantageous].map(|count| count.load(Ordering::Relaxed))
    }
}

/// How a command's requests are hedged.
#[derive(Debug)]
pub(crate) struct Hedge {
    servers: Arc<Servers>,
    /// Of the second request.
    limit: Duration,
    session: CursorSession,
}

type Answer = Result<ShardReply, TopologyError>;

/// One of the two requests.
#[derive(Debug)]
struct Runner {
    servers: Arc<Servers>,
    set: Arc<ReplicaSet>,
    server: Arc<Server>,
    key: [u8; 16],
    session: CursorSession,
    /// `None` when its answer was taken.
    task: Option<JoinHandle<Answer>>,
}

impl Op<'_> {
    /// Whether and how this command is hedged.
    pub(crate) fn hedge(&self, preference: &ReadPreference) -> Option<Hedge> {
        let parameters = self.router.parameters();
        let hedges = preference.is_hedged()
            && self.transaction.is_none()
            && HEDGED.contains(&self.command.name)
            && parameters.text("readHedgingMode") == "on";
        hedges.then(|| Hedge {
            servers: Arc::clone(self.router.servers()),
            limit: parameters.millis("maxTimeMSForHedgedReads"),
            session: CursorSession { session: self.session(), transaction: None },
        })
    }
}

impl Hedge {
    /// As [`Servers::exchange`], with one more member of the set, if the preference allows another one.
    pub(crate) async fn exchange(
        &self,
        set: &Arc<ReplicaSet>,
        server: &Arc<Server>,
        request: &mut BytesMut,
        preference: &ReadPreference,
        deadline: Option<Instant>,
    ) -> Answer {
        let counts = self.servers.hedges();
        counts.total.fetch_add(1, Ordering::Relaxed);
        let key: [u8; 16] = rand::random();
        let pair = set.select_another(preference, server).zip(self.requests(request, key).ok());
        let Some((other, (one, two))) = pair else {
            return self.servers.exchange(set, server, request, deadline).await;
        };
        counts.hedged.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let limit = begun + self.limit;
        let mut first = self.run(set, server, one, key, deadline);
        let mut second =
            self.run(set, &other, two, key, Some(deadline.map_or(limit, |deadline| deadline.min(limit))));
        let answer = loop {
            tokio::select! {
                biased;
                answer = first.answer() => break answer,
                answer = second.answer(), if second.task.is_some() => {
                    if let Ok(answer) = answer && answer.summary.ok {
                        counts.advantageous.fetch_add(1, Ordering::Relaxed);
                        break Ok(answer);
                    }
                }
            }
        };
        asked::note(set.name(), begun.elapsed());
        answer
    }

    /// The bytes of both.
    fn requests(&self, request: &BytesMut, key: [u8; 16]) -> Result<(BytesMut, BytesMut), CommandError> {
        let mut field = BytesMut::new();
        splice::put_element(&mut field, 0x05, "clientOperationKey", &[16, 0, 0, 0, 4]);
        field.extend_from_slice(&key);
        let mut first = request.clone();
        add_to_body(&mut first, &field)?;
        let mut second = first.clone();
        limit_time(&mut second, i64::try_from(self.limit.as_millis()).unwrap_or(i64::MAX))?;
        Ok((first, second))
    }

    fn run(
        &self,
        set: &Arc<ReplicaSet>,
        server: &Arc<Server>,
        mut request: BytesMut,
        key: [u8; 16],
        deadline: Option<Instant>,
    ) -> Runner {
        let (servers, set, server) = (Arc::clone(&self.servers), Arc::clone(set), Arc::clone(server));
        let task = tokio::spawn({
            let (servers, set, server) = (Arc::clone(&servers), Arc::clone(&set), Arc::clone(&server));
            async move { servers.exchange(&set, &server, &mut request, deadline).await }
        });
        Runner { servers, set, server, key, session: self.session, task: Some(task) }
    }
}

impl Runner {
    /// Waits for its answer and takes it. Cancel-safe.
    async fn answer(&mut self) -> Answer {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let answer = task.await;
        self.task = None;
        // It does not panic; were it dropped, the process ends.
        answer.unwrap_or(Err(TopologyError::ShuttingDown))
    }
}

/// The loser, or both when the client went away.
impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(task) = self.task.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (servers, set, server) =
                (Arc::clone(&self.servers), Arc::clone(&self.set), Arc::clone(&self.server));
            runtime.spawn(give_up(servers, set, server, self.key, self.session, task));
        }
    }
}

/// Sees to it that nothing of a request goes on that nobody waits for.
async fn give_up(
    servers: Arc<Servers>,
    set: Arc<ReplicaSet>,
    server: Arc<Server>,
    key: [u8; 16],
    session: CursorSession,
    mut task: JoinHandle<Answer>,
) {
    for _ in 0..KILLS {
        if !task.is_finished() {
            let request = internal_request(&servers, "admin", |out| {
                splice::put_i32(out, "_killOperations", 1);
                let keys = splice::open_array(out, "operationKeys");
                splice::put_element(out, 0x05, "0", &[16, 0, 0, 0, 4]);
                out.extend_from_slice(&key);
                keys.finish(out);
            });
            let Ok(mut request) = request else { break };
            let limit = Some(Instant::now() + KILL_PAUSE);
            if let Err(error) = servers.exchange(&set, &server, &mut request, limit).await {
                tracing::debug!(server = %server.address(), %error, "a hedged read was not killed");
            }
        }
        let Ok(answer) = timeout(KILL_PAUSE, &mut task).await else { continue };
        if let Ok(Ok(answer)) = answer
            && answer.summary.ok
        {
            close_cursor(&servers, set, server, session, &answer);
        }
        return;
    }
    task.abort();
}

/// The loser had an answer all the same: its cursor is closed like any that is dropped.
fn close_cursor(
    servers: &Servers,
    set: Arc<ReplicaSet>,
    server: Arc<Server>,
    session: CursorSession,
    answer: &ShardReply,
) {
    let Some(cursor) = answer.reply.body().get_doc("cursor") else { return };
    let id = cursor.get("id").and_then(Value::as_i64).unwrap_or(0);
    if let Some((db, collection)) = cursor.get_str("ns").and_then(|ns| ns.split_once('.')) {
        drop(ShardCursor::new(servers, set, server, db, collection, session, CursorReply::open(id)));
    }
}
