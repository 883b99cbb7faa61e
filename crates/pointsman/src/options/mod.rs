//! Options: mongos's own flags and configuration file.
//!
//! [`table`] has a row for every option that a mongos knows. The file ([`file`]) and the command line
//! ([`command_line`]) give values for rows; flags win. All that is wrong with them is told at once. [`config`] makes
//! of the values what the process needs.

pub(crate) mod command_line;
pub(crate) mod config;
pub(crate) mod file;
pub(crate) mod table;

use std::collections::BTreeMap;

use document::{DocBuf, DocWriter};

use table::{Kind, OptionRow, Support};

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OptionValue {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

/// All that was said, by the option's name: its path in the file, or its flag when it has none.
#[derive(Debug, Default)]
pub(crate) struct Options {
    values: BTreeMap<&'static str, OptionValue>,
    /// `setParameter`, in order; later ones win.
    pub(crate) parameters: Vec<(String, String)>,
    /// What was said and changes nothing.
    pub(crate) taken: Vec<String>,
    /// What is wrong with them.
    pub(crate) complaints: Vec<String>,
}

impl OptionRow {
    const fn key(&self) -> &'static str {
        if self.path.is_empty() { self.flag } else { self.path }
    }
}

impl Options {
    /// Sets an option from its text; complains by `name`, which is how the user wrote it.
    fn set(&mut self, row: &'static OptionRow, name: &str, text: &str) {
        if let Support::Refused(why) = row.support {
            // What is off by default may be said to be off.
            let off = row.kind == Kind::Switch && truth(text) == Some(false);
            let disabled = row.flag.ends_with("Mode") && text == "disabled";
            if !off && !disabled {
                self.complaints.push(format!("{name} is not supported: {why}"));
            }
            return;
        }
        let value = match row.kind {
            Kind::Switch => truth(text).map(OptionValue::Switch),
            Kind::Number => text.trim().parse().ok().map(OptionValue::Number),
            Kind::Text => Some(OptionValue::Text(text.to_owned())),
        };
        match value {
            Some(value) => {
                if row.support == Support::Taken {
                    self.taken.push(name.to_owned());
                }
                self.values.insert(row.key(), value);
            }
            None => self.complaints.push(format!("the value '{text}' of {name} is not valid")),
        }
    }

    /// Takes what `flags` says over what this says.
    #[must_use]
    pub(crate) fn overridden_by(mut self, flags: Self) -> Self {
        self.values.extend(flags.values);
        self.parameters.extend(flags.parameters);
        self.taken.extend(flags.taken);
        self.complaints.extend(flags.complaints);
        self
    }

    /// The value of a text option.
    #[must_use]
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key) {
            Some(OptionValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The value of a number option.
    #[must_use]
    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        match self.values.get(key) {
            Some(OptionValue::Number(n)) => Some(*n),
            _ => None,
        }
    }

    /// The value of a switch.
    #[must_use]
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        match self.values.get(key) {
            Some(OptionValue::Switch(on)) => Some(*on),
            _ => None,
        }
    }

    /// As `getCmdLineOpts` shows them: nested by their paths.
    #[must_use]
    pub(crate) fn to_document(&self) -> DocBuf {
        let mut doc = DocBuf::new();
        let entries: Vec<(&str, &OptionValue)> =
            self.values.iter().map(|(key, value)| (*key, value)).collect();
        doc.write(|w| write_nested(&entries, w));
        if !self.parameters.is_empty() {
            let last: BTreeMap<&str, &str> =
                self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            doc.append_doc("setParameter", |w| {
                for (name, value) in last {
                    w.put(name, value);
                }
            });
        }
        doc
    }
}

/// Entries in the order of their paths: those with a common first step are neighbours.
fn write_nested(entries: &[(&str, &OptionValue)], w: &mut DocWriter<'_>) {
    let step = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
    for group in entries.chunk_by(|a, b| step(a.0) == step(b.0)) {
        let Some((path, value)) = group.first() else { continue };
        if !path.contains('.') {
            match value {
                OptionValue::Switch(on) => w.put(path, *on),
                OptionValue::Number(n) => match i32::try_from(*n) {
                    Ok(n) => w.put(path, n),
                    Err(_) => w.put(path, *n),
                },
                OptionValue::Text(text) => w.put(path, text),
            }
            continue;
        }
        let inner: Vec<(&str, &OptionValue)> = group
            .iter()
            .filter_map(|(path, value)| path.split_once('.').map(|(_, rest)| (rest, *value)))
            .collect();
        w.doc(&step(path), |w| write_nested(&inner, w));
    }
}

/// What YAML and mongos take for true and false.
fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// The known name that is nearest to a wrong one, if one is near.
fn nearest<'n>(wrong: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let wrong = wrong.to_ascii_lowercase();
    known
        .filter(|name| !name.is_empty())
        .map(|name| (distance(&wrong, &name.to_ascii_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3))
        .map(|(_, name)| name)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, to) in row.iter().skip(1).zip(&b) {
            let cost = (diagonal + usize::from(from != *to)).min(left + 1).min(above + 1);
            diagonal = *above;
            left = cost;
            next.push(cost);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(nearest("net.prot", ["net.port", "net.ipv6"].into_iter()), Some("net.port"));
        assert_eq!(nearest("zzzzzzzz", ["net.port"].into_iter()), None);
    }
}
