//! The router as a whole: what it knows, and the way from a client's message to the answer's bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use wire::{Frame, OpCode, OpMsg, OpQuery, ReplyFlags, WireError};

use chunk_map::{CatalogCache, ShardRegistry};
use tokio_util::task::TaskTracker;
use topology::{ConnectionString, TopologyError, TopologyOptions};

use crate::client::Client;
use crate::clock::Clock;
use crate::codes::ErrorCode;
use crate::command::dispatch::{self, Answer};
use crate::command::{Access, table};
use crate::cursor::CursorTable;
use crate::cursor::group::Budget;
use crate::error::CommandError;
use crate::local::fail_point::FailPoints;
use crate::local::log_book::LogBook;
use crate::local::operations::Operations;
use crate::local::parameters::Parameters;
use crate::local::quiesce::Quiesce;
use crate::local::slow_log::SlowLog;
use crate::local::stats::Stats;
use crate::origin::Origins;
use crate::remote::Servers;
use crate::remote::defaults::Defaults;
use crate::remote::source::ConfigServers;
use crate::reply::Reply;
use crate::request::Request;
use crate::session::Registry;
use crate::transaction::Transactions;

/// What the binary tells the router about itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `<set name>/<host:port>,...` of the config servers.
    pub config_servers: String,
    /// `<host>:<port>` under which this router is known to shards and in `config.mongos`.
    pub host: String,
    /// The command line as it was given.
    pub argv: Vec<String>,
    /// The merged options as a document, for `getCmdLineOpts`.
    pub parsed_options: document::DocBuf,
    /// Compression offered to clients, in the order of preference.
    pub compressors: Vec<wire::Compressor>,
    /// How much farther than the nearest a member may be to be read from.
    pub local_threshold: Duration,
    /// The recent log.
    pub log: Arc<LogBook>,
    /// The process around the router.
    pub process: Arc<dyn Process>,
}

/// What a command may have the process do: handlers know of no files, signals and sockets.
pub trait Process: std::fmt::Debug + Send + Sync {
    /// Begins a new log file, as on SIGUSR1; answers when it is there.
    fn rotate_log(&self) -> oneshot::Receiver<std::io::Result<()>>;

    /// Ends as on SIGTERM, giving clients this long to leave. Does not wait for the end.
    fn shut_down(&self, quiesce: Duration);
}

/// One router. Shared by all connections; all of its parts are behind `&self`.
#[derive(Debug)]
pub struct Router {
    settings: Settings,
    servers: Arc<Servers>,
    catalog: CatalogCache<ConfigServers>,
    registry: ShardRegistry<ConfigServers>,
    cursors: CursorTable,
    transactions: Transactions,
    sessions: Registry,
    defaults: Defaults,
    parameters: Parameters,
    slow_log: SlowLog,
    stats: Stats,
    fail_points: FailPoints,
    operations: Operations,
    origins: Origins,
    /// Bytes of all groups that are merged or wait for their client here.
    group_bytes: Arc<AtomicUsize>,
    process_id: [u8; 12],
    started: std::time::SystemTime,
    next_request_id: AtomicI32,
    quiesce: Quiesce,
    tasks: TaskTracker,
}

/// What becomes of a client's message.
#[derive(Debug)]
pub enum Outcome {
    /// Send this.
    Send(BytesMut),
    /// Send this, then serve the same message again without waiting for the client (exhaust hello); the number is that of this message,
    /// which the next one answers ([`Router::serve_again`]).
    SendAndServeAgain(BytesMut, i32),
    /// Send nothing: the client does not wait for an answer.
    Silence,
    /// Close the connection without an answer.
    Close,
}

impl Router {
    /// A router that watches its config servers but has not read anything from them yet (see [`Router::connect`]).
    /// Must be called inside the runtime: the monitors start at once.
    pub fn new(
        settings: Settings,
        parameters: Parameters,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>, TopologyError> {
        let config = ConnectionString::parse(&settings.config_servers)?;
        let options =
            TopologyOptions { local_threshold: settings.local_threshold, ..parameters.topology_options() };
        let servers = Arc::new(Servers::new(&config, options)?);
        let source = Arc::new(ConfigServers(Arc::clone(&servers)));
        Ok(Arc::new(Self {
            settings,
            servers,
            catalog: CatalogCache::new(Arc::clone(&source)),
            registry: ShardRegistry::new(source),
            cursors: CursorTable::default(),
            transactions: Transactions::default(),
            sessions: Registry::default(),
            defaults: Defaults::default(),
            parameters,
            slow_log: SlowLog::default(),
            stats: Stats::default(),
            fail_points: FailPoints::default(),
            operations: Operations::default(),
            origins: Origins::default(),
            group_bytes: Arc::default(),
            process_id: rand::random(),
            started: std::time::SystemTime::now(),
            next_request_id: AtomicI32::new(1),
            quiesce: Quiesce::new(shutdown),
            tasks: TaskTracker::new(),
        }))
    }

    /// Answers one frame of a client. Not cancel-safe towards shards: a dropped future closes the connections that
    /// it was waiting on.
    pub async fn serve(&self, client: &Client, frame: Frame) -> Outcome {
        let header = *frame.header();
        match header.opcode {
            OpCode::MSG => {
                let _running = client.place().occupy(self.operations.next(), frame.clone());
                let killed = client.place().killed();
                match OpMsg::parse(frame) {
                    Ok(message) => tokio::select! {
                        biased;
                        outcome = self.serve_msg(client, &message, header.request_id) => outcome,
                        () = killed => self.interrupted(&message, header.request_id),
                    },
                    Err(error) => self.malformed(&error, header.request_id),
                }
            }
            OpCode::QUERY => match OpQuery::parse(frame) {
                Ok(query) => self.serve_query(client, &query).await,
                Err(_) => Outcome::Close,
            },
            _ => Outcome::Close,
        }
    }

    /// Answers a parsed message; `response_to` is its own number, or that of the last answer of an exhaust stream.
    pub async fn serve_msg(&self, client: &Client, message: &OpMsg, response_to: i32) -> Outcome {
        let request = Request::from_msg(message);
        let streams = message.exhaust_allowed() && request.as_ref().is_ok_and(is_streaming_hello);
        let answer = dispatch::run(self, client, request).await;
        // Not before its first command: that is the hello that says who it is.
        client.origin(&self.origins);
        match answer {
            Answer::Close => Outcome::Close,
            Answer::Reply(_) if message.more_to_come() => Outcome::Silence,
            Answer::Reply(reply) => {
                let request_id = self.next_request_id();
                let streams = streams && Reply::is_ok(&reply);
                let frame = reply.into_message(
                    self.clock(),
                    request_id,
                    response_to,
                    message.has_checksum(),
                    streams,
                );
                let frame = match message.compressor() {
                    Some(compressor) if !is_never_compressed(message) => compress(compressor, frame),
                    _ => frame,
                };
                if streams { Outcome::SendAndServeAgain(frame, request_id) } else { Outcome::Send(frame) }
            }
        }
    }

    /// Answers a message once more: the client asked for a stream of answers. `last` is the number of the last one.
    pub async fn serve_again(&self, client: &Client, frame: Frame, last: i32) -> Outcome {
        let Ok(message) = OpMsg::parse(frame) else { return Outcome::Close };
        client.set_streaming(true);
        let outcome = self.serve_msg(client, &message, last).await;
        client.set_streaming(false);
        outcome
    }

    /// May the command in this message be given up when its client is gone? Reads may, writes run to their end.
    #[must_use]
    pub fn may_abandon(&self, frame: Frame) -> bool {
        let Ok(message) = OpMsg::parse(frame) else { return true };
        let name = message.body().first().map_or("", document::Field::name);
        table::find(name).is_none_or(|command| command.access == Access::Read)
    }

    async fn serve_query(&self, client: &Client, query: &OpQuery) -> Outcome {
        let request = dispatch::legacy_request(query.command(), query.command_database());
        let answer = dispatch::run(self, client, request).await;
        client.origin(&self.origins);
        match answer {
            Answer::Close => Outcome::Close,
            Answer::Reply(reply) => {
                let body = reply.into_body(self.clock());
                let mut frame = BytesMut::with_capacity(body.len() + 36);
                let doc = document::Doc::new(&body).unwrap_or(document::Doc::empty());
                wire::encode_op_reply(
                    &mut frame,
                    self.next_request_id(),
                    query.header().request_id,
                    ReplyFlags::AWAIT_CAPABLE,
                    doc,
                );
                Outcome::Send(frame)
            }
        }
    }

    fn malformed(&self, error: &WireError, response_to: i32) -> Outcome {
        let Some(code) = error.code() else { return Outcome::Close };
        let reply = Reply::error(&CommandError::new(ErrorCode(code), error.to_string()));
        Outcome::Send(reply.into_message(self.clock(), self.next_request_id(), response_to, false, false))
    }

    /// The answer of a command that killOp ended.
    fn interrupted(&self, message: &OpMsg, response_to: i32) -> Outcome {
        self.stats.command_abandoned();
        if message.more_to_come() {
            return Outcome::Silence;
        }
        let reply = Reply::error(&CommandError::new(ErrorCode::Interrupted, "operation was interrupted"));
        let request_id = self.next_request_id();
        Outcome::Send(reply.into_message(
            self.clock(),
            request_id,
            response_to,
            message.has_checksum(),
            false,
        ))
    }

    fn next_request_id(&self) -> i32 {
        self.next_request_id.fetch_add(1, Ordering::Relaxed)
    }

    /// What the binary told.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The gossiped times.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.servers.clock()
    }

    /// The servers of the cluster.
    #[must_use]
    pub const fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    /// The routing table.
    #[must_use]
    pub const fn catalog(&self) -> &CatalogCache<ConfigServers> {
        &self.catalog
    }

    /// The list of shards.
    #[must_use]
    pub const fn registry(&self) -> &ShardRegistry<ConfigServers> {
        &self.registry
    }

    /// Connections and what they wait for.
    #[must_use]
    pub const fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Whose the connections are.
    #[must_use]
    pub const fn origins(&self) -> &Origins {
        &self.origins
    }

    /// Open cursors.
    #[must_use]
    pub const fn cursors(&self) -> &CursorTable {
        &self.cursors
    }

    /// Sessions that were used lately.
    #[must_use]
    pub const fn sessions(&self) -> &Registry {
        &self.sessions
    }

    /// Transactions.
    #[must_use]
    pub const fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Read and write concern when a client says none.
    #[must_use]
    pub const fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// Tasks that outlive the command that started them.
    #[must_use]
    pub const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Memory that a merge of groups may take.
    pub(crate) fn group_budget(&self) -> Budget {
        let bytes = |name| usize::try_from(self.parameters.int(name)).unwrap_or(0);
        let (one, all) = (bytes("pointsmanGroupMergeMaxBytes"), bytes("pointsmanGroupMergeMaxBytesOfAll"));
        Budget::new(Arc::clone(&self.group_bytes), one, all)
    }

    /// Server parameters.
    #[must_use]
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// What of the slow operations is logged.
    #[must_use]
    pub const fn slow_log(&self) -> &SlowLog {
        &self.slow_log
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Fail points of tests.
    #[must_use]
    pub const fn fail_points(&self) -> &FailPoints {
        &self.fail_points
    }

    /// `topologyVersion.processId`: fixed for the life of the process.
    #[must_use]
    pub const fn process_id(&self) -> [u8; 12] {
        self.process_id
    }

    /// When this router was made.
    #[must_use]
    pub const fn started(&self) -> std::time::SystemTime {
        self.started
    }

    /// Cancelled when the router begins to shut down (quiesce).
    #[must_use]
    pub const fn shutdown(&self) -> &CancellationToken {
        self.quiesce.token()
    }

    /// The time between the order to shut down and the end.
    #[must_use]
    pub const fn quiesce(&self) -> &Quiesce {
        &self.quiesce
    }
}

/// A hello that asks for a stream of answers.
fn is_streaming_hello(request: &Request<'_>) -> bool {
    matches!(request.name, "hello" | "isMaster" | "ismaster") && request.body.contains("maxAwaitTimeMS")
}

/// Commands whose answers are never compressed (handshake and credentials).
fn is_never_compressed(message: &OpMsg) -> bool {
    matches!(
        message.body().first().map(document::Field::name),
        Some(
            "hello"
                | "isMaster"
                | "ismaster"
                | "saslStart"
                | "saslContinue"
                | "getnonce"
                | "authenticate"
                | "createUser"
                | "updateUser"
        )
    )
}

fn compress(compressor: wire::Compressor, frame: BytesMut) -> BytesMut {
    let mut out = BytesMut::with_capacity(frame.len() / 2 + 64);
    // What cannot be compressed goes out as it is: the protocol allows either.
    match wire::compress_frame(compressor, &frame, &mut out) {
        Ok(()) => out,
        Err(_) => frame,
    }
}

impl Reply {
    /// Does it say `ok: 1`?
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.body().get("ok").is_some_and(document::Value::is_truthy)
    }
}
