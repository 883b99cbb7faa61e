//! renameCollection, convertToCapped

use document::{Value, splice};

use super::arguments::{self, Kind, optional, required};
use super::primary::{Attach, Concern, PrimaryCall};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::Retry;
use crate::reply::Reply;

const RENAME: &[arguments::Argument] = &[
    required("to", Kind::Str),
    optional("dropTarget", Kind::Any),
    optional("stayTemp", Kind::SafeBool),
    optional("collectionUUID", Kind::Uuid),
];

/// Renames a collection; between databases only one that is not sharded, and on the same shard.
pub async fn rename_collection(op: &Op<'_>) -> CommandResult<Reply> {
    let from = arguments::namespace(op)?;
    arguments::check(op, RENAME)?;
    let to = arguments::parse_namespace(op.request.body.get_str("to").unwrap_or_default())?;
    if from == to {
        return Err(CommandError::new(ErrorCode::IllegalOperation, "Can't rename a collection to itself"));
    }
    let answered = PrimaryCall::ddl(from.db())
        .retry(Retry::Never)
        .forward(op, |out| {
            splice::put_str(out, "_shardsvrRenameCollection", from.coll());
            splice::put_str(out, "to", to.as_str());
            arguments::copy(op, out, &["dropTarget", "stayTemp", "collectionUUID"]);
        })
        .await;
    for ns in [&from, &to] {
        op.router.catalog().forget_collection(ns);
    }
    // The version in the shard's answer is for routers.
    answered.map(|_| Reply::ok())
}

/// Makes a collection capped. The router refuses sharded ones itself: a shard would do it to its part (seen on 6.0.5).
pub async fn convert_to_capped(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    if !op.request.body.get("size").is_some_and(Value::is_number) {
        return Err(CommandError::invalid_options("Capped collection size must be greater than zero"));
    }
    let route = op.router.route(&ns).await?;
    if route.sharded().is_some() {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "You can't convertToCapped a sharded collection",
        ));
    }
    let call =
        PrimaryCall::ddl(ns.db()).concern(Concern::Client).attach(Attach::Unsharded).retry(Retry::Idempotent);
    let answered = call
        .forward(op, |out| {
            splice::put_str(out, "convertToCapped", ns.coll());
            arguments::copy_all(op, out);
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    answered.map_err(|error| {
        if error.code() == ErrorCode::StaleConfig {
            let text = "Can't do command: convertToCapped on a sharded collection";
            return CommandError::new(ErrorCode::IllegalOperation, text);
        }
        error
    })
}
