//! Commits and aborts, and what becomes of a transaction whose client or router is gone.

use bson::doc;
use testkit::raw::is_ok;

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_router_asks_again_where_that_is_harmless() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    // A commit, of one shard and of two: its outcome never changes.
    fail(&cluster, 0, "commitTransaction", 91, 1).await;
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, add(10, 1)).await;
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert!(is_ok(&reply), "{reply}");
    fail(&cluster, 0, "coordinateCommitTransaction", 11602, 2).await;
    let mut transaction = Transaction::new(1, 2);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert!(is_ok(&reply), "{reply}");
    assert_eq!((value(&mut conn, 10).await, value(&mut conn, 110).await), (Some(2), Some(1)));
    // A primary that steps down behind its commit: asked again three times, then its code does not blame the router.
    for (number, times, expected) in [(5, 3, None), (6, 4, Some((6, "HostUnreachable")))] {
        let concern =
            doc! { "code": 11_602, "codeName": "InterruptedDueToReplStateChange", "errmsg": "text" };
        let data = doc! { "failCommands": ["commitTransaction"], "writeConcernError": concern, "failInternalCommands": true };
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        cluster.shard(0).unwrap().command("admin", point).await.unwrap();
        let mut transaction = Transaction::new(2, number);
        transaction.ok(&mut conn, add(20, 1)).await;
        let reply = transaction.end(&mut conn, "commitTransaction").await;
        let concern = reply.get_document("writeConcernError").ok();
        let concern =
            concern.map(|error| (error.get_i32("code").unwrap(), error.get_str("codeName").unwrap()));
        assert_eq!((is_ok(&reply), concern), (true, expected), "{reply}");
    }
    assert_eq!(value(&mut conn, 20).await, Some(2));
    // Not a statement: the driver runs the transaction again. Its code does not blame the router.
    fail(&cluster, 0, "update", 91, 1).await;
    let reply = Transaction::new(1, 3).run(&mut conn, add(10, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (6, true), "{reply}");

    // A snapshot that is gone is chosen again, but for one that the client chose.
    let find = |concern| doc! { "find": "r", "readConcern": concern };
    fail(&cluster, 1, "find", 246, 2).await;
    let reply = conn.command_ok(DB, find(doc! { "level": "snapshot" })).await.unwrap();
    let at = reply.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    fail(&cluster, 1, "find", 246, 1).await;
    let chosen = find(doc! { "level": "snapshot", "atClusterTime": at });
    assert_eq!(code(&conn.command(DB, chosen.clone()).await.unwrap()), 246);
    conn.command_ok(DB, chosen).await.unwrap();
    // In a transaction it cannot be chosen again.
    fail(&cluster, 1, "find", 246, 1).await;
    let reply = Transaction::new(1, 4).run(&mut conn, find(doc! { "level": "snapshot" })).await;
    assert_eq!((code(&reply), is_transient(&reply)), (246, true), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_is_known_on_the_other_router() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    // Committed here, asked there, twice: the token of the answer serves again.
    let mut transaction = Transaction::new(1, 1);
    for x in [110, 210] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    assert_eq!(transaction.token, doc! { "recoveryShardId": "shard1" });
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    for _ in 0..2 {
        let reply = transaction.end(&mut other, "commitTransaction").await;
        assert!(is_ok(&reply), "{reply}");
        transaction.token = reply.get_document("recoveryToken").unwrap().clone();
    }
    // Never committed: the shard that is asked for the outcome ends it.
    let mut transaction = Transaction::new(1, 2);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    let reply = transaction.end(&mut other, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    // Here it cannot be committed any more either.
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    let values = [value(&mut conn, 10).await, value(&mut conn, 110).await, value(&mut conn, 210).await];
    assert_eq!(values, [Some(0), Some(1), Some(1)]);
    // Without a token, and with one of a transaction that only read.
    let mut unknown = Transaction::new(2, 1);
    assert_eq!(code(&unknown.end(&mut other, "commitTransaction").await), 251);
    let commit = unknown.with_fields(doc! { "commitTransaction": 1 });
    assert_eq!(code(&other.command("admin", commit).await.unwrap()), 50940);
    unknown.started = true;
    let reply = unknown.run(&mut other, add(10, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_is_killed_leaves_nothing_half_done() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let mut transaction = Transaction::new(1, 1);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    cluster.router(0).unwrap().kill();
    let reply = transaction.end(&mut other, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    assert_eq!((value(&mut other, 10).await, value(&mut other, 110).await), (Some(0), Some(0)));
    // The driver runs it again, in the same session.
    let mut transaction = Transaction::new(1, 2);
    for x in [10, 110] {
        transaction.ok(&mut other, add(x, 1)).await;
    }
    assert!(is_ok(&transaction.end(&mut other, "commitTransaction").await));
    assert_eq!((value(&mut other, 10).await, value(&mut other, 110).await), (Some(1), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_in_the_middle_of_a_statement_leaves_nothing_half_done() {
    let cluster = start().await;
    let mut other = router(&cluster, 1).await;
    let shard = cluster.shard(1).unwrap();
    for gone_at_first in [false, true] {
        let mut conn = router(&cluster, 0).await;
        let mut transaction = Transaction::new(1, if gone_at_first { 2 } else { 1 });
        if !gone_at_first {
            transaction.ok(&mut conn, add(10, 1)).await;
        }
        // The shard has the statement and holds it back.
        let hold = doc! {
            "configureFailPoint": "failCommand",
            "mode": { "times": 1 },
            "data": { "failCommands": ["update"], "blockConnection": true, "blockTimeMS": 1_000, "failInternalCommands": true },
        };
        let entered = shard.command("admin", hold).await.unwrap().get_i32("count").unwrap();
        let mut statement = transaction.with_fields(add(110, 1));
        if gone_at_first {
            statement.insert("startTransaction", true);
        }
        statement.insert("$db", DB);
        let bytes = testkit::raw::msg_body(0, &statement).unwrap();
        conn.send(&testkit::raw::frame(77, testkit::raw::OP_MSG, &bytes)).await.unwrap();
        let wait =
            doc! { "waitForFailPoint": "failCommand", "timesEntered": entered + 1, "maxTimeMS": 30_000 };
        shard.command("admin", wait).await.unwrap();
        drop(conn);
        // Both documents are free long before the shards' own limit of a minute, and as they were.
        for x in [10, 110] {
            let mut add = add(x, 0);
            add.insert("maxTimeMS", 30_000);
            let reply = other.command_ok(DB, add).await.unwrap();
            assert!(!reply.contains_key("writeErrors"), "{reply}");
            assert_eq!(value(&mut other, x).await, Some(0), "{x}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_is_stopped_aborts_its_transactions() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let mut transaction = Transaction::new(1, 1);
    for x in [10, 110] {
        transaction.ok(&mut conn, add(x, 1)).await;
    }
    let stopped = cluster.router(0).unwrap();
    stopped.terminate().unwrap();
    testkit::eventually("the router ends", || async { !stopped.is_running() }).await.unwrap();
    // Other writers need not wait for the shards' own limit of a minute.
    for x in [10, 110] {
        let mut command = add(x, 5);
        command.insert("maxTimeMS", 5_000);
        let reply = other.command_ok(DB, command).await.unwrap();
        assert!(!reply.contains_key("writeErrors"), "{reply}");
    }
}
