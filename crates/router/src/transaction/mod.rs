//! Transactions over one or many shards.
//!
//! A shard knows its part of a transaction, the router knows which shards take part. In flows a statement of a client
//! ([`run`]), out flow the fields that join a shard to the transaction ([`crate::command::Op::ask`] adds them to each
//! request, so that no handler knows whether it runs in one), and at the end the commit or abort of all participants.
//!
//! - [`state`]: one transaction as a state machine: no I/O, tested against a plain model.
//! - [`admission`]: which statement may run in which transaction, and with which arguments.
//! - [`statement`]: one command's hold on its session's transaction, and what each of its requests carries.
//! - [`table`]: the transactions of this router, one a session, and what ends them when nobody else does.
//! - [`end`]: commitTransaction, abortTransaction, and aborts that no client asked for.
//! - [`labels`]: which errors tell the driver to start over.
//! - [`stats`]: what serverStatus tells.
//!
//! A router that dies leaves its transactions to the shards' own limit (`transactionLifetimeLimitSeconds`); one that is
//! stopped aborts them. A commit may come to another router than the statements: the `recoveryToken` that every reply
//! carries names the shard that knows the outcome.

mod admission;
pub mod end;
mod labels;
mod run;
pub mod state;
mod statement;
mod stats;
mod table;

pub(crate) use labels::is_transient_statement as is_transient;
pub(crate) use run::{labelled, run};
pub(crate) use statement::{CursorTag, Statement, write_snapshot};
pub use table::Transactions;
