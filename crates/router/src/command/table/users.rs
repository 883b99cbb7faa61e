//! Users and roles: kept by the config servers, on the database that the client names.

use crate::admin::users;
use crate::command::{
    Command,
    RunsOn::{ConfigServers, Router},
    handler,
};

pub(super) const ROWS: &[Command] = &[
    change("createUser", "createUser"),
    change("updateUser", "changePassword"),
    change("dropUser", "dropUser"),
    change("dropAllUsersFromDatabase", "dropUser"),
    change("grantRolesToUser", "grantRole"),
    change("revokeRolesFromUser", "revokeRole"),
    change("createRole", "createRole"),
    change("updateRole", "grantRole"),
    change("dropRole", "dropRole"),
    change("dropAllRolesFromDatabase", "dropRole"),
    change("grantPrivilegesToRole", "grantRole"),
    change("revokePrivilegesFromRole", "revokeRole"),
    change("grantRolesToRole", "grantRole"),
    change("revokeRolesFromRole", "revokeRole"),
    Command::new("_mergeAuthzCollections", ConfigServers, handler!(users::change)).writes().admin(),
    Command::new("usersInfo", ConfigServers, handler!(users::info)).reads().needs("viewUser"),
    Command::new("rolesInfo", ConfigServers, handler!(users::info)).reads().needs("viewRole"),
    Command::new("invalidateUserCache", Router, handler!(users::invalidate_cache))
        .needs("invalidateUserCache"),
];

const fn change(name: &'static str, action: &'static str) -> Command {
    Command::new(name, ConfigServers, handler!(users::change)).writes().needs(action)
}
