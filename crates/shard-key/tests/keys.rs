//! Keys from documents and queries, bounds, and what writes ask beside them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use bson::{Bson, Document, doc};
use document::{Doc, DocBuf, Value};
use shard_key::{
    Collation, KeyPattern, KeyRanges, ShardKey, ShardKeyError, UpdateStyle, exact_id, has_exact_id, hash,
    update_style,
};

use Bson::{MaxKey, MinKey, Null};

fn raw(document: &Document) -> DocBuf {
    Doc::validate(&document.to_vec().unwrap()).unwrap().into()
}

fn pattern(document: &Document) -> KeyPattern {
    KeyPattern::parse(raw(document).as_doc()).unwrap()
}

fn named(pattern: &KeyPattern, key: &ShardKey) -> Document {
    Document::from_reader(pattern.name_fields(key.as_doc()).as_bytes()).unwrap()
}

fn from_document(key: &Document, document: &Document) -> Result<Document, ShardKeyError> {
    let pattern = pattern(key);
    pattern.key_from_document(raw(document).as_doc()).map(|key| named(&pattern, &key))
}

fn from_query(key: &Document, query: &Document) -> Option<Document> {
    let pattern = pattern(key);
    pattern.key_from_query(raw(query).as_doc()).map(|key| named(&pattern, &key))
}

fn regex() -> Bson {
    Bson::RegularExpression(bson::Regex { pattern: "x".try_into().unwrap(), options: "".try_into().unwrap() })
}

#[test]
fn patterns() {
    let parsed = pattern(&doc! {"a": 1, "b.c": 1.0, "d": "hashed", "e": 1_i64});
    let fields: Vec<(&str, bool)> =
        parsed.fields().iter().map(|field| (&*field.path, field.hashed)).collect();
    assert_eq!(fields, [("a", false), ("b.c", false), ("d", true), ("e", false)]);
    assert!(pattern(&doc! {"_id": "hashed"}).is_id() && pattern(&doc! {"_id": 1}).is_id());
    assert!(!pattern(&doc! {"_id": 1, "a": 1}).is_id());
    for wrong in [
        doc! {},
        doc! {"a": -1},
        doc! {"a": "text"},
        doc! {"a": true},
        doc! {"a": "hashed", "b": "hashed"},
        doc! {"a": 1, "a.b": 1},
        doc! {"a.b": 1, "a": 1},
        doc! {"": 1},
        doc! {"a..b": 1},
        doc! {"$a": 1},
        doc! {"a.$b": 1},
    ] {
        let error = KeyPattern::parse(raw(&wrong).as_doc()).unwrap_err();
        assert_eq!(error.code(), 2, "{wrong}");
    }
    // A name that another one starts with is another name.
    pattern(&doc! {"a": 1, "ab": 1});
}

#[test]
fn keys_of_documents() {
    let key = doc! {"a": 1, "b.c": 1};
    let make = |document| from_document(&key, &document);
    assert_eq!(make(doc! {"x": 1, "b": {"c": "t"}, "a": 5}).unwrap(), doc! {"a": 5, "b.c": "t"});
    assert_eq!(make(doc! {}).unwrap(), doc! {"a": Null, "b.c": Null});
    assert_eq!(make(doc! {"b": 5}).unwrap(), doc! {"a": Null, "b.c": Null});
    assert_eq!(make(doc! {"a": regex(), "b": {"c": {}}}).unwrap(), doc! {"a": regex(), "b.c": {}});
    assert_eq!(make(doc! {"a": Bson::Undefined}).unwrap(), doc! {"a": Bson::Undefined, "b.c": Null});
    assert_eq!(make(doc! {"a": {"x": [1]}}).unwrap(), doc! {"a": {"x": [1]}, "b.c": Null});
    for array in [doc! {"a": []}, doc! {"a": 1, "b": [{"c": 1}]}, doc! {"a": 1, "b": {"c": [1]}}] {
        let error = make(array).unwrap_err();
        assert_eq!(error.code(), 61);
        assert_eq!(error.to_string(), "Shard key cannot contain array values or array descendants.");
    }
    let hashed = doc! {"a": 1, "b": "hashed"};
    assert_eq!(
        from_document(&hashed, &doc! {"a": 5, "b": 1}).unwrap(),
        doc! {"a": 5, "b": 5_902_408_780_260_971_510_i64}
    );
    assert_eq!(from_document(&hashed, &doc! {}).unwrap(), doc! {"a": Null, "b": hash::NULL_HASH});
    assert_eq!(from_document(&hashed, &doc! {"b": [1]}), Err(ShardKeyError::ArrayInKey));
    // A dotted name in a document is no path.
    assert_eq!(make(doc! {"b.c": 1}).unwrap(), doc! {"a": Null, "b.c": Null});
}

#[test]
fn keys_of_replacements() {
    let key = |pattern_doc: Document, replacement: Document, query: Document| {
        let pattern = pattern(&pattern_doc);
        let key = pattern.key_from_replacement(raw(&replacement).as_doc(), raw(&query).as_doc()).unwrap();
        named(&pattern, &key)
    };
    assert_eq!(key(doc! {"_id": 1}, doc! {"x": 1}, doc! {"_id": 7}), doc! {"_id": 7});
    assert_eq!(key(doc! {"_id": 1}, doc! {"_id": 8}, doc! {"_id": 7}), doc! {"_id": 8});
    assert_eq!(key(doc! {"_id": 1}, doc! {"x": 1}, doc! {"_id": {"$gt": 7}}), doc! {"_id": Null});
    // Only `_id` is taken from the query.
    assert_eq!(key(doc! {"a": 1, "_id": 1}, doc! {}, doc! {"a": 5, "_id": 7}), doc! {"a": Null, "_id": 7});
}

#[test]
fn keys_of_queries() {
    let key = doc! {"a": 1, "b.c": 1};
    let make = |query| from_query(&key, &query);
    let expected = doc! {"a": 5, "b.c": "t"};
    for query in [
        doc! {"a": 5, "b.c": "t"},
        doc! {"b.c": "t", "x": {"$gt": 1}, "a": {"$eq": 5}},
        doc! {"$and": [{"a": 5}, {"$and": [{"b.c": {"$in": ["t"]}}]}]},
        doc! {"a": {"$eq": 5, "$gt": 1}, "b": {"c": "t", "d": 1}},
        // As the server's own router takes it (6.0.5).
        doc! {"$or": [{"a": 5, "b.c": "t"}]},
        doc! {"a": {"$all": [5]}, "b.c": "t", "$or": [{"x": 1}, {"y": 2}], "$comment": "c"},
    ] {
        assert_eq!(make(query.clone()), Some(expected.clone()), "{query}");
    }
    for query in [
        doc! {},
        doc! {"a": 5},
        doc! {"a": 5, "b.c": {"$gt": 1}},
        doc! {"a": 5, "b.c": {"$in": [1, 2]}},
        doc! {"a": 5, "b.c": {"$in": []}},
        doc! {"a": [5], "b.c": 1},
        doc! {"a": regex(), "b.c": 1},
        doc! {"a": {"$in": [regex()]}, "b.c": 1},
        doc! {"a": Bson::Undefined, "b.c": 1},
        doc! {"a": 5, "b.c": 1, "$and": [{"a": 6}]},
        doc! {"a": 5, "b": {"d": 1}},
        doc! {"a": 5, "b": {"$eq": {"c": 1}}},
        doc! {"$or": [{"a": 5, "b.c": 1}, {"a": 5, "b.c": 1}]},
        doc! {"$or": [{"a": 5}], "b.c": {"$gt": 1}},
        doc! {"a": {"$ref": "c", "$id": 1}, "b.c": 1},
        doc! {"a": {"$not": {"$eq": 5}}, "b.c": 1},
        doc! {"$expr": {"$and": [{"$eq": ["$a", 5]}, {"$eq": ["$b.c", 1]}]}},
    ] {
        assert_eq!(make(query.clone()), None, "{query}");
    }
    assert_eq!(make(doc! {"a": Null, "b.c": {}}), Some(doc! {"a": Null, "b.c": {}}));
    assert_eq!(
        from_query(&doc! {"a": "hashed"}, &doc! {"a": 1.9}),
        Some(doc! {"a": 5_902_408_780_260_971_510_i64})
    );
}

#[test]
fn fields_that_a_collation_hides() {
    let hides = |key: Document, query: Document| {
        let pattern = pattern(&key);
        pattern.collation_hides(raw(&query).as_doc()).map(|field| field.path.to_string())
    };
    assert_eq!(hides(doc! {"a": 1, "b": 1}, doc! {"a": 1, "b": "x"}).as_deref(), Some("b"));
    assert_eq!(hides(doc! {"a": 1, "b": 1}, doc! {"a": 1, "b": 2}), None);
    assert_eq!(hides(doc! {"a": "hashed"}, doc! {"a": 1}).as_deref(), Some("a"));
    assert_eq!(hides(doc! {"a": 1}, doc! {"a": {"x": 1}}).as_deref(), Some("a"));

    let (en, simple, empty) = (raw(&doc! {"locale": "en"}), raw(&doc! {"locale": "simple"}), DocBuf::new());
    let effective = |request: Option<&DocBuf>, default: Option<&DocBuf>| {
        Collation::effective(request.map(DocBuf::as_doc), default.map(DocBuf::as_doc))
    };
    assert_eq!(effective(None, None), Collation::Simple);
    assert_eq!(effective(Some(&en), None), Collation::Locale);
    assert_eq!(effective(None, Some(&en)), Collation::Locale);
    assert_eq!(effective(Some(&empty), Some(&en)), Collation::Locale);
    assert_eq!(effective(Some(&simple), Some(&en)), Collation::Simple);
}

#[test]
fn bounds_given_by_a_prefix() {
    let pattern = pattern(&doc! {"a": 1, "b": 1, "c.d": 1});
    let extend =
        |bound: Document| pattern.extend_bound(raw(&bound).as_doc()).map(|key| named(&pattern, &key));
    assert_eq!(extend(doc! {"a": 5}).unwrap(), doc! {"a": 5, "b": MinKey, "c.d": MinKey});
    assert_eq!(extend(doc! {"a": MaxKey}).unwrap(), doc! {"a": MaxKey, "b": MaxKey, "c.d": MaxKey});
    assert_eq!(extend(doc! {"a": MaxKey, "b": 1}).unwrap(), doc! {"a": MaxKey, "b": 1, "c.d": MinKey});
    assert_eq!(extend(doc! {"a": 1, "b": 2, "c.d": 3}).unwrap(), doc! {"a": 1, "b": 2, "c.d": 3});
    for wrong in [doc! {}, doc! {"b": 1}, doc! {"a": 1, "c.d": 1}, doc! {"a": 1, "b": 1, "c.d": 1, "e": 1}] {
        assert_eq!(extend(wrong.clone()).unwrap_err().code(), 2, "{wrong}");
    }
    assert!(pattern.is_full_key(raw(&doc! {"a": 1, "b": 1, "c.d": 1}).as_doc()));
    assert!(!pattern.is_full_key(raw(&doc! {"a": 1, "b": 1}).as_doc()));
    assert!(!pattern.is_full_key(raw(&doc! {"b": 1, "a": 1, "c.d": 1}).as_doc()));
    assert!(pattern.global_min().is_all_min_key() && pattern.global_max().is_all_max_key());
    assert_eq!(named(&pattern, &pattern.global_max()), doc! {"a": MaxKey, "b": MaxKey, "c.d": MaxKey});
}

#[test]
fn exact_ids() {
    let id = |query: Document| exact_id(raw(&query).as_doc()).map(|value| format!("{value:?}"));
    assert_eq!(id(doc! {"_id": 5, "x": 1}).as_deref(), Some("Int32(5)"));
    assert_eq!(id(doc! {"$and": [{"_id": {"$eq": 5}}]}).as_deref(), Some("Int32(5)"));
    assert!(id(doc! {"_id": {"a": 1}}).is_some());
    for query in [
        doc! {},
        doc! {"_id": {"$gt": 5}},
        doc! {"_id": {"$in": [1, 2]}},
        doc! {"_id": regex()},
        doc! {"_id.a": 1},
    ] {
        assert_eq!(id(query.clone()), None, "{query}");
    }

    let stored = raw(&doc! {
        "locale": "en", "caseLevel": false, "caseFirst": "off", "strength": 2, "numericOrdering": false,
        "alternate": "non-ignorable", "maxVariable": "punct", "normalization": false, "backwards": false,
        "version": "57.1",
    });
    let exact = |query: Document, request: Option<Document>, default: Option<&DocBuf>| {
        let request = request.as_ref().map(raw);
        has_exact_id(raw(&query).as_doc(), request.as_ref().map(DocBuf::as_doc), default.map(DocBuf::as_doc))
    };
    let (text, number) = (doc! {"_id": "x"}, doc! {"_id": 5});
    assert!(exact(text.clone(), None, None) && exact(text.clone(), None, Some(&stored)));
    assert!(!exact(text.clone(), Some(doc! {"locale": "en"}), None));
    assert!(exact(number, Some(doc! {"locale": "en"}), None));
    assert!(exact(text.clone(), Some(doc! {"locale": "simple"}), None));
    assert!(!exact(text.clone(), Some(doc! {"locale": "simple"}), Some(&stored)));
    assert!(exact(text.clone(), Some(doc! {"locale": "en", "strength": 2}), Some(&stored)));
    assert!(!exact(text.clone(), Some(doc! {"locale": "en"}), Some(&stored)));
    assert!(!exact(text.clone(), Some(doc! {"locale": "fr", "strength": 2}), Some(&stored)));
    assert!(exact(text, Some(doc! {}), Some(&stored)));
}

#[test]
fn styles_of_updates() {
    let style = |update: Bson| {
        let document = raw(&doc! {"u": update});
        update_style(document.as_doc().get("u").unwrap())
    };
    assert_eq!(style(doc! {"$set": {"a": 1}, "$inc": {"b": 1}}.into()), Ok(UpdateStyle::Operators));
    assert_eq!(style(doc! {"a": 1, "b": {"$x": 1}}.into()), Ok(UpdateStyle::Replacement));
    assert_eq!(style(doc! {}.into()), Ok(UpdateStyle::Replacement));
    assert_eq!(style(Bson::Array(vec![doc! {"$set": {"a": 1}}.into()])), Ok(UpdateStyle::Pipeline));
    assert_eq!(style(doc! {"$set": {}, "a": 1}.into()).unwrap_err().code(), 12);
    assert_eq!(style(doc! {"a": 1, "$set": {}}.into()).unwrap_err().code(), 12);
    assert_eq!(style(5.into()).unwrap_err().code(), 9);
}

/// Filters that are hostile by size or depth end soon and target more, never less.
#[test]
fn hostile_filters() {
    let pattern = pattern(&doc! {"a": 1});
    let ranges = |filter: &DocBuf| pattern.ranges(filter.as_doc(), Collation::Simple).unwrap();
    // 150 levels of $and around an equality.
    let mut deep = raw(&doc! {"a": 5});
    for _ in 0..150 {
        let mut outer = DocBuf::new();
        outer.write(|w| w.array("$and", [&deep], |w, name, inner| w.put(name, inner)));
        deep = outer;
    }
    assert_eq!(ranges(&deep), KeyRanges::All);
    // 20,000 times `$ne` would make a set of 20,000 intervals 20,000 times over.
    let mut wide = DocBuf::new();
    wide.write(|w| {
        w.array("$and", 0..20_000, |w, name, n| {
            w.doc(name, |w| w.doc("a", |w| w.value("$ne", Value::Int32(n))));
        });
    });
    match ranges(&wide) {
        KeyRanges::Ranges(ranges) => assert!(ranges.len() <= 20_001 && !ranges.is_empty()),
        other => panic!("{other:?}"),
    }
    let mut many = DocBuf::new();
    many.write(|w| w.doc("a", |w| w.array("$in", 0..50_000, |w, name, n| w.value(name, Value::Int32(n)))));
    match ranges(&many) {
        KeyRanges::Ranges(ranges) => assert_eq!(ranges.len(), 50_000),
        other => panic!("{other:?}"),
    }
}

/// A null in a query equals undefined too, which no single key is.
#[test]
fn null_is_two_points() {
    let pattern = pattern(&doc! {"a": 1});
    let ranges = pattern.ranges(raw(&doc! {"a": Null}).as_doc(), Collation::Simple).unwrap();
    let KeyRanges::Ranges(ranges) = ranges else { panic!("{ranges:?}") };
    let undefined = pattern.key_from_document(raw(&doc! {"a": Bson::Undefined}).as_doc()).unwrap();
    assert!(ranges[0].min.order(&undefined).is_eq());
    assert_eq!(ranges.len(), 2);
}
