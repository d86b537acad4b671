package replica

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"trellis/binlog/replica/member"
)

// Status is what a node knows of itself and the cluster.
type Status struct {
	Self    member.ID
	Leader  member.ID // 0 if none is known
	Leads   bool      // this node has been elected
	Serves  bool      // the queue serves
	Term    uint64
	Commit  uint64 // index of the last entry that is committed, as far as the node knows
	Applied uint64 // index of the last entry that was applied
	ToLoad  uint64 // percent that is left of what this node has to load before it can lead; 0 if it can
	First   uint64 // index of the first entry in the log
	Last    uint64 // index of the last entry
	Members []MemberStatus

	Version uint32 // of entries: the latest that may be written; 0 is the first

	Storing  int64 // raft's requests that wait for the disk
	Applying int64 // and those that wait to be applied

	Stamp         int64  // cluster time of the last entry, nanoseconds since 1970
	Snapshot      uint64 // index of the current snapshot's last entry
	SnapshotBytes int64
	SnapshotStamp int64 // cluster time of that entry, nanoseconds since 1970; 0 before the first one
	LogBytes      int64

	// SnapshotTook is how long the last snapshot took that this node has taken since its
	// start; 0 if it has taken none.
	SnapshotTook time.Duration
	Free         int64 // bytes on the disk; below zero if nobody knows

	// Uncommitted is how long the oldest change or read round has waited for its commit, to
	// a tick; 0 if none waits, and on a node that does not lead.
	Uncommitted time.Duration
	Elections   uint64 // that this node has won since its start
	Depositions uint64 // leaderships that it has lost since then, or given up, or handed over
	ReadRounds  uint64 // that it has asked for since then
}

// MemberStatus is what a node knows of a member.
type MemberStatus struct {
	member.Member
	Voter bool // it votes, and the change that has given it its vote has come to its end
	// Alive and Match are known to the leader only: whether the member was heard within
	// an election's time, and up to which entry it has what the leader has.
	// Behind is about how many bytes of the log it lacks. ToLoad is what it has said of itself:
	// see Status.
	Alive  bool
	Match  uint64
	Behind int64
	ToLoad uint64
}

// raftStatus is what the raft goroutine tells of itself, once a tick and whenever a leadership
// begins or ends.
type raftStatus struct {
	role         raft.StateType
	term, commit uint64
	lead         uint64
	toLoad       uint64
	match        map[uint64]uint64
	alive        map[uint64]bool
	reports      map[uint64]report

	uncommitted                    time.Duration
	elections, depositions, rounds uint64
}

func (c *consensus) publish() {
	st := c.rn.BasicStatus()
	p := &raftStatus{role: st.RaftState, term: st.GetTerm(), commit: st.GetCommit(), lead: st.Lead, toLoad: c.toLoad()}
	p.elections, p.depositions, p.rounds = c.elections, c.depositions, c.rounds
	if c.leadership != nil {
		p.uncommitted = time.Duration(c.tick-c.leadership.oldest(c.tick)) * Tick
	}
	if st.RaftState == raft.StateLeader {
		p.match, p.alive, p.reports = map[uint64]uint64{}, map[uint64]bool{}, maps.Clone(c.reports)
		c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
			p.match[id], p.alive[id] = pr.Match, c.alive(id)
		})
	}
	if was := c.node.status.Swap(p); was == nil || was.lead != p.lead || was.term != p.term {
		c.node.leader.tell()
	}
}

// news wakes those who wait for something to become true.
type news struct {
	mu   sync.Mutex
	next chan struct{} // closed when it may have; guarded by mu
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.next)
	n.next = make(chan struct{})
}

func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

// OtherLeader returns a channel that is closed when Status tells of another leader or term than before the
// call, or that this node leads.
func (n *Node) OtherLeader() <-chan struct{} { return n.leader.wait() }

// alive reports whether a member was heard within an election's time.
func (c *consensus) alive(id uint64) bool {
	at, ok := c.lastHeard[id]
	return id == uint64(c.node.opts.Self) || ok && c.tick-at <= electionTicks
}

// Status tells how the node is. It is at most a tick old.
func (n *Node) Status() Status {
	at := n.applier.applied()
	snapshot := n.store.current()
	first, _ := n.log.FirstIndex()
	last, _ := n.log.LastIndex()
	s := Status{
		Self: n.opts.Self, Applied: at.Index, Version: at.Version, First: first, Last: last, Stamp: at.Stamp,
		Storing: n.writer.pendingMessages.Load(), Applying: n.applier.pendingTasks.Load(),
		Snapshot: snapshot.Index, SnapshotBytes: snapshot.Bytes, SnapshotStamp: snapshot.Stamp, LogBytes: n.log.Size(),
		SnapshotTook: time.Duration(n.snapshotTook.Load()), Free: n.space.free.Load(),
	}
	p := cmp.Or(n.status.Load(), &raftStatus{toLoad: 100})
	s.Leader, s.Term, s.Commit, s.ToLoad = member.ID(p.lead), p.term, p.commit, p.toLoad
	s.Uncommitted, s.Elections, s.Depositions, s.ReadRounds = p.uncommitted, p.elections, p.depositions, p.rounds
	if l := n.leadership.Load(); l != nil && !l.over.Load() {
		s.Leads, s.Serves, s.Term, s.Leader = true, l.serving.Load(), l.term, n.opts.Self
	} else if s.Leader == n.opts.Self {
		s.Leader = 0 // the leadership is over, or not begun, and the raft goroutine has not said so yet
	}
	s.Members = make([]MemberStatus, 0, len(at.Members))
	for _, m := range at.Members {
		o := MemberStatus{
			Member: m, Voter: votes(at.ConfState, uint64(m.ID)), Alive: p.alive[uint64(m.ID)], Match: p.match[uint64(m.ID)],
			ToLoad: p.reports[uint64(m.ID)].toLoad,
		}
		if len(p.match) > 0 {
			o.Behind = n.log.SizeBehind(o.Match)
		}
		s.Members = append(s.Members, o)
	}
	return s
}

// Alone reports whether no other member votes.
func (s *Status) Alone() bool {
	return !slices.ContainsFunc(s.Members, func(o MemberStatus) bool { return o.Voter && o.ID != s.Self })
}
