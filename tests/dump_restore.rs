//! What `mongodump` and `mongorestore` ask of a router: their commands, in their order, as a stand-in for the programs,
//! of which no package registry has a build.

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::{RawConn, is_ok};

/// A collection as a dump has it.
struct Dumped {
    name: String,
    kind: String,
    options: Document,
    indexes: Vec<Document>,
    documents: Vec<Document>,
}

/// All of a cursor.
async fn all(conn: &mut RawConn, db: &str, command: Document) -> Vec<Document> {
    let mut reply = conn.command_ok(db, command).await.unwrap();
    let mut found = Vec::new();
    let mut batch = "firstBatch";
    loop {
        let cursor = reply.get_document("cursor").unwrap();
        found.extend(cursor.get_array(batch).unwrap().iter().map(|item| item.as_document().unwrap().clone()));
        let id = cursor.get_i64("id").unwrap();
        if id == 0 {
            return found;
        }
        let ns = cursor.get_str("ns").unwrap().to_owned();
        let collection = ns.split_once('.').unwrap().1;
        batch = "nextBatch";
        reply = conn.command_ok(db, doc! { "getMore": id, "collection": collection }).await.unwrap();
    }
}

/// mongodump: databases, collections, then options, indexes and documents of each. A time series is dumped as its buckets.
async fn dump(conn: &mut RawConn, db: &str) -> Vec<Dumped> {
    let databases = conn.command_ok("admin", doc! { "listDatabases": 1 }).await.unwrap();
    let names: Vec<&str> = databases
        .get_array("databases")
        .unwrap()
        .iter()
        .map(|each| each.as_document().unwrap().get_str("name").unwrap())
        .collect();
    assert!(names.contains(&db) && names.contains(&"config") && !names.contains(&"local"), "{names:?}");
    let mut dumped = Vec::new();
    for entry in all(conn, db, doc! { "listCollections": 1, "cursor": {}, "filter": {} }).await {
        let name = entry.get_str("name").unwrap().to_owned();
        let kind = entry.get_str("type").unwrap().to_owned();
        if name.starts_with("system.") {
            continue;
        }
        let source = if kind == "timeseries" { format!("system.buckets.{name}") } else { name.clone() };
        let (mut indexes, mut documents) = (Vec::new(), Vec::new());
        if kind != "view" {
            // The progress bar needs a number.
            conn.command_ok(db, doc! { "count": &source, "query": {} }).await.unwrap();
            indexes = all(conn, db, doc! { "listIndexes": &name, "cursor": {} }).await;
            let mut find = doc! { "find": &source, "filter": {}, "noCursorTimeout": true };
            if kind == "collection" && !entry.get_document("options").unwrap().contains_key("capped") {
                find.insert("hint", doc! { "_id": 1 });
            }
            documents = all(conn, db, find).await;
        }
        let options = entry.get_document("options").unwrap().clone();
        dumped.push(Dumped { name, kind, options, indexes, documents });
    }
    dumped
}

/// mongorestore: collections with their options, documents in unordered batches past the validators, then indexes.
async fn restore(conn: &mut RawConn, db: &str, dumped: &[Dumped]) {
    for collection in dumped {
        let Dumped { name, options, indexes, documents, .. } = collection;
        // Where it may, it creates collections with their UUIDs; a router refuses and it goes on without.
        let with_uuid =
            doc! { "applyOps": [{ "op": "c", "ns": format!("{db}.$cmd"), "o": { "create": name } }] };
        let refused = conn.command("admin", with_uuid).await.unwrap();
        assert_eq!((is_ok(&refused), refused.get_i32("code").ok()), (false, Some(59)), "{refused}");
        let mut create = doc! { "create": name };
        create.extend(options.clone());
        // The database of a view's or time series' source is that of the dump.
        conn.command_ok(db, create).await.unwrap();
        let target =
            if collection.kind == "timeseries" { format!("system.buckets.{name}") } else { name.clone() };
        for batch in documents.chunks(100) {
            let insert = doc! {
                "insert": &target, "documents": batch.to_vec(), "ordered": false, "bypassDocumentValidation": true,
                "writeConcern": { "w": "majority" },
            };
            let reply = conn.command_ok(db, insert).await.unwrap();
            assert_eq!(reply.get_i32("n").ok(), i32::try_from(batch.len()).ok(), "{name}: {reply}");
        }
        let wanted: Vec<Bson> = indexes
            .iter()
            .filter(|index| {
                index.get_document("key").unwrap() != &doc! { "_id": 1 } && !index.contains_key("clustered")
            })
            .map(|index| Bson::Document(index.clone()))
            .collect();
        if !wanted.is_empty() && collection.kind != "timeseries" {
            conn.command_ok(db, doc! { "createIndexes": name, "indexes": wanted }).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_dumped_and_restored_by_the_commands_of_the_tools() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.spread("dumped.sharded", "n", &[250]).await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    let docs: Vec<Document> =
        (0..500).map(|n| doc! { "_id": n, "n": n, "t": format!("t{}", n % 7) }).collect();
    for command in [
        doc! { "insert": "sharded", "documents": docs.clone() },
        doc! { "createIndexes": "sharded", "indexes": [{ "key": { "t": 1 }, "name": "by_t", "sparse": true }] },
        doc! { "create": "capped", "capped": true, "size": 1_000_000 },
        doc! { "insert": "capped", "documents": docs[..50].to_vec() },
        doc! { "create": "strict", "validator": { "n": { "$gte": 0 } }, "collation": { "locale": "de" } },
        doc! { "insert": "strict", "documents": [{ "_id": 1, "n": -1 }], "bypassDocumentValidation": true },
        doc! { "create": "seen", "viewOn": "sharded", "pipeline": [{ "$match": { "t": "t1" } }] },
        doc! { "create": "series", "timeseries": { "timeField": "at", "metaField": "m" } },
        doc! {
            "insert": "series",
            "documents": (0..30).map(|n| doc! { "at": bson::DateTime::from_millis(n * 1000), "m": n % 3, "v": n }).collect::<Vec<_>>(),
        },
    ] {
        conn.command_ok("dumped", command).await.unwrap();
    }
    let dumped = dump(&mut conn, "dumped").await;
    assert_eq!(dumped.len(), 5);
    // mongorestore into a collection that was sharded before, as the manual tells.
    restore(&mut conn, "restored", &dumped).await;
    let again = dump(&mut conn, "restored").await;
    let sorted = |mut all: Vec<Dumped>| {
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    };
    for (before, after) in sorted(dumped).iter().zip(&sorted(again)) {
        assert_eq!((&before.name, &before.kind, &before.options), (&after.name, &after.kind, &after.options));
        // The index of the shard key was made by shardCollection: it is dumped and restored like any other.
        assert_eq!(before.indexes, after.indexes, "{}", before.name);
        let by_id = |documents: &[Document]| {
            let mut documents: Vec<String> = documents.iter().map(ToString::to_string).collect();
            documents.sort_unstable();
            documents
        };
        assert_eq!(by_id(&before.documents), by_id(&after.documents), "{}", before.name);
    }
    let count = conn.command_ok("restored", doc! { "count": "seen" }).await.unwrap();
    assert_eq!(count.get_i32("n").ok(), Some(72));
}
