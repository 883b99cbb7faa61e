//! One batch of a shard's cursor, walked without copying.

use bytes::Bytes;
use document::{Doc, DocBuf, Field, Fields, Value};

use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// The documents of `firstBatch` or `nextBatch` that were not handed out yet.
#[derive(Debug, Default)]
pub struct Batch {
    /// Array elements that are left, shared with the shard's message.
    rest: Bytes,
    /// How many bytes of them came.
    came: usize,
    /// Length of the first element's head (type byte and name) and of its document; 0 when none is left.
    head: usize,
    document: usize,
    /// Where in the document the merge's metadata starts, and where the sort key is; found by [`Batch::scan`].
    metadata: usize,
    sort_key: usize,
}

/// Fields that shards add for the merge and clients never see (mongos 5.0; `$searchSortValues` from 6.0).
const METADATA: &[&[u8]] = &[
    b"$sortKey",
    b"$textScore",
    b"$dis",
    b"$pt",
    b"$randVal",
    b"$searchScore",
    b"$searchHighlights",
    b"$indexKey",
    b"$searchScoreDetails",
    b"$searchSortValues",
];

/// Is it a field that only merges read?
pub(super) fn is_metadata(name: &[u8]) -> bool {
    name.first() == Some(&b'$') && METADATA.contains(&name)
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
    /// `postBatchResumeToken` of a change stream.
    pub post_batch: Option<DocBuf>,
}

impl CursorReply {
    /// An open cursor whose first batch was handed out already.
    #[must_use]
    pub fn open(id: i64) -> Self {
        Self { id, batch: Batch::default(), at: None, post_batch: None }
    }

    /// From the body of a reply to find, aggregate or getMore.
    pub fn parse(body: &Bytes) -> CommandResult<Self> {
        let malformed = || CommandError::new(ErrorCode::InternalError, "a shard's reply has no cursor");
        let doc = Doc::new(body).map_err(|_| malformed())?;
        let cursor = doc.get_doc("cursor").ok_or_else(malformed)?;
        let mut reply = Self { id: 0, batch: Batch::default(), at: None, post_batch: None };
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
                b"postBatchResumeToken" => reply.post_batch = field.value().as_doc().map(DocBuf::from),
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
        let mut batch = Self { came: elements.len(), rest: elements, ..Self::default() };
        batch.measure();
        batch
    }

    /// Is every document handed out?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.document == 0
    }

    /// Is less than half of it left?
    #[must_use]
    pub const fn is_low(&self) -> bool {
        self.rest.len() <= self.came / 2
    }

    /// The next document.
    #[must_use]
    pub fn peek(&self) -> Option<Doc<'_>> {
        Doc::new(self.rest.get(self.head..self.head + self.document)?).ok()
    }

    /// Looks once through the next document for what the merge needs. `false` when it has no sort key.
    pub fn scan(&mut self) -> bool {
        let Some(doc) = self.peek() else { return false };
        let (mut at, mut metadata, mut sort_key) = (4, None, None);
        for field in doc {
            if is_metadata(field.name_bytes()) {
                metadata.get_or_insert(at);
                if field.name_bytes() == b"$sortKey" {
                    sort_key = Some(at);
                }
            } else if metadata.is_some() {
                // A shard puts its metadata last; anything else is cut field by field.
                metadata = Some(0);
            }
            at += field.raw().len();
        }
        (self.metadata, self.sort_key) = (metadata.unwrap_or(0), sort_key.unwrap_or(0));
        sort_key.is_some()
    }

    /// The sort key that [`Batch::scan`] found.
    #[must_use]
    pub fn sort_key(&self) -> Value<'_> {
        let element = self.rest.get(self.head + self.sort_key..self.head + self.document);
        element
            .filter(|_| self.sort_key > 0)
            .and_then(|bytes| Fields::over_elements(bytes).next())
            .map_or(Value::Undefined, Field::value)
    }

    /// The elements of the next document without the metadata, when [`Batch::scan`] found it all at the end.
    #[must_use]
    pub fn elements_without_metadata(&self) -> Option<&[u8]> {
        self.rest.get(self.head + 4..self.head + self.metadata).filter(|_| self.metadata >= 4)
    }

    /// Goes past the next document.
    pub fn advance(&mut self) {
        let used = self.head + self.document;
        let _ = self.rest.split_to(used.min(self.rest.len()));
        self.measure();
    }

    fn measure(&mut self) {
        (self.metadata, self.sort_key) = (0, 0);
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
        assert!(!reply.batch.is_low());
        while let Some(doc) = reply.batch.peek() {
            seen.push(doc.get_i64("x"));
            reply.batch.advance();
            assert!(reply.batch.is_low());
        }
        assert_eq!(seen, [Some(1), Some(2)]);
        assert!(reply.batch.is_empty());
    }

    #[test]
    fn metadata_at_the_end_is_cut_off_without_looking_again() {
        let array = bson::rawdoc! {
            "0": { "x": 1, "$sortKey": [7], "$textScore": 1.5 },
            "1": { "$sortKey": [8], "y": 2 },
            "2": { "x": 3 },
        };
        let elements = Doc::new(array.as_bytes()).unwrap().elements();
        let mut batch = Batch::new(Bytes::copy_from_slice(elements));
        assert!(batch.scan());
        assert_eq!(batch.sort_key().as_array().and_then(|key| key.get_i64("0")), Some(7));
        let x = bson::rawdoc! { "x": 1 };
        assert_eq!(batch.elements_without_metadata(), Some(Doc::new(x.as_bytes()).unwrap().elements()));
        batch.advance();
        assert!(batch.scan());
        assert_eq!(batch.elements_without_metadata(), None);
        batch.advance();
        assert!(!batch.scan());
    }
}
