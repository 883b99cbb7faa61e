//! `killOp`: operations of a shard are named `<shard>:<number>`, this router's own by their number.

use document::{Value, splice};
use topology::ReadPreference;

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Runs a killOp.
pub async fn kill_op(op: &Op<'_>) -> CommandResult<Reply> {
    let Some(value) = op.request.body.get("op") else {
        return Err(CommandError::new(ErrorCode(50759), "Did not provide \"op\" field"));
    };
    match value {
        Value::String(_) => on_shard(op, value.as_str().unwrap_or_default()).await,
        // A number is a command of this router. Whether there was one, the answer does not say, as the server's.
        number if number.is_number() => {
            if let Some(number) = number.as_i64().and_then(|number| i32::try_from(number).ok()) {
                op.router.operations().kill(number);
            }
            Ok(Reply::build(|out| {
                splice::put_str(out, "info", "attempting to kill op");
                splice::put_f64(out, "ok", 1.0);
            }))
        }
        other => Err(CommandError::wrong_type("killOp.op", other, "[string, int, long, double]")),
    }
}

/// `<shard>:<number>`, taken apart.
fn parse(name: &str) -> CommandResult<(&str, i32)> {
    let malformed = || {
        CommandError::new(
            ErrorCode(28625),
            format!("The op argument to killOp must be of the format shardid:opid but found \"{name}\""),
        )
    };
    let (shard, number) =
        name.rsplit_once(':').filter(|(shard, _)| !shard.is_empty()).ok_or_else(malformed)?;
    let number = number.parse().map_err(|_| {
        CommandError::new(
            ErrorCode(28626),
            format!("Failed to parse opid in killOp argument \"{name}\": not a number"),
        )
    })?;
    Ok((shard, number))
}

async fn on_shard(op: &Op<'_>, name: &str) -> CommandResult<Reply> {
    let (shard, number) = parse(name)?;
    let mut request = ShardRequest::new(op, 32);
    splice::put_i32(request.out(), "killOp", 1);
    splice::put_i32(request.out(), "op", number);
    let mut request = request.finish(|_| {})?;
    let id = chunk_map::ShardId::new(shard);
    op.router.ask_shard(&id, &mut request, &ReadPreference::PRIMARY, Retry::Idempotent, op.deadline).await?;
    Ok(Reply::build(|out| {
        splice::put_str(out, "shard", shard);
        splice::put_i32(out, "shardid", number);
        splice::put_f64(out, "ok", 1.0);
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_named_by_its_shard_and_number() {
        assert_eq!(parse("shard0:123").unwrap(), ("shard0", 123));
        assert_eq!(parse("odd:name:-7").unwrap(), ("odd:name", -7));
        for (name, code) in [("shard0", 28625), (":5", 28625), ("shard0:", 28626), ("shard0:x", 28626)] {
            assert_eq!(parse(name).unwrap_err().code().0, code, "{name}");
        }
    }
}
