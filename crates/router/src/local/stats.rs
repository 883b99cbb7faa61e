//! Counters of this router, as serverStatus shows them.

use crate::command::Command;
use crate::reply::Reply;

/// Counters; one a router.
#[derive(Debug, Default)]
pub struct Stats {}

impl Stats {
    /// A command begins.
    pub fn command_started(&self, _command: &'static Command) {}

    /// A command has its reply.
    pub fn command_ended(&self, _command: &'static Command, _reply: &Reply) {}
}
