//! Some hundred neighbouring chunks, column by column.

use document::{Doc, Timestamp};
use smallvec::SmallVec;

use super::ShardIndex;
use super::keys::KeyTable;

/// One chunk on its way into a page: bytes of the key, owner, version, history.
#[derive(Debug, Clone)]
pub(super) struct Row<'k> {
    pub(super) min: Doc<'k>,
    pub(super) shard: ShardIndex,
    pub(super) version: Timestamp,
    pub(super) history: SmallVec<[(Timestamp, ShardIndex); 2]>,
}

/// Chunks in order, never none.
#[derive(Debug)]
pub(super) struct Page {
    mins: KeyTable,
    shards: Box<[ShardIndex]>,
    versions: Box<[Timestamp]>,
    /// Where the history of each chunk ends in the two columns behind.
    history_ends: Box<[u32]>,
    history_times: Box<[Timestamp]>,
    history_shards: Box<[ShardIndex]>,
    /// The shards that own chunks here.
    owners: Box<[Owner]>,
}

/// A shard that owns chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owner {
    pub(super) shard: ShardIndex,
    /// The highest version of its chunks.
    pub(super) version: Timestamp,
    /// When it got the last of them.
    pub(super) since: Timestamp,
}

impl Owner {
    /// It owns this chunk too.
    pub(super) fn add(&mut self, other: &Self) {
        self.version = other.version.max(self.version);
        self.since = other.since.max(self.since);
    }
}

impl Row<'_> {
    fn owner(&self) -> Owner {
        let since = self.history.first().map(|(time, _)| *time).unwrap_or_default();
        Owner { shard: self.shard, version: self.version, since }
    }
}

impl Page {
    pub(super) fn new(rows: &[Row<'_>]) -> Self {
        let history = || rows.iter().flat_map(|row| row.history.iter().copied());
        let mut history_end = 0u32;
        let history_ends = rows.iter().map(|row| {
            history_end = history_end.saturating_add(u32::try_from(row.history.len()).unwrap_or(u32::MAX));
            history_end
        });
        let mut owners: Vec<Owner> = Vec::new();
        for owner in rows.iter().map(Row::owner) {
            match owners.iter_mut().find(|known| known.shard == owner.shard) {
                Some(known) => known.add(&owner),
                None => owners.push(owner),
            }
        }
        Self {
            mins: KeyTable::new(rows.iter().map(|row| row.min.as_bytes())),
            shards: rows.iter().map(|row| row.shard).collect(),
            versions: rows.iter().map(|row| row.version).collect(),
            history_ends: history_ends.collect(),
            history_times: history().map(|(time, _)| time).collect(),
            history_shards: history().map(|(_, shard)| shard).collect(),
            owners: owners.into(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn mins(&self) -> &KeyTable {
        &self.mins
    }

    pub(super) fn min(&self, row: usize) -> Option<Doc<'_>> {
        self.mins.get(row)
    }

    pub(super) fn shard(&self, row: usize) -> Option<ShardIndex> {
        self.shards.get(row).copied()
    }

    pub(super) fn version(&self, row: usize) -> Option<Timestamp> {
        self.versions.get(row).copied()
    }

    pub(super) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    pub(super) fn history(&self, row: usize) -> impl Iterator<Item = (Timestamp, ShardIndex)> {
        let end = |row: usize| self.history_ends.get(row).map_or(0, |&end| usize::try_from(end).unwrap_or(0));
        let range = row.checked_sub(1).map_or(0, end)..end(row);
        let times = self.history_times.get(range.clone()).unwrap_or_default();
        let shards = self.history_shards.get(range).unwrap_or_default();
        times.iter().copied().zip(shards.iter().copied())
    }

    pub(super) fn row(&self, row: usize) -> Option<Row<'_>> {
        Some(Row {
            min: self.min(row)?,
            shard: self.shard(row)?,
            version: self.version(row)?,
            history: self.history(row).collect(),
        })
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + 2 * size_of::<usize>()
            + self.mins.heap_bytes()
            + size_of_val(&*self.shards)
            + size_of_val(&*self.versions)
            + size_of_val(&*self.history_ends)
            + size_of_val(&*self.history_times)
            + size_of_val(&*self.history_shards)
            + size_of_val(&*self.owners)
    }
}
