//! balancerStart, balancerStop, balancerStatus, balancerCollectionStatus, configureCollectionBalancing

use super::config_server::{Concern, forward, forward_as};
use crate::command::Op;
use crate::ddl::arguments::{self, Kind, optional};
use crate::error::CommandResult;
use crate::reply::Reply;
use document::splice;

/// Full or off, and whether a round runs.
pub async fn status(op: &Op<'_>) -> CommandResult<Reply> {
    // These refuse a write concern (seen on 6.0.5).
    forward_as(op, Concern::None, "_configsvrBalancerStatus", &[]).await
}

/// Turns it on.
pub async fn start(op: &Op<'_>) -> CommandResult<Reply> {
    forward_as(op, Concern::None, "_configsvrBalancerStart", &[]).await
}

/// Turns it off and waits for the round that runs.
pub async fn stop(op: &Op<'_>) -> CommandResult<Reply> {
    forward_as(op, Concern::None, "_configsvrBalancerStop", &[]).await
}

/// Is the collection spread as it should be?
pub async fn collection_status(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, &[])?;
    forward(op, Concern::None, |out| {
        splice::put_str(out, "_configsvrBalancerCollectionStatus", ns.as_str());
    })
    .await
}

const CONFIGURE: &[arguments::Argument] = &[
    optional("chunkSize", Kind::Number),
    optional("defragmentCollection", Kind::SafeBool),
    optional("enableAutoSplitter", Kind::SafeBool),
];

/// Chunk size, defragmentation and automatic splits of one collection.
pub async fn configure_collection(op: &Op<'_>) -> CommandResult<Reply> {
    let ns = arguments::namespace(op)?;
    arguments::check(op, CONFIGURE)?;
    forward(op, Concern::None, |out| {
        splice::put_str(out, "_configsvrConfigureCollectionBalancing", ns.as_str());
        arguments::copy(op, out, &["chunkSize", "defragmentCollection", "enableAutoSplitter"]);
    })
    .await
}
