package reactor

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Another process that has the listener too may shut it down. Serve then returns,
// and clients that were accepted are served on.
func TestAListenerThatIsShutDownElsewhereEndsServe(t *testing.T) {
	t.Parallel()
	plainNetworks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, hooks{})
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = t.TempDir() + "/s"
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		file, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		served := make(chan error, 1)
		ts.serving.Go(func() { served <- ts.Serve(l) })
		c := dial(t, l.Addr())
		c.do("use a\r\n", "USING a\r\n")
		if err := unix.Shutdown(int(file.Fd()), unix.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		if err := <-served; !errors.Is(err, unix.EINVAL) {
			t.Errorf("Serve has returned %v", err)
		}
		c.do("use b\r\n", "USING b\r\n")
		ts.dial().do("use c\r\n", "USING c\r\n") // by the other listener
	})
}
