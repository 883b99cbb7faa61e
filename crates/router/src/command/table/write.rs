//! Writes of documents.

use crate::command::{Command, RunsOn::Targeted, handler};
use crate::write;

const NOT_ENCRYPTED: &str = "Queryable Encryption";

pub(super) const ROWS: &[Command] = &[
    Command::new("insert", Targeted, handler!(write::insert::insert))
        .writes()
        .in_transaction()
        .retryable()
        .api_v1()
        .needs("insert")
        .partly(NOT_ENCRYPTED),
    Command::new("update", Targeted, handler!(write::update::update))
        .writes()
        .in_transaction()
        .retryable()
        .api_v1()
        .needs("update")
        .partly(NOT_ENCRYPTED),
    Command::new("delete", Targeted, handler!(write::delete::delete))
        .writes()
        .in_transaction()
        .retryable()
        .api_v1()
        .needs("remove")
        .partly(NOT_ENCRYPTED),
    Command::new("findAndModify", Targeted, handler!(write::find_and_modify::find_and_modify))
        .aliases(&["findandmodify"])
        .writes()
        .in_transaction()
        .retryable()
        .api_v1()
        .needs("find")
        .partly(NOT_ENCRYPTED),
];
