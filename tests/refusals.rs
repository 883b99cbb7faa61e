//! What is refused on the way of a write, a session or a transaction: with MongoDB's code, its name, and a text that says
//! what to do. What belongs to a family's own behaviour is refused in that family's tests (`writes`, `transactions`).

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Timestamp, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

const DB: &str = "no";

/// Two shards: `no.r` by a, below 100 and from there; `no.h` hashed; `no.u` not sharded.
async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(2).start().await.unwrap();
    cluster.spread("no.r", "a", &[100]).await.unwrap();
    cluster.shard_collection("no.h", doc! { "a": "hashed" }).await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    for collection in ["r", "h", "u"] {
        let documents: Vec<Document> = (0..4).map(|n| doc! { "_id": n, "a": n * 50, "v": 0 }).collect();
        conn.command_ok(DB, doc! { "insert": collection, "documents": documents }).await.unwrap();
    }
    (cluster, conn)
}

fn lsid(byte: u8) -> Bson {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }.into()
}

fn with(mut command: Document, more: Document) -> Document {
    command.extend(more);
    command
}

fn in_transaction(command: Document, session: u8, number: i64) -> Document {
    with(command, doc! { "lsid": lsid(session), "txnNumber": number, "autocommit": false })
}

fn starting(command: Document, session: u8, number: i64) -> Document {
    in_transaction(with(command, doc! { "startTransaction": true }), session, number)
}

fn update(collection: &str, q: Document, u: Document) -> Document {
    doc! { "update": collection, "updates": [{ "q": q, "u": u }] }
}

/// Code, name of the code and text of the command's error or of its first statement's.
async fn refusal(conn: &mut RawConn, db: &str, command: Document) -> (i32, Option<String>, String) {
    let shown = command.to_string();
    let reply = conn.command(db, command).await.unwrap();
    let error = match reply.get_array("writeErrors") {
        Ok(errors) => errors[0].as_document().unwrap().clone(),
        Err(_) => {
            assert!(!is_ok(&reply), "{shown} was not refused: {reply}");
            reply
        }
    };
    let name = error.get_str("codeName").ok().map(str::to_owned);
    let code = error.get_i32("code").unwrap_or_else(|_| panic!("{shown}: {error}"));
    (code, name, error.get_str("errmsg").unwrap_or_default().to_owned())
}

/// All that was not refused as it should be: one run shows all of it.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    /// Items of `writeErrors` have no `codeName`: it is checked where there is one.
    async fn unless(&mut self, conn: &mut RawConn, db: &str, command: Document, expected: (i32, &str, &str)) {
        let shown: String = command.to_string().chars().take(300).collect();
        let (code, name, text) = refusal(conn, db, command).await;
        let is_named = name.as_ref().is_none_or(|name| name == expected.1);
        if code != expected.0 || !is_named || !text.contains(expected.2) {
            self.0.push(format!("{shown}: {code} {name:?} {text:?} instead of {expected:?}"));
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_code_name_and_a_text_that_says_what_to_do() {
    let (_cluster, mut conn) = start().await;
    let mut wrong = Wrong::default();
    writes(&mut conn, &mut wrong).await;
    changes_of_the_shard_key(&mut conn, &mut wrong).await;
    sessions_and_times(&mut conn, &mut wrong).await;
    transactions(&mut conn, &mut wrong).await;
}

async fn writes(conn: &mut RawConn, wrong: &mut Wrong) {
    let set = || doc! { "$set": { "v": 1 } };
    let one = |name: &str, field: &str, item: Document| doc! { name: "r", field: [item] };
    let retryable =
        |command: Document, number: i64| with(command, doc! { "lsid": lsid(9), "txnNumber": number });
    let english = doc! { "locale": "en" };
    let big = |count: i32| -> Vec<Document> { (0..count).map(|_| doc! {}).collect() };
    for (command, code, name, says) in [
        (
            doc! { "insert": "r", "documents": [] },
            16,
            "InvalidLength",
            "between 1 and 100000. Got 0 operations",
        ),
        (doc! { "insert": "r", "documents": big(100_001) }, 16, "InvalidLength", "Got 100001 operations"),
        (doc! { "update": "r", "updates": [] }, 16, "InvalidLength", "between 1 and 100000"),
        (doc! { "delete": "r", "deletes": [] }, 16, "InvalidLength", "between 1 and 100000"),
        (
            retryable(doc! { "insert": "r", "documents": [{ "a": 1 }], "stmtIds": [1, 2] }, 1),
            16,
            "InvalidLength",
            "Number of statement ids must match the number of batch entries",
        ),
        (
            retryable(doc! { "insert": "r", "documents": [{ "a": 1 }], "stmtIds": [1], "stmtId": 1 }, 2),
            72,
            "InvalidOptions",
            "stmtId",
        ),
        (
            doc! { "insert": "r", "documents": [{ "a": [1] }] },
            61,
            "ShardKeyNotFound",
            "cannot contain array values",
        ),
        (
            one("update", "updates", doc! { "q": { "v": 0 }, "u": set() }),
            72,
            "InvalidOptions",
            "must contain an exact match on _id",
        ),
        (
            one("update", "updates", doc! { "q": { "v": 0 }, "u": set(), "upsert": true }),
            61,
            "ShardKeyNotFound",
            "Failed to target upsert by query :: could not extract exact shard key",
        ),
        (
            one("update", "updates", doc! { "q": { "v": 0 }, "u": { "a": [1] } }),
            61,
            "ShardKeyNotFound",
            "Failed to target update by replacement document :: could not extract exact shard key",
        ),
        (
            one("update", "updates", doc! { "q": { "a": 1 }, "u": { "v": 1 }, "multi": true }),
            72,
            "InvalidOptions",
            "Replacement-style updates cannot be {multi:true}",
        ),
        (
            one("update", "updates", doc! { "q": { "a": 1 }, "u": { "v": 1, "$set": { "w": 1 } } }),
            12,
            "UnsupportedFormat",
            "mixed $operator and non-$operator style fields",
        ),
        (
            one("delete", "deletes", doc! { "q": { "v": 0 }, "limit": 1 }),
            61,
            "ShardKeyNotFound",
            "A single delete on a sharded collection must contain an exact match on _id",
        ),
        (
            one("delete", "deletes", doc! { "q": { "a": { "$gt": 120 } }, "limit": 1 }),
            61,
            "ShardKeyNotFound",
            "contain the shard key",
        ),
        (
            one(
                "update",
                "updates",
                doc! { "q": { "a": "s" }, "u": { "v": 1 }, "upsert": true, "collation": english.clone() },
            ),
            61,
            "ShardKeyNotFound",
            "Cannot target single shard due to collation of key a",
        ),
        (
            doc! { "findAndModify": "r", "query": { "a": "s" }, "update": set(), "collation": english.clone() },
            61,
            "ShardKeyNotFound",
            "Cannot target single shard due to collation of key a",
        ),
        (
            doc! { "findAndModify": "r", "query": { "_id": 1 }, "update": set() },
            61,
            "ShardKeyNotFound",
            "Query for sharded findAndModify must contain the shard key",
        ),
        (
            doc! { "findAndModify": "r", "query": { "v": 1 }, "update": set(), "upsert": true },
            61,
            "ShardKeyNotFound",
            "must contain the shard key",
        ),
        (doc! { "noSuchCommand": 1 }, 59, "CommandNotFound", "no such cmd: noSuchCommand"),
        (doc! { "bulkWrite": 1, "ops": [], "nsInfo": [] }, 59, "CommandNotFound", "bulkWrite"),
    ] {
        wrong.unless(conn, DB, command, (code, name, says)).await;
    }
    let insert = doc! { "insert": "c", "documents": [{}] };
    wrong
        .unless(
            conn,
            "local",
            insert.clone(),
            (20, "IllegalOperation", "Can't use 'local' database through mongos"),
        )
        .await;
    wrong.unless(conn, "NO", insert, (13_297, "DatabaseDifferCase", "NO")).await;
}

async fn changes_of_the_shard_key(conn: &mut RawConn, wrong: &mut Wrong) {
    let retryable =
        |command: Document, number: i64| with(command, doc! { "lsid": lsid(8), "txnNumber": number });
    let to = |a: i32| doc! { "$set": { "a": a } };
    let needs =
        "Must run update to shard key field in a multi-statement transaction or with retryWrites: true.";
    let filter = doc! { "_id": 1, "a": 50 };
    wrong.unless(conn, DB, update("r", filter.clone(), to(150)), (20, "IllegalOperation", needs)).await;
    let modify = doc! { "findAndModify": "r", "query": filter.clone(), "update": to(150) };
    wrong.unless(conn, DB, modify, (20, "IllegalOperation", needs)).await;
    let no_key = retryable(update("r", doc! { "_id": 1 }, to(150)), 1);
    wrong.unless(conn, DB, no_key, (31_025, "Location31025", "shard key")).await;
    let multi = doc! { "update": "r", "updates": [{ "q": filter.clone(), "u": to(150), "multi": true }] };
    wrong.unless(conn, DB, retryable(multi, 2), (72, "InvalidOptions", "multi")).await;
    let array = retryable(update("r", filter.clone(), doc! { "$set": { "a": [1] } }), 3);
    wrong.unless(conn, DB, array, (54, "NotSingleValueField", "array")).await;
    let two = doc! { "update": "r", "updates": [
        { "q": filter.clone(), "u": to(150) }, { "q": { "_id": 0, "a": 0 }, "u": to(151) }
    ] };
    let alone = "must be sent with write batch of size 1";
    wrong.unless(conn, DB, retryable(two.clone(), 4), (72, "InvalidOptions", alone)).await;
    wrong.unless(conn, DB, starting(two, 8, 5), (72, "InvalidOptions", alone)).await;

    // A retry of what has become a transaction.
    let moved = retryable(update("r", filter.clone(), to(160)), 6);
    let reply = conn.command_ok(DB, moved.clone()).await.unwrap();
    assert_eq!(reply.get_i32("nModified").unwrap(), 1, "{reply}");
    wrong.unless(conn, DB, moved, (217, "IncompleteTransactionHistory", "transaction")).await;
    // A document of the same _id on the other shard: what it says is where to look.
    let double = doc! { "insert": "r", "documents": [{ "_id": 1, "a": 51 }] };
    conn.command_ok(DB, double).await.unwrap();
    let moves = retryable(update("r", doc! { "_id": 1, "a": 51 }, to(161)), 7);
    wrong
        .unless(conn, DB, moves, (11_000, "DuplicateKey", "_id for this collection is not globally unique"))
        .await;
}

async fn sessions_and_times(conn: &mut RawConn, wrong: &mut Wrong) {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
    let digest = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; 32] };
    let foreign = doc! { "ping": 1, "lsid": { "id": id.clone(), "uid": digest } };
    wrong.unless(conn, DB, foreign, (13, "Unauthorized", "user digest")).await;
    let internal = doc! { "find": "r", "lsid": { "id": id.clone(), "txnUUID": id.clone() } };
    wrong.unless(conn, DB, internal, (72, "InvalidOptions", "")).await;

    let open = async |conn: &mut RawConn, fields: Document| {
        let find = with(doc! { "find": "r", "batchSize": 1 }, fields);
        let reply = conn.command_ok(DB, find).await.unwrap();
        reply.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let more = |cursor: i64, fields: Document| with(doc! { "getMore": cursor, "collection": "r" }, fields);
    let with_session = open(conn, doc! { "lsid": lsid(1) }).await;
    let without = open(conn, doc! {}).await;
    // The router's numbers for the server's 50736 to 50740.
    let says = "which was created in session";
    wrong.unless(conn, DB, more(with_session, doc! {}), (50_800, "Location50800", says)).await;
    wrong
        .unless(
            conn,
            DB,
            more(with_session, doc! { "lsid": lsid(2) }),
            (50_801, "Location50801", "in session"),
        )
        .await;
    wrong
        .unless(
            conn,
            DB,
            more(without, doc! { "lsid": lsid(1) }),
            (50_799, "Location50799", "not created in a session"),
        )
        .await;
    let first = starting(doc! { "find": "r", "batchSize": 1 }, 3, 1);
    let reply = conn.command_ok(DB, first).await.unwrap();
    let inside = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let outside = open(conn, doc! { "lsid": lsid(4) }).await;
    let plain = more(inside, doc! { "lsid": lsid(3) });
    wrong.unless(conn, DB, plain, (50_803, "Location50803", "transaction")).await;
    let begun = more(outside, doc! {});
    let find = starting(doc! { "find": "r" }, 4, 1);
    conn.command_ok(DB, find).await.unwrap();
    wrong.unless(conn, DB, in_transaction(begun, 4, 1), (50_802, "Location50802", "transaction")).await;

    let far = Bson::Timestamp(Timestamp { time: 4_000_000_000, increment: 1 });
    let after = doc! { "find": "r", "readConcern": { "afterClusterTime": far.clone() } };
    wrong
        .unless(conn, DB, after, (72, "InvalidOptions", "must not be greater than the current clusterTime"))
        .await;
    let unsigned =
        doc! { "find": "r", "$clusterTime": { "clusterTime": Timestamp { time: 1, increment: 1 } } };
    wrong.unless(conn, DB, unsigned, (4, "NoSuchKey", "Missing expected field \"signature\"")).await;
    let signature =
        doc! { "hash": Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] }, "keyId": 0_i64 };
    let ahead = doc! { "find": "r", "$clusterTime": { "clusterTime": far, "signature": signature } };
    wrong
        .unless(conn, DB, ahead, (205, "ClusterTimeFailsRateLimiter", "too far from this node's wall clock"))
        .await;
}

async fn transactions(conn: &mut RawConn, wrong: &mut Wrong) {
    let find = || doc! { "find": "r" };
    let end = |name: &str, session: u8, number: i64| in_transaction(doc! { name: 1 }, session, number);
    conn.command_ok(DB, starting(find(), 1, 5)).await.unwrap();
    let concern = |level: &str| doc! { "find": "r", "readConcern": { "level": level } };
    let insert = || doc! { "insert": "r", "documents": [{ "a": 1 }] };
    let majority = doc! { "writeConcern": { "w": "majority" } };
    for (command, code, name, says) in [
        (
            in_transaction(find(), 1, 4),
            225,
            "TransactionTooOld",
            "less than last txnNumber 5 seen in session",
        ),
        (starting(find(), 1, 5), 117, "ConflictingOperationInProgress", "already started"),
        (in_transaction(find(), 1, 6), 251, "NoSuchTransaction", "was not begun on this router"),
        (
            in_transaction(concern("local"), 1, 5),
            72,
            "InvalidOptions",
            "Only the first command in a transaction may specify a readConcern",
        ),
        (
            starting(concern("linearizable"), 2, 1),
            72,
            "InvalidOptions",
            "cannot specify a readConcern level other than local, majority, or snapshot",
        ),
        (
            starting(concern("available"), 2, 2),
            72,
            "InvalidOptions",
            "cannot specify a readConcern level other than local, majority, or snapshot",
        ),
        (
            in_transaction(with(find(), doc! { "apiVersion": "1" }), 1, 5),
            347,
            "APIMismatchError",
            "API parameter mismatch",
        ),
        (
            in_transaction(with(insert(), majority.clone()), 1, 5),
            72,
            "InvalidOptions",
            "writeConcern is not allowed within a multi-statement transaction",
        ),
        (
            in_transaction(doc! { "drop": "r" }, 1, 5),
            263,
            "OperationNotSupportedInTransaction",
            "Cannot run 'drop' in a multi-document transaction.",
        ),
        (
            in_transaction(doc! { "count": "r" }, 1, 5),
            263,
            "OperationNotSupportedInTransaction",
            "transaction-count for a recommended alternative",
        ),
        (
            in_transaction(doc! { "explain": find() }, 1, 5),
            263,
            "OperationNotSupportedInTransaction",
            "Cannot run 'explain' in a multi-document transaction.",
        ),
        (
            starting(doc! { "killCursors": "r", "cursors": [1_i64] }, 2, 3),
            263,
            "OperationNotSupportedInTransaction",
            "killCursors",
        ),
        (
            in_transaction(doc! { "find": "system.profile" }, 1, 5),
            263,
            "OperationNotSupportedInTransaction",
            "system.profile",
        ),
        (
            with(find(), doc! { "lsid": lsid(2), "txnNumber": 9_i64 }),
            50_768,
            "NotARetryableWriteCommand",
            "txnNumber",
        ),
        (with(insert(), doc! { "txnNumber": 9_i64 }), 72, "InvalidOptions", "session"),
        (
            with(insert(), doc! { "lsid": lsid(2), "txnNumber": 9_i64, "startTransaction": true }),
            72,
            "InvalidOptions",
            "autocommit",
        ),
    ] {
        wrong.unless(conn, DB, command, (code, name, says)).await;
    }
    let elsewhere = in_transaction(doc! { "find": "chunks" }, 1, 5);
    for (db, expected) in [
        ("config", (263, "OperationNotSupportedInTransaction", "config")),
        ("local", (20, "IllegalOperation", "Can't use 'local' database through mongos")),
    ] {
        wrong.unless(conn, db, elsewhere.clone(), expected).await;
    }
    // None of it has ended the transaction.
    conn.command_ok(DB, in_transaction(insert(), 1, 5)).await.unwrap();
    conn.command_ok("admin", end("commitTransaction", 1, 5)).await.unwrap();
    for (command, code, name, says) in [
        (end("abortTransaction", 1, 5), 256, "TransactionCommitted", "committed"),
        (end("commitTransaction", 7, 1), 50_940, "Location50940", "without a recoveryToken"),
        (
            with(end("commitTransaction", 7, 1), doc! { "recoveryToken": {} }),
            251,
            "NoSuchTransaction",
            "only performed reads and can be safely retried",
        ),
    ] {
        wrong.unless(conn, "admin", command, (code, name, says)).await;
    }
    // A statement that failed has ended its transaction.
    let twice = doc! { "insert": "u", "documents": [{ "_id": 0 }] };
    wrong.unless(conn, DB, starting(twice, 6, 1), (11_000, "DuplicateKey", "duplicate key")).await;
    wrong.unless(conn, "admin", end("commitTransaction", 6, 1), (251, "NoSuchTransaction", "aborted")).await;
}

/// Fails commands of one shard in the named way, as often as said.
async fn fail(cluster: &Cluster, shard: usize, command: &str, times: i32, how: Document) {
    let mut data = doc! { "failCommands": [command], "failInternalCommands": true };
    data.extend(how);
    let mode: Bson = if times == 0 { "off".into() } else { doc! { "times": times }.into() };
    let point = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    cluster.shard(shard).unwrap().command("admin", point).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_shards_refuse_again_and_again_reaches_the_client_by_name() {
    let (cluster, mut conn) = start().await;
    let conn = &mut conn;
    let mut wrong = Wrong::default();
    const ALWAYS: i32 = 1_000;
    // A shard that calls each version stale although there is no newer one.
    let version = doc! {
        "e": bson::oid::ObjectId::new(), "t": Timestamp { time: 1, increment: 1 }, "v": Timestamp { time: 1, increment: 0 },
    };
    let info = doc! { "ns": "no.r", "vReceived": version.clone(), "vWanted": version, "shardId": "shard0" };
    let stale = doc! { "errorCode": 13_388, "errorExtraInfo": info };
    let set = || doc! { "$set": { "v": 1 } };
    fail(&cluster, 0, "update", ALWAYS, stale.clone()).await;
    let no_progress =
        "no progress was made executing batch write op in no.r after 5 rounds (0 ops completed in";
    wrong.unless(conn, DB, update("r", doc! { "a": 1 }, set()), (82, "NoProgressMade", no_progress)).await;
    fail(&cluster, 0, "find", ALWAYS, stale.clone()).await;
    let find = || doc! { "find": "r", "filter": { "a": 1 } };
    wrong.unless(conn, DB, find(), (13_388, "StaleConfig", "")).await;
    // The second statement of a transaction cannot be targeted again: the driver is to start over.
    fail(&cluster, 0, "find", 1, stale).await;
    let other = doc! { "find": "r", "filter": { "a": 150 } };
    conn.command_ok(DB, starting(other, 11, 1)).await.unwrap();
    let moved = "was aborted on statement 2 due to: an error from cluster data placement change";
    wrong.unless(conn, DB, in_transaction(find(), 11, 1), (13_388, "StaleConfig", moved)).await;

    // No primary for a write that may not be sent twice: nothing that would make a driver give the router up.
    fail(&cluster, 0, "update", 1, doc! { "errorCode": 10_107 }).await;
    wrong.unless(conn, DB, update("r", doc! { "a": 1 }, set()), (6, "HostUnreachable", "")).await;
    for (code, name) in
        [(11_600, "InterruptedAtShutdown"), (91, "ShutdownInProgress"), (189, "PrimarySteppedDown")]
    {
        fail(&cluster, 0, "findAndModify", 1, doc! { "errorCode": code }).await;
        let modify = doc! { "findAndModify": "r", "query": { "a": 1 }, "update": set() };
        let (seen, _, text) = refusal(conn, DB, modify).await;
        assert_eq!(seen, 6, "{name}: {text}");
    }

    // Different errors of several shards for one statement.
    fail(&cluster, 0, "update", 1, doc! { "errorCode": 8 }).await;
    fail(&cluster, 1, "update", 1, doc! { "errorCode": 96 }).await;
    let many = doc! { "update": "r", "updates": [{ "q": {}, "u": set(), "multi": true }] };
    wrong.unless(conn, DB, many, (65, "MultipleErrorsOccurred", "multiple errors for op : ")).await;

    // A time that the chunks' histories do not reach.
    let long_ago = doc! { "level": "snapshot", "atClusterTime": Timestamp { time: 1, increment: 1 } };
    let old = doc! { "find": "r", "readConcern": long_ago };
    wrong
        .unless(conn, DB, old, (250, "StaleChunkHistory", "No history entry for the chunk at clusterTime"))
        .await;

    // Aborts that have nothing to abort: no shard took part, or nobody knows the transaction.
    let refused = starting(update("r", doc! { "v": 0 }, set()), 12, 1);
    wrong.unless(conn, DB, refused, (72, "InvalidOptions", "must contain an exact match on _id")).await;
    let abort = |session| in_transaction(doc! { "abortTransaction": 1 }, session, 1);
    let unknown = "no known command has been sent by this router for this transaction";
    wrong.unless(conn, "admin", abort(12), (251, "NoSuchTransaction", unknown)).await;
    wrong.unless(conn, "admin", abort(13), (251, "NoSuchTransaction", "cannot continue txnId")).await;
    // A participant that never answered.
    fail(&cluster, 0, "find", 1, doc! { "errorCode": 8 }).await;
    let (code, ..) = refusal(conn, DB, starting(find(), 14, 1)).await;
    assert_eq!(code, 8);
    let commit = in_transaction(doc! { "commitTransaction": 1 }, 14, 1);
    wrong.unless(conn, "admin", commit, (251, "NoSuchTransaction", "has been aborted")).await;
}
