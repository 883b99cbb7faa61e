//! An administrator's session in mongosh, from an empty cluster to the removal of a shard.

use std::process::Command;

use testkit::Cluster;

/// The mongosh that `./dev` installed, or the one that `MONGOSH` names.
fn mongosh() -> Option<String> {
    if let Ok(path) = std::env::var("MONGOSH") {
        return Some(path);
    }
    let dev = concat!(env!("CARGO_MANIFEST_DIR"), "/../dev");
    let output = Command::new(dev).arg("mongosh-path").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    std::path::Path::new(&path).exists().then_some(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_leads_a_cluster_from_mongosh() {
    let Some(mongosh) = mongosh() else {
        println!("skipped: no mongosh (./dev mongosh-path, or MONGOSH)");
        return;
    };
    let cluster = Cluster::builder()
        .shards(3)
        .config_parameter("reshardingMinimumOperationDurationMillis", "0")
        .shard_parameter("orphanCleanupDelaySecs", "0")
        .start()
        .await
        .unwrap();
    let shards: Vec<String> = cluster.shards().iter().map(testkit::ReplicaSet::connection_string).collect();
    let home = tempfile_dir();
    let output = tokio::process::Command::new(mongosh)
        .args(["--quiet", &cluster.uri().unwrap(), "--file"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/cluster_life.js"))
        .env("SHARDS", shards.join(";"))
        .env("HOME", &home)
        .output()
        .await
        .unwrap();
    let _ = std::fs::remove_dir_all(&home);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("all passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// mongosh writes its settings and history under HOME.
fn tempfile_dir() -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("pointsman-mongosh-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}
