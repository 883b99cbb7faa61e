//! Logical sessions: what a session is called towards shards, and which are known here.
//!
//! - [`registry`]: the sessions that commands named lately.
//! - [`refresh`]: telling the cluster that they live, and learning which do not.

mod refresh;
mod registry;

pub use registry::Registry;

use bytes::BytesMut;
use document::{Doc, DocBuf, Value, splice};

/// The user digest of a session when no one is authenticated: SHA-256 of the empty string (seen on 6.0.5).
pub const ANONYMOUS_DIGEST: &[u8; 32] = &[
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// A session's id; the user's digest follows from who is authenticated (no one, until authentication is built).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// From a client's `lsid`, which the request parser checked.
    #[must_use]
    pub fn from_lsid(lsid: Doc<'_>) -> Option<Self> {
        match lsid.get("id") {
            Some(Value::Binary { subtype: 4, bytes }) => bytes.try_into().ok().map(Self),
            _ => None,
        }
    }

    /// `{id, uid}`
    #[must_use]
    pub fn to_doc(&self) -> DocBuf {
        let mut lsid = DocBuf::new();
        lsid.append("id", Value::Binary { subtype: 4, bytes: &self.0 })
            .append("uid", Value::Binary { subtype: 0, bytes: ANONYMOUS_DIGEST });
        lsid
    }

    /// Writes `lsid: {id, uid}`. The digest goes along since a shard would otherwise take the router's own user.
    pub fn write(&self, out: &mut BytesMut) {
        let lsid = splice::open_doc(out, "lsid");
        self.write_fields(out);
        lsid.finish(out);
    }

    /// Writes `id, uid`.
    pub fn write_fields(&self, out: &mut BytesMut) {
        splice::put_element(out, 0x05, "id", &[16, 0, 0, 0, 4]);
        out.extend_from_slice(&self.0);
        splice::put_element(out, 0x05, "uid", &[32, 0, 0, 0, 0]);
        out.extend_from_slice(ANONYMOUS_DIGEST);
    }
}

/// `<uuid> - <digest> -  - `, as the server prints a session in its errors.
impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        f.write_str(" - ")?;
        for byte in ANONYMOUS_DIGEST {
            write!(f, "{byte:02X}")?;
        }
        f.write_str(" -  - ")
    }
}
