//! What a `$changeStream` asks for, and what every shard is asked for it.

use document::{Doc, DocBuf, Timestamp, Value};

use super::super::pipeline::Stage;
use super::token::Token;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// Stages that may stand behind a `$changeStream`.
const ALLOWED: &[&str] =
    &["$match", "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith", "$redact"];

/// The client's options as far as a router must know them.
#[derive(Debug)]
pub(super) struct Spec<'a> {
    options: Doc<'a>,
    stages: &'a [Stage<'a>],
    /// The event that was seen last and must be found again; `None` for a start by time and for high-water marks.
    pub(super) resume_from: Option<Token>,
}

impl<'a> Spec<'a> {
    /// Checks the pipeline.
    pub(super) fn parse(stages: &'a [Stage<'a>]) -> CommandResult<Self> {
        let Some((first, rest)) = stages.split_first() else {
            return Err(CommandError::new(
                ErrorCode(40602),
                "$changeStream is only valid as the first stage in a pipeline",
            ));
        };
        if first.name != "$changeStream" || rest.iter().any(|stage| stage.name == "$changeStream") {
            return Err(CommandError::new(
                ErrorCode(40602),
                "$changeStream is only valid as the first stage in a pipeline",
            ));
        }
        let Value::Document(options) = first.argument else {
            return Err(CommandError::new(
                ErrorCode(50808),
                format!(
                    "the $changeStream stage specification must be an object, but found {}",
                    first.argument.element_type().name()
                ),
            ));
        };
        if let Some(stage) = rest.iter().find(|stage| !ALLOWED.contains(&stage.name)) {
            return Err(CommandError::new(
                ErrorCode::IllegalOperation,
                format!("{} is not permitted in a $changeStream pipeline", stage.name),
            ));
        }
        if options.get("showMigrationEvents").is_some_and(Value::is_truthy) {
            return Err(CommandError::new(
                ErrorCode(31123),
                "Change streams from mongos may not show migration events",
            ));
        }
        if options.contains("resumeAfter") && options.contains("startAfter") {
            return Err(CommandError::new(
                ErrorCode(50865),
                "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage",
            ));
        }
        if options.contains("startAtOperationTime")
            && (options.contains("resumeAfter") || options.contains("startAfter"))
        {
            return Err(CommandError::new(
                ErrorCode(40674),
                "Only one type of resume option is allowed, but multiple were found",
            ));
        }
        let resume = options.get_doc("resumeAfter").or(options.get_doc("startAfter"));
        let resume_from = resume.and_then(Token::parse).filter(|token| !token.is_high_water_mark());
        Ok(Self { options, stages: rest, resume_from })
    }

    fn starts_somewhere(&self) -> bool {
        ["resumeAfter", "startAfter", "startAtOperationTime"].iter().any(|name| self.options.contains(name))
    }

    /// The pipeline of a shard that is there from the beginning. `now` is where it starts when the client does not say.
    pub(super) fn pipeline(&self, now: Timestamp) -> Vec<DocBuf> {
        let mut options = DocBuf::from(self.options);
        if !self.starts_somewhere() {
            options.append("startAtOperationTime", Value::Timestamp(now));
        }
        self.with_options(&options)
    }

    /// The pipeline of a shard that was added at this time.
    pub(super) fn pipeline_from(&self, time: Timestamp) -> Vec<DocBuf> {
        let mut options = DocBuf::new();
        for field in self.options {
            if !matches!(field.name(), "resumeAfter" | "startAfter" | "startAtOperationTime") {
                options.append_elements(field.raw());
            }
        }
        options.append("startAtOperationTime", Value::Timestamp(time));
        self.with_options(&options)
    }

    fn with_options(&self, options: &DocBuf) -> Vec<DocBuf> {
        let mut stages = Vec::new();
        let mut source = DocBuf::new();
        source.append("$changeStream", options);
        stages.push(source);
        // Streams are opened on all shards, and config.shards tells of new ones: this event has nothing to add.
        let mut known = DocBuf::new();
        known.append_doc("$match", |w| w.doc("operationType", |w| w.put("$ne", "kNewShardDetected")));
        stages.push(known);
        // A shard that works for a merge leaves the images to stages of their own (seen on 6.0.5).
        for (option, off, stage) in [
            ("fullDocumentBeforeChange", "off", "$_internalChangeStreamAddPreImage"),
            ("fullDocument", "default", "$_internalChangeStreamAddPostImage"),
        ] {
            if let Some(field) =
                self.options.field(option).filter(|field| field.value().as_str() != Some(off))
            {
                let mut image = DocBuf::new();
                image.append_doc(stage, |w| w.elements(field.raw()));
                stages.push(image);
            }
        }
        stages.extend(self.stages.iter().map(|stage| DocBuf::from(stage.doc)));
        stages
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::pipeline;
    use super::*;

    fn error_of(pipeline: &bson::RawDocumentBuf) -> i32 {
        let array = pipeline.get_array("p").unwrap();
        let stages = pipeline::parse(Doc::new(array.as_bytes()).unwrap()).unwrap();
        Spec::parse(&stages).unwrap_err().code().0
    }

    #[test]
    fn what_a_stream_may_not_be_is_refused_with_the_servers_codes() {
        for (pipeline, code) in [
            (bson::rawdoc! { "p": [{ "$match": {} }, { "$changeStream": {} }] }, 40602),
            (bson::rawdoc! { "p": [{ "$changeStream": {} }, { "$group": { "_id": 1 } }] }, 20),
            (bson::rawdoc! { "p": [{ "$changeStream": { "showMigrationEvents": true } }] }, 31123),
            (bson::rawdoc! { "p": [{ "$changeStream": { "resumeAfter": {}, "startAfter": {} } }] }, 50865),
            (
                bson::rawdoc! { "p": [{ "$changeStream": { "resumeAfter": {}, "startAtOperationTime": 1 } }] },
                40674,
            ),
        ] {
            assert_eq!(error_of(&pipeline), code, "{pipeline:?}");
        }
    }

    #[test]
    fn a_shard_gets_a_start_and_its_images_as_stages() {
        let pipeline = bson::rawdoc! { "p": [
            { "$changeStream": { "fullDocument": "updateLookup" } }, { "$match": { "x": 1 } },
        ] };
        let array = pipeline.get_array("p").unwrap();
        let stages = pipeline::parse(Doc::new(array.as_bytes()).unwrap()).unwrap();
        let spec = Spec::parse(&stages).unwrap();
        let asked = spec.pipeline(Timestamp::new(5, 1));
        let names: Vec<&str> = asked.iter().map(|stage| stage.as_doc().first().unwrap().name()).collect();
        assert_eq!(names, ["$changeStream", "$match", "$_internalChangeStreamAddPostImage", "$match"]);
        let source = asked[0].as_doc().get_doc("$changeStream").unwrap();
        assert_eq!(source.get("startAtOperationTime").unwrap().as_timestamp(), Some(Timestamp::new(5, 1)));
        assert!(spec.resume_from.is_none());
    }
}
