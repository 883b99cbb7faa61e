//! addShard, listShards, removeShard

use document::{DocBuf, splice};
use topology::ReadPreference;

use super::config_server::{Concern, forward_as};
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional};
use crate::error::{CommandError, CommandResult};
use crate::remote::config::{self, ConfigFind};
use crate::reply::Reply;

/// Adds a replica set as a shard.
pub async fn add_shard(op: &Op<'_>) -> CommandResult<Reply> {
    require_string(op)?;
    let arguments = [optional("name", Kind::Str), optional("maxSize", Kind::Number)];
    arguments::check(op, &arguments)?;
    let reply = forward_as(op, Concern::Majority, "_configsvrAddShard", &["name", "maxSize"]).await;
    reload(op).await;
    reply
}

/// Begins to drain a shard, tells how far it is, or takes it out at last.
pub async fn remove_shard(op: &Op<'_>) -> CommandResult<Reply> {
    require_string(op)?;
    arguments::check(op, &[])?;
    let reply = forward_as(op, Concern::Majority, "_configsvrRemoveShard", &[]).await;
    reload(op).await;
    reply
}

/// The documents of config.shards.
pub async fn list_shards(op: &Op<'_>) -> CommandResult<Reply> {
    let find = ConfigFind {
        collection: "shards",
        filter: DocBuf::new(),
        sort: None,
        concern: config::Concern::Majority,
        preference: ReadPreference::NEAREST,
    };
    let found = op.router.servers().config_find(&find).await?;
    Ok(Reply::build(|out| {
        let shards = splice::open_array(out, "shards");
        for (index, shard) in found.documents.iter().enumerate() {
            splice::put_doc(out, &index.to_string(), shard.as_doc());
        }
        shards.finish(out);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// The list of shards has changed, or may have: what it says must not be older than this command. Nothing is kept of
/// a shard that is gone.
async fn reload(op: &Op<'_>) {
    let before = op.router.registry().snapshot();
    let after = match op.router.registry().reload().await {
        Ok(after) => after,
        Err(error) => {
            op.router.registry().invalidate();
            tracing::warn!(%error, "could not read the list of shards after it was changed");
            return;
        }
    };
    for gone in before.iter().filter(|shard| after.get(&shard.id).is_none()) {
        op.router.catalog().forget_shard(&gone.id);
        op.router.servers().topology().remove(&gone.set_name);
    }
}

fn require_string(op: &Op<'_>) -> CommandResult<()> {
    if op.request.target.as_str().is_some() {
        return Ok(());
    }
    Err(CommandError::wrong_type(&format!("{0}.{0}", op.command.name), op.request.target, "string"))
}
