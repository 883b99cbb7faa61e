//! The routing table: which shard owns what, in which version, as the config servers say.
//!
//! ```text
//! config.databases, collections, chunks, shards ─(router fetches, metadata.rs parses)─► ConfigSource
//!     ─► CatalogCache: one slot a namespace, one refresh however many wait ─► Routing (a snapshot, an Arc)
//!     ─► ChunkMap: key or ranges ─► owning shards and the versions to send them
//! ```
//!
//! The crate does no I/O and spawns nothing: refreshes are driven by those who wait for them. It calls `shard-key`
//! and `document`; the router implements [`ConfigSource`] over its connections.
//!
//! Names to read first: [`CatalogCache`], [`CollectionRouting`], [`ChunkMap`], [`ConfigSource`].
//!
//! Limits: 10,000 databases and 10,000 collections are remembered; at most 120 bytes a chunk with an ObjectId key
//! and one history entry (see `tests/memory.rs`); a refresh copies the pages that changed and a table of pages.

mod cache;
mod chunks;
mod error;
mod ids;
pub mod metadata;
mod routing;
mod source;
mod version;

pub use cache::{CacheStatistics, CatalogCache, Routing, ShardList, ShardRegistry};
pub use chunks::{ChunkHistory, ChunkMap, ChunkRef, ShardSet, StaleChunkHistory};
pub use error::{CatalogError, Inconsistent, MetadataError, SourceError};
pub use ids::{DatabaseName, Namespace, ShardId};
pub use metadata::{
    ChunkEntry, CollectionChanges, CollectionChangesBuilder, CollectionEntry, DatabaseEntry, ShardEntry,
};
pub use routing::{CollectionRouting, Target};
pub use source::{ConfigSource, Known};
pub use version::{ChunkVersion, DatabaseVersion, ObjectId, Uuid};
