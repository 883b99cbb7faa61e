//! One router cursor: the documents of all shards in one order, skip and limit applied once.

use bytes::{BufMut, BytesMut};
use document::order::compare_values;
use document::{Doc, Value};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cmp::Ordering;
use std::sync::Arc;

use super::batch::{Batch, is_metadata};
use super::group::Grouped;
use super::shard_cursor::{GetMoreOptions, ShardCursor};
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};
use crate::remote::Servers;

/// Most bytes of documents in one batch to a client; the first document is always taken.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;
/// What one document costs in a batch beside its bytes (mongos counts 10).
const PER_DOCUMENT_BYTES: usize = 10;

/// How the streams of the shards become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// As they come: one shard's batch, then the next one's.
    Any,
    /// By the parts of `$sortKey`, each ascending (`false`) or descending (`true`).
    Sorted {
        /// One flag a part of the sort: descending?
        descending: Box<[bool]>,
    },
    /// By the whole `$sortKey`, which is one ascending value (`$near`).
    SortedWhole,
}

impl Order {
    /// Of a sort document. `{$meta: ...}` parts (text score) are descending.
    #[must_use]
    pub fn by(sort: Doc<'_>) -> Self {
        let descending = sort
            .iter()
            .map(|field| match field.value() {
                Value::Document(_) => true,
                Value::Double(n) => n < 0.0,
                value => value.as_i64().is_some_and(|n| n < 0),
            })
            .collect();
        Self::Sorted { descending }
    }

    fn compare(&self, left: Value<'_>, right: Value<'_>) -> Ordering {
        match self {
            Self::Any => Ordering::Equal,
            Self::SortedWhole => compare_values(left, right),
            Self::Sorted { descending } => {
                let (Value::Array(left), Value::Array(right)) = (left, right) else {
                    return compare_values(left, right);
                };
                for ((left, right), descending) in left.iter().zip(right).zip(descending) {
                    let order = compare_values(left.value(), right.value());
                    if order != Ordering::Equal {
                        return if *descending { order.reverse() } else { order };
                    }
                }
                Ordering::Equal
            }
        }
    }
}

/// What a shard that fails means to its query (`allowPartialResults`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partial {
    /// The query fails.
    #[default]
    Refused,
    /// Its documents are left out.
    Allowed,
    /// Some were left out: each later answer says so.
    Returned,
}

/// The cursors of one query on its shards, as one stream.
#[derive(Debug)]
pub struct RouterCursor {
    streams: Vec<ShardCursor>,
    order: Order,
    /// Streams with a document at hand, the next to give first. For `Order::Any` as they come.
    ready: Vec<usize>,
    /// Documents still to be left out.
    skip: u64,
    /// Documents still to be given, if the client asked for a limit.
    limit: Option<u64>,
    /// Batch size of the opening command, for the shards' next batches.
    shard_batch: Option<u64>,
    strip: bool,
    partial: Partial,
    /// Groups that were merged here; there are no streams then.
    groups: Option<Box<Grouped>>,
}

/// What a batch ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchEnd {
    /// There may be more.
    More,
    /// All was given, or the limit is reached.
    Exhausted,
}

impl RouterCursor {
    /// From cursors that were opened together. `strip` takes the merge's metadata out of each document.
    #[must_use]
    pub fn new(streams: Vec<ShardCursor>, order: Order, strip: bool) -> Self {
        let mut cursor = Self {
            streams,
            order,
            ready: Vec::new(),
            skip: 0,
            limit: None,
            shard_batch: None,
            strip,
            partial: Partial::Refused,
            groups: None,
        };
        for index in 0..cursor.streams.len() {
            cursor.make_ready(index);
        }
        cursor
    }

    /// A cursor without any stream: its owner has other ones.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Vec::new(), Order::Any, false)
    }

    /// Groups that were merged before.
    #[must_use]
    pub fn of_groups(groups: Grouped) -> Self {
        Self { groups: Some(Box::new(groups)), ..Self::none() }
    }

    /// One shard's cursor, passed through.
    #[must_use]
    pub fn single(stream: ShardCursor) -> Self {
        Self::new(vec![stream], Order::Any, false)
    }

    /// The client knows the collection under another name: replies are written anew.
    #[must_use]
    pub const fn renamed(mut self) -> Self {
        self.strip = true;
        self
    }

    /// What becomes of it when a shard fails.
    #[must_use]
    pub const fn partial(mut self, partial: Partial) -> Self {
        self.partial = partial;
        self
    }

    /// Were documents of a shard left out?
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial == Partial::Returned
    }

    /// Leaves the first `skip` documents of the merged stream out.
    #[must_use]
    pub const fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Gives at most `limit` documents (after the skipped ones).
    #[must_use]
    pub const fn limit(mut self, limit: Option<u64>) -> Self {
        self.limit = limit;
        self
    }

    /// Batch size of the opening command (mongos asks shards for as many, not for what a getMore says).
    #[must_use]
    pub const fn shard_batch(mut self, size: Option<u64>) -> Self {
        self.shard_batch = size;
        self
    }

    /// Does it read from several shards?
    #[must_use]
    pub const fn is_multi_target(&self) -> bool {
        self.streams.len() > 1
    }

    /// The streams, to be closed.
    #[must_use]
    pub fn into_streams(self) -> Vec<ShardCursor> {
        self.streams
    }

    /// The only stream, when there is one and nothing to do between it and the client.
    #[must_use]
    pub fn pass_through(&self) -> Option<&ShardCursor> {
        match &*self.streams {
            [only] if self.is_transparent() && only.batch().is_empty() => Some(only),
            _ => None,
        }
    }

    /// As [`Self::pass_through`], to write down what a forwarded getMore found out.
    pub fn pass_through_mut(&mut self) -> Option<&mut ShardCursor> {
        if !self.is_transparent() {
            return None;
        }
        match &mut *self.streams {
            [only] if only.batch().is_empty() => Some(only),
            _ => None,
        }
    }

    fn is_transparent(&self) -> bool {
        self.skip == 0 && self.limit.is_none() && !self.strip && self.partial == Partial::Refused
    }

    /// Writes up to `batch_size` documents as array elements to `out` (bounded by bytes too).
    pub async fn next_batch(
        &mut self,
        servers: &Arc<Servers>,
        out: &mut BytesMut,
        batch_size: Option<u64>,
        options: GetMoreOptions<'_>,
    ) -> CommandResult<BatchEnd> {
        if let Some(groups) = &mut self.groups {
            return next_groups(groups, out, batch_size);
        }
        let start = out.len();
        let mut given = 0_u64;
        // An awaitData cursor whose shard had nothing answers with an empty batch.
        let mut awaited = false;
        // Shards know the limit of a limited query, but not what of it the others give.
        let reads_ahead = options.read_ahead && self.limit.is_none();
        loop {
            if self.limit == Some(0) {
                return Ok(BatchEnd::Exhausted);
            }
            if batch_size.is_some_and(|size| given >= size) {
                return Ok(if self.is_drained() { BatchEnd::Exhausted } else { BatchEnd::More });
            }
            if !self.fill(servers, options, &mut awaited).await? {
                return Ok(if self.is_drained() { BatchEnd::Exhausted } else { BatchEnd::More });
            }
            let Some(&next) = self.ready.first() else { return Ok(BatchEnd::Exhausted) };
            let Some(stream) = self.streams.get(next) else { return Ok(BatchEnd::Exhausted) };
            let Some(doc) = stream.batch().peek() else { return Ok(BatchEnd::Exhausted) };
            if self.order != Order::Any && stream.batch().sort_key() == Value::Undefined {
                // Merging it would give a wrong order.
                return Err(CommandError::new(
                    ErrorCode::InternalError,
                    format!("Missing field '$sortKey' in document: {doc:?}"),
                ));
            }
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                let size = doc.as_bytes().len() + PER_DOCUMENT_BYTES;
                if given > 0 && out.len() - start + size > MAX_BATCH_BYTES {
                    return Ok(BatchEnd::More);
                }
                put_document(out, given, stream.batch(), doc, self.strip);
                given += 1;
                self.limit = self.limit.map(|limit| limit - 1);
            }
            self.take_first();
            if reads_ahead {
                self.read_ahead(next, servers, options);
            }
        }
    }

    /// Has a stream that runs low asked for its next batch, so that shards work while others' documents are given and while
    /// the client reads. In order, every stream is needed all the time: two batches a shard are held at most. Without
    /// order one is given after the other: those that are used up are asked, and the last one that is not.
    fn read_ahead(&mut self, index: usize, servers: &Arc<Servers>, options: GetMoreOptions<'_>) {
        let needed = self.order != Order::Any || self.ready.len() <= 1;
        let shard_batch = self.shard_batch;
        if let Some(stream) = self.streams.get_mut(index)
            && (stream.batch().is_empty() || needed && stream.batch().is_low())
        {
            stream.read_ahead(servers, stream.options(shard_batch, options));
        }
    }

    /// Makes sure that the next document of the merge is at hand. `false` when there is none (now).
    async fn fill(
        &mut self,
        servers: &Servers,
        options: GetMoreOptions<'_>,
        awaited: &mut bool,
    ) -> CommandResult<bool> {
        loop {
            let sorted = self.order != Order::Any;
            let hungry = |stream: &ShardCursor| stream.batch().is_empty() && !stream.is_exhausted();
            let anyone = self.streams.iter().any(hungry);
            // Sorted: the smallest document is known only when no open stream is empty.
            if (!sorted && !self.ready.is_empty()) || !anyone {
                return Ok(!self.ready.is_empty());
            }
            if options.await_ms.is_some() && std::mem::replace(awaited, true) {
                return Ok(false);
            }
            let shard_batch = self.shard_batch;
            {
                let mut fetches: FuturesUnordered<_> = self
                    .streams
                    .iter_mut()
                    .filter(|stream| hungry(stream))
                    .map(|stream| async move {
                        let options = stream.options(shard_batch, options);
                        let fetched = stream.fetch(servers, options).await;
                        (stream, fetched)
                    })
                    .collect();
                while let Some((stream, fetched)) = fetches.next().await {
                    match fetched {
                        Ok(()) => {}
                        // Any failure but the end of the client's own budget, as in mongos 6.0.
                        Err(error)
                            if self.partial != Partial::Refused
                                && error.code() != ErrorCode::MaxTimeMSExpired =>
                        {
                            tracing::debug!(%error, "a shard is left out of a cursor");
                            stream.give_up();
                            self.partial = Partial::Returned;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            for index in 0..self.streams.len() {
                if !self.ready.contains(&index) {
                    self.make_ready(index);
                }
            }
        }
    }

    /// Nothing at hand and nothing to come?
    fn is_drained(&self) -> bool {
        self.limit == Some(0)
            || self.streams.iter().all(|stream| stream.is_exhausted() && stream.batch().is_empty())
    }

    /// Goes past the document that was given, and finds the next one.
    fn take_first(&mut self) {
        let Some(&first) = self.ready.first() else { return };
        let Some(stream) = self.streams.get_mut(first) else { return };
        stream.advance();
        if stream.batch().is_empty() {
            self.ready.remove(0);
            return;
        }
        if self.order == Order::Any {
            return;
        }
        stream.scan();
        // Usually the same shard goes on: then one comparison is all.
        let at = self.place(first, self.ready.get(1..).unwrap_or_default());
        if at > 0
            && let Some(moved) = self.ready.get_mut(..=at)
        {
            moved.rotate_left(1);
        }
    }

    /// Puts a stream with a document at hand to its place among the ready ones.
    fn make_ready(&mut self, index: usize) {
        let sorted = self.order != Order::Any;
        match self.streams.get_mut(index) {
            Some(stream) if !stream.batch().is_empty() => {
                if sorted {
                    stream.scan();
                }
            }
            _ => return,
        }
        let at = if self.order == Order::Any { self.ready.len() } else { self.place(index, &self.ready) };
        self.ready.insert(at, index);
    }

    /// How many of `others` (in order) come before the stream's next document. Ties: the lower shard first.
    fn place(&self, index: usize, others: &[usize]) -> usize {
        let key = self.sort_key(index);
        let before = |other: &usize| match self.order.compare(self.sort_key(*other), key) {
            Ordering::Less => true,
            Ordering::Equal => *other < index,
            Ordering::Greater => false,
        };
        if others.first().is_none_or(|first| !before(first)) {
            return 0;
        }
        others.partition_point(before)
    }

    fn sort_key(&self, index: usize) -> Value<'_> {
        self.streams.get(index).map_or(Value::Undefined, |stream| stream.batch().sort_key())
    }
}

/// A batch of merged groups.
fn next_groups(groups: &mut Grouped, out: &mut BytesMut, batch_size: Option<u64>) -> CommandResult<BatchEnd> {
    let start = out.len();
    let mut given = 0_u64;
    while batch_size.is_none_or(|size| given < size) {
        let at = out.len();
        if !groups.put_next(out, given) {
            break;
        }
        let size = out.len() - at;
        if size > wire::MAX_DOCUMENT_BYTES {
            return Err(CommandError::new(
                ErrorCode(10334),
                format!("BSONObj size: {size} is invalid. Size must be between 0 and 16793600(16MB)"),
            ));
        }
        if given > 0 && out.len() - start + PER_DOCUMENT_BYTES > MAX_BATCH_BYTES {
            out.truncate(at);
            groups.take_back();
            return Ok(BatchEnd::More);
        }
        given += 1;
    }
    Ok(if groups.is_empty() { BatchEnd::Exhausted } else { BatchEnd::More })
}

/// Writes one array element: a document, without the merge's metadata if `strip` says so.
fn put_document(out: &mut BytesMut, index: u64, batch: &Batch, doc: Doc<'_>, strip: bool) {
    out.put_u8(0x03);
    put_index(out, index);
    out.put_u8(0);
    if !strip {
        out.extend_from_slice(doc.as_bytes());
        return;
    }
    let open = document::splice::open(out);
    match batch.elements_without_metadata() {
        Some(elements) => out.extend_from_slice(elements),
        None => document::splice::copy_fields(doc, out, |name| {
            if is_metadata(name) { document::splice::Keep::No } else { document::splice::Keep::Yes }
        }),
    }
    open.finish(out);
}

/// The name of an array element, without a string in between.
pub(super) fn put_index(out: &mut BytesMut, index: u64) {
    let mut digits = [0_u8; 20];
    let mut rest = index;
    let mut at = digits.len();
    loop {
        at -= 1;
        if let (Some(slot), Ok(digit)) = (digits.get_mut(at), u8::try_from(rest % 10)) {
            *slot = b'0' + digit;
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_names_are_decimal() {
        for index in [0, 7, 10, 101, 99_999, u64::MAX] {
            let mut out = BytesMut::new();
            put_index(&mut out, index);
            assert_eq!(out, index.to_string().as_bytes());
        }
    }

    #[test]
    fn sort_parts_compare_in_their_direction() {
        let sort = bson::rawdoc! { "a": 1, "b": -1, "s": { "$meta": "textScore" } };
        let order = Order::by(Doc::new(sort.as_bytes()).unwrap());
        assert_eq!(order, Order::Sorted { descending: Box::new([false, true, true]) });
        let keys = bson::rawdoc! { "l": [1, 5, 0], "r": [1.0, 7, 0] };
        let keys = Doc::new(keys.as_bytes()).unwrap();
        assert_eq!(order.compare(keys.get("l").unwrap(), keys.get("r").unwrap()), Ordering::Greater);
    }

    #[test]
    fn metadata_of_the_merge_is_taken_out() {
        let doc = bson::rawdoc! { "x": 1, "$sortKey": [1], "y": 2 };
        let mut out = BytesMut::new();
        let open = document::splice::open(&mut out);
        put_document(&mut out, 0, &Batch::default(), Doc::new(doc.as_bytes()).unwrap(), true);
        open.finish(&mut out);
        let expected = bson::rawdoc! { "0": { "x": 1, "y": 2 } };
        assert_eq!(&out[..], expected.as_bytes());
    }
}
