//! The folder of one cluster.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, Result};

const PREFIX: &str = "pointsman-cluster-";

/// Whether any thread has panicked: a cluster is often dropped on another thread than the one whose assertion failed.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// A folder that goes away when dropped; after a panic only the data goes and the logs stay.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
    keep_logs: AtomicBool,
}

impl WorkDir {
    pub(crate) fn create() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        watch_panics();
        sweep();
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // A folder of this name is a leftover of an earlier process that had the same pid.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("data")).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { path, keep_logs: AtomicBool::new(false) })
    }

    /// Where the log of the process `name` goes.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.log"))
    }

    /// Where the process `name` keeps its data.
    pub(crate) fn data(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join("data").join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn keep_logs(&self) {
        self.keep_logs.store(true, Ordering::Relaxed);
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if std::env::var_os("POINTSMAN_KEEP").is_some() {
            eprintln!("kept: {}", self.path.display());
        } else if PANICKED.load(Ordering::Relaxed) || self.keep_logs.load(Ordering::Relaxed) {
            let _ = std::fs::remove_dir_all(self.path.join("data"));
            eprintln!("logs of the cluster: {}", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn watch_panics() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICKED.store(true, Ordering::Relaxed);
            earlier(info);
        }));
    });
}

/// Removes the data (never the logs) of clusters whose process was killed and so could not do it.
fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let Some((pid, _)) = rest.split_once('-') else { continue };
        if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_dir_all(entry.path().join("data"));
        }
    }
}
