//! create

use chunk_map::Namespace;
use document::{Doc, Value, splice};

use super::databases::ensure_database;
use super::primary::{Attach, Concern, PrimaryCall, pass_on};
use crate::codes::ErrorCode;
use crate::command::Op;
use crate::ddl::arguments;
use crate::error::{CommandError, CommandResult};
use crate::remote::Retry;
use crate::reply::Reply;

/// Creates a collection or view on the primary shard; asking again for the same one is no error.
pub async fn create(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = op.namespace()?;
    let body = op.request.body;
    let is_true = |name| body.get(name).is_some_and(Value::is_truthy);
    if is_true("capped") && body.get("size").is_none() {
        return Err(CommandError::invalid_options("the 'size' field is required when 'capped' is true"));
    }
    if is_true("temp") {
        return Err(CommandError::invalid_options("the 'temp' field is an invalid option"));
    }
    crate::read::pipeline::check_view(body.get("pipeline"))?;
    ensure_database(op.router, ns.db(), op.deadline).await?;
    let call = PrimaryCall::ddl(ns.db()).concern(Concern::Client).retry(Retry::Never);
    let answered = call
        .ask(op, |out| {
            splice::put_str(out, "create", ns.coll());
            arguments::copy_all(op, out);
        })
        .await;
    op.router.catalog().forget_collection(&ns);
    match answered {
        Ok(answer) => Ok(pass_on(answer)),
        // In a transaction nothing can be compared any more: it is over.
        Err(error) if error.code() == ErrorCode::NamespaceExists && !op.request.in_transaction() => {
            same_or_exists(op, &ns, error).await
        }
        Err(error) => Err(error),
    }
}

/// A collection of this name exists: fine if it has the options that were asked for.
async fn same_or_exists(op: &Op<'_>, ns: &Namespace, exists: CommandError) -> CommandResult<Reply> {
    let answer = PrimaryCall::read(ns.db())
        .attach(Attach::Database)
        .ask(op, |out| {
            splice::put_i32(out, "listCollections", 1);
            let filter = splice::open_doc(out, "filter");
            splice::put_str(out, "name", ns.coll());
            filter.finish(out);
        })
        .await?;
    let batch = answer.reply.body().get_doc("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let Some(found) = batch.and_then(Doc::first).and_then(|item| item.value().as_doc()) else {
        return Err(exists);
    };
    let options = found.get_doc("options").unwrap_or(Doc::empty());
    if same_options(op.request.body, options) {
        return Ok(Reply::ok());
    }
    Err(CommandError::new(
        ErrorCode::NamespaceExists,
        format!("ns: {ns} already exists with different options: {}", crate::admin::shell(options)),
    ))
}

/// The options that make two collections different.
const COMPARED: &[&str] = &[
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "indexOptionDefaults",
    "storageEngine",
    "viewOn",
    "pipeline",
    "timeseries",
    "clusteredIndex",
    "expireAfterSeconds",
    "changeStreamPreAndPostImages",
    "encryptedFields",
];

/// Do the options asked for describe the collection that exists? What is stored is normalized, so that an option that
/// was not asked for must have its default there.
fn same_options(asked: Doc<'_>, stored: Doc<'_>) -> bool {
    let same = |name: &&str| match (meant(asked, name), meant(stored, name)) {
        (None, None) => true,
        (Some(asked), Some(stored)) => same_value(name, asked, stored),
        _ => false,
    };
    COMPARED.iter().all(same) && same_collation(asked.get_doc("collation"), stored.get_doc("collation"))
}

/// An option's value, but for those that say the default.
fn meant<'a>(options: Doc<'a>, name: &str) -> Option<Value<'a>> {
    let value = options.get(name)?;
    let default = match (name, value) {
        ("capped", value) => !value.is_truthy(),
        ("validationLevel", value) => value.as_str() == Some("strict"),
        ("validationAction", value) => value.as_str() == Some("error"),
        (_, Value::Document(doc)) => doc.is_empty(),
        (_, Value::Null) => true,
        _ => false,
    };
    (!default).then_some(value)
}

fn same_value(name: &str, asked: Value<'_>, stored: Value<'_>) -> bool {
    match (name, asked, stored) {
        // Sizes are rounded up to a multiple of 256 when they are stored.
        ("size", asked, stored) => {
            let round = |value: Value<'_>| {
                value.as_i64().map(|size| size.div_euclid(256) + i64::from(size % 256 != 0))
            };
            round(asked) == round(stored)
        }
        // The server adds what follows from the granularity, and the name of the clustered index.
        ("timeseries" | "clusteredIndex", Value::Document(asked), Value::Document(stored)) => {
            asked.iter().all(|field| {
                let other = stored.get(field.name());
                other.is_some_and(|other| document::order::compare_values(field.value(), other).is_eq())
            })
        }
        (_, asked, stored) => document::order::compare_values(asked, stored).is_eq(),
    }
}

/// A stored collation has all of its fields, one asked for only some; none and `simple` are the same.
fn same_collation(asked: Option<Doc<'_>>, stored: Option<Doc<'_>>) -> bool {
    let asked = asked.filter(|doc| !doc.is_empty() && doc.get_str("locale") != Some("simple"));
    match (asked, stored) {
        (None, None) => true,
        (Some(asked), Some(stored)) => {
            // The defaults that a locale does not change.
            let defaults = [("strength", 3), ("caseLevel", 0), ("numericOrdering", 0)];
            let said = asked.iter().all(|field| {
                let other = stored.get(field.name());
                other.is_some_and(|other| document::order::compare_values(field.value(), other).is_eq())
            });
            said && defaults.iter().all(|(name, default)| {
                asked.contains(name)
                    || stored.get(name).is_none_or(|value| {
                        value.as_i64() == Some(*default) || value.as_bool() == Some(*default != 0)
                    })
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(asked: &bson::RawDocumentBuf, stored: &bson::RawDocumentBuf) -> bool {
        same_options(Doc::new(asked.as_bytes()).unwrap(), Doc::new(stored.as_bytes()).unwrap())
    }

    #[test]
    fn options_are_compared_as_they_are_meant() {
        use bson::rawdoc;
        assert!(same(&rawdoc! { "create": "c" }, &rawdoc! {}));
        assert!(same(&rawdoc! { "create": "c", "capped": false }, &rawdoc! {}));
        assert!(same(
            &rawdoc! { "create": "c", "capped": true, "size": 1000 },
            &rawdoc! { "capped": true, "size": 1024 }
        ));
        assert!(!same(&rawdoc! { "create": "c" }, &rawdoc! { "capped": true, "size": 1024 }));
        assert!(same(
            &rawdoc! { "create": "c", "collation": { "locale": "en" } },
            &rawdoc! { "collation": { "locale": "en", "strength": 3, "caseLevel": false } }
        ));
        assert!(!same(
            &rawdoc! { "create": "c", "collation": { "locale": "en" } },
            &rawdoc! { "collation": { "locale": "en", "strength": 2 } }
        ));
        assert!(same(
            &rawdoc! { "create": "c", "timeseries": { "timeField": "t" } },
            &rawdoc! { "timeseries": { "timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600 } }
        ));
        assert!(!same(&rawdoc! { "create": "c", "viewOn": "a" }, &rawdoc! { "viewOn": "b", "pipeline": [] }));
    }
}
