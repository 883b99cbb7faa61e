//! insert

use document::{Doc, Value};

use super::batch;
use super::statement::Kind;
use crate::command::Op;
use crate::error::CommandResult;
use crate::reply::Reply;

/// Runs an insert.
pub async fn insert(op: &Op<'_>) -> CommandResult<Reply> {
    batch::run(op, Kind::Insert).await
}

/// Gives an `_id` to each document that has none, as its first field: a statement that is sent twice must not become
/// two documents. `arena` holds the documents that were changed.
pub(super) fn with_ids<'x>(mut documents: Vec<Doc<'x>>, arena: &'x mut Vec<u8>) -> Vec<Doc<'x>> {
    let without: Vec<usize> =
        documents.iter().enumerate().filter(|(_, doc)| !doc.contains("_id")).map(|(at, _)| at).collect();
    if without.is_empty() {
        return documents;
    }
    let mut ids = ObjectIds::new();
    let mut ends = Vec::with_capacity(without.len());
    for at in &without {
        let elements = documents.get(*at).map_or(&[][..], |doc| doc.elements());
        let start = arena.len();
        arena.extend_from_slice(&[0; 4]);
        document::DocWriter::new(arena).value("_id", Value::ObjectId(ids.next()));
        arena.extend_from_slice(elements);
        arena.push(0);
        let length = i32::try_from(arena.len() - start).unwrap_or(i32::MAX);
        if let Some(slot) = arena.get_mut(start..start + 4) {
            slot.copy_from_slice(&length.to_le_bytes());
        }
        ends.push(arena.len());
    }
    let arena: &'x [u8] = arena;
    let mut start = 0;
    for (at, end) in without.into_iter().zip(ends) {
        let made = arena.get(start..end).and_then(|bytes| Doc::new(bytes).ok());
        if let (Some(slot), Some(made)) = (documents.get_mut(at), made) {
            *slot = made;
        }
        start = end;
    }
    documents
}

/// New ObjectIds of one batch: the second, then 64 bits that begin at random and count up.
struct ObjectIds {
    seconds: u32,
    next: u64,
}

impl ObjectIds {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        // The field wraps in 2106, as every ObjectId does.
        let seconds = u32::try_from(now.as_secs() & u64::from(u32::MAX)).unwrap_or_default();
        Self { seconds, next: rand::random() }
    }

    fn next(&mut self) -> [u8; 12] {
        let mut id = [0; 12];
        let (time, rest) = id.split_at_mut(4);
        time.copy_from_slice(&self.seconds.to_be_bytes());
        rest.copy_from_slice(&self.next.to_be_bytes());
        self.next = self.next.wrapping_add(1);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_without_an_id_get_one_in_front() {
        let first = bson::rawdoc! { "a": 1 };
        let second = bson::rawdoc! { "a": 2, "_id": 5 };
        let third = bson::rawdoc! {};
        let docs = [&first, &second, &third].map(|doc| Doc::new(doc.as_bytes()).unwrap());
        let mut arena = Vec::new();
        let docs = with_ids(docs.to_vec(), &mut arena);
        for doc in &docs {
            assert_eq!(Doc::validate(doc.as_bytes()).unwrap(), *doc);
        }
        let names = |doc: Doc<'_>| doc.iter().map(|field| field.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            docs.iter().map(|doc| names(*doc)).collect::<Vec<_>>(),
            [vec!["_id", "a"], vec!["a", "_id"], vec!["_id"]]
        );
        assert_ne!(docs[0].get("_id"), docs[2].get("_id"));
        assert!(matches!(docs[0].get("_id"), Some(Value::ObjectId(_))));
    }
}
