//! The router as a process: old and rare commands that a mongos has.

use crate::admin::process;
use crate::command::{Command, RunsOn::Router, Status, handler};

const CERTIFICATES: &str = "TLS is not built yet";
const TRAFFIC: &str = "recording of traffic is not built";

pub(super) const ROWS: &[Command] = &[
    Command::new("profile", Router, handler!(process::profile))
        .writes()
        .needs("enableProfiler")
        .partly("a filter of slow operations"),
    Command::new("_isSelf", Router, handler!(process::is_self)).reads().before_auth(),
    Command::new("availableQueryOptions", Router, handler!(process::available_query_options))
        .aliases(&["availablequeryoptions"])
        .reads(),
    Command {
        status: Status::Refused("gone from the server too"),
        ..Command::new("getLastError", Router, handler!(process::get_last_error)).aliases(&["getlasterror"])
    },
    Command::new("connPoolSync", Router, handler!(process::nothing)).needs("connPoolSync"),
    Command::new("setFreeMonitoring", Router, handler!(process::nothing)).writes().admin(),
    Command::new("logRotate", Router, handler!(process::log_rotate)).admin().needs("logRotate"),
    Command::new("shutdown", Router, handler!(process::shut_down))
        .admin()
        .ends_connection()
        .needs("shutdown"),
    Command::refused("getDiagnosticData", Router, "no diagnostic data is captured").reads().admin(),
    Command::refused("dropConnections", Router, "pools close what is dead by themselves")
        .admin()
        .needs("dropConnections"),
    Command::refused("rotateCertificates", Router, CERTIFICATES).admin().needs("rotateCertificates"),
    Command::refused("startRecordingTraffic", Router, TRAFFIC).needs("trafficRecord"),
    Command::refused("stopRecordingTraffic", Router, TRAFFIC).needs("trafficRecord"),
    Command::refused(
        "setProfilingFilterGlobally",
        Router,
        "slow operations are chosen by slowms and sampleRate",
    )
    .needs("enableProfiler"),
    Command::refused("_killOperations", Router, "for servers of a cluster only").admin(),
];
