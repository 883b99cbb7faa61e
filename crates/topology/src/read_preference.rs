//! Which members of a set a read may go to.

use std::fmt;
use std::time::Duration;

use document::{Doc, DocBuf, Value};

use crate::error::TopologyError;

const FAILED_TO_PARSE: i32 = 9;
const TYPE_MISMATCH: i32 = 14;
const MAX_STALENESS_OUT_OF_RANGE: i32 = 160;
/// The least `maxStalenessSeconds` that a server takes.
pub(crate) const LEAST_MAX_STALENESS: Duration = Duration::from_secs(90);

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

/// One set of tags that a member must have, all of them.
pub type TagSet = Vec<(String, String)>;

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

    /// Reads the value of `$readPreference`.
    pub fn parse(value: Value<'_>) -> Result<ReadPreference, TopologyError> {
        match value {
            Value::Document(doc) => Self::from_doc(doc),
            other => Err(refuse(
                TYPE_MISMATCH,
                format!(
                    "\"$readPreference\" had the wrong type. Expected object, found {}",
                    type_name(other)
                ),
            )),
        }
    }

    /// Reads `{mode, tags, maxStalenessSeconds, hedge}`.
    pub fn from_doc(doc: Doc<'_>) -> Result<ReadPreference, TopologyError> {
        let mode = match doc.get("mode") {
            None => return Err(refuse(FAILED_TO_PARSE, "Missing expected field \"mode\"".to_owned())),
            Some(value) => {
                let name = value.as_str().ok_or_else(|| {
                    refuse(
                        TYPE_MISMATCH,
                        format!("\"mode\" had the wrong type. Expected string, found {}", type_name(value)),
                    )
                })?;
                ReadMode::parse(name).ok_or_else(|| {
                    refuse(
                        FAILED_TO_PARSE,
                        format!(
                            "Could not parse $readPreference mode '{name}'. Only the modes 'primary', \
                             'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported."
                        ),
                    )
                })?
            }
        };
        let tags = parse_tags(doc)?;
        let max_staleness = parse_max_staleness(doc)?;
        let hedge = parse_hedge(doc)?;
        let refused = |what: &str| Err(refuse(FAILED_TO_PARSE, what.to_owned()));
        if mode == ReadMode::Primary {
            // `[{}]` asks for nothing and is let pass with any mode.
            if tags.iter().any(|set| !set.is_empty()) {
                return refused("Only empty tags are allowed with primary read preference");
            }
            if max_staleness.is_some() {
                return refused("mode: primary cannot be combined with maxStalenessSeconds");
            }
            if hedge == Some(true) {
                return refused("cannot enable hedging for primary read preference");
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

    /// `hedge.enabled`, when it was given. Hedged reads are sent as plain ones.
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
                    w.doc(index, |w| set.iter().for_each(|(name, value)| w.put(name, value)));
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
                    write!(f, "{} {name}: \"{value}\"", if j == 0 { "" } else { "," })?;
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

fn type_name(value: Value<'_>) -> &'static str {
    value.element_type().name()
}

fn parse_tags(doc: Doc<'_>) -> Result<Vec<TagSet>, TopologyError> {
    let Some(value) = doc.get("tags") else { return Ok(Vec::new()) };
    let Some(sets) = value.as_array() else {
        return Err(refuse(
            TYPE_MISMATCH,
            format!("\"tags\" had the wrong type. Expected array, found {}", type_name(value)),
        ));
    };
    let mut tags = Vec::new();
    for set in sets.iter() {
        let Some(set) = set.value().as_doc() else {
            return Err(refuse(
                FAILED_TO_PARSE,
                format!("Expected an array of documents, found {} in tags", type_name(set.value())),
            ));
        };
        let mut one = TagSet::new();
        for tag in set.iter() {
            let Some(value) = tag.value().as_str() else {
                return Err(refuse(
                    FAILED_TO_PARSE,
                    format!("Tag '{}' must be a string, found {}", tag.name(), type_name(tag.value())),
                ));
            };
            one.push((tag.name().to_owned(), value.to_owned()));
        }
        tags.push(one);
    }
    Ok(tags)
}

fn parse_max_staleness(doc: Doc<'_>) -> Result<Option<Duration>, TopologyError> {
    let Some(value) = doc.get("maxStalenessSeconds") else { return Ok(None) };
    if !value.is_number() {
        return Err(refuse(
            TYPE_MISMATCH,
            format!(
                "\"maxStalenessSeconds\" had the wrong type. Expected number, found {}",
                type_name(value)
            ),
        ));
    }
    let Some(seconds) = value.as_i64() else {
        return Err(refuse(FAILED_TO_PARSE, "maxStalenessSeconds must be integral".to_owned()));
    };
    match u64::try_from(seconds) {
        Ok(0) => Ok(None),
        Ok(seconds) if Duration::from_secs(seconds) < LEAST_MAX_STALENESS => Err(refuse(
            MAX_STALENESS_OUT_OF_RANGE,
            format!("maxStalenessSeconds value can not be less than {}", LEAST_MAX_STALENESS.as_secs()),
        )),
        Ok(seconds) if seconds <= i32::MAX.unsigned_abs().into() => Ok(Some(Duration::from_secs(seconds))),
        Ok(_) => Err(refuse(
            MAX_STALENESS_OUT_OF_RANGE,
            format!("maxStalenessSeconds value can not exceed {}", i32::MAX),
        )),
        Err(_) => {
            Err(refuse(FAILED_TO_PARSE, "maxStalenessSeconds must be a non-negative integer".to_owned()))
        }
    }
}

fn parse_hedge(doc: Doc<'_>) -> Result<Option<bool>, TopologyError> {
    let Some(value) = doc.get("hedge") else { return Ok(None) };
    let Some(hedge) = value.as_doc() else {
        return Err(refuse(
            TYPE_MISMATCH,
            format!("\"hedge\" had the wrong type. Expected object, found {}", type_name(value)),
        ));
    };
    // An empty hedge document means enabled.
    Ok(Some(hedge.get("enabled").is_none_or(Value::is_truthy)))
}
