//! The two forms of a log line.

use std::fmt::{self, Debug, Write as _};

use router::local::log_book::write_json_string;
use tracing::Level;
use tracing::field::{Field, Visit};

use super::time::Moment;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// mongod's, one document a line.
    Json {
        /// Times end in `Z`.
        utc: bool,
    },
    /// For people.
    Human,
}

/// What an event says.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) component: Option<String>,
    pub(super) id: u64,
    pub(super) context: String,
    pub(super) message: String,
    /// Shown by `getLog: "startupWarnings"`.
    pub(super) start_warning: bool,
    /// Name and value; the value is JSON.
    attributes: Vec<(&'static str, String)>,
}

impl Parts {
    fn add(&mut self, field: &Field, json: String) {
        self.attributes.push((field.name(), json));
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    // Writing to a string cannot fail.
    let _ = write_json_string(&mut out, text);
    out
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "c" => self.component = Some(value.to_owned()),
            "ctx" => value.clone_into(&mut self.context),
            "message" => value.clone_into(&mut self.message),
            _ => self.add(field, quoted(value)),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "id" => self.id = value,
            _ => self.add(field, value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "id" => self.id = u64::try_from(value).unwrap_or(0),
            _ => self.add(field, value.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "start_warning" => self.start_warning = value,
            _ => self.add(field, value.to_string()),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let json = if value.is_finite() { value.to_string() } else { quoted(&value.to_string()) };
        self.add(field, json);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name().ends_with(".json") { self.add(field, text) } else { self.record_str(field, &text) }
    }
}

/// mongod's letter for a level.
fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "E",
        Level::WARN => "W",
        Level::INFO => "I",
        Level::DEBUG => "D1",
        Level::TRACE => "D2",
    }
}

/// mongod's component for events that do not name one: by the part of the program that they come from.
pub(super) fn component(target: &str) -> &'static str {
    match target.split("::").next() {
        Some("topology" | "wire") => "NETWORK",
        Some("router" | "chunk_map") => "SHARDING",
        Some("pointsman") => "CONTROL",
        _ => "-",
    }
}

/// The attribute's name without the mark of what its value is.
fn attribute_name(name: &str) -> &str {
    name.strip_suffix(".json").unwrap_or(name)
}

pub(super) fn write(form: Form, level: Level, target: &str, parts: &Parts, now: Moment) -> String {
    let component = parts.component.as_deref().unwrap_or_else(|| component(target));
    let context = if parts.context.is_empty() { "-" } else { &parts.context };
    let mut out = String::with_capacity(256);
    // Writing to a string cannot fail.
    let _ = match form {
        Form::Json { utc } => write_json(&mut out, utc, level, component, context, parts, now),
        Form::Human => write_human(&mut out, level, component, context, parts, now),
    };
    out
}

fn write_json(
    out: &mut String,
    utc: bool,
    level: Level,
    component: &str,
    context: &str,
    parts: &Parts,
    now: Moment,
) -> fmt::Result {
    // Blanks line the columns up as a mongod does.
    let severity = format!("\"{}\",", severity(level));
    let component = format!("\"{component}\",");
    let id = format!("{},", parts.id);
    write!(
        out,
        "{{\"t\":{{\"$date\":\"{}\"}},\"s\":{severity:<6}\"c\":{component:<12}\"id\":{id:<9}\"ctx\":",
        now.iso(utc)
    )?;
    write_json_string(out, context)?;
    out.write_str(",\"msg\":")?;
    write_json_string(out, &parts.message)?;
    if !parts.attributes.is_empty() {
        out.write_str(",\"attr\":{")?;
        for (index, (name, json)) in parts.attributes.iter().enumerate() {
            if index > 0 {
                out.write_char(',')?;
            }
            write_json_string(out, attribute_name(name))?;
            write!(out, ":{json}")?;
        }
        out.write_char('}')?;
    }
    if parts.start_warning {
        out.write_str(",\"tags\":[\"startupWarnings\"]")?;
    }
    out.write_str("}\n")
}

fn write_human(
    out: &mut String,
    level: Level,
    component: &str,
    context: &str,
    parts: &Parts,
    now: Moment,
) -> fmt::Result {
    write!(out, "{} {:<2} {component:<8} ", now.clock(), severity(level))?;
    if context != "-" {
        write!(out, "[{context}] ")?;
    }
    out.write_str(&parts.message)?;
    for (name, json) in &parts.attributes {
        write!(out, "  {}={json}", attribute_name(name))?;
    }
    out.write_char('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        Parts {
            component: Some("NETWORK".to_owned()),
            id: 22943,
            context: "listener".to_owned(),
            message: "Connection \"accepted\"".to_owned(),
            start_warning: false,
            attributes: vec![("remote", quoted("1.2.3.4:5")), ("doc.json", "{\"a\":1}".to_owned())],
        }
    }

    #[test]
    fn lines_have_mongods_shape() {
        let line = write(Form::Json { utc: true }, Level::INFO, "x", &parts(), Moment::now());
        let after_time = line.split_once("\"s\"").unwrap().1;
        assert_eq!(
            after_time,
            ":\"I\",  \"c\":\"NETWORK\",  \"id\":22943,   \"ctx\":\"listener\",\"msg\":\"Connection \\\"accepted\\\"\",\
             \"attr\":{\"remote\":\"1.2.3.4:5\",\"doc\":{\"a\":1}}}\n"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
    }

    #[test]
    fn events_without_a_component_get_one() {
        let parts = Parts { message: "m".to_owned(), ..Parts::default() };
        let line = write(Form::Json { utc: false }, Level::DEBUG, "topology::pool", &parts, Moment::now());
        assert!(line.contains("\"s\":\"D1\", \"c\":\"NETWORK\",  \"id\":0,       \"ctx\":\"-\""), "{line}");
    }

    #[test]
    fn people_see_names_and_values() {
        let line = write(Form::Human, Level::WARN, "x", &parts(), Moment::now());
        assert!(line.ends_with(
            "W  NETWORK  [listener] Connection \"accepted\"  remote=\"1.2.3.4:5\"  doc={\"a\":1}\n"
        ));
    }
}
