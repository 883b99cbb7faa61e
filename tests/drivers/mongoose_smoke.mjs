// Mongoose 9 against a router: schemas with a shard key, documents that are saved, populated and bulk-written, and its two
// kinds of transactions over documents on different shards.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const mongoose = require('mongoose');
const { Schema } = mongoose;

const uri = new URL(process.env.MONGODB_URI);
uri.pathname = '/mongoose_smoke';
await mongoose.connect(uri.href, { serverSelectionTimeoutMS: 10_000 });
const { connection } = mongoose;
await connection.dropDatabase();
const admin = connection.getClient().db('admin');
const { shards } = await admin.command({ listShards: 1 });
assert.ok(shards.length >= 2, 'the smoke test needs two shards');

// Accounts below 100 live on the first shard, the others on the second.
const ns = 'mongoose_smoke.accounts';
await admin.command({ enableSharding: 'mongoose_smoke', primaryShard: shards[0]._id });
await admin.command({ shardCollection: ns, key: { number: 1 } });
await admin.command({ split: ns, middle: { number: 100 } });
await admin.command({ moveChunk: ns, find: { number: 100 }, to: shards[1]._id });

// With `shardKey` mongoose adds the key to the filter of each save and delete.
const accountSchema = new Schema(
  {
    number: { type: Number, required: true },
    owner: { type: Schema.Types.ObjectId, ref: 'Owner' },
    balance: { type: Number, default: 0, min: 0 },
    history: [{ amount: Number, at: { type: Date, default: Date.now } }],
  },
  { shardKey: { number: 1 }, timestamps: true, optimisticConcurrency: true, collection: 'accounts' },
);
const Account = mongoose.model('Account', accountSchema);
const Owner = mongoose.model('Owner', new Schema({ name: { type: String, unique: true } }, { collection: 'owners' }));
await Promise.all([Account.init(), Owner.init()]);

const owner = await Owner.create({ name: 'Ada' });
await Account.insertMany([1, 2, 101, 102].map((number) => ({ number, owner, balance: 100 })));
await assert.rejects(Owner.create({ name: 'Ada' }), { code: 11000 });
await assert.rejects(Account.create({ number: 3, balance: -1 }), { name: 'ValidationError' });

const account = await Account.findOne({ number: 101 }).populate('owner');
assert.equal(account.owner.name, 'Ada');
account.history.push({ amount: 5 });
account.balance += 5;
await account.save();
const stale = await Account.findOne({ number: 101 });
await Account.updateOne({ number: 101 }, { $inc: { __v: 1 } });
stale.balance = 0;
await assert.rejects(stale.save(), { name: 'VersionError' });
const changed = await Account.findOneAndUpdate({ number: 2 }, { $inc: { balance: 1 } }, { returnDocument: 'after' });
assert.equal(changed.balance, 101);
const numbers = [];
for await (const each of Account.find().sort({ createdAt: 1, number: -1 }).cursor({ batchSize: 2 })) numbers.push(each.number);
assert.deepEqual(numbers.sort((a, b) => a - b), [1, 2, 101, 102]);
const [total] = await Account.aggregate([{ $group: { _id: null, sum: { $sum: '$balance' } } }]);
assert.equal(total.sum, 406);
const bulk = await Account.bulkWrite([
  { insertOne: { document: { number: 103, balance: 7 } } },
  { updateOne: { filter: { number: 103 }, update: { $set: { balance: 8 } } } },
  { deleteOne: { filter: { number: 103 } } },
]);
assert.deepEqual([bulk.insertedCount, bulk.modifiedCount, bulk.deletedCount], [1, 1, 1]);

const balances = async () =>
  (await Account.find().sort({ number: 1 }).lean()).map(({ number, balance }) => [number, balance]);
const transfer = async (from, to, amount, session) => {
  const [a, b] = [
    await Account.findOne({ number: from }).session(session),
    await Account.findOne({ number: to }).session(session),
  ];
  a.balance -= amount;
  b.balance += amount;
  await b.save({ session });
  await a.save({ session });
};

// Two shards, both ways of mongoose; an error takes everything back, in the database and in the documents.
await connection.transaction((session) => transfer(1, 101, 30, session));
await mongoose.startSession().then(async (session) => {
  await session.withTransaction(() => transfer(102, 2, 40, session));
  await session.endSession();
});
assert.deepEqual(await balances(), [[1, 70], [2, 141], [101, 135], [102, 60]]);
await assert.rejects(connection.transaction((session) => transfer(1, 101, 1_000, session)), { name: 'ValidationError' });
assert.deepEqual(await balances(), [[1, 70], [2, 141], [101, 135], [102, 60]]);
// Two of them at once on the same documents: one is repeated.
await Promise.all([1, 2].map(() => connection.transaction((session) => transfer(2, 101, 10, session))));
assert.deepEqual(await balances(), [[1, 70], [2, 121], [101, 155], [102, 60]]);

await connection.dropDatabase();
await mongoose.disconnect();
console.log('mongoose: all passed');
