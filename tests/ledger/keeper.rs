//! Clients of single documents: inserts, appends, findAndModify, deletes and new inserts, changes of the shard key, and
//! reads of what they wrote, all in causal sessions of a driver that retries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::{ReadConcern, ReadPreference, ReturnDocument, SelectionCriteria, TransactionOptions};
use mongodb::{Client, ClientSession, Collection};

use crate::checker::{Item, Rule, judge_own_read};
use crate::history::{Action, Ledger, OpId, Random, Verdict};
use crate::verdict::{commit, of_write, within};
use crate::{DB, ITEMS};

/// Documents grow with each operation: they are left in peace before they are large.
const FULL: usize = 50;
const DOCUMENTS: usize = 12;

/// A document that only this client writes, as it must be now.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub(crate) id: String,
    pub(crate) key: i64,
    pub(crate) ops: Vec<OpId>,
}

impl Owned {
    pub(crate) fn filter(&self) -> Document {
        doc! { "_id": &self.id, "k": self.key }
    }
}

pub(crate) fn item(document: &Document) -> Item {
    let ops = document.get_array("ops").unwrap().iter().map(|op| op.as_i64().unwrap()).collect();
    Item { id: document.get_str("_id").unwrap().to_owned(), key: document.get_i64("k").unwrap(), ops }
}

struct Keeper {
    name: String,
    ledger: Arc<Ledger>,
    items: Collection<Document>,
    session: ClientSession,
    random: Random,
    owned: Vec<Owned>,
}

/// Works until the ledger is closed.
pub(crate) async fn run(name: String, ledger: Arc<Ledger>, client: Client, mut random: Random) {
    let mut number = 0_u64;
    while ledger.running() {
        // Few operations a session: a session has one transaction number on each shard, and many sessions are refreshed.
        let Ok(session) = client.start_session().causal_consistency(true).await else { continue };
        let items = client.database(DB).collection(ITEMS);
        number += 1;
        let mut keeper = Keeper {
            name: format!("{name}-{number}"),
            ledger: Arc::clone(&ledger),
            items,
            session,
            random,
            owned: Vec::new(),
        };
        for _ in 0..1_000 {
            if !ledger.running() {
                return;
            }
            keeper.step().await;
        }
        random = keeper.random;
    }
}

impl Keeper {
    async fn step(&mut self) {
        if self.owned.len() < DOCUMENTS {
            let id = format!("{}-{}", self.name, self.ledger.next_op());
            self.insert(id).await;
            return;
        }
        let index = self.random.below(self.owned.len());
        let owned = self.owned.swap_remove(index);
        if owned.ops.len() >= FULL {
            return;
        }
        match self.random.below(100) {
            0..30 => self.append(owned).await,
            30..50 => self.find_and_append(owned).await,
            50..60 => self.delete(owned).await,
            60..70 => self.change_key(owned).await,
            70..77 => self.change_key_in_transaction(owned).await,
            _ => self.read(owned).await,
        }
    }

    /// Notes the outcome, and keeps the document when its state is known.
    fn settle(&mut self, op: OpId, kind: &'static str, before: Owned, action: Action, done: Done) {
        let mut after = before.clone();
        match &action {
            Action::Insert { .. } => after.ops = vec![op],
            Action::Append { .. } => after.ops.push(op),
            Action::Move { to, .. } => {
                after.ops.push(op);
                after.key = *to;
            }
            Action::Delete { .. } | Action::Transfer { .. } => {}
        }
        let verdict = match done {
            Done::Matched => Verdict::Acknowledged,
            Done::MatchedNothing => {
                let text = format!("{kind} {op} found no document at {before:?}");
                self.ledger.fault(Rule::Contradiction, text);
                Verdict::Unknown
            }
            Done::Verdict(verdict) => verdict,
        };
        let insert = matches!(action, Action::Insert { .. });
        let delete = matches!(action, Action::Delete { .. });
        self.ledger.record(op, kind, action, verdict);
        match verdict {
            Verdict::Acknowledged if !delete => self.owned.push(after),
            Verdict::Refused if !insert => self.owned.push(before),
            _ => {}
        }
    }

    async fn insert(&mut self, id: String) {
        let op = self.ledger.next_op();
        let owned = Owned { id, key: self.random.key(), ops: Vec::new() };
        let document = doc! { "_id": &owned.id, "k": owned.key, "ops": [op] };
        let insert = async { self.items.insert_one(document).session(&mut self.session).await };
        let done = matched(within(&self.ledger, "insert", insert).await, |_| true);
        let action = Action::Insert { document: owned.id.clone(), key: owned.key };
        self.settle(op, "insert", owned, action, done);
    }

    async fn append(&mut self, owned: Owned) {
        let op = self.ledger.next_op();
        let push = doc! { "$push": { "ops": op } };
        let update = async { self.items.update_one(owned.filter(), push).session(&mut self.session).await };
        let done = matched(within(&self.ledger, "update", update).await, |result| {
            result.matched_count == 1 && result.modified_count == 1
        });
        let action = Action::Append { document: owned.id.clone() };
        self.settle(op, "update", owned, action, done);
    }

    async fn find_and_append(&mut self, owned: Owned) {
        let op = self.ledger.next_op();
        let push = doc! { "$push": { "ops": op } };
        let modify = async {
            let modify = self.items.find_one_and_update(owned.filter(), push);
            modify.return_document(ReturnDocument::After).session(&mut self.session).await
        };
        let result = within(&self.ledger, "findAndModify", modify).await;
        if let Some(Ok(Some(document))) = &result {
            let mut written = owned.ops.clone();
            written.push(op);
            if let Some(fault) = judge_own_read(&owned.id, owned.key, &written, Some(&item(document))) {
                self.ledger.fault(fault.rule, format!("findAndModify: {}", fault.text));
            }
        }
        let done = matched(result, Option::is_some);
        let action = Action::Append { document: owned.id.clone() };
        self.settle(op, "findAndModify", owned, action, done);
    }

    async fn delete(&mut self, owned: Owned) {
        let op = self.ledger.next_op();
        let id = owned.id.clone();
        let action = Action::Delete { document: id.clone() };
        let (kind, done) = if self.random.below(2) == 0 {
            // By _id and key, or by _id alone, which goes to every shard.
            let filter = if self.random.below(3) == 0 {
                doc! { "_id": &owned.id }
            } else {
                owned.filter()
            };
            let delete = async { self.items.delete_one(filter).session(&mut self.session).await };
            let result = within(&self.ledger, "delete", delete).await;
            ("delete", matched(result, |result| result.deleted_count == 1))
        } else {
            let remove = self.items.find_one_and_delete(owned.filter());
            let remove = async { remove.session(&mut self.session).await };
            let result = within(&self.ledger, "findAndModify", remove).await;
            ("findAndModify remove", matched(result, Option::is_some))
        };
        let gone = matches!(done, Done::Matched);
        self.settle(op, kind, owned, action, done);
        if gone && self.random.below(4) > 0 {
            self.insert(id).await;
        }
    }

    async fn change_key(&mut self, owned: Owned) {
        let op = self.ledger.next_op();
        let to = self.random.key();
        let change = doc! { "$push": { "ops": op }, "$set": { "k": to } };
        let (kind, done) = if self.random.below(2) == 0 {
            let update =
                async { self.items.update_one(owned.filter(), change).session(&mut self.session).await };
            let result = within(&self.ledger, "change of the shard key", update).await;
            ("key change by update", matched(result, |result| result.matched_count == 1))
        } else {
            let modify = self.items.find_one_and_update(owned.filter(), change);
            let modify = async { modify.session(&mut self.session).await };
            let result = within(&self.ledger, "change of the shard key", modify).await;
            ("key change by findAndModify", matched(result, Option::is_some))
        };
        let action = Action::Move { document: owned.id.clone(), to };
        self.settle(op, kind, owned, action, done);
    }

    async fn change_key_in_transaction(&mut self, owned: Owned) {
        let op = self.ledger.next_op();
        let to = self.random.key();
        let change = doc! { "$push": { "ops": op }, "$set": { "k": to } };
        let options = TransactionOptions::builder().read_concern(ReadConcern::majority()).build();
        if self.session.start_transaction().with_options(options).await.is_err() {
            self.owned.push(owned);
            return;
        }
        let update = async { self.items.update_one(owned.filter(), change).session(&mut self.session).await };
        let result = within(&self.ledger, "change of the shard key in a transaction", update).await;
        let verdict = match result {
            Some(Ok(result)) if result.matched_count == 1 => commit(&self.ledger, &mut self.session).await,
            Some(other) => {
                if other.is_ok() {
                    let text =
                        format!("{}: not found by operation {op}, which is to change its key", owned.id);
                    self.ledger.fault(Rule::Unseen, text);
                }
                let _ = within(&self.ledger, "abort", async { self.session.abort_transaction().await }).await;
                Verdict::Refused
            }
            None => Verdict::Unknown,
        };
        let action = Action::Move { document: owned.id.clone(), to };
        self.settle(op, "key change in a transaction", owned, action, Done::Verdict(verdict));
    }

    /// Reads an own document from any member; the session's time makes that member wait for the last write.
    async fn read(&mut self, owned: Owned) {
        let nearest = SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { options: None });
        let filter = if self.random.below(3) == 0 {
            doc! { "_id": &owned.id }
        } else {
            owned.filter()
        };
        let find = self.items.find_one(filter).read_concern(ReadConcern::majority());
        let find = async { find.selection_criteria(nearest).session(&mut self.session).await };
        match within(&self.ledger, "read", find).await {
            Some(Ok(found)) => {
                self.ledger.own_reads.fetch_add(1, Ordering::Relaxed);
                let found = found.as_ref().map(item);
                if let Some(fault) = judge_own_read(&owned.id, owned.key, &owned.ops, found.as_ref()) {
                    self.ledger.fault(fault.rule, fault.text);
                }
            }
            _ => {
                self.ledger.failed_reads.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.owned.push(owned);
    }
}

/// The answer to one write.
#[derive(Clone, Copy)]
enum Done {
    Matched,
    MatchedNothing,
    Verdict(Verdict),
}

fn matched<T>(result: Option<Result<T, Error>>, matches: impl FnOnce(&T) -> bool) -> Done {
    match result {
        Some(Ok(result)) if matches(&result) => Done::Matched,
        Some(Ok(_)) => Done::MatchedNothing,
        Some(Err(error)) => Done::Verdict(of_write(&error)),
        None => Done::Verdict(Verdict::Unknown),
    }
}
