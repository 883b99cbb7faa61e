//! insert, update and delete, reply by reply, beside the server's own routing code (`clusterInsert`, `clusterUpdate`,
//! `clusterDelete`, which run on a shard), and findAndModify, which has no such command, beside a server without routing.
//!
//! Replies are equal in all fields but for times and for what this router adds to a refusal to say what is missing. Where
//! it differs on purpose the reason stands in [`DIFFERENT`].

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::RawConn;

/// For this router, for the server's own router, for a server without routing.
const DB: &str = "w";
const ORACLE: &str = "o";
const PLAIN: &str = "p";

/// Parts of commands whose replies differ, and why.
const DIFFERENT: &[(&str, &str)] = &[
    (
        r#"updates": [{ "q": { "a": { "$nosuch": 1 } }, "u": { "$set": { "x": 1 } } }]"#,
        "a filter is parsed by shards alone: that it cannot be targeted is found before",
    ),
    (
        r#""writeConcern": { "w": "nosuch" }"#,
        "errInfo stays where drivers look for it; mongos makes it a part of the text and sends an empty one",
    ),
    (r#""stmtIds": [1, 2]"#, "the whole command is not repeated in the text"),
];

/// `r`: by a, below 100, from 100, from 200. `h`: by a hashed. `c`: by a and b, from a = 100 on another shard. `d`: by s,
/// with a default collation. `u`, `v` (with a validator) and `view`: not sharded.
async fn start() -> (Cluster, RawConn) {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    let mut conn = cluster.router(0).unwrap().raw().await.unwrap();
    for db in [DB, ORACLE] {
        cluster.spread(&format!("{db}.r"), "a", &[100, 200]).await.unwrap();
        cluster.shard_collection(&format!("{db}.h"), doc! { "a": "hashed" }).await.unwrap();
        let compound = format!("{db}.c");
        cluster.shard_collection(&compound, doc! { "a": 1, "b": 1 }).await.unwrap();
        cluster.split_at(&compound, doc! { "a": 100, "b": 0 }).await.unwrap();
        cluster.move_chunk(&compound, doc! { "a": 100, "b": 0 }, "shard1").await.unwrap();
        let english = doc! { "locale": "en", "strength": 2 };
        conn.command_ok(db, doc! { "create": "d", "collation": english }).await.unwrap();
        let simple = doc! { "shardCollection": format!("{db}.d"), "key": { "s": 1 }, "collation": { "locale": "simple" } };
        cluster.admin(simple).await.unwrap();
        let number = doc! { "n": { "$type": "int" } };
        conn.command_ok(db, doc! { "create": "v", "validator": number }).await.unwrap();
        conn.command_ok(db, doc! { "create": "view", "viewOn": "r", "pipeline": [] }).await.unwrap();
        let lists =
            [doc! { "_id": 900, "a": 90, "l": [1, 2, 3] }, doc! { "_id": 901, "a": 190, "l": [1, 2, 3] }];
        conn.command_ok(db, doc! { "insert": "r", "documents": lists.to_vec() }).await.unwrap();
    }
    (cluster, conn)
}

/// Targeting by a key of one field, and what is refused.
fn by_one_field() -> Vec<Document> {
    let set = doc! { "$set": { "x": 1 } };
    let english = doc! { "locale": "en", "strength": 2 };
    let insert = |documents: Vec<Document>| doc! { "insert": "r", "documents": documents };
    let update = |updates: Vec<Document>| doc! { "update": "r", "updates": updates };
    let delete = |deletes: Vec<Document>| doc! { "delete": "r", "deletes": deletes };
    let unordered = |mut command: Document| {
        command.insert("ordered", false);
        command
    };
    vec![
        insert(vec![doc! { "_id": 1, "a": 1 }, doc! { "_id": 101, "a": 101 }, doc! { "_id": 201, "a": 201 }]),
        insert(vec![doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 101 }]),
        unordered(insert(vec![
            doc! { "_id": 1, "a": 1 },
            doc! { "_id": 101, "a": 101 },
            doc! { "_id": 202, "a": 201 },
        ])),
        unordered(insert(vec![
            doc! { "_id": 3, "a": [1] },
            doc! { "_id": 4, "a": 1 },
            doc! { "_id": 5, "a": [2] },
        ])),
        insert(vec![doc! { "_id": 6, "a": Bson::MaxKey }]),
        insert(vec![doc! { "_id": 7 }]),
        insert(vec![doc! { "_id": [1], "a": 1 }]),
        insert(vec![]),
        doc! { "insert": "r" },
        doc! { "insert": "r", "documents": [{ "_id": 8, "a": 1 }], "ordered": 1 },
        doc! { "insert": "r", "documents": [{ "_id": 8, "a": 1 }], "let": {} },
        doc! { "insert": "r", "documents": [{ "_id": 8, "a": 1 }], "writeConcern": { "w": 0 } },
        doc! { "insert": "r", "documents": [{ "_id": 9, "a": 1 }], "writeConcern": { "w": 1, "foo": 1 } },
        doc! { "insert": "system.x", "documents": [{ "_id": 9 }] },
        doc! { "insert": "u", "documents": [{ "_id": 1 }, { "_id": 1 }, { "_id": 2 }], "ordered": false },
        doc! { "update": "u", "updates": [{ "q": {}, "u": { "x": 1 }, "multi": true }] },
        doc! { "update": "u", "updates": [{ "q": { "_id": 5 }, "u": { "x": 1 }, "upsert": true }, { "q": { "_id": 1 }, "u": { "x": 1 } }] },
        update(vec![doc! { "q": { "a": 1 }, "u": set.clone() }]),
        update(vec![doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 2 } } }]),
        update(vec![doc! { "q": { "_id": 1 }, "u": { "$set": { "x": 3 } }, "collation": english.clone() }]),
        update(vec![doc! { "q": { "_id": "s" }, "u": set.clone(), "collation": english.clone() }]),
        update(vec![doc! { "q": { "x": 1 }, "u": set.clone() }]),
        update(vec![doc! { "q": {}, "u": { "$set": { "y": 2 } }, "multi": true }]),
        update(vec![doc! { "q": { "a": { "$lt": 50 } }, "u": { "$set": { "z": 3 } } }]),
        update(vec![doc! { "q": { "x": 9 }, "u": { "a": [1] } }]),
        update(vec![doc! { "q": { "x": 9 }, "u": { "a": 101, "x": 1 } }]),
        update(vec![doc! { "q": { "a": 1 }, "u": { "a": 1, "x": 5 } }]),
        update(vec![doc! { "q": { "a": 1 }, "u": { "y": 1, "$set": { "x": 1 } } }]),
        update(vec![doc! { "q": { "a": 1 }, "u": { "x": 1 }, "multi": true }]),
        update(vec![doc! { "q": { "_id": 501, "a": 501 }, "u": set.clone(), "upsert": true }]),
        update(vec![doc! { "q": { "x": 501 }, "u": set.clone(), "upsert": true }]),
        update(vec![
            doc! { "q": { "a": "s" }, "u": set.clone(), "upsert": true, "collation": english.clone() },
        ]),
        update(vec![doc! { "q": { "a": "s" }, "u": { "a": "s" }, "collation": english.clone() }]),
        update(vec![
            doc! { "q": { "a": 1 }, "u": { "$set": { "x": 10 } } },
            doc! { "q": { "x": 77 }, "u": set.clone() },
            doc! { "q": { "a": 201 }, "u": { "$set": { "x": 10 } } },
        ]),
        unordered(update(vec![
            doc! { "q": { "a": 1 }, "u": { "$set": { "x": 11 } } },
            doc! { "q": { "x": 77 }, "u": set.clone() },
            doc! { "q": { "_id": 601, "a": 601 }, "u": { "$set": { "x": 11 } }, "upsert": true },
        ])),
        unordered(update(vec![
            doc! { "q": {}, "u": { "$set": { "w": 1 } }, "multi": true },
            doc! { "q": { "x": 10 }, "u": { "$set": { "v": 1 } }, "multi": true },
        ])),
        update(vec![doc! { "q": { "a": 1 }, "u": { "$set": { "a": 2 } } }]),
        update(vec![doc! { "q": { "a": 1 }, "u": [{ "$set": { "x": "$$y" } }], "c": { "y": 99 } }]),
        update(vec![doc! { "q": { "a": 1 }, "u": { "$bad": { "x": 1 } } }]),
        update(vec![doc! { "q": { "a": 1 }, "u": set.clone(), "hint": "nosuch" }]),
        update(vec![doc! { "q": { "a": 1 }, "u": set.clone(), "foo": 1 }]),
        update(vec![doc! { "q": { "a": 1 }, "u": 5 }]),
        update(vec![
            doc! { "q": { "a": 1 }, "u": { "$set": { "l.$[e]": 1 } }, "arrayFilters": [{ "e": 1 }] },
        ]),
        delete(vec![doc! { "q": { "a": { "$lt": 3 } }, "limit": 1 }]),
        delete(vec![doc! { "q": { "x": 1 }, "limit": 1 }]),
        delete(vec![doc! { "q": { "_id": 1 }, "limit": 2 }]),
        delete(vec![doc! { "q": { "_id": "s" }, "limit": 1, "collation": english }]),
        delete(vec![
            doc! { "q": { "a": 1 }, "limit": 1 },
            doc! { "q": { "x": 1 }, "limit": 1 },
            doc! { "q": { "a": 201 }, "limit": 1 },
        ]),
        delete(vec![doc! { "q": { "_id": 101 }, "limit": 1 }]),
        delete(vec![doc! { "q": {}, "limit": 0 }]),
    ]
}

fn command(kind: &str, collection: &str, items: Vec<Document>) -> Document {
    let field = match kind {
        "insert" => "documents",
        "update" => "updates",
        _ => "deletes",
    };
    doc! { kind: collection, field: items }
}

fn with(mut command: Document, more: Document) -> Document {
    command.extend(more);
    command
}

fn set() -> Document {
    doc! { "$set": { "x": 1 } }
}

/// Keys that are hashed, of two fields, and hidden by a collation.
fn by_other_keys() -> Vec<Document> {
    let update = |coll: &str, item: Document| command("update", coll, vec![item]);
    let delete = |coll: &str, item: Document| command("delete", coll, vec![item]);
    let upsert =
        |coll: &str, q: Document| command("update", coll, vec![doc! { "q": q, "u": set(), "upsert": true }]);
    let simple = doc! { "locale": "simple" };
    let english = doc! { "locale": "en" };
    vec![
        command(
            "insert",
            "h",
            vec![
                doc! { "_id": 1, "a": 1 },
                doc! { "_id": 2, "a": 2.0 },
                doc! { "_id": 3, "a": "x" },
                doc! { "_id": 4 },
            ],
        ),
        command("insert", "h", vec![doc! { "_id": 5, "a": [1] }]),
        update("h", doc! { "q": { "a": 1 }, "u": set() }),
        update("h", doc! { "q": { "a": 1.0 }, "u": { "$set": { "x": 2 } } }),
        update("h", doc! { "q": { "a": { "$gt": 0 } }, "u": set() }),
        update("h", doc! { "q": { "a": { "$gt": 0 } }, "u": set(), "multi": true }),
        update("h", doc! { "q": { "a": "x" }, "u": set(), "collation": english.clone() }),
        update("h", doc! { "q": { "_id": 3, "a": "x" }, "u": set(), "collation": english.clone() }),
        update("h", doc! { "q": { "_id": 1 }, "u": { "a": 1, "x": 1 } }),
        update("h", doc! { "q": { "a": 9, "_id": 9 }, "u": { "a": 9, "x": 1 }, "upsert": true }),
        upsert("h", doc! { "_id": 10, "a": 7 }),
        upsert("h", doc! { "_id": 11, "a": { "$in": [8] } }),
        upsert("h", doc! { "a": { "$gt": 5 } }),
        upsert("h", doc! { "a": [1] }),
        delete("h", doc! { "q": { "a": { "$gt": 1 } }, "limit": 1 }),
        delete("h", doc! { "q": { "a": "x" }, "limit": 1, "collation": english.clone() }),
        delete("h", doc! { "q": { "a": 1 }, "limit": 1 }),
        delete("h", doc! { "q": { "_id": 2 }, "limit": 1 }),
        delete("h", doc! { "q": {}, "limit": 0 }),
        command(
            "insert",
            "c",
            vec![
                doc! { "_id": 1, "a": 1, "b": 1 },
                doc! { "_id": 2, "a": 150, "b": 1 },
                doc! { "_id": 3, "a": 1 },
            ],
        ),
        command("insert", "c", vec![doc! { "_id": 4, "a": 1, "b": [1] }, doc! { "_id": 5, "a": 1, "b": 2 }]),
        update("c", doc! { "q": { "a": 1 }, "u": set() }),
        update("c", doc! { "q": { "b": 1 }, "u": set() }),
        update("c", doc! { "q": { "a": { "$gte": 100 } }, "u": set() }),
        update("c", doc! { "q": { "a": { "$gte": 99 } }, "u": set() }),
        update("c", doc! { "q": { "a": { "$in": [1, 150] }, "b": 1 }, "u": set(), "multi": true }),
        update("c", doc! { "q": { "b": 1 }, "u": { "a": 1, "b": 1, "y": 1 } }),
        update("c", doc! { "q": { "b": 1 }, "u": { "a": 1, "y": 1 } }),
        update("c", doc! { "q": { "a": 1, "b": 1 }, "u": { "a": 1, "y": 1 } }),
        upsert("c", doc! { "a": 1 }),
        upsert("c", doc! { "_id": 11, "a": 5, "b": 5 }),
        upsert("c", doc! { "_id": 12, "a": 5, "b": { "$eq": 6 } }),
        upsert("c", doc! { "$and": [{ "_id": 13 }, { "a": 6 }, { "b": 6 }] }),
        upsert("c", doc! { "_id": 14, "a": 7, "b": null }),
        upsert("c", doc! { "_id": 15, "a": 8, "b": { "$exists": false } }),
        upsert("c", doc! { "_id": 16, "$or": [{ "a": 9, "b": 9 }] }),
        command(
            "update",
            "c",
            vec![doc! { "q": { "_id": 17, "a": 17, "b": 1 }, "u": set(), "upsert": true, "multi": true }],
        ),
        delete("c", doc! { "q": { "a": 1 }, "limit": 1 }),
        delete("c", doc! { "q": { "a": 1, "b": 1 }, "limit": 1 }),
        delete("c", doc! { "q": { "a": 1, "b": { "$gt": 0 } }, "limit": 0 }),
        delete("c", doc! { "q": { "b": 1 }, "limit": 0 }),
        command(
            "insert",
            "d",
            vec![doc! { "_id": "A", "s": "x" }, doc! { "_id": "b", "s": "Y" }, doc! { "_id": 5, "s": 5 }],
        ),
        command("insert", "d", vec![doc! { "_id": "a", "s": "z" }]),
        update("d", doc! { "q": { "_id": "a" }, "u": set() }),
        update("d", doc! { "q": { "_id": "a" }, "u": set(), "collation": simple.clone() }),
        update("d", doc! { "q": { "s": "x" }, "u": set() }),
        update("d", doc! { "q": { "s": "x" }, "u": set(), "collation": simple.clone() }),
        update("d", doc! { "q": { "s": "X", "_id": "A" }, "u": { "$set": { "y": 1 } } }),
        update("d", doc! { "q": { "s": "X" }, "u": { "$set": { "z": 1 } }, "multi": true }),
        upsert("d", doc! { "s": "q" }),
        upsert("d", doc! { "_id": 6, "s": 6 }),
        command(
            "update",
            "d",
            vec![
                doc! { "q": { "_id": 7, "s": "q" }, "u": set(), "upsert": true, "collation": simple.clone() },
            ],
        ),
        delete("d", doc! { "q": { "s": "x" }, "limit": 1 }),
        delete("d", doc! { "q": { "s": 5 }, "limit": 1 }),
        delete("d", doc! { "q": { "s": "X" }, "limit": 0 }),
        delete("d", doc! { "q": { "_id": "B" }, "limit": 1 }),
        delete("d", doc! { "q": { "s": "q" }, "limit": 1, "collation": simple }),
    ]
}

/// What else a statement and a command may say.
fn options() -> Vec<Document> {
    let update = |item: Document| command("update", "r", vec![item]);
    let delete = |item: Document| command("delete", "r", vec![item]);
    let pipeline = |stages: Vec<Document>| update(doc! { "q": { "a": 90 }, "u": stages });
    let list = |change: Document, filters: Vec<Document>| {
        update(doc! { "q": { "a": 90 }, "u": change, "arrayFilters": filters })
    };
    let concern = |concern: Document| {
        with(update(doc! { "q": { "a": 90 }, "u": set() }), doc! { "writeConcern": concern })
    };
    let many = |item: Document| vec![item; 100_001];
    let mut commands = vec![
        update(doc! { "q": { "a": 90 }, "u": set(), "hint": { "_id": 1 } }),
        update(doc! { "q": { "a": 90 }, "u": set(), "hint": "_id_" }),
        update(doc! { "q": {}, "u": set(), "multi": true, "hint": { "nosuch": 1 } }),
        update(doc! { "q": { "a": 90 }, "u": set(), "hint": 5 }),
        update(doc! { "q": { "a": 90 }, "u": set(), "hint": {} }),
        delete(doc! { "q": { "a": 12 }, "limit": 1, "hint": { "a": 1 } }),
        delete(doc! { "q": { "a": 12 }, "limit": 1, "hint": "nosuch" }),
        list(doc! { "$set": { "l.$[e]": 9 } }, vec![doc! { "e": 1 }]),
        list(doc! { "$set": { "l.$[e]": 9 } }, vec![doc! { "e": 1 }, doc! { "f": 1 }]),
        list(doc! { "$set": { "l.$[e]": 9 } }, vec![doc! { "e": 1 }, doc! { "e": 2 }]),
        list(doc! { "$set": { "l.$[e]": 9 } }, vec![]),
        update(doc! { "q": { "l": 2 }, "u": { "$set": { "l.$": 8 } }, "multi": true }),
        update(
            doc! { "q": {}, "u": { "$set": { "l.$[e]": 7 } }, "multi": true, "arrayFilters": [{ "e": 3 }] },
        ),
        with(
            update(doc! { "q": { "$expr": { "$eq": ["$a", "$$y"] } }, "u": set(), "multi": true }),
            doc! { "let": { "y": 90 } },
        ),
        with(pipeline(vec![doc! { "$set": { "x": "$$y" } }]), doc! { "let": { "y": 91 } }),
        with(
            delete(doc! { "q": { "$expr": { "$eq": ["$a", "$$y"] } }, "limit": 0 }),
            doc! { "let": { "y": 12345 } },
        ),
        pipeline(vec![doc! { "$set": { "x": "$$nosuch" } }]),
        with(pipeline(vec![doc! { "$set": { "x": 1 } }]), doc! { "let": 5 }),
        pipeline(vec![]),
        pipeline(vec![doc! { "$set": { "x": { "$add": ["$a", 1] } } }, doc! { "$unset": "y" }]),
        pipeline(vec![doc! { "$match": { "x": 1 } }]),
        pipeline(vec![doc! { "$nosuch": 1 }]),
        pipeline(vec![doc! { "$replaceWith": { "a": 90, "fresh": 1 } }]),
        pipeline(vec![doc! { "$set": { "_id": 5 } }]),
        update(doc! { "q": { "a": 90 }, "u": [{ "$set": { "x": 1 } }], "arrayFilters": [{ "e": 1 }] }),
        update(doc! { "q": { "a": 90 }, "u": { "$set": { "_id": 5 } } }),
        update(doc! { "q": { "a": 90 }, "u": { "_id": 5, "a": 90 } }),
        update(doc! { "q": { "a": 90 }, "u": { "$inc": { "l": 1 } } }),
        update(doc! { "q": { "a": { "$nosuch": 1 } }, "u": set() }),
        delete(doc! { "q": { "a": 90, "$nosuch": 1 }, "limit": 1 }),
        update(doc! { "q": { "_id": 801, "a": 801 }, "u": set(), "multi": true, "upsert": true }),
        update(doc! { "q": { "a": 90 }, "u": set(), "collation": {} }),
        update(doc! { "q": { "a": 90 }, "u": set(), "collation": { "locale": "zz" } }),
        update(doc! { "q": { "a": 90 }, "u": set(), "collation": { "locale": 5 } }),
        concern(doc! { "w": 0 }),
        concern(doc! { "w": 1, "j": true }),
        concern(doc! { "w": "majority", "wtimeout": 60_000 }),
        concern(doc! { "w": "nosuch" }),
        concern(doc! { "w": -1 }),
        concern(doc! { "w": [1] }),
        concern(doc! { "j": "x" }),
        concern(doc! {}),
        with(delete(doc! { "q": { "a": 1 }, "limit": 1 }), doc! { "writeConcern": { "w": 0 } }),
        // Bad shapes.
        doc! { "update": "r", "updates": 5 },
        doc! { "update": "r", "updates": {} },
        doc! { "update": "r", "updates": [5] },
        doc! { "update": "r" },
        doc! { "delete": "r", "deletes": [{ "q": {} }] },
        doc! { "delete": "r", "deletes": [{ "limit": 1 }] },
        delete(doc! { "q": null, "limit": 1 }),
        delete(doc! { "q": { "a": 1 }, "limit": null }),
        delete(doc! { "q": { "a": 1 }, "limit": 1, "collation": null, "hint": null }),
        update(doc! { "q": null, "u": set() }),
        update(doc! { "q": { "a": 1 }, "u": null }),
        update(
            doc! { "q": { "a": 1 }, "u": set(), "multi": null, "upsert": null, "arrayFilters": null, "c": null },
        ),
        with(
            update(doc! { "q": { "a": 1 }, "u": set() }),
            doc! { "ordered": null, "let": null, "stmtIds": null },
        ),
        update(doc! { "q": { "$or": [{ "_id": 900 }] }, "u": set() }),
        update(doc! { "q": { "$or": [{ "a": 90 }] }, "u": set() }),
        update(doc! { "q": { "$or": [{ "a": 90 }, { "a": 190 }] }, "u": set() }),
        delete(doc! { "q": { "$or": [{ "_id": 12345 }] }, "limit": 1 }),
        delete(doc! { "q": { "$and": [{ "_id": 12345 }] }, "limit": 1 }),
        delete(doc! { "q": { "$or": [{ "a": 12345 }] }, "limit": 1 }),
        delete(doc! { "q": { "a": 1 }, "limit": true }),
        delete(doc! { "q": { "a": 1 }, "limit": "x" }),
        delete(doc! { "q": { "a": 1 }, "limit": -1 }),
        delete(doc! { "q": { "a": 1 }, "limit": 1, "foo": 1 }),
        update(doc! { "q": { "a": 1 }, "u": set(), "multi": "x" }),
        update(doc! { "q": { "a": 1 }, "u": set(), "upsert": 1 }),
        update(doc! { "u": set() }),
        update(doc! { "q": { "a": 1 } }),
        with(update(doc! { "q": { "a": 1 }, "u": set() }), doc! { "ordered": "x" }),
        with(update(doc! { "q": { "a": 1 }, "u": set() }), doc! { "bypassDocumentValidation": "x" }),
        with(update(doc! { "q": { "a": 1 }, "u": set() }), doc! { "maxTimeMS": -1 }),
        with(update(doc! { "q": { "a": 1 }, "u": set() }), doc! { "comment": { "any": "thing" } }),
        with(update(doc! { "q": { "a": 1 }, "u": set() }), doc! { "foo": 1 }),
        with(update(doc! { "q": { "a": 1 }, "u": set() }), doc! { "stmtIds": [1, 2] }),
        doc! { "insert": 5, "documents": [{}] },
        doc! { "insert": "", "documents": [{ "_id": 1 }] },
        doc! { "insert": "x$y", "documents": [{ "_id": 1 }] },
        doc! { "insert": "system.views.x", "documents": [{ "_id": 1 }] },
        doc! { "insert": "r", "documents": [{ "_id": 1, "a": 1, "$bad": 1 }] },
        doc! { "insert": "r", "documents": [{ "_id": { "$x": 1 }, "a": 1 }] },
        command("insert", "view", vec![doc! { "_id": 1, "a": 1 }]),
        command("update", "view", vec![doc! { "q": {}, "u": set() }]),
        command("delete", "view", vec![doc! { "q": {}, "limit": 0 }]),
        command("insert", "v", vec![doc! { "_id": 1, "n": "x" }]),
        with(
            command("insert", "v", vec![doc! { "_id": 2, "n": "x" }]),
            doc! { "bypassDocumentValidation": true },
        ),
        command("update", "v", vec![doc! { "q": { "_id": 2 }, "u": { "$set": { "n": "y" } } }]),
        command("update", "nosuch", vec![doc! { "q": {}, "u": set() }]),
        command("delete", "nosuch", vec![doc! { "q": {}, "limit": 1 }]),
        // Too many.
        command("insert", "r", many(doc! {})),
        command("update", "r", many(doc! { "q": {}, "u": {} })),
        command("delete", "r", many(doc! { "q": {}, "limit": 1 })),
    ];
    // Errors of several kinds, of the router and of several shards, in one batch.
    for ordered in [true, false] {
        let updates = vec![
            doc! { "q": { "a": 90 }, "u": { "$inc": { "n": 1 } } },
            doc! { "q": { "a": 190 }, "u": { "$inc": { "l": 1 } } },
            doc! { "q": { "x": 1 }, "u": set() },
            doc! { "q": { "_id": 900, "a": 91 }, "u": set(), "upsert": true },
            doc! { "q": { "a": 190 }, "u": { "$inc": { "n": 1 } } },
            doc! { "q": { "a": 90 }, "u": { "a": 1, "$set": {} } },
            doc! { "q": {}, "u": { "$inc": { "l": 1 } }, "multi": true },
            doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true },
        ];
        let deletes = vec![
            doc! { "q": { "a": 500 }, "limit": 1 },
            doc! { "q": { "x": 1 }, "limit": 1 },
            doc! { "q": { "a": { "$nosuch": 1 } }, "limit": 0 },
            doc! { "q": { "_id": 77 }, "limit": 1 },
        ];
        let inserts = vec![
            doc! { "_id": 900, "a": 90 },
            doc! { "_id": 1000, "a": [1] },
            doc! { "_id": [1], "a": 101 },
            doc! { "_id": 901, "a": 190 },
            doc! { "_id": 1001, "a": 1001 },
        ];
        for (kind, items) in [("update", updates), ("delete", deletes), ("insert", inserts)] {
            // Each error as the first one.
            for from in 0..items.len() {
                commands.push(with(command(kind, "r", items[from..].to_vec()), doc! { "ordered": ordered }));
            }
        }
    }
    commands
}

/// A reply without times, the database's name, and what this router adds to a refusal.
fn normalized(mut reply: Document, db: &str) -> String {
    for name in ["$clusterTime", "operationTime", "$configTime", "$topologyTime", "lastCommittedOpTime"] {
        reply.remove(name);
    }
    for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
        let error = error.as_document_mut().unwrap();
        let text = error.get_str("errmsg").unwrap();
        let cut =
            ["; shard key pattern:", ": add an equality on"].iter().filter_map(|mark| text.find(mark)).min();
        let text = text[..cut.unwrap_or(text.len())].to_owned();
        error.insert("errmsg", text);
    }
    reply.to_string().replace(&format!("{db}."), "DB.").replace(&format!("ns={db}"), "ns=DB")
}

fn shown(command: &Document) -> String {
    command.to_string().chars().take(400).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_equal_those_of_the_servers_own_router() {
    let (cluster, mut conn) = start().await;
    let mut oracle = cluster.shard(1).unwrap().primary().await.unwrap().raw().await.unwrap();
    let mut wrong = Vec::new();
    for command in by_one_field().into_iter().chain(by_other_keys()).chain(options()) {
        let mut fields = command.clone().into_iter();
        let (name, collection) = fields.next().unwrap();
        let name = match &*name {
            "insert" => "clusterInsert",
            "update" => "clusterUpdate",
            _ => "clusterDelete",
        };
        let mut asked = doc! { name: collection };
        asked.extend(fields);
        let theirs = normalized(oracle.command(ORACLE, asked).await.unwrap(), ORACLE);
        let ours = normalized(conn.command(DB, command.clone()).await.unwrap(), DB);
        let text = shown(&command);
        let differs = DIFFERENT.iter().any(|(part, _)| text.contains(part));
        if (ours == theirs) == differs {
            wrong.push(format!("{text}\n  ours   {ours:.600}\n  theirs {theirs:.600}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// findAndModify by the whole key.
fn modifications() -> Vec<Document> {
    let by = |query: Document, more: Document| with(doc! { "findAndModify": "r", "query": query }, more);
    let one = |more: Document| by(doc! { "a": 90 }, more);
    vec![
        one(doc! { "update": { "$inc": { "n": 1 } } }),
        one(doc! { "update": { "$inc": { "n": 1 } }, "new": true }),
        one(doc! { "update": { "$inc": { "n": 1 } }, "new": true, "fields": { "n": 1, "_id": 0 } }),
        one(doc! { "update": [{ "$set": { "y": "$$v" } }], "let": { "v": 7 }, "new": true }),
        one(doc! { "update": { "$set": { "l.$[e]": 9 } }, "arrayFilters": [{ "e": 1 }], "new": true }),
        one(doc! { "update": { "a": 90, "whole": true }, "new": true }),
        one(doc! { "update": { "$inc": { "whole": 1 } } }),
        one(doc! { "update": { "$nosuch": 1 } }),
        one(doc! { "update": { "$set": { "_id": 1 } } }),
        one(doc! { "update": { "a": 1, "$set": {} } }),
        one(doc! { "update": 5 }),
        one(doc! { "update": { "$set": { "x": 1 } }, "remove": true }),
        one(doc! { "remove": true, "new": true }),
        one(doc! { "remove": true, "upsert": true }),
        one(doc! {}),
        one(doc! { "update": { "$set": { "x": 1 } }, "sort": { "x": 1 }, "hint": { "nosuch": 1 } }),
        one(doc! { "update": { "$set": { "x": 1 } }, "sort": 5 }),
        one(doc! { "update": { "$set": { "x": 1 } }, "foo": 1 }),
        one(doc! { "update": { "$set": { "x": 1 } }, "new": "x" }),
        by(doc! { "a": 4 }, doc! { "update": { "$set": { "x": 1 } } }),
        by(doc! { "a": 4 }, doc! { "remove": true }),
        by(doc! { "a": 4, "_id": 4 }, doc! { "update": { "$set": { "x": 1 } }, "upsert": true }),
        by(doc! { "a": 5, "_id": 5 }, doc! { "update": { "$set": { "x": 1 } }, "upsert": true, "new": true }),
        by(doc! { "a": 6, "_id": 4 }, doc! { "update": { "$set": { "x": 1 } }, "upsert": true }),
        by(doc! { "a": 90, "$nosuch": 1 }, doc! { "remove": true }),
        one(doc! { "remove": true, "writeConcern": { "w": "majority" } }),
        one(doc! { "remove": true }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn find_and_modify_replies_as_a_server_without_routing_does() {
    let (cluster, mut conn) = start().await;
    let mut plain = cluster.shard(2).unwrap().primary().await.unwrap().raw().await.unwrap();
    let list = doc! { "_id": 900, "a": 90, "l": [1, 2, 3] };
    plain.command_ok(PLAIN, doc! { "insert": "r", "documents": [list] }).await.unwrap();
    let mut wrong = Vec::new();
    for command in modifications() {
        let theirs = normalized(plain.command(PLAIN, command.clone()).await.unwrap(), PLAIN);
        let ours = normalized(conn.command(DB, command.clone()).await.unwrap(), DB);
        if ours != theirs {
            wrong.push(format!("{}\n  ours   {ours:.600}\n  theirs {theirs:.600}", shown(&command)));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
