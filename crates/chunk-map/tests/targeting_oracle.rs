//! Targeting against brute force: whatever a random filter matches is on a shard that was chosen for it. Once with
//! a matcher of our own, and once with a real mongod's:
//! `MONGOD=/path cargo test -p chunk-map --test targeting_oracle -- --ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod common;
#[path = "../../document/tests/oracle/mod.rs"]
mod oracle;

use std::cmp::Ordering;

use bson::{Bson, Document, Regex, doc};
use common::{Collection, raw};
use document::order::{compare_values, type_class};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use Bson::{MaxKey, MinKey, Null};

fn collections() -> Vec<Collection> {
    let range = |pattern: Document, bounds: &[Document]| {
        let chunks: Vec<(Document, u32)> = bounds.iter().cloned().zip((0..5).cycle()).collect();
        Collection::new(&pattern, &chunks)
    };
    let pair = |a: Bson, b: Bson| doc! {"a": a, "b": b};
    vec![
        range(
            doc! {"a": 1},
            &[
                MinKey,
                Null,
                0.into(),
                3.into(),
                3.5.into(),
                7.into(),
                "".into(),
                "b".into(),
                doc! {}.into(),
                true.into(),
            ]
            .map(|bound| doc! {"a": bound}),
        ),
        range(
            doc! {"a": 1, "b": 1},
            &[
                pair(MinKey, MinKey),
                pair(0.into(), 5.into()),
                pair(3.into(), MinKey),
                pair(3.into(), "a".into()),
                pair(5.into(), 2.into()),
                pair("a".into(), MinKey),
                pair("a".into(), 4.into()),
            ],
        ),
        range(
            doc! {"a": "hashed"},
            &[MinKey, (-(1i64 << 62)).into(), 0i64.into(), (1i64 << 61).into(), (1i64 << 62).into()]
                .map(|bound| doc! {"a": bound}),
        ),
        range(
            doc! {"a": 1, "b": "hashed"},
            &[
                pair(MinKey, MinKey),
                pair(3.into(), MinKey),
                pair(3.into(), 0i64.into()),
                pair(4.into(), MinKey),
                pair("a".into(), 0i64.into()),
            ],
        ),
    ]
}

/// A filter, of what our own matcher understands.
#[derive(Debug, Clone)]
enum Filter {
    Field(&'static str, Vec<(&'static str, Bson)>),
    Not(&'static str, &'static str, Bson),
    Logic(&'static str, Vec<Filter>),
}

impl Filter {
    fn to_document(&self) -> Document {
        match self {
            Self::Field(path, operators) => {
                let operators: Document =
                    operators.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
                doc! {*path: operators}
            }
            Self::Not(path, name, value) => doc! {*path: {"$not": {*name: value.clone()}}},
            Self::Logic(name, children) => {
                let children: Vec<Bson> = children.iter().map(|child| child.to_document().into()).collect();
                doc! {*name: children}
            }
        }
    }

    fn matches(&self, document: &Document) -> bool {
        match self {
            Self::Field(path, operators) => {
                operators.iter().all(|(name, value)| holds(name, document.get(path), value))
            }
            Self::Not(path, name, value) => !holds(name, document.get(path), value),
            Self::Logic("$and", children) => children.iter().all(|child| child.matches(document)),
            Self::Logic("$or", children) => children.iter().any(|child| child.matches(document)),
            Self::Logic(_, children) => !children.iter().any(|child| child.matches(document)),
        }
    }
}

/// Does a field, if it is there, satisfy an operator? The documents hold no arrays.
fn holds(operator: &str, field: Option<&Bson>, operand: &Bson) -> bool {
    let value = field.unwrap_or(&Null);
    match operator {
        "$in" => operand.as_array().unwrap().iter().any(|item| holds("$eq", field, item)),
        "$nin" => !holds("$in", field, operand),
        "$ne" => !holds("$eq", field, operand),
        "$exists" => field.is_some() == operand.as_bool().unwrap(),
        _ => {
            let (left, right) = (raw(&doc! {"v": value}), raw(&doc! {"v": operand}));
            let (left, right) = (left.as_doc().get("v").unwrap(), right.as_doc().get("v").unwrap());
            let ordering = compare_values(left, right);
            let wanted = match operator {
                "$eq" => ordering == Ordering::Equal,
                "$gt" => ordering == Ordering::Greater,
                "$gte" => ordering != Ordering::Less,
                "$lt" => ordering == Ordering::Less,
                "$lte" => ordering != Ordering::Greater,
                other => panic!("{other}"),
            };
            let same_class = type_class(left.element_type()) == type_class(right.element_type())
                || matches!(operand, MinKey | MaxKey);
            let is_nan = |value: &Bson| matches!(value, Bson::Double(n) if n.is_nan());
            let comparable = is_nan(value) == is_nan(operand) || operator == "$eq" || !same_class;
            wanted && same_class && comparable
        }
    }
}

fn value() -> impl Strategy<Value = Bson> {
    prop_oneof![
        6 => (-2i32..9).prop_map(Bson::Int32),
        2 => (-2i32..16).prop_map(|n| Bson::Double(f64::from(n) / 2.0)),
        1 => (-2i64..9).prop_map(Bson::Int64),
        3 => "[abc]{0,2}".prop_map(Bson::String),
        1 => Just(Null),
        1 => prop_oneof![
            Just(Bson::Double(f64::NAN)),
            Just(Bson::Double(f64::INFINITY)),
            Just(Bson::Double(f64::NEG_INFINITY)),
            Just(MinKey),
            Just(MaxKey),
            Just(Bson::Boolean(true)),
            Just(Bson::Boolean(false)),
            Just(Bson::DateTime(bson::DateTime::from_millis(0))),
            Just(Bson::ObjectId(bson::oid::ObjectId::from_bytes([7; 12]))),
            Just(Bson::Document(doc! {"x": 1})),
            Just(Bson::Decimal128("2.5".parse().unwrap())),
        ],
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    let path = || prop_oneof![4 => Just("a"), 3 => Just("b"), 1 => Just("c")];
    let comparison = || prop_oneof![Just("$eq"), Just("$gt"), Just("$gte"), Just("$lt"), Just("$lte")];
    let operator = prop_oneof![
        8 => (comparison(), value()),
        1 => (Just("$ne"), value()),
        2 => (prop_oneof![3 => Just("$in"), 1 => Just("$nin")], proptest::collection::vec(value(), 0..4))
            .prop_map(|(name, items)| (name, Bson::Array(items))),
        1 => (Just("$exists"), any::<bool>().prop_map(Bson::Boolean)),
    ];
    let leaf = prop_oneof![
        6 => (path(), proptest::collection::vec(operator, 1..3)).prop_map(|(path, mut operators)| {
            operators.dedup_by_key(|(name, _)| *name);
            if operators.len() == 2 && operators[0].0 == operators[1].0 {
                operators.pop();
            }
            Filter::Field(path, operators)
        }),
        1 => (path(), comparison(), value()).prop_map(|(path, name, value)| Filter::Not(path, name, value)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        (
            prop_oneof![3 => Just("$and"), 3 => Just("$or"), 1 => Just("$nor")],
            proptest::collection::vec(inner, 1..4),
        )
            .prop_map(|(name, children)| Filter::Logic(name, children))
    })
}

fn document() -> impl Strategy<Value = Document> {
    (proptest::option::weighted(0.9, value()), proptest::option::weighted(0.9, value()), 0..3i32).prop_map(
        |(a, b, c)| {
            let mut document = doc! {"c": c};
            document.extend(a.map(|a| ("a".to_owned(), a)));
            document.extend(b.map(|b| ("b".to_owned(), b)));
            document
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn what_matches_is_targeted(filter in filter(), documents in proptest::collection::vec(document(), 40)) {
        let query = filter.to_document();
        for collection in collections() {
            let targets = collection.target(&query, None);
            prop_assert!(!targets.is_empty());
            for document in documents.iter().filter(|document| filter.matches(document)) {
                if let Some(owner) = collection.owner(document) {
                    prop_assert!(targets.contains(&owner), "{document} on {owner}, targeted {targets:?}: {query}");
                }
            }
        }
    }
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(Regex {
        pattern: pattern.try_into().unwrap(),
        options: options.try_into().unwrap(),
    })
}

/// Filters with operators that our own matcher does not know.
fn special(runner: &mut TestRunner, out: &mut Vec<Document>) {
    let mut any = || value().new_tree(runner).unwrap().current();
    for _ in 0..60 {
        for operator in ["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"] {
            let literal = doc! {"$literal": any()};
            out.push(doc! {"$expr": {operator: ["$a", literal.clone()]}});
            out.push(doc! {"$expr": {operator: [literal, "$a"]}});
            let (a, b) = (doc! {"$literal": any()}, doc! {"$literal": any()});
            out.push(doc! {"$expr": {"$and": [{operator: ["$a", a.clone()]}, {"$lte": ["$b", b.clone()]}]}});
            out.push(doc! {"$expr": {"$or": [{operator: ["$a", a]}, {"$eq": ["$b", b]}]}});
        }
        out.push(doc! {"a": {"$all": [any()]}, "b": {"$all": [any(), any()]}});
        out.push(doc! {"a": {"$elemMatch": {"$gte": any()}}});
        out.push(doc! {"a": [any()]});
        out.push(doc! {"a": {"$in": [any(), [any()], regex("^a", "")]}});
    }
    for pattern in [
        "^a", "^ab", "a", "^ab?", "^ab*", "^ab{0,1}", "^(a|b)", "^a|^b", "^\\Qa\\E", "^a\\.", "\\Aa", "^",
        "^a+", "b$", "^[ab]", "^a.b",
    ] {
        for options in ["", "i", "m", "s", "x", "mx"] {
            out.push(doc! {"a": regex(pattern, options)});
            out.push(doc! {"a": {"$not": regex(pattern, options)}});
            out.push(doc! {"a": {"$in": [regex(pattern, options), 3]}});
            out.push(doc! {"a": {"$regex": pattern, "$options": options}});
        }
    }
    for kind in [
        "double",
        "string",
        "object",
        "array",
        "binData",
        "objectId",
        "bool",
        "date",
        "null",
        "regex",
        "int",
        "timestamp",
        "long",
        "decimal",
        "minKey",
        "maxKey",
        "number",
    ] {
        out.push(doc! {"a": {"$type": kind}});
        out.push(doc! {"a": {"$type": [kind]}});
        out.push(doc! {"a": {"$not": {"$type": kind}}});
    }
    for code in [1, 2, 3, 7, 8, 9, 10, 16, 18, 19, -1, 127] {
        out.push(doc! {"a": {"$type": code}});
    }
    out.extend([
        doc! {"a": {"$mod": [2, 1]}},
        doc! {"a": {"$bitsAllSet": 1}},
        doc! {"a": {"$in": [[]]}},
        doc! {"a": []},
        doc! {"a.x": 1},
        doc! {"a": {"$elemMatch": {"x": 1}}},
        doc! {"a": {"$elemMatch": {"x": 1, "$or": [{"y": 1}, {"x": 1}]}}},
        doc! {"$expr": {"$gt": ["$a", {"$add": [1, 2]}]}},
        doc! {"$expr": {"$lt": ["$a", {"$subtract": [1, 2]}]}},
        doc! {"$expr": {"$eq": ["$a", {"$multiply": [1, 2, 3]}]}},
        doc! {"$expr": {"$eq": ["$a", {"x": 1}]}},
        doc! {"$expr": {"$eq": ["$a", "$b"]}},
        doc! {"$expr": {"$eq": ["$a", "$$ROOT.b"]}},
        doc! {"$expr": {"$in": ["$a", [1, 2]]}},
        doc! {"$expr": true},
        doc! {"$jsonSchema": {"properties": {"a": {"minimum": 3}}}},
        doc! {"a": {"$gte": regex("a", ""), "$comment": "refused by the server"}},
    ]);
}

#[test]
#[ignore = "needs MONGOD=/path"]
fn what_a_real_server_matches_is_targeted() {
    let mut server = oracle::Oracle::start();
    let mut runner = TestRunner::default();
    let mut documents: Vec<Document> =
        (0..2000).map(|_| document().new_tree(&mut runner).unwrap().current()).collect();
    for text in ["a", "ab", "aB", "AB", "a.b", "b", "\na", "c\nab", "a b", "aab", "ac"] {
        documents.push(doc! {"a": text, "b": 1});
    }
    documents.push(doc! {"a": regex("^a", ""), "b": 1});
    documents.push(doc! {"a": Bson::Undefined, "b": Bson::Undefined});
    documents.push(doc! {"a": Bson::Timestamp(bson::Timestamp { time: 1, increment: 1 })});
    documents.push(doc! {"a": Bson::Binary(bson::Binary { subtype: 0u8.into(), bytes: vec![1, 2] })});
    for (id, document) in documents.iter_mut().enumerate() {
        document.insert("_id", i32::try_from(id).unwrap());
    }
    for part in documents.chunks(500) {
        server.run("t", doc! {"insert": "c", "documents": part.to_vec()});
    }
    let mut filters: Vec<Document> =
        (0..3000).map(|_| filter().new_tree(&mut runner).unwrap().current().to_document()).collect();
    special(&mut runner, &mut filters);
    let collections = collections();
    let owners: Vec<Vec<Option<u32>>> = collections
        .iter()
        .map(|collection| documents.iter().map(|document| collection.owner(document)).collect())
        .collect();
    let (mut wrong, mut refused, mut narrow) = (Vec::new(), 0, 0);
    for query in filters {
        let find = doc! {"find": "c", "filter": query.clone(), "projection": {"_id": 1}, "batchSize": 10_000};
        let Some(found) = server.try_find("t", find) else {
            refused += 1;
            continue;
        };
        for (number, collection) in collections.iter().enumerate() {
            let targets = collection.target(&query, None);
            narrow += usize::from(targets.len() < 5);
            let lost = found.iter().find_map(|hit| {
                let id = usize::try_from(hit.get_i32("_id").unwrap()).unwrap();
                owners[number][id]
                    .filter(|owner| !targets.contains(owner))
                    .map(|owner| (&documents[id], owner))
            });
            if let Some((document, owner)) = lost {
                wrong.push(format!("{number}: {document} on {owner}, targeted {targets:?}: {query}"));
            }
        }
    }
    println!("{refused} filters refused by the server, {narrow} times not all shards");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
    assert!(narrow > 3000 && refused < 400);
}
