//! `mapReduce`: on collections that are not sharded the primary shard's matter, else an aggregation (as 4.4 and later).

use chunk_map::Namespace;
use document::{Doc, DocBuf, Value, splice};

use super::aggregate::{self, Aggregation, array_of};
use super::pipeline;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional, required};
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Route, StaleRetries};
use crate::remote::{Retry, ShardRequest};
use crate::reply::Reply;

/// Where the results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Inline,
    Replace,
    Merge,
    Reduce,
}

/// The parts of the command.
struct Spec<'a> {
    map: Value<'a>,
    reduce: Value<'a>,
    finalize: Option<Value<'a>>,
    query: Option<Doc<'a>>,
    sort: Option<Doc<'a>>,
    limit: Option<i64>,
    scope: Option<Doc<'a>>,
    output: Output,
    /// Target of the output.
    target: Option<Namespace>,
}

/// The functions are code or text: whoever reads them checks them.
const ARGUMENTS: &[arguments::Argument] = &[
    required("map", Kind::Any),
    required("reduce", Kind::Any),
    required("out", Kind::Any),
    optional("finalize", Kind::Any),
    optional("query", Kind::Object),
    optional("sort", Kind::Object),
    optional("collation", Kind::Object),
    optional("limit", Kind::Number),
    optional("scope", Kind::Object),
    optional("jsMode", Kind::SafeBool),
    optional("verbose", Kind::SafeBool),
    optional("bypassDocumentValidation", Kind::SafeBool),
];

impl<'a> Spec<'a> {
    fn parse(op: &Op<'a>) -> CommandResult<Self> {
        arguments::check(op, ARGUMENTS)?;
        let body = op.request.body;
        for name in ["map", "reduce", "finalize"] {
            if body.get(name).is_some_and(|value| !is_function(value)) {
                return Err(CommandError::bad_value(format!("'{name}' must be of string or code type")));
            }
        }
        let required = |name: &str| {
            body.get(name).ok_or_else(|| {
                CommandError::new(
                    ErrorCode(40414),
                    format!("BSON field 'mapReduce.{name}' is missing but a required field"),
                )
            })
        };
        let (output, target) = output(required("out")?, op.request.db)?;
        Ok(Self {
            map: required("map")?,
            reduce: required("reduce")?,
            finalize: body.get("finalize").filter(|value| *value != Value::Null),
            query: body.get_doc("query").filter(|query| !query.is_empty()),
            sort: body.get_doc("sort").filter(|sort| !sort.is_empty()),
            limit: body.get_i64("limit").filter(|limit| *limit != 0),
            scope: body.get_doc("scope").filter(|scope| !scope.is_empty()),
            output,
            target,
        })
    }

    /// The pipeline that does the same.
    fn stages(&self) -> Vec<DocBuf> {
        let mut stages = Vec::new();
        let mut push = |name: &str, value: Value<'_>| {
            let mut stage = DocBuf::new();
            stage.append(name, value);
            stages.push(stage);
        };
        if let Some(query) = self.query {
            push("$match", Value::Document(query));
        }
        if let Some(sort) = self.sort {
            push("$sort", Value::Document(sort));
        }
        if let Some(limit) = self.limit {
            push("$limit", Value::Int64(limit.saturating_abs()));
        }
        let mut project = DocBuf::new();
        project
            .append_doc("emits", |w| {
                w.doc("$_internalJsEmit", |w| {
                    w.value("eval", self.map);
                    w.put("this", "$$ROOT");
                });
            })
            .append("_id", false);
        push("$project", Value::Document(project.as_doc()));
        let mut unwind = DocBuf::new();
        unwind.append("path", "$emits");
        push("$unwind", Value::Document(unwind.as_doc()));
        let mut group = DocBuf::new();
        group.append("_id", "$emits.k").append_doc("value", |w| {
            w.doc("$_internalJsReduce", |w| {
                w.put("data", "$emits");
                w.value("eval", self.reduce);
            });
        });
        push("$group", Value::Document(group.as_doc()));
        if let Some(finalize) = self.finalize {
            push("$project", Value::Document(finalized(finalize).as_doc()));
        }
        if let Some(target) = &self.target {
            stages.push(self.output_stage(target));
        }
        stages
    }

    fn output_stage(&self, target: &Namespace) -> DocBuf {
        let mut stage = DocBuf::new();
        let into = |w: &mut document::DocWriter<'_>| {
            w.put("db", target.db());
            w.put("coll", target.coll());
        };
        if self.output == Output::Replace {
            stage.append_doc("$out", into);
            return stage;
        }
        stage.append_doc("$merge", |w| {
            w.doc("into", into);
            if self.output == Output::Reduce {
                let mut again = vec![self.reduce_again()];
                if let Some(finalize) = self.finalize {
                    let mut project = DocBuf::new();
                    project.append("$project", &finalized(finalize));
                    again.push(project);
                }
                w.array("whenMatched", &again, |w, index, stage| w.put(index, stage));
            } else {
                w.put("whenMatched", "replace");
            }
            w.put("whenNotMatched", "insert");
        });
        stage
    }

    /// Reduces the value that is there with the new one.
    fn reduce_again(&self) -> DocBuf {
        let mut stage = DocBuf::new();
        stage.append_doc("$project", |w| {
            w.doc("value", |w| {
                w.doc("$function", |w| {
                    w.value("body", self.reduce);
                    let mut values = DocBuf::new();
                    values.append("0", "$value").append("1", "$$new.value");
                    let mut arguments = DocBuf::new();
                    arguments.append("0", "$_id").append("1", Value::Array(values.as_doc()));
                    w.value("args", Value::Array(arguments.as_doc()));
                    w.put("lang", "js");
                });
            });
        });
        stage
    }
}

fn is_function(value: Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::JavaScript(_) | Value::JavaScriptWithScope { .. } | Value::Null)
}

fn finalized(finalize: Value<'_>) -> DocBuf {
    let mut project = DocBuf::new();
    project.append("_id", true).append_doc("value", |w| {
        w.doc("$function", |w| {
            w.value("body", finalize);
            w.array("args", ["$_id", "$value"], |w, index, argument| w.put(index, argument));
            w.put("lang", "js");
        });
    });
    project
}

fn output(out: Value<'_>, db: &str) -> CommandResult<(Output, Option<Namespace>)> {
    if let Some(name) = out.as_str() {
        return Ok((Output::Replace, Some(Namespace::new(db, name))));
    }
    let Value::Document(doc) = out else {
        return Err(CommandError::wrong_type("mapReduce.out", out, "[string, object]"));
    };
    if doc.contains("inline") {
        return Ok((Output::Inline, None));
    }
    let db = doc.get_str("db").unwrap_or(db);
    for (name, output) in [("replace", Output::Replace), ("merge", Output::Merge), ("reduce", Output::Reduce)]
    {
        if let Some(collection) = doc.get_str(name) {
            return Ok((output, Some(Namespace::new(db, collection))));
        }
    }
    Err(CommandError::bad_value("'out' requires 'replace', 'merge', 'reduce' or 'inline'"))
}

/// Runs a mapReduce.
pub async fn map_reduce(op: &Op<'_>) -> CommandResult<Reply> {
    let spec = Spec::parse(op)?;
    let ns = op.namespace()?;
    let target_is_sharded = match &spec.target {
        Some(target) => matches!(op.router.route_if_exists(target).await?, Some(Route::Sharded(_))),
        None => false,
    };
    match op.router.route_if_exists(&ns).await? {
        Some(Route::Sharded(_)) => {}
        Some(_) if target_is_sharded => {}
        Some(_) => return forward(op, &ns, spec.target.is_some()).await,
        None => {
            return Err(CommandError::new(ErrorCode::NamespaceNotFound, format!("ns doesn't exist: {ns}")));
        }
    }
    translated(op, &spec, &ns).await.map_err(|error| error.context("MapReduce internal error"))
}

/// Nothing sharded is involved: the primary shard does it all.
async fn forward(op: &Op<'_>, ns: &Namespace, writes: bool) -> CommandResult<Reply> {
    let mut retries = StaleRetries::new(op.router);
    loop {
        let destination = match op.router.route(ns).await? {
            Route::Config => Destination::config(),
            Route::Unsharded(database) => Destination::unsharded(&database),
            Route::Sharded(_) => {
                return translated(op, &Spec::parse(op)?, ns).await;
            }
        };
        let request = ShardRequest::copy(op, |_| false).read_concern(std::slice::from_ref(&destination));
        let request = if writes { request.write_concern() } else { request };
        let mut request = request.finish(|out| destination.versions.write(out))?;
        let preference = topology::ReadPreference::PRIMARY;
        let asked =
            op.router.ask_shard(&destination.shard, &mut request, &preference, Retry::Never, op.deadline);
        match asked.await {
            Ok(answer) => return Ok(Reply::forward(answer.reply, &answer.summary)),
            Err(error) if retries.again(&error) => {}
            Err(error) if error.code() == ErrorCode::CommandOnShardedViewNotSupportedOnMongod => {
                return Err(CommandError::new(ErrorCode(166), "mapReduce on a view is not supported"));
            }
            Err(error) => return Err(error),
        }
    }
}

async fn translated(op: &Op<'_>, spec: &Spec<'_>, ns: &Namespace) -> CommandResult<Reply> {
    let array = array_of(&spec.stages());
    let stages = pipeline::trusted(array.as_doc());
    let mut variables = DocBuf::new();
    variables.append("JS_SCOPE", spec.scope.unwrap_or(Doc::empty())).append("IS_MR", true);
    let mut options = DocBuf::new();
    if let Some(bypass) = op.request.body.field("bypassDocumentValidation") {
        options.append_elements(bypass.raw());
    }
    let aggregation = Aggregation {
        ns,
        reply_ns: ns.as_str(),
        stages: &stages,
        pipeline: array.as_doc(),
        collation: op.request.body.get_doc("collation").filter(|collation| !collation.is_empty()),
        variables: Some(variables.as_doc()),
        // Inline results are one document.
        batch_size: u64::try_from(i64::MAX).ok(),
        allow_disk_use: Some(true),
        options: options.as_doc().elements(),
    };
    let reply = aggregate::run(op, &aggregation).await?;
    let cursor = reply.body().get_doc("cursor").unwrap_or(Doc::empty());
    if let Some(id) = cursor.get_i64("id").filter(|id| *id != 0) {
        drop(op.router.cursors().kill(id));
        return Err(CommandError::new(
            ErrorCode(31301),
            "Document to upsert is larger than 16777216: the inline results do not fit into one document",
        ));
    }
    let results = cursor.get_array("firstBatch").unwrap_or(Doc::empty());
    Ok(Reply::build(|out| {
        match &spec.target {
            None => splice::put_array(out, "results", results),
            Some(target) if target.db() == op.request.db => splice::put_str(out, "result", target.coll()),
            Some(target) => {
                let open = splice::open_doc(out, "result");
                splice::put_str(out, "db", target.db());
                splice::put_str(out, "collection", target.coll());
                open.finish(out);
            }
        }
        splice::put_f64(out, "ok", 1.0);
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_named_in_every_form() {
        let of = |doc: bson::RawDocumentBuf| {
            let found = output(Doc::new(doc.as_bytes()).unwrap().get("out").unwrap(), "d");
            found
                .map(|(output, ns)| (output, ns.map(|ns| ns.as_str().to_owned())))
                .map_err(|error| error.code().0)
        };
        assert_eq!(of(bson::rawdoc! { "out": "x" }), Ok((Output::Replace, Some("d.x".to_owned()))));
        assert_eq!(of(bson::rawdoc! { "out": { "inline": 1 } }), Ok((Output::Inline, None)));
        assert_eq!(
            of(bson::rawdoc! { "out": { "reduce": "x", "db": "e" } }),
            Ok((Output::Reduce, Some("e.x".to_owned())))
        );
        assert_eq!(of(bson::rawdoc! { "out": {} }), Err(2));
        assert_eq!(of(bson::rawdoc! { "out": 1 }), Err(14));
    }
}
