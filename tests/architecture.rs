//! The crates' arrows point down, and the pure crates stay pure.

use std::process::Command;

use serde_json::Value;

/// From the bottom up. A crate may name those of lower rank only.
const RANKS: [(&str, u32); 9] = [
    ("document", 0),
    ("wire", 1),
    ("shard-key", 1),
    ("chunk-map", 2),
    ("topology", 2),
    ("router", 3),
    ("pointsman", 4),
    ("testkit", 5),
    ("bench", 6),
];

/// These never do I/O of their own.
const PURE: [&str; 3] = ["document", "shard-key", "chunk-map"];

fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output =
        Command::new(cargo).args(["metadata", "--no-deps", "--format-version", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn rank(name: &str) -> Option<u32> {
    RANKS.iter().find(|(known, _)| *known == name).map(|(_, rank)| *rank)
}

/// Name, whether it is for tests only, and the features asked for.
fn dependencies(package: &Value) -> Vec<(String, bool, Vec<String>)> {
    let of = |dependency: &Value| {
        let features = dependency["features"].as_array().unwrap();
        (
            dependency["name"].as_str().unwrap().to_owned(),
            dependency["kind"] == "dev",
            features.iter().map(|feature| feature.as_str().unwrap().to_owned()).collect(),
        )
    };
    package["dependencies"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn no_arrow_points_up() {
    let mut seen = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if name == "end-to-end" {
            continue;
        }
        let own = rank(name).unwrap_or_else(|| panic!("{name} has no place in the order of the crates"));
        seen.push(name.to_owned());
        for (dependency, for_tests, _) in dependencies(&package) {
            let Some(other) = rank(&dependency) else { continue };
            let may = other < own || (for_tests && dependency == "testkit");
            assert!(may, "{name} names {dependency}, which is not below it");
            assert!(for_tests || dependency != "testkit" || name == "bench", "{name} ships the test kit");
        }
    }
    assert_eq!(seen.len(), RANKS.len(), "crates: {seen:?}");
}

#[test]
fn the_pure_crates_have_no_runtime() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        for (dependency, for_tests, _) in dependencies(&package) {
            let runtime = ["tokio", "socket2", "mio", "topology"].contains(&dependency.as_str());
            assert!(for_tests || !runtime || !PURE.contains(&name), "{name} is pure and names {dependency}");
        }
    }
}

#[test]
fn the_router_crate_opens_no_socket() {
    let packages = packages();
    let router = packages.iter().find(|package| package["name"] == "router").unwrap();
    for (dependency, for_tests, features) in dependencies(router) {
        let sockets =
            dependency == "socket2" || (dependency == "tokio" && features.iter().any(|f| f == "net"));
        assert!(
            for_tests || !sockets,
            "the router names {dependency} {features:?}: sockets belong to topology"
        );
    }
}
