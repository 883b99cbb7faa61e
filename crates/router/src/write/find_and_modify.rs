//! findAndModify: one document, one shard.

use document::splice;
use document::{Doc, Value};
use topology::ReadPreference;

use super::batch::{RuntimeConstants, known_route};
use super::concern;
use super::outcome::ConcernError;
use super::shard_key_change::{self, Moved};
use super::{child, target};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Route, StaleRetries, Versions};
use crate::remote::{ShardReply, ShardRequest};
use crate::reply::Reply;

/// The parts of the command that decide its shard; the rest is checked there.
struct Spec<'a> {
    query: Doc<'a>,
    collation: Option<Doc<'a>>,
}

impl<'a> Spec<'a> {
    fn parse(body: Doc<'a>) -> CommandResult<Self> {
        let mut spec = Self { query: Doc::empty(), collation: None };
        for field in body.iter().skip(1) {
            let value = field.value();
            let object = || {
                value.as_doc().ok_or_else(|| {
                    CommandError::wrong_type(&format!("findAndModify.{}", field.name()), value, "object")
                })
            };
            match field.name_bytes() {
                b"query" | b"collation" if matches!(value, Value::Null | Value::Undefined) => {}
                b"query" => spec.query = object()?,
                b"collation" => spec.collation = Some(object()?),
                b"runtimeConstants" => {
                    return Err(CommandError::new(
                        ErrorCode(51196),
                        "Cannot specify runtime constants option to a mongos",
                    ));
                }
                b"encryptionInformation" => return Err(CommandError::not_supported("encryptionInformation")),
                _ => {}
            }
        }
        Ok(spec)
    }
}

/// Runs a findAndModify.
pub async fn find_and_modify(op: &Op<'_>) -> CommandResult<Reply> {
    concern::check(op.request.generic.write_concern)?;
    let spec = Spec::parse(op.request.body)?;
    let constants = RuntimeConstants::new(op);
    let mut retries = StaleRetries::new(op.router);
    let mut refusals_are_final = false;
    loop {
        let destination = match destination(op, &spec).await {
            Ok(destination) => destination,
            Err(Refused::Final(error)) => return Err(error),
            Err(Refused::ByThisTable(error)) if refusals_are_final => return Err(error),
            Err(Refused::ByThisTable(_)) => {
                refusals_are_final = true;
                let ns = op.namespace()?;
                op.router.catalog().collection_stale(&ns, None, Some(&chunk_map::ShardId::new("")));
                refresh(op, &ns).await?;
                continue;
            }
        };
        match ask(op, &constants, &destination).await {
            Ok(answer) if concern::is_unacknowledged(op.request.generic.write_concern) => {
                return Ok(Reply::ok().at(answer.summary.times.operation));
            }
            Ok(answer) => return Ok(reply(answer, &destination)),
            Err(error)
                if error.code() == ErrorCode::WouldChangeOwningShard
                    && op.request.generic.txn_number.is_some() =>
            {
                return moved(op, &constants, &spec, &error).await;
            }
            Err(error) if retries.again(&error) => refresh(op, &op.namespace()?).await?,
            Err(error) => return Err(error),
        }
    }
}

/// Why a command has no shard.
enum Refused {
    /// By this routing table; another one may know better.
    ByThisTable(CommandError),
    Final(CommandError),
}

async fn refresh(op: &Op<'_>, ns: &chunk_map::Namespace) -> CommandResult<()> {
    match op.router.catalog().collection_refreshed(ns).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_database_not_found() => Ok(()),
        Err(error) => Err(crate::remote::routing::catalog_error(&error)),
    }
}

async fn destination(op: &Op<'_>, spec: &Spec<'_>) -> Result<Destination, Refused> {
    let ns = op.namespace().map_err(Refused::Final)?;
    let mut route = known_route(op, &ns).await.map_err(Refused::Final)?;
    loop {
        let routing = match &route {
            Route::Config => return Ok(Destination::config()),
            // Also of a time series, sharded or not: its shard refuses it (166).
            Route::Unsharded(database) => return Ok(Destination::unsharded(database)),
            Route::Sharded(routing) => routing,
        };
        let target =
            target::find_and_modify(spec.query, spec.collation, routing).map_err(Refused::ByThisTable)?;
        if !routing.is_stale_for(&target.shard) {
            op.check_arrivals(routing, &target.shard).map_err(Refused::Final)?;
            return Ok(Destination { shard: target.shard, versions: Versions::Sharded(target.version) });
        }
        refresh(op, &ns).await.map_err(Refused::Final)?;
        route = known_route(op, &ns).await.map_err(Refused::Final)?;
    }
}

async fn ask(
    op: &Op<'_>,
    constants: &RuntimeConstants,
    destination: &Destination,
) -> CommandResult<ShardReply> {
    let mut request = ShardRequest::copy(op, |_| false);
    if op.request.generic.api.strict != Some(true) {
        constants.write(request.out());
    }
    let mut request = request.write_concern().finish(|out| destination.versions.write(out))?;
    op.ask(&destination.shard, &mut request, &ReadPreference::PRIMARY, child::retry(op)).await
}

/// The document moves to another shard: the reply is made of its two images.
async fn moved(
    op: &Op<'_>,
    constants: &RuntimeConstants,
    spec: &Spec<'_>,
    refusal: &CommandError,
) -> CommandResult<Reply> {
    let moved = if op.transaction.is_some() {
        shard_key_change::in_transaction(op, op.request.collection()?, refusal).await?
    } else {
        shard_key_change::find_and_modify(op, constants, spec.query, spec.collation).await?
    };
    let (reply, committed) = match moved {
        Moved::InPlace(ShardReply { reply, summary, .. }, committed) => {
            (Reply::forward(reply, &summary), committed)
        }
        Moved::Nothing(committed) => {
            let reply = Reply::build(|out| {
                let last = splice::open_doc(out, "lastErrorObject");
                splice::put_i32(out, "n", 0);
                splice::put_bool(out, "updatedExisting", false);
                last.finish(out);
                splice::put_element(out, 0x0a, "value", &[]);
                splice::put_f64(out, "ok", 1.0);
            });
            (reply, committed)
        }
        Moved::Across(images, committed) => {
            let wants_new = op.request.body.get("new").is_some_and(Value::is_truthy);
            let reply = Reply::build(|out| {
                let last = splice::open_doc(out, "lastErrorObject");
                splice::put_i32(out, "n", 1);
                splice::put_bool(out, "updatedExisting", !images.upserts);
                if let Some(id) = images.post.as_doc().field("_id").filter(|_| images.upserts) {
                    splice::put_element(out, id.element_type() as u8, "upserted", id.value_bytes());
                }
                last.finish(out);
                match (wants_new, images.upserts) {
                    (true, _) => splice::put_doc(out, "value", images.post.as_doc()),
                    (false, true) => splice::put_element(out, 0x0a, "value", &[]),
                    (false, false) => splice::put_doc(out, "value", images.pre.as_doc()),
                }
                splice::put_f64(out, "ok", 1.0);
            });
            (reply, committed)
        }
    };
    let mut reply = reply.at(committed.operation_time);
    if let (Some(concern), Some(shard)) = (committed.concern_error, committed.shard) {
        reply.append(|out| concern.write_at(out, &shard));
    }
    if concern::is_unacknowledged(op.request.generic.write_concern) {
        return Ok(Reply::ok().at(committed.operation_time));
    }
    Ok(reply)
}

/// Passes the answer on; a write concern error gets its shard's name.
fn reply(answer: ShardReply, destination: &Destination) -> Reply {
    let ShardReply { reply, summary, .. } = answer;
    if !summary.has_write_concern_error {
        return Reply::forward(reply, &summary);
    }
    let concern = reply.body().get_doc("writeConcernError").map(ConcernError::parse);
    let reply = Reply::forward(reply, &summary);
    let Some(concern) = concern else { return reply };
    Reply::with_capacity(reply.body().as_bytes().len() + 64, |out| {
        splice::copy_fields(reply.body(), out, |name| match name {
            b"writeConcernError" => splice::Keep::No,
            _ => splice::Keep::Yes,
        });
        concern.write_at(out, &destination.shard);
    })
    .at(summary.times.operation)
}
