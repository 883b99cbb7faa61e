//! The protocol from outside: what goes in as bytes, what comes out.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // helpers of tests are tests

mod build;
mod compression;
mod frames;
mod malformed;
mod properties;
mod replies;
