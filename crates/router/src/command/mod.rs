//! The command table and the way of a command through it.
//!
//! A command is one row: its name, its aliases, what it needs and the function that runs it. Dispatch,
//! `listCommands`, `docs/compatibility.md` and the tests read the same rows; a command that has no row does not exist
//! (`CommandNotFound`), and one that mongos has but Pointsman does not (yet) has a row that refuses it by name.
//!
//! - [`table`]: the rows, a file a family.
//! - [`dispatch`]: checks that all commands share, then the row's handler.

pub mod dispatch;
pub mod op;
mod read_concern;
pub mod table;

use std::future::Future;
use std::pin::Pin;

use crate::error::CommandResult;
use crate::reply::Reply;
pub use op::Op;

/// What a handler gives back.
pub type HandlerFuture<'a> = Pin<Box<dyn Future<Output = CommandResult<Reply>> + Send + 'a>>;

/// Runs one command.
pub type Handler = for<'a> fn(&'a Op<'a>) -> HandlerFuture<'a>;

/// Makes a [`Handler`] of an `async fn(&Op<'_>) -> CommandResult<Reply>`.
macro_rules! handler {
    ($function:path) => {{
        fn run<'a>(op: &'a $crate::command::Op<'a>) -> $crate::command::HandlerFuture<'a> {
            Box::pin($function(op))
        }
        run
    }};
}
pub(crate) use handler;

/// What a command does to data; decides opcounters and retry rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads data or metadata.
    Read,
    /// Changes data or metadata.
    Write,
    /// Neither: handshake, router-local state.
    Neutral,
}

/// Who answers a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsOn {
    /// The router itself.
    Router,
    /// The shards that the routing table names, with shard versions.
    Targeted,
    /// The primary shard of the database, with its database version.
    PrimaryShard,
    /// Every shard, without versions.
    AllShards,
    /// The config servers.
    ConfigServers,
}

impl RunsOn {
    /// For the compatibility page.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Targeted => "targeted shards",
            Self::PrimaryShard => "primary shard",
            Self::AllShards => "all shards",
            Self::ConfigServers => "config servers",
        }
    }
}

/// How far a command goes today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Works as in mongos.
    Works,
    /// Works but for what the note names; that is refused by name.
    Partly(&'static str),
    /// Refused by name; the note says why or until when.
    Refused(&'static str),
}

/// One row of the command table.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Other spellings that mongos takes.
    pub aliases: &'static [&'static str],
    /// Reads, writes or neither.
    pub access: Access,
    /// Who answers it.
    pub runs_on: RunsOn,
    /// Only on the database `admin`.
    pub admin_only: bool,
    /// May stand in a transaction.
    pub in_transaction: bool,
    /// `txnNumber` without a transaction makes it a retryable write.
    pub retryable_write: bool,
    /// Member of the stable API, version 1.
    pub api_v1: bool,
    /// Answered before authentication (none is built yet: the place for it).
    pub before_auth: bool,
    /// The privilege that it needs (checked once authentication is built).
    pub action: &'static str,
    /// How far it goes today.
    pub status: Status,
    /// Only with `--setParameter enableTestCommands=1`.
    pub test_only: bool,
    /// A success ends the connection without an answer.
    pub ends_connection: bool,
    /// What runs it.
    pub handler: Handler,
}

impl Command {
    /// A row: everything that is not said here is "no".
    #[must_use]
    pub const fn new(name: &'static str, runs_on: RunsOn, handler: Handler) -> Self {
        Self {
            name,
            aliases: &[],
            access: Access::Neutral,
            runs_on,
            admin_only: false,
            in_transaction: false,
            retryable_write: false,
            api_v1: false,
            before_auth: false,
            action: "",
            status: Status::Works,
            test_only: false,
            ends_connection: false,
            handler,
        }
    }

    /// A row of a command that mongos has and that is refused here by name.
    #[must_use]
    pub const fn refused(name: &'static str, runs_on: RunsOn, why: &'static str) -> Self {
        let mut row = Self::new(name, runs_on, handler!(dispatch::refuse));
        row.status = Status::Refused(why);
        row
    }

    /// Other spellings.
    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// It reads.
    #[must_use]
    pub const fn reads(mut self) -> Self {
        self.access = Access::Read;
        self
    }

    /// It writes.
    #[must_use]
    pub const fn writes(mut self) -> Self {
        self.access = Access::Write;
        self
    }

    /// Only on `admin`.
    #[must_use]
    pub const fn admin(mut self) -> Self {
        self.admin_only = true;
        self
    }

    /// May stand in a transaction.
    #[must_use]
    pub const fn in_transaction(mut self) -> Self {
        self.in_transaction = true;
        self
    }

    /// May carry a `txnNumber` of its own.
    #[must_use]
    pub const fn retryable(mut self) -> Self {
        self.retryable_write = true;
        self
    }

    /// Member of API version 1.
    #[must_use]
    pub const fn api_v1(mut self) -> Self {
        self.api_v1 = true;
        self
    }

    /// Answered before authentication.
    #[must_use]
    pub const fn before_auth(mut self) -> Self {
        self.before_auth = true;
        self
    }

    /// Its success is told by the end of the connection.
    #[must_use]
    pub const fn ends_connection(mut self) -> Self {
        self.ends_connection = true;
        self
    }

    /// The privilege that it needs.
    #[must_use]
    pub const fn needs(mut self, action: &'static str) -> Self {
        self.action = action;
        self
    }

    /// What of it does not work yet.
    #[must_use]
    pub const fn partly(mut self, note: &'static str) -> Self {
        self.status = Status::Partly(note);
        self
    }

    /// Only with test commands enabled.
    #[must_use]
    pub const fn test_only(mut self) -> Self {
        self.test_only = true;
        self
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command").field("name", &self.name).finish_non_exhaustive()
    }
}
