//! `count` and `distinct` over several shards give, and refuse, what they do on one.

use bson::{Bson, Document, doc};
use testkit::Cluster;
use testkit::raw::RawConn;

const DB: &str = "cd";

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

/// The same documents in a sharded collection and in one that is not, and a view of each.
async fn start() -> Cluster {
    let cluster = Cluster::builder().shards(3).start().await.unwrap();
    cluster.spread(&format!("{DB}.sharded"), "x", &[100, 200]).await.unwrap();
    let words = ["a", "A", "b", "é", "B"];
    let documents: Vec<Document> = (0..300)
        .map(|n| {
            let word = words[usize::try_from(n).unwrap() % 5];
            let number =
                if n % 2 == 0 { Bson::Int32(n % 6) } else { Bson::Double(f64::from(n % 6)) };
            doc! { "_id": n, "x": n, "g": n % 7, "s": word, "n": number, "l": [n % 4, [n % 3]], "d": { "e": n % 2 } }
        })
        .collect();
    let mut conn = conn(&cluster).await;
    for name in ["sharded", "plain"] {
        conn.command_ok(DB, doc! { "insert": name, "documents": &documents }).await.unwrap();
        let index = doc! { "key": { "g": 1 }, "name": "g" };
        conn.command_ok(DB, doc! { "createIndexes": name, "indexes": [index] }).await.unwrap();
        let view = doc! { "create": format!("{name}_view"), "viewOn": name, "pipeline": [{ "$match": { "g": { "$lt": 5 } } }] };
        conn.command_ok(DB, view).await.unwrap();
    }
    cluster
}

/// What a reply says, without what differs by collection and shard.
fn said(reply: &Document) -> (Option<i32>, String) {
    if let Ok(code) = reply.get_i32("code") {
        let text = reply.get_str("errmsg").unwrap_or_default();
        let text = text.replace("cd.sharded", "cd.plain");
        // A count says which shard failed, as in mongos.
        let text = text
            .split_once(" :: caused by :: ")
            .filter(|(first, _)| first.starts_with("failed on"))
            .map_or(text.clone(), |(_, rest)| rest.to_owned());
        return (Some(code), text);
    }
    let mut values: Vec<String> = match reply.get_array("values") {
        Ok(values) => values.iter().map(Bson::to_string).collect(),
        Err(_) => vec![reply.get("n").unwrap().to_string()],
    };
    values.sort();
    (None, values.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_refusals_are_those_of_one_shard() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let counts = [
        doc! {},
        doc! { "query": { "g": 3 } },
        doc! { "query": { "x": { "$gt": 50, "$lt": 250 } }, "skip": 20, "limit": 100 },
        doc! { "query": {}, "skip": 290, "limit": 100 },
        doc! { "query": {}, "skip": 500 },
        doc! { "query": { "g": 2 }, "limit": -5 },
        doc! { "query": { "g": 2 }, "limit": 0 },
        doc! { "query": { "g": 2 }, "hint": "g" },
        doc! { "query": { "g": 2 }, "hint": { "g": 1 } },
        doc! { "query": { "s": "a" }, "collation": { "locale": "en", "strength": 2 } },
        doc! { "query": { "x": { "$in": [] } } },
        doc! { "query": Bson::Null },
        doc! { "query": { "g": 1 }, "comment": { "a": 1 }, "maxTimeMS": 60_000, "fields": {} },
        doc! { "query": 5 },
        doc! { "query": { "$nosuch": 1 } },
        doc! { "query": { "x": { "$nosuch": 1 } } },
        doc! { "skip": -1 },
        doc! { "skip": "a" },
        doc! { "limit": "a" },
        doc! { "hint": "nosuch" },
        doc! { "hint": 5 },
        doc! { "collation": 5 },
        doc! { "collation": { "locale": "nosuch" } },
        doc! { "fields": 5 },
        doc! { "nosuch": 1 },
        doc! { "readConcern": { "level": "brand new" } },
        doc! { "query": { "$where": "return this.g == 2" } },
        doc! { "query": { "$near": 1 } },
    ];
    let distincts = [
        doc! { "key": "g" },
        doc! { "key": "n" },
        doc! { "key": "l" },
        doc! { "key": "d.e" },
        doc! { "key": "d" },
        doc! { "key": "nosuch" },
        doc! { "key": "x", "query": { "x": { "$lt": 150 } } },
        doc! { "key": "g", "query": { "x": 250 } },
        doc! { "key": "g", "query": Bson::Null },
        doc! { "key": "x", "query": { "x": { "$in": [] } } },
        doc! { "key": "" },
        doc! { "key": 5 },
        doc! {},
        doc! { "key": "g", "query": 5 },
        doc! { "key": "g", "query": { "$nosuch": 1 } },
        doc! { "key": "g", "collation": 5 },
        doc! { "key": "g", "collation": { "locale": "nosuch" } },
        doc! { "key": "g", "nosuch": 1 },
        doc! { "key": "g", "hint": "g" },
        doc! { "key": "g\0h" },
        doc! { "key": "$g" },
        doc! { "key": "g", "maxTimeMS": -1 },
    ];
    let commands = counts.iter().map(|options| ("count", options));
    let commands = commands.chain(distincts.iter().map(|options| ("distinct", options)));
    let mut different = Vec::new();
    for (name, options) in commands {
        for suffix in ["", "_view"] {
            let mut answers = Vec::new();
            for collection in ["plain", "sharded"] {
                let mut command = doc! { name: format!("{collection}{suffix}") };
                command.extend(options.clone());
                answers.push(said(&conn.command(DB, command).await.unwrap()));
            }
            if answers[0] != answers[1] {
                different
                    .push(format!("{name}{suffix} {options}:\n    {:?}\n    {:?}", answers[0], answers[1]));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
