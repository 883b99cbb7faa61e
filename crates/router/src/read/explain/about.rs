//! What an explain says about the router itself: `serverInfo`, `serverParameters`, `command`.

use bytes::BytesMut;
use document::splice::{self, Keep};

use crate::command::Op;
use crate::request::is_generic;

/// Memory limits that mongos 6.0 lists in each explain, at their defaults.
const PARAMETERS: &[(&str, i32)] = &[
    ("internalQueryFacetBufferSizeBytes", 104_857_600),
    ("internalQueryFacetMaxOutputDocSizeBytes", 104_857_600),
    ("internalLookupStageIntermediateDocumentMaxSizeBytes", 104_857_600),
    ("internalDocumentSourceGroupMaxMemoryBytes", 104_857_600),
    ("internalQueryMaxBlockingSortMemoryUsageBytes", 104_857_600),
    ("internalQueryProhibitBlockingMergeOnMongoS", 0),
    ("internalQueryMaxAddToSetBytes", 104_857_600),
    ("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", 104_857_600),
];

/// Writes `serverInfo` and `serverParameters`.
pub(super) fn put_server(out: &mut BytesMut, op: &Op<'_>) {
    let info = splice::open_doc(out, "serverInfo");
    let host = op.router.settings().host.as_str();
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "27017"));
    splice::put_str(out, "host", name);
    splice::put_i32(out, "port", port.parse().unwrap_or(27017));
    splice::put_str(out, "version", crate::SERVER_VERSION);
    splice::put_str(out, "gitVersion", concat!("pointsman-", env!("CARGO_PKG_VERSION")));
    info.finish(out);
    let parameters = splice::open_doc(out, "serverParameters");
    for (name, value) in PARAMETERS {
        splice::put_i32(out, name, *value);
    }
    parameters.finish(out);
}

/// Writes `command`: what is explained, with its database where mongos has it.
pub(super) fn put_command(out: &mut BytesMut, op: &Op<'_>, with_db: bool) {
    let command = splice::open_doc(out, "command");
    splice::copy_fields(op.request.body, out, |name| {
        let shown = matches!(name, b"comment" | b"maxTimeMS") || !is_generic(name);
        if shown { Keep::Yes } else { Keep::No }
    });
    if with_db {
        splice::put_str(out, "$db", op.request.db);
    }
    command.finish(out);
}
