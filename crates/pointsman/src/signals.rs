//! Signals: SIGTERM, SIGINT and SIGHUP end the process, SIGUSR1 rotates the log.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::log::LogWriter;

/// Signals that end the process.
#[derive(Debug)]
pub(crate) struct Endings {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Endings {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next of them, by its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}

/// Rotates the log on SIGUSR1, for as long as the process lives. SIGUSR2 (stack traces, in a mongos) does nothing
/// instead of its default, which is to end the process.
pub(crate) fn rotate_on_signal(log: LogWriter) -> io::Result<()> {
    let mut user_1 = signal(SignalKind::user_defined1())?;
    let mut user_2 = signal(SignalKind::user_defined2())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(()) = user_1.recv() => {
                    // The log itself tells when it fails.
                    drop(log.rotate());
                    tracing::info!(c = "CONTROL", id = 23166, "Log rotation initiated");
                }
                Some(()) = user_2.recv() => {}
                else => return,
            }
        }
    });
    Ok(())
}
