package process

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestAServerThatIsOpenToTheNetworkWarnsOnItsDefaults(t *testing.T) {
	t.Parallel()
	servertest.Launch(t, "-p0").WaitText("level=WARN msg=\"WHOEVER CAN CONNECT CAN READ AND DELETE EVERY JOB")
	m := servertest.Launch(t, "-p0", "-b", t.TempDir(), "--node=n1=127.0.0.1:1", "--cluster-listen=127.0.0.1:0")
	m.WaitText("WHOEVER CAN CONNECT CAN READ AND DELETE EVERY JOB")
}

func TestMistakesEndTheStartWithOneLineAndBeanstalkdsCode(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	dir := servertest.SocketDir(t)
	long := strings.Repeat("x", 200)

	tests := []struct {
		args string
		code int
		want string
	}{
		{"-q", 5, "trellisd: unknown flag: -q; see trellisd -h"},
		{"foo", 5, "trellisd: unknown argument: foo; trellisd takes flags only, see trellisd -h"},
		{"-p", 5, "trellisd: flag requires an argument: -p; see trellisd -h"},
		{"-z 10x", 5, "trellisd: invalid value for --max-job-size: 10x; give a number in bytes, or with k, M, G or T (powers of 1024, as Ki or KiB too) or kB, MB, GB or TB (powers of 1000)"},
		{"-l 127.0.0.1 -p0 -b " + dir + "/nosuch", 10, "trellisd: log directory " + dir + "/nosuch: "},
		{"--log-format=json -q", 5, `"msg":"unknown flag: -q; see trellisd -h"`},

		{"-l 127.0.0.1 -p " + port, 111, "trellisd: cannot listen on 127.0.0.1:" + port + ": address already in use; stop the process that has it, or choose another port with -p"},
		{"-l 192.0.2.1 -p0", 111, "trellisd: cannot listen on 192.0.2.1:0: cannot assign requested address; this machine has no such address: use one that it has, or 0.0.0.0 for all"},
		{"-l no-such-host.invalid", 111, `trellisd: cannot listen on no-such-host.invalid:11300: host "no-such-host.invalid": `},
		{"-l 127.0.0.1 -p no-such-service", 111, `trellisd: cannot listen on 127.0.0.1:no-such-service: no such port or service: "no-such-service"; give a number from 0 to 65535 or a name from /etc/services`},
		{"-l a:b:c", 111, "trellisd: cannot listen on a:b:c: not an address; give HOST, HOST:PORT, [IPV6]:PORT or unix:PATH"},
		{"-l unix:", 111, "trellisd: cannot listen on unix:: the path is missing; give unix:PATH"},
		{"-l unix:" + dir, 111, "trellisd: cannot listen on unix:" + dir + ": another file already exists in the given path; remove it or choose another path"},
		{"-l unix:" + dir + "/nosuch/s", 111, "trellisd: cannot listen on unix:" + dir + "/nosuch/s: no such file or directory; create its directory first"},
		{"-l unix:/" + long, 111, "trellisd: cannot listen on unix:/" + long + ": the path is too long (201 characters, where maximum allowed is "},

		{"-l 127.0.0.1 -p0 -u no-such-user", 33, `trellisd: no such user: "no-such-user"; see /etc/passwd for those that exist`},
		// The port is opened first: see the order of the start.
		{"-l 127.0.0.1 -u no-such-user -p " + port, 111, "trellisd: cannot listen on 127.0.0.1:" + port},
	}
	if runtime.GOOS != "linux" {
		t.Skip("the texts are those of Linux")
	}
	for _, tt := range tests {
		p := servertest.Launch(t, strings.Fields(tt.args)...)
		if code := p.Wait(); code != tt.code {
			t.Errorf("%s: exit code %d; want %d", tt.args, code, tt.code)
		}
		if log := p.Log(); len(log) != 1 || !strings.Contains(log[0], tt.want) {
			t.Errorf("%s:\n got %q\nwant one line with %q", tt.args, log, tt.want)
		}
		if out := p.Stdout.String(); out != "" {
			t.Errorf("%s: wrote to stdout: %q", tt.args, out)
		}
	}
}

// ofCommit is what -v tells of a program that was built in a clone.
var ofCommit = regexp.MustCompile(` \([0-9a-f]{12}, [0-9-]{10}\)`)

func TestVersionAndManualGoToStdoutAndUsageToStderr(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, stdout, stderr string }{
		{"-v", "trellisd 0.2.0\n", ""},
		{"--version -q", "trellisd 0.2.0\n", ""},
		{"-cv", "trellisd 0.2.0\n", "trellisd: -c flag was removed. binlog is always compacted."},
		{"-z-1 -v", "trellisd 0.2.0\n", "trellisd: maximum job size was set to 1073741824"},
		{"-h", "", "Use: trellisd [OPTIONS]\n\nOptions:\n -l, --listen ADDR "},
		{"--help", "NAME\n    trellisd - ", ""},
	}
	for _, tt := range tests {
		p := servertest.Launch(t, strings.Fields(tt.args)...)
		if code := p.Wait(); code != 0 {
			t.Errorf("%s: exit code %d", tt.args, code)
		}
		for _, s := range []struct{ name, got, want string }{
			{"stdout", ofCommit.ReplaceAllString(p.Stdout.String(), ""), tt.stdout},
			{"stderr", strings.Join(p.Log(), "\n"), tt.stderr},
		} {
			if !strings.HasPrefix(s.got, s.want) || s.want == "" && s.got != "" {
				t.Errorf("%s: %s is %q; want %q at its front", tt.args, s.name, s.got, s.want)
			}
		}
	}
}

func TestWithoutFlagsOnlyTrouleIsLogged(t *testing.T) {
	t.Parallel()
	conn, path := notifySocket(t)
	cmd := exec.Command(servertest.Binary, "-l127.0.0.1", "-p0", "-n")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	p := servertest.LaunchCommand(t, cmd)
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := strings.Join(p.Log(), "\n"); got != "trellisd: -n flag was removed. binlog is always compacted." {
		t.Errorf("logged %q", got)
	}
}

func TestTheTextLogTellsPidAndAddresses(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(servertest.Binary, "-l127.0.0.1", "-p0", "-V", "--max-memory=2GB")
	cmd.Env = append(os.Environ(), "TRELLISD_MAX_TUBES=7")
	p := servertest.LaunchCommand(t, cmd)
	p.WaitText("msg=ready")
	log := strings.Join(p.Log(), "\n")
	for _, want := range []string{
		"level=INFO msg=starting pid=" + strconv.Itoa(p.Cmd.Process.Pid) + " ",
		"level=INFO msg=option name=max-memory value=2GB from=\"command line\"",
		"level=INFO msg=option name=max-tubes value=7 from=TRELLISD_MAX_TUBES",
		"level=INFO msg=listening network=tcp addr=127.0.0.1:",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
}

func TestEveryRecordOfTheJSONLogIsAnObject(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "-VV", "-c")
	c := s.Dial(0)
	c.Send("use x", "quit")
	c.Want("USING x")
	c.WantEOF()
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, l := range s.Log() {
		var record map[string]any
		if err := json.Unmarshal([]byte(l), &record); err != nil || record["msg"] == nil || record["level"] == nil {
			t.Errorf("%q: %v", l, err)
		}
	}
}

func TestManyListenersServeOneQueue(t *testing.T) {
	t.Parallel()
	path := filepath.Join(servertest.SocketDir(t), "s")
	s := servertest.Start(t, "-l127.0.0.1", "-lunix:"+path, "-l", "127.0.0.1:0", "-l[::ffff:127.0.0.1]:0")
	for i := range s.Addrs {
		c := s.Dial(i)
		c.Send("put 0 0 60 1", "x")
		c.Want("INSERTED " + strconv.Itoa(i+1))
	}
}

func TestHostNamesAreLookedUp(t *testing.T) {
	t.Parallel()
	if _, err := net.LookupHost("localhost"); err != nil {
		t.Skip("this machine does not know itself: ", err)
	}
	c := servertest.Start(t, "-l", "localhost").Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestTheDefaultAddressIsIPv4Only(t *testing.T) {
	t.Parallel()
	p := servertest.Launch(t, "-p0", "-V", "--log-format=json")
	s := servertest.Ready(p, 1)
	if addr := s.Addrs[0].String(); !strings.HasPrefix(addr, "0.0.0.0:") {
		t.Errorf("listens on %s", addr)
	}
}

func TestUnspecifiedIPv6TakesIPv4Too(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6: ", err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, "-l::")
	_, port, err := net.SplitHostPort(s.Addrs[0].String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		c := servertest.Dial(t, servertest.AddrOn("tcp", net.JoinHostPort(host, port)))
		c.Send("use x")
		c.Want("USING x")
	}
}

func TestTheLargestJobIsWhatZSays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args          []string
		largest, size string
	}{
		{nil, "65535", strings.Repeat("x", 65535)},
		{[]string{"-z", "10"}, "10", "0123456789"},
		{[]string{"-z0"}, "0", ""},
	} {
		s := servertest.Start(t, tt.args...)
		c := s.Dial(0)
		c.Send("put 0 0 60 "+tt.largest, tt.size)
		c.Want("INSERTED 1")
		n, _ := strconv.Atoi(tt.largest)
		c.Send("put 0 0 60 "+strconv.Itoa(n+1), tt.size+"x", "use x")
		c.Want("JOB_TOO_BIG", "USING x")
		if got := servertest.Stats(c)["max-job-size"]; got != tt.largest {
			t.Errorf("%v: max-job-size is %s", tt.args, got)
		}
	}
}

func TestStatsDescribeTheProcess(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	got := servertest.Stats(s.Dial(0))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"pid":      strconv.Itoa(s.Cmd.Process.Pid),
		"version":  `"1.13+trellis.0.2.0"`,
		"hostname": `"` + host + `"`,
		"draining": "false",
	} {
		if got[key] != want {
			t.Errorf("%s: got %s; want %s", key, got[key], want)
		}
	}
	for _, key := range []string{"os", "platform"} {
		if len(got[key]) <= len(`""`) {
			t.Errorf("%s: got %s", key, got[key])
		}
	}
	for _, key := range []string{"rusage-utime", "rusage-stime"} {
		if _, err := strconv.ParseFloat(got[key], 64); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if !regexp.MustCompile(`^[abcdf][0-9a-f]{15}$`).MatchString(got["id"]) {
		t.Errorf("id: got %s", got["id"])
	}
	if again := servertest.Stats(servertest.Start(t).Dial(0)); again["id"] == got["id"] {
		t.Errorf("two servers have the id %s", got["id"])
	}
}

func TestTheLimitOfDescriptorsIsRaised(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("read from /proc")
	}
	cmd := exec.Command("sh", "-c", `ulimit -Sn 64 && exec "$0" "$@"`, servertest.Binary, "-l127.0.0.1", "-p0", "-V", "--log-format=json")
	s := servertest.Ready(servertest.LaunchCommand(t, cmd), 1)
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(s.Cmd.Process.Pid) + "/limits")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			f := strings.Fields(rest)
			soft, _ := strconv.Atoi(f[0])
			hard, _ := strconv.Atoi(f[1])
			if soft < hard-1 { // Go's runtime leaves one
				t.Errorf("soft limit %d, hard limit %d", soft, hard)
			}
		}
	}
}

// user nobody is who an unprivileged server runs as in these tests.
func lookupNobody(t *testing.T) (uid, gid uint32) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("this system has no user nobody: ", err)
	}
	id := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	return id(u.Uid), id(u.Gid)
}

func TestRootsRightsAreGivenUpInAllThreads(t *testing.T) {
	t.Parallel()
	uid, gid := lookupNobody(t)
	if runtime.GOOS != "linux" {
		t.Skip("read from /proc")
	}
	s := servertest.Start(t, "-u", "nobody")
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(s.Cmd.Process.Pid) + "/task/*/status")
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	four := func(id uint32) string {
		return strings.TrimSpace(strings.Repeat("\t"+strconv.FormatUint(uint64(id), 10), 4))
	}
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, want := range []string{"\nUid:\t" + four(uid) + "\n", "\nGid:\t" + four(gid) + "\n"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%s has no %q:\n%s", path, want, status)
			}
		}
		for line := range strings.Lines(string(status)) {
			if groups, ok := strings.CutPrefix(line, "Groups:"); ok && strings.Contains(" "+groups+" ", " 0 ") {
				t.Errorf("%s: still in root's group: %s", path, line)
			}
		}
	}
	c := s.Dial(0)
	c.Send("use x")
	c.Want("USING x")
}

func TestWhoIsNotRootCannotBecomeSomebodyElse(t *testing.T) {
	t.Parallel()
	uid, gid := lookupNobody(t)
	cmd := exec.Command(servertest.Binary, "-l127.0.0.1", "-p0", "-uroot")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	p := servertest.LaunchCommand(t, cmd)
	if code := p.Wait(); code != servertest.ExitChangeUser {
		t.Errorf("exit code %d", code)
	}
	want := `trellisd: setting the groups of user "root": operation not permitted; start as root, or leave -u out`
	if got := strings.Join(p.Log(), "\n"); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestAPrivilegedSocketSurvivesTheChangeOfUser(t *testing.T) {
	t.Parallel()
	lookupNobody(t)
	dir := servertest.SocketDir(t) // which only root can enter
	path := filepath.Join(dir, "s")
	s := servertest.Start(t, "-u", "nobody", "-l", "unix:"+path)
	c := s.Dial(0)
	c.Send("use x")
	c.Want("USING x")
	s.Signal(syscall.SIGTERM)
	// Nobody cannot remove the file from root's directory: no reason to fail.
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the file that must be left behind: %v", err)
	}
	s.WaitText("permission denied")
}

func TestAnIdleServerUsesNoProcessorTime(t *testing.T) {
	if servertest.RaceEnabled {
		t.Skip("the race detector has work of its own")
	}
	t.Parallel()
	s := servertest.Start(t)
	c := s.Dial(0)
	before := servertest.CPU(t, c)
	time.Sleep(3 * time.Second)
	if used := servertest.CPU(t, c) - before; used > 0.3 {
		t.Errorf("used %.3f s in 3 s", used)
	}
}
