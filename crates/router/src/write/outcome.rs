//! The reply that is made of all answers.

use bytes::BytesMut;
use chunk_map::ShardId;
use document::{Doc, DocBuf, Timestamp, Value, splice};

use super::child::Answer;
use super::statement::Kind;
use crate::codes::ErrorCode;
use crate::error::CommandError;
use crate::reply::Reply;

/// When the texts of the errors reach this size the rest goes without (seen on 6.0.5).
const MAX_ERROR_TEXT_BYTES: usize = 1024 * 1024;

/// When the errors reach this size the rest goes without what goes with a code: the reply has to stay a document.
const MAX_ERROR_BYTES: usize = 12 * 1024 * 1024;

/// What the answers so far add up to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    n: i64,
    n_modified: i64,
    upserted: Vec<(u32, DocBuf)>,
    errors: Vec<(u32, CommandError)>,
    concern_errors: Vec<(ShardId, ConcernError)>,
    retried: Vec<i32>,
    operation_time: Option<Timestamp>,
}

/// A `writeConcernError` of one shard.
#[derive(Debug, Clone)]
pub(super) struct ConcernError {
    error: CommandError,
    info: Option<DocBuf>,
}

impl ConcernError {
    pub(super) fn parse(doc: Doc<'_>) -> Self {
        let info = doc.get_doc("errInfo").map(DocBuf::from);
        Self { error: CommandError::from_reply(doc).cloaked(), info }
    }

    /// Writes `writeConcernError: {code, codeName, errmsg, errInfo}` with the shard's name behind the text.
    pub(super) fn write_at(&self, out: &mut BytesMut, shard: &ShardId) {
        let text = format!("{} at {shard}", self.error.message());
        write_concern_error(out, self.error.code(), &text, self.info.as_ref());
    }
}

fn write_concern_error(out: &mut BytesMut, code: ErrorCode, text: &str, info: Option<&DocBuf>) {
    let open = splice::open_doc(out, "writeConcernError");
    splice::put_i32(out, "code", code.0);
    splice::put_str(out, "codeName", &code.name());
    splice::put_str(out, "errmsg", text);
    splice::put_doc(out, "errInfo", info.map_or(Doc::empty(), DocBuf::as_doc));
    open.finish(out);
}

impl Outcome {
    /// Takes over what a shard did; `statements` says what its places mean.
    pub(super) fn add(&mut self, shard: &ShardId, statements: &[u32], answer: Answer) {
        self.n += answer.n;
        self.n_modified += answer.n_modified;
        for (place, id) in answer.upserted {
            let statement = usize::try_from(place).ok().and_then(|place| statements.get(place));
            if let Some(statement) = statement {
                self.upserted.push((*statement, id));
            }
        }
        if let Some(error) = answer.concern_error {
            self.concern_errors.push((shard.clone(), error));
        }
        self.retried.extend(answer.retried);
        self.operation_time = self.operation_time.max(answer.operation_time);
    }

    /// Documents that were found so far.
    pub(super) fn found(&self) -> usize {
        usize::try_from(self.n).unwrap_or(0)
    }

    /// So many statements were done by an earlier attempt of the client. An update is in the history when it changed something.
    pub(super) fn found_before(&mut self, statements: usize) {
        let statements = i64::try_from(statements).unwrap_or(0);
        self.n += statements;
        self.n_modified += statements;
    }

    /// A statement failed.
    pub(super) fn fail(&mut self, statement: u32, error: CommandError) {
        self.errors.push((statement, error.cloaked()));
    }

    /// The reply for a batch of so many statements.
    pub(super) fn into_reply(mut self, kind: Kind, ordered: bool, statements: usize) -> Reply {
        self.upserted.sort_by_key(|(statement, _)| *statement);
        self.errors.sort_by_key(|(statement, _)| *statement);
        // A statement that went to several shards, or twice to one, may stand there more than once.
        self.retried.sort_unstable();
        self.retried.dedup();
        let reply = Reply::with_capacity(64 + 256 * self.errors.len(), |out| {
            // Field order as seen on 6.0.5.
            if kind == Kind::Update {
                splice::put_i32(out, "nModified", int(self.n_modified));
            }
            splice::put_i32(out, "n", int(self.n));
            self.write_upserted(out);
            self.write_errors(out);
            let some_succeeded = self.errors.is_empty() || (!ordered && self.errors.len() < statements);
            if some_succeeded {
                self.write_concern_errors(out);
            }
            if !self.retried.is_empty() {
                let array = splice::open_array(out, "retriedStmtIds");
                let mut names = Names::default();
                for id in &self.retried {
                    splice::put_i32(out, names.next(), *id);
                }
                array.finish(out);
            }
            splice::put_f64(out, "ok", 1.0);
        });
        reply.at(self.operation_time)
    }

    fn write_upserted(&self, out: &mut BytesMut) {
        if self.upserted.is_empty() {
            return;
        }
        let array = splice::open_array(out, "upserted");
        let mut names = Names::default();
        for (statement, id) in &self.upserted {
            let item = splice::open_doc(out, names.next());
            splice::put_i32(out, "index", int((*statement).into()));
            out.extend_from_slice(id.as_doc().elements());
            item.finish(out);
        }
        array.finish(out);
    }

    fn write_errors(&self, out: &mut BytesMut) {
        if self.errors.is_empty() {
            return;
        }
        let array = splice::open_array(out, "writeErrors");
        let mut names = Names::default();
        let (start, mut texts) = (out.len(), 0);
        for (statement, error) in &self.errors {
            let item = splice::open_doc(out, names.next());
            splice::put_i32(out, "index", int((*statement).into()));
            splice::put_i32(out, "code", error.code().0);
            // The first text always goes along.
            let text = if texts > MAX_ERROR_TEXT_BYTES { "" } else { error.message() };
            texts += text.len();
            splice::put_str(out, "errmsg", text);
            if out.len() - start < MAX_ERROR_BYTES {
                out.extend_from_slice(error.extra().elements());
            }
            item.finish(out);
        }
        array.finish(out);
    }

    fn write_concern_errors(&self, out: &mut BytesMut) {
        match &*self.concern_errors {
            [] => {}
            [(shard, one)] => one.write_at(out, shard),
            several => {
                let texts: Vec<String> = several
                    .iter()
                    .map(|(shard, each)| {
                        format!("{}: {} at {shard}", each.error.code().name(), each.error.message())
                    })
                    .collect();
                let text = format!("multiple errors reported : {}", texts.join(" :: and :: "));
                write_concern_error(out, ErrorCode::WriteConcernFailed, &text, None);
            }
        }
    }
}

fn int(n: i64) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The names of an array's elements, one after the other, without an allocation each.
#[derive(Debug, Default)]
pub(super) struct Names {
    next: u32,
    text: String,
}

impl Names {
    /// `0`, `1`, ...
    pub(super) fn next(&mut self) -> &str {
        use std::fmt::Write;
        self.text.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{}", self.next);
        self.next += 1;
        &self.text
    }
}

/// Reads the elements of one answer's `upserted`.
pub(super) fn parse_upserted(items: Doc<'_>) -> Vec<(u32, DocBuf)> {
    items
        .iter()
        .filter_map(|item| {
            let item = item.value().as_doc()?;
            let place = item.get("index").and_then(Value::as_i64).and_then(|at| u32::try_from(at).ok())?;
            let mut id = DocBuf::new();
            id.append_elements(item.field("_id")?.raw());
            Some((place, id))
        })
        .collect()
}

#[cfg(test)]
mod tests;
