package options

import (
	"crypto/tls"
	"encoding/csv"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/binlog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/wire"
	"trellis/cmd/internal/quantity"
)

// A flag is all that there is about one flag: how it is read, what -h says and what the manual says.
type flag struct {
	letter     string // of the short form; may be empty
	name       string // of the long form
	letterOnly bool   // the long form is not told: it exists because the flag package wants one for every letter
	several    bool   // it may be given several times
	value      string // what stands for the value in the help; empty if the flag has none
	def        string // a value that is set before the command line is read; empty if there is none

	help   string // what -h says; the default is added
	manual string // what the manual says, in Markdown; the default is added

	setting
}

// A setting is how an option of the server is read and shown.
type setting struct {
	set  func(value string) error
	show func() string // the value as it was understood, as the flag takes it; nil for what is no option of the server
}

var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// table has every flag of trellisd, in the groups of -h. The flags set what c has.
func table(c *commandLine) [][]flag {
	o := c.Options
	return [][]flag{{{
		letter: "l", name: "listen", several: true, value: "ADDR",
		setting: appendTo(&o.Listen, "empty address for -l; give a host, an IP address or unix:PATH"),
		help:    "listen on this host, IP address, HOST:PORT or unix:PATH\n(default is 0.0.0.0); may be given several times",
		manual: `Listen on ADDR. May be given several times. ADDR is one of

    HOST, 192.0.2.1, 2001:db8::1   with the port of -p
    HOST:PORT, [2001:db8::1]:PORT  with a port of its own
    unix:PATH                      a UNIX socket; it has no port

With ",proxy" behind it, connections begin with a PROXY header: see --proxy-from.
The default is 0.0.0.0. "::" takes IPv6 and, where the system allows it, IPv4.
Of a host with several addresses the first one is used that this machine has. A
UNIX socket's permissions follow --socket-mode or the umask, and it belongs to
the user of -u. A socket file that was left behind is replaced. A path on which
a server answers and a file of any other kind are left alone, and trellisd does
not start.`,
	}, {
		letter: "p", name: "port", value: "PORT", def: "11300", setting: setting{set: func(v string) error {
			o.Port = v
			return checkPort(v)
		}, show: shown(&o.Port)},
		help:   "port number or service name",
		manual: "A number from 0 to 65535, or a service name. 0 takes a free port, which -V shows.",
	}, {
		name: "socket-mode", value: "MODE", setting: setting{set: func(v string) error {
			mode, err := strconv.ParseUint(v, 8, 32)
			if err != nil || mode == 0 || mode > 0o777 {
				return usagef("invalid mode for --socket-mode: %s; give octal digits, as chmod has them, such as 0660", v)
			}
			o.SocketMode = fs.FileMode(mode)
			return nil
		}, show: func() string { return fmt.Sprintf("%04o", uint32(o.SocketMode)) }},
		help: "permissions of UNIX sockets (default: by the umask)",
		manual: `The permissions of the UNIX sockets of -l and --tls-listen, in octal: 0660 lets
the user and the group of -u connect. Nobody gets in before they are set.`,
	}, {
		letter: "u", name: "user", value: "USER", setting: text(&o.User, "empty user for -u; give a name or a user id"),
		help: "become this user and its groups",
		manual: `Once the sockets are open, become USER (a name or a numeric id), its primary
group and its supplementary groups. A member of a cluster opens the clients'
sockets as USER, whenever it leads: ports below 1024 are then only for a USER
who may open them.`,
	}, {
		letter: "z", name: "max-job-size", value: "SIZE", def: "65535", setting: setting{set: func(v string) error {
			n, err := parse(v, "max-job-size", quantity.Bytes)
			if n > maxSize {
				n = maxSize
				o.notice("maximum job size was set to %d", n)
			}
			o.MaxJobSize = uint32(n)
			return err
		}, show: amount(&o.MaxJobSize, quantity.Bytes)},
		help:   "largest job body, at most 1G",
		manual: "The largest body that put accepts. More than 1G is lowered to it.",
	}, {
		name: "loops", value: "N", setting: setting{set: func(v string) (err error) {
			if o.Loops, err = strconv.Atoi(v); err != nil || o.Loops < 1 || o.Loops > 255 {
				return usagef("invalid number of loops: %s; give a number from 1 to 255", v)
			}
			return nil
		}, show: shown(&o.Loops)},
		help: "event loops (default: by the number of CPUs)",
		manual: `Run N event loops, 1 to 255. The default is one for each CPU that the process
may use, but at most 8.`,
	}, {
		letter: "V", name: "verbose",
		setting: setting{
			set:  func(string) error { c.verbosity++; return nil },
			show: shown(&c.verbosity),
		},
		help: "say more: -V listening sockets, -VV details",
		manual: `Log more. Once: the process id, the listening sockets, start and stop. Twice:
whatever may help to find an error.`,
	}, {
		name: "log-level", value: "LEVEL", def: "warn", setting: setting{set: func(v string) error {
			level, ok := logLevels[v]
			if !ok {
				return usagef("unknown log level: %s; give debug, info, warn or error", v)
			}
			o.LogLevel = level
			return nil
		}, show: func() string { return strings.ToLower(o.LogLevel.String()) }},
		help:   "debug, info, warn or error, whatever -V says",
		manual: "debug, info, warn or error. It counts instead of -V.",
	}, {
		name: "log-format", value: "FORMAT", def: LogText,
		setting: oneOf(&o.LogFormat, "unknown log format: %s; give text or json", LogText, LogJSON),
		help:    "text or json",
		manual:  "text: key=value pairs. json: one object a line.",
	}, {
		name: "check-config", setting: setting{set: func(string) error { o.Action = CheckConfig; return nil }},
		help: "check options and the files that they name, show those that\nare not the default, and exit",
		manual: `Check all options and the files that they name as the start would, as the user
of -u, and exit: with status 0 if nothing is wrong, otherwise with a line for
each mistake and the status that the start would end with. It prints each option
that is not the default, its value as it was understood, and whether the command
line or the environment gives it. Nothing is opened or
changed, so that it can be asked beside the server that runs; whether addresses
are free and what is in the binlog is not looked at.`,
	}, {
		letter: "o", name: "output", value: "FORMAT", def: OutputText, setting: setting{
			set: oneOf(&o.Output, "unknown value for --output: %s; give text or json", OutputText, OutputJSON).set,
		},
		help:   "text or json: what --check-config prints",
		manual: "How --check-config prints what it finds: text, for people, or json, one object.",
	}, {
		letter: "v", name: "version", setting: setting{set: c.end(PrintVersion)},
		help:   "show version information",
		manual: "Print the version to standard output and exit.",
	}, {
		letter: "h", name: "usage", letterOnly: true, setting: setting{set: c.end(PrintUsage)},
		help:   "show this help",
		manual: "Print a summary of the options to standard error and exit.",
	}, {
		name: "help", setting: setting{set: c.end(PrintManual)},
		help:   "show the whole manual",
		manual: "Print this text to standard output and exit.",
	}}, {{
		letter: "b", name: "binlog", value: "DIR",
		setting: text(&o.Binlog, "empty directory for -b; give the path of one that exists"),
		help:    "keep jobs in this directory too (default: in memory only)",
		manual: `Keep every job and every change of one in DIR, which must exist, and start with
what is there. A command is acknowledged when its change was handed to the
system, so it outlives the process however that ends. See BINLOG.`,
	}, {
		letter: "f", name: "sync-interval", value: "TIME", def: "50ms", setting: setting{set: func(v string) error {
			ms, err := parse(v, "sync-interval", quantity.Milliseconds)
			o.Sync = binlog.SyncEvery(time.Duration(min(ms, uint64(maxSyncInterval/time.Millisecond))) * time.Millisecond)
			return err
		}, show: func() string {
			if o.Sync == binlog.SyncNever {
				return "" // --no-sync is shown
			}
			return quantity.Milliseconds.Format(uint64(time.Duration(o.Sync).Milliseconds()))
		}},
		help: "sync at most so long after a change;\n0: before the change is acknowledged",
		manual: `A power cut costs at most what was acknowledged in the last TIME. 0 syncs before
the acknowledgement: then a power cut costs nothing.`,
	}, {
		letter: "F", name: "no-sync",
		setting: setting{
			set:  func(string) error { o.Sync = binlog.SyncNever; return nil },
			show: func() string { return strconv.FormatBool(o.Sync == binlog.SyncNever) },
		},
		help: "never sync",
		manual: `Leave it to the system when changes reach the disk. Of -f and -F the later one
counts.`,
	}, {
		letter: "s", name: "segment-size", value: "SIZE", setting: setting{set: func(v string) error {
			n, err := parse(v, "segment-size", quantity.Bytes)
			o.SegmentSize = int64(min(n, maxSize))
			if n > maxSize {
				o.notice("binlog segment size was set to %d", o.SegmentSize)
			}
			return err
		}, show: amount(&o.SegmentSize, quantity.Bytes)},
		help: "size of each file of the binlog (default is 10M)",
		manual: `The size of the files in DIR, at most 1G. The default is 10M, and with --body-memory
a 32th of the disk, from 10M to 64M: a full disk gets room again by whole files.`,
	}, {
		name: "body-memory", value: "SIZE",
		setting: bound(&o.BodyMemory, "body-memory", leastBodyMemory, math.MaxInt64, quantity.Bytes),
		help:    "memory for bodies; the others are read from the disk\n(default: all are in memory)",
		manual: `Keep bodies of at most SIZE in memory, at least 64MB and five times -z. What does not
fit is on the disk only, from which it is read when a client needs it: the backlog may
be as long as the disk has room for. Each job takes some 70 bytes of memory still. Jobs
that come while memory is short leave it first, so that the head of a long queue stays
there. Needs -b. --max-memory is for the rest then: what is kept about jobs, and their
keys. For a moment bodies may take more, as they leave only when they are synced, which
is not waited for until -f says so. A job whose body cannot be read is buried when its
turn comes; when it is kicked that is tried again. While the disk gives nothing, what
needs it is answered INTERNAL_ERROR. Bodies that are on their way to clients cannot
leave: when many clients read slowly, bodies take more than SIZE, and puts are answered
OUT_OF_MEMORY until they have read. A job that is read back costs about twice the
processor time of another one, and four times where a tube has hundreds of priorities.
The start of one server keeps no body: it reads the files index.NUMBER in DIR, one for a
segment, and whole segments where these are missing. They may be deleted. A member of a
cluster copies bodies to files in DIR/bodies before they leave memory. Each member may
have another SIZE, or none. Before an earlier version, start the member without this
option: it takes a snapshot that the earlier version reads.`,
	}, {
		name: "skip-damaged", setting: turnOn(&o.SkipDamaged),
		help: "start with what is sound of a damaged binlog",
		manual: `Start although the binlog is damaged: take over what is sound and keep the old
files aside, in DIR/damaged. The same for a directory of beanstalkd's.`,
	}}, {{
		name: "node", value: "NAME=HOST:PORT", setting: setting{set: func(v string) (err error) {
			if o.Cluster.Node, err = member.ParseNode(v); err != nil {
				return usagef("invalid node for --node: %v; give NAME=HOST:PORT", err)
			}
			return nil
		}, show: shown(&o.Cluster.Node)},
		help: "be this member of a cluster, at this address for the others",
		manual: `Be the member NAME of a cluster, which the others reach at HOST:PORT. Needs -b,
whose directory is this member's alone. See CLUSTER.`,
	}, {
		name: "cluster", value: "NAME=HOST:PORT,...", setting: setting{set: func(v string) (err error) {
			if o.Cluster.Nodes, err = member.ParseNodes(v); err != nil {
				return usagef("invalid members for --cluster: %v; give NAME=HOST:PORT,NAME=HOST:PORT,...", err)
			}
			return nil
		}, show: list(&o.Cluster.Nodes)},
		help: "the members of the cluster, this one included",
		manual: `The members of the cluster, this one included: the same list, in the same order,
on all of them. It founds the cluster if the directories of all are empty. Later
the directory knows the members: the list may stay that of the founding, be that
of now, or be left out. Any other is refused.`,
	}, {
		name: "cluster-listen", value: "HOST:PORT", setting: hostPort(&o.Cluster.Listen, "cluster-listen"),
		help:   "listen there for the others (default: the address of --node)",
		manual: "Listen there for the other members, if that is not the address of --node.",
	}, {
		name: "cluster-cert", value: "FILE",
		setting: text(&o.Cluster.Cert, "empty file for --cluster-cert; give the path of a file in PEM"),
		help:    "certificate of this member, for connections between members",
		manual: `The certificate of this member, in PEM. By it, members prove to each other who
they are. This and the next two may be left out where all addresses are on
loopback.`,
	}, {
		name: "cluster-key", value: "FILE",
		setting: text(&o.Cluster.Key, "empty file for --cluster-key; give the path of a file in PEM"),
		help:    "its key",
		manual:  "The key of that certificate, in PEM.",
	}, {
		name: "cluster-ca", value: "FILE",
		setting: text(&o.Cluster.CA, "empty file for --cluster-ca; give the path of a file in PEM"),
		help:    "the authorities that sign those of members",
		manual: `The authorities by which the members' certificates are signed, in PEM. They, the
certificate and its key are read again when they change.`,
	}, {
		name: "cluster-allowed-name", several: true, value: "PATTERN",
		setting: patterns(&o.Cluster.MemberNames, "cluster-allowed-name"),
		help:    "names in certificates of members, several times if need be\n(default: the host in the member's address)",
		manual: `Take only those for members whose certificate has a name like PATTERN: a DNS
name, an IP address or a URI, or CN= and the common name; * stands for any
characters but a slash. May be given several times. Without it, a member's
certificate has to be for the host in its address, and who is no member yet
must be in --cluster or have been added by an administrator.`,
	}, {
		name: "cluster-admin-name", several: true, value: "PATTERN",
		setting: patterns(&o.Cluster.AdminNames, "cluster-admin-name"),
		help:    "names in certificates of those who may change the cluster\n(default: the members')",
		manual: `Let only those add and remove members, transfer the leadership and take
backups whose certificate has a name like PATTERN, as above. May be given
several times. Without it, these are the members. "trellis cluster status" is
for everybody with a certificate of --cluster-ca.`,
	}}, {{
		name: "auth-file", value: "FILE",
		setting: text(&o.AuthFile, "empty name for --auth-file; give the path of a file"),
		help:    "clients that are served, and what they may do\n(default: everybody everything)",
		manual: `Serve only clients that FILE names, and let them do only what it says. See
ACCESS. The file is read as the user of -u.`,
	}, {
		name: "audit-file", value: "FILE",
		setting: text(&o.AuditFile, "empty name for --audit-file; give the path of a file"),
		help:    "append to it who does what (default: to the log only)",
		manual: `Append the audit trail to FILE, as a JSON object a line, beside the log: who was
let in and who was not, who has deleted, moved or stopped what, what was denied.
See ACCESS. FILE is made as the user of -u, and again when it was moved away.`,
	}, {
		name: "proxy-from", several: true, value: "CIDR", setting: setting{set: func(v string) error {
			p, err := parsePrefix(v)
			if err != nil {
				return usagef("invalid addresses for --proxy-from: %s; give an IP address, or a prefix such as 10.0.0.0/8", v)
			}
			o.ProxyFrom = append(o.ProxyFrom, p)
			return nil
		}, show: list(&o.ProxyFrom)},
		help: "proxies that may connect where ADDR of -l or --tls-listen\nends in \",proxy\"; may be given several times",
		manual: `Where an ADDR of -l or --tls-listen ends in ",proxy", each connection has to begin
with a header of the PROXY protocol, version 1 or 2, before TLS. It names the
client that the log, the console and list-connections show. Over TCP, only
addresses in CIDR may connect there; others are disconnected at once. May be given
several times. See PROXIES.`,
	}, {
		name: "tls-listen", several: true, value: "ADDR",
		setting: appendTo(&o.TLS.Listen,
			"empty address for --tls-listen; give a host, an IP address or unix:PATH"),
		help: "listen for clients that speak TLS (default port is 11400);\n" +
			"without -l and -p there is no other listener then",
		manual: `Listen on ADDR for clients that speak TLS. May be given several times. ADDR is
written as for -l; the port is 11400 if it names none. Where --tls-listen is
given, and neither -l nor -p, there is no listener without TLS. See TLS.`,
	}, {
		name: "tls-cert", value: "FILE", setting: text(&o.TLS.Cert, "empty path for --tls-cert; give that of a PEM file"),
		help: "the server's certificate and those behind it, PEM",
		manual: `The server's certificate, followed by those that lead to its authority; PEM. It
is read as the user of -u.`,
	}, {
		name: "tls-key", value: "FILE", setting: text(&o.TLS.Key, "empty path for --tls-key; give that of a PEM file"),
		help:   "its key, PEM",
		manual: "The key of that certificate; PEM. It is read as the user of -u.",
	}, {
		name: "tls-client-ca", value: "FILE",
		setting: text(&o.TLS.ClientCA, "empty path for --tls-client-ca; give that of a PEM file"),
		help:    "ask clients for certificates of these authorities",
		manual: `Ask clients for a certificate that one of the authorities in FILE has issued for
clients; PEM.`,
	}, {
		name: "tls-client-auth", value: "WHO", def: "require", setting: setting{set: func(v string) error {
			if v != "require" && v != "optional" {
				return usagef("unknown value for --tls-client-auth: %s; give require or optional", v)
			}
			o.TLS.Optional = v == "optional"
			return nil
		}, show: func() string {
			if o.TLS.Optional {
				return "optional"
			}
			return "require"
		}},
		help:   "require or optional",
		manual: "require: refuse clients without a certificate. optional: serve them too.",
	}, {
		name: "grace", value: "TIME", def: "10s", setting: wait(&o.Grace, "grace", maxTimeout),
		help: "how long a client may keep jobs whose certificate is not\naccepted any more",
		manual: `Clients' certificates are verified again when the files are loaded again, and
once a minute. A connection whose client's is not accepted any more ends as soon
as its client has no job, no part of a command has come and all replies were
taken, and TIME later in any case.`,
	}, {
		name: "tls-min", value: "VERSION", def: "1.2", setting: setting{set: func(v string) error {
			version, ok := tlsVersions[v]
			if !ok {
				return usagef("unknown version for --tls-min: %s; give 1.2 or 1.3", v)
			}
			o.TLS.MinVersion = version
			return nil
		}, show: func() string { return strings.TrimPrefix(tls.VersionName(o.TLS.MinVersion), "TLS ") }},
		help:   "1.2 or 1.3",
		manual: "The oldest version of TLS that is spoken: 1.2 or 1.3.",
	}, {
		name: "stop-delay", value: "TIME", setting: wait(&o.StopDelay, "stop-delay", maxTimeout),
		help: "how long to serve on after the signal to stop (default: not)",
		manual: `Go on for TIME after SIGTERM or SIGINT, as long as a balancer needs to notice that
/readyz and /leaderz say stopping. New clients are served meanwhile. The default is 0.`,
	}}, {{
		name: "http", value: "HOST:PORT", setting: hostPort(&o.HTTP, "http"),
		help: "serve metrics, health and the console there\n(default: nowhere)",
		manual: `Serve HTTP there, without authentication unless --web-config-file is given. See
MONITORING and CONSOLE.`,
	}, {
		name: "web-config-file", value: "FILE",
		setting: text(&o.WebConfig, "empty name for --web-config-file; give the path of a file"),
		help:    "TLS and passwords for HTTP",
		manual: `Protect HTTP by TLS, and by names and passwords, as FILE says. Its format is
that of all of Prometheus's exporters. /healthz, /readyz and /leaderz need no
name and password. The file is read for each request. What it protects by may change,
and not vanish: an empty file, or one without the passwords, certificates or TLS
that there were, is a mistake, which is logged and leaves all as it was.`,
	}, {
		name: "console", value: "MODE",
		setting: oneOf(&o.Console, "unknown value for --console: %s; give off, read or write",
			ConsoleOff, ConsoleRead, ConsoleWrite),
		help: "off, read or write: the console for the browser there (default\nis read where that shows nobody more than " +
			"can be seen anyway)",
		manual: `off: no console. read: the console shows tubes, jobs and clients. write: it also
lets people change and delete them; that is refused unless --web-config-file
asks them who they are, on loopback too. The default is read if
--web-config-file does so, or if HTTP is on loopback and clients may connect by
TCP without authentication, as everybody on the machine could then read the jobs
anyway; otherwise off. See CONSOLE.`,
	}, {
		name: "console-writers", value: "NAME,...", setting: setting{set: func(v string) error {
			// Names of certificates have commas in them.
			names, err := csv.NewReader(strings.NewReader(v)).Read()
			if err != nil || slices.Contains(names, "") {
				return usagef("invalid names for --console-writers: %s; give NAME,NAME,..., those with commas in double quotes", v)
			}
			o.Writers = append(o.Writers, names...)
			return nil
		}, show: list(&o.Writers)},
		help: "who may change and delete jobs in the console\n(default: everybody who has a name but prometheus)",
		manual: `With --console=write: only these may change and delete jobs. A name is one of
basic_auth_users or, where only certificates are asked for, the subject of one,
such as "CN=ann,O=Example", in double quotes if it has commas. May be given several
times. The default is everybody but prometheus, which reads metrics.`,
	}, {
		name: "http-host", several: true, value: "NAME", setting: setting{set: func(v string) error {
			if v == "" || strings.ContainsAny(v, "/ ") {
				return usagef("invalid name for --http-host: %q; give a host's name, as browsers have it in their address bar", v)
			}
			o.HTTPHosts = append(o.HTTPHosts, v)
			return nil
		}, show: list(&o.HTTPHosts)},
		help: "a name by which HTTP may be asked",
		manual: `A name by which browsers may open the console, and Prometheus may ask for metrics,
besides those of loopback, the host of --http, this machine's own name and the
address that was connected to. May be given several times. It is for proxies,
and for names in DNS. Health (see MONITORING) can be asked under any name.`,
	}, {
		name: "pprof", setting: turnOn(&o.Pprof),
		help:   "serve profiles there too",
		manual: "Serve profiles of the Go runtime under /debug/pprof/ there too.",
	}, {
		name: "metrics-tubes", value: "N", def: strconv.Itoa(DefaultMetricsTubes),
		setting: setting{set: func(v string) (err error) {
			if o.MetricsTubes, err = strconv.Atoi(v); err != nil || o.MetricsTubes < 1 {
				return usagef("invalid number of tubes: %s; give a number from 1 on", v)
			}
			return nil
		}, show: shown(&o.MetricsTubes)},
		help:   "tubes with metrics of their own",
		manual: "Show metrics of the N tubes with the most jobs, and of the others their sums.",
	}, {
		name: "metrics-legacy", setting: turnOn(&o.MetricsLegacy),
		help: "show the names of messagebird/beanstalkd_exporter too",
		manual: `Show the names of messagebird/beanstalkd_exporter too: the keys of stats as
current_jobs_ready, cmd_put, ..., those of stats-tube as
tube_current_jobs_ready{tube}, ... Keys that are no numbers are left out, and
the label instance is Prometheus's own.`,
	}}, {{
		// Memory for jobs is taken in pieces of megabytes.
		name: "max-memory", value: "SIZE", setting: setting{set: func(v string) error {
			if v == "auto" {
				o.MaxMemory = AutoMemory
				return nil
			}
			return bound(&o.MaxMemory, "max-memory", 1<<20, math.MaxInt64, quantity.Bytes).set(v)
		}, show: func() string {
			if o.MaxMemory == AutoMemory {
				return "auto"
			}
			return quantity.Bytes.Format(uint64(o.MaxMemory))
		}},
		help: "memory for jobs; beyond it put fails (default: no limit);\nauto: 80 % of what the process may take",
		manual: `The memory that jobs may take, with what is kept about each of them: at
least 1M. A put beyond it is answered OUT_OF_MEMORY and changes nothing;
everything else goes on, and puts succeed again as jobs are deleted. A body counts
as it comes, in steps of 4K. Jobs found in the binlog are kept in any
case. The default is no limit. Connections, tubes, queues and buffers come on
top; for them, GOMEMLIMIT is set to the sum of SIZE, 256 MiB (768 MiB with
--node), 1.5 KiB for each connection and 1 KiB for each tube that there may be,
unless the environment sets it. auto is 80 % of the machine's memory, or of the
limit of the process's control group (MemoryMax= of a unit, --memory of a
container) if that is less. With --body-memory no body counts here, and auto is less
by what bodies may take.`,
	}, {
		name: "max-connections", value: "N",
		setting: bound(&o.MaxConnections, "max-connections", 1, math.MaxInt32, quantity.Number),
		help:    "connections (default: by the limit on descriptors)",
		manual: `One connection more is answered OUT_OF_MEMORY and closed; the others do not
notice. The default is the limit on descriptors (which is raised to the hard
limit), less 128 or a quarter, whichever is less.`,
	}, {
		name: "keepalive", value: "TIME", def: "5m", setting: wait(&o.KeepAlive, "keepalive", maxKeepAlive),
		help: "ask after so long a silence whether a client is there",
		manual: `Over TCP, the system asks the other end whether it is there when nothing has come
for TIME, and three times within half of TIME again. Then it ends the connection,
as when a client acknowledges nothing for one and a half times TIME, or, on Linux,
takes nothing. So the jobs of a worker that has lost its power or its network are
ready at once, and it is handed no other. 9h is the most. 0 leaves it to the
system, which asks after two hours; see tcp(7).`,
	}, {
		name: "idle-timeout", value: "TIME", setting: wait(&o.IdleTimeout, "idle-timeout", maxTimeout),
		help: "close clients that do nothing for so long (default: never)",
		manual: `Close connections on which the client has neither sent nor taken a byte for
TIME, and which neither wait for a job nor hold one. A command or body that
never gets complete does not keep a connection. The default is 0: never.`,
	}, {
		name: "body-timeout", value: "TIME", setting: wait(&o.BodyTimeout, "body-timeout", maxTimeout),
		help: "close clients of whose body nothing comes for so long\n(default: never)",
		manual: `Close connections on which nothing has come for TIME of a body that a put has
announced, whether or not they hold jobs. The default is 0: never.`,
	}, {
		name: "max-connection-age", value: "TIME", setting: wait(&o.MaxConnectionAge, "max-connection-age", maxTimeout),
		help: "close connections that are older, in order (default: never)",
		manual: `Close connections that are TIME old, or up to a tenth less, so that clients
spread over a balancer's servers again. A connection stays until nothing of a
command has come, all replies were taken, and the client has reserved no job:
one that always has a job is never closed. A reserve that waits ends with the
connection. The default is 0: never.`,
	}, {
		// With less there would be no room for back-pressure.
		name: "max-output", value: "SIZE",
		setting: bound(&o.MaxOutput, "max-output", 1<<20, math.MaxInt64, quantity.Bytes),
		help:    "close clients that are owed more replies (default is 64M)",
		manual: `Close connections whose clients are owed more than SIZE of replies: at
least 1M. A client that does not read its replies is no longer read from long
before, so that only a reply with a body of about that size gets there. The
default is 64M, or twice the size of -z if that is more.`,
	}, {
		name: "max-output-total", value: "SIZE",
		setting: bound(&o.MaxOutputTotal, "max-output-total", 1<<20, math.MaxInt64, quantity.Bytes),
		help:    "close who is owed most when all clients together are\nowed more replies (default: no limit)",
		manual: `When all clients together are owed more than SIZE of replies that they have
not taken, close the connection that is owed most: at least 1M. Nobody else
waits or notices. A client whose replies wait for the disk is not closed. The
default is no limit.`,
	}, {
		name: "gateway-memory", value: "SIZE",
		setting: bound(&o.GatewayMemory, "gateway-memory", 1<<20, math.MaxInt64, quantity.Bytes),
		help:    "what clients of a standby may have under way together\n(default is 256M)",
		manual: `How much may be under way between the clients of standbys and the leader, at each
of them, beside 16 KiB each way for each client: at least 1M. As long as there
is room, a client that keeps up may have 128 KiB of commands and 256 KiB of replies.
The default is 256M.`,
	}, {
		name: "max-tubes", value: "N", def: strconv.Itoa(DefaultMaxTubes),
		setting: bound(&o.MaxTubes, "max-tubes", 0, math.MaxInt32, quantity.Number),
		help:    "tubes; 0: no limit",
		manual: `The number of tubes. use and watch of one more are answered OUT_OF_MEMORY. 0
means no limit.`,
	}, {
		// A reserve keeps the client's loop and the tubes' shards for up to 0.3 us a tube: 2000 take less than 1 ms.
		name: "max-watched", value: "N", def: "2000",
		setting: bound(&o.MaxWatched, "max-watched", 0, math.MaxInt32, quantity.Number),
		help:    "tubes that one client watches; 0: no limit",
		manual: `The number of tubes that one client may watch. watch of one more is answered
OUT_OF_MEMORY. A reserve looks at all watched tubes in one moment, in which
other clients wait. 0 means no limit.`,
	}, {
		name: "max-keys", value: "N", def: "1000000",
		setting: bound(&o.MaxKeys, "max-keys", 0, math.MaxInt32, quantity.Number),
		help:    "keys of jobs, by idp, con and fair; 0: no limit",
		manual: `The number of keys that jobs have by the tags idp, con and fair of put, each
counted in each tube, and those that deleted jobs still keep. A put with one
more is answered OUT_OF_MEMORY. 0 means no limit.`,
	}, {
		name: "max-key-ttl", value: "TIME", def: "168h",
		setting: bound(&o.MaxKeyTTL, "max-key-ttl", 0, math.MaxUint32, quantity.Seconds),
		help:    "how long a deleted job may keep its key;\n0: no limit",
		manual: `For how long at most a deleted job keeps the key that idp gave it, whatever the
put asked for. The default is 168h, seven days. 0 means no limit.`,
	}, {
		name: "no-extensions", setting: turnOn(&o.NoExtensions),
		help: "only the commands that beanstalkd has",
		manual: `Know only the commands that beanstalkd has: all others are answered
UNKNOWN_COMMAND or BAD_FORMAT, as it does. What set-tube and set-dlq have set and
keys of jobs sleep, and stay on record.`,
	}}, {{
		letter: "c", name: "obsolete-c", letterOnly: true, setting: setting{set: o.obsolete("c")},
		help:   "obsolete: accepted and ignored",
		manual: "Obsolete in beanstalkd too. It is ignored, with a message.",
	}, {
		letter: "n", name: "obsolete-n", letterOnly: true, setting: setting{set: o.obsolete("n")},
		help:   "obsolete: accepted and ignored",
		manual: "The same.",
	}}}
}

// text sets a string that may not be empty.
func text(to *string, empty string) setting {
	return setting{func(v string) error {
		if *to = v; v == "" {
			return usagef("%s", empty)
		}
		return nil
	}, shown(to)}
}

// appendTo sets one of several strings, which may not be empty.
func appendTo(to *[]string, empty string) setting {
	return setting{func(v string) error {
		if v == "" {
			return usagef("%s", empty)
		}
		*to = append(*to, v)
		return nil
	}, list(to)}
}

// patterns appends to patterns of names in certificates.
func patterns(to *[]string, name string) setting {
	s := appendTo(to, "empty pattern for --"+name+"; give a name that certificates have")
	add := s.set
	s.set = func(v string) error {
		if wire.CheckPattern(v) != nil {
			return usagef("invalid pattern for --%s: %s; give a name, in which * stands for any characters", name, v)
		}
		return add(v)
	}
	return s
}

func oneOf(to *string, unknown string, values ...string) setting {
	return setting{func(v string) error {
		if !slices.Contains(values, v) {
			return usagef(unknown, v)
		}
		*to = v
		return nil
	}, shown(to)}
}

// parsePrefix reads an IP address, or a prefix of addresses.
func parsePrefix(v string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(v); err == nil {
		return a.Prefix(a.BitLen())
	}
	return netip.ParsePrefix(v)
}

func turnOn(to *bool) setting {
	return setting{func(string) error { *to = true; return nil }, shown(to)}
}

func hostPort(to *string, name string) setting {
	return setting{func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil {
			return usagef("invalid address for --%s: %s; give HOST:PORT or :PORT", name, v)
		}
		*to = v
		return nil
	}, shown(to)}
}
