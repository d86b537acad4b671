package cluster

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A balancer that asks each second must not take all members out whenever a leader is chosen.
func TestAMemberThatForwardsStaysReadyForAMomentWithoutALeader(t *testing.T) {
	var answered atomic.Int64
	now := time.Unix(1_000_000, 0)
	addrs := []net.Addr{&net.TCPAddr{}}
	for _, x := range []struct {
		after    time.Duration // since the one before
		f        Forwarding
		leader   bool
		want     string
		whatever string
	}{
		{0, Forwarding{}, true, "opening the clients' port", "it listens to nobody"},
		{0, Forwarding{Addrs: addrs}, true, "attaching", "it was never attached"},
		{0, Forwarding{Addrs: addrs}, false, "no leader is known", "likewise"},
		{0, Forwarding{Addrs: addrs, Attached: true}, true, "", "it is attached"},
		{readyPatience - 1, Forwarding{Addrs: addrs}, false, "", "it was"},
		{1, Forwarding{Addrs: addrs}, false, "no leader is known", "it was too long ago"},
		{0, Forwarding{Addrs: addrs}, true, "attaching", "somebody leads again"},
		{0, Forwarding{Addrs: addrs, Attached: true}, true, "", "it is attached again"},
		{readyPatience - 1, Forwarding{Addrs: addrs}, true, "", "it was"},
	} {
		now = now.Add(x.after)
		if got := x.f.unready(x.leader, &answered, now); got != x.want {
			t.Errorf("%s: %q, want %q", x.whatever, got, x.want)
		}
	}
}
