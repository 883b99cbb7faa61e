//! A transaction that the router runs for one retryable write, under the write's own session and number. In a client's
//! transaction there is none of its own: the statements join that one ([`Op::ask`]), and its client ends it.
//!
//! The first shard that is asked is the coordinator. It must know that from its first statement on: without
//! `coordinator: true` there it takes the commit for a recovery and aborts (seen on 6.0.5).

use bytes::BytesMut;
use chunk_map::ShardId;
use document::splice;
use futures_util::future::join_all;
use smallvec::SmallVec;
use topology::ReadPreference;

use crate::command::Op;
use crate::error::CommandResult;
use crate::remote::routing::Versions;
use crate::remote::{Retry, ShardReply, ShardRequest};

/// The shards of one transaction.
pub(super) struct InternalTransaction<'a> {
    op: &'a Op<'a>,
    participants: SmallVec<[ShardId; 2]>,
}

/// What a statement for one shard says of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership {
    starts: bool,
    coordinates: bool,
    /// The statement is part of a client's transaction.
    is_clients: bool,
}

impl Membership {
    /// Writes the fields beside `lsid` and `txnNumber`.
    pub(super) fn write(self, out: &mut BytesMut) {
        if self.is_clients {
            return;
        }
        if self.starts {
            let concern = splice::open_doc(out, "readConcern");
            splice::put_str(out, "level", "local");
            concern.finish(out);
            splice::put_bool(out, "startTransaction", true);
        }
        if self.coordinates {
            splice::put_bool(out, "coordinator", true);
        }
        splice::put_bool(out, "autocommit", false);
    }
}

impl<'a> InternalTransaction<'a> {
    /// No shard yet.
    pub(super) fn new(op: &'a Op<'a>) -> Self {
        Self { op, participants: SmallVec::new() }
    }

    /// Is nobody but one shard in it? Then a stale answer leaves nothing behind: that shard has aborted its part.
    pub(super) fn has_one_participant(&self) -> bool {
        self.participants.len() == 1
    }

    fn membership(&self, shard: &ShardId) -> Membership {
        Membership {
            starts: !self.participants.contains(shard),
            coordinates: self.participants.first().is_none_or(|first| first == shard),
            is_clients: self.op.transaction.is_some(),
        }
    }

    /// Sends a statement to a shard, which becomes a participant with it.
    pub(super) async fn ask(
        &mut self,
        shard: &ShardId,
        request: impl FnOnce(Membership) -> CommandResult<BytesMut>,
    ) -> CommandResult<ShardReply> {
        let membership = self.membership(shard);
        let mut request = request(membership)?;
        if membership.starts {
            self.participants.push(shard.clone());
        }
        let op = self.op;
        op.ask(shard, &mut request, &ReadPreference::PRIMARY, Retry::Never).await
    }

    /// Makes it durable with the client's write concern. The reply may hold a write concern error.
    pub(super) async fn commit(&self) -> CommandResult<Option<ShardReply>> {
        let Some(coordinator) = self.participants.first() else { return Ok(None) };
        if self.op.transaction.is_some() {
            return Ok(None);
        }
        let mut request = ShardRequest::new(self.op, 128);
        let out = request.out();
        if self.participants.len() == 1 {
            splice::put_i32(out, "commitTransaction", 1);
        } else {
            splice::put_i32(out, "coordinateCommitTransaction", 1);
            let participants = splice::open_array(out, "participants");
            for (index, shard) in self.participants.iter().enumerate() {
                let participant = splice::open_doc(out, &index.to_string());
                splice::put_str(out, "shardId", shard.as_str());
                participant.finish(out);
            }
            participants.finish(out);
        }
        self.membership(coordinator).write(out);
        let mut request = request.write_concern().finish_on("admin", |out| Versions::None.write(out))?;
        let op = self.op;
        op.router
            .ask_shard(coordinator, &mut request, &ReadPreference::PRIMARY, Retry::Idempotent, op.deadline)
            .await
            .map(Some)
    }

    /// Ends it without effect. A participant that does not hear of it ends it by itself when its time is over.
    pub(super) async fn abort(&self) {
        let aborts = self.participants.iter().map(|shard| async move {
            let mut request = ShardRequest::new(self.op, 64);
            splice::put_i32(request.out(), "abortTransaction", 1);
            self.membership(shard).write(request.out());
            let request = request.no_write_concern().finish_on("admin", |_| {});
            let Ok(mut request) = request else { return };
            let op = self.op;
            let asked = op
                .router
                .ask_shard(shard, &mut request, &ReadPreference::PRIMARY, Retry::Idempotent, op.deadline)
                .await;
            if let Err(error) = asked {
                tracing::debug!(%error, %shard, "a participant did not take the abort");
            }
        });
        join_all(aborts).await;
    }
}
