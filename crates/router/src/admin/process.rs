//! Old and rare commands that a mongos answers by itself.

use std::time::Duration;

use document::{Value, splice};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional};
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;

/// Query flags that a mongos takes: tailable, secondaryOk, oplogReplay, noCursorTimeout, awaitData, partial.
const QUERY_OPTIONS: i32 = 2 | 4 | 8 | 16 | 32 | 128;

/// What is slow enough for the log. No router profiles (`system.profile` would have to be somewhere).
pub async fn profile(op: &Op<'_>) -> CommandResult<Reply> {
    let target = op.request.target;
    let number = |name: &str, value: Value<'_>| {
        whole(value).ok_or_else(|| {
            CommandError::wrong_type(&format!("profile.{name}"), value, "[long, int, decimal, double]")
        })
    };
    if !matches!(number("profile", target)?, 0 | -1) {
        return Err(CommandError::bad_value(
            "Profiling is not permitted on mongoS: the profile command may only be used to set the slow operation settings",
        ));
    }
    let said = |name: &str| op.request.body.get(name).filter(|value| *value != Value::Null);
    let threshold = said("slowms").map(|value| number("slowms", value)).transpose()?;
    let rate = said("sampleRate")
        .map(|value| {
            fraction(value).ok_or_else(|| {
                CommandError::wrong_type("profile.sampleRate", value, "[long, int, decimal, double]")
            })
        })
        .transpose()?;
    if rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
        return Err(CommandError::bad_value("'sampleRate' must be between 0.0 and 1.0 inclusive"));
    }
    match said("filter") {
        None => {}
        Some(value) if value.as_str() == Some("unset") => {}
        Some(Value::Document(_)) => {
            return Err(CommandError::not_supported(format_args!("profile with a filter")));
        }
        Some(_) => return Err(CommandError::bad_value("Expected an object, or the string 'unset'.")),
    }
    let slow_log = op.router.slow_log();
    let was = (slow_log.threshold_ms(), slow_log.sample_rate());
    if let Some(ms) = threshold {
        let least = i64::from(i32::MIN);
        slow_log.set_threshold_ms(i32::try_from(ms.clamp(least, i64::from(i32::MAX))).unwrap_or(i32::MAX));
    }
    if let Some(rate) = rate {
        slow_log.set_sample_rate(rate);
    }
    Ok(Reply::build(|out| {
        splice::put_i32(out, "was", 0);
        splice::put_i32(out, "slowms", was.0);
        splice::put_f64(out, "sampleRate", was.1);
        splice::put_f64(out, "ok", 1.0);
    }))
}

/// Any number from 0 to 1, and what is beyond them as it is.
fn fraction(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Double(n) => Some(n),
        other => other.as_i64().map(|n| f64::from(i32::try_from(n.clamp(-2, 2)).unwrap_or(2))),
    }
}

/// Any number, cut to a whole one.
fn whole(value: Value<'_>) -> Option<i64> {
    value.as_i64().or_else(|| match value {
        Value::Double(n) => Value::Double(n.trunc()).as_i64(),
        _ => None,
    })
}

/// Begins a new log file.
pub async fn log_rotate(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::check(op, &[])?;
    let target = op.request.target;
    if target.as_str().is_some_and(|name| name != "server") {
        return Err(CommandError::new(ErrorCode::NoSuchKey, "Log rotation failed due to one or more errors"));
    }
    match op.router.settings().process.rotate_log().await {
        Ok(Ok(())) => Ok(Reply::ok()),
        Ok(Err(error)) => {
            tracing::error!(c = "CONTROL", id = 23168, %error, "Log rotation failed");
            Err(CommandError::new(ErrorCode(37), "Log rotation failed due to one or more errors"))
        }
        Err(_) => {
            Err(CommandError::new(ErrorCode::OperationFailed, "The log is too far behind to be rotated"))
        }
    }
}

/// Ends the process as SIGTERM does. The client sees its connection close instead of an answer.
pub async fn shut_down(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::check(op, &[optional("force", Kind::Bool), optional("timeoutSecs", Kind::Number)])?;
    if !op.client.is_local() {
        return Err(CommandError::new(
            ErrorCode::Unauthorized,
            "shutdown must run from localhost when running db without auth",
        ));
    }
    let seconds = op.request.body.get("timeoutSecs").and_then(whole);
    let quiesce = seconds.map_or_else(
        || op.router.parameters().millis("mongosShutdownTimeoutMillisForSignaledShutdown"),
        quiesce_time,
    );
    tracing::info!(c = "COMMAND", id = 4_695_400, "Terminating via shutdown command");
    op.router.settings().process.shut_down(quiesce);
    Ok(Reply::ok())
}

/// No longer than a clock can count; a negative time is none.
fn quiesce_time(seconds: i64) -> Duration {
    Duration::from_secs(u32::try_from(seconds.clamp(0, i64::from(i32::MAX))).unwrap_or(0).into())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::quiesce::Quiesce;

    #[test]
    fn a_shutdown_with_any_timeout_begins() {
        for seconds in [i64::MIN, 0, 15, i64::MAX] {
            let quiesce = Quiesce::default();
            quiesce.begin(quiesce_time(seconds));
            assert!(quiesce.is_on());
        }
    }
}
