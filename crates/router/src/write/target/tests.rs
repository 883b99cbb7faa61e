use bson::{RawDocumentBuf, rawdoc};
use chunk_map::{CollectionChangesBuilder, CollectionRouting};
use document::Doc;

use super::{Aim, find_and_modify, target};
use crate::write::statement::{Kind, Statements};

fn raw(doc: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc.clone()).unwrap()
}

/// Three shards: below 100, from 100, from 200, in the first field of the key.
fn routing(key: &bson::Document, collation: Option<bson::Document>) -> CollectionRouting {
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let time = |increment| bson::Timestamp { time: 5, increment };
    let mut collection = bson::doc! {
        "_id": "d.r", "lastmodEpoch": bson::oid::ObjectId::new(), "lastmod": bson::DateTime::from_millis(0),
        "timestamp": time(1), "uuid": uuid.clone(), "key": key.clone(), "unique": false,
    };
    if let Some(collation) = collation {
        collection.insert("defaultCollation", collation);
    }
    let mut builder = CollectionChangesBuilder::new();
    builder.push_collection(Doc::new(raw(&collection).as_bytes()).unwrap()).unwrap();
    let bound = |value: bson::Bson| {
        let mut doc = bson::Document::new();
        for (at, field) in key.keys().enumerate() {
            let fill = if value == bson::Bson::MaxKey { bson::Bson::MaxKey } else { bson::Bson::MinKey };
            doc.insert(field, if at == 0 { value.clone() } else { fill });
        }
        doc
    };
    let bounds = [bson::Bson::MinKey, 100.into(), 200.into(), bson::Bson::MaxKey];
    for (at, pair) in bounds.windows(2).enumerate() {
        let shard = format!("shard{at}");
        let chunk = bson::doc! {
            "_id": bson::oid::ObjectId::new(), "uuid": uuid.clone(), "min": bound(pair[0].clone()),
            "max": bound(pair[1].clone()), "shard": &shard, "lastmod": time(u32::try_from(at).unwrap() + 1),
            "history": [{ "validAfter": time(1), "shard": &shard }],
        };
        builder.push_chunk(Doc::new(raw(&chunk).as_bytes()).unwrap()).unwrap();
    }
    CollectionRouting::full(builder.finish().unwrap().unwrap()).unwrap()
}

/// `shard1`, `all` or the code and the text of the refusal.
fn aim(routing: &CollectionRouting, kind: Kind, item: &RawDocumentBuf) -> String {
    let mut command = document::DocBuf::new();
    command.append("command", "r").write(|w| {
        w.array(kind.items(), [item], |w, name, item| w.put(name, Doc::new(item.as_bytes()).unwrap()));
    });
    let request = crate::request::Request::from_query(command.as_doc(), "d").unwrap();
    let statements = Statements::parse(kind, &request).unwrap();
    match target(statements.get(0).unwrap(), routing) {
        Ok(Aim::One(target)) => target.shard.to_string(),
        Ok(Aim::Any(targets)) => format!("any of {}", targets.len()),
        Ok(Aim::Many(_)) => "all".to_owned(),
        Err(error) => format!("{}: {}", error.code().0, error.message()),
    }
}

#[test]
fn inserts_go_by_their_key() {
    let routing = routing(&bson::doc! { "a": 1 }, Some(bson::doc! { "locale": "en" }));
    let one = |doc: &RawDocumentBuf| aim(&routing, Kind::Insert, doc);
    assert_eq!(one(&rawdoc! { "a": 1 }), "shard0");
    assert_eq!(one(&rawdoc! { "a": 100 }), "shard1");
    assert_eq!(one(&rawdoc! { "a": "strings are above numbers whatever their collation" }), "shard2");
    assert_eq!(one(&rawdoc! { "x": 1 }), "shard0");
    assert_eq!(one(&rawdoc! { "a": [1] }), "61: Shard key cannot contain array values or array descendants.");
    assert_eq!(
        one(&rawdoc! { "a": bson::RawBson::MaxKey }),
        "61: Cannot target single shard using key { a: MaxKey } for namespace d.r"
    );
}

#[test]
fn updates_go_by_their_filter() {
    let routing = routing(&bson::doc! { "a": 1, "b": 1 }, None);
    let one = |item: &RawDocumentBuf| aim(&routing, Kind::Update, item);
    let set = rawdoc! { "$set": { "x": 1 } };
    for (query, multi, upsert, wanted) in [
        (rawdoc! { "a": 1, "b": 1 }, false, false, "shard0"),
        (rawdoc! { "a": 150 }, false, false, "shard1"),
        (rawdoc! { "a": { "$lt": 50 } }, false, false, "shard0"),
        (rawdoc! { "_id": 5 }, false, false, "any of 3"),
        (rawdoc! {}, true, false, "all"),
        (rawdoc! { "a": 250 }, true, false, "shard2"),
        (rawdoc! { "a": 1, "b": 1 }, true, true, "shard0"),
    ] {
        let item = rawdoc! { "q": query, "u": set.clone(), "multi": multi, "upsert": upsert };
        assert_eq!(one(&item), wanted, "{item:?}");
    }
    let text = one(&rawdoc! { "q": { "b": 5 }, "u": set.clone() });
    assert!(text.starts_with("72: A {multi:false} update on a sharded collection must contain"), "{text}");
    assert!(text.contains("targeted 3 shards. Update request: { q: { b: 5 }, u: { $set: { x: 1 } }, multi: false, upsert: false }, shard key pattern: { a: 1, b: 1 }"), "{text}");
    assert!(text.ends_with("add an equality on 'a' to the filter"), "{text}");
    let text = one(&rawdoc! { "q": { "a": 5 }, "u": set, "upsert": true });
    assert!(
        text.starts_with("61: Failed to target upsert by query :: could not extract exact shard key"),
        "{text}"
    );
    assert!(text.ends_with("add an equality on 'b' to the filter"), "{text}");
}

#[test]
fn replacements_go_by_their_own_key_when_the_filter_has_none() {
    let routing = routing(&bson::doc! { "a": 1 }, None);
    let one = |item: &RawDocumentBuf| aim(&routing, Kind::Update, item);
    assert_eq!(one(&rawdoc! { "q": { "x": 1 }, "u": { "a": 150 } }), "shard1");
    assert_eq!(one(&rawdoc! { "q": { "x": 1 }, "u": { "x": 1 } }), "shard0");
    assert_eq!(one(&rawdoc! { "q": { "a": 250 }, "u": { "a": 150 } }), "shard2");
    assert!(one(&rawdoc! { "q": { "x": 1 }, "u": { "a": [1] } }).starts_with(
        "61: Failed to target update by replacement document :: could not extract exact shard key"
    ));
    assert!(
        one(&rawdoc! { "q": { "a": 1 }, "u": { "a": 1 }, "multi": true })
            .starts_with("72: Replacement-style")
    );
    assert!(
        one(&rawdoc! { "q": { "a": 1 }, "u": { "a": 1, "$set": {} } })
            .starts_with("12: update document { a: 1, $set: {} }")
    );
    assert_eq!(one(&rawdoc! { "q": { "a": 1 }, "u": [{ "$set": { "x": 1 } }] }), "shard0");
}

#[test]
fn deletes_of_one_need_the_key_or_an_id() {
    let routing = routing(&bson::doc! { "a": 1 }, None);
    let one = |item: &RawDocumentBuf| aim(&routing, Kind::Delete, item);
    assert_eq!(one(&rawdoc! { "q": { "a": 1 }, "limit": 1 }), "shard0");
    assert_eq!(one(&rawdoc! { "q": { "a": { "$eq": 150 } }, "limit": 0 }), "shard1");
    assert_eq!(one(&rawdoc! { "q": { "_id": 1 }, "limit": 1 }), "any of 3");
    assert_eq!(one(&rawdoc! { "q": { "a": { "$lt": 3 } }, "limit": 0 }), "shard0");
    assert_eq!(one(&rawdoc! { "q": {}, "limit": 0 }), "all");
    let text = one(&rawdoc! { "q": { "a": { "$lt": 3 } }, "limit": 1 });
    assert!(text.starts_with("61: A single delete on a sharded collection must contain"), "{text}");
    assert!(
        text.contains("Delete request: { q: { a: { $lt: 3 } }, limit: 1 }, shard key pattern: { a: 1 }"),
        "{text}"
    );
}

#[test]
fn a_collation_hides_strings_in_the_key() {
    let plain = routing(&bson::doc! { "a": 1 }, None);
    let english = bson::doc! { "locale": "en", "strength": 2 };
    let upsert = rawdoc! { "q": { "a": "s" }, "u": { "$set": { "x": 1 } }, "upsert": true, "collation": raw(&english) };
    assert_eq!(
        aim(&plain, Kind::Update, &upsert),
        "61: Failed to target upsert by query :: caused by :: Cannot target single shard due to collation of key a for namespace d.r"
    );
    let replacement = rawdoc! { "q": { "x": 1 }, "u": { "a": "s" }, "collation": raw(&english) };
    assert!(
        aim(&plain, Kind::Update, &replacement)
            .starts_with("61: Failed to target update by replacement document :: caused by :: Cannot target")
    );
    let number = rawdoc! { "q": { "a": 150 }, "limit": 1, "collation": raw(&english) };
    assert_eq!(aim(&plain, Kind::Delete, &number), "shard1");
    let id = rawdoc! { "q": { "_id": "s" }, "limit": 1, "collation": raw(&english) };
    assert!(aim(&plain, Kind::Delete, &id).starts_with("61:"));
    let collated = routing(&bson::doc! { "a": 1 }, Some(english));
    let string = rawdoc! { "q": { "a": "s" }, "limit": 1 };
    assert!(aim(&collated, Kind::Delete, &string).starts_with("61:"));
    let simple = rawdoc! { "q": { "a": "s" }, "limit": 1, "collation": { "locale": "simple" } };
    assert_eq!(aim(&collated, Kind::Delete, &simple), "shard2");
}

#[test]
fn find_and_modify_needs_the_whole_key() {
    let routing = routing(&bson::doc! { "a": 1, "b": 1 }, None);
    let one = |query: &RawDocumentBuf| {
        find_and_modify(Doc::new(query.as_bytes()).unwrap(), None, &routing)
            .map(|target| target.shard.to_string())
            .map_err(|error| (error.code().0, error.message().to_owned()))
    };
    assert_eq!(one(&rawdoc! { "a": 150, "b": 1 }).unwrap(), "shard1");
    let (code, text) = one(&rawdoc! { "a": 150 }).unwrap_err();
    assert_eq!(code, 61);
    assert!(text.starts_with("Query for sharded findAndModify must contain the shard key"), "{text}");
    assert!(text.contains("'b'") && !text.contains("'a'"), "{text}");
}
