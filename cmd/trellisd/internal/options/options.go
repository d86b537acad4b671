package options

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"trellis/binlog"
	"trellis/binlog/replica/member"
	"trellis/cmd/internal/quantity"
)

const (
	// DefaultTLSPort is the port of a --tls-listen that names none.
	DefaultTLSPort = "11400"

	// AutoMemory stands for a MaxMemory by what the process may take.
	AutoMemory = -1

	// DefaultMetricsTubes is how many tubes have metrics of their own unless
	// --metrics-tubes says otherwise.
	DefaultMetricsTubes = 1000

	// DefaultMaxTubes is how many tubes there may be unless --max-tubes says
	// otherwise.
	DefaultMaxTubes = 1_000_000
)

// What greater values of flags are lowered to.
const (
	maxSize           = 1 << 30 // -z and -s, in bytes
	maxSyncInterval   = time.Hour
	maxTimeout        = 100 * 365 * 24 * time.Hour
	maxKeepAlive      = 9 * time.Hour // systems take a little more
	maxClusterJobSize = 16 << 20      // -z of a member of a cluster
)

// Action is what the command line asks for.
type Action uint8

// The actions. The zero value is the usual one.
const (
	Serve        Action = iota // run the server
	PrintVersion               // -v: print the version and exit
	PrintUsage                 // -h: print the summary of the flags and exit
	PrintManual                // --help: print the whole description and exit
	CheckConfig                // --check-config: tell whether the server could start and exit
)

// The values of --log-format.
const (
	LogText = "text"
	LogJSON = "json"
)

// The values of --output.
const (
	OutputText = "text"
	OutputJSON = "json"
)

// The values of --console.
const (
	ConsoleOff   = "off"
	ConsoleRead  = "read"
	ConsoleWrite = "write"
)

// Options is a command line that has been read.
type Options struct {
	Action Action
	Output string // of CheckConfig: OutputText or OutputJSON

	Listen     []string // every -l, in order; empty: the default address, unless TLS.Listen has any and there is no -p
	Port       string   // number or service name
	PortGiven  bool     // -p was there
	User       string   // empty: stay who we are
	MaxJobSize uint32   // bytes, at most 1 GiB; 0 allows empty bodies only
	Loops      int      // event loops; 0: the reactor's default
	LogFormat  string   // LogText or LogJSON
	LogLevel   slog.Level

	SocketMode fs.FileMode // of UNIX sockets; 0: as the umask has it

	Binlog      string // directory; empty: jobs are in memory only
	Sync        binlog.SyncPolicy
	SegmentSize int64 // bytes, as given; 0: the binlog's default
	BodyMemory  int64 // bytes that bodies may take, the others are on the disk only; 0: all are in memory
	SkipDamaged bool  // start with what is sound of a damaged binlog

	ProxyFrom []netip.Prefix // every --proxy-from, in order
	Grace     time.Duration  // for clients whose certificate is not accepted any more
	StopDelay time.Duration  // between the signal to stop and stopping

	AuthFile string // who may do what; empty: everybody everything

	AuditFile string // who does what; empty: only in the log
	TLS       TLS

	HTTP          string   // HOST:PORT; empty: no HTTP
	WebConfig     string   // the file that says how HTTP is protected; empty: not at all
	Console       string   // ConsoleOff, ConsoleRead or ConsoleWrite; empty: as the protection of HTTP allows
	HTTPHosts     []string // every --http-host, in order
	Writers       []string // the names of every --console-writers; nil: it was not given
	Pprof         bool     // serve profiles there
	MetricsTubes  int      // the most tubes whose metrics are shown one by one
	MetricsLegacy bool     // show the names of an older exporter too

	MaxMemory        int64         // bytes that jobs may take; 0: no limit; AutoMemory
	MaxConnections   int           // 0: the reactor's default
	KeepAlive        time.Duration // 0: the system's timings
	IdleTimeout      time.Duration // 0: clients may be idle for ever
	MaxConnectionAge time.Duration // 0: connections may have any age
	BodyTimeout      time.Duration // 0: nothing of a body may come for ever
	MaxOutput        int64         // bytes of replies that a client may be owed; 0: the reactor's default
	MaxOutputTotal   int64         // bytes of replies that all clients together may be owed; 0: no limit
	GatewayMemory    int64         // bytes that clients of a standby may have under way together; 0: the reactor's default
	MaxTubes         int           // tubes that there may be; 0: no limit
	MaxWatched       int           // tubes that one client may watch; 0: no limit
	MaxKeys          int           // keys of jobs that there may be; 0: no limit
	MaxKeyTTL        uint32        // seconds for which a deleted job may keep its key; 0: no limit

	NoExtensions bool // clients may use no command that beanstalkd does not have

	Cluster Cluster

	// Notices are lines for the user that do not keep the server from starting:
	// obsolete flags, values that were lowered.
	Notices []string

	given []givenFlag // in the order of the table
}

// TLS is how clients are served that speak it.
type TLS struct {
	Listen     []string // every --tls-listen, in order
	Cert, Key  string   // files
	ClientCA   string   // file; empty: clients are not asked for certificates
	Optional   bool     // clients without a certificate are served too
	MinVersion uint16   // as crypto/tls numbers it
}

// Cluster is what a member of a cluster is told. The zero Cluster is that of a server
// alone.
type Cluster struct {
	Node   member.Node   // this node; its name is empty on a server alone
	Nodes  []member.Node // all of --cluster; nil if it was not given
	Listen string        // HOST:PORT for the other members; empty: the node's own address

	Cert, Key, CA string // files in PEM; all are empty where all members are on loopback

	MemberNames, AdminNames []string // patterns of names in certificates; see wire.Credentials
}

// Member reports whether the server is a member of a cluster.
func (c *Cluster) Member() bool { return c.Node.Name != "" }

// ListenAddr is the address for connections of the other members.
func (c *Cluster) ListenAddr() string {
	if c.Listen != "" {
		return c.Listen
	}
	return c.Node.Addr
}

// UsageError is a mistake in the command line. Its text says what is wrong and
// what to do about it, in one line.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usagef(format string, args ...any) *UsageError {
	return &UsageError{text: fmt.Sprintf(format, args...)}
}

// errDone is returned by flags that end the reading of the command line.
var errDone = errors.New("nothing more to read")

// Parse reads args, the command line without the program's name, and of environment, entries as NAME=VALUE, what
// the command line does not give. The error is a *UsageError. Also when there is one, the Options hold what was read
// before it.
func Parse(args, environment []string) (*Options, error) {
	c := &commandLine{
		Options:   new(Options),
		FlagSet:   pflag.NewFlagSet("trellisd", pflag.ContinueOnError),
		variables: make(map[string]string),
	}
	c.SetInterspersed(false) // a stray argument is the first mistake, whatever stands behind it
	c.Usage = func() {}
	flags := slices.Concat(table(c)...)
	for _, f := range flags {
		if f.def != "" {
			if err := f.set(f.def); err != nil {
				panic(err) // a default that the flag does not take
			}
		}
		c.declare(f)
	}
	defaults := make(map[string]string)
	for _, f := range flags {
		if f.show != nil {
			defaults[f.name] = f.show()
		}
	}
	onLine := make(map[string]bool)
	_ = c.ParseAll(args, func(f *pflag.Flag, _ string) error { onLine[f.Name] = true; return nil }) // mistakes come below
	wrong := c.readEnvironment(environment, flags, onLine)
	err := c.Parse(args)
	if err == nil && c.NArg() > 0 {
		err = usagef("unknown argument: %s; trellisd takes flags only, see trellisd -h", c.Arg(0))
	}
	if err == nil {
		err = wrong
	}
	levelCounts := c.Changed("log-level") && !(c.variables["log-level"] != "" && onLine["verbose"])
	for _, f := range flags {
		if f.show != nil && c.Changed(f.name) && (f.name != "log-level" || levelCounts) {
			from := cmp.Or(c.variables[f.name], CommandLine)
			c.given = append(c.given, givenFlag{f.name, from, defaults[f.name], f.show})
		}
	}
	c.PortGiven = c.Changed("port")
	if !levelCounts {
		c.LogLevel = []slog.Level{slog.LevelWarn, slog.LevelInfo, slog.LevelDebug}[min(c.verbosity, 2)]
	}
	for _, check := range []func() error{
		c.checkOutput, c.checkHTTP, c.checkCluster, c.checkBodies, c.checkTLS, c.checkProxies,
	} {
		if err == nil {
			err = check()
		}
	}
	if err != nil && !errors.Is(err, errDone) {
		return c.Options, usageError(err)
	}
	return c.Options, nil
}

// commandLine is one that is being read.
type commandLine struct {
	*Options
	*pflag.FlagSet
	verbosity int // how often -V was given

	variables map[string]string // those of the environment that give flags, by the flags' names
}

func (c *commandLine) declare(f flag) {
	if f.value != "" {
		c.VarP(setter(f.set), f.name, f.letter, "")
		return
	}
	c.VarPF(setter(func(v string) error {
		if v != given {
			return usagef("flag takes no value: --%s; leave out %q", f.name, "="+v)
		}
		return f.set(v)
	}), f.name, f.letter, "").NoOptDefVal = given
}

// end returns the setter of a flag that ends the reading.
func (c *commandLine) end(a Action) func(string) error {
	return func(string) error {
		c.Action = a
		return errDone
	}
}

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

func (opt *Options) notice(format string, args ...any) {
	opt.Notices = append(opt.Notices, fmt.Sprintf(format, args...))
}

func (opt *Options) obsolete(letter string) func(string) error {
	return func(string) error {
		opt.notice("-%s flag was removed. binlog is always compacted.", letter)
		return nil
	}
}

// given is what a flag without a value is set to when it occurs.
const given = "\x00given"

// setter makes a function a flag's value.
type setter func(string) error

func (f setter) Set(v string) error { return f(v) }
func (f setter) String() string     { return "" }
func (f setter) Type() string       { return "" }

// usageError turns what the flag package returns into our own words, which are
// beanstalkd's where it has some.
func usageError(err error) *UsageError {
	var (
		mine    *UsageError
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		syntax  *pflag.InvalidSyntaxError
	)
	switch {
	case errors.As(err, &mine):
		return mine
	case errors.As(err, &unknown):
		return usagef("unknown flag: %s; see trellisd -h", dashed(unknown.GetSpecifiedName()))
	case errors.As(err, &missing):
		return usagef("flag requires an argument: %s; see trellisd -h", dashed(missing.GetSpecifiedName()))
	case errors.As(err, &syntax):
		return usagef("unknown flag: %s; see trellisd -h", syntax.GetSpecifiedFlag())
	default:
		return usagef("%v; see trellisd -h", err)
	}
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// checkPort accepts a port number and anything that may be a service's name;
// names are looked up when the port is opened.
func checkPort(v string) error {
	switch n, err := strconv.ParseUint(v, 10, 64); {
	case v == "":
		return usagef("empty port for -p; give a number from 0 to 65535 or a service name")
	case errors.Is(err, strconv.ErrRange) || err == nil && n > 65535:
		return usagef("invalid port: %s; give a number from 0 to 65535 or a service name", v)
	default:
		return nil
	}
}

// parse reads a number of units. Plain numbers are read as beanstalkd does: leading blanks and a sign are allowed; what
// does not fit, and what is negative, comes out as the greatest number.
func parse(v, name string, unit quantity.Unit) (uint64, error) {
	const most = 1<<64 - 1
	digits := strings.TrimLeft(v, " \t\n\v\f\r")
	negative := strings.HasPrefix(digits, "-")
	if negative || strings.HasPrefix(digits, "+") {
		digits = digits[1:]
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		n, err := unit.Parse(v)
		if err != nil {
			return 0, usagef("invalid value for --%s: %s; give a number %v", name, v, unit)
		}
		return n, nil
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || negative && n > 0 {
		return most, nil
	}
	return n, nil
}

// wait sets a time of which whole seconds count; 0 is for ever. A longer one than most is lowered to it.
func wait(to *time.Duration, name string, most time.Duration) setting {
	var n int64
	s := bound(&n, name, 0, int64(most/time.Second), quantity.Seconds)
	return setting{func(v string) error {
		err := s.set(v)
		*to = time.Duration(n) * time.Second
		return err
	}, s.show}
}

// bound sets a number of at least so many units. A greater number than most is lowered to it.
func bound[T int | int64 | uint32](to *T, name string, least, most int64, unit quantity.Unit) setting {
	return setting{func(v string) error {
		n, err := unit.Parse(strings.TrimPrefix(v, "+"))
		if err != nil && v != "" && strings.Trim(v, "0123456789") == "" { // more than 64 bits
			n, err = uint64(most), nil
		}
		if err != nil || n < uint64(least) {
			return usagef("invalid value for --%s: %s; give a number of at least %d, %v", name, v, least, unit)
		}
		*to = T(min(n, uint64(most)))
		return nil
	}, amount(to, unit)}
}
