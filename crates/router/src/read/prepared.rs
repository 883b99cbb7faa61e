//! Snapshots in more than one batch, outside of transactions.
//!
//! A shard's first batch waits for transactions that are prepared before the snapshot's time; a getMore does not (seen on
//! 6.0.5, without any router): it reads past them, although they may be committed before that time, and shows half of a
//! transaction. So a cursor that stays open is not read further before the transactions that are prepared on its member
//! now are over: later ones are prepared after the snapshot, since the member has seen its time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use document::{Doc, DocBuf, splice};
use tokio::time::{Instant, sleep};
use topology::{ReplicaSet, Server};

use crate::codes::ErrorCode;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::remote::ask::transport_error;
use crate::remote::config::internal_request;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Waits for the transactions that are prepared on this member, when the command reads a snapshot there and its cursor
/// stays open.
pub(super) async fn wait(
    op: &Op<'_>,
    set: &ReplicaSet,
    server: &Arc<Server>,
    cursor: i64,
) -> CommandResult<()> {
    if cursor == 0 || op.snapshot().is_none() {
        return Ok(());
    }
    let mut before = prepared(op, set, server).await?;
    let mut pause = FIRST_PAUSE;
    while !before.is_empty() {
        if op.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return Err(CommandError::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let now = prepared(op, set, server).await?;
        before.retain(|transaction| now.contains(transaction));
    }
    Ok(())
}

/// Session and number of each prepared transaction of a member.
async fn prepared(op: &Op<'_>, set: &ReplicaSet, server: &Arc<Server>) -> CommandResult<BTreeSet<Vec<u8>>> {
    let mut pipeline = DocBuf::new();
    pipeline.append_doc("0", |w| {
        w.doc("$currentOp", |w| {
            w.put("allUsers", true);
            w.put("idleSessions", true);
        });
    });
    pipeline.append_doc("1", |w| {
        w.doc("$match", |w| {
            w.doc("transaction.timePreparedMicros", |w| {
                w.put("$exists", true);
            });
        });
    });
    pipeline.append_doc("2", |w| {
        w.doc("$replaceWith", |w| {
            w.put("id", "$lsid.id");
            w.put("number", "$transaction.parameters.txnNumber");
        });
    });
    let mut request = internal_request(op.router.servers(), "admin", |out| {
        splice::put_i32(out, "aggregate", 1);
        splice::put_array(out, "pipeline", pipeline.as_doc());
        let cursor = splice::open_doc(out, "cursor");
        splice::put_i32(out, "batchSize", 100_000);
        cursor.finish(out);
        splice::put_doc(out, "readConcern", Doc::empty());
        splice::put_doc(out, "writeConcern", Doc::empty());
    })?;
    let answer = op
        .router
        .servers()
        .exchange(set, server, &mut request, op.deadline)
        .await
        .map_err(transport_error)?;
    let body = answer.reply.body();
    if !answer.summary.ok {
        return Err(CommandError::from_reply(body));
    }
    let batch = body.get_doc("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let items = batch.into_iter().flatten();
    Ok(items.filter_map(|item| Some(item.value().as_doc()?.as_bytes().to_vec())).collect())
}
