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
		return
	case known != nil && known.id == st.Leader && known.term == st.Term && known.clients != "":
		return
	}
	now := &leader{id: st.Leader, term: st.Term}
	for _, o := range st.Members {
		if o.ID == st.Leader {
			now.clients = m.askClients(ctx, o.Addr)
		}
	}
	m.leader.Store(now)
}

// askClients asks a node where it serves clients; "" if it does not answer or serves none.
func (m *Member) askClients(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := json.Marshal(control.Request{Op: control.OpStatus})
	if err != nil {
		return ""
	}
	resp, err := m.call(ctx, addr, req)
	var s control.Status
	if err != nil || json.Unmarshal(resp, &s) != nil {
		return "" // it is asked again
	}
	return s.Clients
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
