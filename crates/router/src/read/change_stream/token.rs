//! Resume tokens: hex text whose bytewise order is the order of events over all shards.
//!
//! Layout of version 1 (seen on 6.0.5): `82`, cluster time (8 + 8 hex digits), version, then `29` for a high-water mark
//! or `2C...` for an event.

use document::{Doc, DocBuf, Timestamp};

/// A token as a shard wrote it, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    data: String,
    doc: DocBuf,
}

impl Token {
    /// From `{_data: <hex>}`.
    pub(super) fn parse(doc: Doc<'_>) -> Option<Self> {
        Some(Self { data: doc.get_str("_data")?.to_owned(), doc: DocBuf::from(doc) })
    }

    /// The promise that nothing before this time is to come.
    pub(super) fn high_water_mark(time: Timestamp) -> Self {
        let data = format!("82{:08X}{:08X}2B0229296E04", time.seconds, time.increment);
        let mut doc = DocBuf::new();
        doc.append("_data", data.as_str());
        Self { data, doc }
    }

    /// What is compared.
    pub(super) fn data(&self) -> &str {
        &self.data
    }

    /// What clients get.
    pub(super) fn doc(&self) -> Doc<'_> {
        self.doc.as_doc()
    }

    /// Does it name no event, only a time?
    pub(super) fn is_high_water_mark(&self) -> bool {
        let behind_time = self.data.get(18..).unwrap_or_default();
        let behind_version =
            ["2B02", "2B04", "29"].iter().find_map(|version| behind_time.strip_prefix(version));
        behind_version.is_some_and(|rest| rest.starts_with("29"))
    }
}

/// The cluster time that a token's text begins with.
pub(super) fn cluster_time(data: &str) -> Option<Timestamp> {
    let number = |digits: Option<&str>| u32::from_str_radix(digits?, 16).ok();
    data.strip_prefix("82")?;
    Some(Timestamp::new(number(data.get(2..10))?, number(data.get(10..18))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(data: &str) -> Token {
        let mut doc = DocBuf::new();
        doc.append("_data", data);
        Token::parse(doc.as_doc()).unwrap()
    }

    #[test]
    fn a_high_water_mark_is_built_as_servers_build_it() {
        let mark = Token::high_water_mark(Timestamp::new(0x6B0E_560D, 2));
        assert_eq!(mark.data(), "826B0E560D000000022B0229296E04");
        assert!(mark.is_high_water_mark());
        assert_eq!(cluster_time(mark.data()), Some(Timestamp::new(0x6B0E_560D, 2)));
    }

    #[test]
    fn an_event_comes_behind_the_mark_of_its_own_time_and_before_that_of_the_next() {
        let event = token("826B0E560D000000022B022C0100296E5A1004");
        assert!(!event.is_high_water_mark());
        let mark = |increment| Token::high_water_mark(Timestamp::new(0x6B0E_560D, increment));
        assert!(mark(2).data() < event.data() && event.data() < mark(3).data());
    }

    #[test]
    fn foreign_texts_have_no_time() {
        for text in ["", "82", "82zz", "8", "müll-müll-müll-müll"] {
            assert_eq!(cluster_time(text), None, "{text}");
            assert!(!token(text).is_high_water_mark());
        }
    }
}
