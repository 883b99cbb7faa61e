use bson::{Bson, Document, doc};
use document::{Doc, DocBuf, Timestamp};

use super::{CollectionChangesBuilder, parse_collection, parse_database, parse_shard};
use crate::version::DatabaseVersion;

fn raw(document: &Document) -> DocBuf {
    Doc::validate(&document.to_vec().unwrap()).unwrap().into()
}

fn uuid(byte: u8) -> Bson {
    Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![byte; 16] })
}

fn timestamp(time: u32, increment: u32) -> Bson {
    Bson::Timestamp(bson::Timestamp { time, increment })
}

fn oid(byte: u8) -> Bson {
    bson::oid::ObjectId::from_bytes([byte; 12]).into()
}

/// As 6.0.5 writes it.
fn collection() -> Document {
    doc! {
        "_id": "t1.r.x", "lastmodEpoch": oid(5), "lastmod": bson::DateTime::from_millis(0),
        "timestamp": timestamp(1_796_101_117, 22), "uuid": uuid(1), "key": {"a": 1, "b.c": "hashed"}, "unique": false,
        "chunksAlreadySplitForDowngrade": false, "noBalance": false,
    }
}

fn chunk(min: Document, max: Document, minor: u32) -> Document {
    doc! {
        "_id": oid(9), "uuid": uuid(1), "min": min, "max": max, "shard": "sh1", "lastmod": timestamp(2, minor),
        "jumbo": false,
        "history": [
            {"validAfter": timestamp(1_796_101_119, 47), "shard": "sh1"},
            {"validAfter": timestamp(1_796_101_117, 22), "shard": "sh0"},
        ],
    }
}

#[test]
fn databases() {
    let entry = doc! {
        "_id": "t1", "primary": "sh0", "partitioned": false,
        "version": {"uuid": uuid(3), "timestamp": timestamp(1_796_101_117, 6), "lastMod": 1},
    };
    let parsed = parse_database(raw(&entry).as_doc()).unwrap();
    assert_eq!((parsed.name.as_str(), parsed.primary.as_str()), ("t1", "sh0"));
    let version = DatabaseVersion { uuid: [3; 16], timestamp: Timestamp::new(1_796_101_117, 6), last_mod: 1 };
    assert_eq!(parsed.version, Some(version));
    for field in ["_id", "primary", "version"] {
        let mut broken = entry.clone();
        broken.remove(field);
        let error = parse_database(raw(&broken).as_doc()).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("config.databases"), "{error}");
    }
}

#[test]
fn shards() {
    let entry = doc! {
        "_id": "sh0", "host": "rs/127.0.0.1:1,127.0.0.1:2", "state": 1, "topologyTime": timestamp(5, 3),
        "tags": ["z0"], "draining": true,
    };
    let parsed = parse_shard(raw(&entry).as_doc()).unwrap();
    assert_eq!((parsed.id.as_str(), &*parsed.set_name), ("sh0", "rs"));
    assert_eq!(parsed.hosts, ["127.0.0.1:1".into(), "127.0.0.1:2".into()]);
    assert!(parsed.draining);
    assert_eq!(parsed.topology_time, Timestamp::new(5, 3));
    for host in ["127.0.0.1:1", "rs/", "/127.0.0.1:1", ""] {
        assert!(parse_shard(raw(&doc! {"_id": "sh0", "host": host}).as_doc()).is_err(), "{host}");
    }
}

#[test]
fn collections() {
    let parsed = parse_collection(raw(&collection()).as_doc()).unwrap().unwrap();
    assert_eq!((parsed.ns.db(), parsed.ns.coll()), ("t1", "r.x"));
    assert_eq!((parsed.uuid, parsed.epoch), ([1; 16], [5; 12]));
    assert!(parsed.key.is_hashed() && parsed.key.fields().len() == 2);
    assert_eq!((parsed.default_collation, parsed.timeseries), (None, None));

    let mut dropped = collection();
    dropped.insert("dropped", true);
    assert_eq!(parse_collection(raw(&dropped).as_doc()), Ok(None));

    let mut other = collection();
    other.insert("defaultCollation", doc! {"locale": "en"});
    other.insert("timeseriesFields", doc! {"timeField": "t"});
    let parsed = parse_collection(raw(&other).as_doc()).unwrap().unwrap();
    assert_eq!(parsed.default_collation, Some(raw(&doc! {"locale": "en"})));
    assert_eq!(parsed.timeseries, Some(raw(&doc! {"timeField": "t"})));

    for (field, value) in [("key", Bson::from(doc! {"a": 2})), ("uuid", oid(1)), ("_id", "nodot".into())] {
        let mut broken = collection();
        broken.insert(field, value);
        assert!(parse_collection(raw(&broken).as_doc()).is_err(), "{field}");
    }
}

/// The collection's own document may come between its chunks.
#[test]
fn aggregation_in_any_order() {
    let (min, middle, max) = (
        doc! {"a": Bson::MinKey, "b.c": Bson::MinKey},
        doc! {"a": 5, "b.c": 0_i64},
        doc! {"a": Bson::MaxKey, "b.c": Bson::MaxKey},
    );
    let documents = [
        doc! {"chunks": chunk(middle.clone(), max, 1)},
        collection(),
        doc! {"chunks": chunk(min, middle, 2)},
    ];
    let mut builder = CollectionChangesBuilder::new();
    for document in &documents {
        builder.push(raw(document).as_doc()).unwrap();
    }
    let changes = builder.finish().unwrap().unwrap();
    assert_eq!(changes.chunks.len(), 2);
    let chunk = &changes.chunks[0];
    assert_eq!(chunk.version, Timestamp::new(2, 1));
    let owners: Vec<&str> = chunk.history.iter().map(|(_, shard)| shard.as_str()).collect();
    assert_eq!(owners, ["sh1", "sh0"]);
    assert!(changes.chunks[1].min.is_all_min_key());
}

#[test]
fn results_that_do_not_belong_together() {
    assert_eq!(CollectionChangesBuilder::new().finish(), Ok(None));
    let feed = |documents: &[Document]| {
        let mut builder = CollectionChangesBuilder::new();
        documents.iter().try_for_each(|document| builder.push(raw(document).as_doc()))?;
        builder.finish()
    };
    let bounds = || (doc! {"a": 1, "b.c": 1_i64}, doc! {"a": 2, "b.c": 1_i64});
    let good = doc! {"chunks": chunk(bounds().0, bounds().1, 1)};
    assert!(feed(&[collection(), good.clone()]).is_ok());
    assert!(feed(std::slice::from_ref(&good)).is_err());
    let mut foreign = chunk(bounds().0, bounds().1, 1);
    foreign.insert("uuid", uuid(2));
    assert!(feed(&[collection(), doc! {"chunks": foreign}]).is_err());
    assert!(feed(&[collection(), doc! {"chunks": chunk(doc! {"a": 1}, bounds().1, 1)}]).is_err());
    for field in ["min", "max", "shard", "lastmod", "uuid"] {
        let mut broken = chunk(bounds().0, bounds().1, 1);
        broken.remove(field);
        assert!(feed(&[collection(), doc! {"chunks": broken}]).is_err(), "{field}");
    }
}
