package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

func TestTheClientOfAProxyIsShownInItsPlace(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "-l127.0.0.1,proxy", "-lunix:"+filepath.Join(servertest.SocketDir(t), "s")+",proxy", "--proxy-from=127.0.0.0/8",
		"--auth-file", servertest.AuthFile(t, servertest.TokenLine("b", "right", "all", "*")))
	for i := range s.Addrs {
		c := s.Dial(i)
		c.Send("PROXY TCP4 192.0.2.7 192.0.2.1 40000 11300", "auth right")
		c.Want("AUTHENTICATED")
		if stats := c.Data("stats-conn"); !strings.Contains(stats, `addr: "192.0.2.7:40000"`) {
			t.Errorf("the client's own statistics:\n%s", stats)
		}
	}
	wrong := s.Dial(0)
	wrong.Send("PROXY TCP4 192.0.2.8 192.0.2.1 40000 11300", "auth wrong")
	wrong.Want("UNAUTHORIZED")
	s.WaitText(`"peer":"192.0.2.8:40000"`)
	s.WaitText(`"peer":"192.0.2.7:40000"`)
}

func TestInheritedSocketsMayBeForProxies(t *testing.T) {
	t.Parallel()
	tcp, _ := servertest.Passable(t, "tcp", "127.0.0.1:0")
	env := []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=proxy"}
	s := servertest.Ready(servertest.Activated(t, []*os.File{tcp}, env, "-V", "--log-format=json", "--proxy-from=127.0.0.1"), 1)
	c := s.Dial(0)
	c.Send("PROXY UNKNOWN", "use inherited")
	c.Want("USING inherited")

	tcp, _ = servertest.Passable(t, "tcp", "127.0.0.1:0")
	p := servertest.Activated(t, []*os.File{tcp}, env)
	if code := p.Wait(); code != servertest.ExitListen {
		t.Errorf("without --proxy-from: exit code %d", code)
	}
	p.WaitText("is named proxy, and no proxy may connect to it; give --proxy-from")
}
