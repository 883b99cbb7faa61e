//! The parts of the hot path by themselves: time and allocations.
//!
//! `cargo bench -p bench`

use bytes::{Bytes, BytesMut};
use chunk_map::{CollectionChangesBuilder, CollectionRouting};
use divan::{AllocProfiler, Bencher, black_box};
use document::{Doc, splice};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn find_body() -> bson::RawDocumentBuf {
    bson::rawdoc! {
        "find": "c", "filter": { "k": 4_711_i64 }, "limit": 1, "singleBatch": true,
        "lsid": { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] } },
        "$db": "d",
    }
}

fn message(body: &bson::RawDocumentBuf) -> BytesMut {
    let mut frame = BytesMut::new();
    let doc = Doc::new(body.as_bytes()).unwrap_or(Doc::empty());
    let _ = wire::OpMsgWriter::write(&mut frame, 1, 0, wire::MsgFlags::NONE, doc);
    frame
}

/// Cut a frame off a buffer and parse it: what each request costs before anything is known of it.
#[divan::bench]
fn parse_a_find(bencher: Bencher<'_, '_>) {
    let bytes = message(&find_body()).freeze();
    bencher.bench_local(|| {
        let frame = wire::Frame::from_bytes(bytes.clone(), wire::MAX_CLIENT_MESSAGE_BYTES).ok();
        black_box(frame.map(wire::OpMsg::parse))
    });
}

/// Copy a command without its generic fields into a shard's request.
#[divan::bench]
fn splice_a_find(bencher: Bencher<'_, '_>) {
    let body = find_body();
    let doc = Doc::new(body.as_bytes()).unwrap_or(Doc::empty());
    let mut out = BytesMut::with_capacity(1024);
    bencher.bench_local(|| {
        out.clear();
        let open = splice::open(&mut out);
        splice::copy_fields(doc, &mut out, |name| {
            if router::request::is_generic(name) { splice::Keep::No } else { splice::Keep::Yes }
        });
        open.finish(&mut out);
        black_box(out.len())
    });
}

/// From a filter to the owning shard and its version, by the number of chunks.
#[divan::bench(args = [1, 1_000, 100_000])]
fn target_a_key(bencher: Bencher<'_, '_>, chunks: i64) {
    let Some(routing) = routing(chunks) else { return };
    let filter = bson::rawdoc! { "k": chunks / 2 };
    let filter = Doc::new(filter.as_bytes()).unwrap_or(Doc::empty());
    bencher.bench_local(|| black_box(routing.target_filter(filter, None)));
}

fn routing(chunks: i64) -> Option<CollectionRouting> {
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let time = |time, increment| bson::Timestamp { time, increment };
    let mut changes = CollectionChangesBuilder::new();
    let collection = bson::rawdoc! {
        "_id": "d.c", "lastmodEpoch": bson::oid::ObjectId::new(), "timestamp": time(5, 1), "uuid": uuid.clone(),
        "key": { "k": 1 }, "unique": false,
    };
    changes.push_collection(Doc::new(collection.as_bytes()).ok()?).ok()?;
    for chunk in 0..chunks {
        let bound = |at: i64| -> bson::RawBson {
            match at {
                0 => bson::RawBson::MinKey,
                at if at == chunks => bson::RawBson::MaxKey,
                at => bson::RawBson::Int64(at),
            }
        };
        let shard = format!("shard{}", chunk % 3);
        let raw = bson::rawdoc! {
            "_id": bson::oid::ObjectId::new(), "uuid": uuid.clone(), "min": { "k": bound(chunk) },
            "max": { "k": bound(chunk + 1) }, "shard": shard.as_str(), "lastmod": time(1, u32::try_from(chunk).ok()?),
            "history": [{ "validAfter": time(5, 2), "shard": shard.as_str() }],
        };
        changes.push_chunk(Doc::new(raw.as_bytes()).ok()?).ok()?;
    }
    CollectionRouting::full(changes.finish().ok()??).ok()
}

/// Pass a shard's reply of a hundred documents on: internal fields cut off, header written, nothing copied.
#[divan::bench]
fn pass_a_reply_on(bencher: Bencher<'_, '_>) {
    let documents: Vec<bson::Document> =
        (0..100).map(|k| bson::doc! { "_id": k, "text": "x".repeat(150) }).collect();
    let mut reply = bson::Document::new();
    reply.insert("cursor", bson::doc! { "firstBatch": documents, "id": 0_i64, "ns": "d.c" });
    reply.insert("ok", 1.0);
    reply.insert("$configTime", bson::Timestamp { time: 5, increment: 1 });
    let Ok(raw) = bson::RawDocumentBuf::try_from(&reply) else { return };
    let frame = message(&raw);
    let clock = router::clock::Clock::default();
    bencher
        .with_inputs(|| {
            let mut frame = frame.clone();
            let (header, bytes) = wire::cut_bytes(&mut frame, wire::MAX_SERVER_MESSAGE_BYTES).ok()??;
            wire::Reply::parse(header, bytes).ok()
        })
        .bench_local_values(|reply| {
            let reply = reply?;
            let summary = router::reply::Summary::of(reply.body());
            Some(router::reply::Reply::forward(reply, &summary).into_message(&clock, 1, 2, false, false))
        });
}

/// Walk a batch of a thousand documents as the merge does: find the sort key of each once.
#[divan::bench]
fn walk_a_sorted_batch(bencher: Bencher<'_, '_>) {
    let mut array = bson::RawArrayBuf::new();
    for k in 0..1000_i64 {
        array.push(
            bson::rawdoc! { "_id": k, "level": "info", "text": "some words of a log", "$sortKey": [k] },
        );
    }
    let elements = Doc::new(array.as_bytes()).map(Doc::elements).unwrap_or_default();
    let elements = Bytes::copy_from_slice(elements);
    bencher.bench_local(|| {
        let mut batch = router::cursor::Batch::new(elements.clone());
        let mut seen = 0;
        while batch.scan() {
            seen += batch.elements_without_metadata().map_or(0, <[u8]>::len);
            batch.advance();
        }
        black_box(seen)
    });
}
