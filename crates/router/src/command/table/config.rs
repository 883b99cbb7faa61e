//! Cluster-wide settings that the config servers keep.

use crate::admin;
use crate::command::{Command, RunsOn::ConfigServers, handler};

pub(super) const ROWS: &[Command] = &[
    Command::new("getDefaultRWConcern", ConfigServers, handler!(admin::defaults::get_default_rw_concern))
        .reads()
        .admin()
        .needs("getDefaultRWConcern"),
    Command::new("setDefaultRWConcern", ConfigServers, handler!(admin::defaults::set_default_rw_concern))
        .writes()
        .admin()
        .needs("setDefaultRWConcern"),
];
