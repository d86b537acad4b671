//go:build proof

package cluster

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
	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

// startHAProxy starts HAProxy as the documents say, in front of a town's nodes, and returns its address.
func startHAProxy(t testing.TB, w *clustertest.Cluster) (addr string) {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		servertest.NeedPeer(t, "HAProxy is not installed: %v", err)
	}
	addr = wiretest.ReservedAddr(t)
	config := strings.Replace(servertest.DocumentBlock(t, "balancer"), "bind :11300", "bind "+addr, 1)
	for i, n := range w.Nodes {
		config = strings.Replace(config, fmt.Sprintf("q%d:11300", i+1), n.Clients()+" port "+servertest.PortOf(t, n.HTTP), 1)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	servertest.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	servertest.LaunchCommand(t, exec.Command(path, "-db", "-f", file))
	w.Eventually("HAProxy listens", func() bool {
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
	clustertest.Undisturbed(t, 3, func(t testing.TB, w *clustertest.Cluster) {
		w.StartAll()
		l := w.Leader()
		w.Standbys(l)
		addr := startHAProxy(t, w)
		connect := func() *servertest.Client { return servertest.Dial(t, servertest.AddrOn("tcp", addr)) }
		via := regexp.MustCompile(`\nvia: "(.*)"\n`)
		at := map[string]*servertest.Client{} // by member, that of the leader by ""
		var all []*servertest.Client
		w.Eventually("each member has a client", func() bool {
			c := connect()
			all = append(all, c)
			name := ""
			if m := via.FindStringSubmatch(c.Data("stats-conn")); m != nil {
				name = m[1]
			}
			at[name] = c
			return len(at) == len(w.Nodes)
		})
		if most := 2 * len(w.Nodes); len(all) > most {
			t.Errorf("it took %d connections until each member had one", len(all))
		}
		for name, c := range at {
			c.Send("put 0 0 600 1", "x", "reserve")
			id := 0
			if _, err := fmt.Sscanf(c.Line(), "INSERTED %d", &id); err != nil {
				t.Fatal(name, err)
			}
			c.Want(fmt.Sprintf("RESERVED %d 1", id), "x")
		}
		l.Kill()
		own := at[""]
		own.WantEOF()
		delete(at, "")
		for _, c := range at {
			c.Send("touch-all", "list-tube-used")
			c.Want("TOUCHED_ALL 1", "USING default")
		}
		for range 4 {
			c := connect()
			c.Send("list-tube-used")
			c.Want("USING default")
		}
	})
}
