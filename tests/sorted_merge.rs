//! Sorted results of several shards: the order of one big server, in bounded memory.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, Timestamp, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use testkit::{Cluster, Usage};

const DB: &str = "merge";

async fn ids(coll: &Collection<Document>, sort: Document, skip: u64, limit: i64, batch: u32) -> Vec<i32> {
    let find = coll.find(doc! {}).sort(sort).skip(skip).limit(limit).batch_size(batch);
    let documents: Vec<Document> = find.await.unwrap().try_collect().await.unwrap();
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

/// Ids only: NaN, which is among the values, is equal to nothing.
async fn aggregated(coll: &Collection<Document>, pipeline: &[Document]) -> Vec<i32> {
    let documents: Vec<Document> =
        coll.aggregate(pipeline.to_vec()).await.unwrap().try_collect().await.unwrap();
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

/// One value of each kind that a sort key may be, in no order.
fn values() -> Vec<Bson> {
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
    vec![
        Bson::Int32(5),
        Bson::Int64(5_000_000_000),
        Bson::Double(4.5),
        Bson::Double(f64::NAN),
        Bson::Double(-0.0),
        decimal("4.75"),
        decimal("5E+3"),
        Bson::Int64(i64::MAX),
        Bson::Double(9.3e18),
        Bson::String("b".into()),
        Bson::String("a\u{1F600}".into()),
        Bson::String(String::new()),
        Bson::Null,
        Bson::Boolean(true),
        Bson::Boolean(false),
        Bson::MinKey,
        Bson::MaxKey,
        Bson::DateTime(DateTime::from_millis(-5)),
        Bson::DateTime(DateTime::from_millis(5)),
        Bson::Timestamp(Timestamp { time: 4_000_000_000, increment: 1 }),
        Bson::ObjectId(ObjectId::from_bytes([7; 12])),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3] }),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![9] }),
        Bson::RegularExpression(Regex { pattern: "x".try_into().unwrap(), options: "i".try_into().unwrap() }),
        Bson::JavaScriptCode("f()".into()),
        Bson::Document(doc! { "a": 1 }),
        Bson::Document(doc! { "a": "x" }),
        Bson::Document(doc! {}),
        Bson::Array(vec![Bson::Int32(3), Bson::Int32(9)]),
        Bson::Array(vec![]),
        Bson::Array(vec![Bson::String("z".into())]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_is_that_of_one_server() {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("merge.spread", "_id", &[1_000, 2_000]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let spread = client.database(DB).collection::<Document>("spread");
    // The same documents as an unsharded collection: one server sorts them.
    let single = client.database(DB).collection::<Document>("single");
    let values = values();
    let documents: Vec<Document> = (0..3_000_i32)
        .map(|n| {
            let index = usize::try_from(n).unwrap();
            let mut document =
                doc! { "_id": n, "v": values[(index * 13) % values.len()].clone(), "g": n * 7 % 11 };
            if n % 5 != 0 {
                document.insert("sub", doc! { "w": values[(index * 7) % values.len()].clone() });
            }
            document
        })
        .collect();
    spread.insert_many(&documents).await.unwrap();
    single.insert_many(&documents).await.unwrap();

    // Each ends in _id: otherwise equal keys may come in any order.
    let sorts = [
        doc! { "v": 1, "_id": 1 },
        doc! { "v": -1, "_id": 1 },
        doc! { "g": 1, "v": -1, "_id": -1 },
        doc! { "sub.w": 1, "g": -1, "_id": 1 },
        doc! { "_id": 1 },
        doc! { "_id": -1 },
        doc! { "missing": 1, "_id": -1 },
    ];
    for sort in sorts {
        for (skip, limit, batch) in
            [(0, 0, 50), (0, 0, 5_000), (17, 0, 333), (0, 10, 0), (2_990, 25, 3), (250, 700, 100)]
        {
            let expected = ids(&single, sort.clone(), skip, limit, batch).await;
            let merged = ids(&spread, sort.clone(), skip, limit, batch).await;
            assert!(expected == merged, "sort {sort}, skip {skip}, limit {limit}, batch {batch}");
        }
        let pipeline = [
            doc! { "$match": { "g": { "$lt": 6 } } },
            doc! { "$sort": sort.clone() },
            doc! { "$skip": 3 },
            doc! { "$limit": 900 },
        ];
        let expected = aggregated(&single, &pipeline).await;
        let merged = aggregated(&spread, &pipeline).await;
        assert!(expected == merged, "aggregate with sort {sort}");
    }
    // A collation goes to the shards; the router never compares text by itself.
    let collation = mongodb::options::Collation::builder().locale("de").build();
    let words = client.database(DB).collection::<Document>("words");
    cluster.spread("merge.words", "_id", &[2, 4]).await.unwrap();
    let text = ["z", "ä", "a", "Z", "B", "b"];
    words.insert_many((0_i32..).zip(text).map(|(n, word)| doc! { "_id": n, "w": word })).await.unwrap();
    let sorted: Vec<Document> = words
        .find(doc! {})
        .sort(doc! { "w": 1 })
        .collation(collation)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let sorted: Vec<&str> = sorted.iter().map(|document| document.get_str("w").unwrap()).collect();
    assert_eq!(sorted, ["a", "ä", "b", "B", "z", "Z"]);
}

const LARGE: i32 = 120_000;
const MIB: u64 = 1024 * 1024;

/// 100 MB over three shards; neighbours in the order are on different ones.
async fn large() -> (Cluster, Collection<Document>) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("merge.large", "n", &[40_000, 80_000]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let coll = client.database(DB).collection::<Document>("large");
    let index = doc! { "createIndexes": "large", "indexes": [{ "key": { "order": 1 }, "name": "order" }] };
    client.database(DB).run_command(index).await.unwrap();
    let filler = "x".repeat(800);
    for start in (0..LARGE).step_by(2_000) {
        let batch = (start..start + 2_000).map(|n| {
            let order = i32::try_from(i64::from(n) * 40_001 % i64::from(LARGE)).unwrap();
            doc! { "n": n, "order": order, "filler": &filler }
        });
        coll.insert_many(batch).ordered(false).await.unwrap();
    }
    (cluster, coll)
}

/// How much the router grows at most while a client reads all in order, in batches of this size.
async fn growth(cluster: &Cluster, coll: &Collection<Document>, batch: Option<u32>) -> u64 {
    let router = cluster.router(0).unwrap();
    // A fresh process, so that no buffer of what was before can hide what the merge takes.
    router.restart().await.unwrap();
    coll.find_one(doc! { "order": 5 }).await.unwrap();
    let before = router.usage().unwrap().rss_bytes;
    Usage::reset_peak(router.pid().unwrap()).unwrap();
    let find = coll.find(doc! {}).sort(doc! { "order": 1 });
    let mut cursor = match batch {
        Some(size) => find.batch_size(size).await.unwrap(),
        None => find.await.unwrap(),
    };
    let mut next = 0;
    while cursor.advance().await.unwrap() {
        assert_eq!(cursor.current().get_i32("order").unwrap(), next);
        next += 1;
    }
    assert_eq!(next, LARGE);
    router.usage().unwrap().peak_rss_bytes.saturating_sub(before)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_sorted_result_does_not_stay_in_the_router() {
    let (cluster, coll) = large().await;
    let grown = growth(&cluster, &coll, Some(1_000)).await;
    assert!(grown < 16 * MIB, "the router grew by {grown} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_names_no_batch_size_costs_few_batches() {
    let (cluster, coll) = large().await;
    // A batch without a size has up to 16 MiB, and the router holds the client's one.
    let grown = growth(&cluster, &coll, None).await;
    assert!(grown < 64 * MIB, "the router grew by {grown} bytes");
}
