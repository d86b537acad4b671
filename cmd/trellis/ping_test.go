package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trellis/bench"
	"trellis/binlog/replica/wire/wiretest"
	"trellis/reactor/tlstest"
)

// answering answers the first line of every connection, and returns the
// listener's address. Without an answer it closes the connection.
func answering(t *testing.T, network, addr, answer string) string {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return serveEach(t, l, func(c net.Conn) { answerPing(c, answer) })
}

// answerPing answers the first line, if it is what ping asks.
func answerPing(c net.Conn, answer string) {
	if line, _ := bufio.NewReader(c).ReadString('\n'); line == "list-tube-used\r\n" {
		_, _ = io.WriteString(c, answer)
	}
}

func TestPingTellsByTheAnswerWhetherAServerIsThere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	answering(t, "unix", socket, "USING default\r\n")
	for _, tt := range []struct {
		name, addr string
		ok         bool
	}{
		{"a server", answering(t, "tcp", "127.0.0.1:0", "USING default\r\n"), true},
		{"a server on a UNIX socket", "unix:" + socket, true},
		{"something else", answering(t, "tcp", "127.0.0.1:0", "HTTP/1.1 400 Bad Request\r\n"), false},
		{"half an answer", answering(t, "tcp", "127.0.0.1:0", "USING"), false},
		{"nobody", "127.0.0.1:1", false},
	} {
		cmd := patientCommand()
		cmd.SetArgs([]string{"ping", "-a", tt.addr})
		if err := cmd.Execute(); err == nil != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestPingIsNotPatientForEver(t *testing.T) {
	l := listen(t) // accepts nobody
	defer l.Close()
	a, err := bench.ParseAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(&a, "", time.Now().Add(10*time.Millisecond)); err == nil {
		t.Error("no error")
	}
}

// readyz serves the reason why a member is not ready. Config is nil for plain HTTP.
func readyz(t *testing.T, config *tls.Config) (addr string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		if r.URL.Path == "/readyz" {
			_, _ = io.WriteString(w, "standby\n")
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if s.TLS = config; config != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestPingAsksAStandbyOverTLS(t *testing.T) {
	authority := tlstest.NewAuthority("authority")
	dir := t.TempDir()
	ca, _ := tlstest.Write(t, dir, "ca", authority.Cert)
	cert, key := tlstest.Write(t, dir, "client", authority.Issue("client", nil))
	config := &tls.Config{Certificates: []tls.Certificate{authority.Issue("localhost", nil)}}
	mutual := config.Clone()
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, authority.Pool
	plain, secured, guarded := readyz(t, nil), readyz(t, config), readyz(t, mutual)
	for _, tt := range []struct {
		args, env string // separated by blanks
		want      string // in the error; empty for none
	}{
		{args: plain},
		{args: "https://" + secured + " --ca " + ca},
		{args: "https://" + secured + "/ --tls --ca " + ca},
		{args: "https://" + secured, env: "TRELLIS_CA=" + ca},
		{args: "https://" + guarded + " --ca " + ca + " --cert " + cert + " --key " + key},
		{args: "https://" + guarded + " --ca " + ca, want: "certificate required"},
		{args: "https://" + secured, want: "certificate"},
		{args: "https://" + secured + " --ca /nosuch", want: "/nosuch"},
		{args: "https://" + plain + " --ca " + ca, want: "HTTP response to HTTPS client"},
		{args: secured, want: "HTTP request to an HTTPS server"},
		{args: plain + " --ca " + ca, want: "--ca without --tls"},
	} {
		t.Run(tt.args+" "+tt.env, func(t *testing.T) {
			for _, name := range []string{"TRELLIS_TLS", "TRELLIS_CA", "TRELLIS_CERT", "TRELLIS_KEY"} {
				t.Setenv(name, "")
			}
			if name, value, ok := strings.Cut(tt.env, "="); ok {
				t.Setenv(name, value)
			}
			cmd := patientCommand()
			cmd.SetArgs(append([]string{"ping", "-a", "127.0.0.1:1", "--standby"}, strings.Fields(tt.args)...))
			err := cmd.Execute()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Whoever checks the health has given it so much time, and no more.
func TestPingHasOneDeadlineForBothQuestions(t *testing.T) {
	l := listen(t) // accepts nobody
	defer l.Close()
	cmd := patientCommand()
	cmd.SetArgs([]string{"ping", "-a", l.Addr().String(), "--standby", readyz(t, nil), "--timeout", "10ms"})
	if err := cmd.Execute(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second question was asked when the time was over: %v", err)
	}
}

// healthCheck is what the image asks, as arguments of the tool.
func healthCheck(t *testing.T) (args []string) {
	t.Helper()
	b, err := os.ReadFile("../trellisd/deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "\\\n", " ")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "HEALTHCHECK "); ok {
			_, command, _ := strings.Cut(rest, "CMD ")
			if err := json.Unmarshal([]byte(command), &args); err != nil || len(args) == 0 || args[0] != "/usr/bin/trellis" {
				t.Fatalf("%s: %v", line, err)
			}
			return args[1:]
		}
	}
	t.Fatal("the image has no health check")
	return nil
}

// The image's health check is content with a leader, with a member that stands by and with
// one that waits for the others, and with nobody else.
func TestTheImagesHealthCheckIsContentWithEveryMemberThatIsWell(t *testing.T) {
	t.Parallel()
	healthy := func(clients, http string) error {
		cmd := patientCommand()
		cmd.SetArgs(append(healthCheck(t), "-a", clients, "--standby", http))
		return cmd.Execute()
	}
	become := func(want bool, clients, http string) {
		t.Helper()
		err := errors.New("not asked")
		for deadline := time.Now().Add(patience); (err == nil) != want; err = healthy(clients, http) {
			if time.Now().After(deadline) {
				t.Fatalf("healthy: %v, not %v", err, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	var all, clients, https []string
	var nodes []*node
	for _, name := range []string{"n1", "n2", "n3"} {
		n := newNode(t, name)
		nodes = append(nodes, n)
		all = append(all, n.String())
		clients, https = append(clients, "unix:"+filepath.Join(t.TempDir(), "s")), append(https, wiretest.ReservedAddr(t))
	}
	start := func(i int) {
		nodes[i].start(t, "-l", clients[i], "--http", https[i], "--cluster", strings.Join(all, ","))
	}
	if healthy(clients[0], https[0]) == nil {
		t.Error("a member is healthy that does not run")
	}
	start(0)
	become(true, clients[0], https[0]) // it waits for the others
	start(1)
	start(2)
	leads := -1
	for deadline := time.Now().Add(patience); leads < 0; time.Sleep(10 * time.Millisecond) {
		for i, addr := range clients {
			cmd := patientCommand()
			if cmd.SetArgs([]string{"ping", "-a", addr}); cmd.Execute() == nil {
				leads = i
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody leads")
		}
	}
	for i := range nodes {
		become(true, clients[i], https[i])
	}
	nodes[leads].stop()
	if healthy(clients[leads], https[leads]) == nil {
		t.Error("a member is healthy that was killed")
	}
	alone := startServer(t, "--http", https[leads]) // its own port is another one
	if err := healthy("unix:"+filepath.Join(t.TempDir(), "none"), https[leads]); err == nil {
		t.Errorf("a server that is no member stands by: %v", alone.argv)
	}
}
