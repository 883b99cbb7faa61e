//! Which members of a set a read may go to.

use std::fmt;
use std::time::Duration;

use document::{Doc, DocBuf, Value};

use crate::error::TopologyError;

const BAD_VALUE: i32 = 2;
const NO_SUCH_KEY: i32 = 4;
const TYPE_MISMATCH: i32 = 14;
const INVALID_OPTIONS: i32 = 72;
const MAX_STALENESS_OUT_OF_RANGE: i32 = 160;
const UNKNOWN_FIELD: i32 = 40415;
/// The least `maxStalenessSeconds` that a server takes.
const LEAST_MAX_STALENESS: Duration = Duration::from_secs(90);

/// Who is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReadMode {
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

impl ReadMode {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    fn parse(name: &str) -> Option<ReadMode> {
        [Self::Primary, Self::PrimaryPreferred, Self::Secondary, Self::SecondaryPreferred, Self::Nearest]
            .into_iter()
            .find(|mode| mode.as_str() == name)
    }
}

/// One set of tags that a member must have, all of them. A tag without a value is one whose value is no string: a server
/// lets it pass (seen on 6.0.5), and no member has it.
pub type TagSet = Vec<(String, Option<String>)>;

/// A parsed read preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPreference {
    mode: ReadMode,
    tags: Vec<TagSet>,
    max_staleness: Option<Duration>,
    hedge: Option<bool>,
}

impl ReadPreference {
    /// `{mode: "primary"}`.
    pub const PRIMARY: ReadPreference = ReadPreference::of(ReadMode::Primary);
    /// `{mode: "nearest"}`.
    pub const NEAREST: ReadPreference = ReadPreference::of(ReadMode::Nearest);
    /// `{mode: "secondaryPreferred"}`: what an old driver's secondaryOk bit means.
    pub const SECONDARY_PREFERRED: ReadPreference = ReadPreference::of(ReadMode::SecondaryPreferred);

    /// A mode and nothing else.
    pub const fn of(mode: ReadMode) -> ReadPreference {
        ReadPreference { mode, tags: Vec::new(), max_staleness: None, hedge: None }
    }

    /// Reads the value of `$readPreference`. Refuses what a server refuses, with its codes and texts (6.0.5).
    pub fn parse(value: Value<'_>) -> Result<ReadPreference, TopologyError> {
        match value {
            Value::Document(doc) => Self::from_doc(doc),
            other => Err(refuse(
                TYPE_MISMATCH,
                format!(
                    "$readPreference has incorrect type: expected object but got {}",
                    other.element_type().name()
                ),
            )),
        }
    }

    /// Reads `{mode, tags, maxStalenessSeconds, hedge}`; other fields are let pass.
    pub fn from_doc(doc: Doc<'_>) -> Result<ReadPreference, TopologyError> {
        let mode = parse_mode(doc)?;
        let hedge = parse_hedge(doc)?;
        let tags = parse_tags(doc)?;
        let max_staleness = parse_max_staleness(doc)?;
        if mode == ReadMode::Primary {
            if hedge == Some(true) {
                let text = "cannot enable hedging for $readPreference mode \"primaryOnly\"";
                return Err(refuse(INVALID_OPTIONS, text.to_owned()));
            }
            // `[{}]` asks for nothing and is let pass with any mode.
            if tags.iter().any(|set| !set.is_empty()) {
                let text = "Only empty tags are allowed with primary read preference";
                return Err(refuse(BAD_VALUE, text.to_owned()));
            }
            if max_staleness.is_some() {
                let text = "maxStalenessSeconds can not be set for the primary mode";
                return Err(refuse(BAD_VALUE, text.to_owned()));
            }
        }
        Ok(ReadPreference { mode, tags, max_staleness, hedge })
    }

    /// Who is preferred.
    pub fn mode(&self) -> ReadMode {
        self.mode
    }

    /// Tag sets, the first that matches anybody counts. Empty: any member.
    pub fn tags(&self) -> &[TagSet] {
        &self.tags
    }

    /// How far a secondary may lag.
    pub fn max_staleness(&self) -> Option<Duration> {
        self.max_staleness
    }

    /// Is the read to be hedged? As it says; if it does not, the nearest member's is (mongos).
    pub fn is_hedged(&self) -> bool {
        self.hedge.unwrap_or(self.mode == ReadMode::Nearest)
    }

    /// `hedge.enabled`, when it was given.
    pub fn hedge(&self) -> Option<bool> {
        self.hedge
    }

    /// True when only the primary will do.
    pub fn is_primary(&self) -> bool {
        self.mode == ReadMode::Primary
    }

    /// The document that goes to a shard as `$readPreference`.
    pub fn to_doc(&self) -> DocBuf {
        let mut doc = DocBuf::new();
        doc.write(|w| {
            w.put("mode", self.mode.as_str());
            if !self.tags.is_empty() {
                w.array("tags", &self.tags, |w, index, set| {
                    w.doc(index, |w| {
                        set.iter().for_each(|(name, value)| {
                            w.value(name, value.as_ref().map_or(Value::Null, Value::from));
                        });
                    });
                });
            }
            if let Some(staleness) = self.max_staleness {
                w.put("maxStalenessSeconds", i64::try_from(staleness.as_secs()).unwrap_or(i64::MAX));
            }
            if let Some(enabled) = self.hedge {
                w.doc("hedge", |w| w.put("enabled", enabled));
            }
        });
        doc
    }
}

impl fmt::Display for ReadPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ mode: \"{}\"", self.mode.as_str())?;
        if !self.tags.is_empty() {
            f.write_str(", tags: [")?;
            for (i, set) in self.tags.iter().enumerate() {
                f.write_str(if i == 0 { " {" } else { ", {" })?;
                for (j, (name, value)) in set.iter().enumerate() {
                    write!(f, "{} {name}: ", if j == 0 { "" } else { "," })?;
                    match value {
                        Some(value) => write!(f, "\"{value}\"")?,
                        None => f.write_str("null")?,
                    }
                }
                f.write_str(if set.is_empty() { "}" } else { " }" })?;
            }
            f.write_str(" ]")?;
        }
        if let Some(staleness) = self.max_staleness {
            write!(f, ", maxStalenessSeconds: {}", staleness.as_secs())?;
        }
        if let Some(enabled) = self.hedge {
            write!(f, ", hedge: {{ enabled: {enabled} }}")?;
        }
        f.write_str(" }")
    }
}

fn refuse(code: i32, message: String) -> TopologyError {
    TopologyError::ReadPreference { code, message }
}

fn wrong_type(name: &str, expected: &str, found: Value<'_>) -> TopologyError {
    let found = found.element_type().name();
    refuse(TYPE_MISMATCH, format!("\"{name}\" had the wrong type. Expected {expected}, found {found}"))
}

fn parse_mode(doc: Doc<'_>) -> Result<ReadMode, TopologyError> {
    let Some(value) = doc.get("mode") else {
        return Err(refuse(NO_SUCH_KEY, "Missing expected field \"mode\"".to_owned()));
    };
    let Value::String(name) = value else { return Err(wrong_type("mode", "string", value)) };
    let name = String::from_utf8_lossy(name);
    ReadMode::parse(&name).ok_or_else(|| {
        refuse(
            BAD_VALUE,
            format!(
                "Could not parse $readPreference mode '{name}'. Only the modes 'primary', 'primaryPreferred', \
                 'secondary', 'secondaryPreferred', and 'nearest' are supported. :: caused by :: Enumeration value \
                 '{name}' for field 'mode' is not a valid value."
            ),
        )
    })
}

fn parse_tags(doc: Doc<'_>) -> Result<Vec<TagSet>, TopologyError> {
    let Some(value) = doc.get("tags") else { return Ok(Vec::new()) };
    let sets = value.as_array().ok_or_else(|| wrong_type("tags", "array", value))?;
    Ok(sets
        .iter()
        .map(|set| match set.value().as_doc() {
            Some(set) => set
                .iter()
                .map(|tag| (tag.name().to_owned(), tag.value().as_str().map(str::to_owned)))
                .collect(),
            None => vec![(String::new(), None)],
        })
        .collect())
}

fn parse_max_staleness(doc: Doc<'_>) -> Result<Option<Duration>, TopologyError> {
    let Some(value) = doc.get("maxStalenessSeconds") else { return Ok(None) };
    if !value.is_number() {
        let found = value.element_type().name();
        return Err(refuse(
            TYPE_MISMATCH,
            format!("Expected field \"maxStalenessSeconds\" to have numeric type, but found {found}"),
        ));
    }
    let Some(seconds) = value.as_i64() else {
        let found = match value {
            Value::Double(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        return Err(refuse(
            BAD_VALUE,
            format!(
                "Expected field \"maxStalenessSeconds\" to have a value exactly representable as a 64-bit integer, \
                 but found maxStalenessSeconds: {found}"
            ),
        ));
    };
    let Ok(seconds) = u64::try_from(seconds) else {
        return Err(refuse(BAD_VALUE, "maxStalenessSeconds must be a non-negative integer".to_owned()));
    };
    let staleness = Duration::from_secs(seconds);
    if staleness.is_zero() {
        Ok(None)
    } else if staleness < LEAST_MAX_STALENESS {
        let least = LEAST_MAX_STALENESS.as_secs();
        Err(refuse(
            MAX_STALENESS_OUT_OF_RANGE,
            format!("maxStalenessSeconds value can not be less than {least}"),
        ))
    } else {
        Ok(Some(staleness))
    }
}

fn parse_hedge(doc: Doc<'_>) -> Result<Option<bool>, TopologyError> {
    let Some(value) = doc.get("hedge") else { return Ok(None) };
    let Some(hedge) = value.as_doc() else {
        return Err(refuse(
            TYPE_MISMATCH,
            format!("hedge field must be of type object if provided; found hedge: {value:?}"),
        ));
    };
    let mut enabled = true;
    for field in hedge.iter() {
        match (field.name(), field.value()) {
            ("enabled", Value::Bool(flag)) => enabled = flag,
            ("enabled", other) => {
                let found = other.element_type().name();
                return Err(refuse(
                    TYPE_MISMATCH,
                    format!("BSON field 'hedge.enabled' is the wrong type '{found}', expected type 'bool'"),
                ));
            }
            (name, _) => {
                return Err(refuse(UNKNOWN_FIELD, format!("BSON field 'hedge.{name}' is an unknown field.")));
            }
        }
    }
    Ok(Some(enabled))
}

#[cfg(test)]
mod tests;
