//! Collections made of a key, bounds and shard numbers, for tests of targeting.
#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use bson::{Bson, Document};
use chunk_map::{ChunkEntry, CollectionChanges, CollectionEntry, CollectionRouting, Namespace, ShardId};
use document::{Doc, DocBuf, Timestamp, Value};
use shard_key::{KeyPattern, ShardKey};
use smallvec::smallvec;

pub fn raw(document: &Document) -> DocBuf {
    let bytes = document.to_vec().unwrap();
    Doc::validate(&bytes).unwrap().into()
}

pub fn key(bound: &Document) -> ShardKey {
    ShardKey::from_values_of(raw(bound).as_doc())
}

pub fn shard(number: u32) -> ShardId {
    ShardId::new(&format!("sh{number}"))
}

pub fn hashed(value: impl Into<Bson>) -> i64 {
    let document = raw(&bson::doc! {"v": value.into()});
    shard_key::hash::hash_value(document.as_doc().get("v").unwrap())
}

pub fn chunk(min: ShardKey, max: ShardKey, owner: u32, version: Timestamp) -> ChunkEntry {
    let history = smallvec![(version, shard(owner))];
    ChunkEntry { min, max, shard: shard(owner), version, history }
}

/// A sharded collection.
pub struct Collection {
    changes: CollectionChanges,
    pub routing: CollectionRouting,
}

impl Collection {
    /// Chunks start at these bounds and end at the next.
    pub fn new(pattern: &Document, chunks: &[(Document, u32)]) -> Self {
        let pattern = KeyPattern::parse(raw(pattern).as_doc()).unwrap();
        let ends = chunks.iter().skip(1).map(|(bound, _)| key(bound)).chain([pattern.global_max()]);
        let chunks = chunks
            .iter()
            .zip(ends)
            .zip(1..)
            .map(|(((min, owner), max), minor)| chunk(key(min), max, *owner, Timestamp::new(1, minor)));
        let changes = CollectionChanges {
            entry: CollectionEntry {
                ns: Namespace::new("t1", "r"),
                uuid: [1; 16],
                epoch: [2; 12],
                timestamp: Timestamp::new(3, 4),
                key: pattern,
                unique: false,
                default_collation: None,
                timeseries: None,
            },
            chunks: chunks.collect(),
        };
        Self { routing: CollectionRouting::full(changes.clone()).unwrap(), changes }
    }

    pub fn with_default_collation(mut self, collation: &Document) -> Self {
        self.changes.entry.default_collation = Some(raw(collation));
        Self { routing: CollectionRouting::full(self.changes.clone()).unwrap(), changes: self.changes }
    }

    /// Numbers of the shards that a filter concerns.
    pub fn target(&self, filter: &Document, collation: Option<&Document>) -> Vec<u32> {
        let filter = raw(filter);
        let collation = collation.map(raw);
        let shards =
            self.routing.target_filter(filter.as_doc(), collation.as_ref().map(DocBuf::as_doc)).unwrap();
        shards.iter().map(number).collect()
    }

    /// Number of the shard that a document belongs to.
    pub fn owner(&self, document: &Document) -> Option<u32> {
        let key = self.routing.key.key_from_document(raw(document).as_doc()).unwrap();
        self.routing.target_key(&key).map(|target| number(&target.shard))
    }

    pub fn owner_of_hash(&self, hash: i64) -> Option<u32> {
        let mut key = DocBuf::new();
        key.append("", Value::Int64(hash));
        let key = ShardKey::from_values_of(key.as_doc());
        self.routing.target_key(&key).map(|target| number(&target.shard))
    }
}

pub fn number(shard: &ShardId) -> u32 {
    shard.as_str().strip_prefix("sh").unwrap().parse().unwrap()
}
