//! Saying hello, and who is who.

use crate::command::{Command, RunsOn::Router, handler};
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
    Command::refused("saslStart", Router, "authentication is not built yet").before_auth().api_v1(),
    Command::refused("saslContinue", Router, "authentication is not built yet").before_auth().api_v1(),
    Command::refused("authenticate", Router, "authentication is not built yet").before_auth().api_v1(),
    Command::new("getnonce", Router, handler!(identity::get_nonce)).reads().before_auth(),
];
