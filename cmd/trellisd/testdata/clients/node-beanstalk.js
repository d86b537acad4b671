const { run } = require('./common');
const { Client } = require('node-beanstalk');

run(async (port) => {
  const c = new Client({ host: '127.0.0.1', port });
  const gone = new Promise((_, reject) => {
    c.on('close', () => reject(new Error('closed')));
    c.on('error', reject);
  });
  gone.catch(() => {});
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
