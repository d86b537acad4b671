package replica

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
)

func holdRecord(x journal.Hold) func([]byte) []byte {
	return func(b []byte) []byte {
		at := len(b)
		b = append(b, make([]byte, record.HoldSize)...)
		record.EncodeHold(b[at:], entry.Salt, &x)
		return b
	}
}

// follow gives the node entries of the leader of a term, who is member 2, behind what it has.
func (h *hand) follow(term uint64, datas ...[]byte) {
	h.t.Helper()
	last, err := h.log.LastIndex()
	if err != nil {
		h.t.Fatal(err)
	}
	logTerm, err := h.log.Term(last)
	if err != nil {
		h.t.Fatal(err)
	}
	m := message(raftpb.MsgApp, term, 2)
	m.Index, m.LogTerm = &last, &logTerm
	for i, data := range datas {
		m.Entries = append(m.Entries, raftEntry(last+1+uint64(i), term, data))
	}
	commit := last + uint64(len(datas))
	m.Commit = &commit
	h.Message(m)
	h.run()
}

// An entry tells of its effects when it is applied, and not again; those of a node's own leadership tell
// of none.
func TestAnEntryTellsOfItsEffectsOnce(t *testing.T) {
	h := newHand(t, 3)
	hold := func(session, offset uint64) func([]byte) []byte {
		return holdRecord(journal.Hold{ID: 1, Session: session, End: 9, Offset: offset, Reserves: 1})
	}
	h.follow(4,
		sealed(entry.Header{Kind: entry.Begin, Term: 4, Sequence: 1, Stamp: 7}),
		sealed(entry.Header{Kind: entry.Raise, Term: 4, Sequence: 2, Stamp: 7, Version: 2}),
		sealed(entry.Header{Kind: entry.Records, Term: 4, Sequence: 3, Stamp: 8, LastID: 1, Format: 2}, fullRecord(1), hold(5, 0), hold(6, 70), hold(7, 71)),
		sealed(entry.Header{Kind: entry.Records, Term: 3, Sequence: 9, Stamp: 8, LastID: 1, Format: 2}, hold(8, 72)), // of an old term
	)
	want := []journal.Effect{
		{Session: 6, Offset: 70, ID: 1, Kind: journal.EffectHold},
		{Session: 7, Offset: 71, ID: 1, Kind: journal.EffectHold},
	}
	told := func(when string) {
		t.Helper()
		if got := h.queue.effects; !slices.Equal(got, want) || h.queue.applied != h.applier.state.Index {
			t.Fatalf("%s: told of %+v, up to entry %d of %d", when, got, h.queue.applied, h.applier.state.Index)
		}
	}
	told("a follower")
	l := h.lead()
	if _, err := l.Hold(&journal.Hold{ID: 1, Session: 9, End: 9, Offset: 99, Reserves: 1}); err != nil {
		t.Fatal(err)
	}
	h.answer()
	told("a leader")
	standbys, lost := h.queue.standbys, h.queue.lost
	h.deposed()
	h.run()
	if h.queue.standbys != standbys+1 {
		t.Fatalf("%d standbys were made, want %d", h.queue.standbys, standbys+1)
	}
	told("a leader that was deposed")
	term := l.term + 1
	h.follow(term,
		sealed(entry.Header{Kind: entry.Begin, Term: term, Sequence: 1, Stamp: 70}),
		sealed(entry.Header{Kind: entry.Records, Term: term, Sequence: 2, Stamp: 80, LastID: 1, Format: 2}, hold(6, 100)),
	)
	want = append(want, journal.Effect{Session: 6, Offset: 100, ID: 1, Kind: journal.EffectHold})
	told("a follower of the next")
	if h.queue.lost != lost {
		t.Error("effects are lost without a snapshot")
	}
}

// A follower that gets a snapshot does not hear what has been done in the entries that it lacks, and says so.
func TestASnapshotLosesEffects(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	for _, p := range c.nodes {
		p.bytes = 10_000
	}
	c.startAll()
	l := c.leader()
	away := c.others(l)[0]
	away.kill()
	last := away.lastIndex()
	c.eventually("the leader's log begins behind what the follower has", func() bool {
		c.untilSnapshot(c.leader())
		n := c.leader().running()
		if n == nil {
			return false
		}
		first, err := n.log.FirstIndex()
		return err == nil && first > last+1
	})
	if err := c.start(away); err != nil {
		t.Fatal(err)
	}
	c.eventually("the snapshot is installed", func() bool {
		n := away.running()
		return n != nil && n.Status().Snapshot > last
	})
	c.settled()
	n := away.running()
	if n == nil {
		t.Fatal("the follower has ended")
	}
	away.mu.Lock()
	q := away.queue
	away.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost < 2 || q.applied < n.Status().Snapshot { // once when it began, with the one that it had
		t.Errorf("effects were lost %d times; up to entry %d is told as applied", q.lost, q.applied)
	}
}
