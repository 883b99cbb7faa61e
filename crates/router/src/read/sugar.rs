//! Stages that are another way to write a `$group`: `$count`, `$sortByCount`, `$bucket`.
//!
//! Only what is certainly valid is translated (as 6.0 does): of the rest a server says what is wrong with it.

use std::cmp::Ordering;

use document::order::{compare_values, type_class};
use document::{Doc, DocBuf, DocWriter, Field, Value};

use super::pipeline::Stage;

/// The `$group`, and the stage behind it. `None` when the stage is none of these, or not certainly a valid one.
pub(super) fn as_group(stage: &Stage<'_>) -> Option<(DocBuf, DocBuf)> {
    match stage.name {
        "$count" => count(stage.argument.as_str()?),
        "$sortByCount" => sort_by_count(stage),
        "$bucket" => bucket(stage.argument_doc()?),
        _ => None,
    }
}

fn count(field: &str) -> Option<(DocBuf, DocBuf)> {
    if field.is_empty() || field.starts_with('$') || field.contains('.') || field == "_id" {
        return None;
    }
    let mut group = DocBuf::new();
    group.append_doc("$group", |w| {
        w.put("_id", Value::Null);
        w.doc(field, |w| w.put("$sum", 1));
    });
    let mut project = DocBuf::new();
    project.append_doc("$project", |w| w.put("_id", 0));
    Some((group, project))
}

fn sort_by_count(stage: &Stage<'_>) -> Option<(DocBuf, DocBuf)> {
    if !is_expression(stage.argument) {
        return None;
    }
    let mut group = DocBuf::new();
    group.append_doc("$group", |w| {
        w.put("_id", stage.argument);
        w.doc("count", |w| w.put("$sum", 1));
    });
    let mut sort = DocBuf::new();
    sort.append_doc("$sort", |w| w.put("count", -1));
    Some((group, sort))
}

/// A field path, or an operator with its arguments.
fn is_expression(value: Value<'_>) -> bool {
    match value {
        Value::String(text) => text.len() > 1 && text.first() == Some(&b'$'),
        Value::Document(doc) => doc.first().is_some_and(|field| field.name_bytes().first() == Some(&b'$')),
        _ => false,
    }
}

fn bucket(spec: Doc<'_>) -> Option<(DocBuf, DocBuf)> {
    let known = |field: Field<'_>| matches!(field.name(), "groupBy" | "boundaries" | "default" | "output");
    if !spec.iter().all(known) {
        return None;
    }
    let by = spec.get("groupBy").filter(|by| is_expression(*by))?;
    let bounds: Vec<Value<'_>> = spec.get_array("boundaries")?.iter().map(Field::value).collect();
    if bounds.len() < 2 || !bounds.iter().all(|bound| is_constant(*bound)) {
        return None;
    }
    if !bounds.windows(2).all(|pair| matches!(pair, [a, b] if same_class(*a, *b) && less(*a, *b))) {
        return None;
    }
    let (first, last) = (*bounds.first()?, *bounds.last()?);
    let default = spec.get("default");
    if let Some(default) = default {
        let outside = !same_class(default, first) || less(default, first) || !less(default, last);
        // A text is no bound here, but names what is left.
        let plain = matches!(default, Value::String(text) if text.first() != Some(&b'$'));
        if !(is_constant(default) || plain) || !outside {
            return None;
        }
    }
    let output = match spec.get("output") {
        None => None,
        Some(Value::Document(output)) => Some(output),
        Some(_) => return None,
    };
    let mut group = DocBuf::new();
    group.append_doc("$group", |w| {
        w.doc("_id", |w| w.doc("$switch", |w| put_switch(w, by, &bounds, default)));
        match output {
            Some(output) => w.elements(output.elements()),
            None => w.doc("count", |w| w.doc("$sum", |w| w.put("$const", 1))),
        }
    });
    let mut sort = DocBuf::new();
    sort.append_doc("$sort", |w| w.put("_id", 1));
    Some((group, sort))
}

/// `branches`: one a pair of bounds; `default`.
fn put_switch(w: &mut DocWriter<'_>, by: Value<'_>, bounds: &[Value<'_>], default: Option<Value<'_>>) {
    w.array("branches", bounds.windows(2), |w, index, pair| {
        let [low, high] = pair else { return };
        w.doc(index, |w| {
            w.doc("case", |w| {
                w.array("$and", [("$gte", low), ("$lt", high)], |w, index, (operator, bound)| {
                    w.doc(index, |w| {
                        w.array(operator, [None, Some(*bound)], |w, index, bound| match bound {
                            None => w.put(index, by),
                            Some(bound) => w.doc(index, |w| w.put("$const", bound)),
                        });
                    });
                });
            });
            w.doc("then", |w| w.put("$const", *low));
        });
    });
    if let Some(default) = default {
        w.doc("default", |w| w.put("$const", default));
    }
}

/// A value that stands for itself and that every collation compares alike.
fn is_constant(value: Value<'_>) -> bool {
    match value {
        Value::Double(n) => !n.is_nan(),
        Value::Int32(_)
        | Value::Int64(_)
        | Value::Decimal128(_)
        | Value::DateTime(_)
        | Value::ObjectId(_) => true,
        _ => false,
    }
}

fn same_class(left: Value<'_>, right: Value<'_>) -> bool {
    type_class(left.element_type()) == type_class(right.element_type())
}

fn less(left: Value<'_>, right: Value<'_>) -> bool {
    compare_values(left, right) == Ordering::Less
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(doc: &bson::RawDocumentBuf) -> Option<(String, String)> {
        let doc = Doc::new(doc.as_bytes()).unwrap();
        let field = doc.first().unwrap();
        let stage = Stage { doc, name: field.name(), argument: field.value() };
        as_group(&stage)
            .map(|(group, then)| (format!("{:?}", group.as_doc()), format!("{:?}", then.as_doc())))
    }

    #[test]
    fn valid_ones_become_groups_and_the_rest_is_left_to_servers() {
        let translated = [
            bson::rawdoc! { "$count": "n" },
            bson::rawdoc! { "$sortByCount": "$g" },
            bson::rawdoc! { "$sortByCount": { "$mod": ["$g", 2] } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": [0, 1.5, 7_i64], "default": "rest" } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": [0, 5], "default": 5, "output": { "m": { "$max": "$y" } } } },
        ];
        for stage in translated {
            assert!(names(&stage).is_some(), "{stage:?}");
        }
        let left = [
            bson::rawdoc! { "$count": "" },
            bson::rawdoc! { "$count": "a.b" },
            bson::rawdoc! { "$sortByCount": "g" },
            bson::rawdoc! { "$sortByCount": { "a": 1 } },
            bson::rawdoc! { "$bucket": { "groupBy": "x", "boundaries": [0, 5] } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": [5, 0] } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": [0] } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": ["a", "b"] } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": [0, 5], "default": 3 } },
            bson::rawdoc! { "$bucket": { "groupBy": "$x", "boundaries": [0, 5], "what": 3 } },
        ];
        for stage in left {
            assert!(names(&stage).is_none(), "{stage:?}");
        }
    }
}
