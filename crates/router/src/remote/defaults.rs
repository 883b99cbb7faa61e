//! The cluster's default read and write concern, as the config servers keep them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use document::{Doc, DocBuf, splice};

/// What is sent when a client says nothing.
#[derive(Debug)]
pub struct Defaults {
    current: ArcSwap<Concerns>,
}

#[derive(Debug)]
struct Concerns {
    /// `None`: the server's own default, local.
    read: Option<DocBuf>,
    write: DocBuf,
}

impl Default for Defaults {
    /// `w: "majority"` is what 5.0 and later imply when nobody set anything.
    fn default() -> Self {
        let mut write = DocBuf::new();
        write.append("w", "majority").append("wtimeout", 0).append("provenance", "implicitDefault");
        Self { current: ArcSwap::from_pointee(Concerns { read: None, write }) }
    }
}

impl Defaults {
    /// Takes over the reply of `getDefaultRWConcern`.
    pub fn update(&self, reply: Doc<'_>) {
        let explicit = |doc: Doc<'_>| {
            let mut concern = DocBuf::from(doc);
            concern.append("provenance", "customDefault");
            concern
        };
        let source = |name: &str| reply.get_str(name) == Some("global");
        let read = reply
            .get_doc("defaultReadConcern")
            .filter(|concern| !concern.is_empty() && source("defaultReadConcernSource"))
            .map(explicit);
        let write =
            reply.get_doc("defaultWriteConcern").filter(|concern| !concern.is_empty()).map(|concern| {
                if source("defaultWriteConcernSource") {
                    return explicit(concern);
                }
                let mut implied = DocBuf::from(concern);
                implied.append("provenance", "implicitDefault");
                implied
            });
        let implied = Self::default().current.load_full();
        let write = write.unwrap_or_else(|| implied.write.clone());
        self.current.store(Arc::new(Concerns { read, write }));
    }

    /// Writes `readConcern`; `unsharded`: for a collection that is not sharded.
    pub fn write_read_concern(&self, out: &mut BytesMut, unsharded: bool) {
        let current = self.current.load();
        put_read_concern(out, current.read.as_ref().map_or(Doc::empty(), DocBuf::as_doc), unsharded);
    }

    /// The read concern, empty when it is the server's own default.
    #[must_use]
    pub fn read_concern(&self) -> DocBuf {
        self.current.load().read.clone().unwrap_or_default()
    }

    /// The write concern.
    #[must_use]
    pub fn write_concern(&self) -> DocBuf {
        self.current.load().write.clone()
    }

    /// Writes the `w` of the default, for a concern that has none.
    pub fn write_w(&self, out: &mut BytesMut) {
        if let Some(field) = self.current.load().write.as_doc().field("w") {
            out.extend_from_slice(field.raw());
        }
    }

    /// Writes `writeConcern`.
    pub fn write_write_concern(&self, out: &mut BytesMut) {
        splice::put_doc(out, "writeConcern", self.current.load().write.as_doc());
    }
}

/// Writes a `readConcern`. Where nothing is sharded, `available` is `local`, and is sent as that: a shard that is asked for a
/// view at `available` does not say that the view reads a sharded collection, and tries by itself for ever (seen on 6.0.5).
pub(super) fn put_read_concern(out: &mut BytesMut, concern: Doc<'_>, unsharded: bool) {
    if !unsharded || concern.get_str("level") != Some("available") {
        splice::put_doc(out, "readConcern", concern);
        return;
    }
    let local = splice::open_doc(out, "readConcern");
    splice::copy_fields(
        concern,
        out,
        |name| {
            if name == b"level" { splice::Keep::No } else { splice::Keep::Yes }
        },
    );
    splice::put_str(out, "level", "local");
    local.finish(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(defaults: &Defaults) -> DocBuf {
        let mut out = BytesMut::new();
        let open = splice::open(&mut out);
        defaults.write_read_concern(&mut out, false);
        defaults.write_write_concern(&mut out);
        open.finish(&mut out);
        DocBuf::from(Doc::new(&out).unwrap())
    }

    #[test]
    fn a_set_default_is_sent_with_its_provenance() {
        let defaults = Defaults::default();
        assert_eq!(
            written(&defaults).as_doc().get_doc("writeConcern").unwrap().get_str("provenance"),
            Some("implicitDefault")
        );
        let reply = bson::rawdoc! {
            "defaultReadConcern": { "level": "majority" }, "defaultReadConcernSource": "global",
            "defaultWriteConcern": { "w": 1 }, "defaultWriteConcernSource": "global",
        };
        defaults.update(Doc::new(reply.as_bytes()).unwrap());
        let sent = written(&defaults);
        let concern = |name| sent.as_doc().get_doc(name).unwrap();
        assert_eq!(concern("readConcern").get_str("level"), Some("majority"));
        assert_eq!(concern("writeConcern").get_i64("w"), Some(1));
        let mut out = BytesMut::new();
        defaults.write_w(&mut out);
        assert_eq!(&out[..], &[0x10, b'w', 0, 1, 0, 0, 0]);
        assert_eq!(concern("writeConcern").get_str("provenance"), Some("customDefault"));
    }
}
