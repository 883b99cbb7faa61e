//! Databases, collections, indexes; shards, chunks, zones.

use bson::doc;

use super::{NOTHING, Row, Want, row};

pub(super) fn ddl() -> Vec<Row> {
    vec![
        row("create")
            .ok(doc! { "create": "made", "capped": true, "size": 4096 })
            .bad(48, doc! { "create": "made" })
            .bad(14, doc! { "create": "made2", "validator": 5 })
            .bad(2, doc! { "create": 5 }),
        row("createIndexes")
            .ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] })
            .call(
                "other",
                doc! { "createIndexes": "new", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] },
                Want::Ok,
            )
            .bad(14, doc! { "createIndexes": "c", "indexes": 5 })
            .bad(2, doc! { "createIndexes": "c", "indexes": [] }),
        row("setIndexCommitQuorum")
            .lenient()
            .bad(27, doc! { "setIndexCommitQuorum": "c", "indexNames": ["a_1"], "commitQuorum": 1 })
            .bad(26, doc! { "setIndexCommitQuorum": "nosuch", "indexNames": ["a_1"], "commitQuorum": 1 })
            .bad(14, doc! { "setIndexCommitQuorum": "c", "indexNames": 5, "commitQuorum": 1 }),
        row("planCacheSetFilter")
            .ok(doc! { "planCacheSetFilter": "c", "query": { "a": 1 }, "indexes": [{ "a": 1 }] })
            .bad(2, doc! { "planCacheSetFilter": "c", "query": 5, "indexes": [{ "a": 1 }] })
            .lenient(),
        row("planCacheListFilters")
            .lenient()
            .ok(doc! { "planCacheListFilters": "c" })
            .ok(doc! { "planCacheListFilters": "nosuch" })
            .bad(73, doc! { "planCacheListFilters": 5 }),
        row("planCacheClearFilters")
            .lenient()
            .ok(doc! { "planCacheClearFilters": "c" })
            .bad(73, doc! { "planCacheClearFilters": 5 }),
        row("planCacheClear")
            .lenient()
            .ok(doc! { "planCacheClear": "c" })
            .ok(doc! { "planCacheClear": "nosuch" })
            .bad(73, doc! { "planCacheClear": 5 }),
        row("collMod")
            .ok(doc! { "collMod": "c", "validationLevel": "moderate" })
            .bad(26, doc! { "collMod": "nosuch", "validationLevel": "moderate" })
            .call(NOTHING, doc! { "collMod": "c", "validationLevel": "moderate" }, Want::Code(26))
            .bad(2, doc! { "collMod": "c", "validationLevel": "nosuch" }),
        row("dropIndexes")
            .ok(doc! { "dropIndexes": "c", "index": "a_1" })
            .bad(27, doc! { "dropIndexes": "c", "index": "a_1" })
            .bad(26, doc! { "deleteIndexes": "nosuch", "index": "a_1" })
            .bad(14, doc! { "dropIndexes": "c", "index": 5 }),
        row("convertToCapped")
            .lenient()
            .ok(doc! { "insert": "plain", "documents": [{ "a": 1 }] })
            .ok(doc! { "convertToCapped": "plain", "size": 100_000 })
            .bad(26, doc! { "convertToCapped": "nosuch", "size": 100_000 })
            .bad(20, doc! { "convertToCapped": "c", "size": 100_000 }),
        row("renameCollection")
            .admin(doc! { "renameCollection": "every.made", "to": "every.renamed" })
            .bad_admin(26, doc! { "renameCollection": "every.made", "to": "every.renamed" })
            .bad_admin(48, doc! { "renameCollection": "every.renamed", "to": "every.c" })
            .bad_admin(14, doc! { "renameCollection": "every.renamed", "to": 5 })
            .bad_admin(73, doc! { "renameCollection": "x", "to": "every.y" }),
        row("drop")
            .ok(doc! { "drop": "renamed" })
            // Another than a mongod: what is not there is dropped.
            .ok(doc! { "drop": "renamed" })
            .call(NOTHING, doc! { "drop": "c" }, Want::Ok)
            .bad(2, doc! { "drop": 5 }),
        row("dropDatabase")
            .call("other", doc! { "dropDatabase": 1 }, Want::Ok)
            .call(NOTHING, doc! { "dropDatabase": 1 }, Want::Ok)
            .call("admin", doc! { "dropDatabase": 1 }, Want::Code(20)),
        row("compact").lenient().bad(115, doc! { "compact": "c" }),
        row("compactStructuredEncryptionData")
            .lenient()
            .bad(115, doc! { "compactStructuredEncryptionData": "c", "compactionTokens": {} }),
        row("splitVector")
            .lenient()
            .ok(doc! { "splitVector": "every.u", "keyPattern": { "_id": 1 }, "maxChunkSize": 1 })
            .bad(20, doc! { "splitVector": "every.c", "keyPattern": { "n": 1 }, "maxChunkSize": 1 }),
    ]
}

pub(super) fn sharding(shard0: String) -> Vec<Row> {
    vec![
        row("addShard")
            .admin(doc! { "addShard": shard0, "name": "shard0" })
            .bad_admin(14, doc! { "addShard": 5 })
            .bad_admin(9, doc! { "addShard": "" }),
        row("listShards").lenient().admin(doc! { "listShards": 1 }),
        row("enableSharding")
            .admin(doc! { "enableSharding": "made", "primaryShard": "shard1" })
            .bad_admin(48, doc! { "enableSharding": "made", "primaryShard": "shard0" })
            .bad_admin(70, doc! { "enableSharding": "made2", "primaryShard": "nosuch" })
            .bad_admin(14, doc! { "enableSharding": 5 }),
        row("shardCollection")
            .admin(doc! { "shardCollection": "made.s", "key": { "k": 1 } })
            .bad_admin(23, doc! { "shardCollection": "made.s", "key": { "l": 1 } })
            .bad_admin(14, doc! { "shardCollection": "made.t", "key": 5 })
            .bad_admin(73, doc! { "shardCollection": "made", "key": { "k": 1 } }),
        row("split")
            .lenient()
            .admin(doc! { "split": "made.s", "middle": { "k": 0 } })
            .call("admin", doc! { "split": "made.s", "middle": { "k": 0 } }, Want::NoCode)
            .bad_admin(118, doc! { "split": "made.nosuch", "middle": { "k": 0 } })
            .call("admin", doc! { "split": "made.s" }, Want::NoCode)
            .bad_admin(14, doc! { "split": "made.s", "middle": 5 }),
        row("mergeChunks")
            .lenient()
            .admin(doc! { "mergeChunks": "made.s", "bounds": [{ "k": bson::Bson::MinKey }, { "k": bson::Bson::MaxKey }] })
            .bad_admin(118, doc! { "mergeChunks": "made.nosuch", "bounds": [{ "k": 1 }, { "k": 2 }] })
            .call("admin", doc! { "mergeChunks": "made.s", "bounds": 5 }, Want::NoCode),
        row("moveChunk")
            .lenient()
            .admin(doc! { "moveChunk": "made.s", "find": { "k": 0 }, "to": "shard0" })
            .bad_admin(70, doc! { "moveChunk": "made.s", "find": { "k": 0 }, "to": "nosuch" })
            .bad_admin(118, doc! { "moveChunk": "made.nosuch", "find": { "k": 0 }, "to": "shard0" })
            .bad_admin(14, doc! { "moveChunk": "made.s", "find": { "k": 0 }, "to": 5 }),
        row("moveRange")
            .admin(doc! { "moveRange": "made.s", "min": { "k": bson::Bson::MinKey }, "toShard": "shard0" })
            .bad_admin(70, doc! { "moveRange": "made.s", "min": { "k": 0 }, "toShard": "nosuch" })
            .bad_admin(14, doc! { "moveRange": "made.s", "min": 5, "toShard": "shard0" }),
        row("clearJumboFlag")
            .lenient()
            .admin(doc! { "clearJumboFlag": "made.s", "find": { "k": 0 } })
            .bad_admin(118, doc! { "clearJumboFlag": "made.nosuch", "find": { "k": 0 } })
            .bad_admin(14, doc! { "clearJumboFlag": "made.s", "find": 5 }),
        row("addShardToZone")
            .admin(doc! { "addShardToZone": "shard0", "zone": "z" })
            .bad_admin(70, doc! { "addShardToZone": "nosuch", "zone": "z" })
            .bad_admin(14, doc! { "addShardToZone": "shard0", "zone": 5 }),
        row("updateZoneKeyRange")
            .admin(doc! { "updateZoneKeyRange": "made.s", "min": { "k": 0 }, "max": { "k": 5 }, "zone": "z" })
            .admin(doc! { "updateZoneKeyRange": "made.s", "min": { "k": 0 }, "max": { "k": 5 }, "zone": null })
            .bad_admin(177, doc! { "updateZoneKeyRange": "made.s", "min": { "k": 0 }, "max": { "k": 5 }, "zone": "nosuch" })
            .bad_admin(14, doc! { "updateZoneKeyRange": "made.s", "min": 5, "max": { "k": 5 }, "zone": "z" }),
        row("removeShardFromZone")
            .admin(doc! { "removeShardFromZone": "shard0", "zone": "z" })
            .bad_admin(70, doc! { "removeShardFromZone": "nosuch", "zone": "z" })
            .bad_admin(14, doc! { "removeShardFromZone": 5, "zone": "z" }),
        row("refineCollectionShardKey")
            .call("made", doc! { "createIndexes": "s", "indexes": [{ "key": { "k": 1, "l": 1 }, "name": "kl" }] }, Want::Ok)
            .admin(doc! { "refineCollectionShardKey": "made.s", "key": { "k": 1, "l": 1 } })
            .bad_admin(118, doc! { "refineCollectionShardKey": "made.nosuch", "key": { "k": 1 } })
            .bad_admin(14, doc! { "refineCollectionShardKey": "made.s", "key": 5 }),
        row("reshardCollection")
            .admin(doc! { "reshardCollection": "made.s", "key": { "k": 1, "l": 1 } })
            .bad_admin(118, doc! { "reshardCollection": "made.nosuch", "key": { "k": 1 } })
            .bad_admin(14, doc! { "reshardCollection": "made.s", "key": 5 }),
        row("abortReshardCollection")
            .bad_admin(339, doc! { "abortReshardCollection": "made.s" })
            .bad_admin(14, doc! { "abortReshardCollection": 5 }),
        row("commitReshardCollection")
            .bad_admin(339, doc! { "commitReshardCollection": "made.s" })
            .bad_admin(14, doc! { "commitReshardCollection": 5 }),
        row("cleanupReshardCollection")
            .admin(doc! { "cleanupReshardCollection": "made.s" })
            .bad_admin(14, doc! { "cleanupReshardCollection": 5 }),
        row("setAllowMigrations")
            .admin(doc! { "setAllowMigrations": "made.s", "allowMigrations": true })
            .bad_admin(14, doc! { "setAllowMigrations": "made.s", "allowMigrations": "x" }),
        row("repairShardedCollectionChunksHistory")
            .lenient()
            .admin(doc! { "repairShardedCollectionChunksHistory": "made.s" }),
        row("balancerStart").lenient().admin(doc! { "balancerStart": 1 }),
        row("balancerStatus").lenient().admin(doc! { "balancerStatus": 1 }),
        row("balancerStop").lenient().admin(doc! { "balancerStop": 1 }),
        row("balancerCollectionStatus")
            .lenient()
            .admin(doc! { "balancerCollectionStatus": "made.s" })
            .bad_admin(118, doc! { "balancerCollectionStatus": "made.nosuch" })
            .bad_admin(14, doc! { "balancerCollectionStatus": 5 }),
        row("configureCollectionBalancing")
            .admin(doc! { "configureCollectionBalancing": "made.s", "chunkSize": 64 })
            .bad_admin(118, doc! { "configureCollectionBalancing": "made.nosuch", "chunkSize": 64 })
            .bad_admin(14, doc! { "configureCollectionBalancing": "made.s", "chunkSize": "x" }),
        row("pointsmanPresplit")
            .admin(doc! { "pointsmanPresplit": "made.s", "points": [{ "k": 10 }], "dryRun": true })
            .bad_admin(118, doc! { "pointsmanPresplit": "made.nosuch", "points": [{ "k": 10 }], "dryRun": true }),
        row("movePrimary")
            .lenient()
            .admin(doc! { "movePrimary": "made", "to": "shard0" })
            .bad_admin(70, doc! { "movePrimary": "made", "to": "nosuch" })
            .bad_admin(26, doc! { "movePrimary": "nothere", "to": "shard0" })
            .bad_admin(14, doc! { "movePrimary": 5, "to": "shard0" }),
        row("flushRouterConfig")
            .lenient()
            .admin(doc! { "flushRouterConfig": 1 })
            .admin(doc! { "flushRouterConfig": "made.s" })
            .admin(doc! { "flushRouterConfig": "nothere" }),
        row("getShardMap").lenient().admin(doc! { "getShardMap": 1 }),
        row("getShardVersion")
            .lenient()
            .admin(doc! { "getShardVersion": "made.s" })
            .admin(doc! { "getShardVersion": "made" })
            .bad_admin(118, doc! { "getShardVersion": "made.nosuch" }),
        row("netstat").lenient().admin(doc! { "netstat": 1 }),
        row("fsync").lenient().admin(doc! { "fsync": 1 }).call("admin", doc! { "fsync": 1, "lock": true }, Want::NoCode),
        row("removeShard").admin(doc! { "removeShard": "shard1" }).bad_admin(70, doc! { "removeShard": "nosuch" }).bad_admin(14, doc! { "removeShard": 5 }),
    ]
}
