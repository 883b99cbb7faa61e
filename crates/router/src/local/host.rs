//! What the router knows about the machine it runs on.

use std::time::{SystemTime, UNIX_EPOCH};

use document::Value;

/// The wall clock as a BSON date.
#[must_use]
pub fn now() -> Value<'static> {
    Value::DateTime(millis(SystemTime::now()))
}

/// Milliseconds since 1970.
#[must_use]
pub fn millis(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Processors that this process may use.
#[must_use]
pub fn cores() -> i32 {
    std::thread::available_parallelism().map_or(1, |cores| i32::try_from(cores.get()).unwrap_or(i32::MAX))
}

/// `vm.rss` and `vm.size` of this process in MiB.
#[must_use]
pub fn memory_mib() -> (i64, i64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    (kib(&status, "VmRSS:") / 1024, kib(&status, "VmSize:") / 1024)
}

/// Memory of the machine in MiB.
#[must_use]
pub fn machine_memory_mib() -> i64 {
    kib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:") / 1024
}

/// Major page faults of this process.
#[must_use]
pub fn page_faults() -> i64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name may hold blanks; the numbers follow its closing bracket, majflt is the tenth of them.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after.split_whitespace().nth(9).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// `PRETTY_NAME` of the distribution.
#[must_use]
pub fn distribution() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    release.lines().find(|line| line.starts_with("PRETTY_NAME=")).unwrap_or("unknown").to_owned()
}

/// Version of the kernel.
#[must_use]
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn kib(text: &str, name: &str) -> i64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}
