//! The log: `tracing` events in, mongod's JSON lines out (or a form for people, on a terminal).
//!
//! - [`layer`]: takes an event, decides whether it is wanted, makes a line of it.
//! - [`line`]: the two forms of a line.
//! - [`time`]: dates without a calendar crate.
//! - [`writer`]: a thread that owns the file. Lines reach it through a bounded queue; what does not fit is dropped and
//!   counted, so that a slow disk never holds up a command.
//!
//! Events name their component, number and context as fields: `c`, `id`, `ctx`. A field `x.json` holds JSON.

mod layer;
mod line;
mod time;
mod writer;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use router::local::log_book::LogBook;
use tracing_subscriber::layer::SubscriberExt;

use crate::options::config::LogConfig;
pub(crate) use writer::LogWriter;

/// Opens the log and sends all events to it from now on.
pub(crate) fn start(config: &LogConfig, book: Arc<LogBook>) -> io::Result<LogWriter> {
    book.set_verbosity(config.verbosity);
    let human = config.path.is_none() && io::stdout().is_terminal();
    let form = if human { line::Form::Human } else { line::Form::Json { utc: config.utc } };
    let writer = LogWriter::start(config)?;
    let layer = layer::LogLayer::new(form, book, writer.clone());
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    Ok(writer)
}
