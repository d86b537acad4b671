const { run } = require('./common');
const { Client } = require('node-beanstalk');
const { Connection } = require('node-beanstalk/dist/Connection');

run(async (port) => {
  // The client passes nothing on of what happens to its connection: one that is closed
  // between a command and its reply leaves it waiting for ever.
  const connection = new Connection();
  const gone = new Promise((_, reject) => {
    connection.on('close', () => reject(new Error('closed')));
    connection.on('error', reject);
  });
  gone.catch(() => {});
  const c = new Client({ host: '127.0.0.1', port }, connection);
  const call = (p) => Promise.race([p, gone]);
  await call(c.connect());
  return {
    use: (tube) => call(c.use(tube)),
    job: async (tube) => {
      await call(c.use(tube));
      await call(c.put('x'));
      await call(c.watch(tube));
      const { id } = await call(c.reserve());
      await call(c.delete(id));
    },
  };
});
