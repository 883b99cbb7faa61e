//! Every option of a mongos 6.0, one row each: its flag, its place in the configuration file, and what becomes of it.

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing on the command line; true or false in the file.
    Switch,
    /// A whole number.
    Number,
    /// A text.
    Text,
}

/// What becomes of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    /// It works.
    Works,
    /// It is taken, and changes nothing.
    Taken,
    /// It is refused; why.
    Refused(&'static str),
}

/// One option.
#[derive(Debug)]
pub(crate) struct OptionRow {
    /// Long name on the command line; empty when it stands in the file only.
    pub(crate) flag: &'static str,
    /// Path in the file; empty when it stands on the command line only.
    pub(crate) path: &'static str,
    /// What it takes.
    pub(crate) kind: Kind,
    /// What becomes of it.
    pub(crate) support: Support,
    /// For `--help`.
    pub(crate) help: &'static str,
}

use Kind::{Number, Switch, Text};
use Support::{Refused, Taken, Works};

const fn row(
    flag: &'static str,
    path: &'static str,
    kind: Kind,
    support: Support,
    help: &'static str,
) -> OptionRow {
    OptionRow { flag, path, kind, support, help }
}

const fn refused(flag: &'static str, path: &'static str, kind: Kind, why: &'static str) -> OptionRow {
    row(flag, path, kind, Refused(why), "")
}

const TLS: &str = "TLS is not built yet";
const AUTH: &str = "authentication is not built yet";
const FORK: &str = "run it under a service manager instead";
const SYSLOG: &str = "log to a file or to standard output";
const ENTERPRISE: &str = "a feature of MongoDB Enterprise";
const EXPAND: &str = "expansion directives are not supported";

/// All of them. `setParameter` is none: it has names of its own.
pub(crate) const ROWS: &[OptionRow] = &[
    row(
        "configdb",
        "sharding.configDB",
        Text,
        Works,
        "<set>/<host:port>[,<host:port>] of the config servers",
    ),
    row("port", "net.port", Number, Works, "port to listen on (27017)"),
    row("bind_ip", "net.bindIp", Text, Works, "addresses to listen on, with commas (localhost); * is all"),
    row("bind_ip_all", "net.bindIpAll", Switch, Works, "listen on all addresses"),
    row("ipv6", "net.ipv6", Switch, Works, "listen on IPv6 addresses too"),
    row("listenBacklog", "net.listenBacklog", Number, Works, "connections that may wait to be accepted"),
    row("maxConns", "net.maxIncomingConnections", Number, Works, "most client connections (1000000)"),
    row("nounixsocket", "", Switch, Works, "open no Unix socket"),
    row("", "net.unixDomainSocket.enabled", Switch, Works, ""),
    row(
        "unixSocketPrefix",
        "net.unixDomainSocket.pathPrefix",
        Text,
        Works,
        "directory of the Unix socket (/tmp)",
    ),
    row(
        "filePermissions",
        "net.unixDomainSocket.filePermissions",
        Text,
        Works,
        "permissions of the Unix socket (0700)",
    ),
    row(
        "networkMessageCompressors",
        "net.compression.compressors",
        Text,
        Works,
        "compressors offered to clients, with commas (snappy,zstd,zlib), or disabled",
    ),
    row("transportLayer", "net.transportLayer", Text, Taken, ""),
    refused("", "net.maxIncomingConnectionsOverride", Text, "set net.maxIncomingConnections instead"),
    row("config", "", Text, Works, "configuration file (YAML)"),
    row("configExpand", "", Text, Works, ""),
    refused("outputConfig", "", Switch, "ask getCmdLineOpts instead"),
    row("verbose", "", Text, Works, "log more; the more v, the more"),
    row("quiet", "systemLog.quiet", Switch, Works, "do not log connections"),
    row("", "systemLog.verbosity", Number, Works, ""),
    row("", "systemLog.destination", Text, Works, ""),
    row("logpath", "systemLog.path", Text, Works, "log file"),
    row(
        "logappend",
        "systemLog.logAppend",
        Switch,
        Works,
        "append to the log file instead of moving it away",
    ),
    row("logRotate", "systemLog.logRotate", Text, Works, "rename or reopen on SIGUSR1 (rename)"),
    row("timeStampFormat", "systemLog.timeStampFormat", Text, Works, "iso8601-utc or iso8601-local"),
    row("traceExceptions", "systemLog.traceAllExceptions", Switch, Taken, ""),
    refused("syslog", "", Switch, SYSLOG),
    refused("syslogFacility", "systemLog.syslogFacility", Text, SYSLOG),
    refused("redactClientLogData", "security.redactClientLogData", Switch, ENTERPRISE),
    refused("fork", "processManagement.fork", Switch, FORK),
    row("pidfilepath", "processManagement.pidFilePath", Text, Works, "file for the process id"),
    row("timeZoneInfo", "processManagement.timeZoneInfo", Text, Taken, ""),
    refused("keyFile", "security.keyFile", Text, AUTH),
    refused("clusterAuthMode", "security.clusterAuthMode", Text, AUTH),
    refused("transitionToAuth", "security.transitionToAuth", Switch, AUTH),
    refused("", "security.clusterIpSourceAllowlist", Text, AUTH),
    row("noscripting", "", Switch, Taken, ""),
    row("", "security.javascriptEnabled", Switch, Taken, ""),
    row(
        "localThreshold",
        "replication.localPingThresholdMs",
        Number,
        Works,
        "how much farther than the nearest a member may be, in ms (15)",
    ),
    row(
        "slowms",
        "operationProfiling.slowOpThresholdMs",
        Number,
        Works,
        "operations that take longer (ms) are logged (100)",
    ),
    row(
        "slowOpSampleRate",
        "operationProfiling.slowOpSampleRate",
        Text,
        Works,
        "share of the slow operations to log, 0 to 1 (1)",
    ),
    refused(
        "profileFilter",
        "operationProfiling.filter",
        Text,
        "slow operations are chosen by slowms and sample rate",
    ),
    refused("test", "", Switch, "run the tests of the project instead"),
    refused("tlsMode", "net.tls.mode", Text, TLS),
    refused("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Text, TLS),
    refused("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", Text, TLS),
    refused("tlsClusterFile", "net.tls.clusterFile", Text, TLS),
    refused("tlsClusterPassword", "net.tls.clusterPassword", Text, TLS),
    refused("tlsCAFile", "net.tls.CAFile", Text, TLS),
    refused("tlsClusterCAFile", "net.tls.clusterCAFile", Text, TLS),
    refused("tlsCRLFile", "net.tls.CRLFile", Text, TLS),
    refused("tlsDisabledProtocols", "net.tls.disabledProtocols", Text, TLS),
    refused(
        "tlsAllowConnectionsWithoutCertificates",
        "net.tls.allowConnectionsWithoutCertificates",
        Switch,
        TLS,
    ),
    refused("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", Switch, TLS),
    refused("tlsAllowInvalidCertificates", "net.tls.allowInvalidCertificates", Switch, TLS),
    refused("tlsFIPSMode", "net.tls.FIPSMode", Switch, TLS),
    refused("tlsCipherConfig", "", Text, TLS),
    refused("tlsLogVersions", "net.tls.logVersions", Text, TLS),
    refused("tlsCertificateSelector", "net.tls.certificateSelector", Text, TLS),
    refused("tlsClusterCertificateSelector", "net.tls.clusterCertificateSelector", Text, TLS),
    refused("tlsOnNormalPorts", "", Switch, TLS),
    refused("sslMode", "net.ssl.mode", Text, TLS),
    refused("sslPEMKeyFile", "net.ssl.PEMKeyFile", Text, TLS),
    refused("sslPEMKeyPassword", "net.ssl.PEMKeyPassword", Text, TLS),
    refused("sslClusterFile", "net.ssl.clusterFile", Text, TLS),
    refused("sslClusterPassword", "net.ssl.clusterPassword", Text, TLS),
    refused("sslCAFile", "net.ssl.CAFile", Text, TLS),
    refused("sslClusterCAFile", "net.ssl.clusterCAFile", Text, TLS),
    refused("sslCRLFile", "net.ssl.CRLFile", Text, TLS),
    refused("sslDisabledProtocols", "net.ssl.disabledProtocols", Text, TLS),
    refused(
        "sslAllowConnectionsWithoutCertificates",
        "net.ssl.allowConnectionsWithoutCertificates",
        Switch,
        TLS,
    ),
    refused("sslAllowInvalidHostnames", "net.ssl.allowInvalidHostnames", Switch, TLS),
    refused("sslAllowInvalidCertificates", "net.ssl.allowInvalidCertificates", Switch, TLS),
    refused("sslFIPSMode", "net.ssl.FIPSMode", Switch, TLS),
    refused("sslOnNormalPorts", "", Switch, TLS),
    refused("auditDestination", "auditLog.destination", Text, ENTERPRISE),
    refused("auditFormat", "auditLog.format", Text, ENTERPRISE),
    refused("auditPath", "auditLog.path", Text, ENTERPRISE),
    refused("auditFilter", "auditLog.filter", Text, ENTERPRISE),
    refused("", "security.sasl.hostName", Text, ENTERPRISE),
    refused("", "security.sasl.serviceName", Text, ENTERPRISE),
    refused("", "security.sasl.saslauthdSocketPath", Text, ENTERPRISE),
    refused("", "security.ldap.servers", Text, ENTERPRISE),
];

/// Directives that may stand in place of a value.
pub(crate) const EXPANSIONS: &[(&str, &str)] = &[("__rest", EXPAND), ("__exec", EXPAND)];

/// The option with this flag.
#[must_use]
pub(crate) fn by_flag(flag: &str) -> Option<&'static OptionRow> {
    ROWS.iter().find(|row| !row.flag.is_empty() && row.flag == flag)
}

/// The option at this path of the file.
#[must_use]
pub(crate) fn by_path(path: &str) -> Option<&'static OptionRow> {
    ROWS.iter().find(|row| !row.path.is_empty() && row.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        for names in
            [ROWS.iter().map(|row| row.flag).collect::<Vec<_>>(), ROWS.iter().map(|row| row.path).collect()]
        {
            let mut names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
