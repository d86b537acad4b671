package cluster

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/wire"
)

// A balancer that asks each second must not take all members out whenever a leader is chosen.
func TestAMemberThatForwardsStaysReadyForAMomentWithoutALeader(t *testing.T) {
	const applied = 7
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
		{0, Forwarding{Addrs: addrs, Attached: true, Fence: applied + 1}, true, "", "likewise, and it lacks something"},
		{1, Forwarding{Addrs: addrs, Attached: true, Fence: applied + 1}, true, "catching up", "it lacks that for long"},
		{0, Forwarding{Addrs: addrs, Attached: true, Fence: applied}, true, "", "it has all"},
	} {
		now = now.Add(x.after)
		st := replica.Status{Applied: applied}
		if x.leader {
			st.Leader = 1
		}
		if got := x.f.unready(st, &answered, now); got != x.want {
			t.Errorf("%s: %q, want %q", x.whatever, got, x.want)
		}
	}
}

// Trunks of a leader before end when another one leads, however long those do not answer who are asked where it serves.
func TestAMemberKnowsWhoLeadsWhileNobodyAnswersIt(t *testing.T) {
	t.Parallel()
	old := uint32(replica.VersionOfTrunks - 1) // nobody forwards clients: no loop asks who leads
	r := newRigOf(t, false, old, old, old)
	l, _ := r.leader(-1)
	g := r.others(l)[0]
	defer r.net.hang(r.nodes[g].Addr)()
	for range 2 { // it asks the first one, and hears of the next one meanwhile
		var before uint64
		r.eventually("another member leads", func() bool {
			l, _ := r.leader(-1)
			before = r.members[l].Status().Term
			_, err := r.members[l].control(t.Context(), wire.Caller{}, []byte(`{"op":"transfer"}`), nil)
			return err == nil
		})
		r.eventually("the member knows of it", func() bool {
			m := r.members[g]
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.Status().Leads || m.reign != nil && m.reign.term > before
		})
	}
}
