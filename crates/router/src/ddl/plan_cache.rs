//! planCacheClear, planCacheClearFilters, planCacheSetFilter, planCacheListFilters

use document::splice;
use topology::ReadPreference;

use super::scatter::{all_or_error, ask_owners, put_clean};
use crate::command::{Access, Op};
use crate::error::CommandResult;
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Every shard that owns a part does it; the reply has the first shard's fields, then each shard's under its id.
pub async fn run(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let template = ShardRequest::copy(op, |_| false).template();
    let preference = match op.command.access {
        Access::Read => op.read_preference()?,
        Access::Write | Access::Neutral => ReadPreference::PRIMARY,
    };
    let (_, answers) = ask_owners(op, &ns, &template, &preference, Retry::Idempotent).await?;
    let bodies = all_or_error(&answers)?;
    Ok(Reply::build(|out| {
        if let Some((_, first)) = bodies.first() {
            for field in *first {
                if field.name() != "ok" && !crate::reply::is_internal(field.name_bytes()) {
                    out.extend_from_slice(field.raw());
                }
            }
        }
        for (answer, body) in &bodies {
            put_clean(out, answer.shard.as_str(), *body);
        }
        splice::put_f64(out, "ok", 1.0);
    }))
}
