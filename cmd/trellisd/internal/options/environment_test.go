package options

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fields are the words of a line between bars, none of an empty one.
func fields(line string) []string {
	if line == "" {
		return nil
	}
	return strings.Split(line, "|")
}

func TestTheEnvironmentSaysWhatTheCommandLineWould(t *testing.T) {
	for _, tt := range []struct{ environment, args, want string }{ // want is the command line that says the same
		{"TRELLISD_MAX_MEMORY=2G", "", "--max-memory=2G"},
		{"TRELLISD_MAX_MEMORY=2G", "--max-memory=1G", "--max-memory=1G"},
		{"TRELLISD_MAX_MEMORY=nonsense", "--max-memory=1G", "--max-memory=1G"},
		{"TRELLISD_PORT=11301", "-V", "-V|-p11301"},
		{"TRELLISD_PORT=11301", "-Vp7", "-Vp7"},
		{"TRELLISD_LISTEN=127.0.0.1,unix:/s", "", "-l127.0.0.1|-lunix:/s"},
		{"TRELLISD_LISTEN=127.0.0.1,unix:/s", "-l::1", "-l::1"},
		{`TRELLISD_LISTEN="unix:/a,b","[::1]:7"|TRELLISD_PROXY_FROM=10.0.0.0/8,::1`, "", "-lunix:/a,b|-l[::1]:7|--proxy-from=10.0.0.0/8|--proxy-from=::1"},
		{`TRELLISD_LISTEN=unix:/s,proxy,::1,proxy|TRELLISD_PROXY_FROM=::1`, "", "-lunix:/s,proxy|-l::1,proxy|--proxy-from=::1"},
		{"TRELLISD_HTTP=:1|TRELLISD_PPROF=1|TRELLISD_METRICS_LEGACY=true", "", "--http=:1|--pprof|--metrics-legacy"},
		{"TRELLISD_PPROF=0|TRELLISD_NO_EXTENSIONS=false", "", ""},
		{"TRELLISD_VERBOSE=1", "", "-V"},
		{"TRELLISD_VERBOSE=1", "-VV", "-VV"},
		{"TRELLISD_LOG_LEVEL=error", "-V", "-V"},
		{"TRELLISD_LOG_LEVEL=error|TRELLISD_VERBOSE=1", "", "--log-level=error"},
		{"TRELLISD_SYNC_INTERVAL=1s", "-F", "-F"},
		{"TRELLISD_NO_SYNC=1", "-f0", "-f0"},
		{"TRELLISD_NODE=n1=127.0.0.1:1|TRELLISD_BINLOG=/d|TRELLISD_CLUSTER=n1=127.0.0.1:1,n2=127.0.0.1:2", "", "-b/d|--node=n1=127.0.0.1:1|--cluster=n1=127.0.0.1:1,n2=127.0.0.1:2"},
		{`TRELLISD_CONSOLE=write|TRELLISD_HTTP=:1|TRELLISD_WEB_CONFIG_FILE=w|TRELLISD_CONSOLE_WRITERS="CN=eve,O=x",dan`, "", `--http=:1|--web-config-file=w|--console=write|--console-writers="CN=eve,O=x",dan`},
		{"TRELLISD_OPTS=-p 7|TRELLIS_ADDR=a|TRELLISD=x|HOME=/", "", ""},
		{"TRELLISD_PORT=tcp://10.0.0.1:11300|TRELLISD_SERVICE_HOST=10.0.0.1|TRELLISD_SERVICE_PORT=11300|TRELLISD_SERVICE_PORT_HTTP=1|TRELLISD_PORT_11300_TCP=tcp://10.0.0.1:11300|TRELLISD_PORT_11300_TCP_ADDR=10.0.0.1|TRELLISD_CLIENTS_SERVICE_HOST=10.0.0.1|TRELLISD_CLIENTS_PORT=tcp://10.0.0.1:1", "", ""},
		{"TRELLISD_MAX_MEMRY=1", "-v", "-v"},
	} {
		got, err := Parse(fields(tt.args), fields(tt.environment))
		want, wrong := Parse(fields(tt.want), nil)
		if err != nil || wrong != nil {
			t.Errorf("%s, %s: %v, %v", tt.environment, tt.args, err, wrong)
			continue
		}
		got.given, want.given = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %s:\n got %+v\nwant %+v", tt.environment, tt.args, got, want)
		}
	}
}

func TestAMistakeInTheEnvironmentNamesTheVariable(t *testing.T) {
	for _, tt := range []struct{ environment, args, want string }{
		{"TRELLISD_MAX_CONNECTIONS=x", "", "TRELLISD_MAX_CONNECTIONS: invalid value for --max-connections: x; give a number of at least 1, without a unit"},
		{"TRELLISD_AUTH_FILE=", "", "TRELLISD_AUTH_FILE: empty name for --auth-file; give the path of a file"},
		{"TRELLISD_PPROF=on", "", "TRELLISD_PPROF: invalid value: on; give 1 or 0"},
		{`TRELLISD_LISTEN="a`, "", `TRELLISD_LISTEN: invalid list: "a; put commas between values, and those with commas in double quotes`},
		{"TRELLISD_LISTEN=127.0.0.1\n::1", "", "TRELLISD_LISTEN: invalid list: 127.0.0.1\n::1; put commas between values"},
		{"TRELLISD_LISTEN=a,,b", "", "TRELLISD_LISTEN: empty address for -l; give a host, an IP address or unix:PATH"},
		{"TRELLISD_MAX_MEMRY=1G", "", "unknown variable in the environment: TRELLISD_MAX_MEMRY; did you mean TRELLISD_MAX_MEMORY?"},
		{"TRELLISD_max_memory=1G", "", "unknown variable in the environment: TRELLISD_max_memory; did you mean TRELLISD_MAX_MEMORY?"},
		{"TRELLISD_Z=1", "", "unknown variable in the environment: TRELLISD_Z; did you mean TRELLISD_PORT?"},
		{"TRELLISD_VERSION=1", "", "unknown variable in the environment: TRELLISD_VERSION; did you mean TRELLISD_VERBOSE?"},
		{"TRELLISD_CHECK_CONFIG=1", "", "unknown variable in the environment: TRELLISD_CHECK_CONFIG; did you mean"},
		{"TRELLISD_PPROF=1", "", "--pprof is for HTTP, which is off; give --http HOST:PORT too"},
		{"TRELLISD_PPROF=on", "-q", "unknown flag: -q; see trellisd -h"},
	} {
		_, err := Parse(fields(tt.args), fields(tt.environment))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s, %s:\n got %v\nwant %s", tt.environment, tt.args, err, tt.want)
		}
	}
}

// values are what the flags of a test are given that takes each in turn.
var values = map[string]string{
	"socket-mode": "0660", "loops": "3", "log-level": "debug", "log-format": "json", "node": "n1=127.0.0.1:1", "cluster": "n1=127.0.0.1:1",
	"cluster-listen": ":1", "proxy-from": "10.0.0.0/8", "tls-client-auth": "optional", "tls-min": "1.3", "http": ":1", "console": "off", "": "7",
	"max-memory": "2000000", "body-memory": "64000000", "max-output": "2000000", "max-output-total": "2000000", "gateway-memory": "2000000",
}

func TestEveryOptionCanBeGivenByTheEnvironmentAndIsShown(t *testing.T) {
	n := 0
	for _, f := range slices.Concat(table(&commandLine{Options: new(Options)})...) {
		if f.show == nil {
			continue
		}
		n++
		value, ok := values[f.name]
		if f.value == "" {
			value = "1"
		} else if !ok {
			value = values[""]
		}
		opt, _ := Parse(nil, []string{f.variable() + "=" + value}) // some need others too
		i := slices.IndexFunc(opt.Settings(), func(s Setting) bool { return s.Name == f.name })
		if i < 0 || opt.Settings()[i].From != f.variable() || opt.Settings()[i].Value == "" {
			t.Errorf("%s: shown as %+v", f.name, opt.Settings())
		}
	}
	if n < 45 {
		t.Errorf("%d options", n)
	}
}

func TestSettingsTellWhatIsNotTheDefault(t *testing.T) {
	opt, err := Parse(
		fields("-p|11300|-z2G|-VV|-l::1|-llocalhost|--max-memory=auto|--idle-timeout=300|--grace=10000ms|--max-output=1.5GB|-b/d|--node=n1=127.0.0.1:1"),
		fields("TRELLISD_MAX_TUBES=5|TRELLISD_MAX_KEYS=1000000|TRELLISD_MAX_KEY_TTL=86400|TRELLISD_PROXY_FROM=::1,10.0.0.0/8|TRELLISD_IDLE_TIMEOUT=7|TRELLISD_SYNC_INTERVAL=0"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{
		{"listen", "::1,localhost", CommandLine},
		{"max-job-size", "16M", CommandLine}, // as much as a member of a cluster may have
		{"verbose", "2", CommandLine},
		{"binlog", "/d", CommandLine},
		{"sync-interval", "0s", "TRELLISD_SYNC_INTERVAL"},
		{"node", "n1=127.0.0.1:1", CommandLine},
		{"proxy-from", "::1/128,10.0.0.0/8", "TRELLISD_PROXY_FROM"},
		{"max-memory", "auto", CommandLine},
		{"idle-timeout", "5m", CommandLine},
		{"max-output", "1500MB", CommandLine},
		{"max-tubes", "5", "TRELLISD_MAX_TUBES"},
		{"max-key-ttl", "24h", "TRELLISD_MAX_KEY_TTL"},
	}
	if got := opt.Settings(); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	opt.MaxMemory = 3 << 30 // as the start finds out
	if got := opt.Settings()[7].Value; got != "3G" {
		t.Errorf("the memory is shown as %s", got)
	}
	opt, err = Parse([]string{"-V", "--keepalive=10h"}, []string{"TRELLISD_LOG_LEVEL=debug"})
	want = []Setting{{"verbose", "1", CommandLine}, {"keepalive", "9h", CommandLine}} // -V counts, and no more than 9h
	if got := opt.Settings(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %+v, want %+v", err, got, want)
	}
	if opt, err = Parse([]string{"-f1", "-F"}, nil); err != nil || !slices.Equal(opt.Settings(), []Setting{{"no-sync", "true", CommandLine}}) {
		t.Errorf("%v, %+v", err, opt.Settings())
	}
}
