//! Building a map from chunks, and the next map from the one before: every result covers the key space exactly
//! once, or there is none.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use document::Timestamp;
use document::order::{FieldNames, compare_docs};

use super::keys::KeyTable;
use super::page::{Owner, Page, Row};
use super::{ChunkMap, ShardIndex};
use crate::error::Inconsistent;
use crate::ids::ShardId;
use crate::metadata::ChunkEntry;

/// Chunks that a page is filled to, most that it may grow to, fewest that it may shrink to.
const FILL: usize = 128;
pub(super) const MOST: usize = 256;
const FEWEST: usize = 32;

impl ChunkMap {
    /// The map of all chunks of a collection, in any order.
    pub fn full(mut chunks: Vec<ChunkEntry>) -> Result<Self, Inconsistent> {
        if chunks.is_empty() {
            return Err(Inconsistent::new("No chunks were found for the collection"));
        }
        sort(&mut chunks)?;
        for pair in chunks.windows(2) {
            if let [a, b] = pair
                && a.max.order(&b.min).is_lt()
            {
                return Err(gap(a, b));
            }
        }
        let ends = chunks.first().zip(chunks.last());
        if !ends.is_some_and(|(first, last)| first.min.is_all_min_key() && last.max.is_all_max_key()) {
            return Err(Inconsistent::new("the chunks do not reach from all MinKey to all MaxKey"));
        }
        let mut shards = Shards::default();
        let rows = chunks.iter().map(|chunk| shards.row(chunk)).collect::<Result<Vec<_>, _>>()?;
        let pages = rows.chunks(FILL).map(|rows| Arc::new(Page::new(rows))).collect();
        Ok(Self::of_pages(pages, shards.names.into()))
    }

    /// The map in which each of these chunks has replaced all that it overlaps. Pages without a change are shared
    /// with this map.
    pub fn updated(&self, mut changes: Vec<ChunkEntry>) -> Result<Self, Inconsistent> {
        sort(&mut changes)?;
        let edits = self.edits(&changes)?;
        let mut shards = Shards::from(&*self.shards);
        let rows = changes.iter().map(|chunk| shards.row(chunk)).collect::<Result<Vec<_>, _>>()?;

        let mut pages = Vec::with_capacity(self.pages.len() + 1);
        let mut pending: Vec<Row<'_>> = Vec::new();
        let mut edits = edits.into_iter().peekable();
        // Old chunks before this one are done with.
        let mut done = 0;
        let mut start = 0;
        for (index, page) in self.pages.iter().enumerate() {
            let end = start + page.len();
            let untouched = done <= start && edits.peek().is_none_or(|edit| edit.old.start >= end);
            // A page that shrank takes its neighbour in.
            if untouched && (pending.is_empty() || pending.len() >= FEWEST) {
                flush(&mut pending, &mut pages);
                pages.push(Arc::clone(page));
                start = end;
                continue;
            }
            let mut at = start.max(done);
            while at < end {
                match edits.next_if(|edit| edit.old.start == at) {
                    Some(edit) => {
                        pending.extend(rows.get(edit.new).unwrap_or_default().iter().cloned());
                        at = edit.old.end;
                    }
                    None => {
                        pending.extend(page.row(at - start));
                        at += 1;
                    }
                }
            }
            done = at;
            start = end;
            // Keep long runs of rebuilt pages from piling up.
            if pending.len() > MOST && index + 1 < self.pages.len() {
                flush(&mut pending, &mut pages);
            }
        }
        flush(&mut pending, &mut pages);
        Ok(Self::of_pages(pages, shards.names.into()))
    }

    /// Which runs of old chunks (by their numbers) are replaced by which runs of changes; each run of changes covers
    /// exactly what it replaces.
    fn edits(&self, changes: &[ChunkEntry]) -> Result<Vec<Edit>, Inconsistent> {
        let mut edits: Vec<Edit> = Vec::new();
        let mut starts = Vec::with_capacity(self.pages.len());
        let mut total = 0;
        for page in self.pages.iter() {
            starts.push(total);
            total += page.len();
        }
        let number = |page: usize, row: usize| starts.get(page).map_or(total, |start| start + row);
        for (index, change) in changes.iter().enumerate() {
            let (page, row) = self.position(change.min.as_doc());
            let first = number(page, row);
            let behind = self.count_below(change.max.as_doc(), number);
            match edits.last_mut() {
                Some(edit) if first < edit.old.end => {
                    let before = changes.get(edit.new.end - 1);
                    if let Some(before) = before.filter(|before| before.max.order(&change.min).is_ne()) {
                        return Err(gap(before, change));
                    }
                    edit.old.end = edit.old.end.max(behind);
                    edit.new.end = index + 1;
                }
                _ => edits.push(Edit { old: first..behind, new: index..index + 1 }),
            }
        }
        for edit in &edits {
            self.check_ends(edit, changes, &starts, total)?;
        }
        Ok(edits)
    }

    /// Does a run of changes begin and end where the chunks do that it replaces?
    fn check_ends(
        &self,
        edit: &Edit,
        changes: &[ChunkEntry],
        starts: &[usize],
        total: usize,
    ) -> Result<(), Inconsistent> {
        let (Some(first), Some(last)) = (changes.get(edit.new.start), changes.get(edit.new.end - 1)) else {
            return Ok(());
        };
        let min_of = |number: usize| {
            let page = starts.partition_point(|&start| start <= number).checked_sub(1)?;
            self.pages.get(page)?.min(number - starts.get(page)?)
        };
        let same = |key: &shard_key::ShardKey, bound: Option<document::Doc<'_>>| {
            bound.is_some_and(|bound| compare_docs(key.as_doc(), bound, FieldNames::Ignored).is_eq())
        };
        let meets_end = if edit.old.end == total {
            last.max.is_all_max_key()
        } else {
            same(&last.max, min_of(edit.old.end))
        };
        if meets_end && same(&first.min, min_of(edit.old.start)) {
            return Ok(());
        }
        Err(Inconsistent::new(format!(
            "Gap exists in the routing table around the chunks from {:?} to {:?}",
            first.min, last.max
        )))
    }

    fn of_pages(pages: Vec<Arc<Page>>, shards: Arc<[ShardId]>) -> Self {
        let mut owners = vec![Owner::default(); shards.len()];
        for owner in pages.iter().flat_map(|page| page.owners()) {
            if let Some(known) = owners.get_mut(usize::from(owner.shard)) {
                known.add(owner);
            }
        }
        let versions: Arc<[Timestamp]> = owners.iter().map(|owner| owner.version).collect();
        let firsts = KeyTable::new(pages.iter().filter_map(|page| page.min(0)).map(document::Doc::as_bytes));
        Self {
            firsts: Arc::new(firsts),
            owning: versions.iter().filter(|version| version.as_u64() != 0).count(),
            version: versions.iter().max().copied().unwrap_or_default(),
            versions,
            since: owners.iter().map(|owner| owner.since).collect(),
            len: pages.iter().map(|page| page.len()).sum(),
            pages: pages.into(),
            shards,
        }
    }
}

/// Old chunks `old` give way to changes `new`.
#[derive(Debug)]
struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

/// Sorts by lower bound; refuses chunks that are empty or overlap.
fn sort(chunks: &mut [ChunkEntry]) -> Result<(), Inconsistent> {
    chunks.sort_by(|a, b| a.min.order(&b.min));
    for chunk in chunks.iter() {
        if chunk.min.order(&chunk.max).is_ge() {
            return Err(Inconsistent::new(format!("the chunk from {:?} ends before it starts", chunk.min)));
        }
        if chunk.version.as_u64() == 0 {
            return Err(Inconsistent::new(format!("the chunk from {:?} has no version", chunk.min)));
        }
    }
    for pair in chunks.windows(2) {
        if let [a, b] = pair
            && a.max.order(&b.min).is_gt()
        {
            return Err(Inconsistent::new(format!(
                "Overlap exists in the routing table between chunks from {:?} and {:?}",
                a.min, b.min
            )));
        }
    }
    Ok(())
}

fn gap(before: &ChunkEntry, behind: &ChunkEntry) -> Inconsistent {
    Inconsistent::new(format!("Gap exists in the routing table from {:?} to {:?}", before.max, behind.min))
}

/// Makes pages of what is pending, of about the same size.
fn flush(pending: &mut Vec<Row<'_>>, pages: &mut Vec<Arc<Page>>) {
    if pending.is_empty() {
        return;
    }
    let count = if pending.len() <= MOST { 1 } else { pending.len().div_ceil(FILL) };
    let size = pending.len().div_ceil(count);
    pages.extend(pending.chunks(size).map(|rows| Arc::new(Page::new(rows))));
    pending.clear();
}

/// Shards by number, the other way round.
#[derive(Default)]
struct Shards {
    names: Vec<ShardId>,
    numbers: HashMap<ShardId, ShardIndex>,
}

impl From<&[ShardId]> for Shards {
    fn from(names: &[ShardId]) -> Self {
        let numbers = names.iter().cloned().zip(0..).collect();
        Self { names: names.to_vec(), numbers }
    }
}

impl Shards {
    fn number(&mut self, shard: &ShardId) -> Result<ShardIndex, Inconsistent> {
        if let Some(number) = self.numbers.get(shard) {
            return Ok(*number);
        }
        let number = ShardIndex::try_from(self.names.len())
            .map_err(|_| Inconsistent::new("chunks of more than 65,536 shards"))?;
        self.names.push(shard.clone());
        self.numbers.insert(shard.clone(), number);
        Ok(number)
    }

    fn row<'k>(&mut self, chunk: &'k ChunkEntry) -> Result<Row<'k>, Inconsistent> {
        let history = chunk.history.iter().map(|(time, shard)| Ok((*time, self.number(shard)?)));
        Ok(Row {
            min: chunk.min.as_doc(),
            history: history.collect::<Result<_, Inconsistent>>()?,
            shard: self.number(&chunk.shard)?,
            version: chunk.version,
        })
    }
}
