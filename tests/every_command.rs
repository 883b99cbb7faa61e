//! Every row of the command table, called with arguments of every wrong kind: it answers, in time, as an error of the
//! protocol, and never with one that says the router did not expect it.

use std::time::Duration;

use bson::{Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

/// Longest answer: addShard looks for a host that does not exist.
const LIMIT: Duration = Duration::from_secs(60);

/// InternalError, and the code that stands for an error without one.
const UNEXPECTED: [i32; 2] = [1, 8];

/// Called by no client, or with a purpose of its own elsewhere.
const LEFT_OUT: [&str; 2] = ["configureFailPoint", "addShard"];

async fn names(conn: &mut RawConn) -> Vec<String> {
    let reply = conn.command_ok("admin", doc! { "listCommands": 1 }).await.unwrap();
    let commands = reply.get_document("commands").unwrap();
    commands.keys().filter(|name| !LEFT_OUT.contains(&name.as_str())).cloned().collect()
}

/// Runs one command and checks the shape of its answer.
async fn check(conn: &mut RawConn, db: &str, command: Document) {
    let answered = tokio::time::timeout(LIMIT, conn.command(db, command.clone())).await;
    let reply = answered.unwrap_or_else(|_| panic!("no answer within {LIMIT:?}: {command} on {db}"));
    let reply = reply.unwrap_or_else(|error| panic!("{command} on {db}: {error:#}"));
    if is_ok(&reply) {
        return;
    }
    assert!(reply.get_str("errmsg").is_ok_and(|text| !text.is_empty()), "{command} on {db}: {reply}");
    if let Ok(code) = reply.get_i32("code") {
        assert!(!UNEXPECTED.contains(&code), "{command} on {db}: {reply}");
        assert!(reply.get_str("codeName").is_ok(), "{command} on {db}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_answers_wrong_arguments() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.spread("every.c", "n", &[100]).await.unwrap();
    cluster
        .client()
        .await
        .unwrap()
        .database("every")
        .collection("u")
        .insert_one(doc! { "n": 1 })
        .await
        .unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let names = names(&mut conn).await;
    assert!(names.len() > 100, "{}", names.len());
    for name in &names {
        for db in ["admin", "every"] {
            let name = name.as_str();
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
                check(&mut conn, db, command).await;
            }
        }
    }
    // The router and the data are what they were.
    let reply = conn.command_ok("every", doc! { "count": "u" }).await.unwrap();
    assert_eq!(reply.get_i32("n").ok(), Some(1));
}
