//! Metadata as the routing table wants it: read from the config servers, each read at least as new as what is known.

use std::sync::Arc;

use chunk_map::{
    CollectionChanges, CollectionChangesBuilder, ConfigSource, DatabaseEntry, Known, Namespace, ShardEntry,
    SourceError, metadata,
};
use document::{DocBuf, Value};
use topology::ReadPreference;

use super::config::{Concern, ConfigFind};
use super::servers::Servers;
use crate::error::CommandError;

/// The config servers as a source of routing metadata.
#[derive(Debug, Clone)]
pub struct ConfigServers(pub Arc<Servers>);

impl ConfigSource for ConfigServers {
    async fn database(&self, name: &str) -> Result<Option<DatabaseEntry>, SourceError> {
        let find = |preference| ConfigFind {
            collection: "databases",
            filter: by_id(name),
            sort: None,
            concern: Concern::Majority,
            preference,
        };
        // A database that was created a moment ago may be missing on the nearest member.
        for preference in [ReadPreference::NEAREST, ReadPreference::PRIMARY] {
            let found = self.0.config_find(&find(preference)).await.map_err(failed)?;
            if let Some(doc) = found.documents.first() {
                return metadata::parse_database(doc.as_doc()).map(Some).map_err(malformed);
            }
        }
        Ok(None)
    }

    async fn collection(
        &self,
        ns: &Namespace,
        since: Option<Known>,
    ) -> Result<Option<CollectionChanges>, SourceError> {
        let found = self
            .0
            .config_find(&ConfigFind {
                collection: "collections",
                filter: by_id(ns.as_str()),
                sort: None,
                concern: Concern::Snapshot,
                preference: ReadPreference::NEAREST,
            })
            .await
            .map_err(failed)?;
        let Some(doc) = found.documents.first() else { return Ok(None) };
        let mut changes = CollectionChangesBuilder::new();
        changes.push_collection(doc.as_doc()).map_err(malformed)?;
        let Some(entry) = metadata::parse_collection(doc.as_doc()).map_err(malformed)? else {
            return Ok(None);
        };
        let mut filter = DocBuf::new();
        filter.append("uuid", Value::Binary { subtype: 4, bytes: &entry.uuid });
        if let Some(known) = since
            && known.epoch == entry.epoch
            && known.timestamp == entry.timestamp
        {
            filter.append_doc("lastmod", |w| w.put("$gte", known.version));
        }
        let mut sort = DocBuf::new();
        sort.append("lastmod", 1);
        let chunks = self
            .0
            .config_find(&ConfigFind {
                collection: "chunks",
                filter,
                sort: Some(sort),
                // The same point in time as the collection's document.
                concern: found.at.map_or(Concern::Snapshot, Concern::SnapshotAt),
                preference: ReadPreference::NEAREST,
            })
            .await
            .map_err(failed)?;
        for chunk in &chunks.documents {
            changes.push_chunk(chunk.as_doc()).map_err(malformed)?;
        }
        changes.finish().map_err(malformed)
    }

    async fn shards(&self) -> Result<Vec<ShardEntry>, SourceError> {
        let find = ConfigFind {
            collection: "shards",
            filter: DocBuf::new(),
            sort: None,
            concern: Concern::Majority,
            preference: ReadPreference::NEAREST,
        };
        let found = self.0.config_find(&find).await.map_err(failed)?;
        found.documents.iter().map(|doc| metadata::parse_shard(doc.as_doc()).map_err(malformed)).collect()
    }
}

fn by_id(id: &str) -> DocBuf {
    let mut filter = DocBuf::new();
    filter.append("_id", id);
    filter
}

fn failed(error: CommandError) -> SourceError {
    SourceError::caused_by(error.code().0, error)
}

fn malformed(error: chunk_map::MetadataError) -> SourceError {
    SourceError::caused_by(crate::ErrorCode::InternalError.0, error)
}
