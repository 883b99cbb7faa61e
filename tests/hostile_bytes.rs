//! Bytes that are no MongoDB message: an error or a closed connection, and the process stays as it was.

use std::time::Duration;

use bson::{Document, doc};
use testkit::raw::{OP_COMPRESSED, OP_MSG, OP_QUERY, RawConn, frame, frame_announcing, is_ok, msg_body};
use testkit::{Cluster, Router};
use tokio::time::timeout;

const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// What a healthy process may gain by serving a few hundred connections.
const MEMORY_BYTES: u64 = 48 * 1024 * 1024;

/// What must come back.
enum Expected {
    /// An answer with this error code.
    Code(i32),
    /// The connection is closed, without any answer.
    Closed,
    /// Either an error or a close.
    Refused,
}

fn section(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(payload);
    bytes
}

/// A section of kind 1 that announces `size`.
fn sequence(size: i32, name: &[u8], documents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(documents);
    bytes
}

fn msg(flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    let mut body = flags.to_le_bytes().to_vec();
    sections.iter().for_each(|section| body.extend_from_slice(section));
    frame(7, OP_MSG, &body)
}

/// A document of this many levels, written by hand: an encoder might refuse or recurse.
fn nested(levels: usize) -> Vec<u8> {
    let mut document = vec![5, 0, 0, 0, 0];
    for _ in 0..levels {
        let mut outer = vec![0; 4];
        outer.extend_from_slice(&[3, b'a', 0]);
        outer.extend_from_slice(&document);
        outer.push(0);
        let length = i32::try_from(outer.len()).unwrap();
        outer[..4].copy_from_slice(&length.to_le_bytes());
        document = outer;
    }
    document
}

/// `{find: "c", filter: <these bytes>, $db: "h"}`.
fn find_with(filter: &[u8]) -> Vec<u8> {
    let mut document = doc! { "find": "c", "$db": "h" }.to_vec().unwrap();
    document.pop();
    document.extend_from_slice(b"\x03filter\0");
    document.extend_from_slice(filter);
    document.push(0);
    let length = i32::try_from(document.len()).unwrap();
    document[..4].copy_from_slice(&length.to_le_bytes());
    document
}

fn compressed(original: i32, size: i32, compressor: u8, data: &[u8]) -> Vec<u8> {
    let mut body = original.to_le_bytes().to_vec();
    body.extend_from_slice(&size.to_le_bytes());
    body.push(compressor);
    body.extend_from_slice(data);
    frame(7, OP_COMPRESSED, &body)
}

fn cases() -> Vec<(&'static str, Vec<u8>, Expected)> {
    let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
    let body = section(0, &ping);
    let mut lying = ping.clone();
    lying[..4].copy_from_slice(&1_000_i32.to_le_bytes());
    let mut tiny = ping.clone();
    tiny[..4].copy_from_slice(&3_i32.to_le_bytes());
    let mut unended = ping.clone();
    *unended.last_mut().unwrap() = 1;
    let mut bad_type = ping.clone();
    bad_type[4] = 0x55;
    let mut long_string = doc! { "ping": "x", "$db": "admin" }.to_vec().unwrap();
    // The length of the string "x" follows the length, the type and the name.
    long_string[10..14].copy_from_slice(&i32::MAX.to_le_bytes());
    let mut negative_string = long_string.clone();
    negative_string[10..14].copy_from_slice(&(-1_i32).to_le_bytes());
    let documents = doc! { "n": 1 }.to_vec().unwrap();
    let sized = |extra: i32| i32::try_from(4 + b"documents\0".len() + documents.len()).unwrap() + extra;
    let insert = section(0, &doc! { "insert": "c", "$db": "h" }.to_vec().unwrap());
    let mut checksum = msg(1, std::slice::from_ref(&body));
    checksum.extend_from_slice(&[1, 2, 3, 4]);
    let length = i32::try_from(checksum.len()).unwrap();
    checksum[..4].copy_from_slice(&length.to_le_bytes());
    vec![
        ("a frame of 2 GiB", frame_announcing(i32::MAX, 1, OP_MSG, &[0; 64]), Expected::Refused),
        ("a frame of 48,000,001 bytes", frame_announcing(48_000_001, 1, OP_MSG, &[0; 64]), Expected::Refused),
        ("a negative length", frame_announcing(-1, 1, OP_MSG, &[0; 64]), Expected::Refused),
        ("a length of zero", frame_announcing(0, 1, OP_MSG, &[0; 64]), Expected::Refused),
        ("a length below the header", frame_announcing(15, 1, OP_MSG, &[0; 64]), Expected::Refused),
        ("a header alone", frame(1, OP_MSG, &[]), Expected::Refused),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), Expected::Refused),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00".to_vec(),
            Expected::Refused,
        ),
        ("an unknown opcode", frame(1, 4_242, &[0; 40]), Expected::Refused),
        ("OP_INSERT", frame(1, 2002, &[0; 40]), Expected::Refused),
        (
            "OP_QUERY that is no handshake",
            frame(1, OP_QUERY, &legacy(b"h.c\0", &doc! { "x": 1 })),
            Expected::Refused,
        ),
        ("OP_QUERY without an end of its name", frame(1, OP_QUERY, &[b'x'; 60]), Expected::Refused),
        ("an unknown kind of section", msg(0, &[body.clone(), section(7, &ping)]), Expected::Code(40432)),
        ("no section", msg(0, &[]), Expected::Refused),
        ("no body", msg(0, &[sequence(sized(0), b"documents\0", &documents)]), Expected::Code(40587)),
        ("two bodies", msg(0, &[body.clone(), body.clone()]), Expected::Code(40430)),
        ("a document longer than the message", msg(0, &[section(0, &lying)]), Expected::Code(22)),
        ("a document shorter than a document", msg(0, &[section(0, &tiny)]), Expected::Code(22)),
        ("a document without an end", msg(0, &[section(0, &unended)]), Expected::Code(22)),
        ("an unknown type of value", msg(0, &[section(0, &bad_type)]), Expected::Code(22)),
        ("a string of 2 GiB", msg(0, &[section(0, &long_string)]), Expected::Code(22)),
        ("a string of a negative length", msg(0, &[section(0, &negative_string)]), Expected::Code(22)),
        (
            "a section past the end",
            msg(0, &[insert.clone(), sequence(sized(500), b"documents\0", &documents)]),
            Expected::Refused,
        ),
        (
            "a section of 2 GiB",
            msg(0, &[insert.clone(), sequence(i32::MAX, b"documents\0", &documents)]),
            Expected::Refused,
        ),
        (
            "a section of a negative size",
            msg(0, &[insert.clone(), sequence(-5, b"documents\0", &documents)]),
            Expected::Refused,
        ),
        (
            "a section too short for its document",
            msg(0, &[insert.clone(), sequence(sized(-3), b"documents\0", &documents)]),
            Expected::Refused,
        ),
        (
            "a sequence without an end of its name",
            msg(0, &[insert, sequence(20, b"documentsdocuments", &[])]),
            Expected::Refused,
        ),
        ("an unknown required flag", msg(1 << 5, std::slice::from_ref(&body)), Expected::Closed),
        ("a wrong checksum", checksum, Expected::Closed),
        ("300 levels", msg(0, &[section(0, &find_with(&nested(300)))]), Expected::Code(15)),
        ("20,000 levels", msg(0, &[section(0, &find_with(&nested(20_000)))]), Expected::Refused),
        ("compressed with nobody's compressor", compressed(OP_MSG, 100, 9, &[0; 20]), Expected::Refused),
        ("compressed, 2 GiB announced", compressed(OP_MSG, i32::MAX, 2, &[0; 20]), Expected::Refused),
        ("compressed, a negative size", compressed(OP_MSG, -7, 1, &[0; 20]), Expected::Refused),
        ("compressed in compressed", compressed(OP_COMPRESSED, 20, 0, &[0; 20]), Expected::Refused),
        ("compressed, cut off", frame(7, OP_COMPRESSED, &[0; 5]), Expected::Refused),
    ]
}

fn legacy(ns: &[u8], query: &Document) -> Vec<u8> {
    let mut body = 0_i32.to_le_bytes().to_vec();
    body.extend_from_slice(ns);
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&(-1_i32).to_le_bytes());
    query.to_writer(&mut body).unwrap();
    body
}

async fn connect(router: &Router) -> RawConn {
    router.raw().await.unwrap()
}

async fn assert_alive(router: &Router, after: &str) {
    assert!(router.is_running(), "the router died of {after}");
    let mut conn = connect(router).await;
    let reply = timeout(ANSWER_LIMIT, conn.command("h", doc! { "count": "c" })).await;
    let reply = reply.unwrap_or_else(|_| panic!("the router hangs after {after}")).unwrap();
    assert!(is_ok(&reply) && reply.get_i32("n").ok() == Some(10), "after {after}: {reply}");
}

async fn check(address: &str, what: &str, bytes: &[u8], expected: &Expected, greeted: bool) {
    let mut conn = RawConn::connect(address).await.unwrap();
    if greeted {
        conn.command_ok("admin", doc! { "hello": 1 }).await.unwrap();
    }
    // The other side may close before all is written.
    let _ = conn.send(bytes).await;
    let _ = conn.shut_sending().await;
    let answer = timeout(ANSWER_LIMIT, conn.receive()).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what}: neither an answer nor a close"));
    let answer = answer.ok().flatten().map(|frame| frame.document().unwrap());
    match (expected, answer) {
        (Expected::Code(code), Some(reply)) => {
            assert_eq!(reply.get_i32("code").ok(), Some(*code), "{what}: {reply}");
            assert!(!is_ok(&reply), "{what}: {reply}");
        }
        (Expected::Code(code), None) => panic!("{what}: closed instead of an answer with code {code}"),
        (Expected::Closed, Some(reply)) => panic!("{what}: answered instead of closed: {reply}"),
        (Expected::Refused, Some(reply)) => assert!(!is_ok(&reply), "{what}: {reply}"),
        (Expected::Closed | Expected::Refused, None) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expectations_are_what_a_mongod_gives() {
    let cluster = Cluster::builder().shards(1).without_router().start().await.unwrap();
    let mongod = cluster.shard(0).unwrap().member(0).unwrap();
    for (what, bytes, expected) in cases() {
        check(&mongod.address(), what, &bytes, &expected, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_messages_get_what_a_mongod_gives() {
    let cluster = Cluster::builder().shards(1).start().await.unwrap();
    let coll = cluster.client().await.unwrap().database("h").collection::<Document>("c");
    coll.insert_many((0..10).map(|n| doc! { "n": n })).await.unwrap();
    let router = cluster.router(0).unwrap();
    let pid = router.pid().unwrap();
    let before = router.usage().unwrap().rss_bytes;
    for (what, bytes, expected) in cases() {
        for greeted in [false, true] {
            check(&router.address(), what, &bytes, &expected, greeted).await;
        }
        assert_alive(router, what).await;
    }
    assert_eq!(router.pid().unwrap(), pid);
    let after = router.usage().unwrap();
    assert!(
        after.peak_rss_bytes < before + MEMORY_BYTES,
        "the router grew from {before} to {}",
        after.peak_rss_bytes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn promised_bytes_cost_no_memory() {
    let cluster = Cluster::builder().shards(1).start().await.unwrap();
    let coll = cluster.client().await.unwrap().database("h").collection::<Document>("c");
    coll.insert_many((0..10).map(|n| doc! { "n": n })).await.unwrap();
    let router = cluster.router(0).unwrap();
    let before = router.usage().unwrap().rss_bytes;
    let mut open = Vec::new();
    for _ in 0..300 {
        let mut conn = connect(router).await;
        // 48 MB each are announced, which is allowed, and never come.
        conn.send(&frame_announcing(47_999_999, 1, OP_MSG, &msg_body(0, &doc! { "ping": 1 }).unwrap()))
            .await
            .unwrap();
        open.push(conn);
    }
    assert_alive(router, "300 connections in the middle of a frame").await;
    let during = router.usage().unwrap();
    assert!(
        during.rss_bytes < before + MEMORY_BYTES,
        "the router grew from {before} to {}",
        during.rss_bytes
    );
    drop(open);
    testkit::eventually("the descriptors are closed", || async {
        router.usage().is_ok_and(|usage| usage.descriptors < 100)
    })
    .await
    .unwrap();
    assert_alive(router, "300 broken connections").await;
}
