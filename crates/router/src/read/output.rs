//! `$out` and `$merge`: where their documents may go, and what a shard must be told about it.
//!
//! A shard that works for a router takes `$merge` only with `on` said explicitly (51124 otherwise), so the router finds
//! the fields here as mongos does: the shard key and `_id`, or the client's after a look at the target's indexes.

use chunk_map::{ChunkVersion, Namespace};
use document::{Doc, DocBuf, Value, splice};

use super::aggregate::Aggregation;
use super::pipeline::Stage;
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::routing::{Destination, Route};
use crate::remote::{Retry, config::internal_request};

/// The last stage of a pipeline that writes.
#[derive(Debug)]
pub(super) struct Output {
    /// The stage as shards get it.
    pub(super) stage: DocBuf,
    /// Each shard may write its own documents: the target is sharded.
    pub(super) sharded: bool,
}

/// Checks the target of a pipeline's last stage and resolves what is left to defaults. `None` when it writes nothing.
pub(super) async fn resolve(op: &Op<'_>, aggregation: &Aggregation<'_>) -> CommandResult<Option<Output>> {
    let Some((last, before)) = aggregation.stages.split_last() else { return Ok(None) };
    if let Some(early) = before.iter().find(|stage| stage.writes()) {
        return Err(CommandError::new(
            ErrorCode(40601),
            format!("{} can only be the final stage in the pipeline", early.name),
        ));
    }
    if !last.writes() {
        return Ok(None);
    }
    check_read_concern(op, last)?;
    let Some(target) = target(last, aggregation.ns.db()) else {
        // The server says best what is wrong with it.
        return Ok(Some(Output { stage: DocBuf::from(last.doc), sharded: false }));
    };
    if op.explain.is_none() {
        crate::ddl::databases::ensure_database(op.router, target.db(), op.deadline).await?;
    }
    let route = op.router.route_if_exists(&target).await?;
    let routing = route.as_ref().and_then(Route::sharded);
    if last.name == "$out" {
        if routing.is_some() {
            return Err(CommandError::new(ErrorCode(28769), format!("{target} cannot be sharded")));
        }
        let mut stage = DocBuf::new();
        match last.argument {
            Value::Document(_) => stage.append_elements(last.doc.elements()),
            _ => stage.append_doc("$out", |w| {
                w.put("db", target.db());
                w.put("coll", target.coll());
            }),
        };
        return Ok(Some(Output { stage, sharded: false }));
    }
    let argument = last.argument_doc().unwrap_or(Doc::empty());
    let (on, version) = match argument.get("on") {
        Some(on) => {
            let fields = on_fields(on)?;
            refuse_twice(&fields)?;
            check_unique_index(op, &target, route.as_ref(), &fields, aggregation.collation).await?;
            (fields, None)
        }
        None => match routing {
            Some(routing) => {
                let mut fields: Vec<String> =
                    routing.key.fields().iter().map(|field| field.path.to_string()).collect();
                if !fields.iter().any(|field| field == "_id") {
                    fields.push("_id".to_owned());
                }
                (fields, Some(routing.version()))
            }
            None => (vec!["_id".to_owned()], None),
        },
    };
    let stage = merge_stage(argument, &target, &on, version);
    Ok(Some(Output { stage, sharded: routing.is_some() }))
}

/// `{$merge: {...}}` with everything said that a shard does not find out by itself.
fn merge_stage(
    argument: Doc<'_>,
    target: &Namespace,
    on: &[String],
    version: Option<ChunkVersion>,
) -> DocBuf {
    let mut stage = DocBuf::new();
    stage.append_doc("$merge", |w| {
        w.doc("into", |w| {
            w.put("db", target.db());
            w.put("coll", target.coll());
        });
        match on {
            [only] => w.put("on", only.as_str()),
            several => w.array("on", several, |w, index, field| w.put(index, field.as_str())),
        }
        for field in argument {
            if !matches!(field.name(), "into" | "on" | "targetCollectionVersion") {
                w.elements(field.raw());
            }
        }
        if let Some(version) = version {
            version.write(w, "targetCollectionVersion");
        }
    });
    stage
}

/// The collection that a `$out` or `$merge` writes to.
fn target(stage: &Stage<'_>, db: &str) -> Option<Namespace> {
    let of = |value: Value<'_>| match value {
        Value::String(_) => value.as_str().map(|coll| Namespace::new(db, coll)),
        Value::Document(into) => {
            let coll = into.get_str("coll")?;
            Some(Namespace::new(into.get_str("db").unwrap_or(db), coll))
        }
        _ => None,
    };
    let found = match (stage.name, stage.argument) {
        ("$merge", Value::Document(argument)) => of(argument.get("into")?),
        (_, value) => of(value),
    };
    found.filter(|ns| !ns.coll().is_empty() && !ns.db().is_empty())
}

pub(super) fn on_fields(on: Value<'_>) -> CommandResult<Vec<String>> {
    let fields = match on {
        Value::String(_) => on.as_str().map(|field| vec![field.to_owned()]),
        Value::Array(items) => {
            if let Some(item) = items.iter().find(|item| item.value().as_str().is_none()) {
                return Err(CommandError::new(
                    ErrorCode(51134),
                    format!(
                        "$merge 'on' array elements must be strings, but found {}",
                        item.value().element_type().name()
                    ),
                ));
            }
            items.iter().map(|item| item.value().as_str().map(ToOwned::to_owned)).collect()
        }
        _ => None,
    };
    match fields {
        Some(fields) if fields.is_empty() => Err(CommandError::new(
            ErrorCode(51187),
            "If explicitly specifying $merge 'on', must include at least one field",
        )),
        Some(fields) => Ok(fields),
        None => Err(CommandError::new(
            ErrorCode(51186),
            format!(
                "$merge 'on' field  must be either a string or an array of strings, but found {}",
                on.element_type().name()
            ),
        )),
    }
}

fn refuse_twice(fields: &[String]) -> CommandResult<()> {
    for (index, field) in fields.iter().enumerate() {
        if fields.iter().take(index).any(|earlier| earlier == field) {
            return Err(CommandError::new(ErrorCode(31465), format!("Found a duplicate field '{field}'")));
        }
    }
    Ok(())
}

/// The client's fields must be unique in the target: by an index of exactly these fields and the pipeline's collation.
async fn check_unique_index(
    op: &Op<'_>,
    target: &Namespace,
    route: Option<&Route>,
    fields: &[String],
    collation: Option<Doc<'_>>,
) -> CommandResult<()> {
    let refuse = || {
        Err(CommandError::new(
            ErrorCode(51190),
            "Cannot find index to verify that join fields will be unique",
        ))
    };
    let only_id = matches!(fields, [field] if field == "_id");
    let destination = match route {
        None => return if only_id { Ok(()) } else { refuse() },
        Some(Route::Config) => Destination::config(),
        Some(Route::Unsharded(database)) => Destination::unsharded(database),
        Some(Route::Sharded(routing)) => Destination::sharded(routing, &routing.first_chunk().shard),
    };
    let mut request = internal_request(op.router.servers(), target.db(), |out| {
        splice::put_str(out, "listIndexes", target.coll());
        splice::open_doc(out, "cursor").finish(out);
        crate::remote::envelope::write_time_limit(out, op.deadline);
        destination.versions.write(out);
    })?;
    let answer = op
        .router
        .ask_shard(
            &destination.shard,
            &mut request,
            &topology::ReadPreference::PRIMARY,
            Retry::Idempotent,
            op.deadline,
        )
        .await;
    let answer = match answer {
        Err(error) if error.code() == ErrorCode::NamespaceNotFound => {
            return if only_id { Ok(()) } else { refuse() };
        }
        other => other?,
    };
    // A collection has at most 64 indexes: they are all in the first batch.
    let indexes = answer.reply.body().get_doc("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let supported = indexes
        .into_iter()
        .flatten()
        .filter_map(|index| index.value().as_doc())
        .any(|index| supports(index, fields, collation));
    if supported { Ok(()) } else { refuse() }
}

/// Is this index unique, whole, of exactly these fields (in any order), and of this collation?
fn supports(index: Doc<'_>, fields: &[String], collation: Option<Doc<'_>>) -> bool {
    let Some(key) = index.get_doc("key") else { return false };
    let is_id = key.iter().count() == 1 && key.first().is_some_and(|field| field.name() == "_id");
    let unique = is_id || index.get("unique").is_some_and(Value::is_truthy);
    let locale = |collation: Option<Doc<'_>>| {
        collation
            .and_then(|doc| doc.get_str("locale"))
            .filter(|locale| *locale != "simple")
            .map(str::to_owned)
    };
    let strength =
        |collation: Option<Doc<'_>>| collation.and_then(|doc| doc.get_i64("strength")).unwrap_or(3);
    let own = index.get_doc("collation");
    let same_collation =
        locale(own) == locale(collation) && (locale(own).is_none() || strength(own) == strength(collation));
    unique
        && !index.contains("partialFilterExpression")
        && key.iter().count() == fields.len()
        && key.iter().all(|part| {
            matches!(part.value(), Value::Int32(_) | Value::Int64(_) | Value::Double(_))
                && fields.iter().any(|field| field == part.name())
        })
        && same_collation
}

fn check_read_concern(op: &Op<'_>, stage: &Stage<'_>) -> CommandResult<()> {
    let level = op.request.generic.read_concern.and_then(|concern| concern.get_str("level"));
    match level {
        Some("linearizable") => Err(CommandError::invalid_options(format!(
            "Command aggregate does not support {{ readConcern: {{ level: \"linearizable\", provenance: \"clientSupplied\" }} }} \
             :: caused by :: {} cannot be used with a 'linearizable' read concern level",
            stage.name
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(doc: &bson::RawDocumentBuf) -> Doc<'_> {
        Doc::new(doc.as_bytes()).unwrap()
    }

    #[test]
    fn only_a_unique_whole_index_of_exactly_the_fields_supports_a_merge() {
        let fields = ["a".to_owned(), "b".to_owned()];
        let unique = bson::rawdoc! { "key": { "b": 1, "a": -1 }, "unique": true };
        assert!(supports(doc(&unique), &fields, None));
        for index in [
            bson::rawdoc! { "key": { "b": 1, "a": -1 } },
            bson::rawdoc! { "key": { "a": 1 }, "unique": true },
            bson::rawdoc! { "key": { "a": 1, "b": 1, "c": 1 }, "unique": true },
            bson::rawdoc! { "key": { "a": 1, "b": "hashed" }, "unique": true },
            bson::rawdoc! { "key": { "a": 1, "b": 1 }, "unique": true, "partialFilterExpression": {} },
            bson::rawdoc! { "key": { "a": 1, "b": 1 }, "unique": true, "collation": { "locale": "en" } },
        ] {
            assert!(!supports(doc(&index), &fields, None), "{index:?}");
        }
        assert!(supports(doc(&bson::rawdoc! { "key": { "_id": 1 } }), &["_id".to_owned()], None));
    }

    #[test]
    fn the_target_is_found_in_every_form() {
        for (stage, expected) in [
            (bson::rawdoc! { "$out": "x" }, Some("d.x")),
            (bson::rawdoc! { "$out": { "db": "e", "coll": "x" } }, Some("e.x")),
            (bson::rawdoc! { "$merge": "x" }, Some("d.x")),
            (bson::rawdoc! { "$merge": { "into": "x" } }, Some("d.x")),
            (bson::rawdoc! { "$merge": { "into": { "db": "e", "coll": "x" } } }, Some("e.x")),
            (bson::rawdoc! { "$merge": { "into": { "coll": "x" } } }, Some("d.x")),
            (bson::rawdoc! { "$merge": 5 }, None),
            (bson::rawdoc! { "$out": "" }, None),
        ] {
            let doc = doc(&stage);
            let field = doc.first().unwrap();
            let stage = Stage { doc, name: field.name(), argument: field.value() };
            assert_eq!(target(&stage, "d").as_ref().map(Namespace::as_str), expected, "{doc:?}");
        }
    }

    #[test]
    fn a_merge_says_what_a_shard_cannot_find_out() {
        let argument = bson::rawdoc! { "into": "x", "whenMatched": "replace" };
        let ns = Namespace::new("d", "x");
        let stage = merge_stage(doc(&argument), &ns, &["k".to_owned(), "_id".to_owned()], None);
        let expected = bson::rawdoc! {
            "$merge": { "into": { "db": "d", "coll": "x" }, "on": ["k", "_id"], "whenMatched": "replace" },
        };
        assert_eq!(stage.as_bytes(), expected.as_bytes());
    }
}
