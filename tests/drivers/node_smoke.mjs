// Node's driver against a router: CRUD, bulkWrite, a sorted cursor over shards, countDocuments, a driver session.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { MongoClient } = require('mongodb');

const SHARDED = 3_000;
const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 10_000 });
await client.connect();
const admin = client.db('admin');
const db = client.db('node_smoke');
await db.dropDatabase();

const hello = await admin.command({ hello: 1 });
assert.equal(hello.msg, 'isdbgrid');
const { shards } = await admin.command({ listShards: 1 });
assert.ok(shards.length >= 2, 'the smoke test needs two shards');

// One collection over all shards, split so that each has a part.
const ns = 'node_smoke.sorted';
await admin.command({ enableSharding: 'node_smoke' });
await admin.command({ shardCollection: ns, key: { n: 1 } });
for (let i = 1; i < shards.length; i++) {
  const bound = Math.floor((SHARDED / shards.length) * i);
  await admin.command({ split: ns, middle: { n: bound } });
  await admin.command({ moveChunk: ns, find: { n: bound }, to: shards[i]._id });
}
const sorted = db.collection('sorted');
const written = await sorted.insertMany(
  Array.from({ length: SHARDED }, (_, n) => ({ n, back: SHARDED - n, word: `w${n % 7}` })),
  { ordered: false },
);
assert.equal(written.insertedCount, SHARDED);

// A sort that is not the shard key: every shard streams, the router merges.
let last = -1;
let seen = 0;
for await (const doc of sorted.find().sort({ back: 1 }).batchSize(100)) {
  assert.ok(doc.back > last, `order: ${doc.back} after ${last}`);
  last = doc.back;
  seen++;
}
assert.equal(seen, SHARDED);
const page = await sorted.find({ word: 'w3' }).sort({ n: -1 }).skip(5).limit(10).project({ _id: 0, n: 1 }).toArray();
const expected = Array.from({ length: SHARDED }, (_, n) => n).filter((n) => n % 7 === 3).reverse().slice(5, 15);
assert.deepEqual(page.map((doc) => doc.n), expected);
assert.equal(await sorted.countDocuments({ word: 'w0' }), Math.ceil(SHARDED / 7));
assert.equal(await sorted.estimatedDocumentCount(), SHARDED);
assert.deepEqual((await sorted.distinct('word')).sort(), ['w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6']);

// CRUD on both kinds of collection.
for (const name of ['sorted', 'plain']) {
  const coll = db.collection(name);
  const key = { n: 1_000_000 };
  await coll.insertOne({ ...key, state: 'new' });
  assert.equal((await coll.findOne(key)).state, 'new');
  assert.equal((await coll.updateOne(key, { $set: { state: 'old' } })).modifiedCount, 1);
  assert.equal((await coll.findOneAndUpdate(key, { $inc: { hits: 1 } }, { returnDocument: 'after' })).hits, 1);
  assert.equal((await coll.replaceOne(key, { ...key, state: 'replaced' })).modifiedCount, 1);
  await assert.rejects(coll.insertOne({ _id: (await coll.findOne(key))._id, ...key }), { code: 11000 });
  const bulk = await coll.bulkWrite([
    { insertOne: { document: { n: 1_000_001 } } },
    { updateOne: { filter: { n: 1_000_001 }, update: { $set: { state: 'bulk' } } } },
    { updateOne: { filter: { n: 1_000_002 }, update: { $set: { state: 'upserted' } }, upsert: true } },
    { deleteOne: { filter: { n: 1_000_001 } } },
  ]);
  assert.deepEqual(
    [bulk.insertedCount, bulk.modifiedCount, bulk.upsertedCount, bulk.deletedCount],
    [1, 1, 1, 1],
  );
  assert.equal((await coll.deleteMany({ n: { $gte: 1_000_000 } })).deletedCount, 2);
}

await client.withSession(async (session) => {
  await db.collection('plain').insertOne({ in: 'session' }, { session });
  assert.equal(await db.collection('plain').countDocuments({ in: 'session' }, { session }), 1);
});
await assert.rejects(db.command({ noSuchCommand: 1 }), { code: 59, codeName: 'CommandNotFound' });

await db.dropDatabase();
await client.close();
console.log('node: all passed');
