//! What the protocol allows beside plain requests. Each case also runs against a mongod, so that it asks for nothing odd.

use std::io::Read;
use std::time::Duration;

use bson::{Document, doc};
use testkit::Cluster;
use testkit::raw::{Frame, OP_COMPRESSED, OP_MSG, RawConn, frame, is_ok, msg_body};
use tokio::time::timeout;

const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
const EXHAUST_ALLOWED: u32 = 1 << 16;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The router and, as the oracle, the shard behind it.
async fn both() -> (Cluster, [String; 2]) {
    let cluster = Cluster::builder().shards(1).start().await.unwrap();
    let mongod = cluster.shard(0).unwrap().member(0).unwrap().address();
    let addresses = [mongod, cluster.router(0).unwrap().address()];
    (cluster, addresses)
}

async fn next(conn: &mut RawConn) -> Frame {
    timeout(ANSWER_LIMIT, conn.receive()).await.expect("no answer").unwrap().expect("closed")
}

/// A request with a right checksum at its end.
fn with_checksum(id: i32, document: &Document) -> Vec<u8> {
    let mut bytes = frame(id, OP_MSG, &msg_body(CHECKSUM_PRESENT, document).unwrap());
    let length = i32::try_from(bytes.len() + 4).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn sequence(name: &str, documents: &[Document]) -> Vec<u8> {
    let mut content: Vec<u8> = name.bytes().chain([0]).collect();
    documents.iter().for_each(|document| document.to_writer(&mut content).unwrap());
    let size = i32::try_from(content.len() + 4).unwrap();
    [1].into_iter().chain(size.to_le_bytes()).chain(content).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_checksum_is_answered_with_one() {
    let (_cluster, addresses) = both().await;
    for address in addresses {
        let mut conn = RawConn::connect(&address).await.unwrap();
        conn.send(&with_checksum(5, &doc! { "ping": 1, "$db": "admin" })).await.unwrap();
        let reply = next(&mut conn).await;
        assert_eq!(reply.response_to, 5);
        assert!(is_ok(&reply.document().unwrap()));
        assert_eq!(reply.flags().unwrap() & CHECKSUM_PRESENT, CHECKSUM_PRESENT, "{address}");
        let (content, sum) = reply.body.split_at(reply.body.len() - 4);
        let mut whole = frame(reply.request_id, OP_MSG, content);
        let length = i32::try_from(whole.len() + 4).unwrap();
        whole[..4].copy_from_slice(&length.to_le_bytes());
        whole[8..12].copy_from_slice(&5_i32.to_le_bytes());
        assert_eq!(crc32c::crc32c(&whole).to_le_bytes(), sum, "{address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_on_one_connection_are_answered_in_order_and_more_to_come_is_not() {
    let (_cluster, addresses) = both().await;
    for (index, address) in addresses.iter().enumerate() {
        let mut conn = RawConn::connect(address).await.unwrap();
        let coll = format!("c{index}");
        // One write: an insert of a document sequence that wants no answer, then three requests at once.
        let mut silent =
            msg_body(MORE_TO_COME, &doc! { "insert": &coll, "$db": "w", "writeConcern": { "w": 0 } })
                .unwrap();
        silent.extend(sequence("documents", &[doc! { "_id": 1 }, doc! { "_id": 2 }]));
        let mut bytes = frame(1, OP_MSG, &silent);
        for id in 2..5 {
            let ping = doc! { "ping": 1, "$db": "admin" };
            bytes.extend(frame(id, OP_MSG, &msg_body(0, &ping).unwrap()));
        }
        conn.send(&bytes).await.unwrap();
        for id in 2..5 {
            assert_eq!(next(&mut conn).await.response_to, id, "{address}");
        }
        let reply = conn.command_ok("w", doc! { "count": &coll }).await.unwrap();
        assert_eq!(reply.get_i32("n").unwrap(), 2, "{address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_may_come_one_by_one_and_a_sequence_before_the_body() {
    let (_cluster, addresses) = both().await;
    for (index, address) in addresses.iter().enumerate() {
        let mut conn = RawConn::connect(address).await.unwrap();
        let coll = format!("s{index}");
        let mut body = 0_u32.to_le_bytes().to_vec();
        body.extend(sequence("documents", &[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]));
        body.push(0);
        doc! { "insert": &coll, "$db": "w" }.to_writer(&mut body).unwrap();
        for byte in frame(9, OP_MSG, &body) {
            conn.send(&[byte]).await.unwrap();
        }
        let reply = next(&mut conn).await.document().unwrap();
        assert!(is_ok(&reply) && reply.get_i32("n").ok() == Some(3), "{address}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_streams_when_the_client_allows_it() {
    let (_cluster, addresses) = both().await;
    for address in addresses {
        let mut conn = RawConn::connect(&address).await.unwrap();
        let first = conn.command_ok("admin", doc! { "hello": 1 }).await.unwrap();
        let version = first.get_document("topologyVersion").unwrap_or_else(|_| panic!("{address}: {first}"));
        let wait =
            doc! { "hello": 1, "topologyVersion": version.clone(), "maxAwaitTimeMS": 200, "$db": "admin" };
        conn.send(&frame(77, OP_MSG, &msg_body(EXHAUST_ALLOWED, &wait).unwrap())).await.unwrap();
        let mut answered = 77;
        for _ in 0..3 {
            let reply = next(&mut conn).await;
            assert_eq!(reply.flags().unwrap() & MORE_TO_COME, MORE_TO_COME, "{address}");
            assert_eq!(reply.response_to, answered, "{address}: each answers the one before");
            assert_eq!(
                reply.document().unwrap().get_document("topologyVersion").unwrap(),
                version,
                "{address}"
            );
            answered = reply.request_id;
        }
    }
}

fn compressed(compressor: u8, original: &[u8], data: &[u8]) -> Vec<u8> {
    let mut body = OP_MSG.to_le_bytes().to_vec();
    body.extend(i32::try_from(original.len()).unwrap().to_le_bytes());
    body.push(compressor);
    body.extend_from_slice(data);
    frame(3, OP_COMPRESSED, &body)
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_compressed_as_agreed_in_the_handshake() {
    let (_cluster, addresses) = both().await;
    for address in addresses {
        let mut conn = RawConn::connect(&address).await.unwrap();
        let hello = doc! { "hello": 1, "compression": ["unheard-of", "zlib", "snappy"] };
        let reply = conn.command_ok("admin", hello).await.unwrap();
        let agreed: Vec<&str> =
            reply.get_array("compression").unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(agreed, ["zlib", "snappy"], "{address}");

        let original =
            msg_body(0, &doc! { "find": "none", "$db": "w", "filter": { "text": "x".repeat(500) } }).unwrap();
        let mut zlib = Vec::new();
        flate2::read::ZlibEncoder::new(original.as_slice(), flate2::Compression::fast())
            .read_to_end(&mut zlib)
            .unwrap();
        conn.send(&compressed(2, &original, &zlib)).await.unwrap();
        let reply = next(&mut conn).await;
        assert_eq!((reply.opcode, reply.response_to, reply.body[8]), (OP_COMPRESSED, 3, 2), "{address}");
        let mut plain = Vec::new();
        flate2::read::ZlibDecoder::new(&reply.body[9..]).read_to_end(&mut plain).unwrap();
        assert_eq!(
            plain.len(),
            usize::try_from(i32::from_le_bytes(reply.body[4..8].try_into().unwrap())).unwrap()
        );
        assert!(is_ok(&Document::from_reader(&plain[5..]).unwrap()), "{address}");
    }
}
