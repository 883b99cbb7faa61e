//! Hashes of random values against a real mongod: `MONGOD=/path cargo test -p shard-key --test server_hash -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "../../document/tests/oracle/mod.rs"]
mod oracle;

use bson::{Bson, Document, doc};
use document::Doc;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

fn any_bson() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        any::<f64>().prop_map(Bson::Double),
        (-1e19f64..1e19).prop_map(Bson::Double),
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        (any::<i64>(), -20i32..3).prop_map(|(n, e)| Bson::Decimal128(format!("{n}E{e}").parse().unwrap())),
        any::<[u8; 16]>().prop_map(|bytes| Bson::Decimal128(bson::Decimal128::from_bytes(bytes))),
        ".{0,8}".prop_map(Bson::String),
        "[a-z]{0,4}".prop_map(Bson::Symbol),
        "[a-z]{0,4}".prop_map(Bson::JavaScriptCode),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i64>().prop_map(|ms| Bson::DateTime(bson::DateTime::from_millis(ms))),
        any::<[u8; 12]>().prop_map(|id| Bson::ObjectId(bson::oid::ObjectId::from_bytes(id))),
        any::<(u32, u32)>()
            .prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        (0u8..8, proptest::collection::vec(any::<u8>(), 0..9))
            .prop_filter("old binaries have an inner length", |(subtype, _)| *subtype != 2)
            .prop_map(|(subtype, bytes)| Bson::Binary(bson::Binary { subtype: subtype.into(), bytes })),
        Just(Bson::Null),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
        Just(Bson::Undefined),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec(("[a-z]{0,3}", inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect::<Document>())),
        ]
    })
}

#[test]
#[ignore = "needs MONGOD=/path"]
fn hashes_of_random_values_are_the_servers() {
    let mut server = oracle::Oracle::start();
    let mut runner = TestRunner::default();
    let values: Vec<Bson> = (0..3000).map(|_| any_bson().new_tree(&mut runner).unwrap().current()).collect();
    let mut asked = 0;
    for chunk in values.chunks(100) {
        let fields = chunk.iter().enumerate().map(|(i, value)| {
            (format!("h{i}"), Bson::from(doc! {"$toHashedIndexKey": {"$literal": value.clone()}}))
        });
        let project: Document = fields.collect();
        let reply = server.run(
            "admin",
            doc! {"aggregate": 1, "pipeline": [{"$documents": [{"x": 1}]}, {"$project": project}], "cursor": {}},
        );
        let answer =
            reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
        for (i, value) in chunk.iter().enumerate() {
            let bytes = doc! {"v": value.clone()}.to_vec().unwrap();
            let field = Doc::validate(&bytes).unwrap().field("v").unwrap();
            assert_eq!(
                shard_key::hash::hash_field(field),
                answer.get_i64(format!("h{i}")).unwrap(),
                "{value:?}"
            );
            asked += 1;
        }
    }
    assert_eq!(asked, 3000);
}
