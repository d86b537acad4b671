package options

import (
	"crypto/tls"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/binlog"
	"trellis/binlog/replica/member"
)

// A flag is all that there is about one flag: how it is read, what -h says and what the manual says.
type flag struct {
	letter     string // of the short form; may be empty
	name       string // of the long form
	letterOnly bool   // the long form is not told: it exists because the flag package wants one for every letter
	value      string // what stands for the value in the help; empty if the flag has none
	def        string // a value that is set before the command line is read; empty if there is none

	help   string // what -h says; the default is added
	manual string // what the manual says, in Markdown; the default is added

	set func(value string) error
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// table has every flag of trellisd, in the groups of -h. The flags set what c has.
func table(c *commandLine) [][]flag {
	o := c.Options
	return [][]flag{{{
		letter: "l", name: "listen", value: "ADDR", set: appendTo(&o.Listen, "empty address for -l; give a host, an IP address or unix:PATH"),
		help: "listen on this host, IP address, HOST:PORT or unix:PATH\n(default is 0.0.0.0); may be given several times",
		manual: `Listen on ADDR. May be given several times. ADDR is one of

    HOST, 192.0.2.1, 2001:db8::1   with the port of -p
    HOST:PORT, [2001:db8::1]:PORT  with a port of its own
    unix:PATH                      a UNIX socket; it has no port

The default is 0.0.0.0. "::" takes IPv6 and, where the system allows it, IPv4.
Of a host with several addresses the first one is used that this machine has. A
UNIX socket's permissions follow the umask, and it belongs to the user of -u. A
socket file that was left behind is replaced. A path on which a server answers
and a file of any other kind are left alone, and trellisd does not start.`,
	}, {
		letter: "p", name: "port", value: "PORT", def: "11300", set: func(v string) error {
			o.Port = v
			return checkPort(v)
		},
		help:   "port number or service name",
		manual: "A number from 0 to 65535, or a service name. 0 takes a free port, which -V shows.",
	}, {
		letter: "u", name: "user", value: "USER", set: text(&o.User, "empty user for -u; give a name or a user id"),
		help: "become this user and its groups",
		manual: `Once the sockets are open, become USER (a name or a numeric id), its primary
group and its supplementary groups. A member of a cluster opens the clients'
sockets as USER, whenever it leads: ports below 1024 are then only for a USER
who may open them.`,
	}, {
		letter: "z", name: "max-job-size", value: "BYTES", def: "65535", set: func(v string) error {
			n, err := parseSize(v)
			if n > maxSize {
				n = maxSize
				o.notice("maximum job size was set to %d", n)
			}
			o.MaxJobSize = uint32(n)
			return err
		},
		help:   "largest job body, at most 1073741824 bytes",
		manual: "The largest body that put accepts. A number over 1073741824 is lowered to it.",
	}, {
		name: "loops", value: "N", set: func(v string) (err error) {
			if o.Loops, err = strconv.Atoi(v); err != nil || o.Loops < 1 || o.Loops > 255 {
				return usagef("invalid number of loops: %s; give a number from 1 to 255", v)
			}
			return nil
		},
		help: "event loops (default: by the number of CPUs)",
		manual: `Run N event loops, 1 to 255. The default is one for each CPU that the process
may use, but at most 8.`,
	}, {
		letter: "V", name: "verbose", set: func(string) error { c.verbosity++; return nil },
		help: "say more: -V listening sockets, -VV details",
		manual: `Log more. Once: the process id, the listening sockets, start and stop. Twice:
whatever may help to find an error.`,
	}, {
		name: "log-level", value: "LEVEL", def: "warn", set: func(v string) error {
			level, ok := logLevels[v]
			if !ok {
				return usagef("unknown log level: %s; give debug, info, warn or error", v)
			}
			o.LogLevel = level
			return nil
		},
		help:   "debug, info, warn or error, whatever -V says",
		manual: "debug, info, warn or error. It counts instead of -V.",
	}, {
		name: "log-format", value: "FORMAT", def: LogText, set: oneOf(&o.LogFormat, "unknown log format: %s; give text or json", LogText, LogJSON),
		help:   "text or json",
		manual: "text: key=value pairs. json: one object a line.",
	}, {
		letter: "v", name: "version", set: c.end(PrintVersion),
		help:   "show version information",
		manual: "Print the version to standard output and exit.",
	}, {
		letter: "h", name: "usage", letterOnly: true, set: c.end(PrintUsage),
		help:   "show this help",
		manual: "Print a summary of the options to standard error and exit.",
	}, {
		name: "help", set: c.end(PrintManual),
		help:   "show the whole manual",
		manual: "Print this text to standard output and exit.",
	}}, {{
		letter: "b", name: "binlog", value: "DIR", set: text(&o.Binlog, "empty directory for -b; give the path of one that exists"),
		help: "keep jobs in this directory too (default: in memory only)",
		manual: `Keep every job and every change of one in DIR, which must exist, and start with
what is there. A command is acknowledged when its change was handed to the
system, so it outlives the process however that ends. See BINLOG.`,
	}, {
		letter: "f", name: "sync-interval", value: "MS", def: "50", set: func(v string) error {
			ms, err := parseSize(v)
			o.Sync = binlog.SyncEvery(time.Duration(min(ms, uint64(maxSyncInterval/time.Millisecond))) * time.Millisecond)
			return err
		},
		help: "sync at most so long after a change;\n0: before the change is acknowledged",
		manual: `A power cut costs at most what was acknowledged in the last MS milliseconds. 0
syncs before the acknowledgement: then a power cut costs nothing.`,
	}, {
		letter: "F", name: "no-sync", set: func(string) error { o.Sync = binlog.SyncNever; return nil },
		help: "never sync",
		manual: `Leave it to the system when changes reach the disk. Of -f and -F the later one
counts.`,
	}, {
		letter: "s", name: "segment-size", value: "BYTES", set: func(v string) error {
			n, err := parseSize(v)
			o.SegmentSize = int64(min(n, maxSize))
			if n > maxSize {
				o.notice("binlog segment size was set to %d", o.SegmentSize)
			}
			return err
		},
		help:   "size of each file of the binlog (default is 10485760)",
		manual: "The size of the files in DIR, at most 1073741824. The default is 10485760.",
	}, {
		name: "skip-damaged", set: turnOn(&o.SkipDamaged),
		help: "start with what is sound of a damaged binlog",
		manual: `Start although the binlog is damaged: take over what is sound and keep the old
files aside, in DIR/damaged. The same for a directory of beanstalkd's.`,
	}}, {{
		name: "node", value: "NAME=HOST:PORT", set: func(v string) (err error) {
			if o.Cluster.Node, err = member.ParseNode(v); err != nil {
				return usagef("invalid node for --node: %v; give NAME=HOST:PORT", err)
			}
			return nil
		},
		help: "be this member of a cluster, at this address for the others",
		manual: `Be the member NAME of a cluster, which the others reach at HOST:PORT. Needs -b,
whose directory is this member's alone. See CLUSTER.`,
	}, {
		name: "cluster", value: "NAME=HOST:PORT,...", set: func(v string) (err error) {
			if o.Cluster.Nodes, err = member.ParseNodes(v); err != nil {
				return usagef("invalid members for --cluster: %v; give NAME=HOST:PORT,NAME=HOST:PORT,...", err)
			}
			return nil
		},
		help: "the members of the cluster, this one included",
		manual: `The members of the cluster, this one included: the same list, in the same order,
on all of them. It founds the cluster if the directories of all are empty. Later
the directory knows the members, and a list that disagrees is refused; it may
then be left out.`,
	}, {
		name: "cluster-listen", value: "HOST:PORT", set: hostPort(&o.Cluster.Listen, "cluster-listen"),
		help:   "listen there for the others (default: the address of --node)",
		manual: "Listen there for the other members, if that is not the address of --node.",
	}, {
		name: "cluster-cert", value: "FILE", set: text(&o.Cluster.Cert, "empty file for --cluster-cert; give the path of a file in PEM"),
		help: "certificate of this member, for connections between members",
		manual: `The certificate of this member, in PEM. By it, members prove to each other who
they are. This and the next two may be left out where all addresses are on
loopback.`,
	}, {
		name: "cluster-key", value: "FILE", set: text(&o.Cluster.Key, "empty file for --cluster-key; give the path of a file in PEM"),
		help:   "its key",
		manual: "The key of that certificate, in PEM.",
	}, {
		name: "cluster-ca", value: "FILE", set: text(&o.Cluster.CA, "empty file for --cluster-ca; give the path of a file in PEM"),
		help:   "the authorities that sign those of members",
		manual: "The authorities by which the members' certificates are signed, in PEM.",
	}}, {{
		name: "auth-file", value: "FILE", set: text(&o.AuthFile, "empty name for --auth-file; give the path of a file"),
		help: "clients that are served, and what they may do\n(default: everybody everything)",
		manual: `Serve only clients that FILE names, and let them do only what it says. See
ACCESS. The file is read as the user of -u.`,
	}, {
		name: "tls-listen", value: "ADDR", set: appendTo(&o.TLS.Listen, "empty address for --tls-listen; give a host, an IP address or unix:PATH"),
		help: "listen for clients that speak TLS (default port is 11400);\nwithout -l and -p there is no other listener then",
		manual: `Listen on ADDR for clients that speak TLS. May be given several times. ADDR is
written as for -l; the port is 11400 if it names none. Where --tls-listen is
given, and neither -l nor -p, there is no listener without TLS. See TLS.`,
	}, {
		name: "tls-cert", value: "FILE", set: text(&o.TLS.Cert, "empty path for --tls-cert; give that of a PEM file"),
		help: "the server's certificate and those behind it, PEM",
		manual: `The server's certificate, followed by those that lead to its authority; PEM. It
is read as the user of -u.`,
	}, {
		name: "tls-key", value: "FILE", set: text(&o.TLS.Key, "empty path for --tls-key; give that of a PEM file"),
		help:   "its key, PEM",
		manual: "The key of that certificate; PEM. It is read as the user of -u.",
	}, {
		name: "tls-client-ca", value: "FILE", set: text(&o.TLS.ClientCA, "empty path for --tls-client-ca; give that of a PEM file"),
		help: "ask clients for certificates of these authorities",
		manual: `Ask clients for a certificate that one of the authorities in FILE has issued for
clients; PEM.`,
	}, {
		name: "tls-client-auth", value: "WHO", def: "require", set: func(v string) error {
			if v != "require" && v != "optional" {
				return usagef("unknown value for --tls-client-auth: %s; give require or optional", v)
			}
			o.TLS.Optional = v == "optional"
			return nil
		},
		help:   "require or optional",
		manual: "require: refuse clients without a certificate. optional: serve them too.",
	}, {
		name: "tls-min", value: "VERSION", def: "1.2", set: func(v string) error {
			version, ok := tlsVersions[v]
			if !ok {
				return usagef("unknown version for --tls-min: %s; give 1.2 or 1.3", v)
			}
			o.TLS.MinVersion = version
			return nil
		},
		help:   "1.2 or 1.3",
		manual: "The oldest version of TLS that is spoken: 1.2 or 1.3.",
	}}, {{
		name: "http", value: "HOST:PORT", set: hostPort(&o.HTTP, "http"),
		help: "serve metrics, health and the console there\n(default: nowhere)",
		manual: `Serve HTTP there, without authentication unless --web-config-file is given. See
MONITORING and CONSOLE.`,
	}, {
		name: "web-config-file", value: "FILE", set: text(&o.WebConfig, "empty name for --web-config-file; give the path of a file"),
		help: "TLS and passwords for HTTP",
		manual: `Protect HTTP by TLS, and by names and passwords, as FILE says. Its format is
that of all of Prometheus's exporters. /healthz and /readyz need no name and
password.`,
	}, {
		name: "console", value: "MODE", set: oneOf(&o.Console, "unknown value for --console: %s; give off, read or write", ConsoleOff, ConsoleRead, ConsoleWrite),
		help: "off, read or write: the console for the browser there (default\nis read where that shows nobody more than can be seen anyway)",
		manual: `off: no console. read: the console shows tubes, jobs and clients. write: it also
lets people change and delete them; that is refused unless --web-config-file
asks them who they are, on loopback too. The default is read if
--web-config-file does so, or if HTTP is on loopback and clients may connect by
TCP without authentication, as everybody on the machine could then read the jobs
anyway; otherwise off. See CONSOLE.`,
	}, {
		name: "http-host", value: "NAME", set: func(v string) error {
			if v == "" || strings.ContainsAny(v, "/ ") {
				return usagef("invalid name for --http-host: %q; give a host's name, as browsers have it in their address bar", v)
			}
			o.HTTPHosts = append(o.HTTPHosts, v)
			return nil
		},
		help: "a name by which browsers may open the console",
		manual: `A name by which browsers may open the console, besides those of loopback, the
host of --http and the address that was connected to. May be given several
times. It is for proxies, and for names in DNS.`,
	}, {
		name: "pprof", set: turnOn(&o.Pprof),
		help:   "serve profiles there too",
		manual: "Serve profiles of the Go runtime under /debug/pprof/ there too.",
	}, {
		name: "metrics-tubes", value: "N", def: strconv.Itoa(DefaultMetricsTubes), set: func(v string) (err error) {
			if o.MetricsTubes, err = strconv.Atoi(v); err != nil || o.MetricsTubes < 1 {
				return usagef("invalid number of tubes: %s; give a number from 1 on", v)
			}
			return nil
		},
		help:   "tubes with metrics of their own",
		manual: "Show metrics of the N tubes with the most jobs, and of the others their sums.",
	}, {
		name: "metrics-legacy", set: turnOn(&o.MetricsLegacy),
		help: "show the names of messagebird/beanstalkd_exporter too",
		manual: `Show the names of messagebird/beanstalkd_exporter too: the keys of stats as
current_jobs_ready, cmd_put, ..., those of stats-tube as
tube_current_jobs_ready{tube}, ... Keys that are no numbers are left out, and
the label instance is Prometheus's own.`,
	}}, {{
		// Memory for jobs is taken in pieces of megabytes.
		name: "max-memory", value: "BYTES", set: bound(&o.MaxMemory, "max-memory", 1<<20, math.MaxInt64),
		help: "memory for jobs; beyond it put fails (default: no limit)",
		manual: `The memory that jobs may take, with what is kept about each of them: at
least 1048576. A put beyond it is answered OUT_OF_MEMORY and changes nothing;
everything else goes on, and puts succeed again as jobs are deleted. Jobs found
in the binlog are kept in any case. The default is no limit. Connections, tubes,
queues and buffers come on top; for them, GOMEMLIMIT is set to the sum of BYTES,
256 MiB (768 MiB with --node), 1.5 KiB for each connection and 1 KiB for each
tube that there may be, unless the environment sets it.`,
	}, {
		name: "max-connections", value: "N", set: bound(&o.MaxConnections, "max-connections", 1, math.MaxInt32),
		help: "connections (default: by the limit on descriptors)",
		manual: `One connection more is answered OUT_OF_MEMORY and closed; the others do not
notice. The default is the limit on descriptors (which is raised to the hard
limit), less 128 or a quarter, whichever is less.`,
	}, {
		name: "idle-timeout", value: "SECONDS", set: func(v string) error {
			var n int64
			err := bound(&n, "idle-timeout", 0, int64(maxIdleTimeout/time.Second))(v)
			o.IdleTimeout = time.Duration(n) * time.Second
			return err
		},
		help: "close clients that do nothing for so long (default: never)",
		manual: `Close connections on which the client has neither sent nor taken a byte for
SECONDS, and which neither wait for a job nor hold one. A command or body that
never gets complete does not keep a connection. The default is 0: never.`,
	}, {
		// With less there would be no room for back-pressure.
		name: "max-output", value: "BYTES", set: bound(&o.MaxOutput, "max-output", 1<<20, math.MaxInt64),
		help: "close clients that are owed more replies (default is 67108864)",
		manual: `Close connections whose clients are owed more than BYTES of replies: at
least 1048576. A client that does not read its replies is no longer read from long
before, so that only a reply with a body of about that size gets there. The
default is 67108864, or twice the size of -z if that is more.`,
	}, {
		name: "max-tubes", value: "N", def: strconv.Itoa(DefaultMaxTubes), set: bound(&o.MaxTubes, "max-tubes", 0, math.MaxInt32),
		help: "tubes; 0: no limit",
		manual: `The number of tubes. use and watch of one more are answered OUT_OF_MEMORY. 0
means no limit.`,
	}, {
		// A reserve keeps the client's loop and the tubes' shards for up to 0.3 us a tube: 2000 take less than 1 ms.
		name: "max-watched", value: "N", def: "2000", set: bound(&o.MaxWatched, "max-watched", 0, math.MaxInt32),
		help: "tubes that one client watches; 0: no limit",
		manual: `The number of tubes that one client may watch. watch of one more is answered
OUT_OF_MEMORY. A reserve looks at all watched tubes in one moment, in which
other clients wait. 0 means no limit.`,
	}, {
		name: "max-keys", value: "N", def: "1000000", set: bound(&o.MaxKeys, "max-keys", 0, math.MaxInt32),
		help: "keys of jobs, by idp and con; 0: no limit",
		manual: `The number of keys that jobs have by the tags idp and con of put, each counted
in each tube, and those that deleted jobs still keep. A put with one more is
answered OUT_OF_MEMORY. 0 means no limit.`,
	}, {
		name: "no-extensions", set: turnOn(&o.NoExtensions),
		help: "only the commands that beanstalkd has",
		manual: `Know only the commands that beanstalkd has: all others are answered
UNKNOWN_COMMAND or BAD_FORMAT, as it does. What set-dlq has set and keys of jobs
sleep, and stay on record.`,
	}}, {{
		letter: "c", name: "obsolete-c", letterOnly: true, set: o.obsolete("c"),
		help:   "obsolete: accepted and ignored",
		manual: "Obsolete in beanstalkd too. It is ignored, with a message.",
	}, {
		letter: "n", name: "obsolete-n", letterOnly: true, set: o.obsolete("n"),
		help:   "obsolete: accepted and ignored",
		manual: "The same.",
	}}}
}

// text sets a string that may not be empty.
func text(to *string, empty string) func(string) error {
	return func(v string) error {
		if *to = v; v == "" {
			return usagef("%s", empty)
		}
		return nil
	}
}

// appendTo sets one of several strings, which may not be empty.
func appendTo(to *[]string, empty string) func(string) error {
	return func(v string) error {
		if v == "" {
			return usagef("%s", empty)
		}
		*to = append(*to, v)
		return nil
	}
}

func oneOf(to *string, unknown string, values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, v) {
			return usagef(unknown, v)
		}
		*to = v
		return nil
	}
}

func turnOn(to *bool) func(string) error {
	return func(string) error { *to = true; return nil }
}

func hostPort(to *string, name string) func(string) error {
	return func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil {
			return usagef("invalid address for --%s: %s; give HOST:PORT or :PORT", name, v)
		}
		*to = v
		return nil
	}
}
