package cluster

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/cmd/internal/control"
)

// leader is a leader elsewhere.
type leader struct {
	id      member.ID
	term    uint64
	clients string // where it serves them; "" if that is not known yet
}

const (
	watchInterval = 100 * time.Millisecond
	askTimeout    = time.Second
)

// watch forwards clients to whoever leads, and reports changes of this node's state. Others are asked beside
// that: who is gone does not answer, and trunks of the leader before are to end at once.
func (m *Member) watch(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	looks := make(chan struct{}, 1) // holds one while a look is under way
	last := ""
	m.often(ctx, func() {
		select {
		case looks <- struct{}{}:
			looking.Go(func() {
				m.look(ctx)
				<-looks
			})
		default:
		}
		m.forward()
		if now := m.State() + m.Unready(); now != last {
			last = now
			m.changed()
		}
	})
}

// often calls f every watchInterval, and when another member leads, until ctx ends.
func (m *Member) often(ctx context.Context, f func()) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		other := m.node.Load().OtherLeader()
		f()
		select {
		case <-ctx.Done():
			return
		case <-other:
		case <-ticker.C:
		}
	}
}

// look asks the leader where it serves clients, so that this node can say it, unless it has told already.
func (m *Member) look(ctx context.Context) {
	st := m.node.Load().Status()
	known := m.leader.Load()
	switch {
	case st.Leader == 0 || st.Leads:
		m.leader.Store(nil)
		if !st.Leads {
			m.announce(ctx, st)
		}
		return
	case known != nil && known.id == st.Leader && known.term == st.Term && known.clients != "":
		return
	}
	now := &leader{id: st.Leader, term: st.Term}
	for _, o := range st.Members {
		if o.ID != st.Leader {
			continue
		}
		if s := m.askStatus(ctx, o.Addr); s != nil {
			now.clients = s.Clients // if it is "", it is asked again
		}
	}
	m.leader.Store(now)
}

// announceInterval is between two questions to the others who the members are.
const announceInterval = time.Second

// announce asks the others who the members are, while this node hears no leader: that may be one
// that was added while this node was away. Its certificate is taken for a member's
// if a member says so. Without TLS there is none to judge.
func (m *Member) announce(ctx context.Context, st replica.Status) {
	if m.cfg.TLS == nil || time.Since(m.lastAsk) < announceInterval {
		return
	}
	m.lastAsk = time.Now()
	known := m.store.Identity().Cluster.Members
	said := make(chan []member.Member, len(st.Members))
	for _, o := range st.Members {
		go func() { said <- m.askMembers(ctx, o.Addr) }()
	}
	for range st.Members {
		known = append(known, <-said...)
	}
	m.transport.Announce(known)
}

// askStatus asks a node how it sees the cluster; nil if it does not answer.
func (m *Member) askStatus(ctx context.Context, addr string) *control.Status {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := json.Marshal(control.Request{Op: control.OpStatus})
	if err != nil {
		return nil
	}
	resp, err := m.call(ctx, addr, req)
	s := new(control.Status)
	if err != nil || json.Unmarshal(resp, s) != nil {
		return nil
	}
	return s
}

// readyPatience is how long a member that forwards its clients stays ready without a leader. They wait
// for the next one.
const readyPatience = 3 * time.Second

// Unready tells in a few words why a client's command would not be answered here now; "" if it would.
func (m *Member) Unready() string {
	f := m.cfg.Queue.Forwarding()
	if f == nil {
		why := m.State()
		if why == "" {
			m.lastAnswer.Store(time.Now().UnixNano())
		}
		return why
	}
	return f.unready(m.node.Load().Status(), &m.lastAnswer, time.Now())
}

// unready is Unready of a member that forwards its clients. answered is when it was ready last. A member
// that was just started is not ready before it has what the others had then, so that whoever restarts one
// after the other waits for that.
func (f *Forwarding) unready(st replica.Status, answered *atomic.Int64, now time.Time) string {
	leader := st.Leader != 0
	switch {
	case len(f.Addrs) == 0 && (f.Attached || leader):
		return "opening the clients' port"
	case f.Attached && st.Applied >= f.Fence:
		answered.Store(now.UnixNano())
		return ""
	case len(f.Addrs) > 0 && now.Sub(time.Unix(0, answered.Load())) < readyPatience:
		return ""
	case f.Attached:
		return "catching up"
	case leader:
		return "attaching"
	}
	return "no leader is known"
}

// State tells in a few words why this member does not serve clients as the leader; "" if it does.
func (m *Member) State() string {
	node := m.node.Load()
	if node == nil {
		return "waiting for the other members"
	}
	if q := m.cfg.Queue.Serving(); q != nil {
		switch {
		case q.Draining:
			return "draining"
		case len(q.Addrs) > 0:
			return ""
		}
		return "leader, opening the clients' port"
	}
	return m.standby(node.Status())
}

func (m *Member) standby(st replica.Status) string {
	if st.Leads {
		return "leader, not serving yet"
	}
	for _, o := range st.Members {
		if o.ID != st.Leader {
			continue
		}
		text := "standby, leader is " + o.Name
		if l := m.leader.Load(); l != nil && l.id == o.ID && l.clients != "" {
			text += " " + l.clients
		}
		return text
	}
	return "standby, no leader is known"
}
