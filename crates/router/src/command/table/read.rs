//! Queries and their cursors.

use crate::command::{
    Command,
    RunsOn::{AllShards, Router, Targeted},
    handler,
};
use crate::read;

pub(super) const ROWS: &[Command] = &[
    Command::new("find", Targeted, handler!(read::find::find))
        .reads()
        .in_transaction()
        .api_v1()
        .needs("find"),
    Command::new("getMore", Router, handler!(read::get_more::get_more)).reads().in_transaction().api_v1(),
    Command::new("killCursors", Router, handler!(read::kill_cursors::kill_cursors))
        .in_transaction()
        .api_v1()
        .needs("killCursors"),
    Command::new("count", Targeted, handler!(read::count::count)).reads().api_v1().needs("find"),
    Command::new("distinct", Targeted, handler!(read::distinct::distinct))
        .reads()
        .in_transaction()
        .needs("find"),
    Command::new("aggregate", Targeted, handler!(read::aggregate::aggregate))
        .reads()
        .in_transaction()
        .api_v1()
        .needs("find"),
    Command::new("explain", Targeted, handler!(read::explain::explain)).reads().api_v1(),
    Command::new("mapReduce", Targeted, handler!(read::map_reduce::map_reduce))
        .aliases(&["mapreduce"])
        .reads()
        .needs("find"),
    Command::new("currentOp", AllShards, handler!(read::collectionless::current_op_command))
        .reads()
        .admin()
        .needs("inprog"),
    Command::new("killOp", AllShards, handler!(read::kill_op::kill_op)).admin().needs("killop"),
];
