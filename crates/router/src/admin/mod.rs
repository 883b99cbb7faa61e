//! Administration of the sharded cluster.
//!
//! - [`config_server`]: the shape of most of these commands: the config servers do it.
//! - [`shards`], [`zones`], [`balancer`]: what the cluster is made of and how it balances.
//! - [`collections`], [`chunks`], [`resharding`], [`primary_shard`], [`presplit`]: how collections are spread.
//! - [`routing`]: what this router's routing table says.
//! - [`defaults`], [`settings`], [`users`]: what the config servers keep for all.
//! - [`process`]: old and rare commands that a router answers by itself.

pub mod balancer;
pub mod chunks;
pub mod collections;
pub mod config_server;
pub mod defaults;
pub mod fsync;
pub mod presplit;
pub mod primary_shard;
pub mod process;
pub mod resharding;
pub mod routing;
pub mod settings;
pub mod shards;
mod shell_text;
pub mod users;
pub mod zones;

/// A document in an error text.
pub(crate) fn shell(doc: document::Doc<'_>) -> String {
    shell_text::Shell(doc).to_string()
}
