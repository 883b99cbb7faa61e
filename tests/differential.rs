//! Random queries over the same random documents in one plain collection and in sharded ones give the same answers.
//!
//! `DIFFERENTIAL_SECONDS` says how long (120 by default), `DIFFERENTIAL_SEED` repeats a run. The seed is printed.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::{Client, Database};
use testkit::Cluster;

const DB: &str = "diff";
const SHARDED: [&str; 4] = ["range", "hashed", "compound", "hashed_x"];

/// splitmix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: i32) -> i32 {
        i32::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    fn chance(&mut self, percent: i32) -> bool {
        self.below(100) < percent
    }

    fn one<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.next() % items.len() as u64).unwrap()]
    }
}

/// A value of any of the types that sort and group differently. MinKey and MaxKey are left out: a plain 6.0.5 gives them as
/// `{"": MaxKey}` where its `$sort` or `$group` saw them, and sorts them as such (found by this test).
fn value(r: &mut Random) -> Bson {
    match r.below(12) {
        0 => Bson::Null,
        1 => Bson::Boolean(r.chance(50)),
        2 => Bson::Double(f64::from(r.below(40)) * 0.5),
        3 => Bson::Int64(i64::from(r.below(20))),
        4 => Bson::String((*r.one(&["", "a", "A", "b", "é", "zz"])).to_owned()),
        5 => Bson::DateTime(bson::DateTime::from_millis(i64::from(r.below(5)) * 1000)),
        6 => bson::oid::ObjectId::from_bytes([u8::try_from(r.below(3)).unwrap(); 12]).into(),
        7 => Bson::Document(doc! { "a": r.below(3), "b": r.below(2) }),
        8 => Bson::Array((0..r.below(4)).map(|_| Bson::Int32(r.below(10))).collect()),
        9 => Bson::Timestamp(bson::Timestamp { time: 1, increment: 3 }),
        10 => Bson::Decimal128(format!("{}.50", r.below(10)).parse().unwrap()),
        _ => Bson::Int32(r.below(20)),
    }
}

fn document(r: &mut Random, id: i32) -> Document {
    let mut document = doc! { "_id": id, "g": r.below(8), "s": *r.one(&["a", "B", "b", "c", "D"]) };
    // A shard key may be missing (and is null then), and numbers of all types are one key.
    match r.below(20) {
        0 | 1 => {}
        2 => _ = document.insert("x", Bson::Null),
        3 => _ = document.insert("x", f64::from(r.below(600)) * 0.5),
        4 => _ = document.insert("x", i64::from(r.below(300))),
        _ => _ = document.insert("x", r.below(300)),
    }
    if r.chance(85) {
        document.insert("v", value(r));
    }
    if r.chance(60) {
        document.insert(
            "n",
            doc! { "a": r.below(6), "l": (0..r.below(3)).map(|_| r.below(5)).collect::<Vec<_>>() },
        );
    }
    if r.chance(70) {
        document.insert("arr", (0..r.below(4)).map(|_| r.below(6)).collect::<Vec<_>>());
    }
    document.insert("up", r.below(200));
    document
}

fn comparison(r: &mut Random) -> Document {
    let field = *r.one(&["x", "x", "g", "_id", "v", "n.a", "arr", "s", "n.l"]);
    let operand = match field {
        "x" if r.chance(10) => Bson::Null,
        "x" => Bson::Int32(r.below(310)),
        "_id" => Bson::Int32(r.below(400)),
        "s" => Bson::from(*r.one(&["a", "b", "B", "q"])),
        "v" => value(r),
        _ => Bson::Int32(r.below(8)),
    };
    match r.below(9) {
        0 | 1 => doc! { field: operand },
        2 => doc! { field: { "$gt": operand } },
        3 => doc! { field: { "$lte": operand } },
        4 => doc! { field: { "$in": [operand, r.below(300)] } },
        5 => doc! { field: { "$ne": operand } },
        6 => doc! { field: { "$exists": r.chance(50) } },
        7 => doc! { field: { "$gte": operand, "$lt": r.below(300) } },
        _ => doc! { field: { "$not": { "$gt": operand } } },
    }
}

fn filter(r: &mut Random) -> Document {
    match r.below(8) {
        0 => doc! {},
        1 | 2 => doc! { "$or": [comparison(r), comparison(r)] },
        3 => doc! { "$and": [comparison(r), comparison(r)] },
        4 => doc! { "g": r.below(8), "x": { "$gte": r.below(300) } },
        _ => comparison(r),
    }
}

/// A sort that leaves no ties.
fn total_sort(r: &mut Random) -> Document {
    let mut sort = Document::new();
    for _ in 0..r.below(3) {
        let direction = if r.chance(50) { 1 } else { -1 };
        let field = *r.one(&["x", "g", "v", "s", "arr", "n.a", "n"]);
        // Two arrays in one key are an error, but not where one server sees that `_id` leaves a single document.
        if !matches!(
            (field, sort.contains_key("v"), sort.contains_key("arr")),
            ("arr", true, _) | ("v", _, true)
        ) {
            sort.insert(field, direction);
        }
    }
    sort.insert("_id", if r.chance(50) { 1 } else { -1 });
    sort
}

fn projection(r: &mut Random) -> Document {
    match r.below(4) {
        0 => doc! { "x": 1 },
        1 => doc! { "v": 0, "arr": 0 },
        2 => doc! { "_id": 1, "n.a": 1, "s": 1 },
        _ => doc! { "g": 1, "twice": { "$multiply": ["$x", 2] } },
    }
}

/// One command without its collection, and what of its answer is certain.
struct Query {
    command: Document,
    kind: Answer,
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// Documents in one order.
    InOrder,
    /// Documents in any order.
    AnyOrder,
    /// Only how many documents there are.
    HowMany,
    /// A number.
    Count,
    /// Values in any order.
    Values,
}

impl Answer {
    fn documents(ordered: bool) -> Self {
        if ordered { Self::InOrder } else { Self::AnyOrder }
    }
}

fn find(r: &mut Random) -> Query {
    let mut command = doc! { "find": "", "filter": filter(r), "batchSize": 1 + r.below(60) };
    let ordered = r.chance(70);
    if ordered {
        command.insert("sort", total_sort(r));
    }
    let mut kind = Answer::documents(ordered);
    if r.chance(40) {
        command.insert("skip", r.below(50));
        kind = if ordered { kind } else { Answer::HowMany };
    }
    if r.chance(40) {
        command.insert("limit", r.below(60));
        kind = if ordered { kind } else { Answer::HowMany };
    }
    if r.chance(30) {
        command.insert("projection", projection(r));
    }
    if r.chance(10) && ordered {
        command.insert("collation", doc! { "locale": "en", "strength": 2 });
    }
    Query { command, kind }
}

/// A filter that is never empty: a count without one counts orphans, on a mongos too.
fn count(r: &mut Random) -> Query {
    let mut command = doc! { "count": "", "query": { "$and": [comparison(r), filter(r)] } };
    if r.chance(30) {
        command.insert("skip", r.below(50));
    }
    if r.chance(30) {
        command.insert("limit", r.below(100));
    }
    Query { command, kind: Answer::Count }
}

/// Distinct values are those of orphans too, on a mongos too: asked of what orphans have in common with what they are
/// copies of.
fn distinct(r: &mut Random) -> Query {
    let key = *r.one(&["s", "arr", "n.a", "n.l", "up"]);
    let query = loop {
        let query = comparison(r);
        if !query.contains_key("v") {
            break query;
        }
    };
    let mut command = doc! { "distinct": "", "key": key, "query": query };
    if r.chance(20) {
        command.insert("collation", doc! { "locale": "en", "strength": 2 });
    }
    Query { command, kind: Answer::Values }
}

fn accumulators(r: &mut Random, sorted: bool) -> Document {
    let mut fields = Document::new();
    for (name, accumulator) in [
        ("sum", doc! { "$sum": "$x" }),
        ("sumv", doc! { "$sum": "$v" }),
        ("n", doc! { "$count": {} }),
        ("min", doc! { "$min": "$x" }),
        ("max", doc! { "$max": "$x" }),
        ("avg", doc! { "$avg": "$x" }),
        ("avgv", doc! { "$avg": "$v" }),
        ("minv", doc! { "$min": "$v" }),
        ("maxv", doc! { "$max": "$v" }),
        ("sumn", doc! { "$sum": "$n.a" }),
        ("set", doc! { "$addToSet": "$g" }),
        ("sets", doc! { "$addToSet": "$v" }),
        ("all", doc! { "$push": "$_id" }),
        ("top", doc! { "$top": { "sortBy": { "x": -1, "_id": 1 }, "output": "$_id" } }),
        ("low", doc! { "$minN": { "n": 2, "input": "$x" } }),
        ("dev", doc! { "$stdDevPop": "$x" }),
    ] {
        // Few at a time: one that the router leaves to shards is enough to send the group there.
        if r.chance(20) {
            fields.insert(name, accumulator);
        }
    }
    if sorted && r.chance(40) {
        fields.insert("first", doc! { "$first": "$_id" });
        fields.insert("last", doc! { "$last": "$x" });
    }
    fields
}

fn pipeline(r: &mut Random) -> Query {
    let mut stages: Vec<Document> = Vec::new();
    let mut ordered = false;
    // After a group there are other fields, and only _id is certain.
    let mut grouped = false;
    // Keys that are arrays sort by one of their elements: no order is total then.
    let mut arrays = false;
    for _ in 0..=r.below(5) {
        match r.below(14) {
            0 | 1 if !grouped => stages.push(doc! { "$match": filter(r) }),
            2 | 3 => {
                let direction = if r.chance(50) { 1 } else { -1 };
                stages
                    .push(doc! { "$sort": if grouped { doc! { "_id": direction } } else { total_sort(r) } });
                ordered = !arrays;
            }
            4 if ordered => stages.push(doc! { "$limit": 1 + r.below(80) }),
            5 if ordered => stages.push(doc! { "$skip": r.below(40) }),
            6 if !grouped => stages.push(doc! { "$set": { "w": { "$add": ["$x", "$g"] } } }),
            7 if !grouped => {
                stages
                    .push(doc! { "$unwind": { "path": "$arr", "preserveNullAndEmptyArrays": r.chance(50) } });
                // Several documents with one _id: no sort is total any more.
                return finish(r, stages, ordered);
            }
            8 if !grouped => {
                let id = match r.below(5) {
                    0 => Bson::Null,
                    1 => Bson::from("$g"),
                    2 => Bson::from("$v"),
                    3 => Bson::Document(doc! { "s": "$s", "g": "$g" }),
                    _ => Bson::from("$n.a"),
                };
                arrays = id == Bson::from("$v");
                let mut group = doc! { "_id": id };
                group.extend(accumulators(r, ordered));
                stages.push(doc! { "$group": group });
                (grouped, ordered) = (true, false);
            }
            9 if !grouped => {
                let from = *r.one(&["plain", "hashed", "range"]);
                stages.push(doc! { "$lookup": { "from": from, "localField": "up", "foreignField": "_id", "as": "j" } });
            }
            10 if !grouped => {
                stages.push(doc! { "$sortByCount": "$g" });
                (grouped, ordered) = (true, false);
            }
            11 if !grouped => {
                stages.push(doc! { "$bucket": {
                    "groupBy": "$x", "boundaries": [0, 80, 160, 400], "default": "none", "output": { "n": { "$sum": 1 }, "g": { "$max": "$g" } },
                } });
                (grouped, ordered) = (true, false);
            }
            12 if !grouped => {
                stages.push(doc! { "$setWindowFields": {
                    "partitionBy": "$g", "sortBy": { "x": 1, "_id": 1 }, "output": { "rank": { "$documentNumber": {} } },
                } });
                ordered = false;
            }
            13 => return finish(r, stages, ordered),
            _ => {}
        }
    }
    let command = doc! { "aggregate": "", "pipeline": stages, "cursor": { "batchSize": r.below(50) } };
    Query { command, kind: Answer::documents(ordered) }
}

/// A last stage after which the order of documents does not matter any more.
fn finish(r: &mut Random, mut stages: Vec<Document>, ordered: bool) -> Query {
    let mut ordered = ordered;
    match r.below(4) {
        0 => {
            stages.push(doc! { "$count": "n" });
            ordered = true;
        }
        1 => {
            let facet = doc! { "n": [{ "$count": "n" }], "g": [{ "$group": { "_id": "$g", "n": { "$sum": 1 } } }, { "$sort": { "_id": 1 } }] };
            stages.push(doc! { "$facet": facet });
            ordered = true;
        }
        2 => {
            stages.push(doc! { "$unionWith": { "coll": *r.one(&["hashed", "plain"]), "pipeline": [{ "$match": filter(r) }] } });
            ordered = false;
        }
        _ => {}
    }
    let command = doc! { "aggregate": "", "pipeline": stages, "cursor": {}, "allowDiskUse": r.chance(30) };
    Query { command, kind: Answer::documents(ordered) }
}

/// Equal numbers of different types may stand for each other in a group; the order of a set and the last digits of a
/// mean are nobody's promise.
fn normal(name: &str, value: Bson) -> Bson {
    let number = |n: f64| Bson::Double(format!("{n:.9e}").parse().unwrap());
    match value {
        Bson::Int32(n) => number(f64::from(n)),
        Bson::Int64(n) => number(n as f64),
        Bson::Double(n) => number(if n == 0.0 { 0.0 } else { n }),
        Bson::Decimal128(n) => number(n.to_string().parse().unwrap()),
        Bson::Document(document) => Bson::Document(
            document.into_iter().map(|(name, value)| (name.clone(), normal(&name, value))).collect(),
        ),
        Bson::Array(items) => {
            let mut items: Vec<Bson> = items.into_iter().map(|item| normal("", item)).collect();
            if matches!(name, "set" | "sets" | "all") {
                items.sort_by_key(Bson::to_string);
            }
            Bson::Array(items)
        }
        other => other,
    }
}

/// The answer in a form that can be compared: documents, or the code of an error.
async fn answer(db: &Database, collection: &str, query: &Query) -> Result<Vec<String>, i32> {
    let mut command = Document::new();
    for (index, (name, value)) in query.command.clone().into_iter().enumerate() {
        command.insert(name, if index == 0 { Bson::from(collection) } else { value });
    }
    let code = |error: mongodb::error::Error| match &*error.kind {
        mongodb::error::ErrorKind::Command(failed) => failed.code,
        other => panic!("{collection}: {:?}: {other}", query.command),
    };
    match query.kind {
        Answer::Count => {
            let reply = db.run_command(command).await.map_err(code)?;
            return Ok(vec![normal("", reply.get("n").unwrap().clone()).to_string()]);
        }
        Answer::Values => {
            let reply = db.run_command(command).await.map_err(code)?;
            let values = reply.get_array("values").unwrap();
            // Which of the texts that a collation takes for one is given, nobody promises.
            let folded = query.command.contains_key("collation");
            let text = |value: &Bson| normal("", value.clone()).to_string();
            let mut texts: Vec<String> = values
                .iter()
                .map(|value| if folded { text(value).to_lowercase() } else { text(value) })
                .collect();
            texts.sort();
            return Ok(texts);
        }
        Answer::InOrder | Answer::AnyOrder | Answer::HowMany => {}
    }
    let cursor = db.run_cursor_command(command).await.map_err(code)?;
    let documents: Vec<Document> = cursor.try_collect().await.map_err(code)?;
    let mut texts: Vec<String> =
        documents.into_iter().map(|document| normal("", Bson::Document(document)).to_string()).collect();
    match query.kind {
        Answer::HowMany => return Ok(vec![texts.len().to_string()]),
        Answer::AnyOrder => texts.sort(),
        _ => {}
    }
    Ok(texts)
}

/// Leaves a changed copy of many documents on a shard that does not own them, as an interrupted migration does.
async fn leave_orphans(cluster: &Cluster, r: &mut Random, documents: &[Document]) {
    let mut left = 0;
    for name in SHARDED {
        for shard in cluster.shards() {
            let coll = shard.client().await.unwrap().database(DB).collection::<Document>(name);
            let owned = coll.distinct("_id", doc! {}).await.unwrap();
            let mut orphans = Vec::new();
            for document in documents {
                if !owned.contains(document.get("_id").unwrap()) && r.chance(15) {
                    let mut orphan = document.clone();
                    orphan.extend(doc! { "v": r.below(20), "orphan": true });
                    orphans.push(orphan);
                }
            }
            left += orphans.len();
            if !orphans.is_empty() {
                coll.insert_many(orphans).await.unwrap();
            }
        }
    }
    assert!(left > 0);
}

async fn start(r: &mut Random) -> (Cluster, Client) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread("diff.range", "x", &[100, 200]).await.unwrap();
    let client = cluster.client().await.unwrap();
    let admin = client.database("admin");
    let keys = [
        ("hashed", doc! { "_id": "hashed" }),
        ("compound", doc! { "g": 1, "x": 1 }),
        ("hashed_x", doc! { "x": "hashed" }),
    ];
    for (name, key) in keys {
        admin.run_command(doc! { "shardCollection": format!("{DB}.{name}"), "key": key }).await.unwrap();
    }
    for g in 1..8 {
        let middle = doc! { "g": g, "x": 150 };
        admin.run_command(doc! { "split": "diff.compound", "middle": middle }).await.unwrap();
        let to = format!("shard{}", r.below(3));
        // Already there: nothing to move.
        let _ = admin
            .run_command(doc! { "moveChunk": "diff.compound", "find": { "g": g, "x": 160 }, "to": to })
            .await;
    }
    for _ in 0..4 {
        let (at, to) = (r.below(300), format!("shard{}", r.below(3)));
        let _ = admin.run_command(doc! { "split": "diff.range", "find": { "x": at } }).await;
        let _ = admin.run_command(doc! { "moveChunk": "diff.range", "find": { "x": at }, "to": to }).await;
    }
    let documents: Vec<Document> = (0..400).map(|id| document(r, id)).collect();
    let db = client.database(DB);
    for name in SHARDED.iter().chain(&["plain"]) {
        db.collection::<Document>(name).insert_many(&documents).await.unwrap();
        if r.chance(50) {
            db.run_command(doc! { "createIndexes": *name, "indexes": [{ "key": { "v": 1 }, "name": "v" }] })
                .await
                .unwrap();
        }
    }
    leave_orphans(&cluster, r, &documents).await;
    (cluster, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn sharded_collections_answer_as_plain_ones() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("DIFFERENTIAL_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_secs()
    });
    let limit = Duration::from_secs(number("DIFFERENTIAL_SECONDS").unwrap_or(120));
    println!("DIFFERENTIAL_SEED={seed}");
    let mut random = Random(seed);
    let (_cluster, client) = start(&mut random).await;
    let db = client.database(DB);
    let started = Instant::now();
    let mut compared = 0;
    while started.elapsed() < limit {
        let query = match random.below(20) {
            0..7 => find(&mut random),
            7 => count(&mut random),
            8 => distinct(&mut random),
            _ => pipeline(&mut random),
        };
        let expected = answer(&db, "plain", &query).await;
        for name in SHARDED {
            let found = answer(&db, name, &query).await;
            let where_ = format!("seed {seed}, query {compared}, {name}: {}", query.command);
            match (&found, &expected) {
                (Ok(found), Ok(expected)) => {
                    let first = found.iter().zip(expected).find(|(found, expected)| found != expected);
                    assert_eq!(found.len(), expected.len(), "{where_}\nfirst difference: {first:?}");
                    assert!(first.is_none(), "{where_}\nfirst difference: {first:?}");
                }
                _ => assert_eq!(found, expected, "{where_}"),
            }
        }
        compared += 1;
    }
    println!("{compared} queries, no difference");
    assert!(compared > 0);
}
