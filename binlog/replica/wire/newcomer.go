package wire

import (
	"maps"

	"trellis/binlog/replica/member"
)

// refuseUnlisted says why a hello is refused whose sender SetPeers has not named and which
// fits otherwise, or nil if the sender is a newcomer: a member of which this node has not
// heard yet. See doc.go.
func (m *members) refuseUnlisted(h hello) *refusal {
	if h.index <= m.index || h.from.ID == m.self.ID {
		s := refused
		if h.index > 0 {
			s = notMember
		}
		return refuse(s, "cluster %s has no member %s, as far as %s knows", m.cluster, h.from.ID, m.self.Name)
	}
	err := member.CheckName(h.from.Name)
	if err == nil {
		err = member.CheckAddr(h.from.Addr)
	}
	switch {
	case h.from.ID == 0 || h.from.Incarnation == 0:
		return refuse(refused, "a member without an id or without an incarnation")
	case err != nil:
		return refuse(refused, "%v", err)
	}
	return nil
}

// admit says why a hello is refused. If it is not, its sender is a peer afterwards.
func (t *Transport) admit(h hello) *refusal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.refuse(h); r != nil || h.purpose == purposeControl {
		return r
	}
	old := t.members.Load()
	if p := old.peers[h.from.ID]; p != nil {
		if p.newcomer > 0 {
			p.newcomer = max(p.newcomer, h.index)
		}
		return nil
	}
	next := *old
	next.peers = maps.Clone(old.peers)
	if p := leastNewcomer(old.peers); p != nil {
		if p.newcomer >= h.index {
			return refuse(refused, "%d members that %s does not know are all that it takes", maxNewcomers, old.self.Name)
		}
		t.disconnect(p)
		delete(next.peers, p.ID)
	}
	t.cfg.Log.Info("a member came that this node has not heard of yet", "peer", h.from.String(), "id", h.from.ID.String())
	p := t.connect(h.from)
	p.newcomer = h.index
	next.peers[p.ID] = p
	t.members.Store(&next)
	return nil
}

// leastNewcomer is who makes room for another newcomer: the one that knows of the
// earliest entry. It is nil if there is room.
func leastNewcomer(peers map[member.ID]*peer) (least *peer) {
	n := 0
	for _, p := range peers {
		if p.newcomer == 0 {
			continue
		}
		n++
		if least == nil || p.newcomer < least.newcomer {
			least = p
		}
	}
	if n < maxNewcomers {
		return nil
	}
	return least
}
