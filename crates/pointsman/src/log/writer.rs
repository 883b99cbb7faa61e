//! The thread that owns the log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;

use super::time::Moment;
use crate::options::config::LogConfig;

/// Lines that wait for the disk; more are dropped.
const QUEUE_LINES: usize = 8192;
/// The last lines of a process wait this long for the disk.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

enum Message {
    Line(String),
    Rotate(oneshot::Sender<io::Result<()>>),
    Flush(SyncSender<()>),
}

/// The near end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct LogWriter {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl LogWriter {
    pub(super) fn start(config: &LogConfig) -> io::Result<Self> {
        let sink = match &config.path {
            None => Sink::Stdout(io::stdout()),
            Some(path) => {
                if !config.append && path.exists() {
                    move_away(path)?;
                }
                Sink::File { file: open(path)?, path: path.clone(), reopen: config.reopen }
            }
        };
        let (queue, inbox) = sync_channel(QUEUE_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || run(sink, &inbox, &counter))?;
        Ok(Self { queue, dropped })
    }

    /// Queues a line, or drops it.
    pub(super) fn write(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins a new file; the answer comes when it is there. There is none when the disk is far behind (a full queue).
    pub(crate) fn rotate(&self) -> oneshot::Receiver<io::Result<()>> {
        let (done, answer) = oneshot::channel();
        let _ = self.queue.try_send(Message::Rotate(done));
        answer
    }

    /// Waits until all that was queued is written, but not for ever.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH_LIMIT);
        }
    }
}

enum Sink {
    Stdout(io::Stdout),
    File { file: File, path: PathBuf, reopen: bool },
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => {
                out.write_all(bytes)?;
                out.flush()
            }
            Self::File { file, .. } => file.write_all(bytes),
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let Self::File { file, path, reopen } = self else { return Ok(()) };
        if !*reopen {
            move_away(path)?;
        }
        *file = open(path)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Never over another file: two rotations may fall into one second.
fn move_away(path: &Path) -> io::Result<()> {
    let suffix = Moment::now().file_suffix();
    let name = |end: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{suffix}{end}"));
        PathBuf::from(name)
    };
    let mut target = name(String::new());
    let mut more = 0;
    while target.exists() {
        more += 1;
        target = name(format!("-{more}"));
    }
    std::fs::rename(path, target)
}

fn run(mut sink: Sink, inbox: &Receiver<Message>, dropped: &AtomicU64) {
    let mut batch = String::new();
    while let Ok(first) = inbox.recv() {
        let mut next = Some(first);
        // What has queued up meanwhile goes out in one write.
        while let Some(message) = next {
            match message {
                Message::Line(line) => batch.push_str(&line),
                Message::Rotate(done) => {
                    write_out(&mut sink, &mut batch);
                    let rotated = sink.rotate();
                    if let Err(error) = &rotated {
                        tracing::error!(c = "CONTROL", id = 23168, %error, "Error rotating the log");
                    }
                    // Who sent a signal does not wait.
                    let _ = done.send(rotated);
                }
                Message::Flush(done) => {
                    write_out(&mut sink, &mut batch);
                    let _ = done.try_send(());
                }
            }
            next = if batch.len() < 64 * 1024 { inbox.try_recv().ok() } else { None };
        }
        write_out(&mut sink, &mut batch);
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(c = "CONTROL", lines = lost, "Log lines were dropped, since the log was too slow");
        }
    }
}

/// A log that cannot be written must not end the process; there is nowhere to complain either.
fn write_out(sink: &mut Sink, batch: &mut String) {
    if !batch.is_empty() {
        let _ = sink.write(batch.as_bytes());
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_moved_away_at_start_and_on_rotation() {
        let dir = std::env::temp_dir().join(format!("pointsman-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("log");
        std::fs::write(&path, "old\n").unwrap();
        let config =
            LogConfig { path: Some(path.clone()), append: false, reopen: false, utc: false, verbosity: 0 };
        let writer = LogWriter::start(&config).unwrap();
        writer.write("new\n".to_owned());
        writer.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        let moved =
            std::fs::read_dir(&dir).unwrap().filter_map(Result::ok).find(|entry| entry.path() != path);
        assert_eq!(std::fs::read_to_string(moved.unwrap().path()).unwrap(), "old\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
