package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheClientOfAProxyIsShownInItsPlace(t *testing.T) {
	t.Parallel()
	s := start(t, "-l127.0.0.1,proxy", "-lunix:"+filepath.Join(socketDir(t), "s")+",proxy", "--proxy-from=127.0.0.0/8",
		"--auth-file", authFile(t, tokenLine("b", "right", "all", "*")))
	for i := range s.addrs {
		c := s.dial(i)
		c.send("PROXY TCP4 192.0.2.7 192.0.2.1 40000 11300", "auth right")
		c.want("AUTHENTICATED")
		if stats := c.data("stats-conn"); !strings.Contains(stats, `addr: "192.0.2.7:40000"`) {
			t.Errorf("the client's own statistics:\n%s", stats)
		}
	}
	wrong := s.dial(0)
	wrong.send("PROXY TCP4 192.0.2.8 192.0.2.1 40000 11300", "auth wrong")
	wrong.want("UNAUTHORIZED")
	s.waitText(`"peer":"192.0.2.8:40000"`)
	s.waitText(`"peer":"192.0.2.7:40000"`)
}

func TestInheritedSocketsMayBeForProxies(t *testing.T) {
	t.Parallel()
	tcp, _ := passable(t, "tcp", "127.0.0.1:0")
	env := []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=proxy"}
	s := ready(activated(t, []*os.File{tcp}, env, "-V", "--log-format=json", "--proxy-from=127.0.0.1"), 1)
	c := s.dial(0)
	c.send("PROXY UNKNOWN", "use inherited")
	c.want("USING inherited")

	tcp, _ = passable(t, "tcp", "127.0.0.1:0")
	p := activated(t, []*os.File{tcp}, env)
	if code := p.wait(); code != exitListen {
		t.Errorf("without --proxy-from: exit code %d", code)
	}
	p.waitText("is named proxy, and no proxy may connect to it; give --proxy-from")
}
