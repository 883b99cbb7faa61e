//! What a process uses, from `/proc`.

use std::time::Duration;

use anyhow::{Context, Result};

/// Memory and CPU of one process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident size.
    pub rss_bytes: u64,
    /// The largest resident size it ever had (or had since [`Usage::reset_peak`]).
    pub peak_rss_bytes: u64,
    /// User and system time of all its threads.
    pub cpu: Duration,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Usage {
    /// Reads the usage of `pid`.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("no such process")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field, the name in brackets, may itself hold spaces: count from the last bracket.
        let fields: Vec<&str> =
            stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace().collect();
        let ticks = |index: usize| -> Result<u64> { Ok(fields.get(index).context("short stat")?.parse()?) };
        let all_ticks = ticks(11)? + ticks(12)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Ok(Self {
            rss_bytes: kib(&status, "VmRSS:")? * 1024,
            peak_rss_bytes: kib(&status, "VmHWM:")? * 1024,
            cpu: Duration::from_millis(all_ticks * 1000 / per_second),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
        })
    }

    /// Makes the kernel count the peak from now on.
    ///
    /// # Errors
    /// When there is no such process or it is not ours.
    pub fn reset_peak(pid: u32) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
    }
}

fn kib(status: &str, key: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key}"))?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
