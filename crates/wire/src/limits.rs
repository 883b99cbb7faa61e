//! The numbers that bound every message.

/// The largest message a client may send (and what `hello` announces), header included.
pub const MAX_CLIENT_MESSAGE_BYTES: usize = 48_000_000;

/// The largest message exchanged with a server: a client's largest plus room for what a router adds to it.
pub const MAX_SERVER_MESSAGE_BYTES: usize = MAX_CLIENT_MESSAGE_BYTES + 64 * 1024;

/// The largest document a user may store, as `hello` announces it.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// The largest document on the wire: a user's largest with room for what a server puts around it.
pub const MAX_INTERNAL_DOCUMENT_BYTES: usize = MAX_DOCUMENT_BYTES + 16 * 1024;

/// The deepest nesting of a document (seen on 6.0.5: 200 levels below the top pass, 201 are an Overflow).
pub const MAX_NESTING: usize = 200;
