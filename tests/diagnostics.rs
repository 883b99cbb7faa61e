//! What an operator sees of a router: slow operations in its log, its counters, its log's levels and files, its end by
//! command.

use std::path::Path;

use bson::{Document, doc};
use serde_json::Value;
use testkit::raw::{RawConn, is_ok};
use testkit::{Cluster, eventually};

/// The lines of a log that have this number, as JSON.
fn lines(log: &Path, id: u64) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let parsed = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["id"] == id).collect()
}

/// Slow-query lines of commands with this comment, as soon as there is one.
async fn slow(log: &Path, comment: &str) -> Vec<Value> {
    let found = || -> Vec<Value> {
        let of = |line: &Value| line["attr"]["command"]["comment"] == comment;
        lines(log, 51803).into_iter().filter(of).collect()
    };
    eventually(comment, || async { !found().is_empty() }).await.unwrap();
    found()
}

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_operations_are_logged_with_the_shards_they_waited_for() {
    let cluster = Cluster::builder().router_argument("--slowms").router_argument("50").start().await.unwrap();
    cluster.spread("slow.c", "n", &[100]).await.unwrap();
    let mut conn = conn(&cluster).await;
    let docs: Vec<Document> = (0..200).map(|n| doc! { "_id": n, "n": n }).collect();
    conn.command_ok("slow", doc! { "insert": "c", "documents": docs }).await.unwrap();
    let log = cluster.router(0).unwrap().log_path();

    // A shard takes its time.
    let block = doc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": { "failCommands": ["find", "update"], "blockConnection": true, "blockTimeMS": 150, "failInternalCommands": true },
    };
    cluster.shard(1).unwrap().command("admin", block.clone()).await.unwrap();
    let find = doc! { "find": "c", "filter": {}, "batchSize": 5, "comment": "over two" };
    conn.command_ok("slow", find).await.unwrap();
    let line = slow(&log, "over two").await.remove(0);
    assert_eq!(
        (&line["s"], &line["c"], &line["msg"]),
        (&"I".into(), &"COMMAND".into(), &"Slow query".into())
    );
    let attr = &line["attr"];
    assert_eq!(attr["type"], "command");
    assert_eq!(attr["ns"], "slow.c");
    assert_eq!((&attr["nShards"], &attr["nreturned"]), (&2.into(), &5.into()));
    assert!(attr["cursorid"].is_i64() && attr["reslen"].as_u64().unwrap() > 100);
    assert_eq!(attr["protocol"], "op_msg");
    assert!(attr["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(attr["durationMillis"].as_u64().unwrap() >= 150);
    let shards = attr["shardMillis"].as_object().unwrap();
    assert!(shards["shard1"].as_u64().unwrap() >= 150, "{shards:?}");
    assert!(shards.contains_key("shard0"), "{shards:?}");

    // One shard, a write, an error.
    let update = doc! {
        "update": "c", "updates": [{ "q": { "n": 150 }, "u": { "$set": { "a": 1 } } }], "comment": "a write",
    };
    conn.command_ok("slow", update).await.unwrap();
    let attr = slow(&log, "a write").await.remove(0)["attr"].take();
    assert_eq!((&attr["nShards"], &attr["nMatched"], &attr["nModified"]), (&1.into(), &1.into(), &1.into()));
    let wrong = doc! { "find": "c", "filter": { "n": 150, "$nosuch": 1 }, "comment": "wrong" };
    assert!(!is_ok(&conn.command("slow", wrong).await.unwrap()));
    let attr = slow(&log, "wrong").await.remove(0)["attr"].take();
    assert_eq!((&attr["ok"], &attr["errCode"], &attr["errName"]), (&0.into(), &2.into(), &"BadValue".into()));

    // What is fast is not, unless the threshold says so; nothing is with a sample rate of 0.
    cluster
        .shard(1)
        .unwrap()
        .command("admin", doc! { "configureFailPoint": "failCommand", "mode": "off" })
        .await
        .unwrap();
    let was = conn.command_ok("slow", doc! { "profile": 0, "slowms": -1, "sampleRate": 0.0 }).await.unwrap();
    assert_eq!((was.get_i32("slowms").ok(), was.get_f64("sampleRate").ok()), (Some(50), Some(1.0)));
    conn.command_ok("slow", doc! { "find": "c", "filter": { "n": 1 }, "comment": "not sampled" })
        .await
        .unwrap();
    conn.command_ok("slow", doc! { "profile": 0, "sampleRate": 1.0 }).await.unwrap();
    conn.command_ok("slow", doc! { "find": "c", "filter": { "n": 1 }, "comment": "all" }).await.unwrap();
    assert_eq!(slow(&log, "all").await.len(), 1);
    let hidden = doc! { "createUser": "a", "pwd": "secret", "roles": [], "comment": "secret" };
    conn.command_ok("slow", hidden).await.unwrap();
    assert_eq!(slow(&log, "secret").await[0]["attr"]["command"]["pwd"], "xxx");
    let none =
        |comment: &str| lines(&log, 51803).iter().all(|line| line["attr"]["command"]["comment"] != comment);
    assert!(none("not sampled"));

    // More of one component; the time of a line has the zone that the router was told.
    conn.command_ok("slow", doc! { "profile": 0, "slowms": 10_000 }).await.unwrap();
    let verbose = doc! { "setParameter": 1, "logComponentVerbosity": { "command": { "verbosity": 1 } } };
    conn.command_ok("admin", verbose).await.unwrap();
    conn.command_ok("slow", doc! { "find": "c", "filter": { "n": 1 }, "comment": "verbose" }).await.unwrap();
    slow(&log, "verbose").await;
    let said = doc! { "getParameter": 1, "logComponentVerbosity": 1 };
    let said = conn.command_ok("admin", said).await.unwrap();
    let said = said.get_document("logComponentVerbosity").unwrap();
    assert_eq!(said.get_document("command").unwrap().get_i32("verbosity").ok(), Some(1));
    assert_eq!(said.get_i32("verbosity").ok(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_follow_what_clients_do() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.spread("counted.c", "n", &[100]).await.unwrap();
    let mut conn = conn(&cluster).await;
    let before = conn.command_ok("admin", doc! { "serverStatus": 1 }).await.unwrap();
    let docs: Vec<Document> = (0..200).map(|n| doc! { "_id": n, "n": n }).collect();
    conn.command_ok("counted", doc! { "insert": "c", "documents": docs }).await.unwrap();
    conn.command_ok("counted", doc! { "insert": "u", "documents": [{}] }).await.unwrap();
    conn.command_ok("counted", doc! { "find": "c", "batchSize": 2 }).await.unwrap();
    conn.command_ok("counted", doc! { "find": "c", "filter": { "n": 5 } }).await.unwrap();
    conn.command_ok("counted", doc! { "find": "u" }).await.unwrap();
    assert!(!is_ok(&conn.command("counted", doc! { "find": "c", "filter": 5 }).await.unwrap()));
    assert!(!is_ok(&conn.command("counted", doc! { "nosuch": 1 }).await.unwrap()));
    // What was begun on another router.
    let elsewhere = doc! { "getMore": 4_711_i64, "collection": "c" };
    assert!(!is_ok(&conn.command("counted", elsewhere).await.unwrap()));
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
    let elsewhere = doc! { "find": "c", "lsid": { "id": session }, "txnNumber": 5_i64, "autocommit": false };
    assert!(!is_ok(&conn.command("counted", elsewhere).await.unwrap()));
    let after = conn.command_ok("admin", doc! { "serverStatus": 1 }).await.unwrap();
    let more = |path: &str| {
        let get = |status: &Document| {
            let mut at = status;
            let (parents, last) = path.rsplit_once('.').unwrap();
            for part in parents.split('.') {
                at = at.get_document(part).unwrap_or_else(|error| panic!("{path}: {error}"));
            }
            at.get_i64(last).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        get(&after) - get(&before)
    };
    assert_eq!((more("opcounters.insert"), more("opcounters.query")), (201, 5));
    assert_eq!((more("pointsman.unknownCursors"), more("pointsman.foreignTransactionStatements")), (1, 1));
    assert_eq!((more("metrics.commands.find.total"), more("metrics.commands.find.failed")), (5, 2));
    assert_eq!(more("metrics.commands.<UNKNOWN>"), 1);
    assert_eq!((more("metrics.cursor.open.multiTarget"), more("metrics.cursor.totalOpened")), (1, 1));
    for (path, n) in [
        ("insert.allShards", 1),
        ("insert.unsharded", 1),
        ("find.allShards", 1),
        ("find.oneShard", 1),
        ("find.manyShards", 0),
    ] {
        assert_eq!(more(&format!("shardingStatistics.numHostsTargeted.{path}")), n, "{path}");
    }
    assert!(more("network.bytesIn") > 0 && more("network.numRequests") > 5);
    assert!(more("shardingStatistics.catalogCache.numCollectionEntries") >= 0);
    for section in
        ["asserts", "connections", "defaultRWConcern", "logicalSessionRecordCache", "transactions", "mem"]
    {
        assert!(after.contains_key(section), "{section}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_rotated_and_a_router_ended_by_command() {
    let directory = std::env::temp_dir().join(format!("pointsman-rotate-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("router.log");
    let cluster = Cluster::builder()
        .shards(1)
        .router_argument("--logpath")
        .router_argument(path.to_str().unwrap())
        .router_argument("--timeStampFormat")
        .router_argument("iso8601-utc")
        .start()
        .await
        .unwrap();
    let mut conn = conn(&cluster).await;
    let started = std::fs::read_to_string(&path).unwrap();
    assert!(started.lines().all(|line| line.contains("Z\"}") && line.starts_with("{\"t\":")), "{started}");
    conn.command_ok("admin", doc! { "logRotate": 1 }).await.unwrap();
    let files = std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(files, 2);

    let answer = conn.command("admin", doc! { "shutdown": 1, "timeoutSecs": 2 }).await;
    assert!(answer.is_err(), "{answer:?}");
    let router = cluster.router(0).unwrap();
    eventually("the router has ended", || async { !router.is_running() }).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"id\":23138") && text.contains("\"exitCode\":0"), "{text}");
    std::fs::remove_dir_all(&directory).unwrap();
}
