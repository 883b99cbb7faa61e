//! reshardCollection and its abort, commit and cleanup; setAllowMigrations, repairShardedCollectionChunksHistory

use chunk_map::Namespace;
use document::{Value, splice};

use super::config_server::{Concern, forward};
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional, required};
use crate::ddl::primary::PrimaryCall;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

const RESHARD: &[arguments::Argument] = &[
    required("key", Kind::Object),
    optional("unique", Kind::SafeBool),
    optional("numInitialChunks", Kind::Number),
    optional("collation", Kind::Object),
    optional("zones", Kind::Array),
    optional("collectionUUID", Kind::Uuid),
    optional("_presetReshardedChunks", Kind::Array),
];

/// Gives a sharded collection another key. Answers when all documents are in their new places.
pub async fn reshard(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, RESHARD)?;
    if op.request.body.get("unique").is_some_and(Value::is_truthy) {
        return Err(CommandError::bad_value("unique must be false on reshardCollection"));
    }
    if let Some(locale) = op.request.body.get_doc("collation").and_then(|doc| doc.get_str("locale"))
        && locale != "simple"
    {
        return Err(CommandError::bad_value(
            "The collation for reshardCollection must be {locale: 'simple'}",
        ));
    }
    let answered = PrimaryCall::on_admin(ns.db())
        .forward(op, |out| {
            splice::put_str(out, "_shardsvrReshardCollection", ns.as_str());
            arguments::copy(op, out, &["key", "unique", "collation", "zones", "_presetReshardedChunks"]);
            if let Some(chunks) = op.request.body.get_i64("numInitialChunks") {
                splice::put_i64(out, "numInitialChunks", chunks);
            }
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    answered
}

/// Gives up.
pub async fn abort(op: &Op<'_>) -> CommandResult<Reply> {
    control(op, Concern::Majority, "_configsvrAbortReshardCollection").await
}

/// Goes on to the end without waiting for the estimate to fall.
pub async fn commit(op: &Op<'_>) -> CommandResult<Reply> {
    control(op, Concern::Majority, "_configsvrCommitReshardCollection").await
}

/// Clears what a failed one left. Takes no write concern (seen on 6.0.5).
pub async fn cleanup(op: &Op<'_>) -> CommandResult<Reply> {
    control(op, Concern::None, "_configsvrCleanupReshardCollection").await
}

async fn control(op: &Op<'_>, concern: Concern, name: &str) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, &[])?;
    let answered = forward(op, concern, |out| splice::put_str(out, name, ns.as_str())).await;
    op.router.catalog().forget_collection(&ns);
    answered
}

/// May the balancer and moveChunk move ranges of a collection?
pub async fn set_allow_migrations(op: &Op<'_>) -> CommandResult<Reply> {
    let ns: Namespace = arguments::namespace(op)?;
    arguments::check(op, &[required("allowMigrations", Kind::Bool)])?;
    let answered = PrimaryCall::ddl(ns.db())
        .forward(op, |out| {
            splice::put_str(out, "_shardsvrSetAllowMigrations", ns.coll());
            arguments::copy(op, out, &["allowMigrations"]);
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    answered
}

/// Writes the history of chunks anew where an old server left it out.
pub async fn repair_history(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, &[optional("force", Kind::SafeBool)])?;
    let answered = forward(op, Concern::Majority, |out| {
        splice::put_str(out, "_configsvrRepairShardedCollectionChunksHistory", ns.as_str());
        arguments::copy(op, out, &["force"]);
    })
    .await;
    op.router.catalog().forget_collection(&ns);
    answered
}
