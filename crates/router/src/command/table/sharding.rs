//! Shards, sharded collections, chunks, the balancer.

use crate::admin;
use crate::command::{
    Command,
    RunsOn::{AllShards, ConfigServers, PrimaryShard, Router, Targeted},
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
    Command::new("removeShard", ConfigServers, handler!(admin::shards::remove_shard))
        .aliases(&["removeshard"])
        .writes()
        .admin()
        .needs("removeShard"),
    Command::new("movePrimary", PrimaryShard, handler!(admin::primary_shard::move_primary))
        .aliases(&["moveprimary"])
        .writes()
        .admin()
        .needs("moveChunk"),
    Command::new("moveRange", ConfigServers, handler!(admin::chunks::move_range))
        .writes()
        .admin()
        .needs("moveChunk"),
    Command::new("mergeChunks", Targeted, handler!(admin::chunks::merge_chunks))
        .writes()
        .admin()
        .needs("splitChunk"),
    Command::new("clearJumboFlag", ConfigServers, handler!(admin::chunks::clear_jumbo_flag))
        .writes()
        .admin()
        .needs("clearJumboFlag"),
    Command::new("refineCollectionShardKey", PrimaryShard, handler!(admin::collections::refine_shard_key))
        .writes()
        .admin()
        .needs("refineCollectionShardKey"),
    Command::new("reshardCollection", PrimaryShard, handler!(admin::resharding::reshard))
        .writes()
        .admin()
        .needs("reshardCollection"),
    Command::new("abortReshardCollection", ConfigServers, handler!(admin::resharding::abort))
        .writes()
        .admin()
        .needs("reshardCollection"),
    Command::new("commitReshardCollection", ConfigServers, handler!(admin::resharding::commit))
        .writes()
        .admin()
        .needs("reshardCollection"),
    Command::new("cleanupReshardCollection", ConfigServers, handler!(admin::resharding::cleanup))
        .writes()
        .admin()
        .needs("reshardCollection"),
    Command::new("setAllowMigrations", PrimaryShard, handler!(admin::resharding::set_allow_migrations))
        .writes()
        .admin()
        .needs("moveChunk"),
    Command::new("addShardToZone", ConfigServers, handler!(admin::zones::add_shard))
        .aliases(&["addshardtozone"])
        .writes()
        .admin()
        .needs("enableSharding"),
    Command::new("removeShardFromZone", ConfigServers, handler!(admin::zones::remove_shard))
        .aliases(&["removeshardfromzone"])
        .writes()
        .admin()
        .needs("enableSharding"),
    Command::new("updateZoneKeyRange", ConfigServers, handler!(admin::zones::update_key_range))
        // Spelled so in mongos.
        .aliases(&["updatezonekeyRange"])
        .writes()
        .admin()
        .needs("enableSharding"),
    Command::new("balancerCollectionStatus", ConfigServers, handler!(admin::balancer::collection_status))
        .reads()
        .admin()
        .needs("enableSharding"),
    Command::new(
        "configureCollectionBalancing",
        ConfigServers,
        handler!(admin::balancer::configure_collection),
    )
    .writes()
    .admin()
    .needs("moveChunk"),
    Command::new("fsync", AllShards, handler!(admin::fsync::fsync)).writes().admin().needs("fsync"),
    Command::new(
        "repairShardedCollectionChunksHistory",
        ConfigServers,
        handler!(admin::resharding::repair_history),
    )
    .writes()
    .admin()
    .needs("splitChunk"),
    // Pointsman's own.
    Command::new("pointsmanPresplit", ConfigServers, handler!(admin::presplit::presplit))
        .writes()
        .admin()
        .needs("splitChunk"),
];
