//! Server parameters: `--setParameter`, `getParameter`, `setParameter`.
//!
//! [`table`] has a row for each. The few that commands look at often have a field of their own beside the list.

pub mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use document::DocBuf;
use parking_lot::RwLock;
use topology::{PoolOptions, TopologyOptions};

use super::verbosity;
use crate::command::Op;
use crate::error::{CommandError, CommandResult};
use crate::reply::Reply;
use crate::request::is_generic;
use table::{Parameter, ROWS};

/// The one parameter whose value is a document.
const VERBOSITIES: &str = "logComponentVerbosity";

/// The value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// true or false
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Several texts.
    Texts(&'a [&'a str]),
}

impl Value<'_> {
    fn write(self, name: &str, doc: &mut document::DocWriter<'_>) {
        match self {
            Self::Bool(flag) => doc.put(name, flag),
            Self::Int(n) => match i32::try_from(n) {
                Ok(n) => doc.put(name, n),
                Err(_) => doc.put(name, n),
            },
            Self::Text(text) => doc.put(name, text),
            Self::Texts(texts) => doc.array(name, texts, |w, index, text| w.put(index, *text)),
        }
    }
}

/// The server parameters of this router.
#[derive(Debug)]
pub struct Parameters {
    /// In the order of the table. Only numbers and truth values can be changed.
    values: RwLock<Vec<Value<'static>>>,
    test_commands: bool,
    requires_api_version: AtomicBool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            values: RwLock::new(ROWS.iter().map(|row| row.default).collect()),
            test_commands: false,
            requires_api_version: AtomicBool::new(false),
        }
    }
}

impl Parameters {
    /// From `--setParameter name=value` pairs; an unknown name or a bad value is an error that names it.
    pub fn from_options(options: &[(String, String)]) -> Result<Self, String> {
        let mut parameters = Self::default();
        for (name, text) in options {
            let (at, row) = find(name).ok_or_else(|| format!("Unknown --setParameter '{name}'"))?;
            if !row.settable.at_startup() {
                return Err(format!("Cannot use --setParameter to set '{name}' at startup"));
            }
            let value =
                from_text(row, text).ok_or_else(|| format!("Bad value for parameter '{name}': '{text}'"))?;
            parameters.store(at, row, value);
            if row.name == "enableTestCommands" {
                parameters.test_commands = value == Value::Bool(true);
            }
        }
        Ok(parameters)
    }

    /// Names that were set to something else than their default and that change nothing here.
    #[must_use]
    pub fn without_effect(&self) -> Vec<&'static str> {
        let values = self.values.read();
        ROWS.iter()
            .zip(values.iter())
            .filter(|(row, value)| !row.acts && row.default != **value)
            .map(|(row, _)| row.name)
            .collect()
    }

    /// `enableTestCommands`
    #[must_use]
    pub const fn test_commands(&self) -> bool {
        self.test_commands
    }

    /// `requireApiVersion`
    #[must_use]
    pub fn requires_api_version(&self) -> bool {
        self.requires_api_version.load(Ordering::Relaxed)
    }

    /// The value of a parameter that is a number; 0 when it is none.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        match find(name).and_then(|(at, _)| self.values.read().get(at).copied()) {
            Some(Value::Int(n)) => n,
            _ => 0,
        }
    }

    /// The value of a parameter that is a time in milliseconds.
    #[must_use]
    pub fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(u64::try_from(self.int(name)).unwrap_or(0))
    }

    /// The value of a parameter that is true or false.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        find(name).and_then(|(at, _)| self.values.read().get(at).copied()) == Some(Value::Bool(true))
    }

    /// The value of a parameter that is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> &'static str {
        match find(name).and_then(|(at, _)| self.values.read().get(at).copied()) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// How many connections go to a server, and for how long.
    #[must_use]
    pub fn topology_options(&self) -> TopologyOptions {
        let size = |name, least: usize| usize::try_from(self.int(name)).unwrap_or(0).max(least);
        let max_size = size("ShardingTaskExecutorPoolMaxSize", 1);
        TopologyOptions {
            pool: PoolOptions {
                min_size: size("ShardingTaskExecutorPoolMinSize", 0).min(max_size),
                max_size,
                max_connecting: size("ShardingTaskExecutorPoolMaxConnecting", 1),
                refresh_requirement: self.millis("ShardingTaskExecutorPoolRefreshRequirementMS"),
                refresh_timeout: self.millis("ShardingTaskExecutorPoolRefreshTimeoutMS"),
                host_timeout: self.millis("ShardingTaskExecutorPoolHostTimeoutMS"),
                ..PoolOptions::default()
            },
            ..TopologyOptions::default()
        }
    }

    fn store(&self, at: usize, row: &Parameter, value: Value<'static>) {
        if let Some(slot) = self.values.write().get_mut(at) {
            *slot = value;
        }
        if row.name == "requireApiVersion" {
            self.requires_api_version.store(value == Value::Bool(true), Ordering::Relaxed);
        }
    }
}

fn find(name: &str) -> Option<(usize, &'static Parameter)> {
    ROWS.iter().enumerate().find(|(_, row)| row.name == name)
}

/// From the command line, where every value is a text.
fn from_text(row: &Parameter, text: &str) -> Option<Value<'static>> {
    match row.default {
        Value::Bool(_) => match text {
            "1" | "true" => Some(Value::Bool(true)),
            "0" | "false" => Some(Value::Bool(false)),
            _ => None,
        },
        Value::Int(_) => text.parse().ok().map(Value::Int),
        Value::Text(_) => choice(row, text),
        Value::Texts(_) => None,
    }
}

/// Texts have no effect or are fixed, so that only the one that is true anyway is taken, but for this one.
fn choice(row: &Parameter, text: &str) -> Option<Value<'static>> {
    match (row.name, row.default) {
        ("readHedgingMode", _) => ["on", "off"].into_iter().find(|mode| *mode == text).map(Value::Text),
        (_, Value::Text(fixed)) => (text == fixed).then_some(row.default),
        _ => None,
    }
}

/// From a command: any value can be read as true or false, and numbers are cut to whole ones (seen on 6.0.5).
fn from_bson(row: &Parameter, value: document::Value<'_>) -> CommandResult<Value<'static>> {
    let bad = |text: String| Err(CommandError::bad_value(text));
    let whole = match value {
        document::Value::Double(n) => document::Value::Double(n.trunc()).as_i64(),
        other => other.as_i64(),
    };
    match row.default {
        Value::Bool(_) => Ok(Value::Bool(value.is_truthy())),
        Value::Int(_) => match whole {
            Some(n) if row.name == "logLevel" && !(0..=5).contains(&n) => {
                bad(format!("Invalid value for logLevel: logLevel: {n}"))
            }
            Some(n) => Ok(Value::Int(n)),
            None if row.name == "logLevel" => bad(format!(
                "Invalid value for logLevel: logLevel: {}",
                value.as_str().map_or_else(|| format!("{value:?}"), |text| format!("\"{text}\""))
            )),
            None => bad(format!("Failed validating {}: Unable to coerce value to integral type", row.name)),
        },
        Value::Text(_) if row.settable.at_runtime() => match value.as_str() {
            Some(text) => match choice(row, text) {
                Some(value) => Ok(value),
                None => bad(format!("Unrecognized value for {}: {text}", row.name)),
            },
            None => bad(format!("Failed validating {}: it is a text", row.name)),
        },
        Value::Text(_) | Value::Texts(_) => bad(format!("{} cannot be changed", row.name)),
    }
}

/// `getParameter`
pub async fn get_parameter(op: &Op<'_>) -> CommandResult<Reply> {
    let target = op.request.target;
    let options = target.as_doc();
    let option = |name| options.and_then(|doc| doc.get(name)).is_some_and(document::Value::is_truthy);
    let shows_details = option("showDetails");
    let all = target.as_str() == Some("*") || option("allParameters");
    let values = op.router.parameters().values.read();
    let mut doc = DocBuf::new();
    for (row, value) in ROWS.iter().zip(values.iter()) {
        if !all && !asks_for(op, row.name) {
            continue;
        }
        let log = &op.router.settings().log;
        let write = |name: &str, w: &mut document::DocWriter<'_>| match row.name {
            VERBOSITIES => verbosity::write(log, name, w),
            "logLevel" => w.put(name, i32::from(log.verbosities().default_level())),
            _ => value.write(name, w),
        };
        if shows_details {
            doc.append_doc(row.name, |w| {
                write("value", w);
                w.put("settableAtRuntime", row.settable.at_runtime());
                w.put("settableAtStartup", row.settable.at_startup());
            });
        } else {
            doc.write(|w| write(row.name, w));
        }
    }
    if doc.as_doc().is_empty() {
        return Err(CommandError::without_code("no option found to get"));
    }
    Ok(Reply::ok_with(doc.as_doc()))
}

/// Is there a field of this name beside the command's own?
fn asks_for(op: &Op<'_>, name: &str) -> bool {
    op.request.body.iter().skip(1).any(|field| field.name() == name)
}

/// `setParameter`: the answer has what the first of them was.
pub async fn set_parameter(op: &Op<'_>) -> CommandResult<Reply> {
    let parameters = op.router.parameters();
    let mut reply = None;
    for field in op.request.body.iter().skip(1).filter(|field| !is_generic(field.name_bytes())) {
        let name = field.name();
        let Some((at, row)) = find(name) else {
            return Err(CommandError::without_code(format!(
                "attempted to set unrecognized parameter [{name}], use help:true to see options "
            )));
        };
        if !row.settable.at_runtime() {
            return Err(CommandError::without_code(format!("not allowed to change [{name}] at runtime")));
        }
        if row.name == VERBOSITIES {
            let log = &op.router.settings().log;
            let mut was = DocBuf::new();
            was.write(|w| verbosity::write(log, "was", w));
            verbosity::set(log, field.value())?;
            reply.get_or_insert_with(|| Reply::ok_with(was.as_doc()));
            continue;
        }
        let value = from_bson(row, field.value())?;
        let old = parameters.values.read().get(at).copied().unwrap_or(row.default);
        parameters.store(at, row, value);
        if let ("logLevel", Value::Int(level)) = (row.name, value) {
            op.router.settings().log.set_verbosity(u8::try_from(level).unwrap_or(0));
        }
        tracing::info!(
            c = "COMMAND",
            id = 23435,
            parameter = name,
            "Successfully set parameter to new value"
        );
        if reply.is_none() {
            let mut doc = DocBuf::new();
            doc.write(|w| old.write("was", w));
            reply = Some(Reply::ok_with(doc.as_doc()));
        }
    }
    reply.ok_or_else(|| CommandError::without_code("no option found to set, use help:true to see options "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Parameters, String> {
        Parameters::from_options(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn startup_options_are_checked_by_name_and_type() {
        assert!(with("enableTestCommands", "1").unwrap().test_commands());
        assert!(!with("enableTestCommands", "false").unwrap().test_commands());
        assert!(with("requireApiVersion", "true").unwrap().requires_api_version());
        assert_eq!(Parameters::default().text("readHedgingMode"), "on");
        assert_eq!(with("readHedgingMode", "off").unwrap().text("readHedgingMode"), "off");
        assert_eq!(with("cursorTimeoutMillis", "7").unwrap().millis("cursorTimeoutMillis").as_millis(), 7);
        for (name, value, says) in [
            ("nope", "1", "Unknown --setParameter 'nope'"),
            ("enableTestCommands", "x", "Bad value for parameter 'enableTestCommands'"),
            ("cursorTimeoutMillis", "1s", "Bad value"),
            ("readHedgingMode", "maybe", "Bad value"),
            ("authSchemaVersion", "5", "at startup"),
        ] {
            let error = with(name, value).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_changes_nothing_is_named() {
        assert_eq!(with("maxSessions", "5").unwrap().without_effect(), ["maxSessions"]);
        assert!(with("maxSessions", "1000000").unwrap().without_effect().is_empty());
        assert!(with("ShardingTaskExecutorPoolMaxSize", "9").unwrap().without_effect().is_empty());
    }

    #[test]
    fn pools_follow_their_parameters() {
        let options = with("ShardingTaskExecutorPoolMaxSize", "0").unwrap().topology_options();
        assert_eq!((options.pool.max_size, options.pool.min_size), (1, 1));
        let options = with("ShardingTaskExecutorPoolHostTimeoutMS", "5").unwrap().topology_options();
        assert_eq!(options.pool.host_timeout, Duration::from_millis(5));
    }

    #[test]
    fn rows_are_in_order_and_unique() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
    }
}
