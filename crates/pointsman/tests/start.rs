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

/// A process that is killed with the value.
struct Running(std::process::Child);

impl Running {
    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !done() {
        assert!(std::time::Instant::now() < end, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn it_waits_for_config_servers_rotates_its_log_and_ends_on_a_signal() {
    let folder = std::env::temp_dir().join(format!("pointsman-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (log, pid) = (folder.join("log"), folder.join("pid"));
    let child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["--configdb", "c/127.0.0.1:1", "--port", "1", "--setParameter", "maxSessions=5"])
        .args(["--logpath", log.to_str().unwrap(), "--pidfilepath", pid.to_str().unwrap()])
        .spawn()
        .unwrap();
    let mut running = Running(child);
    // The file is written when signals are listened to.
    let id = running.0.id().to_string();
    until("the pid file", || std::fs::read_to_string(&pid).is_ok_and(|text| text.trim() == id));
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    until("a warning", || read(&log).contains("setParameter.maxSessions"));
    for line in read(&log).lines() {
        let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(parsed["t"]["$date"].is_string() && parsed["id"].is_number(), "{line}");
    }
    running.signal("-USR1");
    let count = || std::fs::read_dir(&folder).unwrap().count();
    until("the rotation", || count() == 3);
    until("the second file", || !read(&log).is_empty());
    running.signal("-TERM");
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    assert!(read(&log).contains("\"id\":23138"), "{}", read(&log));
    assert!(!pid.exists());
    std::fs::remove_dir_all(&folder).unwrap();
}
