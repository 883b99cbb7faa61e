//! Users and roles: the config servers keep them, on the database that the client names.
//!
//! Nobody is authenticated by this router yet; that is no reason to refuse what administrators prepare on it.

use topology::ReadPreference;

use super::config_server::put_first;
use crate::command::Op;
use crate::ddl::arguments;
use crate::ddl::majority::write_majority;
use crate::ddl::primary::pass_on;
use crate::error::CommandResult;
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// A change of users or roles.
pub async fn change(op: &Op<'_>) -> CommandResult<Reply> {
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    put_first(op, request.out(), op.command.name);
    arguments::copy_all(op, request.out());
    write_majority(op, request.out());
    let mut request = request.finish(|_| {})?;
    let servers = op.router.servers();
    let preference = ReadPreference::PRIMARY;
    let answer = servers
        .ask_set(servers.config_set(), &mut request, &preference, Retry::NotPrimary, op.deadline)
        .await?;
    Ok(pass_on(answer))
}

/// A look at users or roles.
pub async fn info(op: &Op<'_>) -> CommandResult<Reply> {
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    put_first(op, request.out(), op.command.name);
    arguments::copy_all(op, request.out());
    let mut request = request.finish(|_| {})?;
    let servers = op.router.servers();
    let preference = ReadPreference::of(topology::ReadMode::PrimaryPreferred);
    let answer = servers
        .ask_set(servers.config_set(), &mut request, &preference, Retry::Idempotent, op.deadline)
        .await?;
    Ok(pass_on(answer))
}

/// No users are cached here.
pub async fn invalidate_cache(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::only(op, &[])?;
    Ok(Reply::ok())
}
