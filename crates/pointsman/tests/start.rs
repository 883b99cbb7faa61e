//! The binary by itself: options, exit codes, what it prints. No cluster is there.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output, Stdio};

fn pointsman(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pointsman")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = pointsman(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    text
}

/// A file that is removed with the value.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pointsman-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = pointsman(&["--help"]);
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    for flag in ["--configdb", "--bind_ip", "--setParameter", "--logpath"] {
        assert!(text.contains(flag), "{flag}: {text}");
    }
    assert!(!text.contains("--keyFile"));
    let version = pointsman(&["--version"]);
    assert!(version.status.success());
    assert!(String::from_utf8(version.stdout).unwrap().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_options_end_it_with_two_and_a_reason() {
    for (arguments, says) in [
        (&[][..], "error: no args for --configdb"),
        (&["--configdb", "a:1"], "configdb supports only replica set connection string"),
        (&["--confgdb", "c/a:1"], "--configdb"),
        (&["--configdb", "c/a:1", "--port", "99999999"], "--port"),
        (&["--configdb", "c/a:1", "--setParameter", "nope=1"], "Unknown --setParameter 'nope'"),
        (&["--configdb", "c/a:1", "--config", "/does/not/exist"], "/does/not/exist"),
    ] {
        let text = refused(arguments);
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}

#[test]
fn all_that_is_refused_is_named_at_once() {
    let file = TempFile::new(
        "refused.conf",
        "sharding: {configDB: 'c/a:1'}\nsecurity: {keyFile: /k}\nnet: {tls: {mode: requireTLS}, prot: 1}\n",
    );
    let text = refused(&["--config", file.path(), "--fork", "--sslCAFile", "x"]);
    for says in ["security.keyFile", "net.tls.mode", "net.port", "--fork", "--sslCAFile"] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn it_waits_for_config_servers_and_ends_on_a_signal() {
    let pid = TempFile::new("pid", "");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["--configdb", "c/127.0.0.1:1", "--port", "1", "--pidfilepath", pid.path()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"id\":22120") {
        line.clear();
        assert_ne!(
            std::io::BufRead::read_line(&mut log, &mut line).unwrap(),
            0,
            "no warning about access control"
        );
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(parsed["t"]["$date"].is_string(), "{line}");
    }
    // Signals are listened to a moment after that.
    while std::fs::read_to_string(pid.path()).unwrap().trim() != child.id().to_string() {
        std::thread::yield_now();
    }
    let mut rest = String::new();
    let ended = loop {
        // Before the handler is there the signal itself ends the process, which is as well.
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::yield_now();
    };
    std::io::Read::read_to_string(&mut log, &mut rest).unwrap();
    assert!(ended.code().is_none_or(|code| code == 0), "{ended}: {rest}");
}
