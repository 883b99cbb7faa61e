//! `$out` and `$merge`: where their documents may go.

use chunk_map::Namespace;
use document::Value;

use super::aggregate::Aggregation;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::Route;

/// Refuses targets that cannot be written this way.
pub(super) async fn check_target(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<()> {
    let Some(stage) = aggregation.stages.last() else { return Ok(()) };
    let target = match (stage.name, stage.argument) {
        ("$out", Value::String(_)) => {
            stage.argument.as_str().map(|name| Namespace::new(aggregation.ns.db(), name))
        }
        ("$out", Value::Document(target)) => {
            target.get_str("db").zip(target.get_str("coll")).map(|(db, coll)| Namespace::new(db, coll))
        }
        ("$merge", _) => return Err(CommandError::not_supported("$merge")),
        _ => return Ok(()),
    };
    let Some(target) = target else { return Ok(()) };
    if matches!(op.router.route_if_exists(&target).await?, Some(Route::Sharded(_))) {
        return Err(CommandError::new(ErrorCode(28769), format!("{target} cannot be sharded")));
    }
    Ok(())
}
