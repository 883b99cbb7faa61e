//! The router as a process: mongos's flags and configuration file, listeners, connections, logs, signals.
//!
//! ```text
//! options -> Config -> Router -> Router::connect -> Listeners -> one task a connection -> Router::serve
//! ```
//!
//! May call `router` and what is below it. What a command means is known there; what a socket, a signal and a file
//! are is known here only.
//!
//! Names to read first: [`process::run`], [`connection::serve`], [`options::table`].

mod connection;
mod control;
mod drain;
mod listen;
mod log;
mod options;
mod pid_file;
mod process;
mod signals;

/// Frames are freed on other threads than they came from, and bursts must go back to the system: glibc's allocator
/// keeps them. Its options are given at build time, in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    process::run(std::env::args_os().collect())
}
