package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// startOnSocket starts a server on a unix socket that nobody else can take, and returns the
// socket's path. Args have {socket} for it.
func startOnSocket(t *testing.T, command string, args ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "trellis-") // a path that is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{socket}", socket)
	}
	cmd := exec.Command(command, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server's log: %s", log.String())
		}
	})
	waitFor(t, socket)
	return socket
}

// startTrellisd starts a server with one loop, so that ids follow each other.
func startTrellisd(t *testing.T, args ...string) string {
	t.Helper()
	path, err := server()
	if err != nil {
		t.Fatal(err)
	}
	return startOnSocket(t, path, append([]string{"-l", "unix:{socket}", "--loops", "1"}, args...)...)
}

func startBeanstalkd(t *testing.T) string {
	t.Helper()
	path, _, _ := strings.Cut(peer(t), " ")
	return startOnSocket(t, path, "-l", "unix:{socket}")
}

// volatile are values that no test can know.
var volatile = regexp.MustCompile(`("?\b(?:age|time-left|pause-time-left)"?: ?)\d+`)

// A play runs a script line by line, and writes it down with what comes of it:
//
//	$ ARGS       runs trellis; what it writes follows, its errors behind "! ", a status other than 0 behind "? "
//	> LINE       sends a line on a connection, with \r and \n for the ends of lines; the reply follows, behind "< "
//	# ANYTHING   is left as it is; "# needs COMMAND" in the first line leaves servers without it out
type play struct {
	t    *testing.T
	addr string // as the tool takes it
	nc   net.Conn
	in   *bufio.Reader

	exact bool // times are known too, and the command is a process that takes the address from its environment
}

func (p *play) run(script string) string {
	p.t.Helper()
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "$ "):
			fmt.Fprintln(&out, line)
			out.WriteString(p.tool(line[2:]))
		case strings.HasPrefix(line, "> "):
			fmt.Fprintf(&out, "%s\n< %s\n", line, p.ask(strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(line[2:])))
		}
	}
	return out.String()
}

// tool runs a command. What is in single quotes is one argument.
func (p *play) tool(line string) string {
	p.t.Helper()
	var args []string
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		args = append(args, m[1]+m[2])
	}
	var stdout, stderr string
	var status int
	if p.exact {
		stdout, stderr, status = trellisIn(p.t, []string{"TRELLIS_ADDR=" + p.addr}, args...)
	} else {
		stdout, stderr, status = trellis(p.t, slices.Insert(args, 1, "-a", p.addr)...)
		eventually(p.t, "the server has noticed the command's end", func() bool {
			return strings.Contains(p.ask("stats"), "current-connections: 1\n")
		})
	}
	text := stdout
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "(no line break)\n"
	}
	for e := range strings.Lines(stderr) {
		text += "! " + e
	}
	if status != 0 {
		text += fmt.Sprintf("? %d\n", status)
	}
	if !p.exact {
		text = volatile.ReplaceAllString(text, "${1}N")
	}
	return strings.ReplaceAll(text, p.addr, "ADDR")
}

// ask sends a line and returns the first line of the reply, and its body if it has one.
func (p *play) ask(line string) string {
	p.t.Helper()
	_ = p.nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(p.nc, line+"\r\n"); err != nil {
		p.t.Fatal(err)
	}
	reply, err := p.in.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	if f := strings.Fields(reply); f[0] == "RESERVED" || f[0] == "FOUND" || f[0] == "OK" {
		n := 0
		fmt.Sscan(f[len(f)-1], &n)
		body := make([]byte, n+2)
		if _, err := io.ReadFull(p.in, body); err != nil {
			p.t.Fatal(err)
		}
		return strings.TrimSpace(reply) + " " + strings.TrimSpace(string(body))
	}
	return strings.TrimSpace(reply)
}

// TestCommandsOnRealServers runs the scripts in testdata/operate: those in both have to come to the
// same on trellisd and on beanstalkd, and those for beanstalkd to the same on a trellisd without extensions.
func TestCommandsOnRealServers(t *testing.T) {
	starts := map[string]func(*testing.T) string{
		"trellisd":   func(t *testing.T) string { return startTrellisd(t) },
		"stock":      func(t *testing.T) string { return startTrellisd(t, "--no-extensions") },
		"beanstalkd": startBeanstalkd,
	}
	for dir, servers := range map[string][]string{
		"both": {"trellisd", "stock", "beanstalkd"}, "trellisd": {"trellisd"}, "beanstalkd": {"stock", "beanstalkd"},
	} {
		files, err := filepath.Glob("testdata/operate/" + dir + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d scripts", dir, err, len(files))
		}
		for _, file := range files {
			for _, server := range servers {
				t.Run(server+"/"+filepath.Base(file), func(t *testing.T) {
					if os.Getenv("UPDATE") == "" { // two write the same file
						t.Parallel()
					}
					p := &play{t: t, addr: starts[server](t)}
					var err error
					if p.nc, err = net.Dial("unix", p.addr); err != nil {
						t.Fatal(err)
					}
					defer p.nc.Close()
					p.in, p.addr = bufio.NewReader(p.nc), "unix:"+p.addr
					script, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					if need, ok := strings.CutPrefix(string(script), "# needs "); ok {
						need, _, _ = strings.Cut(need, "\n")
						c := connect(t, p.addr)
						if has, err := c.Has(t.Context(), need); err != nil || !has {
							t.Skipf("the server does not have %s, %v", need, err)
						}
						c.Close()
					}
					golden(t, file, p.run(string(script)))
				})
			}
		}
	}
}

func TestAConnectionOfAServerIsKicked(t *testing.T) {
	t.Parallel()
	addr := "unix:" + startTrellisd(t)
	c, other := connect(t, addr), connect(t, addr)
	putMany(t.Context(), t, c, "mail", 1, 0)
	if _, err := c.ReserveJob(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	list, err := other.Connections(t.Context(), 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	id := "none"
	for _, conn := range list {
		if conn.Text("tube") == "mail" {
			id = conn.Text("id")
		}
	}
	for _, tt := range []struct {
		args, out, errs string
		status          int
	}{
		{id + " -o ndjson", `{"kicked":` + id + "}\n", "", 0},
		{id, "", "there is no connection " + id, exitNothing},
		{"x", "", "x", exitUsage},
		{"", "", "arg", exitUsage},
	} {
		out, errs, status := trellis(t, append([]string{"kick-connection", "-a", addr}, strings.Fields(tt.args)...)...)
		if out != tt.out || !strings.Contains(errs, tt.errs) || status != tt.status {
			t.Errorf("%q: status %d\n%s%s", tt.args, status, out, errs)
		}
	}
	if _, err := c.Stats(t.Context()); err == nil {
		t.Error("the connection still serves")
	}
	if _, err := other.ReserveJob(t.Context(), 1); err != nil {
		t.Errorf("its job is not ready: %v", err)
	}
}

func TestConnectionsOfAServerAreListed(t *testing.T) {
	t.Parallel()
	addr := "unix:" + startTrellisd(t)
	c := connect(t, addr)
	if has, err := c.Has(t.Context(), "list-connections"); err != nil || !has {
		t.Skipf("the server does not have list-connections, %v", err)
	}
	putMany(t.Context(), t, c, "mail", 2, 0)
	if _, err := c.ReserveJob(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	out, errs, status := trellis(t, "connections", "-a", addr, "-o", "ndjson")
	if status != 0 || errs != "" {
		t.Fatalf("status %d\n%s", status, errs)
	}
	found := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"tube":"mail"`) {
			found++
			for _, want := range []string{
				`"addr":"unix"`, `"watching":["default"]`, `"reserved-jobs":[2]`, `"producer":true`, `"worker":true`, `"waiting":false`, `"commands":5,`,
			} {
				if !strings.Contains(line, want) {
					t.Errorf("%s is not in %s", want, line)
				}
			}
		}
	}
	if found != 1 {
		t.Errorf("%d connections use the tube:\n%s", found, out)
	}
}
