//! The filter that decides which shards an aggregation concerns: all of its `$match` stages that could as well come first.
//!
//! This is more than saving work. A shard moves `$match` forward as far as it can, and one that fixes the shard key by
//! equality is not filtered for orphans there: a shard that does not own the key gives its orphans (seen on 6.0.5). So
//! what shards move must be what the router targets by.

use document::{Doc, DocBuf, Value};

use super::pipeline::Stage;

/// What one stage does to the fields of a document.
#[derive(Debug)]
enum Step<'a> {
    /// These paths get other values, or go; the rest stays.
    Changes(Vec<String>, Vec<Rename<'a>>),
    /// These paths stay; the rest goes or gets other values.
    Keeps(Vec<String>, Vec<Rename<'a>>),
    /// Parts of the document may go.
    Prunes,
}

/// A field that another one's value is copied to.
#[derive(Debug)]
struct Rename<'a> {
    to: &'a str,
    from: &'a str,
}

/// The filter, empty when nothing is known.
pub(super) fn of(stages: &[Stage<'_>]) -> DocBuf {
    if let Some(near) = stages.first().filter(|stage| stage.name == "$geoNear") {
        let query = near.argument_doc().and_then(|near| near.get_doc("query"));
        return DocBuf::from(query.unwrap_or(Doc::empty()));
    }
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut filters: Vec<DocBuf> = Vec::new();
    for stage in stages {
        match stage.name {
            "$match" => match stage.argument_doc() {
                Some(filter) if steps.is_empty() => {
                    if !filter.is_empty() {
                        filters.push(DocBuf::from(filter));
                    }
                }
                Some(filter) => hoist(filter, &steps, &mut filters),
                None => break,
            },
            "$sort" => {}
            _ => match step(stage) {
                Some(step) => steps.push(step),
                None => break,
            },
        }
    }
    match filters.len() {
        0 => DocBuf::new(),
        1 => filters.swap_remove(0),
        _ => {
            let mut all = DocBuf::new();
            all.write(|w| w.array("$and", &filters, |w, index, filter| w.put(index, filter)));
            all
        }
    }
}

/// `None` when documents behind the stage are others than those before.
fn step<'a>(stage: &Stage<'a>) -> Option<Step<'a>> {
    let changes = |paths: Vec<String>| Some(Step::Changes(paths, Vec::new()));
    match stage.name {
        "$redact" => Some(Step::Prunes),
        "$addFields" | "$set" => {
            let mut fields = Vec::new();
            flatten(stage.argument_doc()?, "", 0, &mut fields);
            let renames = fields.iter().filter_map(|(path, value)| rename(stage, path, *value)).collect();
            Some(Step::Changes(fields.into_iter().map(|(path, _)| path).collect(), renames))
        }
        "$unset" => match stage.argument {
            Value::String(_) => changes(vec![stage.argument.as_str()?.to_owned()]),
            Value::Array(paths) => {
                changes(paths.iter().filter_map(|path| path.value().as_str().map(str::to_owned)).collect())
            }
            _ => None,
        },
        "$unwind" => match stage.argument {
            Value::String(_) => changes(vec![stage.argument.as_str()?.strip_prefix('$')?.to_owned()]),
            Value::Document(spec) => {
                let mut paths = vec![spec.get_str("path")?.strip_prefix('$')?.to_owned()];
                paths.extend(spec.get_str("includeArrayIndex").map(str::to_owned));
                changes(paths)
            }
            _ => None,
        },
        "$lookup" | "$graphLookup" => changes(vec![stage.argument_doc()?.get_str("as")?.to_owned()]),
        "$project" => project(stage),
        _ => None,
    }
}

fn project<'a>(stage: &Stage<'a>) -> Option<Step<'a>> {
    let mut fields = Vec::new();
    flatten(stage.argument_doc()?, "", 0, &mut fields);
    let excluded = |value: Value<'_>| (value.is_number() || value.as_bool().is_some()) && !value.is_truthy();
    let others = || fields.iter().filter(|(path, _)| path != "_id");
    if others().all(|(_, value)| excluded(*value)) && others().next().is_some() {
        return Some(Step::Changes(fields.into_iter().map(|(path, _)| path).collect(), Vec::new()));
    }
    let included = |value: Value<'_>| (value.is_number() || value.as_bool().is_some()) && value.is_truthy();
    let mut kept: Vec<String> =
        fields.iter().filter(|(_, value)| included(*value)).map(|(path, _)| path.clone()).collect();
    if !fields.iter().any(|(path, _)| path == "_id" || path.starts_with("_id.")) {
        kept.push("_id".to_owned());
    }
    let renames = fields.iter().filter_map(|(path, value)| rename(stage, path, *value)).collect();
    Some(Step::Keeps(kept, renames))
}

/// `{to: "$from"}`, both without dots: other paths may lead through arrays.
fn rename<'a>(stage: &Stage<'a>, path: &str, value: Value<'a>) -> Option<Rename<'a>> {
    let from =
        value.as_str()?.strip_prefix('$').filter(|from| !from.starts_with('$') && !from.contains('.'))?;
    let to = stage.argument_doc()?.field(path)?.name();
    (!to.contains('.')).then_some(Rename { to, from })
}

/// The paths that a specification of fields names, and what it says of each. Documents without an operator are levels.
fn flatten<'a>(spec: Doc<'a>, prefix: &str, depth: usize, out: &mut Vec<(String, Value<'a>)>) {
    for field in spec {
        let path =
            if prefix.is_empty() { field.name().to_owned() } else { format!("{prefix}.{}", field.name()) };
        match field.value() {
            Value::Document(inner)
                if depth < document::MAX_DEPTH
                    && inner.first().is_some_and(|first| !first.name().starts_with('$')) =>
            {
                flatten(inner, &path, depth + 1, out);
            }
            value => out.push((path, value)),
        }
    }
}

/// Is one of the paths the other, or on its way?
fn overlap(a: &str, b: &str) -> bool {
    below(a, b).is_some() || below(b, a).is_some()
}

/// What of `path` stands behind `head`: nothing when they are the same.
fn below<'p>(path: &'p str, head: &str) -> Option<&'p str> {
    path.strip_prefix(head).filter(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Step<'_> {
    /// The path of the same values before the stage.
    fn before(&self, path: &str) -> Option<String> {
        let (renames, stays) = match self {
            Self::Prunes => return Some(path.to_owned()),
            Self::Changes(changed, renames) => (renames, !changed.iter().any(|other| overlap(other, path))),
            Self::Keeps(kept, renames) => (renames, kept.iter().any(|kept| below(path, kept).is_some())),
        };
        let renamed = renames
            .iter()
            .find_map(|rename| below(path, rename.to).map(|rest| format!("{}{rest}", rename.from)));
        renamed.or_else(|| stays.then(|| path.to_owned()))
    }
}

/// The path of the same values before all stages.
fn before_all(steps: &[Step<'_>], path: &str) -> Option<String> {
    steps.iter().rev().try_fold(path.to_owned(), |path, step| step.before(&path))
}

/// Adds the parts of a filter that could as well come before the stages.
fn hoist(filter: Doc<'_>, steps: &[Step<'_>], filters: &mut Vec<DocBuf>) {
    let pruned = steps.iter().any(|step| matches!(step, Step::Prunes));
    for field in filter {
        let mut part = DocBuf::new();
        match (field.name(), field.value()) {
            ("$and", Value::Array(all)) => {
                for each in all.iter().filter_map(|each| each.value().as_doc()) {
                    hoist(each, steps, filters);
                }
                continue;
            }
            ("$or", Value::Array(_)) if !pruned && stays_whole(field.value(), steps, 0) => {
                part.append_elements(field.raw());
            }
            (name, _) if name.starts_with('$') => continue,
            (name, value) => {
                let Some(path) = before_all(steps, name) else { continue };
                // What is not there any more matches few things: equality with a value is certain.
                if pruned
                    && matches!(
                        value,
                        Value::Document(_) | Value::Array(_) | Value::Null | Value::Regex { .. }
                    )
                {
                    continue;
                }
                part.append(&path, value);
            }
        }
        filters.push(part);
    }
}

/// Are all paths in an array of filters as they were before the stages?
fn stays_whole(filters: Value<'_>, steps: &[Step<'_>], depth: usize) -> bool {
    let Value::Array(filters) = filters else { return false };
    depth < document::MAX_DEPTH
        && filters.iter().all(|filter| {
            filter.value().as_doc().is_some_and(|filter| {
                filter.iter().all(|field| match field.name() {
                    "$and" | "$or" => stays_whole(field.value(), steps, depth + 1),
                    name if name.starts_with('$') => false,
                    name => before_all(steps, name).is_some_and(|path| path == name),
                })
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(pipeline: &bson::RawDocumentBuf) -> String {
        let array = pipeline.get_array("p").unwrap();
        let stages = super::super::pipeline::parse(Doc::new(array.as_bytes()).unwrap()).unwrap();
        format!("{:?}", of(&stages).as_doc())
    }

    fn shown(doc: &bson::RawDocumentBuf) -> String {
        format!("{:?}", Doc::new(doc.as_bytes()).unwrap())
    }

    #[test]
    fn what_a_shard_would_move_to_the_front_is_targeted_by() {
        let lookup = || bson::rawdoc! { "$lookup": { "from": "o", "localField": "a", "foreignField": "b", "as": "j" } };
        let x = || bson::rawdoc! { "x": 16 };
        let m = || bson::rawdoc! { "$match": { "x": 16 } };
        let nothing = bson::rawdoc! {};
        for (pipeline, expected) in [
            (bson::rawdoc! { "p": [m()] }, x()),
            (bson::rawdoc! { "p": [{ "$sort": { "a": 1 } }, m()] }, x()),
            (bson::rawdoc! { "p": [lookup(), { "$set": { "w": { "$add": ["$x", 1] } } }, m()] }, x()),
            (bson::rawdoc! { "p": [lookup(), { "$match": { "x": 16, "j.a": 1 } }] }, x()),
            (bson::rawdoc! { "p": [lookup(), { "$match": { "$and": [{ "x": 16 }, { "j": 1 }] } }] }, x()),
            (bson::rawdoc! { "p": [{ "$unwind": "$arr" }, m()] }, x()),
            (bson::rawdoc! { "p": [{ "$unwind": { "path": "$x" } }, m()] }, nothing.clone()),
            (bson::rawdoc! { "p": [{ "$set": { "x": 1 } }, m()] }, nothing.clone()),
            (bson::rawdoc! { "p": [{ "$set": { "x.y": 1 } }, m()] }, nothing.clone()),
            (bson::rawdoc! { "p": [{ "$set": { "y": "$x" } }, { "$match": { "y": 16 } }] }, x()),
            (bson::rawdoc! { "p": [{ "$project": { "y": "$x" } }, { "$match": { "y": 16 } }] }, x()),
            (bson::rawdoc! { "p": [{ "$project": { "x": 1 } }, m()] }, x()),
            (bson::rawdoc! { "p": [{ "$project": { "a": 1 } }, m()] }, nothing.clone()),
            (bson::rawdoc! { "p": [{ "$project": { "a": 0, "b": { "c": 0 } } }, m()] }, x()),
            (bson::rawdoc! { "p": [{ "$unset": ["x", "y"] }, m()] }, nothing.clone()),
            (bson::rawdoc! { "p": [{ "$unset": "y" }, m()] }, x()),
            (
                bson::rawdoc! { "p": [{ "$redact": "$$KEEP" }, { "$match": { "x": 16, "y": { "$ne": 1 } } }] },
                x(),
            ),
            (
                bson::rawdoc! { "p": [lookup(), { "$match": { "$or": [{ "x": 16 }, { "x": 17 }] } }] },
                bson::rawdoc! { "$or": [{ "x": 16 }, { "x": 17 }] },
            ),
            (
                bson::rawdoc! { "p": [lookup(), { "$match": { "$or": [{ "x": 16 }, { "j": 17 }] } }] },
                nothing.clone(),
            ),
            (bson::rawdoc! { "p": [{ "$limit": 3 }, m()] }, nothing.clone()),
            (bson::rawdoc! { "p": [{ "$group": { "_id": "$x" } }, m()] }, nothing.clone()),
            (
                bson::rawdoc! { "p": [{ "$match": { "g": 1 } }, lookup(), m()] },
                bson::rawdoc! { "$and": [{ "g": 1 }, { "x": 16 }] },
            ),
        ] {
            assert_eq!(filter(&pipeline), shown(&expected), "{pipeline:?}");
        }
    }
}
