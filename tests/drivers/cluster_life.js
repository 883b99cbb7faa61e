// The life of a cluster from mongosh, by documented helpers only: run by tests/mongosh_life.rs with the shards' strings
// in SHARDS. Every step is checked in config.*; the first failure ends the script with exit status 1.

const shards = process.env.SHARDS.split(";");
const config = db.getSiblingDB("config");
const life = db.getSiblingDB("life");

function check(what, condition) {
    if (!condition) throw new Error("check failed: " + what);
    print("ok: " + what);
}
function fails(what, code, action) {
    try {
        action();
    } catch (error) {
        check(what + " fails with " + code, error.code === code);
        return;
    }
    throw new Error("did not fail: " + what);
}
function chunksOf(ns) {
    const entry = config.collections.findOne({_id: ns});
    return entry ? config.chunks.find({uuid: entry.uuid}).sort({min: 1}).toArray() : [];
}

// Shards.
shards.forEach((hosts) => check("addShard " + hosts, sh.addShard(hosts).ok === 1));
check("listShards", db.adminCommand({listShards: 1}).shards.length === shards.length);
check("databases", sh.enableSharding("life", "shard0").ok === 1);
sh.stopBalancer();
check("balancer is off", sh.getBalancerState() === false);

// Five collections.
check("range", sh.shardCollection("life.range", {a: 1}).ok === 1);
check("compound", sh.shardCollection("life.compound", {a: 1, "b.c": 1}).ok === 1);
check("hashed", sh.shardCollection("life.hashed", {_id: "hashed"}, false, {numInitialChunks: 6}).ok === 1);
check("unique", sh.shardCollection("life.unique", {email: 1}, true).ok === 1);
const series = {timeField: "t", metaField: "m", granularity: "seconds"};
check("time series", sh.shardCollection("life.series", {m: 1}, false, {timeseries: series}).ok === 1);
check("config.collections", config.collections.countDocuments({_id: /^life\./}) === 5);
check("six chunks", chunksOf("life.hashed").length === 6);

// Data.
const docs = [];
for (let n = 0; n < 900; n++) docs.push({_id: n, a: n, b: {c: n % 10}, email: "u" + n});
["range", "compound", "hashed", "unique"].forEach((name) => life[name].insertMany(docs));
life.series.insertMany(docs.map((doc) => ({t: new Date(1700000000000 + doc.a * 1000), m: doc.a % 3, v: doc.a})));
fails("a second of a unique key", 11000, () => life.unique.insertOne({email: "u1"}));

// Splits and moves.
sh.splitAt("life.range", {a: 300});
sh.splitAt("life.range", {a: 600});
check("moveChunk 1", sh.moveChunk("life.range", {a: 300}, "shard1").ok === 1);
check("moveChunk 2", sh.moveChunk("life.range", {a: 600}, "shard2").ok === 1);
check("owners", chunksOf("life.range").map((chunk) => chunk.shard).join() === "shard0,shard1,shard2");
sh.splitFind("life.range", {a: 100});
check("split at the median", chunksOf("life.range").length === 4);
check("count over shards", life.range.countDocuments({}) === 900);
check("one shard by key", life.range.find({a: 450}).toArray().length === 1);

// Zones.
check("zone of a shard", sh.addShardToZone("shard2", "cold").ok === 1);
check("zone of a range", sh.updateZoneKeyRange("life.compound", {a: 500}, {a: MaxKey}, "cold").ok === 1);
check("config.tags", config.tags.countDocuments({ns: "life.compound", tag: "cold"}) === 1);
check("no zone", sh.removeRangeFromZone("life.compound", {a: 500}, {a: MaxKey}).ok === 1);
check("shard leaves the zone", sh.removeShardFromZone("shard2", "cold").ok === 1);

// Merge.
const low = chunksOf("life.range")[0];
check("mergeChunks", db.adminCommand({mergeChunks: "life.range", bounds: [low.min, {a: 300}]}).ok === 1);
check("three chunks again", chunksOf("life.range").length === 3);

// Refine, reshard.
life.range.createIndex({a: 1, "b.c": 1});
check("refine", db.adminCommand({refineCollectionShardKey: "life.range", key: {a: 1, "b.c": 1}}).ok === 1);
check("the key is longer", Object.keys(config.collections.findOne({_id: "life.range"}).key).length === 2);
check("reshard", db.adminCommand({reshardCollection: "life.hashed", key: {a: 1}}).ok === 1);
check("the key is another", config.collections.findOne({_id: "life.hashed"}).key.a === 1);
check("nothing lost", life.hashed.countDocuments({}) === 900);

// Rename, drop, create again.
check("rename", life.compound.renameCollection("renamed").ok === 1);
check("under the new name", life.renamed.countDocuments({}) === 900);
check("under the old one", life.compound.countDocuments({}) === 0);
check("drop", life.renamed.drop() === true);
check("config forgets", config.collections.findOne({_id: "life.renamed"}) === null);
check("again", sh.shardCollection("life.renamed", {z: 1}).ok === 1 && life.renamed.countDocuments({}) === 0);
check("time series", life.series.countDocuments({m: 1}) === 300);

// What administrators look at.
const status = sh.status().value;
check("sh.status", status.shards.length === 3 && status.databases.some((each) => each.database._id === "life"));
check("printShardingStatus", db.printShardingStatus(true).value.shards.length === 3);
const spread = life.range.getShardDistribution().value;
check("getShardDistribution", spread.Totals.docs === 900 && Object.keys(spread).length === 4);
check("stats", life.range.stats().sharded === true && life.stats().objects > 0);
check("this router is listed", config.mongos.countDocuments({}) >= 1);
check("validate", life.range.validate().valid === true);

// A shard goes.
sh.startBalancer();
let gone;
for (let turn = 0; turn < 600; turn++) {
    gone = db.adminCommand({removeShard: "shard2"});
    if (gone.state === "completed") break;
    (gone.dbsToMove || []).forEach((name) => db.adminCommand({movePrimary: name, to: "shard0"}));
    sleep(100);
}
check("removeShard", gone.state === "completed");
check("two shards", config.shards.countDocuments({}) === 2);
["range", "hashed", "unique"].forEach((name) => check(name, life[name].countDocuments({}) === 900));
check("dropDatabase", life.dropDatabase().ok === 1);
check("nothing left", config.collections.countDocuments({_id: /^life\./}) === 0);
print("the life of a cluster: all passed");
