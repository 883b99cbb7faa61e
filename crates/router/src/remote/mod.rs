//! Asking servers: which member, which connection, what is spliced into the request, when to ask again.
