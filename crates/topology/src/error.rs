//! Why there is no server, no connection or no answer.

use std::io;
use std::sync::Arc;

use wire::WireError;

use crate::address::ServerAddress;

/// What went wrong between the router and its servers. Cheap to clone: one failed connect answers all who wait.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TopologyError {
    /// Nobody accepts connections there.
    #[error("Error connecting to {address} :: caused by :: {}", io_text(source))]
    Connect {
        /// Whom we tried to reach.
        address: ServerAddress,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Its name has no address.
    #[error("Could not find address for {address}: {source}")]
    HostNotFound {
        /// Whom we tried to reach.
        address: ServerAddress,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Connecting, or the handshake, took longer than the connect timeout.
    #[error("Timed out connecting to {address}")]
    ConnectTimeout {
        /// Whom we tried to reach.
        address: ServerAddress,
    },
    /// A connection that worked broke. Whether the server ran what was sent is not known.
    #[error("Connection to {address} failed :: caused by :: {}", io_text(source))]
    Network {
        /// The other end.
        address: ServerAddress,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The server sent something that is no answer to what it was asked.
    #[error("Protocol error from {address} :: caused by :: {source}")]
    Protocol {
        /// The other end.
        address: ServerAddress,
        /// What was wrong.
        source: Arc<WireError>,
    },
    /// The server refused the handshake.
    #[error("{address} refused the handshake: {message}")]
    Handshake {
        /// The other end.
        address: ServerAddress,
        /// Its error code, 0 when it gave none.
        code: i32,
        /// Its words.
        message: String,
    },
    /// A connection was asked to send while an answer is open, or to receive while none is.
    #[error("Connection to {address} is busy")]
    ConnectionBusy {
        /// The other end.
        address: ServerAddress,
    },
    /// The request does not fit into a message.
    #[error("Request is too large: {0}")]
    RequestTooLarge(Arc<WireError>),
    /// The caller's deadline passed.
    #[error("operation exceeded time limit")]
    DeadlineExceeded,
    /// No connection of the pool came free in time.
    #[error("Couldn't get a connection within the time limit")]
    PoolTimeout {
        /// The server whose pool is exhausted.
        address: ServerAddress,
    },
    /// The pool was cleared or closed while the caller waited.
    #[error("Pool for {address} has expired")]
    PoolClosed {
        /// The server whose pool it was.
        address: ServerAddress,
    },
    /// No member of the set may be read or written with this preference.
    #[error("Could not find host matching read preference {preference} for set {set_name}")]
    NoServer {
        /// The set.
        set_name: Arc<str>,
        /// What was asked for, as the server prints it.
        preference: String,
        /// The last failure of a member, for the log.
        last: Option<Arc<TopologyError>>,
    },
    /// A member speaks another version than this router.
    #[error(
        "Server at {address} reports wire version range {min}..{max}, but this router requires wire version {required}"
    )]
    Incompatible {
        /// The member.
        address: ServerAddress,
        /// The least it speaks.
        min: i32,
        /// The most it speaks.
        max: i32,
        /// What the router speaks.
        required: i32,
    },
    /// A member of another set answers at this address.
    #[error("Server at {address} belongs to replica set {got}, expected {expected}")]
    WrongSetName {
        /// The member.
        address: ServerAddress,
        /// The set it should be of.
        expected: Arc<str>,
        /// The set it is of, or what it is instead.
        got: String,
    },
    /// A primary that is older than the newest one that was seen.
    #[error("{address} was primary, but its election is older than that of another primary")]
    StalePrimary {
        /// The member.
        address: ServerAddress,
    },
    /// The member said that it is no primary (any more) or is shutting down.
    #[error("{address} is not primary or is shutting down")]
    NotPrimary {
        /// The member.
        address: ServerAddress,
    },
    /// No such set is monitored.
    #[error("No replica set named {0} is known")]
    UnknownSet(Arc<str>),
    /// No such member of the set.
    #[error("No member {address} in replica set {set_name}")]
    UnknownHost {
        /// The set.
        set_name: Arc<str>,
        /// The address that was asked for.
        address: ServerAddress,
    },
    /// A set was added without a host.
    #[error("A replica set needs at least one host")]
    NoSeeds,
    /// No address in this text.
    #[error("Bad host or connection string '{0}'")]
    BadAddress(String),
    /// A read preference that cannot be.
    #[error("{message}")]
    ReadPreference {
        /// MongoDB's code.
        code: i32,
        /// What is wrong with it.
        message: String,
    },
    /// This router is shutting down.
    #[error("The router is shutting down")]
    ShuttingDown,
}

impl TopologyError {
    /// MongoDB's error code for it.
    pub fn code(&self) -> i32 {
        match self {
            Self::Connect { .. }
            | Self::Network { .. }
            | Self::ConnectTimeout { .. }
            | Self::NotPrimary { .. } => 6,
            Self::HostNotFound { .. } => 7,
            Self::Protocol { .. } => 17,
            Self::Handshake { code, .. } => {
                if *code == 0 {
                    6
                } else {
                    *code
                }
            }
            Self::RequestTooLarge(_) => 10334,
            Self::DeadlineExceeded => 50,
            Self::PoolTimeout { .. } => 202,
            Self::PoolClosed { .. } => 317,
            Self::NoServer { .. } | Self::StalePrimary { .. } => 133,
            Self::Incompatible { .. } => 188,
            Self::WrongSetName { .. } => 93,
            Self::UnknownSet(_) => 70,
            Self::UnknownHost { .. } => 6,
            Self::ConnectionBusy { .. } => 1,
            Self::NoSeeds | Self::BadAddress(_) => 9,
            Self::ReadPreference { code, .. } => *code,
            Self::ShuttingDown => 91,
        }
    }

    /// The connection, not the command, failed: another attempt on a fresh connection can help.
    pub fn is_network(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::HostNotFound { .. }
                | Self::ConnectTimeout { .. }
                | Self::Network { .. }
                | Self::Protocol { .. }
                | Self::PoolClosed { .. }
        )
    }

    /// True when nothing of the request can have reached the server: even a plain write may be sent again.
    pub fn is_before_send(&self) -> bool {
        !matches!(self, Self::Network { .. } | Self::Protocol { .. } | Self::DeadlineExceeded)
    }
}

/// The words of the system without Rust's `(os error 111)`: what a mongos would print.
fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connect_reads_as_a_mongos_prints_it() {
        let error = TopologyError::Connect {
            address: ServerAddress::new("127.0.0.1", 24221),
            source: Arc::new(io::Error::from_raw_os_error(111)),
        };
        assert_eq!(
            error.to_string(),
            "Error connecting to 127.0.0.1:24221 :: caused by :: Connection refused"
        );
        assert_eq!(error.code(), 6);
    }
}
