//! What the members of one set are, learned from their hello replies and their failures: a state machine without
//! sockets, tasks or clocks.
//!
//! ```text
//!              hello                       hello, failure
//!   Unknown ----------> Primary | Secondary | Arbiter | Other | Ghost ----------> any of them
//!      ^  failure, stale election, other set, other version   |
//!      |______________________________________________________|
//! ```
//!
//! The rules are those of the drivers' server discovery and monitoring for a set whose name is known, with one
//! difference: a member of another set or version is not forgotten but kept as `Unknown` with that error, so that
//! whoever waits for the set is told by name what is wrong.

mod select;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use select::choose;
pub(crate) use state::{Effect, Member, Sdam};
