package replica

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// woken reports whether a goroutine was woken since the last call.
func woken(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestACommitIndexDoesNotWakeTheWriter(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.writer.rest()
	put(t, l, 1, 10)
	h.run()
	woken(h.writer.waker)
	h.acknowledge() // no more than the commit index has to be stored
	if woken(h.writer.waker) {
		t.Error("the writer was woken for a commit index")
	}
	stored := func() uint64 {
		hard, _, err := h.log.InitialState()
		if err != nil {
			t.Fatal(err)
		}
		return hard.GetCommit()
	}
	if stored() >= h.committed() {
		t.Fatal("the commit index was stored for itself")
	}
	if err := h.writer.rest(); err != nil {
		t.Fatal(err)
	}
	if stored() != h.committed() {
		t.Errorf("the writer that has nothing to do has stored commit index %d of %d", stored(), h.committed())
	}
	put(t, l, 2, 10)
	h.consensus.pump()
	h.ready()
	if !woken(h.writer.waker) {
		t.Error("the writer was not woken for an entry")
	}
}

func TestACommitIndexIsStoredAsSoonAsTheWriterRests(t *testing.T) {
	h := newHand(t, 3)
	term, vote, commit := uint64(1), uint64(0), uint64(1)
	h.writer.append(&raftpb.Message{Term: &term, Vote: &vote, Commit: &commit}, nil) // nobody waits for it
	if h.writer.pendingMessages.Load() != 1 {
		t.Fatal("it is not waiting")
	}
	if err := h.writer.rest(); err != nil {
		t.Fatal(err)
	}
	if hard, _, err := h.log.InitialState(); err != nil || hard.GetTerm() != term || h.writer.pendingMessages.Load() != 0 {
		t.Errorf("stored is %v (%v), and %d wait", hard, err, h.writer.pendingMessages.Load())
	}
}

func TestRaftIsWokenForWhatWasAppliedOnlyIfThatMatters(t *testing.T) {
	apply := func(h *hand, m *raftpb.Message) bool {
		woken(h.inbox.waker)
		h.applier.respond(m)
		return woken(h.inbox.waker)
	}
	normal := func(size int) *raftpb.Message {
		return &raftpb.Message{Entries: []*raftpb.Entry{raftEntry(9, 1, make([]byte, size))}}
	}
	h := newHand(t, 3)
	if apply(h, normal(100)) {
		t.Error("raft was woken to hear of 100 bytes")
	}
	if !apply(h, normal(quietBytes-100)) {
		t.Error("raft was not woken to hear of much")
	}
	if apply(h, normal(100)) {
		t.Error("raft was woken to hear of 100 bytes more")
	}
	change := raftEntry(10, 1, nil)
	change.Type = raftpb.EntryConfChangeV2.Enum()
	if !apply(h, &raftpb.Message{Entries: []*raftpb.Entry{change}}) {
		t.Error("raft was not woken to hear of a change of the members")
	}
}

func TestRaftIsWokenOnceSomethingCanBeSent(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.sent = nil
	for i := range maxInFlight {
		put(t, l, uint64(1+i), 10)
		woken(h.inbox.waker)
		if l.Flush(); !woken(h.inbox.waker) {
			t.Fatalf("raft was not woken for batch %d", i+1)
		}
		h.run()
	}
	last := put(t, l, 10, 10)
	woken(h.inbox.waker)
	if l.Flush(); woken(h.inbox.waker) {
		t.Error("raft was woken for a batch that has to wait")
	}
	full, _ := h.appends()
	h.Message(answerTo(full[2][0])) // the first batch is on two disks
	h.consensus.takeInbox()
	h.ready()
	woken(h.inbox.waker)
	if h.apply(); !woken(h.inbox.waker) {
		t.Error("raft was not woken when the window had room")
	}
	h.sent = append(h.sent, full[2][1:]...)
	h.answer()
	if l.Committed() != last {
		t.Errorf("committed up to %d of %d", l.Committed(), last)
	}
}

func TestABatchThatIsShorterThanThoseOnTheirWayGrows(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	sends := func(id uint64, body int) bool {
		put(t, l, id, body)
		sent := l.inFlight
		h.run()
		return l.inFlight > sent
	}
	if !sends(1, 4000) || !sends(2, 1000) {
		t.Fatal("one of the first two batches waits")
	}
	if sends(3, 1000) {
		t.Error("a short batch does not wait for longer ones")
	}
	if !sends(4, 4000) {
		t.Error("a batch waits that has become the longest")
	}
	if !sends(5, 6000) {
		t.Error("a longer batch waits")
	}
	h.answer()
	if !sends(6, 4000) || !sends(7, 4000) {
		t.Fatal("one of two batches waits")
	}
	last := put(t, l, 8, 10)
	h.run()
	if l.inFlight == len(l.units) {
		t.Error("a short batch does not wait for longer ones")
	}
	h.answer()
	if l.Committed() != last {
		t.Errorf("committed up to %d of %d", l.Committed(), last)
	}
}

func TestARoundDoesNotWaitForAShortBatchBehindIt(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	for id := range uint64(2) {
		put(t, l, 1+id, 4000)
		h.run()
	}
	round := l.Barrier()
	last := put(t, l, 3, 10)
	h.run()
	if n := len(l.units); l.inFlight != n-1 || l.units[n-2].pos != round {
		t.Errorf("%d of %d units are on their way; all but the last should be", l.inFlight, n)
	}
	h.answer()
	if l.Committed() != last {
		t.Errorf("committed up to %d of %d", l.Committed(), last)
	}
}

func TestALongBatchAndOneThatCannotGrowDoNotWait(t *testing.T) {
	h := newHand(t, 3)
	h.opts.Newest = 2
	l := h.lead()
	put(t, l, 1, 450<<10)
	h.run()
	put(t, l, 2, longBatch)
	h.run()
	if l.inFlight != 2 {
		t.Errorf("%d batches are on their way: one with longBatch bytes waits", l.inFlight)
	}
	put(t, l, 3, 1000)
	put(t, l, 4, maxBatch-1000) // does not fit into the batch before
	h.run()
	if l.inFlight != 4 {
		t.Errorf("%d batches are on their way: one that cannot grow waits", l.inFlight)
	}
	h.answer()
	put(t, l, 5, 1000)
	h.run()
	l.raise(2)
	h.run()
	if l.inFlight != 2 {
		t.Errorf("%d batches are on their way: one that allows a version waits", l.inFlight)
	}
	h.answer()
}
