//! The kit itself, without any router.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bson::doc;
use testkit::raw::is_ok;
use testkit::{Cluster, eventually, eventually_within};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_single_members_has_its_shards_and_goes_away_whole() {
    let cluster = Cluster::builder().shards(3).without_router().start().await.unwrap();
    let shards = cluster.config_find("shards", doc! {}, doc! { "_id": 1 }).await.unwrap();
    let names: Vec<&str> = shards.iter().map(|shard| shard.get_str("_id").unwrap()).collect();
    assert_eq!(names, ["shard0", "shard1", "shard2"]);

    let settings = cluster.config_find("settings", doc! { "_id": "balancer" }, doc! {}).await.unwrap();
    assert_eq!(settings[0].get_str("mode").unwrap(), "off");

    let before = cluster.op_counters().await.unwrap();
    let shard = cluster.shard(1).unwrap();
    shard.command("local", doc! { "find": "startup_log" }).await.unwrap();
    let after = cluster.op_counters().await.unwrap();
    assert_eq!((after["shard1"] - before["shard1"]).query, 1);
    assert_eq!((after["shard0"] - before["shard0"]).query, 0);

    cluster.start_profiling("d").await.unwrap();
    shard.command("d", doc! { "find": "c", "comment": "seen" }).await.unwrap();
    let seen = cluster.profiled("d", doc! { "command.comment": "seen" }).await.unwrap();
    assert_eq!(seen.iter().map(|op| op.shard.as_str()).collect::<Vec<_>>(), ["shard1"]);

    let member = shard.member(0).unwrap();
    assert!(member.usage().unwrap().rss_bytes > 20_000_000);
    let (pid, dir) = (member.pid().unwrap(), cluster.dir().to_owned());
    drop(cluster);
    assert!(!Path::new("/proc").join(pid.to_string()).exists());
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_paused_killed_restarted_and_stepped_down() {
    let cluster = Cluster::builder().shards(1).members(3).without_router().start().await.unwrap();
    let shard = cluster.shard(0).unwrap();

    let secondary = shard.members()[2].name().to_owned();
    let secondary = shard.members().iter().find(|member| member.name() == secondary).unwrap();
    let port = secondary.address();
    secondary.pause().unwrap();
    let answer =
        tokio::time::timeout(Duration::from_millis(300), secondary.command("admin", doc! { "ping": 1 }));
    assert!(answer.await.is_err(), "a paused member answered");
    secondary.resume().unwrap();
    secondary.command("admin", doc! { "ping": 1 }).await.unwrap();

    secondary.kill();
    assert!(secondary.raw().await.is_err());
    secondary.restart().await.unwrap();
    assert_eq!(secondary.address(), port);
    shard.wait_until_complete().await.unwrap();

    let old = shard.primary().await.unwrap().name().to_owned();
    let new = shard.step_down().await.unwrap();
    assert_ne!(new.name(), old);

    new.kill();
    eventually("another primary after a kill", || async {
        for member in shard.members() {
            if member.is_primary().await {
                return true;
            }
        }
        false
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_primary_is_replaced_and_comes_back_as_a_secondary() {
    let cluster =
        Cluster::builder().shards(1).members(3).partitionable().without_router().start().await.unwrap();
    let shard = cluster.shard(0).unwrap();
    let old = shard.primary().await.unwrap();
    old.isolate().unwrap();
    assert!(!old.is_primary().await, "an isolated member answers");
    let new = shard.primary().await.unwrap();
    assert_ne!(new.name(), old.name());
    new.command("d", doc! { "insert": "c", "documents": [{ "n": 1 }], "writeConcern": { "w": 2 } })
        .await
        .unwrap();

    old.reconnect().unwrap();
    shard.wait_until_complete().await.unwrap();
    eventually("the write has reached the member that was away", || async {
        let count = doc! { "count": "c", "$readPreference": { "mode": "secondaryPreferred" } };
        old.command("d", count).await.is_ok_and(|reply| reply.get_i32("n").is_ok_and(|n| n == 1))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_end_with_a_killed_parent() {
    let mut parent = Command::new(env!("CARGO_BIN_EXE_cluster"))
        .args(["--routers", "0", "--shards", "1", "--", "/bin/sh", "-c", "echo $MONGODB_URI; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(parent.stdout.take().unwrap());
    let uri = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        line
    })
    .await
    .unwrap();
    let address = uri.trim().trim_start_matches("mongodb://").trim_end_matches('/').to_owned();
    let mut conn = testkit::raw::RawConn::connect(&address).await.unwrap();
    assert!(is_ok(&conn.command("admin", doc! { "ping": 1 }).await.unwrap()));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually_within(Duration::from_secs(10), "nobody listens any more", || async {
        testkit::raw::RawConn::connect(&address).await.is_err()
    })
    .await
    .unwrap();
}
