const { run } = require('./common');
const fivebeans = require('fivebeans');

run((port) => new Promise((resolve, reject) => {
  const c = new fivebeans.client('127.0.0.1', port);
  let ended = null;
  let fail = reject; // of what is under way: a command that gets no reply is not called back
  const end = (why) => { ended = new Error(why); fail(ended); };
  const call = (name, ...args) => new Promise((done, failed) => {
    if (ended) return failed(ended);
    fail = failed;
    c[name](...args, (err, ...got) => (err ? failed(err) : done(got)));
  });
  c.on('error', (err) => end(err.message));
  c.on('close', () => end('closed'));
  c.on('connect', () => resolve({
    use: (tube) => call('use', tube),
    job: async (tube) => {
      await call('use', tube);
      await call('put', 0, 0, 60, 'x');
      await call('watch', tube);
      const [id] = await call('reserve');
      await call('destroy', id);
    },
  }));
  c.connect();
}));
