//! `killCursors`: ends cursors of this router; their shard cursors are closed in the background.

use document::{DocBuf, Value};

use crate::command::Op;
use crate::ddl::arguments;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Runs a killCursors.
pub async fn kill_cursors(op: &Op<'_>) -> CommandResult<Reply> {
    op.request.collection()?;
    arguments::only(op, &["cursors"])?;
    let Some(value) = op.request.body.get("cursors") else {
        return Err(CommandError::new(
            crate::ErrorCode(40414),
            "BSON field 'killCursors.cursors' is missing but a required field",
        ));
    };
    let Value::Array(cursors) = value else {
        return Err(CommandError::wrong_type("killCursors.cursors", value, "array"));
    };
    let mut ids = Vec::new();
    for cursor in cursors {
        let Value::Int64(id) = cursor.value() else {
            return Err(CommandError::wrong_type(
                &format!("killCursors.cursors.{}", cursor.name()),
                cursor.value(),
                "long",
            ));
        };
        ids.push(id);
    }
    let (mut killed, mut not_found) = (Vec::new(), Vec::new());
    for id in ids {
        match op.router.cursors().kill(id) {
            // Dropped, they close on their shards in the background.
            Some(_) => killed.push(id),
            None => not_found.push(id),
        }
    }
    let mut doc = DocBuf::new();
    doc.write(|w| {
        for (name, ids) in [
            ("cursorsKilled", &killed),
            ("cursorsNotFound", &not_found),
            ("cursorsAlive", &vec![]),
            ("cursorsUnknown", &vec![]),
        ] {
            w.array(name, ids.iter().copied(), |w, index, id: i64| w.put(index, id));
        }
    });
    Ok(Reply::ok_with(doc.as_doc()))
}
