package cluster

import (
	"context"
	"encoding/json"
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

// watch learns where the leader serves clients, so that this node can say it.
func (m *Member) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	last := ""
	for {
		m.look(ctx)
		if now := m.State(); now != last {
			last = now
			m.changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look asks the leader, unless it has told already.
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
	if m.cfg.TLS == nil || time.Since(m.asked) < announceInterval {
		return
	}
	m.asked = time.Now()
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

// State tells in a few words why clients are not served here; "" if they are.
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
