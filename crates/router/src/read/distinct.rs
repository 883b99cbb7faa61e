//! `distinct`: one set of values a shard, united in the order of BSON values.

use document::order::compare_values;
use document::{Doc, Value, splice};
use futures_util::future::join_all;

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destinations, Route, StaleRetries};
use crate::remote::{Retry, ShardReply, ShardRequest};
use crate::reply::Reply;

/// Runs a distinct.
pub async fn distinct(op: &Op<'_>) -> CommandResult<Reply> {
    let body = op.request.body;
    if let Some(value) = body.get("runtimeConstants") {
        return Err(CommandError::wrong_type("distinct.runtimeConstants", value, "absent"));
    }
    let query = match body.get("query") {
        None | Some(Value::Null | Value::Undefined) => Doc::empty(),
        Some(Value::Document(query)) => query,
        Some(other) => return Err(CommandError::wrong_type("distinct.query", other, "object")),
    };
    let collation = body.get_doc("collation").filter(|collation| !collation.is_empty());
    let ns = op.namespace()?;
    let mut retries = StaleRetries::of_read(op);
    loop {
        let Some((route, destinations)) = op.router.target_read(op, &ns, query, collation).await? else {
            return Ok(Reply::build(|out| {
                splice::open_array(out, "values").finish(out);
                splice::put_f64(out, "ok", 1.0);
            }));
        };
        check_snapshot(op, &route)?;
        let collates =
            collation.or(route.default_collation()).filter(|doc| doc.get_str("locale") != Some("simple"));
        if collates.is_some() && destinations.len() > 1 {
            return super::view::distinct_by_group(op).await;
        }
        match ask(op, &destinations).await {
            Ok(answers) => return Ok(unite(op, answers)),
            Err(error) if retries.again(&error) => {}
            Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
                return super::view::distinct(op, &error).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn check_snapshot(op: &Op<'_>, route: &Route) -> CommandResult<()> {
    let level = op.request.generic.read_concern.and_then(|concern| concern.get_str("level"));
    if level == Some("snapshot") && route.sharded().is_some() {
        return Err(CommandError::invalid_options(
            "readConcern level \"snapshot\" prohibited for \"distinct\" command on sharded collection",
        ));
    }
    Ok(())
}

async fn ask(op: &Op<'_>, destinations: &Destinations) -> CommandResult<Vec<ShardReply>> {
    let template = ShardRequest::copy(op, |_| false).read_concern(destinations).template();
    let preference = op.read_preference()?;
    let asked = destinations.iter().map(|destination| {
        let (template, preference) = (&template, &preference);
        async move {
            let mut request = template.finish(|out| destination.versions.write(out))?;
            op.ask(&destination.shard, &mut request, preference, Retry::Idempotent).await
        }
    });
    join_all(asked).await.into_iter().collect()
}

/// All values once, ascending. The first representative of equal numbers wins, as on one shard.
fn unite(op: &Op<'_>, answers: Vec<ShardReply>) -> Reply {
    let time = answers.iter().filter_map(|answer| answer.summary.times.operation).max();
    let mut values: Vec<Value<'_>> = answers
        .iter()
        .filter_map(|answer| answer.reply.body().get_array("values"))
        .flatten()
        .map(document::Field::value)
        .collect();
    values.sort_by(|left, right| compare_values(*left, *right));
    values.dedup_by(|next, kept| compare_values(*next, *kept).is_eq());
    let mut doc = document::DocBuf::new();
    doc.write(|w| w.array("values", values, |w, name, value| w.value(name, value)));
    if let Some(at) = op.snapshot() {
        doc.append("atClusterTime", at);
    }
    Reply::ok_with(doc.as_doc()).at(time)
}
