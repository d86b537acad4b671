//go:build proof

package process

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// A tap stands between clients and a server, counts the connections, and can cut them.
type tap struct {
	listener net.Listener
	connect  func() (net.Conn, error) // to the server
	done     sync.WaitGroup

	mu    sync.Mutex
	total int        // guarded by mu; connections that were ever made
	conns []net.Conn // guarded by mu; both sides of all of them
}

func newTap(t testing.TB, connect func() (net.Conn, error)) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &tap{listener: l, connect: connect}
	r.done.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		r.done.Wait()
	})
	return r
}

func (r *tap) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := r.connect()
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		r.total++
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		pass := func(to, from net.Conn) {
			if _, err := io.Copy(to, from); err == nil {
				_ = to.(interface{ CloseWrite() error }).CloseWrite()
				return
			}
			// One of them is gone, and the other one would notice without the tap.
			_ = to.Close()
			_ = from.Close()
		}
		r.done.Go(func() { pass(server, client) })
		r.done.Go(func() { pass(client, server) })
	}
}

// cut ends all connections.
func (r *tap) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *tap) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// stockClients are scripts with client libraries as they are, see testdata/clients. Each
// connects, authenticates if it has a token, puts a job and works on it, and says in a
// line how that went. For a line on its standard input it does the same on the same
// connection, and on a new one.
var stockClients = []struct{ name, program, script string }{
	{"fivebeans", "node", "fivebeans.js"},
	{"jackd", "node", "jackd.js"},
	{"node-beanstalk", "node", "node-beanstalk.js"},
	{"beaneater", "ruby", "beaneater.rb"},
	{"pheanstalk", "php", "pheanstalk.php"},
	{"go-beanstalk", "gobeanstalk", ""},
}

// proxiedAs is the client whose connection a proxy passes on.
const proxiedAs = "192.0.2.7:40000"

// ways are those in which a client's connection reaches the server: by itself, or by a proxy that says
// whose it is, that speaks TLS, or both.
var ways = []struct {
	name, header string
	tls          bool
}{
	{"plain", "", false},
	{"TLS", "", true},
	{"PROXY 1", "PROXY TCP4 192.0.2.7 192.0.2.1 40000 11300\r\n", false},
	{"PROXY 1 and TLS", "PROXY TCP4 192.0.2.7 192.0.2.1 40000 11300\r\n", true},
	{"PROXY 2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x01\x9c\x40\x2c\x24", false},
	{"PROXY 2 and TLS", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x01\x9c\x40\x2c\x24", true},
}

// needStockClient returns the path of the program that runs a client, and skips the test
// if that or the library is missing.
func needStockClient(t *testing.T, program string) string {
	t.Helper()
	if program == "gobeanstalk" {
		path := filepath.Join(t.TempDir(), program)
		servertest.NoError(t, servertest.Build(path, "./testdata/clients/gobeanstalk"))
		return path
	}
	path, err := exec.LookPath(program)
	if err != nil {
		servertest.NeedPeer(t, "%s is not installed: %v", program, err)
	}
	switch program {
	case "node":
		if _, err := os.Stat(filepath.Join(os.Getenv("TRELLIS_FIVEBEANS"), "node_modules/jackd")); err != nil {
			servertest.NeedPeer(t, "the npm packages are not installed: %v", err)
		}
	case "ruby":
		err = exec.Command(path, "-e", `require "beaneater"`).Run()
	case "php":
		err = exec.Command(path, "-r", `require "Pheanstalk/autoload.php";`).Run()
	}
	if err != nil {
		servertest.NeedPeer(t, "the library for %s is not installed: %v", program, err)
	}
	return path
}

// stockClient is a script that runs.
type stockClient struct {
	t     testing.TB
	stdin io.WriteCloser
	out   *bufio.Reader
	wait  func() error
}

func runStockClient(t testing.TB, program, script, port, token string) *stockClient {
	t.Helper()
	cmd := exec.Command(program, filepath.Join("testdata/clients", script), port, token)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(os.Getenv("TRELLIS_FIVEBEANS"), "node_modules"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// One that hangs is ended, so that what it has written comes to its end.
	kill := time.AfterFunc(2*servertest.Patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		kill.Stop()
		_ = cmd.Process.Kill()
	})
	return &stockClient{t, stdin, bufio.NewReader(stdout), cmd.Wait}
}

// line is what it writes next.
func (c *stockClient) line() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("it wrote %q and no more: %v", line, err)
	}
	return strings.TrimSpace(line)
}

func (c *stockClient) goOn() {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, "go on\n"); err != nil {
		c.t.Fatal(err)
	}
}

// end makes sure that it ends by itself.
func (c *stockClient) end() {
	c.t.Helper()
	_ = c.stdin.Close()
	if rest, err := io.ReadAll(c.out); len(rest) > 0 || err != nil {
		c.t.Errorf("it wrote %q besides, %v", rest, err)
	}
	if err := c.wait(); err != nil {
		c.t.Errorf("it ended with %v", err)
	}
}

// Libraries that know nothing of access control raise an error when they are refused, and
// neither hang nor connect again and again, in whatever way their connections reach the server.
func TestStockClientsAuthenticateOrRaiseAnError(t *testing.T) {
	t.Parallel()
	for _, client := range stockClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			program := needStockClient(t, client.program)
			files := servertest.NewCertFiles(t)
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					suffix := ""
					if way.header != "" {
						suffix = ",proxy"
					}
					args := []string{"-l127.0.0.1" + suffix}
					if way.tls {
						args = []string{"--tls-listen=127.0.0.1:0" + suffix, "--tls-cert=" + files.Cert, "--tls-key=" + files.Key}
					}
					args = append(args, "--proxy-from=127.0.0.1", "-V", "--log-format=json", "--auth-file",
						servertest.AuthFile(t, servertest.TokenLine("b", "right", "put,work,read", "billing/*,default")))
					if !way.tls {
						args = append(args, "-p0")
					}
					s := servertest.Ready(servertest.Launch(t, args...), 1)
					connect := func() (net.Conn, error) {
						c, err := net.Dial(s.Addrs[0].Network(), s.Addrs[0].String())
						if err != nil {
							return nil, err
						}
						if _, err := io.WriteString(c, way.header); err != nil || !way.tls {
							return c, err
						}
						return tls.Client(c, files.Client()), nil
					}
					testTokens(t, func(t testing.TB, token string) (*stockClient, *tap) {
						r := newTap(t, connect)
						return runStockClient(t, program, client.script, servertest.PortOf(t, r.listener.Addr().String()), token), r
					})
					if way.header != "" {
						s.WaitText(`"peer":"` + proxiedAs + `"`)
					}
				})
			}
		})
	}
}

// Libraries that know nothing of settings work on a tube that has all of them, but for a pause.
func TestStockClientsWorkOnATubeWithEverySetting(t *testing.T) {
	t.Parallel()
	for _, client := range stockClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			program := needStockClient(t, client.program)
			s := servertest.Start(t)
			c := s.Dial(0)
			c.Send("set-tube billing/x attempts=9 dead=billing/dead disconnects=1 retry-min=1 retry-factor=3 retry-max=9 " +
				"retry-jitter=50 rate=1000/2 burst=9 max-reserved=1 expire=3600 linger=9")
			c.Want("TUBE_SET")
			if setting := c.Data("list-settings billing/x"); strings.Count(setting, ": 0\n") != 1 || strings.Contains(setting, `: ""`) {
				t.Errorf("not every key but paused is set: %s", setting)
			}
			k := runStockClient(t, program, client.script, servertest.PortOf(t, s.Addrs[0].String()), "")
			lines := []string{k.line()}
			k.goOn()
			lines = append(lines, k.line(), k.line())
			k.end()
			if !slices.Equal(lines, []string{"done", "done", "done"}) {
				t.Errorf("it reports %q", lines)
			}
			if got := servertest.Stats(c); got["cmd-delete"] != "3" || got["current-jobs-ready"] != "0" {
				t.Errorf("%s jobs are done, and %s are left", got["cmd-delete"], got["current-jobs-ready"])
			}
		})
	}
}

// tokens are what is tried with each client library.
var tokens = []struct {
	name, token string
	cut         bool
	first, last string // what is reported of the first client and of the last
}{
	{"no token", "", false, "UNKNOWN_COMMAND", "UNKNOWN_COMMAND"},
	{"wrong", "wrong", false, "UNKNOWN_COMMAND", "UNKNOWN_COMMAND"},
	{"right", "right", false, "done", "done"},
	{"reconnect", "right", true, "done", "done"},
}

// testTokens tries a client library, whose connections go through the tap that run makes, with each
// kind of token.
func testTokens(t testing.TB, run func(t testing.TB, token string) (*stockClient, *tap)) {
	t.Helper()
	for _, tt := range tokens {
		c, r := run(t, tt.token)
		check := func(line, want string) {
			t.Helper()
			if want == "done" && line != "done" || want != "done" && !(strings.HasPrefix(line, "error ") && strings.Contains(line, want)) {
				t.Errorf("%s: it reports %q, want %q", tt.name, line, want)
			}
		}
		check(c.line(), tt.first)
		if tt.cut {
			r.cut()
		}
		c.goOn()
		switch again := c.line(); {
		case tt.first != "done" || tt.cut:
			// The connection has gone, and a new one has no token.
			check(again, "")
		default:
			check(again, "done")
		}
		check(c.line(), tt.last)
		c.end()
		// Each of two clients connects once, and libraries may try again.
		if n := r.connections(); n < 2 || n > 10 {
			t.Errorf("%s: %d connections, want 2 to 10", tt.name, n)
		}
	}
}

// Libraries that know of one address work with a balancer in front of all members, with and without TLS.
func TestStockClientsWorkAtEveryMember(t *testing.T) {
	t.Parallel()
	files := servertest.NewCertFiles(t)
	for _, client := range stockClients {
		t.Run(client.name, func(t *testing.T) {
			program := needStockClient(t, client.program)
			clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
				auth := servertest.AuthFile(t, servertest.TokenLine("b", "right", "put,work,read", "billing/*,default"))
				for _, n := range w.Nodes {
					n.Args = append(files.Flags(), "--auth-file="+auth)
				}
				w.StartAll()
				w.Standbys(w.Leader())
				var plain, secure []func() (net.Conn, error)
				for _, n := range w.Nodes {
					addr, addrTLS := n.Clients(), n.Last("listening") // the socket for TLS is opened last
					plain = append(plain, func() (net.Conn, error) { return net.Dial("tcp", addr) })
					secure = append(secure, func() (net.Conn, error) { return tls.Dial("tcp", addrTLS, files.Client()) })
				}
				for _, members := range [][]func() (net.Conn, error){plain, secure} {
					var turn atomic.Int32
					balance := func() (net.Conn, error) { return members[int(turn.Add(1))%len(members)]() }
					testTokens(t, func(t testing.TB, token string) (*stockClient, *tap) {
						r := newTap(t, balance)
						return runStockClient(t, program, client.script, servertest.PortOf(t, r.listener.Addr().String()), token), r
					})
				}
			})
		})
	}
}
