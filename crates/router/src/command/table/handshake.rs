//! Saying hello, and who is who.

use crate::command::{Command, RunsOn::Router, Status, handler};
use crate::local::{handshake, identity};

pub(super) const ROWS: &[Command] = &[
    Command::new("hello", Router, handler!(handshake::hello)).reads().before_auth().api_v1(),
    Command::new("isMaster", Router, handler!(handshake::is_master))
        .aliases(&["ismaster"])
        .reads()
        .before_auth(),
    Command::new("ping", Router, handler!(identity::ping)).reads().before_auth().api_v1(),
    Command::new("buildInfo", Router, handler!(identity::build_info))
        .aliases(&["buildinfo"])
        .reads()
        .before_auth(),
    Command::new("whatsmyuri", Router, handler!(identity::whatsmyuri)).reads().before_auth(),
    Command::new("connectionStatus", Router, handler!(identity::connection_status)).reads().before_auth(),
    Command::new("listCommands", Router, handler!(identity::list_commands)).reads().before_auth(),
    Command::new("isdbgrid", Router, handler!(identity::isdbgrid)).reads().before_auth(),
    Command::new("features", Router, handler!(identity::features)).reads(),
    Command::new("logout", Router, handler!(identity::logout)),
    login("saslStart"),
    login("saslContinue"),
    login("authenticate"),
    Command::new("getnonce", Router, handler!(identity::get_nonce)).reads().before_auth(),
];

/// One step of a login. It fails as one with a wrong password does, which drivers know what to do about.
const fn login(name: &'static str) -> Command {
    Command {
        status: Status::Refused("authentication is not built yet"),
        ..Command::new(name, Router, handler!(identity::log_in)).before_auth().api_v1()
    }
}
