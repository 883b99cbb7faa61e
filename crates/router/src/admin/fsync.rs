//! fsync

use document::{Value, splice};
use topology::ReadPreference;

use crate::command::Op;
use crate::ddl::scatter::{all_or_error, ask_every_shard, put_clean};
use crate::error::{CommandError, CommandResult};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Every shard's primary writes its data to disk. 6.0.5 routers cannot lock.
pub async fn fsync(op: &Op<'_>) -> CommandResult<Reply> {
    if op.request.body.get("lock").is_some_and(Value::is_truthy) {
        return Err(CommandError::without_code("can't do lock through mongos"));
    }
    let mut request = ShardRequest::new(op, 64);
    splice::put_i32(request.out(), "fsync", 1);
    let template = request.template_on("admin");
    let answers = ask_every_shard(op, &template, &ReadPreference::PRIMARY, Retry::Idempotent).await?;
    let bodies = all_or_error(&answers)?;
    let files: i64 = bodies.iter().filter_map(|(_, body)| body.get_i64("numFiles")).sum();
    Ok(Reply::build(|out| {
        splice::put_i32(out, "numFiles", i32::try_from(files).unwrap_or(i32::MAX));
        let all = splice::open_doc(out, "all");
        for (answer, body) in &bodies {
            put_clean(out, answer.shard.as_str(), *body);
        }
        all.finish(out);
        splice::put_f64(out, "ok", 1.0);
    }))
}
