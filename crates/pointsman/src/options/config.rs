//! What the process needs to know, made of the options and checked.

use std::path::PathBuf;
use std::time::Duration;

use document::DocBuf;
use router::local::parameters::Parameters;
use wire::Compressor;

use super::Options;

/// Default port of a config server.
const CONFIG_PORT: u16 = 27019;
const PORT: u16 = 27017;
/// What mongos takes at most, too.
const MAX_CONNECTIONS: u64 = 1_000_000;
const BACKLOG: i32 = 4096;

/// Where and how to log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// A file; standard output when there is none.
    pub(crate) path: Option<PathBuf>,
    /// Append to it instead of moving it away at start.
    pub(crate) append: bool,
    /// On SIGUSR1 open it again instead of moving it away.
    pub(crate) reopen: bool,
    /// Times as `Z` instead of with an offset.
    pub(crate) utc: bool,
    /// 0 to 5.
    pub(crate) verbosity: u8,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenConfig {
    /// Host names and addresses; those with a slash are paths of Unix sockets.
    pub(crate) addresses: Vec<String>,
    /// The port.
    pub(crate) port: u16,
    /// IPv6 too.
    pub ipv6: bool,
    /// Connections that may wait to be accepted.
    pub(crate) backlog: i32,
    /// Most client connections.
    pub(crate) max_connections: u64,
    /// Directory and permissions of the Unix socket that stands beside the port.
    pub(crate) unix_socket: Option<(PathBuf, u32)>,
}

/// What the process needs to know.
#[derive(Debug)]
pub(crate) struct Config {
    /// `<set>/<host:port>,...`
    pub(crate) config_servers: String,
    /// Where to listen.
    pub(crate) listen: ListenConfig,
    /// Where and how to log.
    pub(crate) log: LogConfig,
    /// File for the process id.
    pub(crate) pid_file: Option<PathBuf>,
    /// Offered to clients.
    pub(crate) compressors: Vec<Compressor>,
    /// How much farther than the nearest a member may be to be read from.
    pub(crate) local_threshold: Duration,
    /// What takes longer is logged, in milliseconds.
    pub(crate) slow_ms: i32,
    /// Which share of it, 0 to 1.
    pub(crate) slow_sample_rate: f64,
    /// Options that were said and that change nothing.
    pub(crate) without_effect: Vec<String>,
    /// Server parameters.
    pub(crate) parameters: Parameters,
    /// All options, for `getCmdLineOpts`.
    pub(crate) parsed: DocBuf,
}

impl Config {
    /// Checks the options; what is wrong with them is told all at once.
    pub(crate) fn new(mut options: Options) -> Result<Self, Vec<String>> {
        let mut complaints = std::mem::take(&mut options.complaints);
        let mut take = |result: Result<(), String>| complaints.extend(result.err());

        let mut config_servers = String::new();
        take(config_set(&options).map(|set| config_servers = set));
        let mut listen = ListenConfig::default();
        take(listen_config(&options).map(|found| listen = found));
        let mut log = LogConfig::default();
        take(log_config(&options).map(|found| log = found));
        let mut compressors = Vec::new();
        take(compressor_list(&options).map(|found| compressors = found));
        let mut all = options.parameters.clone();
        all.insert(0, ("logLevel".to_owned(), log.verbosity.to_string()));
        if options.switch("systemLog.quiet") == Some(true) {
            all.push(("quiet".to_owned(), "true".to_owned()));
        }
        let mut parameters = Parameters::default();
        take(Parameters::from_options(&all).map(|found| parameters = found));
        log.verbosity = u8::try_from(parameters.int("logLevel")).unwrap_or(0);

        let local_threshold = options.number("replication.localPingThresholdMs").unwrap_or(15);
        let local_threshold =
            u64::try_from(local_threshold).map(Duration::from_millis).unwrap_or_else(|_| {
                complaints.push("--localThreshold is a number of milliseconds from 0".to_owned());
                Duration::ZERO
            });
        let mut slow = (100, 1.0);
        match slow_operations(&options) {
            Ok(found) => slow = found,
            Err(complaint) => complaints.push(complaint),
        }
        let mut without_effect = std::mem::take(&mut options.taken);
        without_effect
            .extend(parameters.without_effect().into_iter().map(|name| format!("setParameter.{name}")));

        if !complaints.is_empty() {
            return Err(complaints);
        }
        Ok(Self {
            config_servers,
            listen,
            log,
            pid_file: options.text("processManagement.pidFilePath").map(PathBuf::from),
            compressors,
            local_threshold,
            slow_ms: slow.0,
            slow_sample_rate: slow.1,
            without_effect,
            parameters,
            parsed: options.to_document(),
        })
    }
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            addresses: vec!["127.0.0.1".to_owned()],
            port: PORT,
            ipv6: false,
            backlog: BACKLOG,
            max_connections: MAX_CONNECTIONS,
            unix_socket: Some((PathBuf::from("/tmp"), 0o700)),
        }
    }
}

fn config_set(options: &Options) -> Result<String, String> {
    let text = options.text("sharding.configDB").unwrap_or_default().trim();
    if text.is_empty() {
        return Err("error: no args for --configdb".to_owned());
    }
    let (set, hosts) = text
        .split_once('/')
        .filter(|(set, hosts)| !set.is_empty() && !hosts.is_empty())
        .ok_or_else(|| format!("configdb supports only replica set connection string, not '{text}'"))?;
    let hosts: Vec<String> = hosts
        .split(',')
        .map(str::trim)
        .map(|host| if has_port(host) { host.to_owned() } else { format!("{host}:{CONFIG_PORT}") })
        .collect();
    let full = format!("{set}/{}", hosts.join(","));
    topology::ConnectionString::parse(&full)
        .map(|_| full)
        .map_err(|error| format!("--configdb '{text}': {error}"))
}

/// `host:port` and `[v6]:port` have one, `host`, `v6` and `[v6]` do not.
fn has_port(host: &str) -> bool {
    match host.rsplit_once(':') {
        Some((before, port)) => {
            let one_colon = !before.contains(':') || before.ends_with(']');
            one_colon && port.bytes().all(|byte| byte.is_ascii_digit())
        }
        None => false,
    }
}

fn listen_config(options: &Options) -> Result<ListenConfig, String> {
    let defaults = ListenConfig::default();
    let ipv6 = options.switch("net.ipv6").unwrap_or(false);
    let in_range = |key: &str, name: &str, least: i64, most: i64, default: i64| match options.number(key) {
        None => Ok(default),
        Some(n) if (least..=most).contains(&n) => Ok(n),
        Some(n) => Err(format!("{name} must be between {least} and {most}, not {n}")),
    };
    let port = in_range("net.port", "--port", 1, i64::from(u16::MAX), i64::from(PORT))?;
    let backlog =
        in_range("net.listenBacklog", "--listenBacklog", 1, i64::from(i32::MAX), i64::from(BACKLOG))?;
    let most = in_range("net.maxIncomingConnections", "--maxConns", 5, i64::from(i32::MAX), 1_000_000)?;
    let all = options.switch("net.bindIpAll") == Some(true);
    let addresses = match options.text("net.bindIp") {
        _ if all => everywhere(ipv6),
        None => vec!["localhost".to_owned()],
        Some(list) => list
            .split(',')
            .map(str::trim)
            .filter(|address| !address.is_empty())
            .flat_map(|address| if address == "*" { everywhere(ipv6) } else { vec![address.to_owned()] })
            .collect(),
    };
    if addresses.is_empty() {
        return Err("--bind_ip names no address".to_owned());
    }
    let unix_socket_on = options.switch("nounixsocket") != Some(true)
        && options.switch("net.unixDomainSocket.enabled") != Some(false);
    let permissions = match options.text("net.unixDomainSocket.filePermissions") {
        None => 0o700,
        Some(text) => u32::from_str_radix(text.trim_start_matches("0o"), 8)
            .ok()
            .filter(|mode| *mode <= 0o777)
            .ok_or_else(|| format!("--filePermissions is an octal number up to 0777, not '{text}'"))?,
    };
    let directory = options.text("net.unixDomainSocket.pathPrefix").unwrap_or("/tmp");
    Ok(ListenConfig {
        addresses,
        port: u16::try_from(port).unwrap_or(PORT),
        ipv6,
        backlog: i32::try_from(backlog).unwrap_or(BACKLOG),
        max_connections: u64::try_from(most).unwrap_or(defaults.max_connections).min(MAX_CONNECTIONS),
        unix_socket: unix_socket_on.then(|| (PathBuf::from(directory), permissions)),
    })
}

fn everywhere(ipv6: bool) -> Vec<String> {
    let v4 = "0.0.0.0".to_owned();
    if ipv6 { vec![v4, "::".to_owned()] } else { vec![v4] }
}

fn log_config(options: &Options) -> Result<LogConfig, String> {
    let path = options.text("systemLog.path").map(PathBuf::from);
    match options.text("systemLog.destination") {
        None => {}
        Some("file") if path.is_some() => {}
        Some("file") => return Err("systemLog.destination: file needs systemLog.path".to_owned()),
        Some(other) => {
            return Err(format!(
                "systemLog.destination: {other} is not supported: log to a file or to standard output"
            ));
        }
    }
    let append = options.switch("systemLog.logAppend").unwrap_or(false);
    if append && path.is_none() {
        return Err("--logappend needs --logpath".to_owned());
    }
    let reopen = match options.text("systemLog.logRotate") {
        None | Some("rename") => false,
        Some("reopen") if append => true,
        Some("reopen") => return Err("logRotate reopen needs logappend".to_owned()),
        Some(other) => return Err(format!("--logRotate is rename or reopen, not '{other}'")),
    };
    let utc = match options.text("systemLog.timeStampFormat") {
        None | Some("iso8601-local") => false,
        Some("iso8601-utc") => true,
        Some(other) => {
            return Err(format!("--timeStampFormat is iso8601-utc or iso8601-local, not '{other}'"));
        }
    };
    let verbosity = match options.number("systemLog.verbosity") {
        None => 0,
        Some(n) if (0..=5).contains(&n) => u8::try_from(n).unwrap_or(0),
        Some(n) => return Err(format!("systemLog.verbosity must be between 0 and 5, not {n}")),
    };
    Ok(LogConfig { path, append, reopen, utc, verbosity })
}

/// Threshold and sample rate of the slow log.
fn slow_operations(options: &Options) -> Result<(i32, f64), String> {
    let ms = options.number("operationProfiling.slowOpThresholdMs").unwrap_or(100);
    let ms = i32::try_from(ms).map_err(|_| format!("--slowms is a number of milliseconds, not {ms}"))?;
    let rate = match options.text("operationProfiling.slowOpSampleRate") {
        None => 1.0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|rate| (0.0..=1.0).contains(rate))
            .ok_or_else(|| format!("--slowOpSampleRate is a number from 0 to 1, not '{text}'"))?,
    };
    Ok((ms, rate))
}

fn compressor_list(options: &Options) -> Result<Vec<Compressor>, String> {
    let list = options.text("net.compression.compressors").unwrap_or("snappy,zstd,zlib");
    if list == "disabled" {
        return Ok(Vec::new());
    }
    let mut compressors = Vec::new();
    for name in list.split(',').map(str::trim) {
        let compressor = Compressor::from_name(name)
            .ok_or_else(|| format!("'{name}' of --networkMessageCompressors is no compressor"))?;
        if !compressors.contains(&compressor) {
            compressors.push(compressor);
        }
    }
    Ok(compressors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::file::parse;

    fn config(text: &str) -> Result<Config, Vec<String>> {
        Config::new(parse(&format!("sharding: {{configDB: c/h:1}}\n{text}")))
    }

    #[test]
    fn defaults_are_mongos_defaults() {
        let config = config("").unwrap();
        assert_eq!(config.config_servers, "c/h:1");
        assert_eq!(config.listen.port, 27017);
        assert_eq!(config.listen.addresses, ["localhost"]);
        assert_eq!(config.listen.unix_socket, Some((PathBuf::from("/tmp"), 0o700)));
        assert_eq!(config.compressors, [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib]);
    }

    #[test]
    fn config_servers_need_a_set_and_get_a_port() {
        let set = |text: &str| config_set(&parse(&format!("sharding: {{configDB: '{text}'}}")));
        assert_eq!(set("c/a,b:5,[::1]:7").unwrap(), "c/a:27019,b:5,[::1]:7");
        assert!(set("").unwrap_err().contains("error: no args for --configdb"));
        assert!(set("a:1").unwrap_err().contains("configdb supports only replica set connection string"));
        assert!(set("c/").unwrap_err().contains("only replica set"));
    }

    #[test]
    fn every_address_is_listened_on() {
        let addresses = |text: &str| config(&format!("net: {{{text}}}")).unwrap().listen.addresses;
        assert_eq!(addresses("bindIp: 'a, b'"), ["a", "b"]);
        assert_eq!(addresses("bindIp: '*'"), ["0.0.0.0"]);
        assert_eq!(addresses("bindIpAll: true, ipv6: true"), ["0.0.0.0", "::"]);
    }

    #[test]
    fn all_complaints_come_together() {
        let complaints = Config::new(parse(
            "net: {port: 0, tls: {mode: requireTLS}}\nsystemLog: {logAppend: true}\nsetParameter: {nope: 1}\n",
        ))
        .unwrap_err();
        for says in [
            "--port",
            "net.tls.mode",
            "--logappend",
            "Unknown --setParameter 'nope'",
            "no args for --configdb",
        ] {
            assert!(complaints.iter().any(|complaint| complaint.contains(says)), "{says}: {complaints:?}");
        }
    }

    #[test]
    fn what_changes_nothing_is_named() {
        let config = config(
            "operationProfiling: {slowOpThresholdMs: 5}\nsystemLog: {component: {network: {verbosity: 1}}}\nsetParameter: \
             {maxSessions: 5}",
        )
        .unwrap();
        let mut names = config.without_effect;
        names.sort_unstable();
        assert_eq!(names, ["setParameter.maxSessions", "systemLog.component"]);
    }

    #[test]
    fn verbosity_and_quiet_are_parameters_too() {
        let config = config("systemLog: {verbosity: 2, quiet: true}").unwrap();
        assert_eq!(config.parameters.int("logLevel"), 2);
        assert!(config.parameters.flag("quiet"));
        assert_eq!(config.log.verbosity, 2);
    }
}
