//! Every row of the command table, called with valid arguments and with wrong ones, on namespaces that are there and on
//! ones that are not: each answers in time, in the shape and with the code of a mongos, and never with an error that says
//! the router did not expect it.
//!
//! [`rows`] has the calls. A command without calls there fails the test.

#[path = "every_command/rows/mod.rs"]
mod rows;

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Bson, Document, doc};
use router::command::{Command, RunsOn, table};
use rows::{Call, Row, Want};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

/// Longest answer.
const LIMIT: Duration = Duration::from_secs(60);

/// InternalError, and the code that stands for an error without one.
const UNEXPECTED: [i32; 2] = [1, 8];

/// Would be called with what the other rows need, or takes too long to fail.
const NOT_CALLED_AT_RANDOM: [&str; 4] = ["configureFailPoint", "addShard", "shutdown", "setParameter"];

/// What runs against one cluster.
struct Caller {
    conn: RawConn,
    /// The cursor of the last answer that had one.
    cursor: i64,
    /// Transactions that were begun.
    transactions: i64,
    /// What was not as wanted.
    wrong: Vec<String>,
}

impl Caller {
    const fn next_transaction(&mut self) -> i64 {
        self.transactions += 1;
        self.transactions
    }

    /// An answer, which must come in time and look like one.
    async fn call(&mut self, db: &str, command: &Document) -> Document {
        let answered = tokio::time::timeout(LIMIT, self.conn.command(db, command.clone())).await;
        let reply = answered.unwrap_or_else(|_| panic!("no answer within {LIMIT:?}: {command} on {db}"));
        let reply = reply.unwrap_or_else(|error| panic!("{command} on {db}: {error:#}"));
        if let Ok(id) = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id"))
            && id != 0
        {
            self.cursor = id;
        }
        if !is_ok(&reply) {
            assert!(reply.get_f64("ok").is_ok_and(|ok| ok == 0.0), "{command} on {db}: {reply}");
            assert!(reply.get_str("errmsg").is_ok_and(|text| !text.is_empty()), "{command} on {db}: {reply}");
            if let Ok(code) = reply.get_i32("code") {
                assert!(!UNEXPECTED.contains(&code), "{command} on {db}: {reply}");
                assert!(reply.get_str("codeName").is_ok(), "{command} on {db}: {reply}");
            }
        }
        reply
    }

    async fn expect(&mut self, call: &Call) {
        let command = with_cursor(&call.command, self.cursor);
        let reply = self.call(call.db, &command).await;
        let code = reply.get_i32("code").ok();
        let right = match call.want {
            Want::Ok => is_ok(&reply) && !reply.contains_key("writeErrors"),
            Want::Code(wanted) => !is_ok(&reply) && code == Some(wanted),
            Want::NoCode => !is_ok(&reply) && code.is_none(),
            Want::WriteError(wanted) => {
                let first = reply.get_array("writeErrors").ok().and_then(|errors| errors.first());
                is_ok(&reply)
                    && first.and_then(Bson::as_document).and_then(|error| error.get_i32("code").ok())
                        == Some(wanted)
            }
        };
        if !right {
            self.wrong.push(format!("{:?} wanted: {command} on {}: {}", call.want, call.db, brief(&reply)));
        }
    }

    /// All calls of a row, and those that follow from its first one.
    async fn run(&mut self, row: &Row, command: &Command) {
        for call in &row.calls {
            self.expect(call).await;
        }
        let Some(first) =
            row.calls.iter().find(|call| call.command.keys().next().is_some_and(|name| name == row.name))
        else {
            self.wrong.push(format!("no call of {}", row.name));
            return;
        };
        let with = |fields: Document, want| {
            let mut command = first.command.clone();
            command.extend(fields);
            Call { db: first.db, command, want }
        };
        if row.strict {
            self.expect(&with(doc! { "nosuchField": 1 }, Want::Code(40415))).await;
        }
        for name in std::iter::once(row.name).chain(command.aliases.iter().copied()) {
            let help = Call { db: first.db, command: doc! { name: 1, "help": true }, want: Want::Ok };
            self.expect(&help).await;
        }
        if command.admin_only {
            let elsewhere = Call { db: "every", command: first.command.clone(), want: Want::Code(13) };
            self.expect(&elsewhere).await;
        }
        if command.runs_on != RunsOn::Router && !command.admin_only {
            let locally = Call { db: "local", command: first.command.clone(), want: Want::Code(20) };
            self.expect(&locally).await;
        }
        if !command.in_transaction {
            let transaction = doc! {
                "lsid": rows::session(9), "txnNumber": self.next_transaction(), "autocommit": false, "startTransaction": true,
            };
            self.expect(&with(transaction, Want::Code(263))).await;
        }
        if !command.api_v1 {
            let strict = with(doc! { "apiVersion": "1", "apiStrict": true }, Want::Code(323));
            self.expect(&strict).await;
        }
        let wrong_api = with(doc! { "apiVersion": "2" }, Want::Code(322));
        self.expect(&wrong_api).await;
        // An aggregate's own parser comes to it first (tests/oracle.rs).
        let code = if row.name == "aggregate" { 14 } else { 2 };
        let wrong_time = with(doc! { "maxTimeMS": "x" }, Want::Code(code));
        self.expect(&wrong_time).await;
    }
}

fn brief(reply: &Document) -> String {
    reply.to_string().chars().take(400).collect()
}

/// `"$cursor"` stands for the last cursor.
fn with_cursor(command: &Document, cursor: i64) -> Document {
    let replace = |value: &Bson| match value {
        Bson::String(text) if text == "$cursor" => Bson::Int64(cursor),
        Bson::Array(values) => Bson::Array(
            values
                .iter()
                .map(|value| match value {
                    Bson::String(text) if text == "$cursor" => Bson::Int64(cursor),
                    other => other.clone(),
                })
                .collect(),
        ),
        other => other.clone(),
    };
    command.iter().map(|(name, value)| (name.clone(), replace(value))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_answers_as_a_mongos() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.spread("every.c", "n", &[100]).await.unwrap();
    let every = cluster.client().await.unwrap().database("every");
    let docs: Vec<Document> = (0..200).map(|n| doc! { "_id": n, "n": n }).collect();
    every.collection::<Document>("c").insert_many(&docs).await.unwrap();
    every.collection::<Document>("u").insert_many(&docs).await.unwrap();
    let conn = cluster.router(0).unwrap().raw().await.unwrap();
    let mut caller = Caller { conn, cursor: 0, transactions: 0, wrong: Vec::new() };
    let rows = rows::all(cluster.shard(0).unwrap().connection_string());
    let with_calls: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(with_calls, table::rows().map(|command| command.name).collect::<BTreeSet<&str>>());
    for row in &rows {
        caller.run(row, table::find(row.name).unwrap()).await;
    }
    assert!(caller.wrong.is_empty(), "{} answers:\n{}", caller.wrong.len(), caller.wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_answers_wrong_arguments() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.spread("every.c", "n", &[100]).await.unwrap();
    let client = cluster.client().await.unwrap();
    client.database("every").collection("u").insert_one(doc! { "n": 1 }).await.unwrap();
    let conn = cluster.router(0).unwrap().raw().await.unwrap();
    let mut caller = Caller { conn, cursor: 0, transactions: 0, wrong: Vec::new() };
    let names = table::rows().map(|command| command.name);
    for name in names.filter(|name| !NOT_CALLED_AT_RANDOM.contains(name)) {
        for db in ["admin", "every"] {
            for command in [
                doc! { name: 5 },
                doc! { name: "" },
                doc! { name: "c" },
                doc! { name: "nosuch" },
                doc! { name: "every.nosuch" },
                doc! { name: "nothere.nosuch" },
                doc! { name: "every.c", "nosuchField": 1 },
                doc! { name: {} },
                doc! { name: [1] },
                doc! { name: "c", "key": 5, "to": 5, "min": 5, "find": 5, "filter": 5, "indexes": 5 },
            ] {
                caller.call(db, &command).await;
            }
        }
    }
    // The router and the data are what they were.
    let reply = caller.call("every", &doc! { "count": "u" }).await;
    assert_eq!(reply.get_i32("n").ok(), Some(1));
}
