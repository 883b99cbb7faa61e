//! How much each component of the log says: `logComponentVerbosity`.

use std::sync::atomic::{AtomicI8, AtomicU8, Ordering};

use document::{Doc, DocWriter, Value};

use super::log_book::LogBook;
use crate::codes::ErrorCode;
use crate::error::{CommandError, CommandResult};

/// A component that has a verbosity of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Clients' commands.
    Command,
    /// Connections.
    Network,
    /// The routing table and the shards.
    Sharding,
    /// Start, end, options.
    Control,
    /// Any other.
    Other(usize),
}

/// One component: where it stands in the parameter, and the name in log lines.
struct Row {
    /// The names on the way to it, with dots.
    path: &'static str,
    log_name: &'static str,
}

const fn row(path: &'static str, log_name: &'static str) -> Row {
    Row { path, log_name }
}

/// In the order of the parameter (seen on 6.0.5, without the components of a storage engine). A parent stands before its children.
const ROWS: &[Row] = &[
    row("accessControl", "ACCESS"),
    row("assert", "ASSERT"),
    row("command", "COMMAND"),
    row("control", "CONTROL"),
    row("executor", "EXECUTOR"),
    row("geo", "GEO"),
    row("index", "INDEX"),
    row("network", "NETWORK"),
    row("network.asio", "ASIO"),
    row("network.bridge", "BRIDGE"),
    row("network.connectionPool", "CONNPOOL"),
    row("processHealth", "HEALTH"),
    row("query", "QUERY"),
    row("replication", "REPL"),
    row("sharding", "SHARDING"),
    row("sharding.shardingCatalogRefresh", "SH_REFR"),
    row("sharding.migration", "MIGRATE"),
    row("storage", "STORAGE"),
    row("write", "WRITE"),
    row("ftdc", "FTDC"),
    row("transaction", "TXN"),
];

/// The verbosities; -1 says "as the one above".
#[derive(Debug)]
pub struct Verbosities {
    default: AtomicI8,
    of: [AtomicI8; ROWS.len()],
    /// The highest of all: every command looks at it.
    highest: AtomicU8,
}

impl Default for Verbosities {
    fn default() -> Self {
        Self {
            default: AtomicI8::new(0),
            of: std::array::from_fn(|_| AtomicI8::new(-1)),
            highest: AtomicU8::new(0),
        }
    }
}

impl Component {
    /// The component of this name in log lines.
    #[must_use]
    pub fn of_log_name(name: &str) -> Self {
        match name {
            "COMMAND" => Self::Command,
            "NETWORK" => Self::Network,
            "SHARDING" => Self::Sharding,
            "CONTROL" => Self::Control,
            _ => Self::Other(ROWS.iter().position(|row| row.log_name == name).unwrap_or(usize::MAX)),
        }
    }

    fn row(self) -> usize {
        let name = match self {
            Self::Command => "COMMAND",
            Self::Network => "NETWORK",
            Self::Sharding => "SHARDING",
            Self::Control => "CONTROL",
            Self::Other(row) => return row,
        };
        ROWS.iter().position(|row| row.log_name == name).unwrap_or(usize::MAX)
    }
}

impl Verbosities {
    /// What counts for all that say nothing.
    #[must_use]
    pub fn default_level(&self) -> u8 {
        u8::try_from(self.default.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(super) fn set_default(&self, level: u8) {
        self.default.store(i8::try_from(level).unwrap_or(5).min(5), Ordering::Relaxed);
    }

    /// The highest of all.
    #[must_use]
    pub fn highest(&self) -> u8 {
        self.highest.load(Ordering::Relaxed)
    }

    /// After a change.
    pub(super) fn find_highest(&self) {
        let own = self.of.iter().filter_map(|level| u8::try_from(level.load(Ordering::Relaxed)).ok()).max();
        self.highest.store(own.unwrap_or(0).max(self.default_level()), Ordering::Relaxed);
    }

    /// What counts for a component.
    #[must_use]
    pub fn level(&self, component: Component) -> u8 {
        let mut row = component.row();
        loop {
            let Some(level) = self.of.get(row) else { return self.default_level() };
            if let Ok(level) = u8::try_from(level.load(Ordering::Relaxed)) {
                return level;
            }
            let parent = ROWS.get(row).and_then(|row| row.path.rsplit_once('.')).map(|(parent, _)| parent);
            row = parent
                .and_then(|parent| ROWS.iter().position(|row| row.path == parent))
                .unwrap_or(usize::MAX);
        }
    }

    fn write(&self, w: &mut DocWriter<'_>) {
        w.put("verbosity", i32::from(self.default_level()));
        let level =
            |row: usize| i32::from(self.of.get(row).map_or(-1, |level| level.load(Ordering::Relaxed)));
        for (number, row) in ROWS.iter().enumerate().filter(|(_, row)| !row.path.contains('.')) {
            w.doc(row.path, |w| {
                w.put("verbosity", level(number));
                for (child, inner) in ROWS.iter().enumerate() {
                    if let Some((parent, name)) = inner.path.rsplit_once('.')
                        && parent == row.path
                    {
                        w.doc(name, |w| w.put("verbosity", level(child)));
                    }
                }
            });
        }
    }
}

/// Writes the parameter's value under this name.
pub(super) fn write(book: &LogBook, name: &str, w: &mut DocWriter<'_>) {
    w.doc(name, |w| book.verbosities().write(w));
}

/// Takes over a new value of the parameter: all of it, or nothing when a part is wrong.
pub(super) fn set(book: &LogBook, value: Value<'_>) -> CommandResult<()> {
    let Value::Document(doc) = value else {
        return Err(CommandError::new(
            ErrorCode::TypeMismatch,
            format!("log component verbosity is not a BSON object: logComponentVerbosity: {value:?}"),
        ));
    };
    let mut changes = Vec::new();
    read(doc, "", &mut changes)?;
    for (row, level) in changes {
        match row {
            None => book.verbosities().set_default(u8::try_from(level).unwrap_or(0)),
            Some(row) => {
                if let Some(slot) = book.verbosities().of.get(row) {
                    slot.store(level, Ordering::Relaxed);
                }
            }
        }
    }
    book.changed();
    Ok(())
}

fn read(doc: Doc<'_>, path: &str, changes: &mut Vec<(Option<usize>, i8)>) -> CommandResult<()> {
    let row = ROWS.iter().position(|row| row.path == path);
    for field in doc {
        let inner =
            if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        if field.name() == "verbosity" {
            changes.push((row, number(&inner, field.value())?));
            continue;
        }
        let Some(child) = ROWS.iter().position(|row| row.path == inner) else {
            let whole = if path.is_empty() { format!("default.{inner}") } else { inner };
            return Err(CommandError::bad_value(format!("Invalid component name {whole}")));
        };
        match field.value() {
            Value::Document(doc) => read(doc, &inner, changes)?,
            other => changes.push((Some(child), number(&inner, other)?)),
        }
    }
    Ok(())
}

fn number(path: &str, value: Value<'_>) -> CommandResult<i8> {
    let level = value.as_i64().or_else(|| match value {
        Value::Double(n) => Value::Double(n.trunc()).as_i64(),
        _ => None,
    });
    level.map(|level| i8::try_from(level.clamp(-1, 5)).unwrap_or(0)).ok_or_else(|| {
        CommandError::bad_value(format!(
            "Expected {path} to be a number, but found {}",
            value.element_type().name()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_to(book: &LogBook, doc: &bson::RawDocumentBuf) -> CommandResult<()> {
        set(book, Value::Document(Doc::new(doc.as_bytes()).unwrap()))
    }

    #[test]
    fn components_inherit_until_they_have_their_own() {
        let book = LogBook::default();
        set_to(
            &book,
            &bson::rawdoc! { "verbosity": 1, "network": { "verbosity": 3, "asio": { "verbosity": 2 } } },
        )
        .unwrap();
        let level = |name: &str| book.verbosities().level(Component::of_log_name(name));
        assert_eq!((level("COMMAND"), level("NETWORK"), level("ASIO"), level("CONNPOOL")), (1, 3, 2, 3));
        assert_eq!(book.verbosities().highest(), 3);
        set_to(&book, &bson::rawdoc! { "verbosity": 0, "network": -1 }).unwrap();
        assert_eq!((level("NETWORK"), level("ASIO")), (0, 2));
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let book = LogBook::default();
        for doc in [
            bson::rawdoc! { "verbosity": 2, "nosuch": 1 },
            bson::rawdoc! { "verbosity": 2, "network": { "verbosity": "x" } },
        ] {
            assert_eq!(set_to(&book, &doc).unwrap_err().code(), ErrorCode::BadValue);
        }
        assert_eq!(book.verbosities().highest(), 0);
    }
}
