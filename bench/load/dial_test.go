package load

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"trellis/bench"
)

func TestALinkLocalAddressHasItsInterface(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		t.Skip("this machine has no interfaces", err)
	}
	for zone, want := range map[string]int{"": 0, "%" + all[0].Name: all[0].Index, fmt.Sprintf("%%%d", all[0].Index): all[0].Index} {
		addr, err := bench.ParseAddress("[fe80::1" + zone + "]:1")
		if err != nil {
			t.Fatal(err)
		}
		sa, family := sockaddr(&addr)
		if got, ok := sa.(*unix.SockaddrInet6); !ok || family != unix.AF_INET6 || int(got.ZoneId) != want {
			t.Errorf("zone %q: got %+v, want %d", zone, sa, want)
		}
	}
}
