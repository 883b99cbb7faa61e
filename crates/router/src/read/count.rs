//! `count`: one number a shard, added up; skip and limit are applied to the sum.

use bytes::BytesMut;
use document::splice::{self, Keep};
use document::{Doc, DocBuf, Value};
use futures_util::future::join_all;

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destinations, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;
use crate::request::is_generic;

/// The parts of a count that decide targeting and the sum.
struct CountSpec<'a> {
    query: Doc<'a>,
    collation: Option<Doc<'a>>,
    skip: i64,
    limit: i64,
}

impl<'a> CountSpec<'a> {
    fn parse(body: Doc<'a>) -> CommandResult<Self> {
        let mut spec = Self { query: Doc::empty(), collation: None, skip: 0, limit: 0 };
        for field in body.iter().skip(1) {
            let value = field.value();
            let name = || format!("count.{}", field.name());
            match (field.name_bytes(), value) {
                (b"query", Value::Document(doc)) => spec.query = doc,
                (b"query" | b"collation" | b"skip" | b"limit", Value::Null | Value::Undefined) => {}
                (b"query", other) => return Err(CommandError::wrong_type(&name(), other, "object")),
                (b"collation", Value::Document(doc)) => {
                    spec.collation = Some(doc).filter(|doc| !doc.is_empty());
                }
                (b"skip", value) => {
                    spec.skip = number(&name(), value)?;
                    if spec.skip < 0 {
                        return Err(CommandError::new(
                            ErrorCode(51024),
                            format!("BSON field 'skip' value must be >= 0, actual value '{}'", spec.skip),
                        ));
                    }
                }
                (b"limit", value) if !value.is_number() => {
                    return Err(CommandError::bad_value("limit value is not a valid number"));
                }
                (b"limit", value) => spec.limit = number(&name(), value)?,
                _ => {}
            }
        }
        Ok(spec)
    }

    /// Writes the command for one of the shards: skip stays here, the limit covers it.
    fn write(&self, op: &Op<'_>, out: &mut BytesMut) {
        splice::copy_fields(op.request.body, out, |name| match name {
            b"skip" | b"limit" => Keep::No,
            _ if is_generic(name) => Keep::No,
            _ => Keep::Yes,
        });
        if let Some(limit) = self.shard_limit() {
            splice::put_i64(out, "limit", limit);
        }
    }

    /// What each shard counts at most. A negative limit means its absolute value: added to skip as it is (as mongos
    /// does), it would cut the shards short.
    fn shard_limit(&self) -> Option<i64> {
        (self.limit != 0).then(|| self.limit.saturating_abs().saturating_add(self.skip))
    }

    fn total(&self, sum: i64) -> i64 {
        let left = (sum - self.skip).max(0);
        match self.limit {
            0 => left,
            limit => left.min(limit.saturating_abs()),
        }
    }
}

fn number(name: &str, value: Value<'_>) -> CommandResult<i64> {
    match value {
        Value::Double(n) => Ok(Value::Double(n.trunc()).as_i64().unwrap_or(0)),
        other => other
            .as_i64()
            .ok_or_else(|| CommandError::wrong_type(name, other, "[long, int, decimal, double]")),
    }
}

/// Runs a count.
pub async fn count(op: &Op<'_>) -> CommandResult<Reply> {
    let spec = CountSpec::parse(op.request.body)?;
    if op.request.generic.read_concern.and_then(|concern| concern.get_str("level")) == Some("snapshot") {
        return Err(CommandError::invalid_options("read concern snapshot not supported"));
    }
    let ns = op.namespace()?;
    let mut retries = StaleRetries::new(op.router);
    loop {
        let Some((_, destinations)) = op.router.target(&ns, spec.query, spec.collation).await? else {
            return Ok(reply(&[], 0));
        };
        match ask(op, &spec, &destinations).await {
            Ok(counts) => {
                let sum = counts.iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
                return Ok(reply(&counts, spec.total(sum)));
            }
            Err(error) if retries.again(&error) => {}
            Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
                return super::view::count(op, &error).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn ask(
    op: &Op<'_>,
    spec: &CountSpec<'_>,
    destinations: &Destinations,
) -> CommandResult<Vec<(String, i64)>> {
    let mut request = ShardRequest::new(op, op.request.body.as_bytes().len());
    spec.write(op, request.out());
    let template = request.read_concern(destinations).template();
    let preference = op.read_preference()?;
    let asked = destinations.iter().map(|destination| {
        let (template, preference) = (&template, &preference);
        async move {
            let mut request = template.finish(|out| destination.versions.write(out))?;
            let answer = op
                .router
                .ask_shard(&destination.shard, &mut request, preference, Retry::Idempotent, op.deadline)
                .await?;
            let n = answer.reply.body().get_i64("n").ok_or_else(|| {
                CommandError::new(ErrorCode::InternalError, "a shard's reply to count has no n")
            })?;
            Ok((destination.shard.as_str().to_owned(), n))
        }
    });
    let mut counts = Vec::new();
    for (answer, destination) in join_all(asked).await.into_iter().zip(destinations) {
        counts.push(answer.map_err(|error: CommandError| {
            if error.code().is_stale() || error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod
            {
                error
            } else {
                error.context(format_args!("failed on: {}", destination.shard))
            }
        })?);
    }
    Ok(counts)
}

/// `{shards: {<id>: n}, n, ok}`: integers as small as they fit.
fn reply(counts: &[(String, i64)], total: i64) -> Reply {
    let small = |n: i64| i32::try_from(n).map_or(Value::Int64(n), Value::Int32);
    let mut doc = DocBuf::new();
    doc.append_doc("shards", |w| {
        for (shard, count) in counts {
            w.value(shard, small(*count));
        }
    });
    doc.append("n", small(total));
    Reply::ok_with(doc.as_doc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(body: &bson::RawDocumentBuf, sum: i64) -> i64 {
        CountSpec::parse(Doc::new(body.as_bytes()).unwrap()).unwrap().total(sum)
    }

    #[test]
    fn skip_and_limit_apply_once_to_the_sum() {
        assert_eq!(total(&bson::rawdoc! { "count": "c" }, 20), 20);
        assert_eq!(total(&bson::rawdoc! { "count": "c", "skip": 5 }, 20), 15);
        assert_eq!(total(&bson::rawdoc! { "count": "c", "skip": 30 }, 20), 0);
        assert_eq!(total(&bson::rawdoc! { "count": "c", "limit": 3 }, 20), 3);
        assert_eq!(total(&bson::rawdoc! { "count": "c", "limit": -3 }, 20), 3);
        assert_eq!(total(&bson::rawdoc! { "count": "c", "limit": 10, "skip": 15 }, 20), 5);
        let body = bson::rawdoc! { "count": "c", "limit": -3, "skip": 5 };
        let spec = CountSpec::parse(Doc::new(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(spec.shard_limit(), Some(8));
    }
}
