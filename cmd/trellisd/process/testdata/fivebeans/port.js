// Preloaded into the suite, which connects to port 11300 whatever happens: sends
// those connections to the port in TRELLIS_PORT.
'use strict';

const net = require('net');
const { createRequire } = require('module');

const connect = net.createConnection;

net.createConnection = function (port, ...rest) {
	return connect.call(net, port === 11300 ? Number(process.env.TRELLIS_PORT) : port, ...rest);
};

// One of the suite's tests reads the server's version as a semantic one, and
// throws on any that has not three numbers in front of a "+": on 1.13+trellis.0.1.0
// as on 1.13+6+g25085c5, which beanstalkd's own development builds say.
const semver = createRequire(process.cwd() + '/test/')('semver');
const satisfies = semver.satisfies;
semver.satisfies = (version, range) => satisfies(String(version).replace(/^(\d+\.\d+)\+.*/, '$1.0'), range);
