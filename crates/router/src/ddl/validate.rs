//! validate, validateDBMetadata

use document::{Doc, Value, splice};
use topology::ReadPreference;

use super::scatter::{all_or_error, ask_every_shard, ask_owners, put_clean};
use crate::command::Op;
use crate::error::CommandResult;
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Checks a collection on all shards that own a part of it.
pub async fn validate(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let template = ShardRequest::copy(op, |_| false).template();
    let preference = op.read_preference()?;
    let (_, answers) = ask_owners(op, &ns, &template, &preference, Retry::Idempotent).await?;
    let failure = answers.iter().find_map(|answer| answer.result.as_ref().err());
    let valid = answers
        .iter()
        .filter_map(super::scatter::Answer::body)
        .all(|body| body.get("valid").is_some_and(Value::is_truthy));
    Ok(Reply::build(|out| {
        // Here mongos names shards by their ids.
        let raw = splice::open_doc(out, "raw");
        for answer in &answers {
            match &answer.result {
                Ok(reply) => put_clean(out, answer.shard.as_str(), reply.reply.body()),
                Err(error) => {
                    let failed = splice::open_doc(out, answer.shard.as_str());
                    splice::put_str(out, "error", &error.to_string());
                    failed.finish(out);
                }
            }
        }
        raw.finish(out);
        splice::put_bool(out, "valid", valid && failure.is_none());
        match failure {
            None => splice::put_f64(out, "ok", 1.0),
            Some(error) => {
                let mut doc = document::DocBuf::new();
                doc.write(|w| error.clone().cloaked().write_reply(w));
                out.extend_from_slice(doc.as_doc().elements());
            }
        }
    }))
}

/// What in a database would break the rules of a stable API version, on all shards.
pub async fn validate_db_metadata(op: &Op<'_>) -> CommandResult<Reply> {
    let template = ShardRequest::copy(op, |_| false).template();
    let answers = ask_every_shard(op, &template, &ReadPreference::PRIMARY, Retry::Idempotent).await?;
    let bodies = all_or_error(&answers)?;
    let more = bodies.iter().any(|(_, body)| body.get("hasMoreErrors").is_some_and(Value::is_truthy));
    Ok(Reply::build(|out| {
        let list = splice::open_array(out, "apiVersionErrors");
        let mut index = 0_usize;
        for (answer, body) in &bodies {
            for error in body.get_array("apiVersionErrors").unwrap_or(Doc::empty()) {
                let Some(error) = error.value().as_doc() else { continue };
                let item = splice::open_doc(out, &index.to_string());
                out.extend_from_slice(error.elements());
                splice::put_str(out, "shard", answer.shard.as_str());
                item.finish(out);
                index += 1;
            }
        }
        list.finish(out);
        if more {
            splice::put_bool(out, "hasMoreErrors", true);
        }
        splice::put_f64(out, "ok", 1.0);
    }))
}
