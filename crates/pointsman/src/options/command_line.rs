//! The command line: mongos's flags, built from the option table.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::table::{Kind, ROWS, Support, by_flag};
use super::{Options, file};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Run with these options.
    Run(Box<Options>),
    /// Print this and end with this exit code.
    Print(String, u8),
}

/// `-v` to `-vvvvv`.
const MOST_VERBOSE: usize = 5;

fn command() -> Command {
    let mut command = Command::new("pointsman")
        .about("Routes commands of MongoDB clients to the shards of a cluster, in the place of mongos")
        .override_usage("pointsman --configdb <set>/<host:port>[,<host:port>] [options]")
        .disable_version_flag(true)
        .arg(Arg::new("version").long("version").action(ArgAction::SetTrue).help("show the version"))
        .arg(
            Arg::new("setParameter")
                .long("setParameter")
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("set a server parameter; may be given several times"),
        );
    for row in ROWS.iter().filter(|row| !row.flag.is_empty()) {
        let mut arg = Arg::new(row.flag).long(row.flag).help(row.help);
        arg = match (row.flag, row.kind) {
            ("config", _) => arg.short('f').value_name("FILE").value_parser(NonEmptyStringValueParser::new()),
            ("verbose", _) => arg
                .short('v')
                .num_args(0..=1)
                .default_missing_value("v")
                .require_equals(true)
                .value_name("VVV")
                .action(ArgAction::Append),
            (_, Kind::Switch) => arg.action(ArgAction::SetTrue),
            (_, Kind::Number) => arg.value_name("N").allow_negative_numbers(true),
            (_, Kind::Text) => arg.value_name("TEXT"),
        };
        if row.help.is_empty() || matches!(row.support, Support::Refused(_) | Support::Taken) {
            arg = arg.hide(true);
        }
        command = command.arg(arg);
    }
    command
}

/// Reads the command line and the file that it names.
#[must_use]
pub(crate) fn read(arguments: Vec<OsString>) -> Asked {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            return Asked::Print(error.to_string(), code);
        }
    };
    if matches.get_flag("version") {
        return Asked::Print(
            format!(
                "pointsman version v{}\nserver version whose behaviour it gives: {}\n",
                env!("CARGO_PKG_VERSION"),
                router::SERVER_VERSION
            ),
            0,
        );
    }
    let flags = from_matches(&matches);
    let options = match matches.get_one::<String>("config") {
        Some(path) => file::read(Path::new(path)),
        None => Options::default(),
    };
    Asked::Run(Box::new(options.overridden_by(flags)))
}

fn from_matches(matches: &ArgMatches) -> Options {
    let mut options = Options::default();
    for row in ROWS.iter().filter(|row| !row.flag.is_empty()) {
        let name = format!("--{}", row.flag);
        if row.flag == "verbose" {
            let times =
                matches.get_many::<String>("verbose").map_or(0, |values| values.map(String::len).sum());
            if times > 0 {
                set_verbosity(&mut options, times);
            }
        } else if row.kind == Kind::Switch {
            if matches.get_flag(row.flag) {
                options.set(row, &name, "true");
            }
        } else if let Some(text) = matches.get_one::<String>(row.flag) {
            options.set(row, &name, text);
        }
    }
    for parameter in matches.get_many::<String>("setParameter").into_iter().flatten() {
        match parameter.split_once('=') {
            Some((name, value)) => options.parameters.push((name.to_owned(), value.to_owned())),
            None => options
                .complaints
                .push(format!("Illegal option assignment: \"{parameter}\": --setParameter takes NAME=VALUE")),
        }
    }
    if options.text("configExpand").is_some_and(|what| what != "none") {
        options
            .complaints
            .push("--configExpand is not supported: expansion directives are not supported".to_owned());
    }
    options
}

fn set_verbosity(options: &mut Options, times: usize) {
    if let Some(row) = super::table::by_path("systemLog.verbosity") {
        options.set(row, "--verbose", &times.min(MOST_VERBOSE).to_string());
    }
    debug_assert!(by_flag("verbose").is_some());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arguments: &[&str]) -> Options {
        let all = std::iter::once("pointsman").chain(arguments.iter().copied()).map(OsString::from);
        match read(all.collect()) {
            Asked::Run(options) => *options,
            Asked::Print(text, code) => panic!("{code}: {text}"),
        }
    }

    #[test]
    fn flags_are_mongos_flags() {
        let options = run(&[
            "--configdb=c/h:1",
            "--port",
            "5",
            "--bind_ip",
            "a,b",
            "--ipv6",
            "-vv",
            "-v",
            "--setParameter",
            "a=b=c",
        ]);
        assert_eq!(options.complaints, Vec::<String>::new());
        assert_eq!(options.text("sharding.configDB"), Some("c/h:1"));
        assert_eq!(options.number("net.port"), Some(5));
        assert_eq!(options.switch("net.ipv6"), Some(true));
        assert_eq!(options.number("systemLog.verbosity"), Some(3));
        assert_eq!(options.parameters, [("a".to_owned(), "b=c".to_owned())]);
    }

    #[test]
    fn an_unknown_flag_is_told_with_the_nearest() {
        match read(["pointsman", "--confgdb", "x"].map(OsString::from).to_vec()) {
            Asked::Print(text, 2) => assert!(text.contains("--configdb"), "{text}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_refused_flags_are_told() {
        let options = run(&["--fork", "--keyFile", "k", "--tlsMode", "requireTLS", "--setParameter", "x"]);
        assert_eq!(options.complaints.len(), 4, "{options:?}");
    }
}
