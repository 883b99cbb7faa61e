//! What a handler gets: the router, the client, the command.

use tokio::time::{Duration, Instant};

use crate::Router;
use crate::client::Client;
use crate::command::Command;
use crate::error::CommandResult;
use crate::remote::snapshot::Snapshot;
use crate::request::Request;
use crate::transaction::Statement;

/// One command on its way.
#[derive(Debug)]
pub struct Op<'a> {
    /// Everything the router knows.
    pub router: &'a Router,
    /// Who sent it.
    pub client: &'a Client,
    /// What was sent.
    pub request: Request<'a>,
    /// Its row in the table.
    pub command: &'static Command,
    /// Its place in a transaction, if it stands in one.
    pub(crate) transaction: Option<Statement>,
    /// When `maxTimeMS` is over.
    pub deadline: Option<Instant>,
    /// When the command came, in milliseconds since the epoch: `$$NOW` of all its shards.
    pub started_ms: i64,
    /// The point in time of a snapshot read outside of transactions.
    pub(crate) snapshot: Snapshot,
    /// The command is not run but explained, at this verbosity.
    pub explain: Option<&'a str>,
}

impl<'a> Op<'a> {
    pub(crate) fn new(
        router: &'a Router,
        client: &'a Client,
        request: Request<'a>,
        command: &'static Command,
    ) -> Self {
        let deadline =
            request.generic.max_time_ms.map(|ms| Instant::now() + Duration::from_millis(u64::from(ms)));
        let started_ms = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since_epoch| i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
        let snapshot = Snapshot::of(router, &request);
        let explains = command.name == "aggregate"
            && request.body.get("explain").is_some_and(document::Value::is_truthy);
        let explain = explains.then_some("queryPlanner");
        Self { router, client, request, command, transaction: None, deadline, started_ms, snapshot, explain }
    }

    /// Is it a statement of a transaction (not its end)?
    pub(crate) fn in_statement(&self) -> bool {
        self.transaction.is_some() && !matches!(self.command.name, "commitTransaction" | "abortTransaction")
    }

    /// The full name of the collection that the command's first field names.
    pub fn namespace(&self) -> CommandResult<chunk_map::Namespace> {
        Ok(chunk_map::Namespace::new(self.request.db, self.request.collection()?))
    }
}
