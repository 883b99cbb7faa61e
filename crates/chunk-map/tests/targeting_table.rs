//! Which shards a filter concerns, row by row as the router code of 6.0.5 answered on real collections.
//!
//! Shards 0, 1 and 2 own chunks; in each row they stand in order. `tests/common` has the collections.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod common;

use bson::{Bson, Document, Regex, Timestamp, doc};
use common::{Collection, hashed};

use Bson::{MaxKey, MinKey, Null};

/// r {a: 1}: [-inf,0) 0, [0,100) 2, [100,"") 1, ["","m") 1, ["m",inf) 2
fn r() -> Collection {
    Collection::new(
        &doc! {"a": 1},
        &[
            (doc! {"a": MinKey}, 0),
            (doc! {"a": 0}, 2),
            (doc! {"a": 100}, 1),
            (doc! {"a": ""}, 1),
            (doc! {"a": "m"}, 2),
        ],
    )
}

/// rc {a: 1, b: 1}
fn rc() -> Collection {
    Collection::new(
        &doc! {"a": 1, "b": 1},
        &[
            (doc! {"a": MinKey, "b": MinKey}, 0),
            (doc! {"a": -5, "b": 0}, 0),
            (doc! {"a": 0, "b": MinKey}, 2),
            (doc! {"a": 10, "b": 5}, 1),
        ],
    )
}

const HASH_CUT: i64 = 4_611_686_018_427_387_902;

/// h {a: "hashed"}: below 0 on 0, [0, cut) on 1, from the cut on 2
fn h() -> Collection {
    let cuts = [(doc! {"a": MinKey}, 0), (doc! {"a": 0_i64}, 1), (doc! {"a": HASH_CUT}, 2)];
    Collection::new(&doc! {"a": "hashed"}, &cuts)
}

/// hc {a: "hashed", b: 1}: the same cuts
fn hc() -> Collection {
    Collection::new(
        &doc! {"a": "hashed", "b": 1},
        &[
            (doc! {"a": MinKey, "b": MinKey}, 0),
            (doc! {"a": 0_i64, "b": MinKey}, 1),
            (doc! {"a": HASH_CUT, "b": MinKey}, 2),
        ],
    )
}

/// ch {a: 1, b: "hashed"}
fn ch() -> Collection {
    Collection::new(
        &doc! {"a": 1, "b": "hashed"},
        &[
            (doc! {"a": MinKey, "b": MinKey}, 0),
            (doc! {"a": 5, "b": 0_i64}, 1),
            (doc! {"a": 6, "b": MinKey}, 2),
        ],
    )
}

/// dot {"a.b": 1}
fn dot() -> Collection {
    Collection::new(
        &doc! {"a.b": 1},
        &[(doc! {"a.b": MinKey}, 0), (doc! {"a.b": 0}, 2), (doc! {"a.b": 100}, 1)],
    )
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(Regex {
        pattern: pattern.try_into().unwrap(),
        options: options.try_into().unwrap(),
    })
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

const EN: fn() -> Document = || doc! {"locale": "en", "strength": 2};

#[track_caller]
fn check(collection: &Collection, rows: Vec<(Document, &[u32])>) {
    let mut wrong = Vec::new();
    for (filter, expected) in rows {
        let found = collection.target(&filter, None);
        if found != expected {
            wrong.push(format!("{filter}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn range_key() {
    let date = bson::DateTime::from_millis(0);
    let oid = bson::oid::ObjectId::from_bytes([1; 12]);
    let timestamp = Timestamp { time: 5, increment: 1 };
    let binary = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1] };
    check(
        &r(),
        vec![
            (doc! {}, &[0, 1, 2]),
            (doc! {"b": 1}, &[0, 1, 2]),
            (doc! {"_id": 1}, &[0, 1, 2]),
            (doc! {"a": 5}, &[2]),
            (doc! {"a": {"$eq": 5}}, &[2]),
            (doc! {"a": 5_i64}, &[2]),
            (doc! {"a": decimal("5")}, &[2]),
            (doc! {"a": {"$in": [5, 500]}}, &[1, 2]),
            (doc! {"a": {"$in": [-1, 5, 500]}}, &[0, 1, 2]),
            (doc! {"a": {"$in": []}}, &[0]),
            (doc! {"a": Null}, &[0]),
            (doc! {"a": {"$exists": false}}, &[0]),
            (doc! {"a": {"$gte": Null}}, &[0]),
            (doc! {"a": {"$lte": Null}}, &[0]),
            (doc! {"a": {"$gt": Null}}, &[0]),
            (doc! {"a": {"$in": [Null, 5]}}, &[0, 2]),
            (doc! {"a": {"$exists": true}}, &[0, 1, 2]),
            (doc! {"a": {"$ne": 5}}, &[0, 1, 2]),
            (doc! {"a": {"$nin": [5]}}, &[0, 1, 2]),
            (doc! {"a": {"$not": {"$gt": 5}}}, &[0, 1, 2]),
            (doc! {"a": {"$not": {"$gte": 0}}}, &[0, 1, 2]),
            (doc! {"$nor": [{"a": 5}]}, &[0, 1, 2]),
            (doc! {"a": {"$gt": 5}}, &[1, 2]),
            (doc! {"a": {"$gte": 100}}, &[1]),
            (doc! {"a": {"$gt": 100}}, &[1]),
            (doc! {"a": {"$lt": 100}}, &[0, 1, 2]),
            (doc! {"a": {"$lt": 0}}, &[0, 2]),
            (doc! {"a": {"$lte": 0}}, &[0, 2]),
            (doc! {"a": {"$gte": 200, "$lt": 300}}, &[1]),
            (doc! {"a": {"$gt": 10, "$lt": 20}}, &[2]),
            (doc! {"a": {"$gt": 20, "$lt": 10}}, &[0]),
            (doc! {"$and": [{"a": 5}, {"a": 500}]}, &[0]),
            (doc! {"a": {"$all": [5, 500]}}, &[0]),
            (doc! {"$and": [{"a": {"$gte": 5}}, {"a": {"$lt": 50}}]}, &[2]),
            (doc! {"$or": [{"a": 5}, {"a": 6}]}, &[2]),
            (doc! {"$or": [{"a": 5}, {"a": 500}]}, &[1, 2]),
            (doc! {"$or": [{"a": 5}, {"b": 1}]}, &[0, 1, 2]),
            (doc! {"$or": [{"a": 5, "b": 1}, {"a": 6, "c": 2}]}, &[2]),
            (doc! {"$and": [{"$or": [{"a": 5}, {"a": 6}]}, {"b": 1}]}, &[2]),
            (doc! {"a": 5, "b": {"$ne": 3}}, &[2]),
            (doc! {"a": 5, "$comment": "x"}, &[2]),
            (doc! {"$expr": false}, &[0, 1, 2]),
            (doc! {"$alwaysFalse": 1}, &[0, 1, 2]),
            (doc! {"$alwaysTrue": 1}, &[0, 1, 2]),
            (doc! {"$expr": {"$eq": ["$a", Null]}}, &[0]),
            (doc! {"$expr": {"$eq": ["$a", "$b"]}}, &[0, 1, 2]),
            (doc! {"$expr": {"$in": ["$a", [5, 6]]}}, &[0, 1, 2]),
            (doc! {"a": regex("^abc", "")}, &[1, 2]),
            (doc! {"a": regex("^zz", "")}, &[2]),
            (doc! {"a": regex("abc", "")}, &[1, 2]),
            (doc! {"a": regex("^abc", "i")}, &[1, 2]),
            (doc! {"a": {"$in": [regex("^abc", ""), "zz"]}}, &[1, 2]),
            (doc! {"a": "abc"}, &[1]),
            (doc! {"a": "zz"}, &[2]),
            (doc! {"a": {"$gte": "a", "$lt": "c"}}, &[1]),
            (doc! {"a": {"$gt": "a"}}, &[1, 2]),
            (doc! {"a": MinKey}, &[0]),
            (doc! {"a": MaxKey}, &[0]),
            (doc! {"a": {"$gt": MinKey}}, &[0, 1, 2]),
            (doc! {"a": {"$gte": MinKey}}, &[0, 1, 2]),
            (doc! {"a": {"$lt": MaxKey}}, &[0, 1, 2]),
            (doc! {"a": f64::NAN}, &[0]),
            (doc! {"a": {"$gt": f64::NAN}}, &[0]),
            (doc! {"a": f64::INFINITY}, &[1]),
            (doc! {"a": true}, &[2]),
            (doc! {"a": date}, &[2]),
            (doc! {"a": oid}, &[2]),
            (doc! {"a": {"x": 1}}, &[2]),
            (doc! {"a": timestamp}, &[2]),
            (doc! {"a": binary}, &[2]),
            (doc! {"a": {"$lt": true}}, &[2]),
            (doc! {"a": {"$gte": false}}, &[2]),
            (doc! {"a": [5]}, &[2]),
            (doc! {"a": [5, 500]}, &[2]),
            (doc! {"a": []}, &[0, 2]),
            (doc! {"a": {"$in": [[5], 5]}}, &[2]),
            (doc! {"a": {"$type": "string"}}, &[1, 2]),
            (doc! {"a": {"$type": "number"}}, &[0, 1, 2]),
            (doc! {"a": {"$mod": [4, 0]}}, &[0, 1, 2]),
            (doc! {"a": {"$size": 1}}, &[0, 1, 2]),
            (doc! {"a": {"$bitsAllSet": 1}}, &[0, 1, 2]),
            (doc! {"a": {"$elemMatch": {"$eq": 5}}}, &[2]),
            (doc! {"a": {"$all": [5]}}, &[2]),
            (doc! {"a": {"$elemMatch": {"x": 1}}}, &[0, 1, 2]),
            (doc! {"a.x": 1}, &[0, 1, 2]),
            (doc! {"a": {"$geoWithin": {"$center": [[0, 0], 1]}}}, &[0, 1, 2]),
            (doc! {"$jsonSchema": {}}, &[0, 1, 2]),
            (doc! {"$sampleRate": 0.5}, &[0, 1, 2]),
            (doc! {"$expr": {"$eq": ["$a", 5]}}, &[2]),
            (doc! {"$expr": {"$eq": [5, "$a"]}}, &[2]),
            (doc! {"$expr": {"$or": [{"$eq": ["$a", 5]}, {"$eq": ["$a", 6]}]}}, &[2]),
            (doc! {"$expr": {"$and": [{"$gte": ["$a", 10]}, {"$lt": ["$a", 20]}]}}, &[2]),
            (doc! {"$expr": {"$gt": ["$a", 100]}}, &[1, 2]),
            (doc! {"$expr": {"$gt": ["$a", {"$add": [99, 1]}]}}, &[1, 2]),
            (doc! {"$expr": {"$lt": ["$a", 0]}}, &[0, 2]),
            (doc! {"$where": "true"}, &[0, 1, 2]),
            (doc! {"$text": {"$search": "x"}}, &[0, 1, 2]),
            (doc! {"a": {"$gte": 5, "$lt": 6}, "$text": {"$search": "x"}}, &[0, 1, 2]),
            (doc! {"a": {"$gte": 5, "$lt": 6}, "loc": {"$near": [0, 0]}}, &[0, 1, 2]),
        ],
    );
}

#[test]
fn compound_key() {
    check(
        &rc(),
        vec![
            (doc! {"a": 3}, &[2]),
            (doc! {"a": -7}, &[0]),
            (doc! {"a": 10}, &[1, 2]),
            (doc! {"a": 10, "b": 5}, &[1]),
            (doc! {"a": 10, "b": {"$gte": 5}}, &[1]),
            (doc! {"a": 10, "b": 4}, &[2]),
            (doc! {"a": 10, "b": Null}, &[2]),
            (doc! {"a": 10, "b": {"$lt": 5}}, &[1, 2]),
            (doc! {"a": 10, "b": {"$ne": 1}}, &[1, 2]),
            (doc! {"b": 5}, &[0, 1, 2]),
            (doc! {"a": {"$gt": 10}}, &[1, 2]),
            (doc! {"a": {"$gte": 10}}, &[1, 2]),
            (doc! {"a": {"$lt": 0}}, &[0, 2]),
            (doc! {"a": {"$in": [3, 20]}, "b": 1}, &[1, 2]),
            (doc! {"a": {"$in": [3, 10]}, "b": {"$in": [1, 9]}}, &[1, 2]),
            (doc! {"$or": [{"a": 3, "b": 1}, {"a": 10, "b": 9}]}, &[1, 2]),
            // The cross product of the branches: the exact answer would be 0 and 2.
            (doc! {"$or": [{"a": -7, "b": 9}, {"a": 10, "b": 1}]}, &[0, 1, 2]),
            (doc! {"a": {"$gte": 0, "$lte": 5}, "b": 9}, &[2]),
            (doc! {"a": {"$gte": 3}, "b": 7}, &[1, 2]),
            (doc! {"a": 20, "c": 1}, &[1]),
            // A contradiction on a field behind one that is free goes everywhere, as in mongos.
            (doc! {"b": {"$in": []}}, &[0, 1, 2]),
            (doc! {"a": MaxKey, "b": MaxKey}, &[0]),
        ],
    );
}

#[test]
fn hashed_key() {
    check(
        &h(),
        vec![
            (doc! {"a": 1}, &[2]),
            (doc! {"a": 1.5}, &[2]),
            (doc! {"a": {"$in": [1, 1.5]}}, &[2]),
            (doc! {"a": "abc"}, &[2]),
            (doc! {"a": {"x": 1}}, &[2]),
            (doc! {"a": 2}, &[1]),
            (doc! {"a": -1}, &[1]),
            (doc! {"a": Null}, &[1]),
            (doc! {"a": {"$exists": false}}, &[1]),
            (doc! {"a": 42}, &[0]),
            (doc! {"$expr": {"$eq": ["$a", 42]}}, &[0]),
            (doc! {"a": {"$in": [1, 42]}}, &[0, 2]),
            (doc! {"$or": [{"a": 1}, {"a": 42}]}, &[0, 2]),
            (doc! {"$and": [{"a": 1}, {"a": 42}]}, &[0]),
            (doc! {"a": [1]}, &[1, 2]),
            (doc! {"a": {"$gte": 42, "$lte": 42}}, &[0, 1, 2]),
            (doc! {"a": {"$gt": 42}}, &[0, 1, 2]),
            (doc! {"a": {"$ne": 42}}, &[0, 1, 2]),
            (doc! {"a": {"$exists": true}}, &[0, 1, 2]),
            (doc! {"a": regex("^abc", "")}, &[0, 1, 2]),
            (doc! {"a": {"$in": [regex("^abc", ""), 42]}}, &[0, 1, 2]),
        ],
    );
}

#[test]
fn compound_key_hashed_first() {
    check(
        &hc(),
        vec![
            (doc! {"a": 42}, &[0]),
            (doc! {"a": 42, "b": 7}, &[0]),
            (doc! {"a": 1}, &[2]),
            (doc! {"a": {"$in": [1, 42]}, "b": {"$gt": 3}}, &[0, 2]),
            (doc! {"b": 7}, &[0, 1, 2]),
            (doc! {"a": {"$gt": 1}}, &[0, 1, 2]),
        ],
    );
}

#[test]
fn compound_key_hashed_second() {
    check(
        &ch(),
        vec![
            (doc! {"a": 3}, &[0]),
            (doc! {"a": 5}, &[0, 1]),
            (doc! {"a": 5, "b": 1}, &[1]),
            (doc! {"a": 5, "b": 42}, &[0]),
            (doc! {"a": 5, "b": Null}, &[1]),
            (doc! {"a": 5, "b": {"$gt": 1}}, &[0, 1]),
            (doc! {"a": 5, "b": {"$in": [1, 42]}}, &[0, 1]),
            (doc! {"a": {"$in": [3, 7]}, "b": 1}, &[0, 2]),
            (doc! {"b": 1}, &[0, 1, 2]),
            (doc! {"a": {"$gt": 5}, "b": 1}, &[1, 2]),
        ],
    );
}

#[test]
fn dotted_key() {
    check(
        &dot(),
        vec![
            (doc! {"a.b": 5}, &[2]),
            (doc! {"a": {"b": 5}}, &[2]),
            (doc! {"a": {"b": 5, "c": 1}}, &[2]),
            (doc! {"a": {"$elemMatch": {"b": 5}}}, &[2]),
            (doc! {"a.b": Null}, &[0]),
            (doc! {"a.b": {"$gt": 100}}, &[1]),
            (doc! {"a": {"c": 1}}, &[0, 1, 2]),
            (doc! {"a": 5}, &[0, 1, 2]),
            (doc! {"a": Null}, &[0, 1, 2]),
            (doc! {"a.b.c": 1}, &[0, 1, 2]),
            (doc! {"a": {"$gt": {"b": 5}}}, &[0, 1, 2]),
        ],
    );
}

/// With a collation only what it cannot touch is targeted; a regex prefix ignores collations.
#[test]
fn collation() {
    for (collection, request) in [(r(), Some(EN())), (r().with_default_collation(&EN()), None)] {
        let target = |filter: Document| collection.target(&filter, request.as_ref());
        for filter in [
            doc! {"a": "zz"},
            doc! {"a": {"$gte": "n"}},
            doc! {"a": {"x": 1}},
            doc! {"a": {"$in": [5, "zz"]}},
            doc! {"a": ["zz"]},
            doc! {"$expr": {"$eq": ["$a", "zz"]}},
        ] {
            assert_eq!(target(filter.clone()), [0, 1, 2], "{filter}");
        }
        assert_eq!(target(doc! {"a": 5}), [2]);
        assert_eq!(target(doc! {"a": Null}), [0]);
        assert_eq!(target(doc! {"a": {"$gte": 200, "$lt": 300}}), [1]);
        assert_eq!(target(doc! {"a": bson::oid::ObjectId::from_bytes([1; 12])}), [2]);
        assert_eq!(target(doc! {"a": regex("^zz", "")}), [2]);
    }
    assert_eq!(h().target(&doc! {"a": 42}, Some(&EN())), [0]);
    assert_eq!(h().target(&doc! {"a": "abc"}, Some(&EN())), [0, 1, 2]);
    let simple = doc! {"locale": "simple"};
    assert_eq!(r().with_default_collation(&EN()).target(&doc! {"a": "zz"}, Some(&simple)), [2]);
}

/// Inserts go by the document's key, in simple order.
#[test]
fn documents() {
    let r = r();
    assert_eq!(r.owner(&doc! {"b": 1}), Some(0));
    assert_eq!(r.owner(&doc! {"a": regex("x", "")}), Some(2));
    assert_eq!(r.owner(&doc! {"a": f64::NAN}), Some(0));
    assert_eq!(r.owner(&doc! {"a": MaxKey}), None);
    assert_eq!(dot().owner(&doc! {"a": 5}), Some(0));
    assert_eq!(rc().owner(&doc! {"a": MaxKey, "b": MaxKey}), None);
    assert_eq!(rc().owner(&doc! {"a": MaxKey, "b": 1}), Some(1));
    assert_eq!(h().owner(&doc! {"a": 1.5}), h().owner_of_hash(hashed(1)));
    assert_eq!(h().owner(&doc! {"a": decimal("1.5")}), h().owner_of_hash(hashed(2)));
    assert_eq!(h().owner(&doc! {}), h().owner_of_hash(shard_key::hash::NULL_HASH));
}

/// A field behind one that spreads reaches from its lowest to its highest value.
#[test]
fn later_fields_reach_from_end_to_end() {
    check(
        &rc(),
        vec![
            (doc! {"a": {"$gte": 5, "$lte": 10}, "b": {"$in": [1, 9]}}, &[1, 2]),
            (doc! {"a": {"$gte": 5, "$lte": 10}, "b": {"$in": [1, 4]}}, &[2]),
            (doc! {"a": {"$gte": -5, "$lte": 3}, "b": {"$in": [-1, 9]}}, &[0, 2]),
        ],
    );
}

/// In expressions a field that is missing is below null; its key is null.
#[test]
fn below_null_in_expressions() {
    let chunks = [(doc! {"a": MinKey}, 0), (doc! {"a": Null}, 1), (doc! {"a": 0}, 2)];
    let collection = Collection::new(&doc! {"a": 1}, &chunks);
    let query = doc! {"a": Null, "$expr": {"$lt": ["$a", Null]}};
    assert_eq!(collection.target(&query, None), [0, 1]);
    assert_eq!(collection.owner(&doc! {}), Some(1));
}
