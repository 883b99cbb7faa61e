//! setFeatureCompatibilityVersion, cluster parameters, the block of user writes

use document::splice;

use super::config_server::{Concern, forward, forward_as};
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional, required};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Turns the features of a server version on or off in the whole cluster.
pub async fn set_feature_compatibility_version(op: &Op<'_>) -> CommandResult<Reply> {
    forward(op, Concern::Majority, |out| {
        super::config_server::put_first(op, out, "setFeatureCompatibilityVersion");
        arguments::copy_all(op, out);
    })
    .await
}

/// Sets a parameter of all servers of the cluster.
pub async fn set_cluster_parameter(op: &Op<'_>) -> CommandResult<Reply> {
    if op.request.target.as_doc().is_none() {
        return Err(CommandError::wrong_type(
            "setClusterParameter.setClusterParameter",
            op.request.target,
            "object",
        ));
    }
    // It refuses a write concern (seen on 6.0.5).
    forward_as(op, Concern::None, "_configsvrSetClusterParameter", &[]).await
}

/// The config servers keep them.
pub async fn get_cluster_parameter(op: &Op<'_>) -> CommandResult<Reply> {
    forward_as(op, Concern::None, "getClusterParameter", &[]).await
}

/// Refuses the writes of all users but those that may pass.
pub async fn set_user_write_block_mode(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::check(op, &[required("global", Kind::Bool), optional("reason", Kind::Any)])?;
    forward(op, Concern::Majority, |out| {
        splice::put_i32(out, "_configsvrSetUserWriteBlockMode", 1);
        arguments::copy(op, out, &["global"]);
    })
    .await
}
