//! An aggregation pipeline as far as a router must understand it.

use document::{Doc, Field, Value};

use super::{lite, reference};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// One stage: `{$name: argument}`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) doc: Doc<'a>,
    pub(super) name: &'a str,
    pub(super) argument: Value<'a>,
}

/// Stages that only routers and shards send each other. A shard takes most of them from anybody when authentication
/// is off, and `$mergeCursors` on the wrong connection kills it (seen on 6.0.5).
const INTERNAL: &[&str] =
    &["$mergeCursors", "$queue", "$setVariableFromSubPipeline", "$listCatalog", "$_addReshardingResumeId"];

/// Deepest nesting of pipelines in pipelines that is looked through (the server's limit for sub-pipeline views is 20).
const MAX_NESTED_PIPELINES: usize = 50;

/// Refuses the pipeline of a view that a client may not send: reading the view would run it.
pub(crate) fn check_view(pipeline: Option<Value<'_>>) -> CommandResult<()> {
    match pipeline {
        Some(Value::Array(pipeline)) => parse(pipeline).map(|_| ()),
        // Of another type: the shard says so.
        _ => Ok(()),
    }
}

/// The pipeline of an update: the router refuses what is no pipeline at all, and so the whole command before anything of
/// it is done; which stages may stand in an update is the shards' to say, for the one statement (seen on 6.0.5).
pub(crate) fn check_update(pipeline: Doc<'_>) -> CommandResult<()> {
    check_update_at(pipeline, 0)
}

fn check_update_at(pipeline: Doc<'_>, depth: usize) -> CommandResult<()> {
    check_depth(depth)?;
    for element in pipeline {
        let stage = shape(element)?;
        if !reference::is_known(stage.name) && !stage.is_internal() {
            return Err(CommandError::new(
                ErrorCode(40324),
                format!("Unrecognized pipeline stage name: '{}'", stage.name),
            ));
        }
        lite::check(&stage)?;
        for inner in stage.inner() {
            check_update_at(inner, depth + 1)?;
        }
    }
    Ok(())
}

/// Parses the array of stages; refuses what a client may not send.
pub(super) fn parse(pipeline: Doc<'_>) -> CommandResult<Vec<Stage<'_>>> {
    parse_at(pipeline, 0)
}

/// The stages of a pipeline that servers or this router made: internal ones (`$_internalUnpackBucket`) are in their
/// place there.
pub(super) fn trusted(pipeline: Doc<'_>) -> Vec<Stage<'_>> {
    pipeline
        .iter()
        .filter_map(|element| element.value().as_doc())
        .filter_map(|doc| doc.first().map(|field| Stage { doc, name: field.name(), argument: field.value() }))
        .collect()
}

fn parse_at(pipeline: Doc<'_>, depth: usize) -> CommandResult<Vec<Stage<'_>>> {
    check_depth(depth)?;
    pipeline.iter().map(|element| stage(element, depth)).collect()
}

fn check_depth(depth: usize) -> CommandResult<()> {
    if depth <= MAX_NESTED_PIPELINES {
        return Ok(());
    }
    Err(CommandError::new(ErrorCode(5_107_900), "Exceeded the maximum depth of nested pipelines"))
}

fn stage(element: Field<'_>, depth: usize) -> CommandResult<Stage<'_>> {
    let stage = shape(element)?;
    if stage.is_internal() {
        return Err(CommandError::new(
            ErrorCode(5_491_300),
            format!("{}' is not allowed in user requests", stage.name),
        ));
    }
    lite::check(&stage)?;
    for inner in stage.inner() {
        let inner = parse_at(inner, depth + 1)?;
        stage.check_writes_inside(&inner)?;
    }
    Ok(stage)
}

fn shape(element: Field<'_>) -> CommandResult<Stage<'_>> {
    let Value::Document(doc) = element.value() else {
        return Err(CommandError::new(
            ErrorCode::TypeMismatch,
            "Each element of the 'pipeline' array must be an object",
        ));
    };
    let mut fields = doc.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(CommandError::new(
            ErrorCode(40323),
            "A pipeline stage specification object must contain exactly one field.",
        ));
    };
    Ok(Stage { doc, name: field.name(), argument: field.value() })
}

impl<'a> Stage<'a> {
    fn is_internal(&self) -> bool {
        INTERNAL.contains(&self.name) || self.name.starts_with("$_internal")
    }

    /// The pipelines inside of the stage, which are held to the same rules.
    fn inner(&self) -> Vec<Doc<'a>> {
        let Value::Document(argument) = self.argument else { return Vec::new() };
        match self.name {
            "$lookup" | "$unionWith" => argument.get_array("pipeline").into_iter().collect(),
            "$facet" => argument.iter().filter_map(|facet| facet.value().as_array()).collect(),
            "$merge" => argument.get_array("whenMatched").into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// What writes may not be nested; a shard would miss what the router tells it about a last stage (51124).
    fn check_writes_inside(&self, inner: &[Stage<'_>]) -> CommandResult<()> {
        let Some(writer) = inner.iter().find(|stage| stage.name == "$merge") else { return Ok(()) };
        let (code, text) = match self.name {
            "$lookup" => (51047, format!("{} is not allowed within a $lookup's sub-pipeline", writer.name)),
            "$unionWith" => {
                (31441, format!("{} is not allowed within a $unionWith's sub-pipeline", writer.name))
            }
            "$facet" => (40600, format!("{} is not allowed to be used within a $facet stage", writer.name)),
            _ => return Ok(()),
        };
        Err(CommandError::new(ErrorCode(code), text))
    }

    /// The argument as a document.
    pub(super) const fn argument_doc(&self) -> Option<Doc<'a>> {
        self.argument.as_doc()
    }

    /// The argument as a non-negative number: of `$limit` and `$skip`.
    pub(super) fn argument_count(&self) -> Option<u64> {
        self.argument.as_i64().and_then(|n| u64::try_from(n).ok())
    }

    /// Collections of the same database that the stage reads (`$lookup`, `$graphLookup`, `$unionWith`), at any depth.
    pub(super) fn foreign(&self, found: &mut Vec<&'a str>) {
        let argument = match (self.name, self.argument) {
            ("$unionWith", Value::String(_)) => {
                found.extend(self.argument.as_str());
                return;
            }
            (_, Value::Document(argument)) => argument,
            _ => return,
        };
        let inner = match self.name {
            "$lookup" | "$graphLookup" => {
                found.extend(argument.get_str("from"));
                argument.get_array("pipeline")
            }
            "$unionWith" => {
                found.extend(argument.get_str("coll"));
                argument.get_array("pipeline")
            }
            "$facet" => {
                for facet in argument {
                    if let Value::Array(stages) = facet.value() {
                        foreign_of(stages, found);
                    }
                }
                None
            }
            _ => None,
        };
        if let Some(stages) = inner {
            foreign_of(stages, found);
        }
    }

    /// Does it write its documents somewhere?
    pub(super) fn writes(&self) -> bool {
        matches!(self.name, "$out" | "$merge")
    }
}

fn foreign_of<'a>(stages: Doc<'a>, found: &mut Vec<&'a str>) {
    for element in stages {
        if let Value::Document(doc) = element.value()
            && let Some(field) = doc.first()
        {
            Stage { doc, name: field.name(), argument: field.value() }.foreign(found);
        }
    }
}

/// Refuses stages that may not stand in a transaction (6.0). Shards say the same, but not of a part that never reaches
/// them.
pub(super) fn check_in_transaction(stages: &[Stage<'_>]) -> CommandResult<()> {
    let refused = stages.iter().find(|stage| {
        matches!(
            stage.name,
            "$out"
                | "$merge"
                | "$indexStats"
                | "$collStats"
                | "$planCacheStats"
                | "$currentOp"
                | "$listSessions"
                | "$listLocalSessions"
                | "$changeStream"
                | "$unionWith"
                | "$shardedDataDistribution"
        )
    });
    match refused {
        Some(stage) => Err(CommandError::new(
            ErrorCode(263),
            format!("Stage not supported inside of a multi-document transaction: {}", stage.name),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_bson(pipeline: &bson::RawArrayBuf) -> CommandResult<usize> {
        parse(Doc::new(pipeline.as_bytes()).unwrap()).map(|stages| stages.len())
    }

    #[test]
    fn internal_stages_are_refused_at_any_depth() {
        let internal = bson::rawdoc! { "$mergeCursors": {} };
        let pipelines = [
            bson::rawdoc! { "p": [internal.clone()] },
            bson::rawdoc! { "p": [{ "$lookup": { "from": "x", "as": "y", "pipeline": [internal.clone()] } }] },
            bson::rawdoc! { "p": [{ "$facet": { "a": [{ "$_internalInhibitOptimization": {} }] } }] },
            bson::rawdoc! { "p": [{ "$unionWith": { "coll": "x", "pipeline": [internal] } }] },
        ];
        for doc in pipelines {
            let pipeline = doc.get_array("p").unwrap().to_owned();
            assert_eq!(parse_bson(&pipeline).unwrap_err().code().0, 5_491_300);
        }
    }

    #[test]
    fn foreign_collections_are_found_at_any_depth() {
        let doc = bson::rawdoc! { "p": [
            { "$lookup": { "from": "a", "as": "x", "pipeline": [{ "$unionWith": "b" }] } },
            { "$facet": { "f": [{ "$graphLookup": { "from": "c" } }] } },
        ] };
        let stages = parse(Doc::new(doc.get_array("p").unwrap().as_bytes()).unwrap()).unwrap();
        let mut found = Vec::new();
        stages.iter().for_each(|stage| stage.foreign(&mut found));
        assert_eq!(found, ["a", "b", "c"]);
    }
}
