//! What commands may have the process do: a new log file, and the end.

use std::io;
use std::time::Duration;

use router::Process;
use tokio::sync::{mpsc, oneshot};

use crate::log::LogWriter;

/// The router's hold on its process.
#[derive(Debug)]
pub(crate) struct Control {
    log: LogWriter,
    /// An order to end, with the time that clients have to leave.
    endings: mpsc::Sender<Duration>,
}

impl Control {
    /// The hold, and where orders to end arrive.
    pub(crate) fn new(log: LogWriter) -> (Self, mpsc::Receiver<Duration>) {
        let (endings, orders) = mpsc::channel(1);
        (Self { log, endings }, orders)
    }
}

impl Process for Control {
    fn rotate_log(&self) -> oneshot::Receiver<io::Result<()>> {
        self.log.rotate()
    }

    fn shut_down(&self, quiesce: Duration) {
        // One order is enough, and nobody listens once the end has begun.
        let _ = self.endings.try_send(quiesce);
    }
}
