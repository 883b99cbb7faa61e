//! What 200,000 chunks cost, as the allocator counts it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod common;

use chunk_map::{ChunkEntry, ChunkMap};
use common::{chunk, shard};
use document::{DocBuf, Timestamp, Value};
use shard_key::ShardKey;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const CHUNKS: u32 = 200_000;

fn key(number: u32) -> ShardKey {
    let mut id = [0x5A; 12];
    id[..4].copy_from_slice(&number.to_be_bytes());
    let mut doc = DocBuf::new();
    doc.append(
        "_id",
        match number {
            0 => Value::MinKey,
            CHUNKS => Value::MaxKey,
            _ => Value::ObjectId(id),
        },
    );
    ShardKey::from_values_of(doc.as_doc())
}

fn entry(number: u32, version: u32) -> ChunkEntry {
    chunk(key(number), key(number + 1), number % 10, Timestamp::new(1, version))
}

/// At most 120 bytes a chunk with an ObjectId key and one history entry, and a refresh of one chunk copies a page and
/// the table of pages.
#[test]
fn chunks_of_object_ids() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let entries: Vec<ChunkEntry> = (0..CHUNKS).map(|number| entry(number, 1)).collect();
    let before = dhat::HeapStats::get().curr_bytes;
    // A clone is consumed, so that what stays is the map.
    let map = ChunkMap::full(entries.clone()).unwrap();
    let bytes = dhat::HeapStats::get().curr_bytes - before;
    let per_chunk = bytes / usize::try_from(CHUNKS).unwrap();
    println!("{per_chunk} bytes a chunk");
    assert!(per_chunk <= 120, "{per_chunk} bytes a chunk");
    let own = map.heap_bytes();
    assert!(own.abs_diff(bytes) < bytes / 10, "heap_bytes says {own}, the allocator {bytes}");

    let before = dhat::HeapStats::get().curr_bytes;
    let next = map.updated(vec![entry(123_456, 2)]).unwrap();
    let bytes = dhat::HeapStats::get().curr_bytes - before;
    println!("{bytes} bytes a refresh of one chunk");
    assert!(bytes < 100_000, "{bytes}");
    assert_eq!(next.shard_version(&shard(6)), Some(Timestamp::new(1, 2)));
}
