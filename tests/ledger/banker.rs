//! Transfers between accounts on different shards, in transactions.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use mongodb::options::{ReadConcern, TransactionOptions};
use mongodb::{Client, ClientSession, Collection};
use tokio::time::sleep;

use crate::checker::{Opening, Rule};
use crate::history::{Action, Ledger, OpId, Random, Verdict};
use crate::verdict::{commit, within};
use crate::{ACCOUNTS, DB, ENTRIES, account_key};

/// Why a transfer did not come to its commit.
enum Stopped {
    /// A statement gave an error.
    Failed,
    /// A statement did not find an account, and said so as if there were none.
    Missed,
}

impl From<Error> for Stopped {
    fn from(_: Error) -> Self {
        Self::Failed
    }
}

struct Banker {
    accounts: Collection<Document>,
    entries: Collection<Document>,
}

impl Banker {
    async fn add(&self, session: &mut ClientSession, account: i64, amount: i64) -> Result<(), Stopped> {
        let filter = doc! { "_id": account, "k": account_key(account) };
        let change = doc! { "$inc": { "balance": amount } };
        let updated = self.accounts.update_one(filter, change).session(session).await?;
        if updated.matched_count == 1 { Ok(()) } else { Err(Stopped::Missed) }
    }

    async fn statements(
        &self,
        session: &mut ClientSession,
        op: OpId,
        (from, to, amount): (i64, i64, i64),
        read_first: bool,
    ) -> Result<(), Stopped> {
        if read_first {
            let both = doc! { "k": { "$in": [account_key(from), account_key(to)] } };
            let cursor = self.accounts.find(both).session(&mut *session).await;
            let found: Vec<Document> = cursor?.stream(&mut *session).try_collect().await?;
            if found.len() != 2 {
                return Err(Stopped::Missed);
            }
        }
        self.add(session, from, -amount).await?;
        self.add(session, to, amount).await?;
        let entry = doc! { "_id": op, "from": from, "to": to, "amount": amount };
        self.entries.insert_one(entry).session(session).await?;
        Ok(())
    }
}

/// Transfers money until the ledger is closed.
pub(crate) async fn run(ledger: Arc<Ledger>, client: Client, mut random: Random, opening: Opening) {
    let db = client.database(DB);
    let banker = Banker { accounts: db.collection(ACCOUNTS), entries: db.collection(ENTRIES) };
    let accounts = usize::try_from(opening.accounts).unwrap();
    while ledger.running() {
        let Ok(mut session) = client.start_session().await else { continue };
        for _ in 0..100 {
            if !ledger.running() {
                return;
            }
            let from = random.below(accounts);
            let to = (from + 1 + random.below(accounts - 1)) % accounts;
            let amount = i64::try_from(random.below(9)).unwrap() + 1;
            let (from, to) = (i64::try_from(from).unwrap(), i64::try_from(to).unwrap());
            let level = match random.below(3) {
                0 => ReadConcern::local(),
                1 => ReadConcern::majority(),
                _ => ReadConcern::snapshot(),
            };
            let options = TransactionOptions::builder().read_concern(level).build();
            if session.start_transaction().with_options(options).await.is_err() {
                break;
            }
            let op = ledger.next_op();
            let read_first = random.below(3) == 0;
            let statements = banker.statements(&mut session, op, (from, to, amount), read_first);
            let done = within(&ledger, "statements of a transfer", statements).await;
            let hangs = done.is_none();
            let verdict = match done {
                Some(Ok(())) => commit(&ledger, &mut session).await,
                Some(Err(stopped)) => {
                    if matches!(stopped, Stopped::Missed) {
                        let text = format!("transfer {op}: account {from} or {to} was not found");
                        ledger.fault(Rule::Unseen, text);
                    }
                    let _ = within(&ledger, "abort", async { session.abort_transaction().await }).await;
                    // No commit was ever sent: nothing of it may be there.
                    Verdict::Refused
                }
                None => Verdict::Refused,
            };
            ledger.record(op, "transfer", Action::Transfer { from, to, amount }, verdict);
            if hangs {
                break;
            }
            if verdict == Verdict::Refused {
                // A conflict: the other one may finish.
                sleep(Duration::from_millis(u64::try_from(random.below(40)).unwrap())).await;
            }
        }
    }
}
