//! Documents of the config database, parsed. Fields that do not bear on routing are left in the raw document.

use std::sync::Arc;

use document::{Doc, DocBuf, Timestamp, Value};
use shard_key::{KeyPattern, ShardKey};
use smallvec::SmallVec;

use crate::error::MetadataError;
use crate::ids::{DatabaseName, Namespace, ShardId};
use crate::version::{DatabaseVersion, ObjectId, Uuid};

/// A document of config.databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseEntry {
    /// Its name.
    pub name: DatabaseName,
    /// The shard of its unsharded collections.
    pub primary: ShardId,
    /// Sent along with requests for unsharded collections; none for `admin` and `config`.
    pub version: Option<DatabaseVersion>,
}

/// A document of config.shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEntry {
    /// Its name in the cluster.
    pub id: ShardId,
    /// `set/host:port,host:port`, as it is stored.
    pub host: Box<str>,
    /// The name of its replica set, which need not be the id.
    pub set_name: Box<str>,
    /// Its members as `host:port`.
    pub hosts: Vec<Box<str>>,
    /// Is it being removed?
    pub draining: bool,
    /// When it was added; the highest of all is the cluster's topology time.
    pub topology_time: Timestamp,
    /// The whole document, for listShards.
    pub raw: DocBuf,
}

/// A document of config.collections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionEntry {
    /// Its name.
    pub ns: Namespace,
    /// Its identity on the shards and in config.chunks.
    pub uuid: Uuid,
    /// Identity of the incarnation.
    pub epoch: ObjectId,
    /// Identity of the incarnation.
    pub timestamp: Timestamp,
    /// The shard key.
    pub key: KeyPattern,
    /// Only for reports.
    pub unique: bool,
    /// How its strings compare unless a request says otherwise; none is simple.
    pub default_collation: Option<DocBuf>,
    /// `timeseriesFields` of a buckets collection.
    pub timeseries: Option<DocBuf>,
}

/// A document of config.chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Its lowest key.
    pub min: ShardKey,
    /// The first key behind it.
    pub max: ShardKey,
    /// Its owner.
    pub shard: ShardId,
    /// Its version (major, minor).
    pub version: Timestamp,
    /// Since when who owned it, newest first.
    pub history: SmallVec<[(Timestamp, ShardId); 1]>,
}

/// What a refresh of a collection brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionChanges {
    /// The collection.
    pub entry: CollectionEntry,
    /// Chunks in no particular order.
    pub chunks: Vec<ChunkEntry>,
}

/// Reads fields of one document; its errors name the collection and the field.
#[derive(Clone, Copy)]
struct Reader<'a> {
    collection: &'static str,
    doc: Doc<'a>,
}

impl<'a> Reader<'a> {
    fn error(&self, reason: &str) -> MetadataError {
        let id = self.doc.get("_id").map_or_else(String::new, |id| format!(" in {id:?}"));
        MetadataError { collection: self.collection, reason: format!("{reason}{id}").into() }
    }

    fn field<T>(&self, name: &str, read: impl FnOnce(Value<'a>) -> Option<T>) -> Result<T, MetadataError> {
        self.doc
            .get(name)
            .and_then(read)
            .ok_or_else(|| self.error(&format!("field '{name}' is missing or malformed")))
    }

    fn str(&self, name: &str) -> Result<&'a str, MetadataError> {
        self.field(name, Value::as_str)
    }

    fn uuid(&self, name: &str) -> Result<Uuid, MetadataError> {
        self.field(name, |value| match value {
            Value::Binary { subtype: 4, bytes } => bytes.try_into().ok(),
            _ => None,
        })
    }
}

/// Parses a document of config.databases.
pub fn parse_database(doc: Doc<'_>) -> Result<DatabaseEntry, MetadataError> {
    let reader = Reader { collection: "databases", doc };
    Ok(DatabaseEntry {
        name: reader.str("_id")?.into(),
        primary: reader.str("primary")?.into(),
        version: Some(reader.field("version", |version| DatabaseVersion::parse(version.as_doc()?))?),
    })
}

/// Parses a document of config.shards.
pub fn parse_shard(doc: Doc<'_>) -> Result<ShardEntry, MetadataError> {
    let reader = Reader { collection: "shards", doc };
    let host = reader.str("host")?;
    let (set_name, hosts) =
        host.split_once('/').ok_or_else(|| reader.error("field 'host' names no replica set"))?;
    let hosts: Vec<Box<str>> = hosts.split(',').filter(|host| !host.is_empty()).map(Into::into).collect();
    if set_name.is_empty() || hosts.is_empty() {
        return Err(reader.error("field 'host' names no replica set or no member"));
    }
    Ok(ShardEntry {
        id: reader.str("_id")?.into(),
        host: host.into(),
        set_name: set_name.into(),
        hosts,
        draining: doc.get("draining").is_some_and(Value::is_truthy),
        topology_time: doc.get("topologyTime").and_then(Value::as_timestamp).unwrap_or_default(),
        raw: doc.into(),
    })
}

/// Parses a document of config.collections; `None` for one that was dropped (left over by 4.4 and 5.0).
pub fn parse_collection(doc: Doc<'_>) -> Result<Option<CollectionEntry>, MetadataError> {
    let reader = Reader { collection: "collections", doc };
    if doc.get("dropped").is_some_and(Value::is_truthy) {
        return Ok(None);
    }
    let key = reader.field("key", Value::as_doc)?;
    Ok(Some(CollectionEntry {
        ns: reader.field("_id", |id| Namespace::parse(id.as_str()?))?,
        uuid: reader.uuid("uuid")?,
        epoch: reader.field("lastmodEpoch", object_id)?,
        timestamp: reader.field("timestamp", Value::as_timestamp)?,
        key: KeyPattern::parse(key).map_err(|error| reader.error(&error.to_string()))?,
        unique: doc.get("unique").is_some_and(Value::is_truthy),
        default_collation: doc.get_doc("defaultCollation").filter(|doc| !doc.is_empty()).map(Into::into),
        timeseries: doc.get_doc("timeseriesFields").map(Into::into),
    }))
}

const fn object_id(value: Value<'_>) -> Option<ObjectId> {
    match value {
        Value::ObjectId(id) => Some(id),
        _ => None,
    }
}

/// Collects the documents of one refresh: `{chunks: <chunk>}` and the collection's own, in any order, as the
/// aggregation of 6.0 gives them.
#[derive(Debug, Default)]
pub struct CollectionChangesBuilder {
    entry: Option<CollectionEntry>,
    dropped: bool,
    chunks: Vec<(Uuid, ChunkEntry)>,
    /// Names of shards that were met, so that 200,000 chunks share a few.
    shards: Vec<ShardId>,
}

impl CollectionChangesBuilder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one document of the aggregation.
    pub fn push(&mut self, doc: Doc<'_>) -> Result<(), MetadataError> {
        match doc.get_doc("chunks") {
            Some(chunk) => self.push_chunk(chunk),
            None => self.push_collection(doc),
        }
    }

    /// Takes the document of config.collections.
    pub fn push_collection(&mut self, doc: Doc<'_>) -> Result<(), MetadataError> {
        self.entry = parse_collection(doc)?;
        self.dropped = self.entry.is_none();
        Ok(())
    }

    /// Takes a document of config.chunks.
    pub fn push_chunk(&mut self, doc: Doc<'_>) -> Result<(), MetadataError> {
        let reader = Reader { collection: "chunks", doc };
        let mut history = SmallVec::new();
        for entry in doc.get_array("history").into_iter().flatten() {
            let entry = Reader { collection: "chunks", doc: reader.as_doc(entry.value())? };
            let shard = self.shard(entry.str("shard")?);
            history.push((entry.field("validAfter", Value::as_timestamp)?, shard));
        }
        let chunk = ChunkEntry {
            min: ShardKey::from_values_of(reader.field("min", Value::as_doc)?),
            max: ShardKey::from_values_of(reader.field("max", Value::as_doc)?),
            shard: self.shard(reader.str("shard")?),
            version: reader.field("lastmod", Value::as_timestamp)?,
            history,
        };
        self.chunks.push((reader.uuid("uuid")?, chunk));
        Ok(())
    }

    fn shard(&mut self, name: &str) -> ShardId {
        if let Some(known) = self.shards.iter().find(|known| known.as_str() == name) {
            return known.clone();
        }
        let shard = ShardId::new(name);
        self.shards.push(shard.clone());
        shard
    }

    /// Everything was taken; `None` if the collection is not sharded.
    pub fn finish(self) -> Result<Option<CollectionChanges>, MetadataError> {
        let error = |reason: &str| MetadataError { collection: "chunks", reason: Arc::from(reason) };
        let Some(entry) = self.entry else {
            return if self.chunks.is_empty() || self.dropped {
                Ok(None)
            } else {
                Err(error("chunks without their collection"))
            };
        };
        let fields = entry.key.fields().len();
        let fits = |key: &ShardKey| key.values().count() == fields;
        let mut chunks = Vec::with_capacity(self.chunks.len());
        for (uuid, chunk) in self.chunks {
            if uuid != entry.uuid {
                return Err(error("a chunk of another collection"));
            }
            if !fits(&chunk.min) || !fits(&chunk.max) {
                return Err(error("a chunk whose bounds do not fit the shard key"));
            }
            chunks.push(chunk);
        }
        Ok(Some(CollectionChanges { entry, chunks }))
    }
}

impl<'a> Reader<'a> {
    fn as_doc(&self, value: Value<'a>) -> Result<Doc<'a>, MetadataError> {
        value.as_doc().ok_or_else(|| self.error("a history entry is no document"))
    }
}

#[cfg(test)]
mod tests;
