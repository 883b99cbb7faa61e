//! One batch of a shard's cursor, walked without copying.

use bytes::Bytes;
use document::{Doc, Fields};

use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// The documents of `firstBatch` or `nextBatch` that were not handed out yet.
#[derive(Debug, Default)]
pub struct Batch {
    /// Array elements that are left, shared with the shard's message.
    rest: Bytes,
    /// Length of the first element's head (type byte and name) and of its document; 0 when none is left.
    head: usize,
    document: usize,
}

/// A shard's cursor reply, taken apart.
#[derive(Debug)]
pub struct CursorReply {
    /// The cursor's id on the shard, 0 when it is exhausted.
    pub id: i64,
    /// Its documents.
    pub batch: Batch,
    /// `atClusterTime` of a snapshot read.
    pub at: Option<document::Timestamp>,
}

impl CursorReply {
    /// An open cursor whose first batch was handed out already.
    #[must_use]
    pub fn open(id: i64) -> Self {
        Self { id, batch: Batch::default(), at: None }
    }

    /// From the body of a reply to find, aggregate or getMore.
    pub fn parse(body: &Bytes) -> CommandResult<Self> {
        let malformed = || CommandError::new(ErrorCode::InternalError, "a shard's reply has no cursor");
        let doc = Doc::new(body).map_err(|_| malformed())?;
        let cursor = doc.get_doc("cursor").ok_or_else(malformed)?;
        let mut reply = Self { id: 0, batch: Batch::default(), at: None };
        let mut seen = false;
        for field in cursor {
            match field.name_bytes() {
                b"id" => reply.id = field.value().as_i64().ok_or_else(malformed)?,
                b"firstBatch" | b"nextBatch" => {
                    let documents = field.value().as_array().ok_or_else(malformed)?;
                    reply.batch = Batch::new(body.slice_ref(documents.elements()));
                    seen = true;
                }
                b"atClusterTime" => reply.at = field.value().as_timestamp(),
                _ => {}
            }
        }
        if seen { Ok(reply) } else { Err(malformed()) }
    }
}

impl Batch {
    /// From the elements of an array of documents.
    #[must_use]
    pub fn new(elements: Bytes) -> Self {
        let mut batch = Self { rest: elements, head: 0, document: 0 };
        batch.measure();
        batch
    }

    /// Is every document handed out?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.document == 0
    }

    /// The next document.
    #[must_use]
    pub fn peek(&self) -> Option<Doc<'_>> {
        Doc::new(self.rest.get(self.head..self.head + self.document)?).ok()
    }

    /// Goes past the next document.
    pub fn advance(&mut self) {
        let used = self.head + self.document;
        let _ = self.rest.split_to(used.min(self.rest.len()));
        self.measure();
    }

    fn measure(&mut self) {
        let next = Fields::over_elements(&self.rest).next();
        (self.head, self.document) = match next {
            Some(field) if field.value().as_doc().is_some() => {
                (field.raw().len() - field.value_bytes().len(), field.value_bytes().len())
            }
            _ => (0, 0),
        };
        if self.document == 0 {
            // The shard's message is not kept alive by an empty batch.
            self.rest = Bytes::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_each_document_once() {
        let body = bson::rawdoc! {
            "cursor": { "firstBatch": [{ "x": 1 }, { "x": 2 }], "id": 7_i64, "ns": "d.c" }, "ok": 1.0,
        };
        let mut reply = CursorReply::parse(&Bytes::copy_from_slice(body.as_bytes())).unwrap();
        assert_eq!(reply.id, 7);
        let mut seen = Vec::new();
        while let Some(doc) = reply.batch.peek() {
            seen.push(doc.get_i64("x"));
            reply.batch.advance();
        }
        assert_eq!(seen, [Some(1), Some(2)]);
        assert!(reply.batch.is_empty());
    }
}
