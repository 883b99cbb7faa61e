//! Shards, sharded collections, chunks, the balancer.

use crate::admin;
use crate::command::{
    Command,
    RunsOn::{ConfigServers, PrimaryShard, Router, Targeted},
    handler,
};

pub(super) const ROWS: &[Command] = &[
    Command::new("addShard", ConfigServers, handler!(admin::shards::add_shard))
        .aliases(&["addshard"])
        .writes()
        .admin()
        .needs("addShard"),
    Command::new("listShards", ConfigServers, handler!(admin::shards::list_shards))
        .aliases(&["listshards"])
        .reads()
        .admin()
        .needs("listShards"),
    Command::new("enableSharding", ConfigServers, handler!(admin::collections::enable_sharding))
        .aliases(&["enablesharding"])
        .writes()
        .admin()
        .needs("enableSharding"),
    Command::new("shardCollection", PrimaryShard, handler!(admin::collections::shard_collection))
        .aliases(&["shardcollection"])
        .writes()
        .admin()
        .needs("enableSharding"),
    Command::new("split", Targeted, handler!(admin::chunks::split)).writes().admin().needs("splitChunk"),
    Command::new("moveChunk", ConfigServers, handler!(admin::chunks::move_chunk))
        .aliases(&["movechunk"])
        .writes()
        .admin()
        .needs("moveChunk"),
    Command::new("balancerStatus", ConfigServers, handler!(admin::balancer::status)).reads().admin(),
    Command::new("balancerStart", ConfigServers, handler!(admin::balancer::start)).writes().admin(),
    Command::new("balancerStop", ConfigServers, handler!(admin::balancer::stop)).writes().admin(),
    Command::new("flushRouterConfig", Router, handler!(admin::routing::flush_router_config))
        .aliases(&["flushrouterconfig"])
        .admin()
        .needs("flushRouterConfig"),
    Command::new("getShardMap", Router, handler!(admin::routing::get_shard_map))
        .reads()
        .admin()
        .needs("getShardMap"),
    Command::new("getShardVersion", Router, handler!(admin::routing::get_shard_version))
        .aliases(&["getshardversion"])
        .reads()
        .admin()
        .needs("getShardVersion"),
    Command::new("netstat", Router, handler!(admin::routing::netstat)).reads().admin().needs("netstat"),
];
