const { run } = require('./common');
const Jackd = require('jackd');

run(async (port) => {
  const c = new Jackd();
  // A command that gets no reply stays pending in this client: whoever uses it looks at
  // the socket too.
  const gone = new Promise((_, reject) => c.socket.on('close', () => reject(new Error('closed'))));
  gone.catch(() => {});
  const call = (p) => Promise.race([p, gone]);
  await call(c.connect({ host: '127.0.0.1', port }));
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
