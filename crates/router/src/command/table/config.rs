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
    Command::new(
        "setFeatureCompatibilityVersion",
        ConfigServers,
        handler!(admin::settings::set_feature_compatibility_version),
    )
    .writes()
    .admin()
    .needs("setFeatureCompatibilityVersion"),
    Command::new("getClusterParameter", ConfigServers, handler!(admin::settings::get_cluster_parameter))
        .reads()
        .admin()
        .needs("getClusterParameter"),
    Command::new("setClusterParameter", ConfigServers, handler!(admin::settings::set_cluster_parameter))
        .writes()
        .admin()
        .needs("setClusterParameter"),
    Command::new(
        "setUserWriteBlockMode",
        ConfigServers,
        handler!(admin::settings::set_user_write_block_mode),
    )
    .writes()
    .admin()
    .needs("setUserWriteBlockMode"),
];
