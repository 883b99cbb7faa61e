//! Batches of many statements over all shards on a plain connection: retryable ones that are sent again to the other
//! router, as drivers do, and ones without a number that nobody may send twice.

use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use testkit::raw::RawConn;
use tokio::time::sleep;

use crate::checker::Rule;
use crate::history::{Action, Ledger, OpId, Random, Verdict};
use crate::keeper::Owned;
use crate::verdict::{is_refusal, within};
use crate::{DB, ITEMS};

/// Enough that a migration often ends in the middle of a shard's part of a batch.
const DOCUMENTS: usize = 240;
const FULL: usize = 40;
const TRIES: usize = 6;

/// Codes after which drivers send a retryable write once more.
const RETRYABLE: [i32; 15] =
    [6, 7, 63, 89, 91, 134, 189, 262, 9_001, 10_107, 11_600, 11_602, 13_388, 13_435, 13_436];

struct Batcher {
    name: String,
    ledger: Arc<Ledger>,
    routers: Vec<String>,
    conn: Option<RawConn>,
    at: usize,
    session: u64,
    txn: i64,
    random: Random,
    owned: Vec<Owned>,
}

/// Works until the ledger is closed.
pub(crate) async fn run(name: String, ledger: Arc<Ledger>, routers: Vec<String>, random: Random) {
    let mut batcher =
        Batcher { name, ledger, routers, conn: None, at: 0, session: 0, txn: 0, random, owned: Vec::new() };
    while batcher.ledger.running() {
        batcher.owned.retain(|owned| owned.ops.len() < FULL);
        if batcher.owned.len() < DOCUMENTS / 2 {
            batcher.insert().await;
        } else {
            batcher.update().await;
        }
    }
}

impl Batcher {
    /// Sends to the router in use; any error of the connection moves on to the other one.
    async fn send(&mut self, command: Document) -> Option<Document> {
        if self.conn.is_none() {
            self.at = (self.at + 1) % self.routers.len();
            let connected = RawConn::connect(self.routers.get(self.at)?).await;
            match connected {
                Ok(conn) => self.conn = Some(conn),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
        let mut conn = self.conn.take()?;
        let reply = within(&self.ledger, "batch", conn.command(DB, command)).await?.ok()?;
        // Routers take turns: one of them always learns of a move from a refusal.
        if self.random.below(10) > 0 {
            self.conn = Some(conn);
        }
        Some(reply)
    }

    /// The last answer, and whether an earlier try may have been applied unseen.
    async fn run(&mut self, mut command: Document, retryable: bool) -> Option<Document> {
        if !retryable {
            // Connects first: a refused connection is not an unknown outcome.
            while self.conn.is_none() && self.ledger.running() {
                let _ = self.send(doc! { "ping": 1 }).await;
            }
            return self.send(command).await;
        }
        if self.txn % 200 == 0 {
            self.session += 1;
        }
        self.txn += 1;
        let mut id = [0; 16];
        for (byte, from) in id.iter_mut().zip(self.name.bytes().chain(self.session.to_be_bytes())) {
            *byte = from;
        }
        let id = Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() });
        command.insert("lsid", doc! { "id": id });
        command.insert("txnNumber", self.txn);
        let mut last = None;
        for attempt in 0..TRIES {
            if attempt > 0 {
                sleep(Duration::from_millis(50 << attempt)).await;
            }
            let Some(reply) = self.send(command.clone()).await else { continue };
            let top = reply.get_i32("code").ok();
            let concern =
                reply.get_document("writeConcernError").and_then(|error| error.get_i32("code")).ok();
            let again = [top, concern].into_iter().flatten().any(|code| RETRYABLE.contains(&code))
                || codes(&reply).iter().any(|(_, code)| RETRYABLE.contains(code));
            last = Some(reply);
            if !again {
                break;
            }
            // Two tries on the same router are worth as much as one on each.
            if self.random.below(2) == 0 {
                self.conn = None;
            }
        }
        last
    }

    async fn insert(&mut self) {
        let first = self.ledger.next_op();
        let new: Vec<(OpId, Owned)> = (0..DOCUMENTS - self.owned.len())
            .map(|n| {
                let id = format!("{}-{first}-{n}", self.name);
                (self.ledger.next_op(), Owned { id, key: self.random.key(), ops: Vec::new() })
            })
            .collect();
        let documents: Vec<Document> =
            new.iter().map(|(op, owned)| doc! { "_id": &owned.id, "k": owned.key, "ops": [*op] }).collect();
        let ordered = self.random.below(2) == 0;
        let retryable = self.random.below(2) == 0;
        let command = doc! { "insert": ITEMS, "documents": documents, "ordered": ordered };
        let reply = self.run(command, retryable).await;
        let kind = if retryable { "insert in a retryable batch" } else { "insert in a plain batch" };
        self.settle(kind, new, reply.as_ref(), ordered, |owned| Action::Insert {
            document: owned.id.clone(),
            key: owned.key,
        });
    }

    async fn update(&mut self) {
        // Few or many, all over the shards or shard by shard.
        let most = if self.random.below(2) == 0 { 20 } else { DOCUMENTS };
        let count = 5 + self.random.below(most - 5);
        let mut chosen = Vec::new();
        for _ in 0..count.min(self.owned.len()) {
            let index = self.random.below(self.owned.len());
            chosen.push((self.ledger.next_op(), self.owned.swap_remove(index)));
        }
        if self.random.below(3) > 0 {
            chosen.sort_by_key(|(_, owned)| owned.key);
        }
        let ordered = self.random.below(2) == 0;
        // Unordered updates by _id alone are broadcast as mongos 6.0 does it, and may miss a document that moves.
        let by_id_alone = ordered && self.random.below(4) == 0;
        // Without a pause in each statement a shard is through with its part long before a migration ends.
        let slow = self.random.below(4) == 0;
        let updates: Vec<Document> = chosen
            .iter()
            .map(|(op, owned)| {
                let mut filter = if by_id_alone {
                    doc! { "_id": &owned.id }
                } else {
                    owned.filter()
                };
                if slow {
                    filter.insert("$where", "sleep(4) || true");
                }
                doc! { "q": filter, "u": { "$push": { "ops": *op } } }
            })
            .collect();
        let retryable = self.random.below(2) == 0;
        let command = doc! { "update": ITEMS, "updates": updates, "ordered": ordered };
        let reply = self.run(command, retryable).await;
        let kind = if retryable { "update in a retryable batch" } else { "update in a plain batch" };
        self.settle(kind, chosen, reply.as_ref(), ordered, |owned| Action::Append {
            document: owned.id.clone(),
        });
    }

    /// Notes what the reply says of each statement; documents whose state is known are used again.
    fn settle(
        &mut self,
        kind: &'static str,
        statements: Vec<(OpId, Owned)>,
        reply: Option<&Document>,
        ordered: bool,
        action: impl Fn(&Owned) -> Action,
    ) {
        let verdicts = verdicts(reply, statements.len(), ordered);
        let acknowledged = verdicts.iter().filter(|verdict| **verdict == Verdict::Acknowledged).count();
        if let Some(reply) = reply
            && acknowledged > 0
            && reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok()) != Some(acknowledged)
            && !verdicts.contains(&Verdict::Unknown)
        {
            self.ledger.fault(
                Rule::Contradiction,
                format!("{kind}: {acknowledged} of {} without an error: {reply}", statements.len()),
            );
        }
        for ((op, owned), verdict) in statements.into_iter().zip(verdicts) {
            let action = action(&owned);
            let is_insert = matches!(action, Action::Insert { .. });
            self.ledger.record(op, kind, action, verdict);
            match verdict {
                Verdict::Acknowledged => {
                    let mut owned = owned;
                    owned.ops.push(op);
                    self.owned.push(owned);
                }
                Verdict::Refused if !is_insert => self.owned.push(owned),
                _ => {}
            }
        }
    }
}

/// Index and code of each statement's error.
fn codes(reply: &Document) -> Vec<(usize, i32)> {
    let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    errors
        .iter()
        .filter_map(Bson::as_document)
        .filter_map(|error| {
            let index = usize::try_from(error.get_i32("index").ok()?).ok()?;
            Some((index, error.get_i32("code").ok()?))
        })
        .collect()
}

fn verdicts(reply: Option<&Document>, count: usize, ordered: bool) -> Vec<Verdict> {
    let Some(reply) = reply.filter(|reply| testkit::raw::is_ok(reply)) else {
        return vec![Verdict::Unknown; count];
    };
    let applied =
        if reply.contains_key("writeConcernError") { Verdict::Unknown } else { Verdict::Acknowledged };
    let errors = codes(reply);
    let first = errors.iter().min();
    (0..count)
        .map(|index| match errors.iter().find(|(at, _)| *at == index) {
            Some((_, code)) if is_refusal(*code) => Verdict::Refused,
            Some(_) => Verdict::Unknown,
            None => match first {
                // Nothing is done behind the first error of an ordered batch, if that came from the statement itself and
                // not from a lost connection.
                Some((at, code)) if ordered && index > *at => {
                    if is_refusal(*code) {
                        Verdict::Refused
                    } else {
                        Verdict::Unknown
                    }
                }
                _ => applied,
            },
        })
        .collect()
}
