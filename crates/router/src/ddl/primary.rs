//! Shape "the primary shard of the database coordinates it": the request goes there with the database's version,
//! and again to wherever the primary shard is after a stale answer.

use bytes::BytesMut;
use topology::ReadPreference;

use super::majority::write_majority;
use crate::command::Op;
use crate::error::CommandResult;
use crate::remote::routing::{Destination, StaleRetries, Versions};
use crate::remote::{Retry, ShardReply, ShardRequest};
use crate::reply::Reply;

/// Which write concern the request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Majority whatever the client says: all `_shardsvr...` commands refuse another one (6.0).
    Majority,
    /// The client's, else the cluster's default.
    Client,
    /// None: it writes nothing.
    None,
}

/// Which versions go along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// The database's.
    Database,
    /// The database's, and that the collection is not sharded.
    Unsharded,
}

/// One request to a primary shard.
#[derive(Debug, Clone, Copy)]
pub struct PrimaryCall<'a> {
    /// The database whose primary shard is asked.
    pub db: &'a str,
    /// The database that the request is sent to: `admin` for a few.
    pub run_on: &'a str,
    /// Its write concern.
    pub concern: Concern,
    /// Its versions.
    pub attach: Attach,
    /// When it may be sent twice.
    pub retry: Retry,
}

impl<'a> PrimaryCall<'a> {
    /// An idempotent change of metadata on `db`.
    #[must_use]
    pub const fn ddl(db: &'a str) -> Self {
        Self {
            db,
            run_on: db,
            concern: Concern::Majority,
            attach: Attach::Database,
            retry: Retry::Idempotent,
        }
    }

    /// The same on `admin`, where the command names its collection in full.
    #[must_use]
    pub const fn on_admin(db: &'a str) -> Self {
        Self { run_on: "admin", ..Self::ddl(db) }
    }

    /// A read on `db`.
    #[must_use]
    pub const fn read(db: &'a str) -> Self {
        Self { concern: Concern::None, ..Self::ddl(db) }
    }

    /// With this write concern.
    #[must_use]
    pub const fn concern(self, concern: Concern) -> Self {
        Self { concern, ..self }
    }

    /// With these versions.
    #[must_use]
    pub const fn attach(self, attach: Attach) -> Self {
        Self { attach, ..self }
    }

    /// Sent twice only when this allows it.
    #[must_use]
    pub const fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Sends it; `fill` writes the command's own fields, once for each attempt.
    pub async fn ask(&self, op: &Op<'_>, fill: impl Fn(&mut BytesMut)) -> CommandResult<ShardReply> {
        let mut retries = StaleRetries::new(op.router);
        loop {
            match self.attempt(op, &fill).await {
                Err(error) if retries.again(&error) => {}
                other => return other,
            }
        }
    }

    /// Sends it and passes the answer on.
    pub async fn forward(&self, op: &Op<'_>, fill: impl Fn(&mut BytesMut)) -> CommandResult<Reply> {
        Ok(pass_on(self.ask(op, fill).await?))
    }

    async fn attempt(&self, op: &Op<'_>, fill: impl Fn(&mut BytesMut)) -> CommandResult<ShardReply> {
        let database = op.router.database(self.db).await?;
        let destination = match self.attach {
            _ if database.primary.is_config() => Destination::config(),
            Attach::Database => Destination::primary(&database),
            Attach::Unsharded => Destination::unsharded(&database),
        };
        self.ask_there(op, &destination, fill).await
    }

    /// Sends it to this shard.
    pub async fn ask_there(
        &self,
        op: &Op<'_>,
        destination: &Destination,
        fill: impl Fn(&mut BytesMut),
    ) -> CommandResult<ShardReply> {
        let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
        fill(request.out());
        match self.concern {
            Concern::Majority => write_majority(op, request.out()),
            Concern::Client => request = request.write_concern(),
            Concern::None => {}
        }
        let versions: Versions = destination.versions;
        let mut request = request.finish_on(self.run_on, |out| versions.write(out))?;
        let preference =
            if self.concern == Concern::None { op.read_preference()? } else { ReadPreference::PRIMARY };
        op.ask(&destination.shard, &mut request, &preference, self.retry).await
    }
}

/// A server's answer, passed on to the client.
pub fn pass_on(answer: ShardReply) -> Reply {
    Reply::forward(answer.reply, &answer.summary)
}
