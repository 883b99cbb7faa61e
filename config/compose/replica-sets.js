// Run by mongosh in docker-compose.yml: every server becomes a replica set of one member. May run again.
for (const name of ['config0', 'shard0', 'shard1']) {
  const admin = connect(`mongodb://${name}:27018/admin?directConnection=true`);
  const config = { _id: name, members: [{ _id: 0, host: `${name}:27018` }] };
  if (name === 'config0') {
    config.configsvr = true;
  }
  try {
    admin.runCommand({ replSetInitiate: config });
  } catch (error) {
    if (error.codeName !== 'AlreadyInitialized') {
      throw error;
    }
  }
  while (!admin.runCommand({ hello: 1 }).isWritablePrimary) {
    sleep(100);
  }
  print(`${name} is a replica set`);
}
