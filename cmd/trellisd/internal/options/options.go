package options

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"trellis/binlog"
)

const (
	// DefaultPort is the port that beanstalkd clients try first.
	DefaultPort = "11300"

	// DefaultTLSPort is the port of a --tls-listen that names none.
	DefaultTLSPort = "11400"

	// DefaultMaxJobSize is the largest body, in bytes, that a put may carry unless
	// -z says otherwise.
	DefaultMaxJobSize = 65535

	// MaxJobSizeLimit is the largest value of -z, in bytes. Greater values are
	// lowered to it with a notice.
	MaxJobSizeLimit = 1 << 30

	// DefaultMetricsTubes is how many tubes have metrics of their own unless
	// --metrics-tubes says otherwise.
	DefaultMetricsTubes = 1000

	// MaxLoops is the largest value of --loops.
	MaxLoops = 255

	// DefaultSyncInterval is how long what was acknowledged may stay unsynced.
	DefaultSyncInterval = 50 * time.Millisecond

	// MaxSyncInterval is the largest value of -f. Greater ones are lowered to it.
	MaxSyncInterval = time.Hour

	// DefaultMaxTubes is how many tubes there may be unless --max-tubes says
	// otherwise.
	DefaultMaxTubes = 1_000_000

	// DefaultMaxWatched is how many tubes a client may watch unless --max-watched
	// says otherwise. A reserve looks at all of them in one moment, which keeps the
	// client's loop and the tubes' shards for up to 0.3 microseconds a tube: so many
	// take less than a millisecond.
	DefaultMaxWatched = 2000

	// DefaultMaxKeys is how many keys jobs may have unless --max-keys says otherwise.
	DefaultMaxKeys = 1_000_000

	// MinMaxMemory is the smallest value of --max-memory in bytes. Memory for jobs
	// is taken in pieces of megabytes.
	MinMaxMemory = 1 << 20

	// MinMaxOutput is the smallest value of --max-output in bytes: below it, there
	// would be no room for back-pressure.
	MinMaxOutput = 1 << 20

	// MaxIdleTimeout is the largest value of --idle-timeout. Greater ones are
	// lowered to it.
	MaxIdleTimeout = 100 * 365 * 24 * time.Hour

	// MaxSegmentSize is the largest value of -s in bytes. Greater ones are lowered
	// to it with a notice.
	MaxSegmentSize = 1 << 30
)

// Action is what the command line asks for.
type Action uint8

// The actions. The zero value is the usual one.
const (
	Serve        Action = iota // run the server
	PrintVersion               // -v: print the version and exit
	PrintUsage                 // -h: print the summary of the flags and exit
	PrintManual                // --help: print the whole description and exit
)

// The values of --log-format.
const (
	LogText = "text"
	LogJSON = "json"
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

	Listen     []string // every -l, in order; empty: the default address, unless TLS.Listen has any and there is no -p
	Port       string   // number or service name
	PortGiven  bool     // -p was there
	User       string   // empty: stay who we are
	MaxJobSize uint32   // bytes, at most MaxJobSizeLimit; 0 allows empty bodies only
	Loops      int      // event loops; 0: the reactor's default
	LogFormat  string   // LogText or LogJSON
	LogLevel   slog.Level

	Binlog      string // directory; empty: jobs are in memory only
	Sync        binlog.SyncPolicy
	SegmentSize int64 // bytes, as given; 0: the binlog's default
	SkipDamaged bool  // start with what is sound of a damaged binlog

	AuthFile string // who may do what; empty: everybody everything
	TLS      TLS

	HTTP          string   // HOST:PORT; empty: no HTTP
	WebConfig     string   // the file that says how HTTP is protected; empty: not at all
	Console       string   // ConsoleOff, ConsoleRead or ConsoleWrite; empty: as the protection of HTTP allows
	HTTPHosts     []string // every --http-host, in order
	Pprof         bool     // serve profiles there
	MetricsTubes  int      // the most tubes whose metrics are shown one by one
	MetricsLegacy bool     // show the names of an older exporter too

	MaxMemory      int64         // bytes that jobs may take; 0: no limit
	MaxConnections int           // 0: the reactor's default
	IdleTimeout    time.Duration // 0: clients may be idle for ever
	MaxOutput      int64         // bytes of replies that a client may be owed; 0: the reactor's default
	MaxTubes       int           // tubes that there may be; 0: no limit
	MaxWatched     int           // tubes that one client may watch; 0: no limit
	MaxKeys        int           // keys of jobs that there may be; 0: no limit

	NoExtensions bool // clients may use no command that beanstalkd does not have

	Cluster Cluster

	// Notices are lines for the user that do not keep the server from starting:
	// obsolete flags, values that were lowered.
	Notices []string
}

// TLS is how clients are served that speak it.
type TLS struct {
	Listen     []string // every --tls-listen, in order
	Cert, Key  string   // files
	ClientCA   string   // file; empty: clients are not asked for certificates
	Optional   bool     // clients without a certificate are served too
	MinVersion uint16   // as crypto/tls numbers it

	clientAuth bool // --tls-client-auth was there
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

// Parse reads args, the command line without the program's name. The error is a
// *UsageError. Also when there is one, the Options hold what was read before it.
func Parse(args []string) (*Options, error) {
	opt := &Options{
		Port:       DefaultPort,
		MaxJobSize: DefaultMaxJobSize,
		LogFormat:  LogText,
		LogLevel:   slog.LevelWarn,

		Sync:         binlog.SyncEvery(DefaultSyncInterval),
		MetricsTubes: DefaultMetricsTubes,

		MaxTubes:   DefaultMaxTubes,
		MaxWatched: DefaultMaxWatched,
		MaxKeys:    DefaultMaxKeys,

		TLS: TLS{MinVersion: tls.VersionTLS12},
	}
	verbosity, levelGiven := 0, false
	var flags givenFlags

	fs := pflag.NewFlagSet("trellisd", pflag.ContinueOnError)
	fs.SetInterspersed(false) // a stray argument is the first mistake, whatever stands behind it
	fs.Usage = func() {}

	value := func(long, short string, set func(string) error) {
		fs.VarP(setter(set), long, short, "")
	}
	word := func(long, short string, set func() error) {
		fs.VarPF(setter(func(v string) error {
			if v != given {
				return usagef("flag takes no value: --%s; leave out %q", long, "="+v)
			}
			return set()
		}), long, short, "").NoOptDefVal = given
	}
	end := func(a Action) func() error {
		return func() error {
			opt.Action = a
			return errDone
		}
	}

	value("listen", "l", func(v string) error {
		if v == "" {
			return usagef("empty address for -l; give a host, an IP address or unix:PATH")
		}
		opt.Listen = append(opt.Listen, v)
		return nil
	})
	value("port", "p", func(v string) error {
		if err := checkPort(v); err != nil {
			return err
		}
		opt.Port, opt.PortGiven = v, true
		return nil
	})
	value("user", "u", func(v string) error {
		opt.User = v
		if v == "" {
			return usagef("empty user for -u; give a name or a user id")
		}
		return nil
	})
	value("max-job-size", "z", func(v string) error {
		n, err := parseSize(v)
		if err != nil {
			return err
		}
		if n > MaxJobSizeLimit {
			n = MaxJobSizeLimit
			opt.notice("maximum job size was set to %d", n)
		}
		opt.MaxJobSize = uint32(n)
		return nil
	})
	value("loops", "", func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > MaxLoops {
			return usagef("invalid number of loops: %s; give a number from 1 to %d", v, MaxLoops)
		}
		opt.Loops = n
		return nil
	})
	value("log-format", "", func(v string) error {
		if v != LogText && v != LogJSON {
			return usagef("unknown log format: %s; give %s or %s", v, LogText, LogJSON)
		}
		opt.LogFormat = v
		return nil
	})
	value("log-level", "", func(v string) error {
		level, ok := logLevels[v]
		if !ok {
			return usagef("unknown log level: %s; give debug, info, warn or error", v)
		}
		opt.LogLevel, levelGiven = level, true
		return nil
	})
	word("verbose", "V", func() error { verbosity++; return nil })
	word("version", "v", end(PrintVersion))
	word("help", "", end(PrintManual))

	// The long names of the next three exist only because the flag package wants
	// one for every letter.
	word("usage", "h", end(PrintUsage))
	word("obsolete-c", "c", opt.obsolete("c"))
	word("obsolete-n", "n", opt.obsolete("n"))

	value("http", "", func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil {
			return usagef("invalid address for --http: %s; give HOST:PORT or :PORT", v)
		}
		opt.HTTP = v
		return nil
	})
	value("web-config-file", "", func(v string) error {
		if v == "" {
			return usagef("empty name for --web-config-file; give the path of a file")
		}
		opt.WebConfig = v
		return nil
	})
	value("console", "", func(v string) error {
		if v != ConsoleOff && v != ConsoleRead && v != ConsoleWrite {
			return usagef("unknown value for --console: %s; give %s, %s or %s", v, ConsoleOff, ConsoleRead, ConsoleWrite)
		}
		opt.Console = v
		return nil
	})
	value("http-host", "", func(v string) error {
		if v == "" || strings.ContainsAny(v, "/ ") {
			return usagef("invalid name for --http-host: %q; give a host's name, as browsers have it in their address bar", v)
		}
		opt.HTTPHosts = append(opt.HTTPHosts, v)
		return nil
	})
	value("auth-file", "", func(v string) error {
		if v == "" {
			return usagef("empty name for --auth-file; give the path of a file")
		}
		opt.AuthFile = v
		return nil
	})
	word("pprof", "", func() error { opt.Pprof = true; return nil })
	value("metrics-tubes", "", func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return usagef("invalid number of tubes: %s; give a number from 1 on", v)
		}
		opt.MetricsTubes, flags.tubes = n, true
		return nil
	})
	word("metrics-legacy", "", func() error { opt.MetricsLegacy = true; return nil })
	value("binlog", "b", func(v string) error {
		if v == "" {
			return usagef("empty directory for -b; give the path of one that exists")
		}
		opt.Binlog = v
		return nil
	})
	value("sync-interval", "f", func(v string) error {
		ms, err := parseSize(v)
		if err != nil {
			return err
		}
		flags.sync = true
		opt.Sync = binlog.SyncEvery(time.Duration(min(ms, uint64(MaxSyncInterval/time.Millisecond))) * time.Millisecond)
		return nil
	})
	word("no-sync", "F", func() error { opt.Sync, flags.sync = binlog.SyncNever, true; return nil })
	value("segment-size", "s", func(v string) error {
		n, err := parseSize(v)
		if err != nil {
			return err
		}
		flags.segment = true
		opt.SegmentSize = int64(min(n, MaxSegmentSize))
		if n > MaxSegmentSize {
			opt.notice("binlog segment size was set to %d", opt.SegmentSize)
		}
		return nil
	})
	word("skip-damaged", "", func() error { opt.SkipDamaged = true; return nil })

	word("no-extensions", "", func() error { opt.NoExtensions = true; return nil })

	opt.clusterFlags(value)

	value("max-memory", "", func(v string) (err error) {
		opt.MaxMemory, err = parseBound("max-memory", v, MinMaxMemory, math.MaxInt64)
		return err
	})
	value("max-connections", "", func(v string) error {
		n, err := parseBound("max-connections", v, 1, math.MaxInt32)
		opt.MaxConnections = int(n)
		return err
	})
	value("idle-timeout", "", func(v string) error {
		n, err := parseBound("idle-timeout", v, 0, int64(MaxIdleTimeout/time.Second))
		opt.IdleTimeout = time.Duration(n) * time.Second
		return err
	})
	value("max-output", "", func(v string) (err error) {
		opt.MaxOutput, err = parseBound("max-output", v, MinMaxOutput, math.MaxInt64)
		return err
	})
	value("max-tubes", "", func(v string) error {
		n, err := parseBound("max-tubes", v, 0, math.MaxInt32)
		opt.MaxTubes = int(n)
		return err
	})
	value("max-watched", "", func(v string) error {
		n, err := parseBound("max-watched", v, 0, math.MaxInt32)
		opt.MaxWatched = int(n)
		return err
	})
	value("max-keys", "", func(v string) error {
		n, err := parseBound("max-keys", v, 0, math.MaxInt32)
		opt.MaxKeys = int(n)
		return err
	})

	opt.TLS.flags(value)

	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = usagef("unknown argument: %s; trellisd takes flags only, see trellisd -h", fs.Arg(0))
	}
	if err == nil {
		err = opt.checkHTTP(flags)
	}
	if !levelGiven {
		opt.LogLevel = levelOf(verbosity)
	}
	if err == nil {
		err = opt.checkCluster(flags)
	}
	if err == nil {
		err = opt.TLS.check()
	}
	if err != nil && !errors.Is(err, errDone) {
		return opt, usageError(err)
	}
	return opt, nil
}

// checkHTTP checks the flags of the HTTP side as a whole.
func (opt *Options) checkHTTP(given givenFlags) error {
	for _, f := range []struct {
		flag  string
		given bool
	}{
		{"--web-config-file", opt.WebConfig != ""},
		{"--console=" + opt.Console, opt.Console == ConsoleRead || opt.Console == ConsoleWrite},
		{"--http-host", opt.HTTPHosts != nil},
		{"--pprof", opt.Pprof},
		{"--metrics-tubes", given.tubes},
		{"--metrics-legacy", opt.MetricsLegacy},
	} {
		if f.given && opt.HTTP == "" {
			return usagef("%s is for HTTP, which is off; give --http HOST:PORT too", f.flag)
		}
	}
	if opt.Console == ConsoleWrite && opt.WebConfig == "" {
		return usagef("--console=write lets people delete jobs, and needs to know who they are: give --web-config-file with basic_auth_users too")
	}
	return nil
}

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

func levelOf(verbosity int) slog.Level {
	switch verbosity {
	case 0:
		return slog.LevelWarn
	case 1:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

func (opt *Options) notice(format string, args ...any) {
	opt.Notices = append(opt.Notices, fmt.Sprintf(format, args...))
}

func (opt *Options) obsolete(letter string) func() error {
	return func() error {
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

// parseSize reads a decimal number as beanstalkd does: leading blanks and a sign
// are allowed, anything behind the digits is not. What does not fit, and what is
// negative, comes out as the greatest number.
func parseSize(v string) (uint64, error) {
	const most = 1<<64 - 1
	digits := strings.TrimLeft(v, " \t\n\v\f\r")
	negative := strings.HasPrefix(digits, "-")
	if negative || strings.HasPrefix(digits, "+") {
		digits = digits[1:]
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			digits = ""
			break
		}
	}
	if digits == "" {
		return 0, usagef("invalid size: %s; give a number of bytes, in decimal and without a unit", v)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || negative && n > 0 {
		return most, nil
	}
	return n, nil
}

// parseBound reads the value of a flag that is a bound. A number over most is
// lowered to it.
func parseBound(flag, v string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && n > 0:
		return most, nil
	case err != nil || n < least:
		return 0, usagef("invalid value for --%s: %s; give a number of at least %d, without a unit", flag, v, least)
	}
	return min(n, most), nil
}
