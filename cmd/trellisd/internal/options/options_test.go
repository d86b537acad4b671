package options

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog"
)

// defaults returns what an empty command line gives, changed by change.
func defaults(change func(*Options)) *Options {
	opt := &Options{
		Port:       "11300",
		MaxJobSize: 65535,
		LogFormat:  LogText,
		Output:     OutputText,
		LogLevel:   slog.LevelWarn,

		Sync:         binlog.SyncEvery(50 * time.Millisecond),
		MetricsTubes: 1000,

		MaxTubes:   1_000_000,
		MaxWatched: 2000,
		MaxKeys:    1_000_000,
		MaxKeyTTL:  604_800,

		TLS:   TLS{MinVersion: tls.VersionTLS12},
		Grace: 10 * time.Second, KeepAlive: 5 * time.Minute,
	}
	if change != nil {
		change(opt)
	}
	return opt
}

func TestParseReadsEveryFlagInEveryForm(t *testing.T) {
	port := func(p string) func(*Options) {
		return func(o *Options) { o.Port, o.PortGiven = p, true }
	}
	size := func(n uint32) func(*Options) {
		return func(o *Options) { o.MaxJobSize = n }
	}
	clamped := func(o *Options) {
		o.MaxJobSize = 1073741824
		o.Notices = []string{"maximum job size was set to 1073741824"}
	}
	level := func(l slog.Level) func(*Options) {
		return func(o *Options) { o.LogLevel = l }
	}
	action := func(a Action) func(*Options) {
		return func(o *Options) { o.Action = a }
	}
	tests := []struct {
		args   string // separated by |
		change func(*Options)
	}{
		{"", nil},
		{"--", nil},

		{"-p11301", port("11301")},
		{"-p|11301", port("11301")},
		{"--port|11301", port("11301")},
		{"--port=11301", port("11301")},
		{"-p|http-alt", port("http-alt")},
		{"-p0", port("0")},
		{"-p|65535", port("65535")},
		{"-p1|-p2", port("2")},

		{"-l127.0.0.1", func(o *Options) { o.Listen = []string{"127.0.0.1"} }},
		{"-l|::1|--listen|unix:/a,b|--listen=localhost:99", func(o *Options) {
			o.Listen = []string{"::1", "unix:/a,b", "localhost:99"}
		}},
		{"--max-connection-age=3600", func(o *Options) { o.MaxConnectionAge = time.Hour }},
		{"--keepalive=90s", func(o *Options) { o.KeepAlive = 90 * time.Second }},
		{"--keepalive=0", func(o *Options) { o.KeepAlive = 0 }},
		{"--grace=0", func(o *Options) { o.Grace = 0 }},
		{"--stop-delay=15", func(o *Options) { o.StopDelay = 15 * time.Second }},
		{"-l|-x", func(o *Options) { o.Listen = []string{"-x"} }},
		{"-l::1,proxy|--proxy-from=10.0.0.0/8|--proxy-from=2001:db8::7", func(o *Options) {
			o.Listen = []string{"::1,proxy"}
			o.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::7/128")}
		}},
		{"-lunix:/a,proxy", func(o *Options) { o.Listen = []string{"unix:/a,proxy"} }},

		{"-uroot", func(o *Options) { o.User = "root" }},
		{"--socket-mode|0660", func(o *Options) { o.SocketMode = 0o660 }},
		{"--socket-mode=777", func(o *Options) { o.SocketMode = 0o777 }},
		{"--user|nobody", func(o *Options) { o.User = "nobody" }},

		{"-z10", size(10)},
		{"-z|0", size(0)},
		{"-z| \t+7", size(7)},
		{"-z007", size(7)},
		{"-z-0", size(0)},
		{"--max-job-size=1073741824", size(1 << 30)},
		{"-z1073741825", clamped},
		{"-z|-1", clamped},
		{"-z99999999999999999999999999", clamped},

		{"-z64k", size(64 << 10)},
		{"-z64kB", size(64000)},
		{"-z1.5GB", clamped},
		{"-f50ms", nil},
		{"-f1s", func(o *Options) { o.Sync = binlog.SyncEvery(time.Second) }},
		{"-s4Mi", func(o *Options) { o.SegmentSize = 4 << 20 }},
		{"--max-memory=2GB", func(o *Options) { o.MaxMemory = 2e9 }},
		{"--max-memory=16777215T", func(o *Options) { o.MaxMemory = 1<<63 - 1 }},
		{"--max-output-total=1.5G", func(o *Options) { o.MaxOutputTotal = 3 << 29 }},
		{"--idle-timeout=5m|--max-connection-age=1h30m|--body-timeout=30s", func(o *Options) {
			o.IdleTimeout, o.MaxConnectionAge, o.BodyTimeout = 5*time.Minute, 90*time.Minute, 30*time.Second
		}},
		{"--idle-timeout=2000000h", func(o *Options) { o.IdleTimeout = maxTimeout }},
		{"--max-key-ttl=24h", func(o *Options) { o.MaxKeyTTL = 86400 }},

		{"--auth-file|/etc/a", func(o *Options) { o.AuthFile = "/etc/a" }},
		{"--audit-file=/var/log/a", func(o *Options) { o.AuditFile = "/var/log/a" }},
		{"--http=:1|--web-config-file=w.yml", func(o *Options) { o.HTTP, o.WebConfig = ":1", "w.yml" }},
		{"--http=:1|--console=off", func(o *Options) { o.HTTP, o.Console = ":1", ConsoleOff }},
		{"--console=off", func(o *Options) { o.Console = ConsoleOff }},
		{"--http=:1|--console|read", func(o *Options) { o.HTTP, o.Console = ":1", ConsoleRead }},
		{"--console=write|--http=:1|--web-config-file=w.yml", func(o *Options) { o.HTTP, o.Console, o.WebConfig = ":1", ConsoleWrite, "w.yml" }},
		{`--console=write|--http=:1|--web-config-file=w.yml|--console-writers=ann,bob|--console-writers|"CN=eve,O=x",dan`, func(o *Options) {
			o.HTTP, o.Console, o.WebConfig, o.Writers = ":1", ConsoleWrite, "w.yml", []string{"ann", "bob", "CN=eve,O=x", "dan"}
		}},
		{"--http=:1|--http-host=a.example|--http-host|b", func(o *Options) { o.HTTP, o.HTTPHosts = ":1", []string{"a.example", "b"} }},
		{"--loops|3", func(o *Options) { o.Loops = 3 }},
		{"--log-format=json", func(o *Options) { o.LogFormat = LogJSON }},

		{"-b/var/lib/x", func(o *Options) { o.Binlog = "/var/lib/x" }},
		{"--binlog=/tmp", func(o *Options) { o.Binlog = "/tmp" }},
		{"-f0", func(o *Options) { o.Sync = binlog.SyncAlways }},
		{"-f1234", func(o *Options) { o.Sync = binlog.SyncEvery(1234 * time.Millisecond) }},
		{"-f99999999999999999999999", func(o *Options) { o.Sync = binlog.SyncEvery(maxSyncInterval) }},
		{"-F", func(o *Options) { o.Sync = binlog.SyncNever }},
		{"-f5|-F", func(o *Options) { o.Sync = binlog.SyncNever }},
		{"-VVFf10", func(o *Options) {
			o.Sync = binlog.SyncEvery(10 * time.Millisecond)
			o.LogLevel = slog.LevelDebug
		}},
		{"-s4096", func(o *Options) { o.SegmentSize = 4096 }},
		{"-s|-1", func(o *Options) {
			o.SegmentSize = maxSize
			o.Notices = []string{"binlog segment size was set to 1073741824"}
		}},
		{"--http=127.0.0.1:11380", func(o *Options) { o.HTTP = "127.0.0.1:11380" }},
		{"--http=:1|--pprof|--metrics-legacy|--metrics-tubes=7", func(o *Options) {
			o.HTTP = ":1"
			o.Pprof, o.MetricsLegacy, o.MetricsTubes = true, true, 7
		}},
		{"--skip-damaged", func(o *Options) { o.SkipDamaged = true }},

		{"--max-memory=1048576", func(o *Options) { o.MaxMemory = 1 << 20 }},
		{"--max-memory=auto", func(o *Options) { o.MaxMemory = AutoMemory }},
		{"--check-config|-p1", func(o *Options) { o.Action, o.Port, o.PortGiven = CheckConfig, "1", true }},
		{"--check-config|-o|json", func(o *Options) { o.Action, o.Output = CheckConfig, OutputJSON }},
		{"--max-memory|99999999999999999999", func(o *Options) { o.MaxMemory = 1<<63 - 1 }},
		{"--max-connections=7", func(o *Options) { o.MaxConnections = 7 }},
		{"--idle-timeout=90", func(o *Options) { o.IdleTimeout = 90 * time.Second }},
		{"--idle-timeout=5|--idle-timeout=0", nil},
		{"--idle-timeout=99999999999999999999", func(o *Options) { o.IdleTimeout = maxTimeout }},
		{"--body-timeout=90", func(o *Options) { o.BodyTimeout = 90 * time.Second }},
		{"--no-extensions", func(o *Options) { o.NoExtensions = true }},
		{"--max-output-total=3000000", func(o *Options) { o.MaxOutputTotal = 3_000_000 }},
		{"--gateway-memory=3000000", func(o *Options) { o.GatewayMemory = 3_000_000 }},
		{"--max-output=2000000", func(o *Options) { o.MaxOutput = 2_000_000 }},
		{"--max-tubes=10|--max-watched|5", func(o *Options) { o.MaxTubes, o.MaxWatched = 10, 5 }},
		{"--max-tubes=0|--max-watched=0", func(o *Options) { o.MaxTubes, o.MaxWatched = 0, 0 }},
		{"--max-keys=5", func(o *Options) { o.MaxKeys = 5 }},
		{"--max-keys|0", func(o *Options) { o.MaxKeys = 0 }},
		{"--max-key-ttl=5", func(o *Options) { o.MaxKeyTTL = 5 }},
		{"--max-key-ttl=99999999999", func(o *Options) { o.MaxKeyTTL = 1<<32 - 1 }},

		{"--tls-cert=c|--tls-key=k", func(o *Options) { o.TLS.Cert, o.TLS.Key = "c", "k" }},
		{"--tls-listen=::1|--tls-listen|:9|--tls-cert|c|--tls-key|k", func(o *Options) {
			o.TLS.Listen, o.TLS.Cert, o.TLS.Key = []string{"::1", ":9"}, "c", "k"
		}},
		{"--tls-cert=c|--tls-key=k|--tls-client-ca=a|--tls-client-auth=optional|--tls-min=1.3", func(o *Options) {
			o.TLS = TLS{Cert: "c", Key: "k", ClientCA: "a", Optional: true, MinVersion: tls.VersionTLS13}
		}},
		{"--tls-client-auth=optional|--tls-client-auth=require|--tls-cert=c|--tls-key=k|--tls-client-ca=a", func(o *Options) {
			o.TLS.Cert, o.TLS.Key, o.TLS.ClientCA = "c", "k", "a"
		}},
		{"--tls-key=k|-v", func(o *Options) { o.Action, o.TLS.Key = PrintVersion, "k" }},

		{"-V", level(slog.LevelInfo)},
		{"-VV", level(slog.LevelDebug)},
		{"-VVV", level(slog.LevelDebug)},
		{"--verbose|-V", level(slog.LevelDebug)},
		{"--log-level=debug", level(slog.LevelDebug)},
		{"--log-level|error|-V", level(slog.LevelError)},
		{"--log-level|info", level(slog.LevelInfo)},
		{"-VVp11301", func(o *Options) {
			port("11301")(o)
			o.LogLevel = slog.LevelDebug
		}},

		{"-v", action(PrintVersion)},
		{"--version", action(PrintVersion)},
		{"-h", action(PrintUsage)},
		{"--help", action(PrintManual)},
		{"-Vv", func(o *Options) {
			o.Action = PrintVersion
			o.LogLevel = slog.LevelInfo
		}},
		{"-v|--nosuch|arg", action(PrintVersion)},
		{"-h|-v", action(PrintUsage)},

		{"-c", func(o *Options) { o.Notices = []string{"-c flag was removed. binlog is always compacted."} }},
		{"-nv", func(o *Options) {
			o.Action = PrintVersion
			o.Notices = []string{"-n flag was removed. binlog is always compacted."}
		}},
	}
	for _, tt := range tests {
		var args []string
		if tt.args != "" {
			args = strings.Split(tt.args, "|")
		}
		got, err := Parse(args, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		got.given = nil // TestSettingsTellWhatIsNotTheDefault looks at them
		if want := defaults(tt.change); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.args, got, want)
		}
	}
}

func TestParseSaysInOneLineWhatIsWrong(t *testing.T) {
	tests := []struct{ args, want string }{
		{"-q", "unknown flag: -q; see trellisd -h"},
		{"-Vq", "unknown flag: -q; see trellisd -h"},
		{"--nosuch", "unknown flag: --nosuch; see trellisd -h"},
		{"--nosuch=1", "unknown flag: --nosuch; see trellisd -h"},
		{"---", "unknown flag: ---; see trellisd -h"},
		{"foo", "unknown argument: foo; trellisd takes flags only, see trellisd -h"},
		{"foo|-v", "unknown argument: foo; trellisd takes flags only, see trellisd -h"},
		{"-", "unknown argument: -; trellisd takes flags only, see trellisd -h"},
		{"--|-v", "unknown argument: -v; trellisd takes flags only, see trellisd -h"},
		{"-q|-v", "unknown flag: -q; see trellisd -h"},

		{"-p", "flag requires an argument: -p; see trellisd -h"},
		{"-Vz", "flag requires an argument: -z; see trellisd -h"},
		{"--listen", "flag requires an argument: --listen; see trellisd -h"},

		{"-zz", "invalid value for --max-job-size: z; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z1.5", "invalid value for --max-job-size: 1.5; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z0x10", "invalid value for --max-job-size: 0x10; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z1 ", "invalid value for --max-job-size: 1 ; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z|--1", "invalid value for --max-job-size: --1; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z|", "invalid value for --max-job-size: ; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},

		{"-p65536", "invalid port: 65536; give a number from 0 to 65535 or a service name"},
		{"-p99999999999999999999999", "invalid port: 99999999999999999999999; give a number from 0 to 65535 or a service name"},
		{"-p|", "empty port for -p; give a number from 0 to 65535 or a service name"},
		{"-l|", "empty address for -l; give a host, an IP address or unix:PATH"},
		{"-u|", "empty user for -u; give a name or a user id"},
		{"--loops=0", "invalid number of loops: 0; give a number from 1 to 255"},
		{"--loops=x", "invalid number of loops: x; give a number from 1 to 255"},
		{"--loops=256", "invalid number of loops: 256; give a number from 1 to 255"},
		{"--log-format=xml", "unknown log format: xml; give text or json"},
		{"--log-level=loud", "unknown log level: loud; give debug, info, warn or error"},
		{"--version=3", `flag takes no value: --version; leave out "=3"`},

		{"--socket-mode=0", "invalid mode for --socket-mode: 0; give octal digits, as chmod has them, such as 0660"},
		{"--socket-mode=0888", "invalid mode for --socket-mode: 0888; give octal digits, as chmod has them, such as 0660"},
		{"--socket-mode=4755", "invalid mode for --socket-mode: 4755; give octal digits, as chmod has them, such as 0660"},
		{"--max-memory=1000", "invalid value for --max-memory: 1000; give a number of at least 1048576, in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"--max-memory=1023k", "invalid value for --max-memory: 1023k; give a number of at least 1048576, in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"--max-memory=1P", "invalid value for --max-memory: 1P; give a number of at least 1048576, in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"--max-connections=0", "invalid value for --max-connections: 0; give a number of at least 1, without a unit"},
		{"--max-connections=-99999999999999999999", "invalid value for --max-connections: -99999999999999999999; give a number of at least 1, without a unit"},
		{"--idle-timeout=-1", "invalid value for --idle-timeout: -1; give a number of at least 0, in whole seconds, or with s, m or h"},
		{"--idle-timeout=500ms", "invalid value for --idle-timeout: 500ms; give a number of at least 0, in whole seconds, or with s, m or h"},
		{"--max-connection-age=-1h", "invalid value for --max-connection-age: -1h; give a number of at least 0, in whole seconds, or with s, m or h"},
		{"--max-key-ttl=7d", "invalid value for --max-key-ttl: 7d; give a number of at least 0, in whole seconds, or with s, m or h"},
		{"--grace=-1", "invalid value for --grace: -1; give a number of at least 0, in whole seconds, or with s, m or h"},
		{"--max-output=0", "invalid value for --max-output: 0; give a number of at least 1048576, in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"--max-tubes=", "invalid value for --max-tubes: ; give a number of at least 0, without a unit"},
		{"--max-keys=-1", "invalid value for --max-keys: -1; give a number of at least 0, without a unit"},
		{"--max-watched=x", "invalid value for --max-watched: x; give a number of at least 0, without a unit"},

		{"--proxy-from=proxy.example", "invalid addresses for --proxy-from: proxy.example; give an IP address, or a prefix such as 10.0.0.0/8"},
		{"-l127.0.0.1,proxy", "127.0.0.1,proxy: no proxy may connect there; give --proxy-from with the addresses of the proxies"},
		{"--tls-listen=::1,proxy|--tls-cert=c|--tls-key=k", "::1,proxy: no proxy may connect there; give --proxy-from with the addresses of the proxies"},

		{"--tls-listen=", "empty address for --tls-listen; give a host, an IP address or unix:PATH"},
		{"--tls-cert=", "empty path for --tls-cert; give that of a PEM file"},
		{"--tls-min=1.1", "unknown version for --tls-min: 1.1; give 1.2 or 1.3"},
		{"--tls-client-auth=no", "unknown value for --tls-client-auth: no; give require or optional"},
		{"--tls-listen=::1", "--tls-listen without a certificate; give --tls-cert and --tls-key"},
		{"--tls-cert=c", "--tls-cert without --tls-key; give both"},
		{"--tls-key=k", "--tls-key without --tls-cert; give both"},
		{"--tls-client-ca=a", "--tls-client-ca without a certificate; give --tls-cert and --tls-key"},
		{"--tls-client-auth=require|--tls-cert=c|--tls-key=k", "--tls-client-auth without --tls-client-ca; give the authorities of the clients"},

		{"--check-config|-o|yaml", "unknown value for --output: yaml; give text or json"},
		{"-o|json", "--output is for what --check-config prints; give that too"},
		{"--console=yes", "unknown value for --console: yes; give off, read or write"},
		{"--console=read", "--console=read is for HTTP, which is off; give --http HOST:PORT too"},
		{"--console-writers=a", "--console-writers is for HTTP, which is off; give --http HOST:PORT too"},
		{"--http=:1|--console-writers=a", "--console-writers says who may write, and nobody may; give --console=write too"},
		{"--http=:1|--console-writers=", "invalid names for --console-writers: ; give NAME,NAME,..., those with commas in double quotes"},
		{"--http=:1|--console-writers=a,,b", "invalid names for --console-writers: a,,b; give NAME,NAME,..., those with commas in double quotes"},
		{`--http=:1|--console-writers="CN=a`, `invalid names for --console-writers: "CN=a; give NAME,NAME,..., those with commas in double quotes`},
		{"--http-host=a", "--http-host is for HTTP, which is off; give --http HOST:PORT too"},
		{"--web-config-file=a", "--web-config-file is for HTTP, which is off; give --http HOST:PORT too"},
		{"--pprof", "--pprof is for HTTP, which is off; give --http HOST:PORT too"},
		{"--metrics-tubes=1000", "--metrics-tubes is for HTTP, which is off; give --http HOST:PORT too"},
		{"--metrics-legacy", "--metrics-legacy is for HTTP, which is off; give --http HOST:PORT too"},
		{"--http=:1|--http-host=", `invalid name for --http-host: ""; give a host's name, as browsers have it in their address bar`},
		{"--http=:1|--http-host=http://a", `invalid name for --http-host: "http://a"; give a host's name, as browsers have it in their address bar`},
		{
			"--http=:1|--console=write",
			"--console=write lets people delete jobs, and needs to know who they are: give --web-config-file with basic_auth_users too",
		},

		{"-f1.5", "invalid value for --sync-interval: 1.5; give a number in whole milliseconds, or with ms, s, m or h"},
		{"-f100us", "invalid value for --sync-interval: 100us; give a number in whole milliseconds, or with ms, s, m or h"},
		{"-f-5ms", "invalid value for --sync-interval: -5ms; give a number in whole milliseconds, or with ms, s, m or h"},
		{"-s10X", "invalid value for --segment-size: 10X; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z-1k", "invalid value for --max-job-size: -1k; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-z17179869184G", "invalid value for --max-job-size: 17179869184G; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-b|", "empty directory for -b; give the path of one that exists"},
		{"-b", "flag requires an argument: -b; see trellisd -h"},
	}
	for _, tt := range tests {
		_, err := Parse(strings.Split(tt.args, "|"), nil)
		var usage *UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%s: got %v, want a usage error", tt.args, err)
			continue
		}
		if got := err.Error(); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.args, got, tt.want)
		}
	}
}

func TestWhatWasReadBeforeAMistakeIsKept(t *testing.T) {
	opt, err := Parse([]string{"-c", "--log-format=json", "-q"}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	if len(opt.Notices) != 1 || opt.LogFormat != LogJSON {
		t.Errorf("got %+v", opt)
	}
}

func TestHelpDescribesEveryFlag(t *testing.T) {
	for _, text := range []struct{ name, text string }{{"usage", Usage()}, {"manual", Manual()}} {
		for _, flag := range []string{
			"-l", "--listen", "-p", "--port", "-u", "--user", "-z", "--max-job-size", "--loops", "-V", "--verbose",
			"--log-level", "--log-format", "--socket-mode", "--check-config", "-o", "--output", "-v", "--version", "-h", "--help", "-b", "--binlog", "-f", "--sync-interval",
			"-F", "--no-sync", "-s", "--segment-size", "--skip-damaged", "-c", "-n",
			"--http", "--web-config-file", "--console", "--console-writers", "--http-host", "--pprof", "--metrics-tubes", "--metrics-legacy",
			"--max-memory", "--max-connections", "--idle-timeout", "--max-connection-age", "--grace", "--stop-delay", "--max-output", "--max-output-total", "--gateway-memory", "--max-tubes", "--max-watched", "--max-keys", "--no-extensions",
			"--node", "--cluster", "--cluster-listen", "--cluster-cert", "--cluster-key", "--cluster-ca", "--cluster-allowed-name", "--cluster-admin-name",
			"--auth-file", "--proxy-from", "--tls-listen", "--tls-cert", "--tls-key", "--tls-client-ca", "--tls-client-auth", "--tls-min",
		} {
			if !strings.Contains(text.text, flag) {
				t.Errorf("%s: nothing about %s", text.name, flag)
			}
		}
		for i, line := range strings.Split(text.text, "\n") {
			if len(line) > 96 || strings.TrimRight(line, " ") != line {
				t.Errorf("%s, line %d: too long, or blanks at its end: %q", text.name, i+1, line)
			}
		}
	}
}

func TestTheTableIsComplete(t *testing.T) {
	c := &commandLine{Options: new(Options)}
	letters, names := make(map[string]bool), make(map[string]bool)
	for _, f := range slices.Concat(table(c)...) {
		if letters[f.letter] || names[f.name] {
			t.Errorf("there are two of -%s, --%s", f.letter, f.name)
		}
		letters[f.letter], names[f.name] = f.letter != "", true
		switch {
		case f.name == "" || f.help == "" || f.manual == "" || f.set == nil:
			t.Errorf("%q lacks something", f.name)
		case f.letterOnly && f.letter == "":
			t.Errorf("%q cannot be given", f.name)
		case f.value == "" && f.def != "":
			t.Errorf("%q has a default and takes no value", f.name)
		case f.def != "" && f.set(f.def) != nil:
			t.Errorf("%q does not take its default", f.name)
		}
		if !strings.Contains(Usage(), " "+f.head("")) || !strings.Contains(Manual(), "\n    "+f.head("")+"\n        ") {
			t.Errorf("usage or manual lack %q", f.head(""))
		}
	}
	if len(names) < 45 {
		t.Errorf("%d flags", len(names))
	}
	if strings.Contains(Manual(), "THE FLAGS") {
		t.Error("the manual has no flags")
	}
}
