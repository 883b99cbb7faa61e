use chunk_map::ShardId;
use document::Doc;

use super::{ConcernError, Outcome};
use crate::codes::ErrorCode;
use crate::error::CommandError;
use crate::write::child::Answer;
use crate::write::statement::Kind;

fn concern(code: i32) -> ConcernError {
    let doc =
        bson::rawdoc! { "code": code, "codeName": "x", "errmsg": "waiting", "errInfo": { "wtimeout": true } };
    ConcernError::parse(Doc::new(doc.as_bytes()).unwrap())
}

fn with_concerns(codes: &[i32]) -> Outcome {
    let mut outcome = Outcome::default();
    for (at, code) in codes.iter().enumerate() {
        let shard = ShardId::new(&format!("shard{at}"));
        outcome.add(&shard, &[0], Answer { n: 1, concern_error: Some(concern(*code)), ..Answer::default() });
    }
    outcome
}

#[test]
fn write_concern_errors_name_their_shards() {
    let reply = with_concerns(&[64]).into_reply(Kind::Insert, true, 1);
    let error = reply.body().get_doc("writeConcernError").unwrap();
    assert_eq!(error.get_str("errmsg"), Some("waiting at shard0"));
    assert_eq!(error.get_str("codeName"), Some("WriteConcernFailed"));
    assert!(error.get_doc("errInfo").unwrap().contains("wtimeout"));
    let reply = with_concerns(&[100, 79]).into_reply(Kind::Insert, true, 2);
    let error = reply.body().get_doc("writeConcernError").unwrap();
    assert_eq!(error.get_i64("code"), Some(64));
    assert_eq!(
        error.get_str("errmsg"),
        Some(
            "multiple errors reported : UnsatisfiableWriteConcern: waiting at shard0 :: and :: \
             UnknownReplWriteConcern: waiting at shard1"
        )
    );
}

#[test]
fn a_write_concern_error_is_told_only_when_something_was_written() {
    let failed = |ordered, statements| {
        let mut outcome = with_concerns(&[64]);
        outcome.fail(0, CommandError::new(ErrorCode::DuplicateKey, "dup"));
        outcome.into_reply(Kind::Insert, ordered, statements).body().contains("writeConcernError")
    };
    assert!(!failed(true, 2));
    assert!(failed(false, 2));
    assert!(!failed(false, 1));
}

#[test]
fn a_reply_full_of_errors_stays_a_document() {
    let mut outcome = Outcome::default();
    let text = "x".repeat(200);
    for statement in (0..100_000).rev() {
        let error =
            CommandError::new(ErrorCode::DuplicateKey, text.clone()).with_extra("keyValue", text.as_str());
        outcome.fail(statement, error);
    }
    let reply = outcome.into_reply(Kind::Insert, false, 100_000);
    assert!(reply.body().as_bytes().len() < 16 * 1024 * 1024);
    let errors = reply.body().get_array("writeErrors").unwrap();
    assert_eq!(errors.iter().count(), 100_000);
    let first = errors.first().unwrap().value().as_doc().unwrap();
    assert_eq!((first.get_i64("index"), first.get_str("errmsg")), (Some(0), Some(&*text)));
    let last = errors.iter().last().unwrap().value().as_doc().unwrap();
    assert_eq!((last.get_str("errmsg"), last.contains("keyValue")), (Some(""), false));
}

#[test]
fn state_changes_of_shards_are_not_shown() {
    let mut outcome = Outcome::default();
    outcome.fail(0, CommandError::new(ErrorCode::NotWritablePrimary, "not master"));
    let reply = outcome.into_reply(Kind::Insert, true, 1);
    let error = reply.body().get_array("writeErrors").unwrap().first().unwrap().value().as_doc().unwrap();
    assert_eq!((error.get_i64("code"), error.get_str("errmsg")), (Some(6), Some("(NOT_PRIMARY)")));
}
