//! Databases, collections and indexes.

use crate::command::{
    Command,
    RunsOn::{AllShards, PrimaryShard, Router, Targeted},
    Status, handler,
};
use crate::ddl;

pub(super) const ROWS: &[Command] = &[
    Command::new("create", PrimaryShard, handler!(ddl::create::create))
        .writes()
        .in_transaction()
        .api_v1()
        .needs("createCollection"),
    Command::new("drop", PrimaryShard, handler!(ddl::drop::drop_collection))
        .writes()
        .api_v1()
        .needs("dropCollection"),
    Command::new("dropDatabase", PrimaryShard, handler!(ddl::drop::drop_database))
        .writes()
        .api_v1()
        .needs("dropDatabase"),
    Command::new("createIndexes", Targeted, handler!(ddl::indexes::create_indexes))
        .writes()
        .in_transaction()
        .api_v1()
        .needs("createIndex"),
    Command::new("dropIndexes", PrimaryShard, handler!(ddl::indexes::drop_indexes))
        .aliases(&["deleteIndexes"])
        .writes()
        .api_v1()
        .needs("dropIndex"),
    Command::new("listIndexes", Targeted, handler!(ddl::indexes::list_indexes))
        .reads()
        .api_v1()
        .needs("listIndexes"),
    Command::new("listCollections", PrimaryShard, handler!(ddl::list::list_collections))
        .reads()
        .api_v1()
        .needs("listCollections"),
    Command::new("listDatabases", AllShards, handler!(ddl::list::list_databases))
        .reads()
        .admin()
        .api_v1()
        .needs("listDatabases"),
    Command::new("dbStats", AllShards, handler!(ddl::stats::db_stats))
        .aliases(&["dbstats"])
        .reads()
        .needs("dbStats"),
    Command::new("collStats", Targeted, handler!(ddl::stats::coll_stats))
        .aliases(&["collstats"])
        .reads()
        .needs("collStats"),
    Command::new("collMod", PrimaryShard, handler!(ddl::coll_mod::coll_mod))
        .writes()
        .api_v1()
        .needs("collMod"),
    Command::new("renameCollection", PrimaryShard, handler!(ddl::rename::rename_collection))
        .writes()
        .admin()
        .needs("renameCollectionSameDB"),
    Command::new("convertToCapped", PrimaryShard, handler!(ddl::rename::convert_to_capped))
        .writes()
        .needs("convertToCapped"),
    Command::new("dataSize", Targeted, handler!(ddl::stats::data_size))
        .aliases(&["datasize"])
        .reads()
        .needs("find"),
    Command::new("validate", Targeted, handler!(ddl::validate::validate)).reads().needs("validate"),
    Command::new("validateDBMetadata", AllShards, handler!(ddl::validate::validate_db_metadata))
        .reads()
        .needs("validate"),
    Command::new("planCacheClear", Targeted, handler!(ddl::plan_cache::run)).writes().needs("planCacheWrite"),
    Command::new("planCacheClearFilters", Targeted, handler!(ddl::plan_cache::run))
        .writes()
        .needs("planCacheIndexFilter"),
    Command::new("planCacheSetFilter", Targeted, handler!(ddl::plan_cache::run))
        .writes()
        .needs("planCacheIndexFilter"),
    Command::new("planCacheListFilters", Targeted, handler!(ddl::plan_cache::run))
        .reads()
        .needs("planCacheIndexFilter"),
    Command::new("setIndexCommitQuorum", Targeted, handler!(ddl::indexes::set_commit_quorum))
        .writes()
        .needs("createIndex"),
    Command::new("filemd5", Targeted, handler!(ddl::file_md5::file_md5)).reads().needs("find"),
    Command::new("splitVector", PrimaryShard, handler!(ddl::stats::split_vector))
        .reads()
        .needs("splitVector"),
    Command {
        status: Status::Refused("only a shard can, on a direct connection"),
        ..Command::new("compact", Router, handler!(ddl::stats::compact)).needs("compact")
    },
    Command::refused(
        "compactStructuredEncryptionData",
        PrimaryShard,
        "queryable encryption is not supported",
    )
    .writes()
    .needs("compactStructuredEncryptionData"),
];
