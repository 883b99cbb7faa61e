//! Shape "ask many shards, merge their answers": fan-out with or without versions, and mongos's `raw` reply.

use bytes::BytesMut;
use chunk_map::{Namespace, ShardId};
use document::{Doc, splice};
use futures_util::future::join_all;
use topology::ReadPreference;

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Destinations, Route, StaleRetries, Versions};
use crate::remote::{Retry, ShardReply, Template};
use crate::reply::Reply;

/// What one shard said.
#[derive(Debug)]
pub struct Answer {
    /// Who.
    pub shard: ShardId,
    /// `set/host:port,...`, as mongos names shards in `raw`.
    pub host: String,
    /// Its reply.
    pub result: CommandResult<ShardReply>,
}

impl Answer {
    /// The body of its reply, if it is no error.
    #[must_use]
    pub fn body(&self) -> Option<Doc<'_>> {
        self.result.as_ref().ok().map(|answer| answer.reply.body())
    }
}

/// Asks all destinations at once; the answers are in their order.
pub async fn ask_all(
    op: &Op<'_>,
    template: &Template,
    destinations: &[Destination],
    preference: &ReadPreference,
    retry: Retry,
) -> Vec<Answer> {
    join_all(destinations.iter().map(|destination| async move {
        let mut host = destination.shard.to_string();
        let asked = async {
            let mut request = template.finish(|out| destination.versions.write(out))?;
            let set = op.router.shard_set(&destination.shard).await?;
            host = set.connection_string().to_string();
            op.ask_set(&destination.shard, &set, &mut request, preference, retry).await
        };
        let result = asked.await;
        Answer { shard: destination.shard.clone(), host, result }
    }))
    .await
}

/// Asks every shard of the cluster, without versions.
pub async fn ask_every_shard(
    op: &Op<'_>,
    template: &Template,
    preference: &ReadPreference,
    retry: Retry,
) -> CommandResult<Vec<Answer>> {
    Ok(ask_all(op, template, &every_shard(op).await?, preference, retry).await)
}

/// All shards of the cluster by their ids.
pub async fn every_shard(op: &Op<'_>) -> CommandResult<Destinations> {
    if let Some(time) = op.router.clock().topology_time() {
        op.router.registry().topology_time_seen(time);
    }
    let list =
        op.router.registry().list().await.map_err(|error| crate::remote::routing::catalog_error(&error))?;
    let mut shards: Destinations =
        list.iter().map(|entry| Destination { shard: entry.id.clone(), versions: Versions::None }).collect();
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    Ok(shards)
}

/// Asks all shards that own a part of the collection, with their versions, until none calls them stale. Also gives the
/// route that the answers rest on. A database that does not exist is an error.
pub async fn ask_owners(
    op: &Op<'_>,
    ns: &Namespace,
    template: &Template,
    preference: &ReadPreference,
    retry: Retry,
) -> CommandResult<(Route, Vec<Answer>)> {
    let mut retries = StaleRetries::new(op.router);
    loop {
        let Some((route, destinations)) = op.router.target(ns, Doc::empty(), None).await? else {
            return Err(database_not_found(ns.db()));
        };
        let answers = ask_all(op, template, &destinations, preference, retry).await;
        match first_stale(op, &answers) {
            None => return Ok((route, answers)),
            Some(error) if retries.again(error) => {}
            Some(error) => return Err(error.clone()),
        }
    }
}

/// What is known of a collection, refreshed if any shard called it stale; `None` when the database does not exist.
pub async fn fresh_route(op: &Op<'_>, ns: &Namespace) -> CommandResult<Option<Route>> {
    Ok(op.router.target(ns, Doc::empty(), None).await?.map(|(route, _)| route))
}

/// As mongos words it.
pub fn database_not_found(db: &str) -> CommandError {
    CommandError::new(ErrorCode::NamespaceNotFound, format!("database {db} not found"))
}

/// The first stale answer; what the others name is marked.
fn first_stale<'a>(op: &Op<'_>, answers: &'a [Answer]) -> Option<&'a CommandError> {
    let mut stale = answers
        .iter()
        .filter_map(|answer| answer.result.as_ref().err())
        .filter(|error| error.code().is_stale());
    let first = stale.next();
    for other in stale {
        op.router.note_stale(other);
    }
    first
}

/// The answers that are no errors; the first error otherwise.
pub fn all_or_error(answers: &[Answer]) -> CommandResult<Vec<(&Answer, Doc<'_>)>> {
    answers
        .iter()
        .map(|answer| match &answer.result {
            Ok(reply) => Ok((answer, reply.reply.body())),
            Err(error) => Err(error.clone()),
        })
        .collect()
}

/// Writes a server's reply without what is not for clients.
pub fn put_clean(out: &mut BytesMut, name: &str, body: Doc<'_>) {
    let open = splice::open_doc(out, name);
    for field in body {
        if !crate::reply::is_internal(field.name_bytes()) {
            out.extend_from_slice(field.raw());
        }
    }
    open.finish(out);
}

/// mongos's merged reply: `raw.<connection string>` for each shard; the first failure makes the whole one.
pub fn raw_reply(answers: &[Answer]) -> Reply {
    // A shard that was removed a moment ago is left out, unless all were.
    let is_gone =
        |answer: &&Answer| matches!(&answer.result, Err(error) if error.code() == ErrorCode::ShardNotFound);
    let all_gone = answers.iter().all(|answer| is_gone(&answer));
    let counted: Vec<&Answer> = answers.iter().filter(|answer| all_gone || !is_gone(answer)).collect();
    let failure = counted.iter().find_map(|answer| answer.result.as_ref().err());
    Reply::build(|out| {
        let raw = splice::open_doc(out, "raw");
        for answer in &counted {
            match &answer.result {
                Ok(reply) => put_clean(out, &answer.host, reply.reply.body()),
                Err(error) => put_error(out, &answer.host, error),
            }
        }
        raw.finish(out);
        match failure {
            Some(error) => put_failure(out, error),
            None => {
                put_write_concern_error(out, &counted);
                splice::put_f64(out, "ok", 1.0);
            }
        }
    })
}

/// The first `writeConcernError`, with the shard's name behind its text.
fn put_write_concern_error(out: &mut BytesMut, answers: &[&Answer]) {
    let found =
        answers.iter().find_map(|answer| Some((answer, answer.body()?.get_doc("writeConcernError")?)));
    let Some((answer, concern_error)) = found else { return };
    let open = splice::open_doc(out, "writeConcernError");
    for field in concern_error {
        match field.value().as_str().filter(|_| field.name() == "errmsg") {
            Some(text) => splice::put_str(out, "errmsg", &format!("{text} at {}", answer.shard)),
            None => out.extend_from_slice(field.raw()),
        }
    }
    open.finish(out);
}

fn put_error(out: &mut BytesMut, name: &str, error: &CommandError) {
    let open = splice::open_doc(out, name);
    put_failure(out, error);
    open.finish(out);
}

/// The inside of an error reply.
fn put_failure(out: &mut BytesMut, error: &CommandError) {
    let mut doc = document::DocBuf::new();
    doc.write(|w| error.clone().cloaked().write_reply(w));
    out.extend_from_slice(doc.as_doc().elements());
}
