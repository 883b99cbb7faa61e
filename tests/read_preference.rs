//! Which member of a shard answers, and how new or certain what it answers has to be.

use std::collections::BTreeSet;

use bson::{Document, doc};
use testkit::raw::{RawConn, is_ok};
use testkit::{Cluster, Member};

const DB: &str = "pref";

/// Two shards: `n` below 100 on three members, of which each secondary has a tag of its own, and the others on one.
async fn start() -> Cluster {
    let cluster = Cluster::builder().shards(2).members_of(0, 3).start().await.unwrap();
    cluster.spread(&format!("{DB}.c"), "n", &[100]).await.unwrap();
    let mut conn = conn(&cluster).await;
    let documents: Vec<Document> = [1, 2, 3, 4, 101].iter().map(|n| doc! { "_id": n, "n": n }).collect();
    conn.command_ok(DB, doc! { "insert": "c", "documents": documents, "writeConcern": { "w": "majority" } })
        .await
        .unwrap();

    let set = cluster.shard(0).unwrap();
    let primary = set.primary().await.unwrap();
    let reply = primary.command("admin", doc! { "replSetGetConfig": 1 }).await.unwrap();
    let mut config = reply.get_document("config").unwrap().clone();
    config.insert("version", config.get_i32("version").unwrap() + 1);
    for member in config.get_array_mut("members").unwrap() {
        let member = member.as_document_mut().unwrap();
        let tag = tag(&cluster, member.get_str("host").unwrap());
        member.insert("tags", doc! { "place": tag });
    }
    primary.command("admin", doc! { "replSetReconfig": config }).await.unwrap();
    for member in set.members().iter().chain(cluster.shard(1).unwrap().members()) {
        member.command(DB, doc! { "profile": 2 }).await.unwrap();
    }
    // The router hears of the tags from the members themselves.
    testkit::eventually("the router knows the tags", || async {
        let find = doc! { "find": "c", "filter": { "n": 1 }, "$readPreference": { "mode": "nearest", "tags": [{ "place": "shard0-2" }] }, "maxTimeMS": 500 };
        is_ok(&self::conn(&cluster).await.command(DB, find).await.unwrap())
    })
    .await
    .unwrap();
    cluster
}

async fn conn(cluster: &Cluster) -> RawConn {
    cluster.router(0).unwrap().raw().await.unwrap()
}

fn tag(cluster: &Cluster, address: &str) -> String {
    let members = cluster.shards().iter().flat_map(testkit::ReplicaSet::members);
    members.filter(|member| member.address() == address).map(|member| member.name().to_owned()).collect()
}

/// The members whose profilers saw an operation with this comment.
async fn saw(cluster: &Cluster, comment: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for member in cluster.shards().iter().flat_map(testkit::ReplicaSet::members) {
        let find = doc! {
            "find": "system.profile", "filter": { "command.comment": comment },
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = member.command(DB, find).await.unwrap();
        if !reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty() {
            names.insert(member.name().to_owned());
        }
    }
    names
}

fn names<'a>(members: impl IntoIterator<Item = &'a Member>) -> BTreeSet<String> {
    members.into_iter().map(|member| member.name().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_read_is_answered_by_a_member_that_it_prefers() {
    let cluster = start().await;
    let set = cluster.shard(0).unwrap();
    let primary = names([set.primary().await.unwrap()]);
    let all = names(set.members());
    let secondaries: BTreeSet<String> = all.difference(&primary).cloned().collect();
    let one = secondaries.first().unwrap();
    let only = BTreeSet::from([one.clone()]);
    let mut conn = conn(&cluster).await;

    let with_tags =
        |mode: &str, place: &str| doc! { "mode": mode, "tags": [{ "place": "nowhere" }, { "place": place }] };
    let preferences = [
        ("none", None, &primary),
        ("primary", Some(doc! { "mode": "primary" }), &primary),
        ("primaryPreferred", Some(doc! { "mode": "primaryPreferred" }), &primary),
        ("secondary", Some(doc! { "mode": "secondary" }), &secondaries),
        ("secondaryPreferred", Some(doc! { "mode": "secondaryPreferred" }), &secondaries),
        ("nearest", Some(doc! { "mode": "nearest" }), &all),
        ("tags", Some(with_tags("secondary", one)), &only),
        ("nearest with tags", Some(with_tags("nearest", one)), &only),
        ("fresh", Some(doc! { "mode": "secondary", "maxStalenessSeconds": 120 }), &secondaries),
    ];
    for (name, preference, allowed) in preferences {
        for (command, expected) in [
            (doc! { "find": "c", "filter": { "n": { "$lt": 50 } }, "batchSize": 2 }, 2),
            (
                doc! { "aggregate": "c", "pipeline": [{ "$match": { "n": { "$lt": 50 } } }], "cursor": { "batchSize": 2 } },
                2,
            ),
            (doc! { "count": "c", "query": { "n": { "$lt": 50 } } }, 4),
            (doc! { "distinct": "c", "key": "n", "query": { "n": { "$lt": 50 } } }, 4),
        ] {
            let comment = format!("{name}, {}", command.keys().next().unwrap());
            let mut command = command;
            command.insert("comment", &comment);
            if let Some(preference) = &preference {
                command.insert("$readPreference", preference);
            }
            let reply = conn.command_ok(DB, command).await.unwrap();
            let found = match reply.get_document("cursor") {
                Ok(cursor) => {
                    // The rest is where the cursor is, whatever getMore says.
                    let more = doc! { "getMore": cursor.get_i64("id").unwrap(), "collection": "c", "comment": &comment };
                    let rest = conn.command_ok(DB, more).await.unwrap();
                    let rest = rest.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len();
                    assert_eq!(rest, 2, "{comment}");
                    cursor.get_array("firstBatch").unwrap().len()
                }
                Err(_) => reply
                    .get_i32("n")
                    .map(|n| usize::try_from(n).unwrap())
                    .unwrap_or_else(|_| reply.get_array("values").unwrap().len()),
            };
            assert_eq!(found, expected, "{comment}: {reply}");
            let seen = saw(&cluster, &comment).await;
            // Reads of the nearest member are hedged, those of aggregate are not.
            let most = if name == "nearest" && !comment.ends_with("aggregate") { 2 } else { 1 };
            assert!(
                (1..=most).contains(&seen.len()) && seen.is_subset(allowed),
                "{comment}: {seen:?}, not of {allowed:?}"
            );
        }
    }
    // Writes go to the primary, whatever they prefer.
    let update = doc! {
        "update": "c", "updates": [{ "q": { "n": 1 }, "u": { "$set": { "x": 1 } } }], "comment": "write",
        "$readPreference": { "mode": "secondary" },
    };
    assert_eq!(conn.command_ok(DB, update).await.unwrap().get_i32("nModified").unwrap(), 1);
    assert_eq!(saw(&cluster, "write").await, primary);
}

#[tokio::test(flavor = "multi_thread")]
async fn preferences_and_concerns_that_cannot_be_met_are_refused_as_by_a_server() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    // The second shard has no secondary: only what needs it fails.
    let secondary = doc! { "mode": "secondary" };
    let find = |filter: Document, preference: &Document| {
        doc! { "find": "c", "filter": filter, "$readPreference": preference, "maxTimeMS": 1_000 }
    };
    let found = conn.command_ok(DB, find(doc! { "n": 2 }, &secondary)).await.unwrap();
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    let preferred = doc! { "mode": "secondaryPreferred" };
    let found = conn.command_ok(DB, find(doc! {}, &preferred)).await.unwrap();
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 5);
    let reply = conn.command(DB, find(doc! {}, &secondary)).await.unwrap();
    assert!([50, 133].contains(&reply.get_i32("code").unwrap_or_default()), "{reply}");

    let at = |time| bson::Timestamp { time, increment: 1 };
    let wrong = [
        doc! { "$readPreference": { "mode": "secondary", "maxStalenessSeconds": 10 } },
        doc! { "$readPreference": { "mode": "primary", "tags": [{ "place": "x" }] } },
        doc! { "$readPreference": { "mode": "primary", "maxStalenessSeconds": 120 } },
        doc! { "$readPreference": { "mode": "somewhere" } },
        doc! { "$readPreference": {} },
        doc! { "$readPreference": 5 },
        doc! { "readConcern": 5 },
        doc! { "readConcern": { "level": "brand new" } },
        doc! { "readConcern": { "level": 5 } },
        doc! { "readConcern": { "levels": "local" } },
        doc! { "readConcern": { "level": "local", "atClusterTime": at(1) } },
        doc! { "readConcern": { "level": "linearizable", "afterClusterTime": at(1) } },
        doc! { "readConcern": { "level": "snapshot", "atClusterTime": at(1), "afterClusterTime": at(1) } },
        doc! { "readConcern": { "afterClusterTime": 5 } },
        doc! { "readConcern": { "afterOpTime": {} } },
        doc! { "readConcern": { "provenance": "nobody" } },
    ];
    let server = cluster.shard(0).unwrap().primary().await.unwrap();
    let mut own = server.raw().await.unwrap();
    for options in wrong {
        // Also where nobody needs them, or no shard is asked.
        for command in [
            doc! { "find": "c", "filter": { "n": 2 } },
            doc! { "find": "c" },
            doc! { "find": "nothing" },
            doc! { "insert": "c", "documents": [{ "n": 3 }] },
            doc! { "ping": 1 },
        ] {
            let mut command = command;
            command.extend(options.clone());
            let reply = conn.command(DB, command.clone()).await.unwrap();
            let expected = own.command(DB, command.clone()).await.unwrap();
            assert!(!is_ok(&expected), "{command}: {expected}");
            for field in ["code", "codeName", "errmsg"] {
                assert_eq!(reply.get(field), expected.get(field), "{command}: {reply}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_read_concern_is_passed_on_and_only_available_shows_orphans() {
    let cluster = start().await;
    let mut conn = conn(&cluster).await;
    let orphan = doc! { "insert": "c", "documents": [{ "_id": "orphan", "n": 500 }], "writeConcern": { "w": "majority" } };
    cluster.shard(0).unwrap().primary().await.unwrap().command(DB, orphan).await.unwrap();
    conn.command_ok(
        DB,
        doc! { "create": "view", "viewOn": "c", "pipeline": [{ "$match": { "n": { "$gt": 0 } } }] },
    )
    .await
    .unwrap();
    for (level, expected) in
        [("local", 5), ("majority", 5), ("linearizable", 5), ("snapshot", 5), ("available", 6)]
    {
        for command in [doc! { "find": "c" }, doc! { "aggregate": "c", "pipeline": [], "cursor": {} }] {
            let mut command = command;
            command.insert("readConcern", doc! { "level": level });
            command.insert("comment", level);
            let reply = conn.command_ok(DB, command).await.unwrap();
            let cursor = reply.get_document("cursor").unwrap();
            assert_eq!(cursor.get_array("firstBatch").unwrap().len(), expected, "{level}: {reply}");
            assert_eq!(cursor.contains_key("atClusterTime"), level == "snapshot", "{reply}");
        }
        // A view's own shard is asked for it first, where nothing is sharded.
        for command in [doc! { "find": "view" }, doc! { "aggregate": "view", "pipeline": [], "cursor": {} }] {
            let mut command = command;
            command.insert("readConcern", doc! { "level": level });
            let reply = conn.command_ok(DB, command).await.unwrap();
            let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
            assert_eq!(batch.len(), expected, "{level}: {reply}");
        }
        let find = doc! { "find": "system.profile", "filter": { "command.comment": level } };
        let seen = cluster.shard(1).unwrap().command(DB, find).await.unwrap();
        let seen = seen.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
        assert!(!seen.is_empty());
        for op in seen {
            let concern = op
                .as_document()
                .unwrap()
                .get_document("command")
                .unwrap()
                .get_document("readConcern")
                .unwrap();
            assert_eq!(concern.get_str("level").unwrap(), level, "{op}");
        }
    }
}
