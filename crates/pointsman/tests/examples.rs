//! Every example in `config/` is a configuration that the binary takes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

#[test]
fn every_example_is_taken() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !matches!(path.extension().and_then(|name| name.to_str()), Some("conf" | "yaml" | "yml")) {
            continue;
        }
        seen += 1;
        // One option more that is refused: everything else must be in order, and it does not start.
        let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args(["--config", path.to_str().unwrap(), "--fork"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let complaints: Vec<&str> = text.lines().collect();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(complaints.len(), 2, "{}: {text}", path.display());
        assert!(text.starts_with("--fork is not supported"), "{}: {text}", path.display());
    }
    assert!(seen > 0, "no examples found");
}
