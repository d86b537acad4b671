package accept

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// expectKeepAlive checks the options of a socket, which is asked after 5 minutes whether it is there.
func expectKeepAlive(t *testing.T, what string, fd int) {
	t.Helper()
	want := append([]option{
		{unix.IPPROTO_TCP, keepIdle, 300},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 50},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
	}, unacknowledged(450*time.Second)...)
	for _, o := range want {
		if n, err := unix.GetsockoptInt(fd, o.level, o.name); err != nil || n != o.value {
			t.Errorf("%s: option %d is %d, %v, want %d", what, o.name, n, err, o.value)
		}
	}
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE); err != nil || n == 0 {
		t.Errorf("%s: SO_KEEPALIVE is %d, %v", what, n, err)
	}
}

func TestConnectionsOfAllListenersAreAskedWhetherTheyAreThere(t *testing.T) {
	t.Parallel()
	admitted := make(chan string, 1)
	ts := serveProxies(t, hooks{}, func(c *Config) { c.KeepAlive = 5 * time.Minute })
	ts.admit = func(fd int) {
		what := <-admitted
		if what != "UNIX" {
			expectKeepAlive(t, what, fd)
		}
		ts.KeepAlive(fd)
	}
	listen := func() net.Listener {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // its sockets do not take all options
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	inherited := listen()
	early := dial(t, inherited.Addr()) // before the server has set anything
	admitted <- "connected before"
	ts.listenOn(inherited, nil, nil)
	early.do("use a\r\n", "USING a\r\n")
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	for _, x := range []struct {
		what string
		addr net.Addr
	}{
		{"plain", ts.listenOn(listen(), nil, nil)},
		{"connected afterwards", inherited.Addr()},
		{"TLS", tlsAddr{ts.listenOn(listen(), nil, serverTLS()), tlsClient()}},
		{"UNIX", ts.listenOn(unix, err, nil)},
	} {
		admitted <- x.what
		dial(t, x.addr).do("use a\r\n", "USING a\r\n")
	}
	admitted <- "PROXY"
	dial(t, ts.listenOn(Proxied{listen()}, nil, nil)).do(proxyHeaders[0].header+"use a\r\n", "USING a\r\n")
}

func TestShortAndLongTimesOfKeepAliveAreWhatSystemsTake(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration][]int{
		time.Second:     {1, 1, 3},
		2 * time.Second: {2, 1, 3},
		time.Hour:       {3600, 600, 3},
		100 * time.Hour: {32767, 5462, 3},
	} {
		for i, o := range keepAlive(after)[1:4] {
			if o.value != want[i] {
				t.Errorf("%v: option %d is %d, want %d", after, o.name, o.value, want[i])
			}
		}
	}
	if o := keepAlive(0); o != nil {
		t.Errorf("without a time: %v", o)
	}
}
