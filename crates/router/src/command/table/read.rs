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
        .needs("find")
        .partly("merges other than sort, limit, skip and count over several shards"),
    Command::refused("explain", Targeted, "explain comes with the next reads").reads().api_v1(),
    Command::refused("mapReduce", Targeted, "mapReduce comes with the next reads")
        .aliases(&["mapreduce"])
        .reads(),
    Command::refused("currentOp", AllShards, "currentOp comes with the next reads")
        .reads()
        .admin()
        .needs("inprog"),
    Command::refused("killOp", AllShards, "killOp comes with the next reads").admin().needs("killop"),
];
