//go:build proof

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"trellis/binlog/replica/wire/wiretest"
)

// startHAProxy starts HAProxy as the documents say, in front of a town's nodes, and returns its address.
func startHAProxy(t testing.TB, w *town) (addr string) {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		needPeer(t, "HAProxy is not installed: %v", err)
	}
	addr = wiretest.ReservedAddr(t)
	config := strings.Replace(documentBlock(t, "balancer"), "bind :11300", "bind "+addr, 1)
	for i, n := range w.nodes {
		config = strings.Replace(config, fmt.Sprintf("q%d:11300", i+1), n.clients()+" port "+portOf(t, n.http), 1)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	no(t, os.WriteFile(file, []byte(config), 0o600))
	launchCommand(t, exec.Command(path, "-db", "-f", file))
	w.eventually("HAProxy listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return addr
}

// HAProxy spreads clients over all members. Those of members that go on notice nothing of the leader's end, and
// those who come then are served.
func TestHAProxyBalancesAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	undisturbed(t, 3, func(t testing.TB, w *town) {
		w.startAll()
		l := w.leader()
		w.standbys(l)
		addr := startHAProxy(t, w)
		connect := func() *client { return dial(t, address{"tcp", addr}) }
		via := regexp.MustCompile(`\nvia: "(.*)"\n`)
		at := map[string]*client{} // by member, that of the leader by ""
		var all []*client
		w.eventually("each member has a client", func() bool {
			c := connect()
			all = append(all, c)
			name := ""
			if m := via.FindStringSubmatch(c.data("stats-conn")); m != nil {
				name = m[1]
			}
			at[name] = c
			return len(at) == len(w.nodes)
		})
		if most := 2 * len(w.nodes); len(all) > most {
			t.Errorf("it took %d connections until each member had one", len(all))
		}
		for name, c := range at {
			c.send("put 0 0 600 1", "x", "reserve")
			id := 0
			if _, err := fmt.Sscanf(c.line(), "INSERTED %d", &id); err != nil {
				t.Fatal(name, err)
			}
			c.want(fmt.Sprintf("RESERVED %d 1", id), "x")
		}
		l.kill()
		own := at[""]
		own.wantEOF()
		delete(at, "")
		for _, c := range at {
			c.send("touch-all", "list-tube-used")
			c.want("TOUCHED_ALL 1", "USING default")
		}
		for range 4 {
			c := connect()
			c.send("list-tube-used")
			c.want("USING default")
		}
	})
}
