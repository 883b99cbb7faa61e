//! A connection over an in-memory pipe: no server of a cluster is asked for anything here.

use std::sync::Arc;

use bson::rawdoc;
use bytes::{Buf, BytesMut};
use document::{Doc, DocBuf};
use router::local::log_book::LogBook;
use router::local::parameters::Parameters;
use router::{Client, Router, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::{MsgFlags, OpMsg, OpMsgWriter};

use super::{End, serve};
use crate::drain::Drain;

struct Talk {
    client: DuplexStream,
    server: JoinHandle<End>,
    router: Arc<Router>,
    drain: Arc<Drain>,
    bytes: BytesMut,
}

#[derive(Debug)]
struct NoProcess;

impl router::Process for NoProcess {
    fn rotate_log(&self) -> tokio::sync::oneshot::Receiver<std::io::Result<()>> {
        tokio::sync::oneshot::channel().1
    }

    fn shut_down(&self, _quiesce: std::time::Duration) {}
}

fn begin() -> Talk {
    let settings = Settings {
        // Nobody listens there, and nobody needs to.
        config_servers: "c/127.0.0.1:1".to_owned(),
        host: "here:1".to_owned(),
        argv: Vec::new(),
        parsed_options: DocBuf::new(),
        compressors: vec![wire::Compressor::Zlib, wire::Compressor::Snappy],
        local_threshold: std::time::Duration::from_millis(15),
        log: Arc::new(LogBook::default()),
        process: Arc::new(NoProcess),
    };
    let options = [("enableTestCommands".to_owned(), "1".to_owned())];
    let parameters = Parameters::from_options(&options).unwrap();
    let router = Router::new(settings, parameters, CancellationToken::new()).unwrap();
    let drain = Arc::new(Drain::default());
    let (client, stream) = duplex(64 * 1024);
    let server = tokio::spawn({
        let (router, drain) = (Arc::clone(&router), Arc::clone(&drain));
        async move { serve(&router, &Client::new(7, None), stream, &drain).await }
    });
    Talk { client, server, router, drain, bytes: BytesMut::new() }
}

fn message(id: i32, flags: MsgFlags, body: &bson::RawDocumentBuf) -> BytesMut {
    let mut out = BytesMut::new();
    OpMsgWriter::write(&mut out, id, 0, flags, Doc::new(body.as_bytes()).unwrap()).unwrap();
    out
}

impl Talk {
    async fn send(&mut self, id: i32, flags: MsgFlags, body: &bson::RawDocumentBuf) {
        self.client.write_all(&message(id, flags, body)).await.unwrap();
    }

    async fn receive(&mut self) -> OpMsg {
        loop {
            if let Some(frame) = wire::cut_frame(&mut self.bytes, wire::MAX_SERVER_MESSAGE_BYTES).unwrap() {
                return OpMsg::parse(frame).unwrap();
            }
            assert_ne!(self.client.read_buf(&mut self.bytes).await.unwrap(), 0, "closed");
        }
    }

    async fn ask(&mut self, id: i32, body: &bson::RawDocumentBuf) -> OpMsg {
        self.send(id, MsgFlags::NONE, body).await;
        let reply = self.receive().await;
        assert_eq!(reply.header().response_to, id);
        reply
    }
}

#[tokio::test]
async fn hello_is_a_routers() {
    let mut talk = begin();
    let hello = rawdoc! {
        "hello": 1, "helloOk": true, "compression": ["zstd", "snappy", "zlib", "foo"], "$db": "admin",
        "client": { "driver": { "name": "d", "version": "1" }, "os": { "type": "o" } },
    };
    let reply = talk.ask(5, &hello).await;
    let body = reply.body();
    assert_eq!(body.get_str("msg"), Some("isdbgrid"));
    assert_eq!(body.get_i64("maxWireVersion"), Some(17));
    assert_eq!(body.get_i64("connectionId"), Some(7));
    assert_eq!(body.get("helloOk").unwrap().as_bool(), Some(true));
    let agreed: Vec<&str> =
        body.get_array("compression").unwrap().iter().filter_map(|f| f.value().as_str()).collect();
    assert_eq!(agreed, ["snappy", "zlib"]);
    for absent in ["setName", "hosts", "me", "saslSupportedMechs"] {
        assert!(!body.contains(absent), "{absent}");
    }
    let reply = talk.ask(6, &hello).await;
    assert_eq!(reply.body().get_i64("code"), Some(186));
    let reply = talk.ask(7, &rawdoc! { "isMaster": 1, "$db": "admin" }).await;
    assert_eq!(reply.body().get("ismaster").unwrap().as_bool(), Some(true));
    assert!(!reply.body().contains("isWritablePrimary"));
}

#[tokio::test]
async fn messages_that_come_together_are_answered_in_order() {
    let mut talk = begin();
    let mut bytes = message(1, MsgFlags::NONE, &rawdoc! { "ping": 1, "$db": "a" });
    bytes.extend_from_slice(&message(2, MsgFlags::NONE, &rawdoc! { "nope": 1, "$db": "a" }));
    bytes.extend_from_slice(&message(3, MsgFlags::NONE, &rawdoc! { "whatsmyuri": 1, "$db": "a" }));
    let last = bytes.split_off(bytes.len() - 3);
    talk.client.write_all(&bytes).await.unwrap();
    assert_eq!(talk.receive().await.header().response_to, 1);
    assert_eq!(talk.receive().await.body().get_i64("code"), Some(59));
    talk.client.write_all(&last).await.unwrap();
    assert_eq!(talk.receive().await.header().response_to, 3);
    let totals = talk.router.stats().totals();
    assert_eq!((totals.requests, totals.failed, totals.active), (3, 0, 0));
}

#[tokio::test]
async fn a_client_that_does_not_wait_gets_no_answer() {
    let mut talk = begin();
    talk.send(1, MsgFlags::MORE_TO_COME, &rawdoc! { "ping": 1, "$db": "a" }).await;
    assert_eq!(talk.ask(2, &rawdoc! { "ping": 1, "$db": "a" }).await.header().response_to, 2);
}

#[tokio::test]
async fn bytes_that_are_no_message_close_the_connection() {
    for bytes in [
        &[0xff; 16][..],
        &[0; 16],
        &[0, 0, 0, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0],
        &[21, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let mut talk = begin();
        talk.client.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        talk.client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
        assert!(matches!(talk.server.await.unwrap(), End::Malformed | End::Refused), "{bytes:?}");
    }
}

#[tokio::test]
async fn a_malformed_body_is_answered_and_the_connection_goes_on() {
    let mut talk = begin();
    let mut bytes = message(9, MsgFlags::NONE, &rawdoc! { "ping": 1, "$db": "a" });
    // A section kind that nobody knows.
    bytes[20] = 9;
    talk.client.write_all(&bytes).await.unwrap();
    let reply = talk.receive().await;
    assert_eq!((reply.header().response_to, reply.body().get_i64("code")), (9, Some(40432)));
    talk.ask(10, &rawdoc! { "ping": 1, "$db": "a" }).await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_hello_is_answered_again_and_again() {
    let mut talk = begin();
    let first = talk.ask(1, &rawdoc! { "hello": 1, "$db": "admin" }).await;
    let version = first.body().get_doc("topologyVersion").unwrap();
    let version = bson::RawDocumentBuf::from_bytes(version.as_bytes().to_vec()).unwrap();
    let hello = rawdoc! {
        "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 1000, "$db": "admin",
    };
    talk.send(2, MsgFlags::EXHAUST_ALLOWED, &hello).await;
    let mut last = 2;
    for _ in 0..3 {
        let before = tokio::time::Instant::now();
        let reply = talk.receive().await;
        assert!(before.elapsed().as_millis() >= 1000);
        assert!(reply.more_to_come());
        assert_eq!(reply.header().response_to, last);
        last = reply.header().request_id;
    }
    talk.router.quiesce().begin(std::time::Duration::from_secs(5));
    let reply = talk.receive().await;
    assert!(!reply.more_to_come());
    let body = reply.body();
    assert_eq!(body.get_i64("code"), Some(91));
    assert_eq!(body.get_doc("topologyVersion").unwrap().get_i64("counter"), Some(1));
    assert!((1..=5000).contains(&body.get_i64("remainingQuiesceTimeMillis").unwrap()));
    // All but hello goes on.
    talk.ask(3, &rawdoc! { "ping": 1, "$db": "a" }).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_from_an_old_version_does_not_spin() {
    let mut talk = begin();
    let hello = rawdoc! {
        "hello": 1, "topologyVersion": { "processId": bson::oid::ObjectId::new(), "counter": 3_i64 },
        "maxAwaitTimeMS": 60_000, "$db": "admin",
    };
    talk.send(2, MsgFlags::EXHAUST_ALLOWED, &hello).await;
    let before = tokio::time::Instant::now();
    talk.receive().await;
    assert!(before.elapsed().as_millis() < 1000);
    talk.receive().await;
    assert!(before.elapsed().as_millis() >= 60_000);
    drop(talk.client);
    assert_eq!(talk.server.await.unwrap(), End::Client);
}

#[tokio::test]
async fn awaitable_hellos_are_checked() {
    let mut talk = begin();
    let process = bson::oid::ObjectId::from_bytes(talk.router.process_id());
    let version = |counter: i64| rawdoc! { "processId": process, "counter": counter };
    for (fields, code) in [
        (rawdoc! { "maxAwaitTimeMS": 5 }, 31368),
        (rawdoc! { "topologyVersion": version(0) }, 31368),
        (rawdoc! { "topologyVersion": version(-1), "maxAwaitTimeMS": 5 }, 31372),
        (rawdoc! { "topologyVersion": version(9), "maxAwaitTimeMS": 5 }, 31382),
        (rawdoc! { "topologyVersion": version(0), "maxAwaitTimeMS": -5 }, 51024),
        (rawdoc! { "topologyVersion": version(0), "maxAwaitTimeMS": "5" }, 14),
        (rawdoc! { "topologyVersion": 5, "maxAwaitTimeMS": 5 }, 14),
        (rawdoc! { "topologyVersion": {}, "maxAwaitTimeMS": 5 }, 40414),
        (rawdoc! { "compression": 1 }, 14),
    ] {
        let mut body = DocBuf::new();
        body.append("hello", 1).append_elements(Doc::new(fields.as_bytes()).unwrap().elements());
        body.append("$db", "admin");
        let body = bson::RawDocumentBuf::from_bytes(body.into_bytes()).unwrap();
        assert_eq!(talk.ask(1, &body).await.body().get_i64("code"), Some(code), "{fields:?}");
    }
}

#[tokio::test]
async fn fail_points_close_block_and_fail() {
    let mut talk = begin();
    let configure = |data: bson::RawDocumentBuf| {
        rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data, "$db": "admin" }
    };
    let ping = rawdoc! { "ping": 1, "$db": "a" };
    let data = rawdoc! { "failCommands": ["ping"], "errorCode": 10107, "errorLabels": ["L"] };
    assert_eq!(talk.ask(1, &configure(data)).await.body().get_i64("count"), Some(0));
    let reply = talk.ask(2, &rawdoc! { "whatsmyuri": 1, "$db": "a" }).await;
    assert_eq!(reply.body().get_i64("ok"), Some(1));
    let reply = talk.ask(3, &ping).await;
    assert_eq!(reply.body().get_i64("code"), Some(10107));
    assert!(reply.body().contains("errorLabels"));
    assert_eq!(talk.ask(4, &ping).await.body().get_i64("ok"), Some(1));
    let data = rawdoc! { "failCommands": ["ping"], "writeConcernError": { "code": 64 }, "appName": "other" };
    talk.ask(5, &configure(data)).await;
    assert!(!talk.ask(6, &ping).await.body().contains("writeConcernError"));
    let data = rawdoc! { "failCommands": ["ping"], "writeConcernError": { "code": 64 } };
    talk.ask(7, &configure(data)).await;
    assert!(talk.ask(8, &ping).await.body().contains("writeConcernError"));
    let data = rawdoc! { "failCommands": ["ping"], "closeConnection": true };
    assert_eq!(talk.ask(9, &configure(data)).await.body().get_i64("count"), Some(2));
    talk.send(10, MsgFlags::NONE, &ping).await;
    assert_eq!(talk.server.await.unwrap(), End::Refused);
}

#[tokio::test]
async fn a_drain_ends_an_idle_connection_and_lets_a_busy_one_answer() {
    let mut idle = begin();
    idle.ask(1, &rawdoc! { "ping": 1, "$db": "a" }).await;
    idle.drain.begin();
    assert_eq!(idle.server.await.unwrap(), End::Drain);

    let mut busy = begin();
    let block = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 }, "$db": "admin",
        "data": { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 50 },
    };
    busy.ask(1, &block).await;
    busy.send(2, MsgFlags::NONE, &rawdoc! { "ping": 1, "$db": "a" }).await;
    while busy.router.stats().totals().active == 0 {
        tokio::task::yield_now().await;
    }
    busy.drain.begin();
    assert_eq!(busy.receive().await.header().response_to, 2);
    assert_eq!(busy.server.await.unwrap(), End::Drain);
}

#[tokio::test]
async fn a_large_message_does_not_leave_a_large_buffer_behind() {
    let mut talk = begin();
    let big = rawdoc! { "ping": 1, "comment": "x".repeat(1_000_000), "$db": "a" };
    let bytes = message(1, MsgFlags::NONE, &big);
    let mut rest = &bytes[..];
    while rest.has_remaining() {
        let sent = talk.client.write_buf(&mut rest).await.unwrap();
        assert_ne!(sent, 0);
    }
    assert_eq!(talk.receive().await.header().response_to, 1);
    talk.ask(2, &rawdoc! { "ping": 1, "$db": "a" }).await;
}

#[test]
fn buffers_follow_the_size_of_requests() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let talk = runtime.block_on(async { begin() });
    let (_, stream) = duplex(1);
    let client = Client::new(1, None);
    let mut connection = super::Connection {
        router: &talk.router,
        client: &client,
        stream,
        buffer: BytesMut::new(),
        step: super::LEAST_READ_BYTES,
    };
    connection.make_room();
    assert!(connection.buffer.capacity() <= 4096);
    // The header of a message of 40 MB does not make 40 MB of room.
    connection.buffer.extend_from_slice(&40_000_000_i32.to_le_bytes());
    connection.buffer.extend_from_slice(&[0; 12]);
    connection.make_room();
    assert!(connection.buffer.capacity() <= 2 * super::MOST_KEPT_BYTES, "{}", connection.buffer.capacity());
    connection.buffer = BytesMut::with_capacity(1_000_000);
    connection.forget(900_000);
    assert_eq!(connection.buffer.capacity(), 0);
}
