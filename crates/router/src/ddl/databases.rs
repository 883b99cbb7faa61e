//! Databases that come into being with their first write.

use std::sync::Arc;

use bytes::BytesMut;
use chunk_map::DatabaseEntry;
use document::splice;
use tokio::time::Instant;

use crate::Router;
use crate::codes::ErrorCode;
use crate::error::CommandResult;
use crate::remote::Retry;

/// How long the config servers may take to make a change durable on a majority (mongos: `kMajorityWriteTimeout`).
pub(crate) const MAJORITY_WAIT_MS: i32 = 60_000;

/// Writes `writeConcern: {w: "majority", wtimeout: 60000}`: what every metadata command carries.
pub(crate) fn write_majority(out: &mut BytesMut) {
    let concern = splice::open_doc(out, "writeConcern");
    splice::put_str(out, "w", "majority");
    splice::put_i32(out, "wtimeout", MAJORITY_WAIT_MS);
    concern.finish(out);
}

/// The database, created by the config servers if there is none of this name. Two routers that create the same one
/// get the same.
pub(crate) async fn ensure_database(
    router: &Router,
    name: &str,
    deadline: Option<Instant>,
) -> CommandResult<Arc<DatabaseEntry>> {
    match router.database(name).await {
        Err(error) if error.code() == ErrorCode::NamespaceNotFound => {}
        known => return known,
    }
    router
        .servers()
        .config_command("admin", Retry::Idempotent, deadline, |out| {
            splice::put_str(out, "_configsvrCreateDatabase", name);
            write_majority(out);
        })
        .await
        .map_err(|error| error.context(format_args!("Database {name} could not be created")))?;
    // "No such database" is not remembered, and the reply's `$configTime` is the floor of this read.
    router.database(name).await
}
