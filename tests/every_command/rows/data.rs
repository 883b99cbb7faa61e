//! Handshake, reads, writes, sessions.

use bson::spec::BinarySubtype;
use bson::{Binary, doc};

use super::{NOTHING, Row, Want, in_transaction, row, session};

pub(super) fn handshake() -> Vec<Row> {
    vec![
        row("hello").lenient().ok(doc! { "hello": 1 }).bad(14, doc! { "hello": 1, "compression": 1 }),
        row("isMaster").lenient().ok(doc! { "isMaster": 1 }).ok(doc! { "ismaster": 1 }),
        row("ping").ok(doc! { "ping": 1 }).call(NOTHING, doc! { "ping": "x" }, Want::Ok).lenient(),
        row("buildInfo").lenient().ok(doc! { "buildInfo": 1 }).ok(doc! { "buildinfo": 1 }),
        row("whatsmyuri").lenient().ok(doc! { "whatsmyuri": 1 }),
        row("listCommands").lenient().ok(doc! { "listCommands": 1 }),
        row("connectionStatus").lenient().ok(doc! { "connectionStatus": 1, "showPrivileges": true }),
        row("isdbgrid").lenient().ok(doc! { "isdbgrid": 1 }),
        row("features").lenient().ok(doc! { "features": 1 }),
        row("getnonce").lenient().ok(doc! { "getnonce": 1 }),
        row("logout").lenient().ok(doc! { "logout": 1 }),
        row("_isSelf").lenient().ok(doc! { "_isSelf": 1 }),
        row("authenticate").lenient().bad(18, doc! { "authenticate": 1, "mechanism": "MONGODB-X509" }),
        row("saslStart").lenient().bad(
            18,
            doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": Binary { subtype: BinarySubtype::Generic, bytes: vec![1] } },
        ),
        row("saslContinue").lenient().bad(18, doc! { "saslContinue": 1, "conversationId": 1, "payload": "" }),
        row("testVersion2").lenient().ok(doc! { "testVersion2": 1 }),
        row("testVersions1And2").lenient().ok(doc! { "testVersions1And2": 1 }),
    ]
}

pub(super) fn reads() -> Vec<Row> {
    vec![
        row("find")
            .ok(doc! { "find": "c", "filter": { "n": { "$gt": 50 } }, "sort": { "n": 1 }, "batchSize": 5 })
            .ok(doc! { "find": "u" })
            .ok(doc! { "find": "nosuch" })
            .call(NOTHING, doc! { "find": "c" }, Want::Ok)
            .bad(73, doc! { "find": 5 })
            .bad(14, doc! { "find": "c", "filter": 5 })
            .bad(2, doc! { "find": "c", "filter": { "$nosuch": 1 } }),
        row("getMore")
            .ok(doc! { "find": "c", "batchSize": 2 })
            .ok(doc! { "getMore": "$cursor", "collection": "c", "batchSize": 2 })
            .bad(43, doc! { "getMore": 77_i64, "collection": "c" })
            .call(NOTHING, doc! { "getMore": 77_i64, "collection": "c" }, Want::Code(43))
            .bad(14, doc! { "getMore": "x", "collection": "c" })
            .bad(14, doc! { "getMore": 77_i64, "collection": 5 }),
        row("killCursors")
            .ok(doc! { "find": "u", "batchSize": 2 })
            .ok(doc! { "killCursors": "u", "cursors": ["$cursor"] })
            .call(NOTHING, doc! { "killCursors": "c", "cursors": [5_i64] }, Want::Ok)
            .bad(14, doc! { "killCursors": "c", "cursors": 5 })
            .bad(2, doc! { "killCursors": 5, "cursors": [5_i64] }),
        row("count")
            .ok(doc! { "count": "c", "query": { "n": { "$lt": 150 } }, "limit": 10, "skip": 1 })
            .ok(doc! { "count": "nosuch" })
            .call(NOTHING, doc! { "count": "c" }, Want::Ok)
            .bad(14, doc! { "count": "c", "query": 5 })
            .bad(2, doc! { "count": "c", "limit": "x" })
            .bad(73, doc! { "count": 5 }),
        row("distinct")
            .ok(doc! { "distinct": "c", "key": "n", "query": {} })
            .ok(doc! { "distinct": "nosuch", "key": "n" })
            .call(NOTHING, doc! { "distinct": "c", "key": "n" }, Want::Ok)
            .bad(14, doc! { "distinct": "c", "key": 5 })
            .bad(73, doc! { "distinct": 5, "key": "n" }),
        row("aggregate")
            .ok(doc! { "aggregate": "c", "pipeline": [{ "$group": { "_id": null, "n": { "$sum": "$n" } } }], "cursor": {} })
            .ok(doc! { "aggregate": "nosuch", "pipeline": [], "cursor": {} })
            .call(NOTHING, doc! { "aggregate": "c", "pipeline": [], "cursor": {} }, Want::Ok)
            .bad(9, doc! { "aggregate": "c", "pipeline": [] })
            .bad(14, doc! { "aggregate": {}, "pipeline": [], "cursor": {} })
            .bad(14, doc! { "aggregate": "c", "pipeline": 5, "cursor": {} })
            .bad(40324, doc! { "aggregate": "c", "pipeline": [{ "$nosuch": 1 }], "cursor": {} }),
        row("explain")
            .ok(doc! { "explain": { "find": "c", "filter": { "n": 5 } }, "verbosity": "queryPlanner" })
            .ok(doc! { "explain": { "find": "nosuch" } })
            .call(NOTHING, doc! { "explain": { "find": "c" } }, Want::Code(26))
            .bad(14, doc! { "explain": 5 })
            .bad(59, doc! { "explain": { "nosuch": 1 } })
            .bad(2, doc! { "explain": { "find": "c" }, "verbosity": "x" }),
        row("mapReduce")
            .ok(doc! {
                "mapReduce": "c", "map": "function() { emit(1, this.n); }", "reduce": "function(k, v) { return Array.sum(v); }",
                "out": { "inline": 1 },
            })
            .ok(doc! {
                "mapreduce": "u", "map": "function() { emit(1, this.n); }", "reduce": "function(k, v) { return Array.sum(v); }",
                "out": { "inline": 1 },
            })
            .bad(2, doc! { "mapReduce": "c", "map": 5, "reduce": "function() {}", "out": { "inline": 1 } })
            .bad(14, doc! { "mapReduce": "c", "map": "function() {}", "reduce": "function() {}", "out": { "inline": 1 }, "query": 5 })
            .bad(40414, doc! { "mapReduce": "c" }),
        row("listCollections")
            .ok(doc! { "listCollections": 1, "filter": { "name": "c" } })
            .call(NOTHING, doc! { "listCollections": 1 }, Want::Ok)
            .bad(14, doc! { "listCollections": 1, "filter": 5 }),
        row("listDatabases")
            .admin(doc! { "listDatabases": 1, "nameOnly": true })
            .bad_admin(14, doc! { "listDatabases": 1, "filter": 5 }),
        row("listIndexes")
            .ok(doc! { "listIndexes": "c" })
            .ok(doc! { "listIndexes": "u" })
            .bad(26, doc! { "listIndexes": "nosuch" })
            .call(NOTHING, doc! { "listIndexes": "c" }, Want::Code(26))
            .bad(14, doc! { "listIndexes": "c", "cursor": 5 }),
        row("collStats")
            .lenient()
            .ok(doc! { "collStats": "c", "scale": 2 })
            .ok(doc! { "collstats": "u" })
            .ok(doc! { "collStats": "nosuch" })
            .bad(73, doc! { "collStats": 5 })
            .bad(14, doc! { "collStats": "c", "scale": "x" }),
        row("dataSize")
            .lenient()
            .ok(doc! { "dataSize": "every.c" })
            .ok(doc! { "datasize": "every.u" })
            .ok(doc! { "dataSize": "every.nosuch" })
            .bad(2, doc! { "dataSize": 5 }),
        row("dbStats")
            .lenient()
            .ok(doc! { "dbStats": 1 })
            .call(NOTHING, doc! { "dbstats": 1 }, Want::Ok)
            .call("every", doc! { "dbStats": 1, "scale": "x" }, Want::NoCode),
        row("validate").lenient().ok(doc! { "validate": "c" }).ok(doc! { "validate": "u" }).bad(73, doc! { "validate": 5 }).bad(26, doc! { "validate": "nosuch" }),
        row("validateDBMetadata")
            .ok(doc! { "validateDBMetadata": 1, "apiParameters": { "version": "1", "strict": true } })
            .bad(40414, doc! { "validateDBMetadata": 1 })
            .bad(14, doc! { "validateDBMetadata": 1, "apiParameters": 5 }),
        row("filemd5").lenient().ok(doc! { "filemd5": 1, "root": "fs" }).bad(73, doc! { "filemd5": 1, "root": 5 }),
        row("currentOp").lenient().admin(doc! { "currentOp": 1 }).admin(doc! { "currentOp": 1, "$ownOps": true }),
        row("killOp")
            .lenient()
            .admin(doc! { "killOp": 1, "op": 12345 })
            .admin(doc! { "killOp": 1, "op": "shard0:12345" })
            .bad_admin(28625, doc! { "killOp": 1, "op": "x" })
            .bad_admin(50759, doc! { "killOp": 1 }),
    ]
}

pub(super) fn writes() -> Vec<Row> {
    vec![
        row("insert")
            .ok(doc! { "insert": "c", "documents": [{ "_id": 1000, "n": 1000 }] })
            .ok(doc! { "insert": "u", "documents": [{ "_id": 1000, "n": 1000 }], "ordered": false })
            .call("other", doc! { "insert": "c", "documents": [{ "n": 1 }] }, Want::Ok)
            .call("every", doc! { "insert": "u", "documents": [{ "_id": 1000 }] }, Want::WriteError(11000))
            .bad(14, doc! { "insert": "c", "documents": 5 })
            .bad(14, doc! { "insert": "c", "documents": [5] })
            .bad(16, doc! { "insert": "c", "documents": [] })
            .bad(2, doc! { "insert": 5, "documents": [{}] }),
        row("update")
            .ok(doc! { "update": "c", "updates": [{ "q": { "n": 1000 }, "u": { "$set": { "a": 1 } } }] })
            .ok(doc! { "update": "nosuch", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "multi": true }] })
            .call("every", doc! { "update": "c", "updates": [{ "q": { "n": 1 }, "u": { "$nosuch": 1 } }] }, Want::WriteError(9))
            .bad(14, doc! { "update": "c", "updates": [{ "q": 5, "u": {} }] })
            .bad(40414, doc! { "update": "c", "updates": [{ "q": {} }] })
            .bad(16, doc! { "update": "c", "updates": [] }),
        row("delete")
            .ok(doc! { "delete": "c", "deletes": [{ "q": { "n": 1000 }, "limit": 1 }] })
            .ok(doc! { "delete": "nosuch", "deletes": [{ "q": {}, "limit": 0 }] })
            .bad(9, doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 5 }] })
            .bad(40414, doc! { "delete": "c", "deletes": [{ "q": {} }] })
            .bad(14, doc! { "delete": "c", "deletes": 5 }),
        row("findAndModify")
            .ok(doc! { "findAndModify": "c", "query": { "n": 5 }, "update": { "$set": { "a": 2 } }, "new": true })
            .ok(doc! { "findandmodify": "nosuch", "query": { "n": 5 }, "remove": true })
            .bad(9, doc! { "findAndModify": "c", "query": { "n": 5 } })
            .bad(14, doc! { "findAndModify": "c", "query": 5, "remove": true })
            .bad(61, doc! { "findAndModify": "c", "query": { "x": 5 }, "remove": true }),
    ]
}

pub(super) fn sessions() -> Vec<Row> {
    vec![
        row("startSession").lenient().ok(doc! { "startSession": 1 }),
        row("refreshSessions").ok(doc! { "refreshSessions": [session(1)] }).bad(14, doc! { "refreshSessions": 5 }),
        row("endSessions").ok(doc! { "endSessions": [session(1)] }).bad(14, doc! { "endSessions": 5 }),
        row("killSessions").lenient().ok(doc! { "killSessions": [session(1)] }).bad(14, doc! { "killSessions": 5 }),
        row("killAllSessions").lenient().ok(doc! { "killAllSessions": [] }).bad(14, doc! { "killAllSessions": 5 }),
        row("killAllSessionsByPattern")
            .lenient()
            .ok(doc! { "killAllSessionsByPattern": [{ "lsid": { "id": session(1).get("id").unwrap(), "uid": Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 32] } } }] })
            .bad(14, doc! { "killAllSessionsByPattern": 5 }),
        row("refreshLogicalSessionCacheNow").lenient().ok(doc! { "refreshLogicalSessionCacheNow": 1 }),
        row("commitTransaction")
            .ok(in_transaction(2, doc! { "insert": "c", "documents": [{ "_id": 2000, "n": 2000 }] }, true))
            .admin(in_transaction(2, doc! { "commitTransaction": 1 }, false))
            // It might know the transaction from another router, were there a recoveryToken.
            .bad_admin(50_940, in_transaction(3, doc! { "commitTransaction": 1 }, false))
            .bad_admin(125, doc! { "commitTransaction": 1 }),
        row("abortTransaction")
            .ok(in_transaction(4, doc! { "insert": "c", "documents": [{ "_id": 2001, "n": 2001 }] }, true))
            .admin(in_transaction(4, doc! { "abortTransaction": 1 }, false))
            .bad_admin(251, in_transaction(3, doc! { "abortTransaction": 1 }, false))
            .bad_admin(125, doc! { "abortTransaction": 1 }),
    ]
}
