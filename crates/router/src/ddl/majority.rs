//! The write concern of cluster-wide changes.

use bytes::BytesMut;
use document::{Value, splice};

use crate::command::Op;

/// Limit of the wait for a majority when the client names none, in milliseconds (mongos 5.0 and 6.0).
const TIMEOUT_MS: i32 = 60_000;

/// Writes `writeConcern: {w: "majority", wtimeout}`. mongos overrides a client's `w` for every change of metadata: what a
/// minority has may be rolled back, and the routing table with it.
pub fn write_majority(op: &Op<'_>, out: &mut BytesMut) {
    let asked = op.request.generic.write_concern;
    let concern = splice::open_doc(out, "writeConcern");
    splice::put_str(out, "w", "majority");
    match asked.and_then(|asked| asked.field("wtimeout")).filter(|field| field.value().as_i64() != Some(0)) {
        Some(field) => out.extend_from_slice(field.raw()),
        None => splice::put_i32(out, "wtimeout", TIMEOUT_MS),
    }
    if let Some(journal) = asked.and_then(|asked| asked.get("j")).and_then(Value::as_bool) {
        splice::put_bool(out, "j", journal);
    }
    concern.finish(out);
}
