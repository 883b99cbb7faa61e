//! Shape "the config servers do it": the request goes to their primary on `admin`, the answer is passed on.

use bytes::BytesMut;
use topology::ReadPreference;

use crate::command::Op;
use crate::ddl::arguments;
use crate::ddl::majority::write_majority;
use crate::ddl::primary::pass_on;
use crate::error::CommandResult;
use crate::remote::{Retry, ShardReply, ShardRequest};
use crate::reply::Reply;

/// Which write concern the request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Majority whatever the client says.
    Majority,
    /// None: it writes nothing, or refuses one (`_configsvrBalancer...`, seen on 6.0.5).
    None,
}

/// Asks the config servers' primary on `db`; `fill` writes the command's own fields.
pub async fn ask_on(
    op: &Op<'_>,
    db: &str,
    concern: Concern,
    retry: Retry,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<ShardReply> {
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    fill(request.out());
    if concern == Concern::Majority {
        write_majority(op, request.out());
    }
    let mut request = request.finish_on(db, |_| {})?;
    let servers = op.router.servers();
    servers.ask_set(servers.config_set(), &mut request, &ReadPreference::PRIMARY, retry, op.deadline).await
}

/// As [`ask_on`] on `admin`; sent again when a member could not answer.
pub async fn ask(
    op: &Op<'_>,
    concern: Concern,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<ShardReply> {
    ask_on(op, "admin", concern, Retry::Idempotent, fill).await
}

/// Asks and passes the answer on.
pub async fn forward(
    op: &Op<'_>,
    concern: Concern,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<Reply> {
    Ok(pass_on(ask(op, concern, fill).await?))
}

/// The client's command under the config servers' name for it, with these of its arguments.
pub async fn forward_as(op: &Op<'_>, concern: Concern, name: &str, names: &[&str]) -> CommandResult<Reply> {
    forward(op, concern, |out| {
        put_first(op, out, name);
        arguments::copy(op, out, names);
    })
    .await
}

/// Writes the command's first field under another name.
pub fn put_first(op: &Op<'_>, out: &mut BytesMut, name: &str) {
    if let Some(first) = op.request.body.first() {
        arguments::put_as(out, name, first);
    }
}
