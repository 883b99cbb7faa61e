//! Databases, collections and indexes.

use crate::command::{
    Command,
    RunsOn::{AllShards, PrimaryShard, Targeted},
    handler,
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
    Command::refused("collMod", PrimaryShard, "comes with the administration commands")
        .writes()
        .api_v1()
        .needs("collMod"),
    Command::refused("renameCollection", PrimaryShard, "comes with the administration commands")
        .writes()
        .admin()
        .needs("renameCollectionSameDB"),
    Command::refused("convertToCapped", PrimaryShard, "comes with the administration commands")
        .writes()
        .needs("convertToCapped"),
    Command::refused("dataSize", Targeted, "comes with the administration commands")
        .aliases(&["datasize"])
        .reads()
        .needs("find"),
    Command::refused("validate", Targeted, "comes with the administration commands")
        .reads()
        .needs("validate"),
];
