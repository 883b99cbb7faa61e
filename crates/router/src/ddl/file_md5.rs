//! filemd5: the digest of a GridFS file whose chunks may lie on several shards.

use bytes::BytesMut;
use chunk_map::{CollectionRouting, Namespace};
use document::{DocBuf, Field, Value, splice};

use super::arguments::put_as;
use super::primary::pass_on;
use super::scatter::database_not_found;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Route, StaleRetries, shard_key_error};
use crate::remote::{Retry, ShardReply, ShardRequest};
use crate::reply::Reply;

/// Runs it.
pub async fn file_md5(op: &Op<'_>) -> CommandResult<Reply> {
    let root = match op.request.body.get("root") {
        None => "fs",
        Some(value) => {
            let text = "'root' must be of type String";
            value.as_str().ok_or_else(|| CommandError::new(ErrorCode::InvalidNamespace, text))?
        }
    };
    let ns = Namespace::new(op.request.db, &format!("{root}.chunks"));
    let mut retries = StaleRetries::new(op.router);
    loop {
        match attempt(op, root, &ns).await {
            Err(error) if retries.again(&error) => {}
            other => return other,
        }
    }
}

async fn attempt(op: &Op<'_>, root: &str, ns: &Namespace) -> CommandResult<Reply> {
    let file = op.request.body.first().ok_or_else(|| CommandError::failed_to_parse("no file id"))?;
    let mut query = DocBuf::new();
    query.write(|w| w.renamed("files_id", file));
    let Some(route) = op.router.route_if_exists(ns).await? else { return Err(database_not_found(ns.db())) };
    let keys: Vec<&str> = route
        .sharded()
        .map(|routing| routing.key.fields().iter().map(|field| &*field.path).collect())
        .unwrap_or_default();
    match (&route, &*keys) {
        (Route::Sharded(routing), ["files_id", "n"]) if !routing.key.is_hashed() => {
            chunk_by_chunk(op, root, routing, file).await
        }
        // Whole files lie on one shard.
        (Route::Sharded(_), ["files_id"]) | (Route::Unsharded(_) | Route::Config, _) => {
            let Some((_, destinations)) = op.router.target(ns, query.as_doc(), None).await? else {
                return Err(database_not_found(ns.db()));
            };
            match &*destinations {
                [only] => Ok(pass_on(ask(op, only, |out| write(op, out, root, file)).await?)),
                _ => {
                    Err(CommandError::new(ErrorCode::InternalError, "a file's chunks are on several shards"))
                }
            }
        }
        (Route::Sharded(_), _) => Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!(
                "The GridFS {ns} collection must be sharded on either {{files_id:1}} or {{files_id:1, n:1}}"
            ),
        )),
    }
}

/// Each shard digests the chunks it has in order and hands its state on to the owner of the next one.
async fn chunk_by_chunk(
    op: &Op<'_>,
    root: &str,
    routing: &CollectionRouting,
    file: Field<'_>,
) -> CommandResult<Reply> {
    let mut processed = 0_i64;
    let mut state: Option<Vec<u8>> = None;
    loop {
        let mut query = DocBuf::new();
        query.write(|w| {
            w.renamed("files_id", file);
            w.put("n", processed);
        });
        let key = routing.key.key_from_document(query.as_doc()).map_err(shard_key_error)?;
        let Some(target) = routing.target_key(&key) else {
            return Err(CommandError::new(ErrorCode::ShardKeyNotFound, "no chunk for a file's next part"));
        };
        let answer = ask(op, &Destination::sharded(routing, &target.shard), |out| {
            write(op, out, root, file);
            splice::put_bool(out, "partialOk", true);
            splice::put_i32(out, "startAt", i32::try_from(processed).unwrap_or(i32::MAX));
            if let Some(state) = &state {
                splice::put_element(out, 0x05, "md5state", state);
            }
        })
        .await?;
        let body = answer.reply.body();
        let chunks = body.get_i64("numChunks").unwrap_or(processed);
        if chunks == processed {
            let md5 = body.get("md5").and_then(Value::as_str).unwrap_or_default();
            return Ok(Reply::build(|out| {
                splice::put_i32(out, "numChunks", i32::try_from(processed).unwrap_or(i32::MAX));
                splice::put_str(out, "md5", md5);
                splice::put_f64(out, "ok", 1.0);
            }));
        }
        let field: Option<Field<'_>> = body.field("md5state");
        state = Some(field.map(|field| field.value_bytes().to_vec()).ok_or_else(|| {
            CommandError::new(ErrorCode(16246), format!("Shard {} did not send an md5state", target.shard))
        })?);
        processed = chunks;
    }
}

fn write(op: &Op<'_>, out: &mut BytesMut, root: &str, file: Field<'_>) {
    put_as(out, op.command.name, file);
    splice::put_str(out, "root", root);
}

async fn ask(
    op: &Op<'_>,
    destination: &Destination,
    fill: impl FnOnce(&mut BytesMut),
) -> CommandResult<ShardReply> {
    let mut request = ShardRequest::new(op, 256);
    fill(request.out());
    let mut request = request.finish(|out| destination.versions.write(out))?;
    let preference = op.read_preference()?;
    op.router.ask_shard(&destination.shard, &mut request, &preference, Retry::Idempotent, op.deadline).await
}
