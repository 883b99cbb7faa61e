//! Old and rare commands that a mongos answers by itself.

use document::{Value, splice};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Query flags that a mongos takes: tailable, secondaryOk, oplogReplay, noCursorTimeout, awaitData, partial.
const QUERY_OPTIONS: i32 = 2 | 4 | 8 | 16 | 32 | 128;
/// `slowms` that nobody changed.
const SLOW_MS: i32 = 100;

/// What is slow enough for the log. No router profiles (`system.profile` would have to be somewhere).
pub async fn profile(op: &Op<'_>) -> CommandResult<Reply> {
    let Some(level) = op.request.target.as_i64() else {
        return Err(CommandError::wrong_type("profile.profile", op.request.target, "int"));
    };
    if !matches!(level, 0 | -1) {
        return Err(CommandError::bad_value(
            "Profiling is not permitted on mongoS: the profile command may only be used to set the slow operation settings",
        ));
    }
    for name in ["slowms", "sampleRate", "filter"] {
        let said = op.request.body.get(name);
        let same = match (name, said) {
            (_, None | Some(Value::Null)) => true,
            ("slowms", Some(value)) => value.as_i64() == Some(i64::from(SLOW_MS)),
            ("sampleRate", Some(value)) => value.as_i64() == Some(1),
            _ => false,
        };
        if !same {
            return Err(CommandError::not_supported(format_args!("profile with another {name}")));
        }
    }
    Ok(Reply::build(|out| {
        splice::put_i32(out, "was", 0);
        splice::put_i32(out, "slowms", SLOW_MS);
        splice::put_f64(out, "sampleRate", 1.0);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Is this address the process that answers? Asked by members of a set when they are configured.
pub async fn is_self(op: &Op<'_>) -> CommandResult<Reply> {
    Ok(Reply::build(|out| {
        splice::put_element(out, 0x07, "id", &op.router.process_id());
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// What old shells ask.
pub async fn available_query_options(_op: &Op<'_>) -> CommandResult<Reply> {
    Ok(Reply::build(|out| {
        splice::put_i32(out, "options", QUERY_OPTIONS);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Gone since 5.1.
pub async fn get_last_error(_op: &Op<'_>) -> CommandResult<Reply> {
    Err(CommandError::new(ErrorCode(5_739_000), "getLastError command is not supported"))
}

/// Commands that do nothing on a router and say so with `ok: 1`.
pub async fn nothing(_op: &Op<'_>) -> CommandResult<Reply> {
    Ok(Reply::ok())
}
