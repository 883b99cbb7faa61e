//! The map against a plain sorted list of chunks.

use document::{DocBuf, Timestamp};
use proptest::prelude::*;
use shard_key::{KeyRange, KeyRanges, ShardKey};
use smallvec::smallvec;

use super::{ChunkMap, StaleChunkHistory};
use crate::ids::ShardId;
use crate::metadata::ChunkEntry;

/// The naive map: (lower bound, owner, version), bounds as numbers between two infinities.
type Naive = Vec<(i64, u32, u64)>;

const LOWEST: i64 = i64::MIN;

fn key(bound: i64) -> ShardKey {
    let mut doc = DocBuf::new();
    if bound == LOWEST {
        doc.append("", document::Value::MinKey);
    } else {
        doc.append("", bound);
    }
    ShardKey::from_values_of(doc.as_doc())
}

fn highest() -> ShardKey {
    let mut doc = DocBuf::new();
    doc.append("", document::Value::MaxKey);
    ShardKey::from_values_of(doc.as_doc())
}

fn shard(number: u32) -> ShardId {
    ShardId::new(&format!("sh{number}"))
}

fn entry(naive: &Naive, index: usize) -> ChunkEntry {
    let (min, owner, version) = naive[index];
    let max = naive.get(index + 1).map_or_else(highest, |(max, _, _)| key(*max));
    let version = Timestamp::from_u64(version);
    ChunkEntry {
        min: key(min),
        max,
        shard: shard(owner),
        version,
        history: smallvec![(version, shard(owner))],
    }
}

fn entries(naive: &Naive) -> Vec<ChunkEntry> {
    (0..naive.len()).map(|index| entry(naive, index)).collect()
}

/// Everything that can be read of a map.
fn dump(map: &ChunkMap) -> Vec<String> {
    map.iter()
        .map(|c| {
            format!("{:?} {} {:?} {:?}", c.min(), c.shard(), c.version(), c.history().collect::<Vec<_>>())
        })
        .collect()
}

fn assert_same(map: &ChunkMap, naive: &Naive) {
    let full = ChunkMap::full(entries(naive)).unwrap();
    assert_eq!(map.len(), naive.len());
    assert_eq!(dump(map), dump(&full));
    assert_eq!(map.version(), full.version());
    assert_eq!(map.version().as_u64(), naive.iter().map(|c| c.2).max().unwrap());
    assert_eq!(map.owner_count(), full.owner_count());
    for number in 0..6 {
        let expected = naive.iter().filter(|c| c.1 == number).map(|c| c.2).max();
        assert_eq!(map.shard_version(&shard(number)).map(Timestamp::as_u64), expected);
    }
    let pages: Vec<usize> = map.pages.iter().map(|page| page.len()).collect();
    assert!(pages.iter().all(|&rows| rows > 0 && rows <= super::build::MOST), "{pages:?}");
}

fn owner(naive: &Naive, at: i64) -> u32 {
    naive.iter().rev().find(|(min, _, _)| *min <= at).unwrap().1
}

fn owners(naive: &Naive, low: i64, high: i64) -> Vec<ShardId> {
    let mut found: Vec<ShardId> = naive
        .iter()
        .enumerate()
        .filter(|(index, (min, _, _))| *min <= high && naive.get(index + 1).is_none_or(|next| next.0 > low))
        .map(|(_, (_, owner, _))| shard(*owner))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// What happens to chunks between two refreshes.
#[derive(Debug, Clone)]
enum Step {
    Split { at: i64 },
    Merge { at: i64, count: usize },
    Move { at: i64, to: u32 },
}

fn step(span: i64) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..span).prop_map(|at| Step::Split { at }),
        1 => (0..span, 2..6usize).prop_map(|(at, count)| Step::Merge { at, count }),
        1 => (0..span, 50..400usize).prop_map(|(at, count)| Step::Merge { at, count }),
        3 => (0..span, 0..6u32).prop_map(|(at, to)| Step::Move { at, to }),
    ]
}

/// Does it to the naive map, and gives the lower bounds of the chunks that are new or changed.
fn apply(naive: &mut Naive, step: &Step) -> Vec<i64> {
    let next = |naive: &Naive| Timestamp::from_u64(naive.iter().map(|c| c.2).max().unwrap());
    let index_of = |naive: &Naive, at: i64| naive.iter().rposition(|(min, _, _)| *min <= at).unwrap();
    let version = next(naive);
    let minor = |n: u32| Timestamp::new(version.seconds, version.increment + n).as_u64();
    match *step {
        Step::Split { at } => {
            let index = index_of(naive, at);
            let (min, owner, _) = naive[index];
            if min == at {
                return vec![];
            }
            naive[index].2 = minor(1);
            naive.insert(index + 1, (at, owner, minor(2)));
            vec![min, at]
        }
        Step::Merge { at, count } => {
            let index = index_of(naive, at);
            let end = (index + count).min(naive.len());
            naive[index].2 = minor(1);
            naive.drain(index + 1..end);
            vec![naive[index].0]
        }
        Step::Move { at, to } => {
            let index = index_of(naive, at);
            naive[index] = (naive[index].0, to, Timestamp::new(version.seconds + 1, 0).as_u64());
            vec![naive[index].0]
        }
    }
}

fn start(count: i64) -> Naive {
    let bounds = std::iter::once(LOWEST).chain((1..count).map(|n| n * 10));
    bounds.zip(1..).map(|(min, n)| (min, u32::try_from(n % 4).unwrap(), (1 << 32) | n)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn refreshes_give_what_a_full_load_gives(
        count in prop_oneof![1i64..20, 100i64..900],
        rounds in proptest::collection::vec(proptest::collection::vec(step(9000), 1..12), 1..6),
    ) {
        let mut naive = start(count);
        let mut map = ChunkMap::full(entries(&naive)).unwrap();
        for steps in &rounds {
            let known = map.version();
            for step in steps {
                apply(&mut naive, step);
            }
            // As the config servers answer: what is at least as new as what is known.
            let mut changes: Vec<ChunkEntry> =
                entries(&naive).into_iter().filter(|chunk| chunk.version >= known).collect();
            changes.reverse();
            map = map.updated(changes).unwrap();
            assert_same(&map, &naive);
        }
    }

    #[test]
    fn look_ups_find_what_a_scan_finds(
        count in prop_oneof![1i64..6, 100i64..700],
        steps in proptest::collection::vec(step(7000), 0..40),
        points in proptest::collection::vec((-20i64..7100, 0i64..600), 1..20),
    ) {
        let mut naive = start(count);
        for step in &steps {
            apply(&mut naive, step);
        }
        let map = ChunkMap::full(entries(&naive)).unwrap();
        for (low, width) in &points {
            let found = map.find(&key(*low)).unwrap();
            prop_assert_eq!(found.shard(), &shard(owner(&naive, *low)));
            prop_assert_eq!(Some(found.shard_version()), map.shard_version(found.shard()));
            let range = KeyRange { min: key(*low), max: key(low + width) };
            let expected = owners(&naive, *low, low + width);
            prop_assert_eq!(map.shards_of(&KeyRanges::Ranges(vec![range])).to_vec(), expected);
        }
        let mut points = points.clone();
        points.sort_unstable();
        let ranges = points.iter().map(|(low, width)| KeyRange { min: key(*low), max: key(low + width) });
        let ranges = KeyRanges::Ranges(ranges.collect());
        let mut expected: Vec<ShardId> =
            points.iter().flat_map(|(low, width)| owners(&naive, *low, low + width)).collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(map.shards_of(&ranges).to_vec(), expected.clone());
        prop_assert_eq!(map.shards_of_at(&ranges, Timestamp::new(u32::MAX, 0)).unwrap().to_vec(), expected);
        let chunks = map.chunks_of(&ranges);
        let bounds: Vec<_> = chunks.iter().map(|c| ShardKey::from_values_of(c.min())).collect();
        prop_assert!(bounds.windows(2).all(|pair| pair[0].order(&pair[1]).is_lt()));
    }

    /// Take any chunk away from a refresh that changes several neighbours, and there is a gap.
    #[test]
    fn holes_are_refused(count in 3i64..400, victim in any::<prop::sample::Index>()) {
        let naive = start(count);
        let mut chunks = entries(&naive);
        chunks.remove(victim.index(chunks.len()));
        prop_assert!(ChunkMap::full(chunks.clone()).is_err());
        // All others of two split chunks over the old map.
        let map = ChunkMap::full(entries(&naive)).unwrap();
        let mut next = naive.clone();
        let mut fresh = apply(&mut next, &Step::Split { at: 15 });
        fresh.extend(apply(&mut next, &Step::Split { at: 17 }));
        let mut changes: Vec<ChunkEntry> =
            entries(&next).into_iter().filter(|c| fresh.iter().any(|min| c.min.order(&key(*min)).is_eq())).collect();
        prop_assert!(map.updated(changes.clone()).is_ok());
        changes.remove(victim.index(changes.len()));
        prop_assert!(map.updated(changes).is_err());
    }
}

#[test]
fn a_refresh_copies_the_page_that_changed() {
    let mut naive = start(20_000);
    let map = ChunkMap::full(entries(&naive)).unwrap();
    let fresh = apply(&mut naive, &Step::Split { at: 100_005 });
    let changes =
        entries(&naive).into_iter().filter(|c| fresh.iter().any(|min| c.min.order(&key(*min)).is_eq()));
    let next = map.updated(changes.collect()).unwrap();
    assert_same(&next, &naive);
    let (shared, pages) = next.shared_pages(&map);
    assert_eq!(shared + 1, pages);
    assert!(pages > 100);
    // The old snapshot is what it was.
    assert_eq!(map.len(), 20_000);
}

#[test]
fn the_ends_of_the_key_space() {
    let map = ChunkMap::full(entries(&start(300))).unwrap();
    assert!(map.find(&highest()).is_none());
    assert_eq!(map.find(&key(LOWEST)).unwrap().min(), map.first().min());
    assert_eq!(map.first().shard(), &shard(1));
    // Somebody has to answer.
    assert_eq!(map.shards_of(&KeyRanges::Empty).to_vec(), [shard(1)]);
    assert_eq!(map.shards_of(&KeyRanges::Key(highest())).to_vec(), [shard(1)]);
    let nothing = KeyRange { min: highest(), max: highest() };
    assert_eq!(map.shards_of(&KeyRanges::Ranges(vec![nothing])).to_vec(), [shard(1)]);
    assert_eq!(map.shards_of(&KeyRanges::All).len(), 4);
    let last = map.iter().last().unwrap();
    assert_eq!(last.max(), None);
    assert_eq!(map.iter().count(), 300);
}

#[test]
fn chunks_that_cannot_be_a_map() {
    let naive = start(5);
    let reason = |chunks| ChunkMap::full(chunks).unwrap_err().reason;
    assert!(reason(vec![]).contains("No chunks were found"));
    let mut low = entries(&naive);
    low.remove(0);
    assert!(reason(low).contains("MinKey"));
    let mut high = entries(&naive);
    high.pop();
    assert!(reason(high).contains("MaxKey"));
    let mut overlapping = entries(&naive);
    overlapping[1].max = key(25);
    assert!(reason(overlapping).contains("Overlap exists"));
    let mut gap = entries(&naive);
    gap[1].max = key(15);
    assert!(reason(gap).contains("Gap exists"));
    let mut backwards = entries(&naive);
    backwards[1].max = key(5);
    assert!(reason(backwards).contains("ends before it starts"));
    let mut twice = entries(&naive);
    twice.push(twice[2].clone());
    assert!(reason(twice).contains("Overlap exists"));
}

#[test]
fn owners_at_a_cluster_time() {
    let mut chunks = entries(&start(1));
    let at = |n| Timestamp::new(n, 0);
    chunks[0].history = smallvec![(at(30), shard(2)), (at(20), shard(1)), (at(10), shard(0))];
    chunks[0].shard = shard(2);
    let map = ChunkMap::full(chunks.clone()).unwrap();
    let owner_at = |n| map.first().owner_at(at(n)).map(|shard| shard.as_str().to_owned());
    assert_eq!(owner_at(40).unwrap(), "sh2");
    assert_eq!(owner_at(30).unwrap(), "sh2");
    assert_eq!(owner_at(29).unwrap(), "sh1");
    assert_eq!(owner_at(10).unwrap(), "sh0");
    assert_eq!(owner_at(9), Err(StaleChunkHistory { at: at(9) }));
    assert_eq!(StaleChunkHistory { at: at(9) }.code(), 250);
    assert!(map.shards_of_at(&KeyRanges::All, at(9)).is_err());
    assert_eq!([0, 1, 2].map(|number| map.last_arrival(&shard(number))), [at(0), at(0), at(30)]);
    // A shard that owns nothing any more is known by name, but is no owner.
    assert_eq!(map.shard_version(&shard(0)), None);
    assert_eq!(map.shards_of(&KeyRanges::All).to_vec(), [shard(2)]);
    chunks[0].history.clear();
    let map = ChunkMap::full(chunks).unwrap();
    assert_eq!(map.first().owner_at(at(1)).unwrap(), &shard(2));
}
