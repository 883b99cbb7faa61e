//! movePrimary

use chunk_map::ShardId;
use document::{Value, splice};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments;
use crate::ddl::primary::{PrimaryCall, pass_on};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Moves the unsharded collections of a database to another shard.
pub async fn move_primary(op: &Op<'_>) -> CommandResult<Reply> {
    let db = arguments::database_name(op)?;
    if matches!(db, "admin" | "config" | "local") {
        return Err(CommandError::invalid_options(format!("Can't move primary for {db} database")));
    }
    let to = match op.request.body.get("to") {
        Some(Value::String(name)) => String::from_utf8_lossy(name),
        Some(other) => return Err(CommandError::wrong_type("movePrimary.to", other, "string")),
        None => {
            return Err(CommandError::new(
                ErrorCode(40414),
                "BSON field 'movePrimary.to' is missing but a required field",
            ));
        }
    };
    if to.is_empty() {
        return Err(CommandError::invalid_options("you have to specify where you want to move it"));
    }
    let shard = op.router.registry().shard(&ShardId::new(&to)).await;
    let id = shard.map_err(|error| crate::remote::routing::catalog_error(&error))?.id.clone();
    let answered = PrimaryCall::on_admin(db)
        .ask(op, |out| {
            splice::put_str(out, "_shardsvrMovePrimary", db);
            splice::put_str(out, "to", id.as_str());
        })
        .await;
    op.router.catalog().forget_database(db);
    Ok(pass_on(answered?))
}
