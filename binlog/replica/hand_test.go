package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

// hand is a node whose goroutines do not run: the test takes their steps, in an order of
// its own. The node is member 1; the test answers for the others.
type hand struct {
	t *testing.T
	*Node
	queue *model
	sent  []*raftpb.Message // that were not answered yet
}

func newHand(t *testing.T, voters int) *hand {
	t.Helper()
	fs := faultfs.New(clusterDir)
	meta := snapshot.Meta{Index: 1, Term: 1, ConfState: raftpb.EnsureConfState(nil)}
	for i := range voters {
		id := member.ID(i + 1)
		meta.ConfState.Voters = append(meta.ConfState.Voters, uint64(id))
		meta.Members = append(meta.Members, member.Member{ID: id, Name: "n" + string(rune('1'+i)), Addr: "127.0.0.1:1" + string(rune('1'+i))})
	}
	dir := filepath.Join(clusterDir, snapshotsDir)
	if err := errors.Join(fs.Mkdir(dir), vfs.SyncDir(fs, clusterDir), snapshot.WriteInitial(fs, dir, meta)); err != nil {
		t.Fatal(err)
	}
	h := &hand{t: t, queue: newModel()}
	n, err := Open(Options{Dir: clusterDir, New: true, Self: 1, Queue: h.queue, Clock: &testClock{}, FS: fs, SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	h.Node = n
	n.transport = h
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	h.run()
	return h
}

// Send implements Transport.
func (h *hand) Send(m *raftpb.Message) { h.sent = append(h.sent, m) }

// SendSnapshot implements Transport.
func (h *hand) SendSnapshot(m *raftpb.Message, _ func(io.Writer, func() ([]byte, error)) error) {
	h.Send(m)
}

// Arrived implements Transport.
func (h *hand) Arrived(member.ID) uint64 { return 0 }

// SetPeers implements Transport.
func (h *hand) SetPeers(uint64, []member.Member) {}

// run lets all goroutines do what there is to do.
func (h *hand) run() {
	h.t.Helper()
	for range 20 {
		h.consensus.takeInbox()
		h.consensus.observe()
		h.consensus.pump()
		for h.consensus.rn.HasReady() {
			h.consensus.handle(h.consensus.rn.Ready())
		}
		h.save()
		h.apply()
	}
}

// save is a turn of the writer's.
func (h *hand) save() {
	h.t.Helper()
	if err := h.writer.work(); err != nil {
		h.t.Fatal(err)
	}
}

// apply is a turn of the applier's.
func (h *hand) apply() {
	h.t.Helper()
	h.applier.mu.Lock() // a walk may post
	queue := h.applier.tasks
	h.applier.tasks = nil
	h.applier.mu.Unlock()
	for _, f := range queue {
		if err := f(); err != nil {
			h.t.Fatal(err)
		}
	}
}

// answer lets the others do as they are asked, as often as there is something to answer.
func (h *hand) answer() {
	h.t.Helper()
	for h.run(); len(h.sent) > 0; h.run() {
		sent := h.sent
		h.sent = nil
		for _, m := range sent {
			if r := answerTo(m); r != nil {
				h.Message(r)
			}
		}
	}
}

// answerTo is the answer of a member that agrees with everything.
func answerTo(m *raftpb.Message) *raftpb.Message {
	r := &raftpb.Message{From: m.To, To: m.From, Term: m.Term, Context: m.Context}
	switch m.GetType() {
	case raftpb.MsgPreVote:
		r.Type = raftpb.MsgPreVoteResp.Enum()
	case raftpb.MsgVote:
		r.Type = raftpb.MsgVoteResp.Enum()
	case raftpb.MsgHeartbeat:
		r.Type = raftpb.MsgHeartbeatResp.Enum()
	case raftpb.MsgApp:
		last := m.GetIndex() + uint64(len(m.GetEntries()))
		r.Type, r.Index = raftpb.MsgAppResp.Enum(), &last
	default:
		return nil
	}
	return r
}

// campaign has the node win an election; the queue serves if all answer.
func (h *hand) campaign() {
	h.t.Helper()
	if err := h.consensus.rn.Campaign(); err != nil {
		h.t.Fatal(err)
	}
	h.run()
}

func (h *hand) lead() *Leadership {
	h.t.Helper()
	h.campaign()
	h.answer()
	l, err := h.leading()
	if err != nil {
		h.t.Fatal(err)
	}
	return l
}

// put appends a job, without waiting for its commit.
func put(t *testing.T, l *Leadership, id uint64, body int) journal.Pos {
	t.Helper()
	ticket, err := l.Put(&journal.Record{ID: id, State: journal.Ready, TTR: 1, Tube: "default", Body: make([]byte, body)})
	if err != nil {
		t.Fatal(err)
	}
	return ticket.Pos
}

// deposed tells the node of a leader of the next term. The leadership does not know yet.
func (h *hand) deposed() {
	h.t.Helper()
	term, from, to := h.consensus.rn.BasicStatus().GetTerm()+1, uint64(2), uint64(1)
	if err := h.consensus.rn.Step(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to, Term: &term}); err != nil {
		h.t.Fatal(err)
	}
}

func TestTheQueueServesNotBeforeTheEntryThatBeginsTheTermIsApplied(t *testing.T) {
	h := newHand(t, 3)
	h.elected()
	if h.queue.serves() {
		t.Fatal("the queue serves though nothing of this term is committed")
	}
	for len(h.sent) == 0 {
		h.consensus.rn.Tick()
		h.run()
	}
	h.answer()
	h.consensus.rn.Tick()
	h.answer()
	if !h.queue.serves() {
		t.Error("the queue does not serve")
	}
}

func TestALeadershipThatWasLostAndWonAgainBetweenTwoLooksIsOver(t *testing.T) {
	h := newHand(t, 1)
	l := h.lead()
	c := h.consensus
	term := c.rn.BasicStatus().GetTerm() + 1
	self := uint64(1)
	if err := c.rn.Step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: &self, To: &self, Term: &term}); err != nil {
		t.Fatal(err)
	}
	if err := c.rn.Campaign(); err != nil {
		t.Fatal(err)
	}
	for c.rn.BasicStatus().RaftState != raft.StateLeader {
		for c.rn.HasReady() {
			c.handle(c.rn.Ready())
		}
		h.save()
		local, _, _ := h.inbox.take()
		for _, m := range local {
			c.stepLocal(m)
		}
	}
	h.run()
	again, err := h.leading()
	if err != nil || again == l || again.term <= term-1 || !l.over.Load() {
		t.Fatalf("%v follows %v, %v", again, l, err)
	}
	if h.queue.standbys != 2 {
		t.Errorf("the queue was made %d times, not for each leadership", h.queue.standbys)
	}
	if _, err := l.Put(&journal.Record{ID: 1}); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("the old leadership takes a job: %v", err)
	}
}

func TestANodeThatIsDeposedDoesNotNameItselfAsTheLeader(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.consensus.onTick()
	if s := h.Status(); !s.Leads || s.Leader != 1 || s.Term != l.term || s.Elections != 1 {
		t.Fatalf("%+v", s)
	}
	other := h.OtherLeader()
	h.consensus.onTick()
	if isClosed(other) {
		t.Error("another leader is told of, and there is none")
	}
	h.deposed()
	h.consensus.observe()
	if !isClosed(other) {
		t.Error("who waits for another leader is not told")
	}
	if s := h.Status(); s.Leads || s.Leader != 2 || s.Term != l.term+1 || s.Depositions != 1 {
		t.Errorf("%+v", s)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAFollowerNamesAnotherLeaderAtOnce(t *testing.T) {
	h := newHand(t, 3)
	h.consensus.onTick()
	for term := uint64(4); term < 6; term++ {
		other := h.OtherLeader()
		h.Message(message(raftpb.MsgHeartbeat, term, 2))
		h.run()
		if !isClosed(other) {
			t.Errorf("who waits for another leader is not told of that of term %d", term)
		}
		if s := h.Status(); s.Leader != 2 || s.Term != term {
			t.Errorf("member %d leads in term %d, want 2 in term %d", s.Leader, s.Term, term)
		}
	}
}

func TestARoundOfADeposedLeaderDoesNotCount(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	pos := l.Barrier()
	h.run()
	if l.Committed() >= pos {
		t.Fatal("a round has ended that nobody has answered")
	}
	h.deposed()
	h.consensus.confirm(raft.ReadState{RequestCtx: roundContext(l.term, pos)})
	if l.Committed() >= pos {
		t.Error("an answer to a deposed leader counts")
	}
	h.run()
	h.consensus.confirm(raft.ReadState{RequestCtx: roundContext(l.term, pos)})
	if l.Committed() >= pos {
		t.Error("a round has ended after its leadership")
	}
	if l.Barrier() != math.MaxUint64 {
		t.Error("a leadership that is over promises a commit")
	}
}

func TestARoundCountsWhenTheBatchesBeforeItAreCommitted(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	batch := put(t, l, 1, 10)
	h.run()
	round := l.Barrier()
	if round <= batch {
		t.Fatal("a batch that was sent before the question answers it")
	}
	h.run()
	var appends []*raftpb.Message
	for _, m := range h.sent {
		if m.GetType() == raftpb.MsgApp {
			appends = append(appends, m)
		} else {
			h.Message(answerTo(m))
		}
	}
	h.sent = nil
	h.run()
	if l.Committed() >= batch {
		t.Fatal("the round has ended before the batch")
	}
	for _, m := range appends {
		h.Message(answerTo(m))
	}
	h.answer()
	if l.Committed() != round {
		t.Errorf("committed up to %d, the round is %d", l.Committed(), round)
	}
}

func TestABatchThatIsSentLaterProvesTheRoundsBeforeIt(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	round, again := l.Barrier(), l.Barrier()
	if round != again {
		t.Errorf("two questions, of which none was asked yet, are rounds %d and %d", round, again)
	}
	batch := put(t, l, 1, 10)
	if l.Barrier() != batch {
		t.Error("a batch that was not sent yet does not serve as a round")
	}
	h.run()
	for _, m := range h.sent {
		if len(m.GetContext()) > 0 {
			t.Error("a round was asked for though a batch follows")
		}
	}
	h.answer()
	if l.Committed() != batch {
		t.Errorf("committed up to %d, the batch is %d", l.Committed(), batch)
	}
}

func TestNoMoreThanTheWindowIsOnItsWay(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	for i := range 6 {
		put(t, l, uint64(1+i), 100)
		h.run()
	}
	if l.inFlight != maxInFlight || len(l.units) != maxInFlight+1 {
		t.Errorf("%d of %d batches are on their way", l.inFlight, len(l.units))
	}
	h.answer()
	for i := range 3 {
		put(t, l, uint64(10+i), 1<<20)
		h.run()
	}
	if l.inFlight != 1 {
		t.Errorf("%d batches of 1 MiB are on their way", l.inFlight)
	}
	last := put(t, l, 13, 10)
	h.answer()
	if l.Committed() != last {
		t.Errorf("committed up to %d of %d", l.Committed(), last)
	}
}

func TestMoreThanTheRoomIsRefusedUntilThereIsSome(t *testing.T) {
	for _, x := range []struct{ bodies, room int64 }{{0, maxUncommitted}, {1 << 40, maxUncommitted}, {4 << 20, 1 << 20}} {
		h := newHand(t, 3)
		h.opts.Bodies = x.bodies
		refusesBeyond(t, h, x.room)
	}
}

func refusesBeyond(t *testing.T, h *hand, room int64) {
	l := h.lead()
	asked := 0
	l.hooks.OnRoom = func() { asked++ }
	put(t, l, 1, 10)
	l.bytes += room // as if so much had been appended
	for _, body := range []int{0, maxBatch} {
		if _, err := l.Put(&journal.Record{ID: 2, State: journal.Ready, Tube: "t", Body: make([]byte, body)}); !errors.Is(err, journal.ErrRoom) {
			t.Fatalf("a body of %d bytes: %v", body, err)
		}
	}
	if _, err := l.Delete(1, journal.Former{}); err != nil {
		t.Errorf("a delete: %v", err)
	}
	l.bytes -= room
	h.answer()
	if asked != 1 {
		t.Errorf("OnRoom was called %d times", asked)
	}
	put(t, l, 2, 10)
}

func TestARefusedProposalEndsTheTerm(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.consensus.rn.TransferLeader(2) // raft takes no proposals meanwhile
	h.consensus.propose(make([]byte, 8))
	if st := h.consensus.rn.BasicStatus(); !l.over.Load() || st.RaftState != raft.StateFollower || st.GetTerm() != l.term+1 {
		t.Errorf("the leadership goes on, or raft stays the leader: %+v", st)
	}
	h.run()
	if h.queue.serves() || h.queue.standbys != 2 {
		t.Error("the queue was not made anew")
	}
}

func TestANodeThatHasSteppedDownDoesNotCampaignForAWhile(t *testing.T) {
	h := newHand(t, 1)
	l := h.lead()
	h.consensus.stepDown("a test")
	h.run()
	for range backoffTicks - 1 {
		h.consensus.onTick()
		h.run()
	}
	if _, err := h.leading(); !errors.Is(err, ErrNotLeader) {
		t.Fatal("it leads again at once")
	}
	for range 3 * electionTicks {
		h.consensus.onTick()
		h.run()
	}
	if again, err := h.leading(); err != nil || again.term <= l.term {
		t.Errorf("it does not lead again: %v", err)
	}
}

// sealed is an entry with one record, as a leader makes it.
func sealed(h entry.Header, recs ...func(b []byte) []byte) []byte {
	b := make([]byte, entry.HeaderSize)
	for _, f := range recs {
		b = f(b)
	}
	h.Seal(b)
	return b
}

func fullRecord(id uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		r := journal.Record{ID: id, State: journal.Ready, Tube: "default", Body: []byte("body")}
		at := len(b)
		b = append(b, make([]byte, journal.Size(r.Tube, len(r.Body)))...)
		record.EncodeFull(b[at:], entry.Salt, &r)
		return b
	}
}

func deleteRecord(id uint64) func([]byte) []byte {
	return func(b []byte) []byte {
		at := len(b)
		b = append(b, make([]byte, record.SmallSize)...)
		record.EncodeSmall(b[at:], entry.Salt, record.Delete, id)
		return b
	}
}

func raftEntry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Index: &index, Term: &term, Data: data}
}

func TestAStandbyTakesEntriesOfTheTermOfTheirTermOnly(t *testing.T) {
	h := newHand(t, 3)
	a := h.applier
	begin := sealed(entry.Header{Kind: entry.Begin, Term: 4, Sequence: 1, Stamp: 7})
	old := sealed(entry.Header{Kind: entry.Records, Term: 4, Sequence: 2, Stamp: 8, LastID: 1}, fullRecord(1))
	if err := a.entry(raftEntry(2, 4, begin)); err != nil {
		t.Fatal(err)
	}
	if err := a.entry(raftEntry(3, 5, old)); err != nil {
		t.Fatal(err)
	}
	if h.queue.count() != 0 {
		t.Error("a batch of an old term was applied")
	}
	if err := a.entry(raftEntry(4, 4, old)); err != nil || h.queue.count() != 1 {
		t.Errorf("a batch of its term was not applied: %v", err)
	}
}

func TestEntriesThatCannotBeEndTheNode(t *testing.T) {
	begin := entry.Header{Kind: entry.Begin, Term: 4, Sequence: 1, Stamp: 7}
	next := entry.Header{Kind: entry.Records, Term: 4, Sequence: 2, Stamp: 8, LastID: 9}
	later := next
	later.Sequence = 3
	unknown := sealed(next)
	unknown[4] = entry.Newest + 1
	decided := next
	decided.Decided = 5
	last := decided
	last.Sequence = 3
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"an unknown version":       {reseal(unknown), entry.ErrUnknown},
		"a broken checksum":        {append(sealed(next), 0, 0, 0, 0, 0, 0, 0, 0), entry.ErrMalformed},
		"a gap":                    {sealed(later), ErrDiverged},
		"a second begin":           {sealed(entry.Header{Kind: entry.Begin, Term: 4, Sequence: 2}), ErrDiverged},
		"the same again":           {sealed(begin), ErrDiverged},
		"the end of no job":        {sealed(next, deleteRecord(9)), ErrDiverged},
		"a put of a job twice":     {sealed(next, fullRecord(3), fullRecord(3)), ErrDiverged},
		"a put of an earlier id":   {sealed(last, fullRecord(4)), ErrDiverged},
		"a record of no such kind": {sealed(next, markRecord), entry.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHand(t, 3)
			if err := h.applier.entry(raftEntry(2, 4, sealed(begin))); err != nil {
				t.Fatal(err)
			}
			index := uint64(3)
			if name == "a put of an earlier id" {
				if err := h.applier.entry(raftEntry(index, 4, sealed(decided, fullRecord(5)))); err != nil {
					t.Fatal(err)
				}
				index++
			}
			if err := h.applier.entry(raftEntry(index, 4, c.data)); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// reseal makes the checksum right.
func reseal(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func markRecord(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, record.SmallSize)...)
	record.EncodeSmall(b[at:], entry.Salt, record.Mark, 1)
	return b
}

func TestALeaderWhoseBatchIsIgnoredEnds(t *testing.T) {
	h := newHand(t, 1)
	l := h.lead()
	data := sealed(entry.Header{Kind: entry.Records, Term: l.term, Sequence: 2, Stamp: 8, LastID: 1}, fullRecord(1))
	if err := h.applier.entry(raftEntry(10, l.term+1, data)); !errors.Is(err, ErrDiverged) {
		t.Errorf("%v", err)
	}
}

// Ids of a term are greater than those of the terms before, and what says so is in each
// batch: a standby refuses a job with an id of an earlier term, whether it was one or not.
func TestAJobWithAnIDOfAnEarlierTermIsRefused(t *testing.T) {
	h := newHand(t, 1)
	l := h.lead()
	put(t, l, 100, 10)
	h.run()
	h.consensus.stepDown("a test")
	for range 2*backoffTicks + 3*electionTicks {
		h.consensus.onTick()
		h.run()
	}
	again, err := h.leading()
	if err != nil || again.NextID() != 101 {
		t.Fatalf("the next leadership begins with job %d, %v", again.NextID(), err)
	}
	put(t, again, 99, 10)
	h.run() // the leader is ahead of the entries, and believes itself
	h.deposed()
	h.consensus.observe()
	h.applier.mu.Lock()
	retire := h.applier.tasks
	h.applier.mu.Unlock()
	if len(retire) != 1 {
		t.Fatalf("the applier has %d things to do", len(retire))
	}
	if err := retire[0](); !errors.Is(err, ErrDiverged) {
		t.Errorf("a standby was fed with job 99: %v", err)
	}
}

// beat has the node beat once. The members in low say that their disks are nearly full.
func (h *hand) beat(low map[uint64]bool) {
	h.t.Helper()
	h.consensus.onTick()
	h.run()
	for _, m := range h.sent {
		r := answerTo(m)
		if full := low[r.GetFrom()]; full && m.GetType() == raftpb.MsgHeartbeat {
			r.Reject = &full
		}
		h.Message(r)
	}
	h.sent = nil
	h.run()
	h.consensus.checkSpace()
}

func TestPutsAreRefusedWhileMostDisksAreNearlyFull(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	low := map[uint64]bool{}
	try := func() error {
		_, err := l.Put(&journal.Record{ID: 1, State: journal.Ready, Tube: "t"})
		return err
	}
	low[2] = true
	h.beat(low)
	if err := try(); err != nil {
		t.Errorf("one of three: %v", err)
	}
	h.space.low.Store(true)
	h.beat(low)
	if err := try(); !errors.Is(err, journal.ErrNoSpace) {
		t.Errorf("two of three: %v", err)
	}
	if _, err := l.Delete(1, journal.Former{}); err != nil {
		t.Errorf("a delete: %v", err)
	}
	h.space.low.Store(false)
	h.beat(low)
	if err := try(); err != nil {
		t.Errorf("one of three again: %v", err)
	}
}

// What a member said before it died does not help: it stores nothing.
func TestAMemberThatIsDeadHasNoSpace(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	c := h.consensus
	for _, x := range []struct {
		what    string
		silent  []uint64
		full    []uint64
		refused bool
	}{
		{"all are alive, and one is full", nil, []uint64{2}, false},
		{"one of two is full, and the third is dead", []uint64{3}, []uint64{2}, true},
		{"all are dead", []uint64{2, 3}, []uint64{2}, true},
		{"one is dead", []uint64{3}, nil, false},
		{"all are dead again", []uint64{2, 3}, []uint64{2}, false},
		{"the one that is dead is full", []uint64{3}, []uint64{3}, false},
	} {
		clear(c.reports)
		for _, id := range x.full {
			c.reports[id] = report{fullDisk: true}
		}
		c.tick += 2 * electionTicks
		for id := uint64(2); id <= 3; id++ {
			if !slices.Contains(x.silent, id) {
				c.lastHeard[id] = c.tick
			}
		}
		c.checkSpace()
		_, err := l.Put(&journal.Record{ID: 1, State: journal.Ready, Tube: "t"})
		if refused := errors.Is(err, journal.ErrNoSpace); refused != x.refused {
			t.Errorf("%s: %v", x.what, err)
		}
		if _, err := l.Delete(1, journal.Former{}); err != nil {
			t.Errorf("%s: a delete: %v", x.what, err)
		}
	}
}

// What members told in an earlier leadership counts no more: who led since then makes its queue anew, and would
// not listen.
func TestNothingIsHandedOverToWhoHasNotToldThatItCanLead(t *testing.T) {
	h := newHand(t, 3)
	c := h.consensus
	for range 2 {
		h.lead()
		if to := c.best(0); to != 0 {
			t.Errorf("%v has told nothing, and may lead", to)
		}
		h.beat(nil)
		if to := c.best(0); to == 0 {
			t.Error("nobody may lead, and both can")
		}
		h.deposed()
		h.run()
		h.sent = nil
	}
}

// from is a message of member 2 in a term.
func from2(kind raftpb.MessageType, term uint64) *raftpb.Message {
	from, to := uint64(2), uint64(1)
	return &raftpb.Message{Type: kind.Enum(), From: &from, To: &to, Term: &term}
}

func TestAFollowerTakesNoEntriesWhileItHasTooManyToApply(t *testing.T) {
	h := newHand(t, 3)
	app := func(index uint64) *raftpb.Message {
		m := from2(raftpb.MsgApp, 2)
		term := uint64(1)
		if index > 2 {
			term = 2
		}
		prev := index - 1
		m.Index, m.LogTerm, m.Commit = &prev, &term, &index
		m.Entries = []*raftpb.Entry{raftEntry(index, 2, nil)}
		return m
	}
	withoutApplying := func() {
		for range 3 {
			h.consensus.takeInbox()
			for h.consensus.rn.HasReady() {
				h.consensus.handle(h.consensus.rn.Ready())
			}
			h.save()
		}
	}
	h.Message(app(2))
	withoutApplying()
	h.consensus.lag = maxLag + 1
	h.Message(app(3))
	withoutApplying()
	if last := h.Status().Last; last != 2 {
		t.Fatalf("the last entry is %d", last)
	}
	h.run()
	h.Message(app(3))
	h.run()
	if last := h.Status().Last; last != 3 {
		t.Errorf("the last entry is %d", last)
	}
}

func TestANodeWhoseQueueIsBeingMadeVotesAndDoesNotCampaign(t *testing.T) {
	h := newHand(t, 3)
	h.lead()
	h.deposed()
	h.consensus.observe() // the applier has something to do now, and does not do it
	for h.consensus.rn.HasReady() {
		h.consensus.handle(h.consensus.rn.Ready())
	}
	h.save()
	h.sent = nil
	for range 5 * electionTicks {
		h.consensus.onTick()
	}
	term := h.consensus.rn.BasicStatus().GetTerm()
	h.consensus.stepPeer(from2(raftpb.MsgTimeoutNow, term))
	if h.consensus.rn.HasReady() || h.consensus.rn.BasicStatus().RaftState != raft.StateFollower {
		t.Error("it campaigns")
	}
	vote := from2(raftpb.MsgVote, term+1)
	last := h.consensus.rn.BasicStatus().GetCommit() + 10
	vote.Index, vote.LogTerm = &last, &term
	h.consensus.stepPeer(vote)
	for h.consensus.rn.HasReady() {
		h.consensus.handle(h.consensus.rn.Ready())
	}
	h.save()
	granted := false
	for _, m := range h.sent {
		granted = granted || m.GetType() == raftpb.MsgVoteResp && !m.GetReject()
	}
	if !granted {
		t.Errorf("it gives no vote: %v", h.sent)
	}
}

// A batch's buffer is used again once it is committed (recycle), and entries live longer. That is
// right as long as raft copies what is proposed.
func TestRaftCopiesWhatIsProposed(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	h.sent = nil
	put(t, l, 1, 100)
	data, _ := l.next()
	want := slices.Clone(data)
	h.consensus.propose(data)
	clear(data)
	h.run()
	full, _ := h.appends()
	if len(full[2]) != 1 {
		t.Fatalf("follower 2 gets %v", full[2])
	}
	stored, err := h.log.Entries(h.Status().Last, h.Status().Last+1, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	for what, es := range map[string][]*raftpb.Entry{"a follower gets": full[2][0].GetEntries(), "the log has": stored} {
		if len(es) != 1 || !bytes.Equal(es[0].GetData(), want) {
			t.Errorf("%s the buffer and no copy of it: recycle must not use it again", what)
		}
	}
}

// elected has the node win an election; nobody takes its entries.
func (h *hand) elected() {
	h.t.Helper()
	h.campaign()
	for h.leadership.Load() == nil {
		sent := h.sent
		h.sent = nil
		for _, m := range sent {
			if m.GetType() != raftpb.MsgApp {
				h.Message(answerTo(m))
			}
		}
		h.run()
	}
}

func TestALeaderWhoseTermDoesNotBeginGivesUp(t *testing.T) {
	h := newHand(t, 3)
	h.elected()
	l := h.leadership.Load()
	for range commitTimeoutTicks + 2 {
		h.beatOnly() // heartbeats alone do not keep it
	}
	if st := h.consensus.rn.BasicStatus(); !l.over.Load() || st.RaftState == raft.StateLeader {
		t.Errorf("it stays leader: %+v", st)
	}
	if h.queue.standbys > 1 {
		t.Error("a queue that has not served was made anew")
	}
}

func TestALeaderThatCannotCommitGivesUp(t *testing.T) {
	h := newHand(t, 3)
	l := h.lead()
	put(t, l, 1, 10)
	for range commitTimeoutTicks + 2 {
		h.beatOnly()
	}
	if !l.over.Load() || h.consensus.backoff.until <= h.consensus.tick {
		t.Error("it stays leader, or campaigns at once")
	}
}

// beatOnly has the node tick, and the others answer heartbeats and nothing else.
func (h *hand) beatOnly() {
	h.t.Helper()
	h.consensus.onTick()
	h.run()
	for _, m := range h.sent {
		if m.GetType() == raftpb.MsgHeartbeat {
			h.Message(answerTo(m))
		}
	}
	h.sent = nil
	h.run()
}

func TestANodeOfWhichAMemberKnowsThatItWasRemovedEnds(t *testing.T) {
	h := newHand(t, 3)
	h.NotMember(3)
	h.run()
	if !h.ended() || !errors.Is(h.err, ErrRemoved) {
		t.Errorf("it goes on: %v", h.err)
	}
}

// message is one to member 1.
func message(kind raftpb.MessageType, term, from uint64, es ...*raftpb.Entry) *raftpb.Message {
	to := uint64(1)
	return &raftpb.Message{Type: kind.Enum(), From: &from, To: &to, Term: &term, Entries: es}
}

// A tail that was never committed is in the way of the leader's entries until the first
// of these comes.
func TestAFollowerTakesEntriesInPlaceOfATailHoweverLong(t *testing.T) {
	h := newHand(t, 3)
	one, index := uint64(1), uint64(1)
	for range 2 + maxLag>>20 {
		prev := index
		index++
		logTerm := one
		if prev > 1 {
			logTerm = 2
		}
		m := message(raftpb.MsgApp, 2, 2, raftEntry(index, 2, make([]byte, 1<<20)))
		m.Index, m.LogTerm = &prev, &logTerm
		h.Message(m)
		h.run()
	}
	if h.consensus.lag <= maxLag {
		t.Fatalf("%d bytes are not enough", h.consensus.lag)
	}
	m := message(raftpb.MsgApp, 3, 3, raftEntry(2, 3, nil))
	m.Index, m.LogTerm = &one, &one
	h.Message(m)
	h.run()
	if last, _ := h.log.LastIndex(); last != 2 {
		t.Errorf("the log ends with entry %d", last)
	}
}

// A leader asks again and again while nothing can be stored.
func TestWhatWaitsForAFullDiskIsBounded(t *testing.T) {
	h := newHand(t, 3)
	one := uint64(1)
	for range 3 * maxStoring {
		m := message(raftpb.MsgApp, 2, 2, raftEntry(2, 2, make([]byte, 100)))
		m.Index, m.LogTerm = &one, &one
		h.Message(m)
		h.consensus.takeInbox()
		for h.consensus.rn.HasReady() {
			h.consensus.handle(h.consensus.rn.Ready())
		}
	}
	if n := h.writer.pendingMessages.Load(); n > maxStoring+10 {
		t.Errorf("%d messages wait for the disk", n)
	}
	h.run()
	if last, _ := h.log.LastIndex(); last != 2 {
		t.Errorf("the log ends with entry %d", last)
	}
}

func TestVotesAndAcknowledgementsLeaveWhenTheyAreOnDisk(t *testing.T) {
	one := uint64(1)
	vote := message(raftpb.MsgVote, 2, 2)
	vote.Index, vote.LogTerm = &one, &one
	app := message(raftpb.MsgApp, 2, 2, raftEntry(2, 2, []byte("data")))
	app.Index, app.LogTerm = &one, &one
	for _, m := range []*raftpb.Message{vote, app} {
		t.Run(m.GetType().String(), func(t *testing.T) {
			h := newHand(t, 3)
			h.sent = nil
			syncs := 0
			fs := h.opts.FS.(*faultfs.FS)
			fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == "sync" {
					if syncs++; len(h.sent) > 0 {
						t.Errorf("%v has left before it is on disk", h.sent[0].GetType())
					}
				}
				return faultfs.Fault{}
			})
			h.Message(m)
			h.run()
			fs.Hook(nil)
			if syncs == 0 || len(h.sent) != 1 || h.sent[0].GetReject() {
				t.Errorf("%d syncs, then %v", syncs, h.sent)
			}
		})
	}
}
