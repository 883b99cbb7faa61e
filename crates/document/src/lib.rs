//! Raw BSON at speed: views that never copy, edits that never re-encode, the server's total order.
//!
//! In flows untrusted bytes (commands, documents, replies); out come borrowed views ([`Doc`], [`Value`]), owned
//! documents ([`DocBuf`]) and edited copies ([`splice`]). The crate is pure: no I/O, no async, and it may be called
//! by every other crate of the workspace and calls none of them.
//!
//! Names to read first: [`Doc`], [`Value`], [`DocBuf`].
//!
//! Limits: [`MAX_DEPTH`] levels of nesting, as a mongod parses them (seen on 6.0.5: deeper answers 15 Overflow).
//! Every read is bounds-checked, so a view over bytes that were not validated is safe: it ends early, it never
//! panics. [`Doc::validate`] says whether it would.

mod build;
mod error;
pub mod order;
pub mod path;
pub mod splice;
mod validate;
mod value;
mod view;

pub use build::{DocBuf, DocWriter};
pub use error::DocumentError;
pub use validate::MAX_DEPTH;
pub use value::{ElementType, Timestamp, Value};
pub use view::{Doc, Field, Fields};

#[cfg(test)]
mod tests;
