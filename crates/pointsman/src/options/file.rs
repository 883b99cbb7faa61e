//! The configuration file: YAML, flattened to the paths of the option table.

use std::path::Path;

use serde_json::Value;

use super::table::{EXPANSIONS, ROWS, by_path};
use super::{Options, nearest};

/// A larger file is no configuration.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads a file. An unreadable one is a complaint like any other.
#[must_use]
pub(crate) fn read(path: &Path) -> Options {
    let text = std::fs::metadata(path).and_then(|found| {
        if found.len() > MAX_FILE_BYTES {
            return Err(std::io::Error::other("it is larger than 1 MiB"));
        }
        std::fs::read_to_string(path)
    });
    match text {
        Ok(text) => parse(&text),
        Err(error) => Options {
            complaints: vec![format!("cannot read the configuration file {}: {error}", path.display())],
            ..Options::default()
        },
    }
}

/// Reads the text of a file.
#[must_use]
pub(crate) fn parse(text: &str) -> Options {
    let mut options = Options::default();
    if text.trim().is_empty() {
        return options;
    }
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(top)) => {
            for (name, value) in top {
                walk(&mut options, &name, &value);
            }
        }
        Ok(Value::Null) => {}
        Ok(_) => options.complaints.push("the configuration file is not a mapping of sections".to_owned()),
        Err(error) => options.complaints.push(format!("cannot parse the configuration file: {error}")),
    }
    options
}

fn walk(options: &mut Options, path: &str, value: &Value) {
    if path == "setParameter" {
        return set_parameters(options, value);
    }
    if path == "systemLog.component" {
        return options.taken.push(path.to_owned());
    }
    if let Some(row) = by_path(path) {
        match scalar(value) {
            Some(text) => options.set(row, path, &text),
            None => match value {
                Value::Object(inner)
                    if inner.keys().any(|name| EXPANSIONS.iter().any(|(known, _)| known == name)) =>
                {
                    options.complaints.push(format!("{path}: expansion directives are not supported"));
                }
                Value::Null => {}
                _ => options.complaints.push(format!("{path} takes one value")),
            },
        }
        return;
    }
    let section = format!("{path}.");
    match value {
        Value::Object(inner) if ROWS.iter().any(|row| row.path.starts_with(&section)) => {
            for (name, value) in inner {
                walk(options, &format!("{section}{name}"), value);
            }
        }
        Value::Null if ROWS.iter().any(|row| row.path.starts_with(&section)) => {}
        _ => options.complaints.push(unknown(path)),
    }
}

fn unknown(path: &str) -> String {
    let sections = ROWS.iter().filter_map(|row| row.path.split_once('.')).map(|(section, _)| section);
    let paths = ROWS.iter().map(|row| row.path);
    let near = nearest(path, paths.chain(sections).chain(["setParameter"]));
    match near {
        Some(name) => format!("{path} is not an option of mongos; did you mean {name}?"),
        None => format!("{path} is not an option of mongos"),
    }
}

fn set_parameters(options: &mut Options, value: &Value) {
    let Value::Object(parameters) = value else {
        options.complaints.push("setParameter takes a mapping of names to values".to_owned());
        return;
    };
    for (name, value) in parameters {
        match scalar(value) {
            Some(text) => options.parameters.push((name.clone(), text)),
            None => options.complaints.push(format!("setParameter.{name} takes one value")),
        }
    }
}

/// The text of a plain value.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(n) => Some(n.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mongos_file_is_read() {
        let options = parse(
            "sharding:\n  configDB: c/h:1\nnet: {port: '27018', ipv6: yes, bindIp: \"::,0.0.0.0\"}\nsystemLog:\n  \
             quiet: on\nsetParameter:\n  enableTestCommands: 1\n",
        );
        assert_eq!(options.complaints, Vec::<String>::new());
        assert_eq!(options.text("sharding.configDB"), Some("c/h:1"));
        assert_eq!(options.number("net.port"), Some(27018));
        assert_eq!(options.switch("net.ipv6"), Some(true));
        assert_eq!(options.switch("systemLog.quiet"), Some(true));
        assert_eq!(options.parameters, [("enableTestCommands".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn everything_that_is_wrong_is_told() {
        let options = parse(
            "net:\n  prot: 1\n  port: x\n  tls: {mode: requireTLS, CAFile: /a}\nsecurity: {keyFile: /k, authorization: \
             enabled}\nprocessManagement: {fork: true}\nstorage: {dbPath: /d}\nshardnig: 1\n",
        );
        for says in [
            "net.prot is not an option of mongos; did you mean net.port?",
            "the value 'x' of net.port is not valid",
            "net.tls.mode is not supported: TLS",
            "net.tls.CAFile is not supported",
            "security.keyFile is not supported: authentication",
            "security.authorization is not an option of mongos",
            "processManagement.fork is not supported",
            "storage is not an option of mongos",
            "shardnig is not an option of mongos; did you mean sharding?",
        ] {
            assert!(
                options.complaints.iter().any(|complaint| complaint.contains(says)),
                "{says}: {options:?}"
            );
        }
    }

    #[test]
    fn what_is_refused_may_be_off() {
        let options = parse("processManagement: {fork: false}\nnet: {tls: {mode: disabled}}\n");
        assert_eq!(options.complaints, Vec::<String>::new());
    }

    #[test]
    fn broken_yaml_is_told_with_its_line() {
        let options = parse("net:\n  port: 1\n  port: 2\n");
        assert!(options.complaints.iter().any(|complaint| complaint.contains("line 3")), "{options:?}");
        assert!(!parse("- a\n").complaints.is_empty());
        assert!(parse("").complaints.is_empty());
    }

    #[test]
    fn options_are_shown_nested() {
        let options =
            parse("net: {port: 1, compression: {compressors: zlib}}\nsetParameter: {quiet: true}\n");
        let shown = router::local::log_book::Json(options.to_document().as_doc()).to_string();
        assert_eq!(
            shown,
            r#"{"net":{"compression":{"compressors":"zlib"},"port":1},"setParameter":{"quiet":"true"}}"#
        );
    }
}
