use bson::{Bson, Document, doc};
use document::{Doc, DocBuf, Timestamp, Value};

use super::{ChunkVersion, DatabaseVersion};

/// `{t: T(1796101117,22), e: OID("6b0e53fd…84ed"), v: T(2,1)}`, as a 6.0.5 router sends it.
fn captured() -> ChunkVersion {
    ChunkVersion {
        timestamp: Timestamp::new(1_796_101_117, 22),
        epoch: [0x6b, 0x0e, 0x53, 0xfd, 1, 2, 3, 4, 5, 6, 0x84, 0xed],
        major: 2,
        minor: 1,
    }
}

fn timestamp(time: u32, increment: u32) -> Bson {
    Bson::Timestamp(bson::Timestamp { time, increment })
}

fn oid(bytes: [u8; 12]) -> Bson {
    bson::oid::ObjectId::from_bytes(bytes).into()
}

fn written(write: impl FnOnce(&mut document::DocWriter<'_>)) -> Document {
    let mut buf = DocBuf::new();
    buf.write(write);
    Document::from_reader(buf.as_bytes()).unwrap()
}

fn parse(value: impl Into<Bson>) -> Option<ChunkVersion> {
    let bytes = doc! {"v": value.into()}.to_vec().unwrap();
    ChunkVersion::parse(Doc::validate(&bytes).unwrap().get("v").unwrap())
}

#[test]
fn form_of_6_0_and_later() {
    let version = captured();
    let expected = doc! {"e": oid(version.epoch), "t": timestamp(1_796_101_117, 22), "v": timestamp(2, 1)};
    assert_eq!(written(|w| version.write(w, "shardVersion")), doc! {"shardVersion": expected.clone()});
    assert_eq!(version.to_document().to_vec(), expected.to_vec().unwrap());
    assert_eq!(parse(expected), Some(version));
}

#[test]
fn unsharded_and_ignored() {
    let unsharded = doc! {"e": oid([0; 12]), "t": timestamp(0, 0), "v": timestamp(0, 0)};
    assert_eq!(ChunkVersion::UNSHARDED.to_document().to_vec(), unsharded.to_vec().unwrap());
    let epoch = oid([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let ignored = doc! {"e": epoch, "t": timestamp(u32::MAX, u32::MAX), "v": timestamp(0, 0)};
    assert_eq!(ChunkVersion::IGNORED.to_document().to_vec(), ignored.to_vec().unwrap());
}

#[test]
fn form_of_5_0() {
    let version = captured();
    let array = vec![timestamp(2, 1), oid(version.epoch), timestamp(1_796_101_117, 22)];
    assert_eq!(written(|w| version.write_5_0(w, "v")), doc! {"v": array.clone()});
    assert_eq!(parse(array), Some(version));

    let epoch = oid(ChunkVersion::IGNORED.epoch);
    let ignored = vec![timestamp(0, 0), epoch, true.into()];
    assert_eq!(written(|w| ChunkVersion::IGNORED.write_5_0(w, "v")), doc! {"v": ignored.clone()});
    assert_eq!(parse(ignored), Some(ChunkVersion::IGNORED));

    let unsharded = vec![timestamp(0, 0), oid([0; 12])];
    assert_eq!(parse(unsharded), Some(ChunkVersion::UNSHARDED));
}

/// 7.0 and 8.0 add fields that are not needed here, at any place.
#[test]
fn forms_of_7_0_and_8_0() {
    let version = captured();
    let seven = doc! {"t": timestamp(1_796_101_117, 22), "e": oid(version.epoch), "v": timestamp(2, 1), "i": timestamp(1, 1)};
    assert_eq!(parse(seven), Some(version));
    let eight = doc! {
        "placementConflictTime": timestamp(9, 9),
        "e": oid(version.epoch), "t": timestamp(1_796_101_117, 22), "v": timestamp(2, 1),
        "ignoreCollectionUuidMismatch": true,
    };
    assert_eq!(parse(eight), Some(version));
}

#[test]
fn what_is_no_version() {
    assert_eq!(parse("x"), None);
    assert_eq!(parse(doc! {"v": timestamp(1, 1), "e": oid([1; 12])}), None);
    assert_eq!(parse(doc! {"v": 1, "e": oid([1; 12]), "t": timestamp(1, 1)}), None);
    assert_eq!(parse(vec![timestamp(1, 1)]), None);
    assert_eq!(parse(vec![timestamp(1, 1), oid([1; 12]), true.into()]), None);
}

#[test]
fn versions_compare_by_timestamp_then_major_then_minor() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let version = captured();
    let with = |timestamp, major, minor| ChunkVersion { timestamp, major, minor, ..version };
    let t = version.timestamp;
    assert_eq!(version.compare(version), Some(Equal));
    assert_eq!(version.compare(with(t, 2, 2)), Some(Less));
    assert_eq!(version.compare(with(t, 1, 9)), Some(Greater));
    assert_eq!(version.compare(with(Timestamp::new(t.seconds, 23), 1, 0)), Some(Less));
    // The epoch says nothing.
    assert_eq!(version.compare(ChunkVersion { epoch: [9; 12], ..version }), Some(Equal));
    for unknown in
        [ChunkVersion::UNSHARDED, ChunkVersion::IGNORED, with(t, 0, 0), with(Timestamp::default(), 2, 1)]
    {
        assert_eq!(version.compare(unknown), None);
        assert_eq!(unknown.compare(version), None);
    }
}

#[test]
fn database_versions() {
    let version = DatabaseVersion { uuid: [7; 16], timestamp: Timestamp::new(1_796_101_117, 6), last_mod: 3 };
    let expected = doc! {
        "uuid": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] },
        "timestamp": timestamp(1_796_101_117, 6),
        "lastMod": 3,
    };
    assert_eq!(version.to_document().to_vec(), expected.to_vec().unwrap());
    assert_eq!(written(|w| version.write(w, "v")), doc! {"v": expected.clone()});
    let bytes = expected.to_vec().unwrap();
    assert_eq!(DatabaseVersion::parse(Doc::validate(&bytes).unwrap()), Some(version));

    let moved = DatabaseVersion { last_mod: 4, ..version };
    let created_again =
        DatabaseVersion { last_mod: 1, timestamp: Timestamp::new(1_796_101_118, 1), ..version };
    assert!(moved.reaches(version) && version.reaches(version) && !version.reaches(moved));
    assert!(created_again.reaches(moved) && !moved.reaches(created_again));

    let mut wrong = DocBuf::new();
    wrong.append("uuid", Value::ObjectId([0; 12])).append("lastMod", 1);
    assert_eq!(DatabaseVersion::parse(wrong.as_doc()), None);
}
