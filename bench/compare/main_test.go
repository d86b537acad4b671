package compare

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/bench/internal/faulty"
	"trellis/binlog/replica/wire/wiretest"
)

// fakeEnv makes this test program a server of package faulty. The first argument is its port. With "lossy" as the second
// it loses jobs, with "broken" it ends at once, and with "once" it ends at once when it is started for the second time on
// the directory that follows. With "member", the name of a member and a file behind it, it serves nobody but as the
// second member, but with "everybody", and lists in the file who was started. With "dropping" as the last one it closes every connection that
// puts. With "parent" instead of a port it is no server, but starts one and tells its address. It knows trellisd's options
// of TLS; "plain" makes it refuse them, and "open" ask no client for a certificate.
const fakeEnv = "TRELLIS_COMPARE_TEST_FAKE"

func TestMain(m *testing.M) {
	if os.Getenv(fakeEnv) != "" {
		serveFake(os.Args[1:])
		return
	}
	m.Run()
}

func serveFake(args []string) {
	if args[0] == "parent" {
		startAnother()
	}
	if len(args) > 2 && args[1] == "once" && os.Mkdir(filepath.Join(args[2], "log"), 0o700) != nil {
		fmt.Fprintln(os.Stderr, "I do not know this log")
		os.Exit(1)
	}
	if len(args) > 1 && args[1] == "broken" {
		fmt.Fprintln(os.Stderr, "I do not know that option")
		os.Exit(5)
	}
	if len(args) > 1 && args[1] == "plain" && slices.Contains(args, "--tls-listen") {
		fmt.Fprintln(os.Stderr, "I do not know TLS")
		os.Exit(5)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(args) > 3 && args[1] == "member" {
		standBy(l, args[2], args[3], slices.Contains(args, "everybody"))
	}
	if i := slices.Index(args, "--tls-listen"); i >= 0 {
		config := new(tls.Config)
		if slices.Contains(args, "--tls-client-ca") && args[1] != "open" {
			config.ClientAuth = tls.RequireAnyClientCert
		}
		serveFakeTLS(args[i+1], args[i+3], args[i+5], config)
	}
	var faults faulty.Faults
	if len(args) > 1 && args[1] == "lossy" {
		faults.Lose = 50
	}
	if args[len(args)-1] == "dropping" {
		faults.Drop = 1
	}
	faulty.Serve(l, faults)
}

// startAnother starts a server, tells where it listens, and does not return.
func startAnother() {
	all, err := Server{Name: "child", Command: os.Args[0] + " {port}"}.start(context.Background(), "", "", "", nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(all[0].addr.Name)
	select {}
}

// standBy notes who was started, and does not return in any member but the second, and there when all have been.
func standBy(l net.Listener, node, file string, everybody bool) {
	name, _, _ := strings.Cut(node, "=")
	list, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(list, name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if name != "n2" && !everybody {
		l.Close()
		time.Sleep(time.Hour) // the runtime ends a program without cgo in which nothing can happen
	}
	for { // a member may take long to start, and is killed when the one that serves is loaded no more
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if strings.Count(string(text), "\n") >= clusterSize {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// serveFakeTLS serves TLS too.
func serveFakeTLS(addr, cert, key string, config *tls.Config) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config.Certificates = []tls.Certificate{pair}
	l, err := tls.Listen("tcp", addr, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go faulty.Serve(l, faulty.Faults{})
}

// reservePorts keeps the ports of servers that this test starts from everybody who chooses one, so that no stranger answers
// in the place of a server.
func reservePorts(t *testing.T) {
	was := freePorts
	t.Cleanup(func() { freePorts = was })
	freePorts = func(n int) (ports []int, err error) {
		for range n {
			addr, err := netip.ParseAddrPort(wiretest.ReservedAddr(t))
			if err != nil {
				return nil, err
			}
			ports = append(ports, int(addr.Port()))
		}
		return ports, nil
	}
}

// fakeCommand is a server of this program, for comparisons.
func fakeCommand(t *testing.T, name, args string) Server {
	t.Helper()
	reservePorts(t)
	t.Setenv(fakeEnv, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Server{Name: name, Command: self + " {port} " + args}
}

// beanstalkd is the server that everybody has at hand. Without it, the test is skipped, or fails when
// TRELLIS_NEED_PEERS is 1.
func beanstalkd(t *testing.T, args string) Server {
	t.Helper()
	reservePorts(t)
	return Server{Name: "beanstalkd", Command: peer(t, "beanstalkd") + " -l {host} -p {port} " + args}
}

// peer is the path of a program that the test skips, or fails, without.
func peer(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("TRELLIS_NEED_PEERS") == "1" {
			t.Fatalf("TRELLIS_NEED_PEERS is set, and %s is not installed: %v", program, err)
		}
		t.Skipf("%s is not installed: %v", program, err)
	}
	return path
}

// faultTimeout is how long a load waits for what a faulty server does not send.
const faultTimeout = 2 * time.Second
