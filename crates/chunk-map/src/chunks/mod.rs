//! The chunks of a collection: an immutable table of pages that snapshots share.
//!
//! A chunk's upper bound is the lower bound of the next one, so it is not stored; whoever builds a map has checked
//! that the bounds meet ([`build`]). Look-ups are two binary searches, over the first keys of the pages and inside
//! of one page.

mod build;
mod keys;
mod lookup;
mod page;

use std::sync::Arc;

use document::{Doc, Timestamp};

use crate::error::Inconsistent;
use crate::ids::ShardId;
use keys::KeyTable;
pub use lookup::ShardSet;
use page::Page;

/// Who owns which part of the key space.
#[derive(Clone)]
pub struct ChunkMap {
    pages: Arc<[Arc<Page>]>,
    /// The lowest key of each page.
    firsts: Arc<KeyTable>,
    /// Names of shards by the numbers that pages use; those without chunks may be among them.
    shards: Arc<[ShardId]>,
    /// The highest chunk version of each shard, by number; zero for those without chunks.
    versions: Arc<[Timestamp]>,
    /// When each shard got the last of its chunks, by number.
    since: Arc<[Timestamp]>,
    owning: usize,
    len: usize,
    version: Timestamp,
}

/// The number of a shard inside of one map.
type ShardIndex = u16;

/// One chunk of a map.
#[derive(Clone, Copy)]
pub struct ChunkRef<'m> {
    map: &'m ChunkMap,
    page: usize,
    row: usize,
}

/// One entry of a chunk's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHistory<'m> {
    /// When the ownership began.
    pub valid_after: Timestamp,
    /// The owner since then.
    pub shard: &'m ShardId,
}

/// At that time the chunk had an owner that is not known any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("No history entry for the chunk at clusterTime {}:{}", .at.seconds, .at.increment)]
pub struct StaleChunkHistory {
    /// The time that was asked for.
    pub at: Timestamp,
}

impl StaleChunkHistory {
    /// MongoDB's error code.
    #[must_use]
    pub const fn code(self) -> i32 {
        250
    }
}

impl ChunkMap {
    /// How many chunks there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never: the key space always belongs to somebody.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The highest version of all chunks.
    #[must_use]
    pub const fn version(&self) -> Timestamp {
        self.version
    }

    /// The highest version of a shard's chunks, if it has any.
    #[must_use]
    pub fn shard_version(&self, shard: &ShardId) -> Option<Timestamp> {
        self.owners().find(|(owner, _)| *owner == shard).map(|(_, version)| version)
    }

    /// When the shard got the last of the chunks that it has now; zero when that is not known.
    #[must_use]
    pub fn last_arrival(&self, shard: &ShardId) -> Timestamp {
        let number = self.shards.iter().position(|known| known == shard);
        number.and_then(|number| self.since.get(number)).copied().unwrap_or_default()
    }

    /// Shards that own chunks, with the highest version of those.
    pub fn owners(&self) -> impl Iterator<Item = (&ShardId, Timestamp)> {
        self.shards.iter().zip(self.versions.iter().copied()).filter(|(_, version)| version.as_u64() != 0)
    }

    /// How many shards own chunks.
    #[must_use]
    pub const fn owner_count(&self) -> usize {
        self.owning
    }

    /// Bytes on the heap that belong to this map, pages that others share included.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let pages: usize = self.pages.iter().map(|page| page.heap_bytes()).sum();
        pages
            + self.pages.len() * size_of::<Arc<Page>>()
            + self.firsts.heap_bytes()
            + self.shards.len() * (size_of::<ShardId>() + 2 * size_of::<Timestamp>())
    }

    /// How many pages of this map are the very pages of `other`, and how many there are.
    #[must_use]
    pub fn shared_pages(&self, other: &Self) -> (usize, usize) {
        let shared =
            self.pages.iter().filter(|page| other.pages.iter().any(|known| Arc::ptr_eq(page, known)));
        (shared.count(), self.pages.len())
    }

    fn shard(&self, index: ShardIndex) -> Option<&ShardId> {
        self.shards.get(usize::from(index))
    }
}

impl std::fmt::Debug for ChunkMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the chunks themselves, of which there may be 200,000.
        let owners: Vec<_> = self.owners().collect();
        f.debug_struct("ChunkMap")
            .field("chunks", &self.len)
            .field("version", &self.version)
            .field("owners", &owners)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ChunkRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{:?}, {:?}) on {}, {:?}", self.min(), self.max(), self.shard(), self.version())
    }
}

impl<'m> ChunkRef<'m> {
    fn page(self) -> Option<&'m Page> {
        self.map.pages.get(self.page).map(|page| &**page)
    }

    fn shard_index(self) -> ShardIndex {
        self.page().and_then(|page| page.shard(self.row)).unwrap_or_default()
    }

    /// Its owner.
    #[must_use]
    pub fn shard(self) -> &'m ShardId {
        self.map.shard_or_first(self.shard_index())
    }

    /// Its own version (major, minor).
    #[must_use]
    pub fn version(self) -> Timestamp {
        self.page().and_then(|page| page.version(self.row)).unwrap_or_default()
    }

    /// The version of its owner: what requests to that shard carry.
    #[must_use]
    pub fn shard_version(self) -> Timestamp {
        self.map.versions.get(usize::from(self.shard_index())).copied().unwrap_or_default()
    }

    /// Its lowest key, field names empty (see [`shard_key::KeyPattern::name_fields`]).
    #[must_use]
    pub fn min(self) -> Doc<'m> {
        self.page().and_then(|page| page.min(self.row)).unwrap_or(Doc::empty())
    }

    /// The first key behind it; `None` for the last chunk, which ends at all MaxKey.
    #[must_use]
    pub fn max(self) -> Option<Doc<'m>> {
        self.next().map(Self::min)
    }

    /// The chunk behind it.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let rows = self.page().map_or(0, Page::len);
        let next = if self.row + 1 < rows {
            Self { row: self.row + 1, ..self }
        } else {
            Self { page: self.page + 1, row: 0, ..self }
        };
        next.page().map(|_| next)
    }

    /// Who owned it since when, newest first.
    pub fn history(self) -> impl Iterator<Item = ChunkHistory<'m>> {
        let entries = self.page().into_iter().flat_map(move |page| page.history(self.row));
        entries.map(move |(valid_after, shard)| ChunkHistory {
            valid_after,
            shard: self.map.shard_or_first(shard),
        })
    }

    /// Its owner at a cluster time. Chunks without history (never written by 4.0 and later) have always been where
    /// they are.
    pub fn owner_at(self, at: Timestamp) -> Result<&'m ShardId, StaleChunkHistory> {
        let mut history = self.history().peekable();
        if history.peek().is_none() {
            return Ok(self.shard());
        }
        history.find(|entry| entry.valid_after <= at).map(|entry| entry.shard).ok_or(StaleChunkHistory { at })
    }
}

impl ChunkMap {
    /// The numbers of shards come from the map itself, so the fallback is never taken.
    fn shard_or_first(&self, index: ShardIndex) -> &ShardId {
        static NOBODY: std::sync::LazyLock<ShardId> = std::sync::LazyLock::new(|| ShardId::new(""));
        self.shard(index).unwrap_or_else(|| &NOBODY)
    }
}

impl From<StaleChunkHistory> for Inconsistent {
    fn from(error: StaleChunkHistory) -> Self {
        Self::new(error.to_string())
    }
}

#[cfg(test)]
mod tests;
