//! What statements do, what they may not, and what their errors end.

use bson::{Document, doc};
use testkit::raw::is_ok;

use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_commits_and_aborts_over_shards() {
    let cluster = start().await;
    let client = cluster.client().await.unwrap();
    let collection = client.database(DB).collection::<Document>("r");
    for (commits, expected) in [(false, 0), (true, 1)] {
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        for x in [10, 110, 210, 20] {
            let filter = doc! { "x": x };
            let change = doc! { "$inc": { "v": 1 } };
            let updated = collection.update_one(filter, change).session(&mut session).await.unwrap();
            assert_eq!(updated.modified_count, 1);
        }
        let sum = [doc! { "$group": { "_id": null, "v": { "$sum": "$v" } } }];
        let mut cursor = collection.aggregate(sum).session(&mut session).await.unwrap();
        let inside = cursor.next(&mut session).await.unwrap().unwrap();
        assert_eq!(inside.get_i32("v").unwrap(), 4);
        // Nobody else sees it.
        assert_eq!(collection.count_documents(doc! { "v": { "$gt": 0 } }).await.unwrap(), 0);
        if commits {
            session.commit_transaction().await.unwrap();
            session.commit_transaction().await.unwrap();
        } else {
            session.abort_transaction().await.unwrap();
        }
        for x in [10, 110, 210, 20] {
            let found = collection.find_one(doc! { "x": x }).await.unwrap().unwrap();
            assert_eq!(found.get_i32("v").unwrap(), expected, "x: {x}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_end_the_transaction_everywhere() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    // A conflict is told as the command's error.
    let mut first = Transaction::new(1, 1);
    first.ok(&mut conn, add(110, 1)).await;
    let mut second = Transaction::new(2, 1);
    second.ok(&mut other, add(10, 1)).await;
    let reply = second.run(&mut other, add(110, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (112, true), "{reply}");
    // What the failed one wrote on the other shard is free again.
    first.ok(&mut conn, add(10, 1)).await;
    let reply = second.run(&mut other, add(20, 1)).await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    let reply = second.end(&mut other, "commitTransaction").await;
    assert_eq!((code(&reply), is_transient(&reply)), (251, true), "{reply}");
    assert!(is_ok(&first.end(&mut conn, "commitTransaction").await));

    // A statement's own error stays in its place, without the label, and ends the transaction all the same.
    let mut third = Transaction::new(1, 2);
    third.ok(&mut conn, add(110, 1)).await;
    let twice = doc! { "insert": "r", "documents": [{ "_id": 10, "x": 10 }] };
    let reply = third.run(&mut conn, twice).await;
    let errors = reply.get_array("writeErrors").unwrap_or_else(|_| panic!("{reply}"));
    assert_eq!(errors[0].as_document().unwrap().get_i32("code").unwrap(), 11000);
    assert!(labels(&reply).is_empty(), "{reply}");
    let reply = third.end(&mut conn, "commitTransaction").await;
    assert_eq!(code(&reply), 251, "{reply}");
    assert_eq!((value(&mut conn, 10).await, value(&mut conn, 110).await), (Some(1), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_stand_in_a_transaction_is_refused() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    let mut transaction = Transaction::new(1, 5);
    transaction.ok(&mut conn, add(10, 1)).await;
    for (command, expected, says) in [
        (doc! { "count": "r" }, 263, "transaction-count"),
        (doc! { "drop": "r" }, 263, "Cannot run 'drop' in a multi-document transaction."),
        (doc! { "listCollections": 1 }, 263, "multi-document transaction"),
        (doc! { "explain": { "find": "r" } }, 263, "multi-document transaction"),
        (doc! { "find": "system.profile" }, 263, "t.system.profile"),
        (doc! { "find": "r", "readConcern": { "level": "local" } }, 72, "first command in a transaction"),
        (doc! { "insert": "r", "documents": [{ "x": 1 }], "writeConcern": { "w": 1 } }, 72, "writeConcern"),
        (doc! { "find": "r", "$readPreference": { "mode": "secondary" } }, 72, "must be primary"),
        (doc! { "find": "r", "startTransaction": true }, 117, "already started"),
        (doc! { "find": "r", "apiVersion": "1" }, 347, "API parameter mismatch"),
    ] {
        let reply = transaction.run(&mut conn, command.clone()).await;
        assert_eq!(code(&reply), expected, "{command}: {reply}");
        assert!(reply.get_str("errmsg").unwrap().contains(says), "{command}: {reply}");
        assert!(labels(&reply).is_empty(), "{command}: {reply}");
    }
    let on_config = transaction.with_fields(doc! { "find": "chunks" });
    assert_eq!(code(&conn.command("config", on_config).await.unwrap()), 263);
    // None of it has ended the transaction.
    transaction.ok(&mut conn, add(20, 1)).await;
    let old = Transaction::new(1, 4).run(&mut conn, doc! { "find": "r" }).await;
    assert_eq!(code(&old), 225, "{old}");
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    let late = transaction.run(&mut conn, doc! { "find": "r" }).await;
    assert_eq!(code(&late), 256, "{late}");

    for (number, command, expected) in [
        (6, doc! { "find": "r", "readConcern": { "level": "linearizable" } }, 72),
        (7, doc! { "killCursors": "r", "cursors": [] }, 263),
        (8, doc! { "distinct": "r", "key": "x" }, 263),
    ] {
        let reply = Transaction::new(1, number).run(&mut conn, command.clone()).await;
        assert_eq!(code(&reply), expected, "{command}: {reply}");
    }
    // Arguments that contradict each other.
    for (fields, expected) in [
        (doc! { "txnNumber": 9_i64 }, 72),
        (doc! { "lsid": lsid(1), "txnNumber": 9_i64, "startTransaction": true }, 72),
        (doc! { "lsid": lsid(1), "txnNumber": 9_i64, "autocommit": true }, 72),
        (doc! { "lsid": lsid(1), "autocommit": false }, 72),
        (doc! { "lsid": lsid(1), "txnNumber": 9_i64 }, 50768),
    ] {
        let mut command = doc! { "find": "r" };
        command.extend(fields.clone());
        let reply = conn.command(DB, command).await.unwrap();
        assert_eq!(code(&reply), expected, "{fields}: {reply}");
    }
    let nothing = Transaction::new(1, 20);
    let started = doc! { "commitTransaction": 1, "startTransaction": true };
    let reply = conn.command("admin", nothing.with_fields(started)).await.unwrap();
    assert_eq!(code(&reply), 263, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_move_between_statements() {
    let cluster = start().await;
    let (mut conn, mut other) = (router(&cluster, 0).await, router(&cluster, 1).await);
    let movement = |to: &str| doc! { "moveChunk": "t.r", "find": { "x": 210 }, "to": to };
    other.command_ok("admin", movement("shard1")).await.unwrap();
    // The first statement goes where the chunk went, and nobody notices.
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, add(210, 1)).await;
    transaction.ok(&mut conn, add(10, 1)).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    assert_eq!(value(&mut conn, 210).await, Some(1));

    // A later one cannot: the transaction starts over.
    let mut transaction = Transaction::new(1, 2);
    transaction.ok(&mut conn, add(10, 1)).await;
    other.command_ok("admin", movement("shard2")).await.unwrap();
    let reply = transaction.run(&mut conn, add(210, 1)).await;
    assert!(is_transient(&reply), "{reply}");
    assert!(!reply.contains_key("writeErrors"), "{reply}");
    let mut transaction = Transaction::new(1, 3);
    transaction.ok(&mut conn, add(10, 1)).await;
    transaction.ok(&mut conn, add(210, 1)).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    assert_eq!((value(&mut conn, 10).await, value(&mut conn, 210).await), (Some(2), Some(2)));

    // A snapshot is read where the chunk was at its time, also by a router that knows where it is now.
    let mut transaction = Transaction::new(1, 4);
    let find = doc! { "find": "r", "filter": { "x": 10 }, "readConcern": { "level": "snapshot" } };
    transaction.ok(&mut conn, find).await;
    other.command_ok("admin", movement("shard1")).await.unwrap();
    assert_eq!(value(&mut conn, 210).await, Some(2));
    let reply = transaction.ok(&mut conn, doc! { "find": "r", "filter": { "x": { "$gte": 205 } } }).await;
    assert_eq!(batch(&reply).len(), 9);
    let reply = transaction.ok(&mut conn, doc! { "find": "r", "filter": { "x": 210 } }).await;
    assert_eq!(batch(&reply).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_changes_its_shard_inside_a_transaction() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, add(30, 3)).await;
    let update = doc! { "update": "r", "updates": [{ "q": { "x": 30 }, "u": { "$set": { "x": 131 } } }] };
    let reply = transaction.ok(&mut conn, update).await;
    assert_eq!((reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()), (1, 1), "{reply}");
    let modify =
        doc! { "findAndModify": "r", "query": { "x": 40 }, "update": { "$set": { "x": 241 } }, "new": true };
    let reply = transaction.ok(&mut conn, modify).await;
    assert_eq!(reply.get_document("value").unwrap(), &doc! { "_id": 40, "x": 241, "v": 0 });
    assert_eq!(value(&mut conn, 131).await, None);
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    assert_eq!((value(&mut conn, 131).await, value(&mut conn, 30).await), (Some(3), None));
    assert_eq!((value(&mut conn, 241).await, value(&mut conn, 40).await), (Some(0), None));

    let mut transaction = Transaction::new(1, 2);
    let two = doc! { "update": "r", "updates": [
        { "q": { "x": 50 }, "u": { "$set": { "x": 151 } } },
        { "q": { "x": 60 }, "u": { "$set": { "v": 1 } } },
    ] };
    let reply = transaction.run(&mut conn, two).await;
    assert_eq!(code(&reply), 72, "{reply}");
    assert_eq!((value(&mut conn, 50).await, value(&mut conn, 60).await), (Some(0), Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_made_inside_a_transaction() {
    let cluster = start().await;
    let mut conn = router(&cluster, 0).await;
    let mut transaction = Transaction::new(1, 1);
    transaction.ok(&mut conn, doc! { "insert": "fresh", "documents": [{ "a": 1 }] }).await;
    transaction.ok(&mut conn, doc! { "create": "made" }).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    // An index of a collection that the transaction made.
    let mut transaction = Transaction::new(1, 3);
    let index = doc! { "createIndexes": "indexed", "indexes": [{ "key": { "a": 1 }, "name": "a" }] };
    transaction.ok(&mut conn, index).await;
    transaction.ok(&mut conn, doc! { "insert": "indexed", "documents": [{ "a": 1 }] }).await;
    assert!(is_ok(&transaction.end(&mut conn, "commitTransaction").await));
    // Only on one shard: the shards refuse to prepare a new collection (6.0).
    let mut transaction = Transaction::new(1, 4);
    transaction.ok(&mut conn, doc! { "create": "half" }).await;
    transaction.ok(&mut conn, add(210, 1)).await;
    let reply = transaction.end(&mut conn, "commitTransaction").await;
    assert_eq!(code(&reply), 263, "{reply}");
    let names = conn.command_ok(DB, doc! { "listCollections": 1, "nameOnly": true }).await.unwrap();
    let names: Vec<String> =
        batch(&names).iter().map(|entry| entry.get_str("name").unwrap().to_owned()).collect();
    assert!(
        ["fresh", "made", "indexed"].iter().all(|name| names.iter().any(|known| known == name)),
        "{names:?}"
    );
    assert!(!names.iter().any(|name| name == "half"), "{names:?}");
    assert_eq!(value(&mut conn, 210).await, Some(0));
}
