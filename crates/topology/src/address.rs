//! Where a server listens.

use std::fmt;
use std::sync::Arc;

use crate::error::TopologyError;

/// The port of a server whose address names none.
const DEFAULT_PORT: u16 = 27017;

/// `host:port` of a server. Cheap to clone; compared without regard to case, as hosts are.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerAddress {
    text: Arc<str>,
    host_len: usize,
    port: u16,
}

impl ServerAddress {
    /// The address of this host and port.
    pub fn new(host: &str, port: u16) -> ServerAddress {
        let host = host.to_ascii_lowercase();
        let text = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let host_len = text.len() - port.to_string().len() - 1;
        ServerAddress { text: text.into(), host_len, port }
    }

    /// Reads `host`, `host:port` or `[v6]:port`.
    pub fn parse(text: &str) -> Result<ServerAddress, TopologyError> {
        let bad = || TopologyError::BadAddress(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(bad)?;
                match after {
                    "" => (host, None),
                    _ => (host, Some(after.strip_prefix(':').ok_or_else(bad)?)),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?,
            None => DEFAULT_PORT,
        };
        if host.is_empty() || host.contains(['/', ',', ' ']) {
            return Err(bad());
        }
        Ok(ServerAddress::new(host, port))
    }

    /// `host:port`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host alone, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.text.get(..self.host_len).unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A replica set by name and seeds: `set/host:port,host:port`, as in `--configdb` and `config.shards`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionString {
    /// The set's name.
    pub set_name: Arc<str>,
    /// Members to ask first.
    pub hosts: Vec<ServerAddress>,
}

impl ConnectionString {
    /// Reads `set/host:port,…`.
    pub fn parse(text: &str) -> Result<ConnectionString, TopologyError> {
        let bad = || TopologyError::BadAddress(text.to_owned());
        let (set_name, hosts) = text.split_once('/').ok_or_else(bad)?;
        if set_name.is_empty() {
            return Err(bad());
        }
        let hosts = hosts.split(',').map(ServerAddress::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(ConnectionString { set_name: set_name.into(), hosts })
    }
}

impl fmt::Display for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.set_name)?;
        for (i, host) in self.hosts.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(host.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_a_server_writes_them() {
        let parse =
            |text| ServerAddress::parse(text).map(|address| (address.host().to_owned(), address.port()));
        assert_eq!(parse("Db1.Example:27018").unwrap(), ("db1.example".to_owned(), 27018));
        assert_eq!(parse("localhost").unwrap(), ("localhost".to_owned(), 27017));
        assert_eq!(parse("[::1]:9").unwrap(), ("::1".to_owned(), 9));
        assert_eq!(ServerAddress::parse("[::1]:9").unwrap().as_str(), "[::1]:9");
        for bad in ["", ":1", "h:", "h:0", "h:65536", "h:x", "[::1", "[::1]9", "a/b:1", "a,b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn connection_strings_are_written_as_they_are_read() {
        let text = "cfg/a:1,b:2";
        assert_eq!(ConnectionString::parse(text).unwrap().to_string(), text);
        for bad in ["a:1", "/a:1", "cfg/", "cfg/a:1,"] {
            assert!(ConnectionString::parse(bad).is_err(), "{bad}");
        }
    }
}
