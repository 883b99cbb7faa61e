//! getDefaultRWConcern, setDefaultRWConcern

use document::Value;

use super::config_server::{self, Concern, put_first};
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional};
use crate::ddl::primary::pass_on;
use crate::error::{CommandError, CommandResult};
use crate::remote::Retry;
use crate::reply::Reply;

/// What the config servers keep; with `inMemory` what this router goes by.
pub async fn get_default_rw_concern(op: &Op<'_>) -> CommandResult<Reply> {
    arguments::check(op, &[optional("inMemory", Kind::Bool)])?;
    let answer =
        config_server::ask(op, Concern::None, |out| put_first(op, out, "getDefaultRWConcern")).await?;
    op.router.defaults().update(answer.reply.body());
    let in_memory = op.request.body.get("inMemory").is_some_and(Value::is_truthy);
    let mut reply = pass_on(answer);
    if in_memory {
        reply.append(|out| document::splice::put_bool(out, "inMemory", true));
    }
    Ok(reply)
}

/// Sets them for the whole cluster; other routers see it within half a minute.
pub async fn set_default_rw_concern(op: &Op<'_>) -> CommandResult<Reply> {
    let list = [optional("defaultReadConcern", Kind::Object), optional("defaultWriteConcern", Kind::Object)];
    arguments::check(op, &list)?;
    if list_is_empty(op) {
        return Err(CommandError::bad_value(
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present",
        ));
    }
    let answered = config_server::ask_on(op, "admin", Concern::Majority, Retry::NotPrimary, |out| {
        put_first(op, out, "setDefaultRWConcern");
        arguments::copy(op, out, &["defaultReadConcern", "defaultWriteConcern"]);
    })
    .await;
    let answer = match answered {
        Ok(answer) => answer,
        Err(error) => {
            // It may have been done all the same.
            let _ = op.router.refresh_defaults().await;
            return Err(error);
        }
    };
    op.router.defaults().update(answer.reply.body());
    Ok(pass_on(answer))
}

fn list_is_empty(op: &Op<'_>) -> bool {
    !["defaultReadConcern", "defaultWriteConcern"].iter().any(|name| op.request.body.contains(name))
}
