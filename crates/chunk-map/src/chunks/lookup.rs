//! Questions to a map.

use document::{Doc, Timestamp};
use shard_key::{KeyRange, KeyRanges, ShardKey};
use smallvec::SmallVec;

use super::keys::Wanted;
use super::{ChunkMap, ChunkRef, ShardIndex, StaleChunkHistory};
use crate::ids::ShardId;

/// Ids of shards in ascending order, each once.
pub type ShardSet = SmallVec<[ShardId; 4]>;

/// A set of shard numbers.
struct Numbers {
    words: SmallVec<[u64; 2]>,
    count: usize,
}

impl Numbers {
    fn new(shards: usize) -> Self {
        Self { words: SmallVec::from_elem(0, shards.div_ceil(64)), count: 0 }
    }

    fn insert(&mut self, number: ShardIndex) {
        let bit = 1u64 << (number % 64);
        if let Some(word) = self.words.get_mut(usize::from(number / 64))
            && *word & bit == 0
        {
            *word |= bit;
            self.count += 1;
        }
    }

    fn contains(&self, number: usize) -> bool {
        self.words.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

impl ChunkMap {
    /// Page and row of the chunk that holds a key, if any does; else of the last chunk.
    pub(super) fn position(&self, key: Doc<'_>) -> (usize, usize) {
        let key = Wanted::new(key);
        let page = self.firsts.count_up_to(&key).saturating_sub(1);
        let rows = self.pages.get(page).map_or(0, |page| page.mins().count_up_to(&key));
        (page, rows.saturating_sub(1))
    }

    /// How many chunks start below a key, by their numbers.
    pub(super) fn count_below(&self, key: Doc<'_>, number: impl Fn(usize, usize) -> usize) -> usize {
        let key = Wanted::new(key);
        let page = self.firsts.count_below(&key).saturating_sub(1);
        let rows = self.pages.get(page).map_or(0, |page| page.mins().count_below(&key));
        number(page, rows)
    }

    /// The chunk that holds a key; `None` for a key of MaxKeys only.
    #[must_use]
    pub fn find(&self, key: &ShardKey) -> Option<ChunkRef<'_>> {
        if key.is_all_max_key() {
            return None;
        }
        let (page, row) = self.position(key.as_doc());
        Some(ChunkRef { map: self, page, row })
    }

    /// The chunk that starts at all MinKey.
    #[must_use]
    pub const fn first(&self) -> ChunkRef<'_> {
        ChunkRef { map: self, page: 0, row: 0 }
    }

    /// All chunks in order.
    pub fn iter(&self) -> impl Iterator<Item = ChunkRef<'_>> {
        std::iter::successors(Some(self.first()), |chunk| chunk.next())
    }

    /// The shards that own a part of these ranges; the shard of the first chunk when there is none.
    #[must_use]
    pub fn shards_of(&self, ranges: &KeyRanges) -> ShardSet {
        let ranges = match ranges {
            KeyRanges::All => return self.sorted(|number| self.owns(number)),
            KeyRanges::Empty => &[],
            KeyRanges::Key(key) => {
                return SmallVec::from_iter([self.find(key).unwrap_or_else(|| self.first()).shard().clone()]);
            }
            KeyRanges::Ranges(ranges) => &**ranges,
        };
        let mut found = Numbers::new(self.shards.len());
        for range in ranges {
            self.add_owners(range, &mut found);
            if found.count == self.owning {
                break;
            }
        }
        if found.count == 0 {
            return SmallVec::from_iter([self.first().shard().clone()]);
        }
        self.sorted(|number| found.contains(number))
    }

    fn owns(&self, number: usize) -> bool {
        self.versions.get(number).is_some_and(|version| version.as_u64() != 0)
    }

    fn sorted(&self, wanted: impl Fn(usize) -> bool) -> ShardSet {
        let chosen = self.shards.iter().enumerate().filter(|(number, _)| wanted(*number));
        let mut shards: ShardSet = chosen.map(|(_, shard)| shard.clone()).collect();
        shards.sort_unstable();
        shards
    }

    /// Pages and rows of the first and the last chunk that a range touches.
    fn span(&self, range: &KeyRange) -> Option<((usize, usize), (usize, usize))> {
        // What starts at all MaxKey is behind the last chunk.
        if range.min.is_all_max_key() || range.min.order(&range.max).is_gt() {
            return None;
        }
        Some((self.position(range.min.as_doc()), self.position(range.max.as_doc())))
    }

    fn add_owners(&self, range: &KeyRange, found: &mut Numbers) {
        let Some(((first_page, first_row), (last_page, last_row))) = self.span(range) else { return };
        for (index, page) in self.pages.iter().enumerate().take(last_page + 1).skip(first_page) {
            let from = if index == first_page { first_row } else { 0 };
            let to = if index == last_page { last_row + 1 } else { page.len() };
            if from == 0 && to == page.len() {
                page.owners().iter().for_each(|owner| found.insert(owner.shard));
            } else {
                (from..to).filter_map(|row| page.shard(row)).for_each(|shard| found.insert(shard));
            }
            if found.count == self.owning {
                return;
            }
        }
    }

    /// The chunks that these ranges touch; of no range the first one.
    pub fn chunks_of<'m>(&'m self, ranges: &KeyRanges) -> Vec<ChunkRef<'m>> {
        let mut chunks: Vec<ChunkRef<'m>> = Vec::new();
        match ranges {
            KeyRanges::All => return self.iter().collect(),
            KeyRanges::Empty => {}
            KeyRanges::Key(key) => chunks.extend(self.find(key)),
            KeyRanges::Ranges(ranges) => {
                for ((page, row), last) in ranges.iter().filter_map(|range| self.span(range)) {
                    let first = ChunkRef { map: self, page, row };
                    let inside = std::iter::successors(Some(first), |chunk| chunk.next())
                        .take_while(|chunk| (chunk.page, chunk.row) <= last);
                    // Neighbouring ranges may touch one chunk.
                    let seen = chunks.last().map(|chunk| (chunk.page, chunk.row));
                    chunks.extend(inside.skip_while(|chunk| Some((chunk.page, chunk.row)) <= seen));
                }
            }
        }
        if chunks.is_empty() {
            chunks.push(self.first());
        }
        chunks
    }

    /// The shards that owned a part of these ranges at a cluster time.
    pub fn shards_of_at(&self, ranges: &KeyRanges, at: Timestamp) -> Result<ShardSet, StaleChunkHistory> {
        let mut shards = ShardSet::new();
        for chunk in self.chunks_of(ranges) {
            let owner = chunk.owner_at(at)?;
            if !shards.contains(owner) {
                shards.push(owner.clone());
            }
        }
        shards.sort_unstable();
        Ok(shards)
    }
}
