//! createIndexes, dropIndexes, listIndexes, setIndexCommitQuorum

use chunk_map::Namespace;
use document::splice;
use topology::ReadPreference;

use super::arguments;
use super::databases::ensure_database;
use super::primary::PrimaryCall;
use super::scatter::{ask_owners, database_not_found, fresh_route, raw_reply};
use crate::command::Op;
use crate::cursor::CursorKind;
use crate::error::CommandResult;
use crate::read::open;
use crate::remote::routing::{Destination, Route, StaleRetries};
use crate::remote::{Retry, ShardRequest, Template};
use crate::reply::Reply;

/// Builds indexes on every shard that owns a part of the collection.
pub async fn create_indexes(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    ensure_database(op.router, ns.db(), op.deadline).await?;
    let target = buckets_or_itself(op, &ns).await?;
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    splice::put_str(request.out(), "createIndexes", target.coll());
    arguments::copy_all(op, request.out());
    if target != ns {
        splice::put_bool(request.out(), "isTimeseriesNamespace", true);
    }
    let template: Template = request.write_concern().template();
    let (_, answers) = ask_owners(op, &target, &template, &ReadPreference::PRIMARY, Retry::Never).await?;
    Ok(raw_reply(&answers))
}

/// Drops indexes; the primary shard has every shard do it.
pub async fn drop_indexes(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    arguments::only(op, &["index", "collectionUUID"])?;
    let answered = PrimaryCall::ddl(ns.db())
        .forward(op, |out| {
            splice::put_str(out, "_shardsvrDropIndexes", ns.coll());
            arguments::copy_all(op, out);
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    answered
}

/// The indexes of a collection, as the shard of its lowest key has them.
pub async fn list_indexes(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let mut retries = StaleRetries::new(op.router);
    loop {
        match list_once(op, &ns).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn list_once(op: &Op<'_>, ns: &Namespace) -> CommandResult<Reply> {
    let target = buckets_or_itself(op, ns).await?;
    let Some(route) = fresh_route(op, &target).await? else {
        return Err(database_not_found(ns.db()));
    };
    let destination = match &route {
        Route::Config => Destination::config(),
        Route::Unsharded(database) => Destination::unsharded(database),
        Route::Sharded(routing) => Destination::sharded(routing, &routing.first_chunk().shard),
    };
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    splice::put_str(request.out(), "listIndexes", target.coll());
    arguments::copy_all(op, request.out());
    if target != *ns {
        splice::put_bool(request.out(), "isTimeseriesNamespace", true);
    }
    let mut request = request.finish(|out| destination.versions.write(out))?;
    let set = op.router.shard_set(&destination.shard).await?;
    let preference = op.read_preference()?;
    let servers = op.router.servers();
    let answer = servers.ask_set(&set, &mut request, &preference, Retry::Idempotent, op.deadline).await?;
    let shards_name = answer.reply.body().get_doc("cursor").and_then(|cursor| cursor.get_str("ns"));
    let collection = cursor_collection(shards_name, ns);
    Ok(open::pass_through(op, &destination.shard, set, answer, &collection, || {
        open::owner(op, ns.as_str(), CursorKind::Normal, false)
    }))
}

/// The collection that getMore names for a cursor of this namespace.
pub(super) fn cursor_collection(shards_name: Option<&str>, ns: &Namespace) -> String {
    let known = shards_name.and_then(|name| name.split_once('.')).map(|(_, collection)| collection);
    known.unwrap_or(ns.coll()).to_owned()
}

/// How many members must agree before an index is committed.
pub async fn set_commit_quorum(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let request = ShardRequest::copy(op, |_| false).write_concern();
    let template = request.template();
    let (_, answers) = ask_owners(op, &ns, &template, &ReadPreference::PRIMARY, Retry::NotPrimary).await?;
    Ok(raw_reply(&answers))
}

/// A sharded time series is known by its buckets: the name that the user gave has no entry of its own.
pub(super) async fn buckets_or_itself(op: &Op<'_>, ns: &Namespace) -> CommandResult<Namespace> {
    let Some(Route::Unsharded(_)) = op.router.route_if_exists(ns).await? else { return Ok(ns.clone()) };
    if ns.coll().starts_with("system.") {
        return Ok(ns.clone());
    }
    let buckets = Namespace::new(ns.db(), &format!("system.buckets.{}", ns.coll()));
    let route = op.router.route_if_exists(&buckets).await?;
    Ok(if route.is_some_and(|route| route.sharded().is_some()) { buckets } else { ns.clone() })
}
