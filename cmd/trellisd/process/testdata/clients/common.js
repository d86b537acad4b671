// What the scripts for Node have in common: see clients_test.go.
const [port, token] = [Number(process.argv[2]), process.argv[3] || ''];

// Some clients let an error of their socket go uncaught, which would end a program: it ends
// the step that is under way.
let fail = () => {};
process.on('uncaughtException', (err) => fail(err));

// report prints how a step went, in a line.
async function report(step) {
  let line = 'done';
  try {
    await Promise.race([step(), new Promise((_, reject) => { fail = reject; })]);
  } catch (err) {
    line = 'error ' + String((err && err.message) || err).split('\n')[0];
  }
  console.log(line);
  return line === 'done';
}

// run has a client made, authenticated and used; when told to, uses it again, and then
// does the same with a new one.
exports.run = async (connect) => {
  let client;
  const begin = async () => {
    client = await connect(port);
    if (token) await client.use('auth/' + token);
    await client.job('billing/x');
  };
  const told = new Promise((resolve) => {
    process.stdin.once('data', () => resolve(true));
    process.stdin.once('end', () => resolve(false));
  });
  const served = await report(begin);
  if (await told) {
    if (served) await report(() => client.job('billing/x'));
    // On a connection that a server has ended, node-beanstalk may wait for ever.
    else console.log('error refused before');
    await report(begin);
  }
  process.exit(0);
};
