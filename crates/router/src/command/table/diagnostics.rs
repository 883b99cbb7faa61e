//! What the router says about itself, and its parameters.

use crate::command::{Command, RunsOn::Router, handler};
use crate::local::{diagnostics, fail_point, identity, parameters, server_status};

pub(super) const ROWS: &[Command] = &[
    Command::new("serverStatus", Router, handler!(server_status::server_status))
        .reads()
        .needs("serverStatus"),
    Command::new("hostInfo", Router, handler!(diagnostics::host_info)).reads().needs("hostInfo"),
    Command::new("getLog", Router, handler!(diagnostics::get_log)).reads().admin().needs("getLog"),
    Command::new("getCmdLineOpts", Router, handler!(diagnostics::get_cmd_line_opts))
        .reads()
        .admin()
        .needs("getCmdLineOpts"),
    Command::new("connPoolStats", Router, handler!(diagnostics::conn_pool_stats))
        .reads()
        .needs("connPoolStats"),
    Command::new("replSetGetStatus", Router, handler!(diagnostics::repl_set_get_status))
        .reads()
        .admin()
        .needs("replSetGetStatus"),
    Command::new("getParameter", Router, handler!(parameters::get_parameter))
        .reads()
        .admin()
        .needs("getParameter"),
    Command::new("setParameter", Router, handler!(parameters::set_parameter))
        .writes()
        .admin()
        .needs("setParameter"),
    // Drivers' tests of the stable API: one that is not in version 1 and one that is.
    Command::new("testVersion2", Router, handler!(identity::ping)).reads().test_only(),
    Command::new("testVersions1And2", Router, handler!(identity::ping)).reads().api_v1().test_only(),
    Command::new("configureFailPoint", Router, handler!(fail_point::configure)).admin().test_only(),
];
