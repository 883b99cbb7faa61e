//! enableSharding, shardCollection, refineCollectionShardKey

use chunk_map::{DatabaseVersion, Namespace, ShardId};
use document::{Timestamp, Value, splice};

use super::config_server::{self, Concern};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional, required};
use crate::ddl::databases::ensure_database;
use crate::ddl::primary::PrimaryCall;
use crate::ddl::scatter::every_shard;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Versions};
use crate::reply::Reply;

/// Creates the database, if need be on a shard of the client's choice.
pub async fn enable_sharding(op: &Op<'_>) -> CommandResult<Reply> {
    let db = arguments::database_name(op)?;
    arguments::check(op, &[optional("primaryShard", Kind::Str)])?;
    let answered = config_server::ask(op, Concern::Majority, |out| {
        splice::put_str(out, "_configsvrCreateDatabase", db);
        arguments::rename(op, out, "primaryShard", "primaryShardId");
        splice::put_bool(out, "enableSharding", true);
    })
    .await;
    op.router.catalog().forget_database(db);
    answered?;
    Ok(Reply::ok())
}

const SHARD_COLLECTION: &[arguments::Argument] = &[
    required("key", Kind::Object),
    optional("unique", Kind::SafeBool),
    optional("numInitialChunks", Kind::Number),
    optional("presplitHashedZones", Kind::SafeBool),
    optional("collation", Kind::Object),
    optional("timeseries", Kind::Object),
    optional("collectionUUID", Kind::Uuid),
    optional("enforceUniquenessCheck", Kind::SafeBool),
];

/// Spreads a collection, which need not exist yet.
pub async fn shard_collection(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, SHARD_COLLECTION)?;
    if ns.coll().starts_with("system.buckets.") {
        return Err(CommandError::new(ErrorCode(5_731_501), "Sharding a buckets collection is not allowed"));
    }
    let call = PrimaryCall::ddl(ns.db());
    let fill = |out: &mut bytes::BytesMut| {
        splice::put_str(out, "_shardsvrCreateCollection", ns.coll());
        arguments::rename(op, out, "key", "shardKey");
        put_flag(op, out, "unique");
        if let Some(chunks) = op.request.body.get_i64("numInitialChunks") {
            splice::put_i64(out, "numInitialChunks", chunks);
        }
        put_flag(op, out, "presplitHashedZones");
        put_flag(op, out, "enforceUniquenessCheck");
        arguments::copy(op, out, &["collation", "timeseries", "collectionUUID"]);
    };
    let answered = match ns.db() {
        "admin" => {
            return Err(CommandError::new(
                ErrorCode::IllegalOperation,
                format!("can't shard collections in the admin database: {ns}"),
            ));
        }
        "config" => {
            let destination = first_shard(op).await?;
            call.ask_there(op, &destination, fill).await
        }
        db => {
            ensure_database(op.router, db, op.deadline).await?;
            call.ask(op, fill).await
        }
    };
    forget(op, &ns);
    answered?;
    Ok(Reply::build(|out| {
        splice::put_str(out, "collectionsharded", ns.as_str());
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Adds fields to the end of a shard key.
pub async fn refine_shard_key(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    let list = [required("key", Kind::Object), optional("enforceUniquenessCheck", Kind::SafeBool)];
    arguments::check(op, &list)?;
    let answered = PrimaryCall::ddl(ns.db())
        .forward(op, |out| {
            splice::put_str(out, "_shardsvrRefineCollectionShardKey", ns.coll());
            arguments::rename(op, out, "key", "newShardKey");
            put_flag(op, out, "enforceUniquenessCheck");
        })
        .await;
    forget(op, &ns);
    answered
}

/// The routing entries of a collection are read anew: also that of the buckets behind a time series.
fn forget(op: &Op<'_>, ns: &Namespace) {
    op.router.catalog().forget_collection(ns);
    let buckets = Namespace::new(ns.db(), &format!("system.buckets.{}", ns.coll()));
    op.router.catalog().forget_collection(&buckets);
}

/// Servers take `true` only; shells send 1 as well.
fn put_flag(op: &Op<'_>, out: &mut bytes::BytesMut, name: &str) {
    if let Some(value) = op.request.body.get(name).filter(|value| *value != Value::Null) {
        splice::put_bool(out, name, value.is_truthy());
    }
}

/// Collections of `config` have no primary shard: the first shard by name coordinates (mongos 6.0).
async fn first_shard(op: &Op<'_>) -> CommandResult<Destination> {
    let shards = every_shard(op).await?;
    let shard: ShardId = shards.first().map(|destination| destination.shard.clone()).ok_or_else(|| {
        CommandError::new(ErrorCode::ShardNotFound, "there are no shards to shard a collection on")
    })?;
    let fixed = DatabaseVersion { uuid: [0; 16], timestamp: Timestamp::default(), last_mod: 0 };
    Ok(Destination { shard, versions: Versions::Database(Some(fixed)) })
}
