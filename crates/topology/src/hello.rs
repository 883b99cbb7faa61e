//! The `hello` command and what its reply says about a member.

use bytes::{Bytes, BytesMut};
use document::{Doc, DocBuf, Value};
use wire::{Compressor, CompressorSet, MsgFlags, OpMsgWriter, Reply, WireError};

use crate::address::ServerAddress;
use crate::error::TopologyError;
use crate::options::Handshake;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// Not known: never heard of, failed, stale, of another set or version.
    Unknown,
    /// Takes writes.
    Primary,
    /// Replicates and may be read.
    Secondary,
    /// Votes, has no data.
    Arbiter,
    /// Hidden, recovering, starting.
    Other,
    /// Was started for a replica set that is not initiated, or was removed from it.
    Ghost,
    /// No member of a replica set at all: a standalone server, or a router.
    NoMember,
}

/// Orders the states of one server process: a reply with a lower counter is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopologyVersion {
    /// New with each start of the process.
    pub(crate) process_id: [u8; 12],
    /// Goes up with each change that the server announces.
    pub(crate) counter: i64,
}

impl TopologyVersion {
    /// True when this is an older state of the same process than `other`.
    pub(crate) fn is_older_than(&self, other: &TopologyVersion) -> bool {
        self.process_id == other.process_id && self.counter < other.counter
    }

    fn parse(doc: Doc<'_>) -> Option<TopologyVersion> {
        match (doc.get("processId"), doc.get_i64("counter")) {
            (Some(Value::ObjectId(process_id)), Some(counter)) => {
                Some(TopologyVersion { process_id, counter })
            }
            _ => None,
        }
    }
}

/// A reply to `hello`, as far as monitoring and pools look at it.
#[derive(Debug, Clone)]
pub(crate) struct HelloReply {
    /// What the member is.
    pub(crate) kind: MemberKind,
    /// The set it is of.
    pub(crate) set_name: Option<String>,
    /// Version of the set's configuration.
    pub(crate) set_version: Option<i64>,
    /// The election that made it primary.
    pub(crate) election_id: Option<[u8; 12]>,
    /// All members that it knows, also those without data or votes.
    pub(crate) hosts: Vec<ServerAddress>,
    /// Its own name in the set's configuration.
    pub(crate) me: Option<ServerAddress>,
    /// Its tags.
    pub(crate) tags: Vec<(String, String)>,
    /// The least wire version it speaks with us.
    pub(crate) min_wire_version: i32,
    /// The most.
    pub(crate) max_wire_version: i32,
    /// Its state's number.
    pub(crate) topology_version: Option<TopologyVersion>,
    /// When its last write was made, in milliseconds since the epoch.
    pub(crate) last_write_ms: Option<i64>,
    /// The first compressor it agreed to.
    pub(crate) compressor: Option<Compressor>,
    /// The whole body.
    pub(crate) body: Bytes,
}

impl HelloReply {
    /// Reads a reply of the server at `address`.
    pub(crate) fn parse(address: &ServerAddress, reply: Reply) -> Result<HelloReply, TopologyError> {
        let body = reply.into_body();
        let doc = Doc::new(&body).map_err(|error| TopologyError::Protocol {
            address: address.clone(),
            source: std::sync::Arc::new(WireError::Document(error)),
        })?;
        if doc.get_i64("ok") != Some(1) {
            return Err(TopologyError::Handshake {
                address: address.clone(),
                code: doc.get_i64("code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0),
                message: doc.get_str("errmsg").unwrap_or("no reason given").to_owned(),
            });
        }
        let flag = |name: &str| doc.get(name).is_some_and(Value::is_truthy);
        let set_name = doc.get_str("setName").map(str::to_owned);
        let kind = if set_name.is_none() {
            if flag("isreplicaset") { MemberKind::Ghost } else { MemberKind::NoMember }
        } else if flag("isWritablePrimary") || flag("ismaster") {
            MemberKind::Primary
        } else if flag("hidden") {
            MemberKind::Other
        } else if flag("secondary") {
            MemberKind::Secondary
        } else if flag("arbiterOnly") {
            MemberKind::Arbiter
        } else {
            MemberKind::Other
        };
        let number = |name: &str| doc.get_i64(name).and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
        Ok(HelloReply {
            kind,
            set_name,
            set_version: doc.get_i64("setVersion"),
            election_id: match doc.get("electionId") {
                Some(Value::ObjectId(id)) => Some(id),
                _ => None,
            },
            hosts: ["hosts", "passives", "arbiters"]
                .into_iter()
                .flat_map(|name| addresses(doc, name))
                .collect(),
            me: doc.get_str("me").and_then(|me| ServerAddress::parse(me).ok()),
            tags: doc.get_doc("tags").map(tags).unwrap_or_default(),
            min_wire_version: number("minWireVersion"),
            max_wire_version: number("maxWireVersion"),
            topology_version: doc.get_doc("topologyVersion").and_then(TopologyVersion::parse),
            last_write_ms: doc.get_doc("lastWrite").and_then(|write| match write.get("lastWriteDate") {
                Some(Value::DateTime(ms)) => Some(ms),
                _ => None,
            }),
            compressor: doc
                .get_array("compression")
                .and_then(Doc::first)
                .and_then(|field| Compressor::from_name(field.value().as_str()?)),
            body: body.clone(),
        })
    }

    /// A compatible member without more than a kind, a set and hosts.
    #[cfg(test)]
    pub(crate) fn for_tests(kind: MemberKind, set_name: &str, hosts: &[&str]) -> HelloReply {
        HelloReply {
            kind,
            set_name: Some(set_name.to_owned()),
            set_version: Some(1),
            election_id: None,
            hosts: hosts.iter().map(|host| ServerAddress::parse(host).unwrap()).collect(),
            me: None,
            tags: Vec::new(),
            min_wire_version: 17,
            max_wire_version: 17,
            topology_version: None,
            last_write_ms: None,
            compressor: None,
            body: Bytes::new(),
        }
    }
}

fn addresses<'a>(doc: Doc<'a>, name: &str) -> impl Iterator<Item = ServerAddress> + 'a {
    let list = doc.get_array(name).unwrap_or(Doc::empty());
    list.iter().filter_map(|field| ServerAddress::parse(field.value().as_str()?).ok())
}

fn tags(doc: Doc<'_>) -> Vec<(String, String)> {
    doc.iter().filter_map(|tag| Some((tag.name().to_owned(), tag.value().as_str()?.to_owned()))).collect()
}

/// What a connection is for; servers log it with the driver's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Pool,
    Monitor,
}

/// The first message of a connection.
pub(crate) fn write_first_hello(
    buf: &mut BytesMut,
    handshake: &Handshake,
    purpose: Purpose,
) -> Result<(), WireError> {
    let name = match purpose {
        Purpose::Pool => handshake.driver_name.clone(),
        Purpose::Monitor => format!("{}-monitor", handshake.driver_name),
    };
    let mut doc = DocBuf::with_capacity(512);
    doc.write(|w| {
        w.put("hello", 1);
        w.doc("client", |w| {
            w.doc("driver", |w| {
                w.put("name", &name);
                w.put("version", &handshake.driver_version);
            });
            w.doc("os", |w| {
                w.put("type", os_type());
                w.put("name", std::env::consts::OS);
                w.put("architecture", std::env::consts::ARCH);
            });
        });
        if handshake.compressors != CompressorSet::NONE {
            w.array("compression", handshake.compressors.iter(), |w, index, compressor| {
                w.put(index, compressor.name());
            });
        }
        w.doc("internalClient", |w| {
            w.put("minWireVersion", handshake.wire_version);
            w.put("maxWireVersion", handshake.wire_version);
        });
        w.put("$db", "admin");
    });
    OpMsgWriter::write(buf, 0, 0, MsgFlags::NONE, doc.as_doc())
}

/// A later question: at once, or when something changes.
pub(crate) fn write_hello(
    buf: &mut BytesMut,
    awaited: Option<(TopologyVersion, std::time::Duration)>,
) -> Result<(), WireError> {
    let mut doc = DocBuf::with_capacity(128);
    doc.write(|w| {
        w.put("hello", 1);
        if let Some((version, await_time)) = awaited {
            w.doc("topologyVersion", |w| {
                w.value("processId", Value::ObjectId(version.process_id));
                w.put("counter", version.counter);
            });
            w.put("maxAwaitTimeMS", i64::try_from(await_time.as_millis()).unwrap_or(i64::MAX));
        }
        w.put("$db", "admin");
    });
    let flags = if awaited.is_some() { MsgFlags::EXHAUST_ALLOWED } else { MsgFlags::NONE };
    OpMsgWriter::write(buf, 0, 0, flags, doc.as_doc())
}

fn os_type() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        "windows" => "Windows",
        other => other,
    }
}
