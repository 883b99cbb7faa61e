//! addShardToZone, removeShardFromZone, updateZoneKeyRange

use document::splice;

use super::config_server::{Concern, forward, forward_as};
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional, required};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// A shard may hold ranges of a zone.
pub async fn add_shard(op: &Op<'_>) -> CommandResult<Reply> {
    shard_and_zone(op, "_configsvrAddShardToZone").await
}

/// A shard may not hold them any more.
pub async fn remove_shard(op: &Op<'_>) -> CommandResult<Reply> {
    shard_and_zone(op, "_configsvrRemoveShardFromZone").await
}

async fn shard_and_zone(op: &Op<'_>, name: &str) -> CommandResult<Reply> {
    if op.request.target.as_str().is_none() {
        return Err(CommandError::wrong_type(op.command.name, op.request.target, "string"));
    }
    arguments::check(op, &[required("zone", Kind::Str)])?;
    forward_as(op, Concern::Majority, name, &["zone"]).await
}

/// A range of keys belongs to a zone, or with null to none.
pub async fn update_key_range(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    let list =
        [required("min", Kind::Object), required("max", Kind::Object), optional("zone", Kind::StrOrNull)];
    arguments::check(op, &list)?;
    forward(op, Concern::Majority, |out| {
        splice::put_str(out, "_configsvrUpdateZoneKeyRange", ns.as_str());
        arguments::copy(op, out, &["min", "max"]);
        // Null is a value here: it takes the range out of its zone.
        arguments::rename(op, out, "zone", "zone");
    })
    .await
}
