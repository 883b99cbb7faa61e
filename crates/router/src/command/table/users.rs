//! Users and roles: refused until authentication is built.

use crate::command::{Command, RunsOn::ConfigServers};

const WHY: &str = "users and roles come with authentication";

pub(super) const ROWS: &[Command] = &[
    Command::refused("createUser", ConfigServers, WHY).writes().needs("createUser"),
    Command::refused("updateUser", ConfigServers, WHY).writes().needs("changePassword"),
    Command::refused("dropUser", ConfigServers, WHY).writes().needs("dropUser"),
    Command::refused("usersInfo", ConfigServers, WHY).reads().needs("viewUser"),
    Command::refused("rolesInfo", ConfigServers, WHY).reads().needs("viewRole"),
];
