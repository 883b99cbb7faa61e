// The life of a cluster from mongosh, by documented helpers only: run by tests/mongosh_life.rs with the connection strings
// of three empty replica sets in SHARDS. Every step is checked in config.* and on the shards themselves; the first failure
// ends the script with exit status 1.

const sets = process.env.SHARDS.split(";");
const config = db.getSiblingDB("config");
const life = db.getSiblingDB("life");
// The shards' own primaries, to see what a router cannot show.
const direct = sets.map((set) => new Mongo("mongodb://" + set.split("/")[1] + "/?directConnection=true"));
const on = (shard) => direct[shard].getDB("life");
const names = sets.map((set) => set.split("/")[0]);

function check(what, condition) {
    if (!condition) throw new Error("check failed: " + what);
    print("ok: " + what);
}
function same(what, seen, wanted) {
    if (EJSON.stringify(seen) !== EJSON.stringify(wanted))
        throw new Error(what + ": " + EJSON.stringify(seen) + ", not " + EJSON.stringify(wanted));
    print("ok: " + what);
}
function fails(what, code, action) {
    try {
        action();
    } catch (error) {
        same(what + " fails", error.code, code);
        return;
    }
    throw new Error("did not fail: " + what);
}
// What servers do later by themselves: ranges deleted, metadata refreshed.
function soon(what, seen, wanted) {
    for (let turn = 0; turn < 600 && EJSON.stringify(seen()) !== EJSON.stringify(wanted); turn++) sleep(50);
    same(what, seen(), wanted);
}
const entryOf = (ns) => config.collections.findOne({_id: ns});
function chunksOf(ns) {
    const entry = entryOf(ns);
    return entry ? config.chunks.find({uuid: entry.uuid}).sort({min: 1}).toArray() : [];
}
const ownersOf = (ns) => chunksOf(ns).map((chunk) => chunk.shard);
const infoOf = (database, name) => database.getCollectionInfos({name})[0];
const uuidOn = (shard, name) => { const found = infoOf(on(shard), name); return found && found.info.uuid; };
const countsOn = (name) => direct.map((_, shard) => on(shard)[name].countDocuments({}));
const keysOn = (shard, name) => on(shard)[name].getIndexes().map((index) => EJSON.stringify(index.key));

// Shards.
same("no shard yet", config.shards.countDocuments({}), 0);
fails("nothing can be written", 70, () => life.range.insertOne({a: 1}));
sets.forEach((set) => check("addShard " + set, sh.addShard(set).ok === 1));
same("config.shards", config.shards.find().sort({_id: 1}).toArray().map((shard) => shard._id + " " + shard.host + " " + shard.state),
    sets.map((set, index) => names[index] + " " + set + " 1"));
same("listShards", db.adminCommand({listShards: 1}).shards.length, 3);
const cluster = config.getCollection("version").findOne().clusterId;
direct.forEach((shard, index) => {
    const identity = shard.getDB("admin").system.version.findOne({_id: "shardIdentity"});
    same(names[index] + " knows who it is", [identity.shardName, identity.clusterId], [names[index], cluster]);
});
same("the balancer is on", sh.getBalancerState(), true);

// A database and five collections.
check("enableSharding", sh.enableSharding("life", names[0]).ok === 1);
same("config.databases", config.databases.findOne({_id: "life"}).primary, names[0]);
fails("another primary", 48, () => sh.enableSharding("life", names[1]));
check("range", sh.shardCollection("life.range", {a: 1}).ok === 1);
check("compound", sh.shardCollection("life.compound", {a: 1, "b.c": 1}).ok === 1);
check("hashed", sh.shardCollection("life.hashed", {_id: "hashed"}, false, {numInitialChunks: 6}).ok === 1);
check("unique", sh.shardCollection("life.unique", {email: 1}, true).ok === 1);
const series = {timeField: "t", metaField: "m", granularity: "seconds"};
check("time series", sh.shardCollection("life.series", {m: 1}, false, {timeseries: series}).ok === 1);
same("config.collections", config.collections.find({_id: /^life\./}).sort({_id: 1}).toArray().map((each) => [each._id, each.key, each.unique]), [
    ["life.compound", {a: 1, "b.c": 1}, false],
    ["life.hashed", {_id: "hashed"}, false],
    ["life.range", {a: 1}, false],
    ["life.system.buckets.series", {meta: 1}, false],
    ["life.unique", {email: 1}, true],
]);
same("chunks of the hashed one", ownersOf("life.hashed").sort(), [0, 0, 1, 1, 2, 2].map((shard) => names[shard]));
same("chunks of the others", ["range", "compound", "unique", "system.buckets.series"].map((name) => ownersOf("life." + name)),
    Array(4).fill([names[0]]));
same("one UUID everywhere", direct.map((_, shard) => uuidOn(shard, "hashed")), Array(3).fill(entryOf("life.hashed").uuid));
check("the shards have the keys' indexes", keysOn(0, "compound").includes('{"a":1,"b.c":1}') &&
    on(0).unique.getIndexes().some((index) => index.unique && index.key.email === 1));
same("the key is known to its shard",
    direct[0].getDB("admin").runCommand({getShardVersion: "life.range", fullMetadata: true}).metadata.keyPattern, {a: 1});
fails("another key", 23, () => sh.shardCollection("life.range", {b: 1}));

// Data.
const docs = [];
for (let n = 0; n < 900; n++) docs.push({_id: n, a: n, b: {c: n % 10}, email: "u" + n});
["range", "compound", "hashed", "unique"].forEach((name) => same(name + " takes documents", life[name].insertMany(docs).acknowledged, true));
life.series.insertMany(docs.map((doc) => ({t: new Date(1700000000000 + doc.a * 1000), m: doc.a % 3, v: doc.a})));
fails("a second of a unique key", 11000, () => life.unique.insertOne({email: "u1"}));
same("ranges are where their chunks are", [countsOn("range"), countsOn("compound"), countsOn("unique")], Array(3).fill([900, 0, 0]));
check("hashes are everywhere", countsOn("hashed").every((count) => count > 200));

// Splits and moves.
check("splitAt", sh.splitAt("life.range", {a: 300}).ok === 1 && sh.splitAt("life.range", {a: 600}).ok === 1);
same("bounds", chunksOf("life.range").map((chunk) => chunk.min), [{a: MinKey()}, {a: 300}, {a: 600}]);
fails("a split where there is one", undefined, () => sh.splitAt("life.range", {a: 300}));
check("moveChunk 1", sh.moveChunk("life.range", {a: 300}, names[1]).ok === 1);
check("moveRange 2", db.adminCommand({moveRange: "life.range", min: {a: 600}, toShard: names[2]}).ok === 1);
fails("a move to nowhere", 70, () => sh.moveChunk("life.range", {a: 1}, "nowhere"));
same("owners", ownersOf("life.range"), names);
soon("documents have moved", () => countsOn("range"), [300, 300, 300]);
check("splitFind", sh.splitFind("life.range", {a: 100}).ok === 1);
same("split at the median", ownersOf("life.range"), [names[0], names[0], names[1], names[2]]);
same("count over shards", life.range.countDocuments({}), 900);
same("one document of one shard", life.range.find({a: 450}).toArray().map((doc) => doc._id), [450]);
check("a unique one moves", sh.splitAt("life.unique", {email: "u5"}).ok === 1 && sh.moveChunk("life.unique", {email: "u5"}, names[1]).ok === 1);
fails("still unique", 11000, () => life.unique.insertOne({email: "u777"}));
check("buckets move", sh.splitAt("life.system.buckets.series", {meta: 1}).ok === 1 &&
    sh.moveChunk("life.system.buckets.series", {meta: 1}, names[2]).ok === 1);
same("a series over two shards", life.series.aggregate([{$group: {_id: "$m", n: {$sum: 1}}}, {$sort: {_id: 1}}]).toArray().map((group) => group.n),
    [300, 300, 300]);

// Zones.
check("zone of a shard", sh.addShardToZone(names[2], "cold").ok === 1);
same("config.shards", config.shards.findOne({_id: names[2]}).tags, ["cold"]);
check("zone of a range", sh.updateZoneKeyRange("life.compound", {a: 500}, {a: MaxKey}, "cold").ok === 1);
same("config.tags", config.tags.find({ns: "life.compound"}).toArray().map((tag) => [tag.tag, tag.min.a, Object.keys(tag.min)]), [["cold", 500, ["a", "b.c"]]]);
fails("zones do not overlap", 178, () => sh.updateZoneKeyRange("life.compound", {a: 400}, {a: 600}, "cold"));
fails("a zone in use", 163, () => sh.removeShardFromZone(names[2], "cold"));
soon("the balancer follows the zone", () => config.chunks.countDocuments({uuid: entryOf("life.compound").uuid, shard: names[2]}), 1);
soon("so do the documents", () => countsOn("compound"), [500, 0, 400]);
check("no zone", sh.removeRangeFromZone("life.compound", {a: 500}, {a: MaxKey}).ok === 1);
check("the shard leaves the zone", sh.removeShardFromZone(names[2], "cold").ok === 1);
same("nothing of it is left", [config.tags.countDocuments({}), config.shards.findOne({_id: names[2]}).tags], [0, []]);

// Merge.
const low = chunksOf("life.range")[0];
check("mergeChunks", db.adminCommand({mergeChunks: "life.range", bounds: [low.min, {a: 300}]}).ok === 1);
same("three chunks again", ownersOf("life.range"), names);
fails("chunks of two shards do not merge", 20, () => db.adminCommand({mergeChunks: "life.range", bounds: [{a: 300}, {a: MaxKey()}]}));

// Refine, reshard.
fails("a key without an index", 72, () => db.adminCommand({refineCollectionShardKey: "life.range", key: {a: 1, "b.c": 1}}));
life.range.createIndex({a: 1, "b.c": 1});
same("the index is on every shard", direct.map((_, shard) => keysOn(shard, "range").includes('{"a":1,"b.c":1}')), [true, true, true]);
const epoch = entryOf("life.range").lastmodEpoch;
check("refine", db.adminCommand({refineCollectionShardKey: "life.range", key: {a: 1, "b.c": 1}}).ok === 1);
same("the key is longer", entryOf("life.range").key, {a: 1, "b.c": 1});
check("of another epoch", !entryOf("life.range").lastmodEpoch.equals(epoch));
same("so are the bounds", chunksOf("life.range").map((chunk) => chunk.min)[1], {a: 300, "b.c": MinKey()});
same("nothing moved", [countsOn("range"), life.range.countDocuments({a: 450, "b.c": 0})], [[300, 300, 300], 1]);
const before = entryOf("life.hashed").uuid;
check("reshard", db.adminCommand({reshardCollection: "life.hashed", key: {a: 1}, numInitialChunks: 3}).ok === 1);
same("the key is another", entryOf("life.hashed").key, {a: 1});
const after = entryOf("life.hashed").uuid;
check("it is another collection", EJSON.stringify(after) !== EJSON.stringify(before));
direct.forEach((_, shard) => soon(names[shard] + " has the new one or none",
    () => [undefined, EJSON.stringify(after)].includes(uuidOn(shard, "hashed") && EJSON.stringify(uuidOn(shard, "hashed"))), true));
same("no temporary one is left", direct.map((_, shard) => on(shard).getCollectionNames().filter((name) => name.includes("resharding"))), [[], [], []]);
same("nothing lost", [life.hashed.countDocuments({}), countsOn("hashed").reduce((sum, count) => sum + count)], [900, 900]);
same("nothing runs any more", config.reshardingOperations.countDocuments({}), 0);

// Rename, drop, create again.
const moved = entryOf("life.compound").uuid;
fails("onto another", 48, () => life.compound.renameCollection("range"));
check("rename", life.compound.renameCollection("renamed").ok === 1);
same("config knows the new name only", [entryOf("life.compound"), entryOf("life.renamed").uuid], [null, moved]);
same("so do the shards", [0, 2].map((shard) => [uuidOn(shard, "compound"), uuidOn(shard, "renamed")]), [[undefined, moved], [undefined, moved]]);
same("documents", [life.renamed.countDocuments({}), life.compound.countDocuments({})], [900, 0]);
check("drop", life.renamed.drop() === true);
same("config forgets", [entryOf("life.renamed"), config.chunks.countDocuments({uuid: moved})], [null, 0]);
same("the shards too", direct.map((_, shard) => infoOf(on(shard), "renamed")), [undefined, undefined, undefined]);
check("again, by another key", sh.shardCollection("life.renamed", {z: 1}).ok === 1);
check("and moved away", sh.moveChunk("life.renamed", {z: MinKey()}, names[1]).ok === 1);
life.renamed.insertMany([{z: 1}, {z: 2}]);
same("only new documents", [life.renamed.find().toArray().map((doc) => doc.z).sort(), countsOn("renamed")], [[1, 2], [0, 2, 0]]);
life.plain.insertOne({a: 1});
check("an unsharded one", life.plain.renameCollection("plainer").ok === 1 && life.plainer.drop());

// What administrators look at.
const status = sh.status().value;
check("sh.status", status.shards.length === 3 && status.databases.some((each) => each.database._id === "life"));
check("printShardingStatus", db.printShardingStatus(true).value.shards.length === 3);
const spread = life.range.getShardDistribution().value;
check("getShardDistribution", spread.Totals.docs === 900 && Object.keys(spread).length === 4);
const stats = life.range.stats();
same("stats", [stats.sharded, stats.count, Object.keys(stats.shards).sort()], [true, 900, names]);
check("of the database", life.stats().objects > 0);
check("this router is listed", config.mongos.countDocuments({ping: {$gt: new Date(Date.now() - 60000)}}) === 1);
check("validate", life.range.validate().valid === true);
check("changelog", config.changelog.countDocuments({what: "moveChunk.commit"}) >= 3);

// A shard goes: it holds the primary of one database, ranges of several collections.
check("another database", sh.enableSharding("away", names[2]).ok === 1);
db.getSiblingDB("away").things.insertMany([{_id: 1}, {_id: 2}]);
same("draining starts", db.adminCommand({removeShard: names[2]}).state, "started");
same("config.shards says so", config.shards.findOne({_id: names[2]}).draining, true);
let gone;
let moves = 0;
for (let turn = 0; turn < 1200; turn++) {
    gone = db.adminCommand({removeShard: names[2]});
    if (gone.state === "completed") break;
    // The primary goes when the administrator says so, at the end.
    if (gone.remaining.chunks.toString() === "0" && gone.dbsToMove.includes("away")) {
        moves += db.adminCommand({movePrimary: "away", to: names[0]}).ok;
    }
    sleep(50);
}
same("removeShard", [gone.state, gone.shard, moves], ["completed", names[2], 1]);
same("two shards", config.shards.find().sort({_id: 1}).toArray().map((shard) => shard._id), [names[0], names[1]]);
same("it owns nothing", [config.chunks.countDocuments({shard: names[2]}), config.databases.countDocuments({primary: names[2]})], [0, 0]);
same("nothing lost", ["range", "hashed", "unique", "series"].map((name) => life[name].countDocuments({})), [900, 900, 900, 900]);
same("the moved database", [db.getSiblingDB("away").things.countDocuments({}), direct[0].getDB("away").things.countDocuments({})], [2, 2]);
soon("its documents are gone", () => ["range", "hashed"].map((name) => countsOn(name)[2]), [0, 0]);

// It comes back.
fails("with what is left on it", 96, () => sh.addShard(sets[2]));
["life", "away"].forEach((name) => direct[2].getDB(name).dropDatabase());
check("addShard again", sh.addShard(sets[2]).ok === 1);
check("it takes chunks again", sh.moveChunk("life.range", {a: 700, "b.c": 0}, names[2]).ok === 1);
same("and serves them", [ownersOf("life.range").includes(names[2]), life.range.countDocuments({})], [true, 900]);

// The end.
sh.stopBalancer();
same("the balancer is off", [sh.getBalancerState(), config.settings.findOne({_id: "balancer"}).mode], [false, "off"]);
sh.startBalancer();
same("and on again", [sh.getBalancerState(), config.settings.findOne({_id: "balancer"}).mode], [true, "full"]);
check("dropDatabase", life.dropDatabase().ok === 1 && db.getSiblingDB("away").dropDatabase().ok === 1);
same("nothing left", [config.collections.countDocuments({_id: /^life\./}), config.databases.countDocuments({_id: {$in: ["life", "away"]}})], [0, 0]);
same("on the shards either", direct.map((_, shard) => on(shard).getCollectionNames()), [[], [], []]);
print("the life of a cluster: all passed");
