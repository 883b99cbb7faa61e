//! What the clients do.

use bson::{RawDocumentBuf, rawdoc};

use crate::data::{DATABASE, DOCUMENTS, KEYED, SPREAD};
use crate::middle::Kind;

/// One kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// Answered by the router itself.
    Ping,
    /// One document by shard key.
    Find,
    /// One document inserted.
    Insert,
    /// One document updated by shard key.
    Update,
    /// A hundred documents of three shards, sorted by a field that is no shard key.
    Sorted,
}

/// Makes the body of the n-th request of a run.
pub(crate) type Requests = fn(n: u64, session: &[u8; 16]) -> RawDocumentBuf;

impl Scenario {
    pub(crate) const ALL: [Self; 5] = [Self::Ping, Self::Find, Self::Insert, Self::Update, Self::Sorted];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Find => "find",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Sorted => "sorted",
        }
    }

    /// The requests for this middle; `None` where the comparison makes no sense.
    pub(crate) fn requests(self, middle: Kind) -> Option<Requests> {
        Some(match (self, middle) {
            (Self::Ping, Kind::ServerRouting) | (Self::Sorted, Kind::Direct | Kind::Forwarder) => {
                return None;
            }
            (Self::Ping, _) => |_, session| rawdoc! { "ping": 1, "lsid": lsid(session), "$db": DATABASE },
            (Self::Find, Kind::ServerRouting) => |n, session| find("clusterFind", n, session),
            (Self::Find, _) => |n, session| find("find", n, session),
            (Self::Insert, Kind::ServerRouting) => |n, session| insert("clusterInsert", n, session),
            (Self::Insert, _) => |n, session| insert("insert", n, session),
            (Self::Update, Kind::ServerRouting) => |n, session| update("clusterUpdate", n, session),
            (Self::Update, _) => |n, session| update("update", n, session),
            (Self::Sorted, Kind::ServerRouting) => |n, session| sorted("clusterFind", n, session),
            (Self::Sorted, _) => |n, session| sorted("find", n, session),
        })
    }
}

fn lsid(session: &[u8; 16]) -> RawDocumentBuf {
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: session.to_vec() };
    rawdoc! { "id": id }
}

fn key(n: u64) -> i64 {
    let spread = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    i64::try_from(spread).unwrap_or(0) % DOCUMENTS
}

fn find(command: &str, n: u64, session: &[u8; 16]) -> RawDocumentBuf {
    let mut body = bson::RawDocumentBuf::new();
    append(&mut body, command, KEYED);
    extend(
        &mut body,
        &rawdoc! {
            "filter": { "k": key(n) }, "limit": 1, "singleBatch": true, "lsid": lsid(session), "$db": DATABASE,
        },
    );
    with_read_concern(body, command)
}

fn sorted(command: &str, n: u64, session: &[u8; 16]) -> RawDocumentBuf {
    let mut body = bson::RawDocumentBuf::new();
    append(&mut body, command, SPREAD);
    let from = key(n) % 100;
    extend(
        &mut body,
        &rawdoc! {
            "filter": { "k": { "$mod": [100_i64, from] } }, "sort": { "r": 1 }, "limit": 100, "batchSize": 100,
            "lsid": lsid(session), "$db": DATABASE,
        },
    );
    with_read_concern(body, command)
}

fn insert(command: &str, n: u64, session: &[u8; 16]) -> RawDocumentBuf {
    // Ids above those that were loaded; the session keeps runs apart.
    let k = DOCUMENTS + i64::try_from(n >> 1).unwrap_or(0);
    let id = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: session.to_vec() };
    let mut body = bson::RawDocumentBuf::new();
    append(&mut body, command, "inserted");
    extend(
        &mut body,
        &rawdoc! {
            "documents": [{ "_id": { "s": id, "n": k }, "k": k, "msg": "a line of a log, as they are" }],
            "writeConcern": { "w": 1 }, "lsid": lsid(session), "$db": DATABASE,
        },
    );
    body
}

fn update(command: &str, n: u64, session: &[u8; 16]) -> RawDocumentBuf {
    let mut body = bson::RawDocumentBuf::new();
    append(&mut body, command, KEYED);
    extend(
        &mut body,
        &rawdoc! {
            "updates": [{ "q": { "k": key(n) }, "u": { "$inc": { "count": 1 } } }],
            "writeConcern": { "w": 1 }, "lsid": lsid(session), "$db": DATABASE,
        },
    );
    body
}

/// `clusterFind` wants an explicit read concern from whoever sends it.
fn with_read_concern(mut body: RawDocumentBuf, command: &str) -> RawDocumentBuf {
    if command.starts_with("cluster") {
        extend(&mut body, &rawdoc! { "readConcern": {} });
    }
    body
}

fn append(body: &mut RawDocumentBuf, name: &str, value: &str) {
    let mut one = bson::Document::new();
    one.insert(name, value);
    if let Ok(bytes) = one.to_vec()
        && let Ok(raw) = RawDocumentBuf::from_bytes(bytes)
    {
        extend(body, &raw);
    }
}

fn extend(body: &mut RawDocumentBuf, more: &RawDocumentBuf) {
    let left = body.as_bytes();
    let right = more.as_bytes();
    let mut bytes = left.get(..left.len() - 1).unwrap_or_default().to_vec();
    bytes.extend_from_slice(right.get(4..).unwrap_or_default());
    let length = i32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
    bytes.splice(0..4, length);
    if let Ok(joined) = RawDocumentBuf::from_bytes(bytes) {
        *body = joined;
    }
}
