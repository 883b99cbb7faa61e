//! An administrator's session in mongosh, from three empty replica sets to the removal of a shard.

use std::process::Command;

use testkit::Cluster;

/// The mongosh that `./dev` installs, or the one that `MONGOSH` names.
fn mongosh() -> String {
    if let Ok(path) = std::env::var("MONGOSH") {
        return path;
    }
    let dev = concat!(env!("CARGO_MANIFEST_DIR"), "/../dev");
    let output = Command::new(dev).arg("mongosh-path").output().unwrap();
    let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert!(std::path::Path::new(&path).exists(), "no mongosh (./dev mongosh-path, or MONGOSH)");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_leads_a_cluster_from_mongosh() {
    let mongosh = mongosh();
    let cluster = Cluster::builder()
        .shards(3)
        .without_added_shards()
        .balancer()
        // The balancer looks every 10 s; here it need not be waited for.
        .config_parameter(
            "failpoint.overrideBalanceRoundInterval",
            r#"{"mode": "alwaysOn", "data": {"intervalMs": 200}}"#,
        )
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
