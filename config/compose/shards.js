// Run by mongosh in docker-compose.yml: both shards are added through the router. May run again.
const admin = connect('mongodb://pointsman:27017/admin');
for (const name of ['shard0', 'shard1']) {
  const { shardAdded } = admin.runCommand({ addShard: `${name}/${name}:27018`, name });
  print(`${shardAdded} is a shard`);
}
