//! drop and dropDatabase

use chunk_map::Namespace;
use document::splice;

use super::arguments::{self, Kind, optional};
use super::primary::{PrimaryCall, pass_on};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Drops a collection; one that does not exist is no error.
pub async fn drop_collection(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    arguments::check(op, &[optional("collectionUUID", Kind::Uuid)])?;
    if matches!(ns.db(), "config" | "admin") {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("Cannot drop collection in '{}' database in sharded cluster", ns.db()),
        ));
    }
    let answered = PrimaryCall::ddl(ns.db())
        .ask(op, |out| {
            splice::put_str(out, "_shardsvrDropCollection", ns.coll());
            arguments::copy(op, out, &["collectionUUID"]);
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    op.router.catalog().forget_collection(&Namespace::new(ns.db(), &format!("system.buckets.{}", ns.coll())));
    match answered {
        Ok(answer) => Ok(pass_on(answer)),
        Err(error) if is_missing_database(&error) && !op.request.body.contains("collectionUUID") => {
            Ok(Reply::build(|out| {
                splice::put_str(out, "info", "database does not exist");
                splice::put_f64(out, "ok", 1.0);
            }))
        }
        Err(error) => Err(error),
    }
}

/// Drops a database; one that does not exist is no error.
pub async fn drop_database(op: &Op<'_>) -> CommandResult<Reply> {
    let db = op.request.db;
    arguments::check(op, &[])?;
    if matches!(db, "config" | "admin") {
        return Err(CommandError::new(ErrorCode::IllegalOperation, format!("Cannot drop the {db} database")));
    }
    if op.request.target.as_i64() != Some(1) {
        return Err(CommandError::bad_value("have to pass 1 as db parameter"));
    }
    let answered = PrimaryCall::ddl(db).ask(op, |out| splice::put_i32(out, "_shardsvrDropDatabase", 1)).await;
    op.router.catalog().forget_database(db);
    match answered {
        Ok(answer) => Ok(pass_on(answer)),
        // Also when another router dropped it: its version was stale, and then there was none.
        Err(error) if is_missing_database(&error) => Ok(Reply::ok()),
        Err(error) => Err(error),
    }
}

/// Did the routing table, or a shard, say that there is no such database?
fn is_missing_database(error: &CommandError) -> bool {
    error.code() == ErrorCode::NamespaceNotFound
}
