//! Reads and writes by a driver: they reach the shards that own the data, and no other.

use std::collections::BTreeSet;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::ReturnDocument;
use mongodb::{Client, Collection};
use testkit::Cluster;

const DB: &str = "crud";

/// Three shards: n below 100, from 100, from 200.
async fn start() -> (Cluster, Client) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("crud.c", "n", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    (cluster, client)
}

fn numbers(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|document| document.get_i32("n").unwrap()).collect()
}

/// The shards whose profiler saw an operation with this comment.
async fn saw(cluster: &Cluster, comment: &str) -> BTreeSet<String> {
    let ops = cluster.profiled(DB, doc! { "command.comment": comment }).await.unwrap();
    ops.into_iter().map(|op| op.shard).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn fill(coll: &Collection<Document>) {
    coll.insert_many((0..300).map(|n| doc! { "_id": n, "n": n, "mod": n % 7, "text": format!("t{n}") }))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_ask_the_owning_shards_only() {
    let (cluster, client) = start().await;
    let coll = client.database(DB).collection::<Document>("c");
    fill(&coll).await;
    for (shard, wanted) in cluster.shards().iter().zip([0, 100, 200]) {
        let own = shard.client().await.unwrap().database(DB).collection::<Document>("c");
        assert_eq!(own.count_documents(doc! {}).await.unwrap(), 100, "documents on {}", shard.name());
        assert!(own.find_one(doc! { "n": wanted }).await.unwrap().is_some());
    }

    cluster.start_profiling(DB).await.unwrap();
    let cases: [(&str, Document, &[&str], usize); 9] = [
        ("equality", doc! { "n": 150 }, &["shard1"], 1),
        ("range", doc! { "n": { "$gte": 90, "$lt": 110 } }, &["shard0", "shard1"], 20),
        ("in", doc! { "n": { "$in": [1, 299] } }, &["shard0", "shard2"], 2),
        ("or", doc! { "$or": [{ "n": 7 }, { "n": 8 }] }, &["shard0"], 2),
        ("and", doc! { "$and": [{ "n": { "$gte": 200 } }, { "mod": 3 }] }, &["shard2"], 14),
        ("double", doc! { "n": 150.0 }, &["shard1"], 1),
        ("no key", doc! { "mod": 3 }, &["shard0", "shard1", "shard2"], 43),
        ("all", doc! {}, &["shard0", "shard1", "shard2"], 300),
        ("nothing", doc! { "n": 5000 }, &["shard2"], 0),
    ];
    for (comment, filter, shards, count) in cases {
        let cursor = coll.find(filter).comment(bson::Bson::from(comment)).await.unwrap();
        let found: Vec<Document> = cursor.try_collect().await.unwrap();
        assert_eq!(found.len(), count, "{comment}");
        assert_eq!(saw(&cluster, comment).await, set(shards), "{comment}");
    }

    let projected: Vec<Document> = coll
        .find(doc! { "n": { "$lt": 3 } })
        .projection(doc! { "_id": 0, "n": 1 })
        .sort(doc! { "n": 1 })
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(projected, [doc! { "n": 0 }, doc! { "n": 1 }, doc! { "n": 2 }]);
    assert_eq!(coll.count_documents(doc! { "mod": 3 }).await.unwrap(), 43);
    assert_eq!(coll.estimated_document_count().await.unwrap(), 300);
    let mut distinct: Vec<i32> =
        coll.distinct("mod", doc! {}).await.unwrap().iter().map(|value| value.as_i32().unwrap()).collect();
    distinct.sort_unstable();
    assert_eq!(distinct, [0, 1, 2, 3, 4, 5, 6]);
    let pipeline =
        [doc! { "$match": { "n": 150 } }, doc! { "$group": { "_id": "$mod", "sum": { "$sum": "$n" } } }];
    let grouped: Vec<Document> = coll.aggregate(pipeline).await.unwrap().try_collect().await.unwrap();
    assert_eq!(grouped, [doc! { "_id": 150 % 7, "sum": 150 }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_reach_the_owning_shards_only() {
    let (cluster, client) = start().await;
    let coll = client.database(DB).collection::<Document>("c");
    fill(&coll).await;
    cluster.start_profiling(DB).await.unwrap();

    let comment = |text: &str| bson::Bson::from(text);
    let updated = coll
        .update_one(doc! { "n": 5 }, doc! { "$inc": { "hits": 1 } })
        .comment(comment("u1"))
        .await
        .unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (1, 1));
    let many = doc! { "$set": { "touched": true } };
    let updated = coll.update_many(doc! { "n": { "$gte": 150 } }, many).comment(comment("um")).await.unwrap();
    assert_eq!((updated.matched_count, updated.modified_count), (150, 150));
    let updated = coll.update_many(doc! { "mod": 1 }, doc! { "$set": { "all": 1 } }).await.unwrap();
    assert_eq!(updated.modified_count, 43);
    assert_eq!(coll.count_documents(doc! { "touched": true }).await.unwrap(), 150);

    let upserted =
        coll.update_one(doc! { "n": 1000 }, doc! { "$set": { "new": 1 } }).upsert(true).await.unwrap();
    assert!(upserted.upserted_id.is_some());
    let own = cluster.shard(2).unwrap().client().await.unwrap().database(DB).collection::<Document>("c");
    assert_eq!(own.count_documents(doc! { "n": 1000 }).await.unwrap(), 1);

    let replaced = coll.replace_one(doc! { "n": 6 }, doc! { "n": 6, "replaced": true }).await.unwrap();
    assert_eq!(replaced.modified_count, 1);
    let after = coll
        .find_one_and_update(doc! { "n": 7 }, doc! { "$inc": { "hits": 5 } })
        .return_document(ReturnDocument::After)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(after.get_i32("hits").unwrap(), 5);
    assert!(coll.find_one_and_delete(doc! { "n": 7 }).await.unwrap().is_some());
    assert!(coll.find_one_and_delete(doc! { "n": 7 }).await.unwrap().is_none());

    assert_eq!(coll.delete_one(doc! { "n": 8 }).await.unwrap().deleted_count, 1);
    // Without the shard key, but by _id: one document wherever it is.
    assert_eq!(coll.delete_one(doc! { "_id": 250 }).await.unwrap().deleted_count, 1);
    assert_eq!(coll.delete_many(doc! { "n": { "$gte": 100 } }).await.unwrap().deleted_count, 200);
    let left: Vec<Document> =
        coll.find(doc! {}).sort(doc! { "n": 1 }).await.unwrap().try_collect().await.unwrap();
    assert_eq!(numbers(&left), (0..100).filter(|n| ![7, 8].contains(n)).collect::<Vec<_>>());

    // The statements of a batch are profiled one by one, under the namespace.
    let updates =
        cluster.profiled(DB, doc! { "op": "update", "ns": "crud.c", "command.q": { "n": 5 } }).await.unwrap();
    assert_eq!(updates.iter().map(|op| op.shard.as_str()).collect::<Vec<_>>(), ["shard0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_over_shards_reports_each_error_at_its_own_index() {
    let (_cluster, client) = start().await;
    let coll = client.database(DB).collection::<Document>("c");
    coll.insert_many([doc! { "_id": "a", "n": 50 }, doc! { "_id": "b", "n": 250 }]).await.unwrap();

    let batch = || {
        [
            doc! { "_id": "x", "n": 1 },
            doc! { "_id": "a", "n": 50 },
            doc! { "_id": "y", "n": 150 },
            doc! { "_id": "b", "n": 250 },
            doc! { "_id": "z", "n": 299 },
        ]
    };
    let failed = |error: mongodb::error::Error| match *error.kind {
        ErrorKind::InsertMany(failure) => {
            let errors = failure.write_errors.unwrap();
            assert!(errors.iter().all(|error| error.code == 11000), "{errors:?}");
            errors.iter().map(|error| error.index).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let error = coll.insert_many(batch()).ordered(true).await.unwrap_err();
    assert_eq!(failed(error), [1], "an ordered batch ends at its first error");
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 3);
    coll.delete_one(doc! { "n": 1 }).await.unwrap();

    let error = coll.insert_many(batch()).ordered(false).await.unwrap_err();
    assert_eq!(failed(error), [1, 3]);
    assert_eq!(coll.count_documents(doc! {}).await.unwrap(), 5);

    let error = coll.insert_one(doc! { "_id": "a", "n": 50 }).await.unwrap_err();
    let ErrorKind::Write(WriteFailure::WriteError(write)) = *error.kind else { panic!("{error}") };
    assert_eq!(write.code, 11000);
    assert!(write.message.contains("E11000"), "{}", write.message);

    // A shard-key field may be missing (it counts as null), an array in it may not.
    let error = coll.insert_one(doc! { "n": [1, 2] }).await.unwrap_err();
    let ErrorKind::Write(WriteFailure::WriteError(write)) = *error.kind else { panic!("{error}") };
    assert_eq!(write.code, 61, "ShardKeyNotFound, as a mongos says: {}", write.message);
    coll.insert_one(doc! { "_id": "none" }).await.unwrap();
    assert!(coll.find_one(doc! { "n": null }).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn unsharded_collections_live_on_their_primary_shard() {
    let (cluster, client) = start().await;
    cluster.admin(doc! { "enableSharding": "other", "primaryShard": "shard2" }).await.unwrap();
    let coll = client.database("other").collection::<Document>("plain");
    coll.insert_many((0..50).map(|n| doc! { "n": n })).await.unwrap();
    let own =
        cluster.shard(2).unwrap().client().await.unwrap().database("other").collection::<Document>("plain");
    assert_eq!(own.count_documents(doc! {}).await.unwrap(), 50);
    assert_eq!(coll.count_documents(doc! { "n": { "$lt": 10 } }).await.unwrap(), 10);
    let sorted: Vec<Document> =
        coll.find(doc! {}).sort(doc! { "n": -1 }).batch_size(7).await.unwrap().try_collect().await.unwrap();
    assert_eq!(numbers(&sorted), (0..50).rev().collect::<Vec<_>>());

    // A database that nobody has made comes with its first write.
    let implicit = client.database("implicit").collection::<Document>("c");
    assert_eq!(implicit.count_documents(doc! {}).await.unwrap(), 0);
    implicit.insert_one(doc! { "x": 1 }).await.unwrap();
    assert_eq!(implicit.find_one(doc! {}).await.unwrap().unwrap().get_i32("x").unwrap(), 1);
    assert!(client.list_database_names().await.unwrap().contains(&"implicit".to_owned()));
    assert_eq!(client.database("implicit").list_collection_names().await.unwrap(), ["c"]);
    client.database("implicit").drop().await.unwrap();
    assert!(!client.list_database_names().await.unwrap().contains(&"implicit".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn hashed_compound_and_unique_keys_route() {
    let (cluster, client) = start().await;
    let db = client.database(DB);
    cluster.shard_collection("crud.hashed", doc! { "user": "hashed" }).await.unwrap();
    let hashed = db.collection::<Document>("hashed");
    hashed.insert_many((0..300).map(|n| doc! { "user": n })).await.unwrap();
    for shard in cluster.shards() {
        let own = shard.client().await.unwrap().database(DB).collection::<Document>("hashed");
        assert!(own.count_documents(doc! {}).await.unwrap() > 40, "the hash spreads: {}", shard.name());
    }
    cluster.start_profiling(DB).await.unwrap();
    for n in 0..20 {
        let comment = format!("hashed {n}");
        let cursor = hashed.find(doc! { "user": n }).comment(bson::Bson::from(&comment)).await.unwrap();
        assert_eq!(cursor.try_collect::<Vec<_>>().await.unwrap().len(), 1);
        assert_eq!(saw(&cluster, &comment).await.len(), 1, "{comment}");
    }
    cluster.stop_profiling(DB).await.unwrap();

    cluster.shard_collection("crud.compound", doc! { "a.b": 1, "c": 1 }).await.unwrap();
    cluster.split_at("crud.compound", doc! { "a.b": 5, "c": bson::Bson::MinKey }).await.unwrap();
    cluster.move_chunk("crud.compound", doc! { "a.b": 5, "c": 0 }, "shard1").await.unwrap();
    let compound = db.collection::<Document>("compound");
    compound.insert_many((0..10).map(|n| doc! { "a": { "b": n }, "c": "x" })).await.unwrap();
    let own =
        cluster.shard(1).unwrap().client().await.unwrap().database(DB).collection::<Document>("compound");
    assert_eq!(own.count_documents(doc! {}).await.unwrap(), 5);
    assert_eq!(compound.count_documents(doc! { "a.b": { "$gte": 3 } }).await.unwrap(), 7);
    assert_eq!(
        compound
            .update_one(doc! { "a.b": 7, "c": "x" }, doc! { "$set": { "d": 1 } })
            .await
            .unwrap()
            .modified_count,
        1
    );

    let unique = doc! { "shardCollection": "crud.unique", "key": { "email": 1 }, "unique": true };
    cluster.admin(unique).await.unwrap();
    let unique = db.collection::<Document>("unique");
    unique.insert_one(doc! { "email": "a@b.c" }).await.unwrap();
    assert!(unique.insert_one(doc! { "email": "a@b.c" }).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_and_collections_are_made_and_listed_on_all_shards() {
    let (cluster, client) = start().await;
    let db = client.database(DB);
    let coll = db.collection::<Document>("c");
    fill(&coll).await;
    let index = doc! { "createIndexes": "c", "indexes": [{ "key": { "mod": 1 }, "name": "mod_1" }] };
    db.run_command(index).await.unwrap();
    for shard in cluster.shards() {
        let own = shard.client().await.unwrap().database(DB).collection::<Document>("c");
        assert!(own.list_index_names().await.unwrap().contains(&"mod_1".to_owned()), "{}", shard.name());
    }
    let mut names = coll.list_index_names().await.unwrap();
    names.sort();
    assert_eq!(names, ["_id_", "mod_1", "n_1"]);
    coll.drop_index("mod_1").await.unwrap();
    assert!(!coll.list_index_names().await.unwrap().contains(&"mod_1".to_owned()));

    let stats = db.run_command(doc! { "collStats": "c" }).await.unwrap();
    assert!(stats.get_bool("sharded").unwrap());
    assert_eq!(stats.get_document("shards").unwrap().len(), 3);
    db.run_command(doc! { "dbStats": 1 }).await.unwrap();
    coll.drop().await.unwrap();
    assert_eq!(cluster.config_find("collections", doc! { "_id": "crud.c" }, doc! {}).await.unwrap().len(), 0);
    assert!(!db.list_collection_names().await.unwrap().contains(&"c".to_owned()));
}
