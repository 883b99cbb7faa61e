//! Takes events: is this one wanted, and what line does it make?

use std::sync::Arc;

use router::local::log_book::{Component, LogBook};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::line::{self, Form, Parts};
use super::time::Moment;
use super::writer::LogWriter;

/// What other people's crates say is wanted from this verbosity on.
const FOREIGN_VERBOSITY: u8 = 3;
const OURS: &[&str] = &["pointsman", "router", "topology", "chunk_map", "wire", "document", "shard_key"];

/// The end of all events.
pub(super) struct LogLayer {
    form: Form,
    book: Arc<LogBook>,
    writer: LogWriter,
}

impl LogLayer {
    pub(super) const fn new(form: Form, book: Arc<LogBook>, writer: LogWriter) -> Self {
        Self { form, book, writer }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let verbosity = self.book.verbosities().highest();
        let most = most(verbosity);
        let ours = metadata.target().split("::").next().is_some_and(|part| OURS.contains(&part));
        *metadata.level() <= most
            && (ours || verbosity >= FOREIGN_VERBOSITY || *metadata.level() <= Level::WARN)
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    /// Asked once for each place in the code, and again when the verbosity changes: a silent place costs a load.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut parts = Parts::default();
        event.record(&mut parts);
        let metadata = event.metadata();
        // The component is known only now; a place is silent when no component wants it.
        if *metadata.level() > Level::INFO {
            let component = parts.component.as_deref().unwrap_or_else(|| line::component(metadata.target()));
            let verbosity = self.book.verbosities().level(Component::of_log_name(component));
            if *metadata.level() > most(verbosity) {
                return;
            }
        }
        let line = line::write(self.form, *metadata.level(), metadata.target(), &parts, Moment::now());
        self.book.keep(&line, parts.start_warning);
        self.writer.write(line);
    }
}

/// The least important level that is logged.
const fn most(verbosity: u8) -> Level {
    match verbosity {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    }
}
