// GridFS of node's driver on each key that its chunks may be sharded by: upload, list, download, rename, delete, filemd5.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { GridFSBucket, MongoClient } = require('mongodb');

const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 10_000 });
await client.connect();
const admin = client.db('admin');
const db = client.db('node_gridfs');
await db.dropDatabase();
await admin.command({ enableSharding: 'node_gridfs' });
const { shards } = await admin.command({ listShards: 1 });

const keys = { byFile: { files_id: 1 }, byChunk: { files_id: 1, n: 1 }, hashed: { files_id: 'hashed' } };
for (const [bucketName, key] of Object.entries(keys)) {
  const ns = `node_gridfs.${bucketName}.chunks`;
  await admin.command({ shardCollection: ns, key });
  const bucket = new GridFSBucket(db, { bucketName, chunkSizeBytes: 1_000 });
  const content = randomBytes(10_500);
  const upload = bucket.openUploadStream('first.bin', { metadata: { key: bucketName } });
  await pipeline(Readable.from([content]), upload);
  if (bucketName === 'byChunk') {
    // One file over two shards, in the middle of it.
    await admin.command({ split: ns, middle: { files_id: upload.id, n: 5 } });
    await admin.command({ moveChunk: ns, find: { files_id: upload.id, n: 5 }, to: shards.at(-1)._id });
  }
  const download = async (name) => {
    const parts = [];
    for await (const part of bucket.openDownloadStreamByName(name)) parts.push(part);
    return Buffer.concat(parts);
  };
  assert.ok((await download('first.bin')).equals(content), bucketName);
  const files = await bucket.find({ 'metadata.key': bucketName }).toArray();
  assert.deepEqual(files.map((file) => [file.filename, file.length]), [['first.bin', content.length]]);
  if (bucketName !== 'hashed') {
    const { md5, numChunks } = await db.command({ filemd5: upload.id, root: bucketName });
    assert.deepEqual([md5, numChunks], [createHash('md5').update(content).digest('hex'), 11], bucketName);
  }
  await bucket.rename(upload.id, 'second.bin');
  assert.ok((await download('second.bin')).equals(content), bucketName);
  await assert.rejects(download('first.bin'), /FileNotFound/);
  await bucket.delete(upload.id);
  assert.equal(await db.collection(`${bucketName}.chunks`).countDocuments({}), 0);
  await assert.rejects(bucket.delete(upload.id), /FileNotFound|File not found/);
}
await client.close();
console.log('node gridfs: ok');
