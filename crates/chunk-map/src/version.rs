//! Versions of chunks and databases, and their forms on the wire by server version.

use std::cmp::Ordering;

use document::{Doc, DocBuf, DocWriter, Timestamp, Value};

/// The bytes of an ObjectId.
pub type ObjectId = [u8; 12];
/// The bytes of a UUID.
pub type Uuid = [u8; 16];

/// The version of a chunk, of all chunks of a shard (the highest of them) or of a collection (the highest of all).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkVersion {
    /// Identifies the incarnation of the collection; what 6.0 shards compare.
    pub timestamp: Timestamp,
    /// The older identity of the incarnation; 6.0 shards do not compare it (seen on 6.0.5).
    pub epoch: ObjectId,
    /// Raised by migrations.
    pub major: u32,
    /// Raised by splits and merges.
    pub minor: u32,
}

impl ChunkVersion {
    /// "I believe that this collection is not sharded."
    pub const UNSHARDED: Self = Self { timestamp: Timestamp::new(0, 0), epoch: [0; 12], major: 0, minor: 0 };

    /// "Do not check": for writes that go to every shard. Reads refuse it (seen on 6.0.5: error 7032301).
    pub const IGNORED: Self = Self {
        timestamp: Timestamp::new(u32::MAX, u32::MAX),
        epoch: [0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        major: 0,
        minor: 0,
    };

    /// Major and minor as the Timestamp that config.chunks and the wire have.
    #[must_use]
    pub const fn placement(self) -> Timestamp {
        Timestamp::new(self.major, self.minor)
    }

    /// Has it neither major nor minor version?
    #[must_use]
    pub const fn is_unset(self) -> bool {
        self.major == 0 && self.minor == 0
    }

    /// Which of two versions is newer, when that can be told: not when one of them belongs to no incarnation or
    /// to a shard without chunks.
    #[must_use]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        let known = |v: Self| v.timestamp.as_u64() != 0 && !v.is_unset();
        if !known(self) || !known(other) {
            return None;
        }
        let parts = |v: Self| (v.timestamp, v.major, v.minor);
        Some(parts(self).cmp(&parts(other)))
    }

    /// The value of `shardVersion` from 6.0 on: the document `{e, t, v}`, 42 bytes.
    #[must_use]
    pub fn to_document(self) -> [u8; 42] {
        let mut bytes = [0; 42];
        let mut out = Out { bytes: &mut bytes, at: 0 };
        out.put(&42i32.to_le_bytes());
        out.put(b"\x07e\0");
        out.put(&self.epoch);
        out.put(b"\x11t\0");
        out.put(&self.timestamp.as_u64().to_le_bytes());
        out.put(b"\x11v\0");
        out.put(&self.placement().as_u64().to_le_bytes());
        bytes
    }

    /// Writes it in the form of 6.0 and later.
    pub fn write(self, w: &mut DocWriter<'_>, name: &str) {
        let bytes = self.to_document();
        if let Ok(doc) = Doc::new(&bytes) {
            w.put(name, doc);
        }
    }

    /// Writes it in the form of 5.0, an array; a 6.0.5 shard takes that one too.
    pub fn write_5_0(self, w: &mut DocWriter<'_>, name: &str) {
        let mut items = DocBuf::new();
        items.append("0", self.placement());
        items.append("1", Value::ObjectId(self.epoch));
        if self == Self::IGNORED {
            items.append("2", true);
        } else {
            items.append("2", self.timestamp);
        }
        w.value(name, Value::Array(items.as_doc()));
    }

    /// From either form, as `vWanted` and `vReceived` of errors have it.
    #[must_use]
    pub fn parse(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Document(doc) => {
                let Value::ObjectId(epoch) = doc.get("e")? else { return None };
                let placement = doc.get("v")?.as_timestamp()?;
                Some(Self::from_parts(doc.get("t")?.as_timestamp()?, epoch, placement))
            }
            Value::Array(items) => {
                let mut items = items.iter().map(document::Field::value);
                let placement = items.next()?.as_timestamp()?;
                let Value::ObjectId(epoch) = items.next()? else { return None };
                let mut rest = items.peekable();
                if rest.peek() == Some(&Value::Bool(true)) {
                    return (epoch == Self::IGNORED.epoch).then_some(Self::IGNORED);
                }
                let timestamp = rest.find_map(Value::as_timestamp).unwrap_or_default();
                Some(Self::from_parts(timestamp, epoch, placement))
            }
            _ => None,
        }
    }

    /// From the identity of an incarnation and a version inside of it.
    #[must_use]
    pub const fn from_parts(timestamp: Timestamp, epoch: ObjectId, placement: Timestamp) -> Self {
        Self { timestamp, epoch, major: placement.seconds, minor: placement.increment }
    }
}

impl std::fmt::Display for ChunkVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { timestamp, major, minor, .. } = self;
        write!(f, "{major}|{minor}||{}:{}", timestamp.seconds, timestamp.increment)
    }
}

/// The version of a database: which incarnation, and how often its primary moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatabaseVersion {
    /// Of the incarnation; not compared by 6.0 shards (seen on 6.0.5).
    pub uuid: Uuid,
    /// Of the incarnation.
    pub timestamp: Timestamp,
    /// One more at each movePrimary.
    pub last_mod: i32,
}

impl DatabaseVersion {
    /// From `version` of config.databases, or `vWanted` of an error.
    #[must_use]
    pub fn parse(doc: Doc<'_>) -> Option<Self> {
        let uuid = match doc.get("uuid") {
            Some(Value::Binary { subtype: 4, bytes }) => bytes.first_chunk().copied()?,
            // Said to be optional on the wire of 8.0.
            None => [0; 16],
            Some(_) => return None,
        };
        let timestamp = doc.get("timestamp").and_then(Value::as_timestamp).unwrap_or_default();
        let last_mod = i32::try_from(doc.get_i64("lastMod")?).ok()?;
        Some(Self { uuid, timestamp, last_mod })
    }

    /// The value of `databaseVersion`: the document `{uuid, timestamp, lastMod}`, 64 bytes.
    #[must_use]
    pub fn to_document(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut out = Out { bytes: &mut bytes, at: 0 };
        out.put(&64i32.to_le_bytes());
        out.put(b"\x05uuid\0\x10\0\0\0\x04");
        out.put(&self.uuid);
        out.put(b"\x11timestamp\0");
        out.put(&self.timestamp.as_u64().to_le_bytes());
        out.put(b"\x10lastMod\0");
        out.put(&self.last_mod.to_le_bytes());
        bytes
    }

    /// Writes it.
    pub fn write(self, w: &mut DocWriter<'_>, name: &str) {
        let bytes = self.to_document();
        if let Ok(doc) = Doc::new(&bytes) {
            w.put(name, doc);
        }
    }

    /// Is it at least as new as `other`?
    #[must_use]
    pub fn reaches(self, other: Self) -> bool {
        (self.timestamp, self.last_mod) >= (other.timestamp, other.last_mod)
    }
}

/// A cursor into a buffer of known size; what would not fit is left out, and the tests would see it.
struct Out<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl Out<'_> {
    fn put(&mut self, part: &[u8]) {
        if let Some(slot) = self.bytes.get_mut(self.at..self.at + part.len()) {
            slot.copy_from_slice(part);
        }
        self.at += part.len();
    }
}

#[cfg(test)]
mod tests;
