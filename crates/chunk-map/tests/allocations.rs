//! Targeting by a full-key equality does not allocate, as long as the key is short.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod common;

use bson::{Bson, doc};
use common::{Collection, raw};
use document::DocBuf;
use shard_key::{Collation, KeyRanges};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[test]
fn point_reads() {
    let collection =
        Collection::new(&doc! {"_id": 1}, &[(doc! {"_id": Bson::MinKey}, 0), (doc! {"_id": 5}, 1)]);
    let routing = &collection.routing;
    let id = bson::oid::ObjectId::from_bytes([7; 12]);
    let filters: Vec<DocBuf> =
        [doc! {"_id": id}, doc! {"_id": 7}, doc! {"_id": {"$eq": "abc"}}].iter().map(raw).collect();
    let long = raw(&doc! {"_id": "x".repeat(200)});

    let profiler = dhat::Profiler::builder().testing().build();
    let blocks = || dhat::HeapStats::get().total_blocks;
    let before = blocks();
    for filter in &filters {
        let KeyRanges::Key(key) = routing.key.ranges(filter.as_doc(), Collation::Simple).unwrap() else {
            panic!("not one key")
        };
        let target = routing.target_key(&key).unwrap();
        assert_eq!(routing.chunks.find(&key).unwrap().shard(), &target.shard);
        assert_eq!(routing.target_filter(filter.as_doc(), None).unwrap().len(), 1);
    }
    assert_eq!(blocks() - before, 0, "allocations of short keys");
    let before = blocks();
    assert!(matches!(routing.key.ranges(long.as_doc(), Collation::Simple), Ok(KeyRanges::Key(_))));
    let after = blocks();
    drop(profiler);
    assert_eq!(after - before, 1, "allocations of a long key");
}
