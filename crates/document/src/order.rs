//! The server's total order over BSON values.
