package replica

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/replica/entry"
	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/internal/planted"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
)

// applier is the goroutine that applies entries that are committed. On a follower it feeds
// the standby; on the leader, whose queue is ahead of the entries, it tells the Leadership
// which of its batches are committed. It makes the queue a standby or a server.
type applier struct {
	node *Node
	waker
	done chan struct{} // closed when the goroutine has ended

	mu           sync.Mutex
	tasks        []func() error // to be done in order
	stateCopy    snapshot.Meta  // a copy of state, as of the last message
	walks        uint64         // that have begun
	failure      failure        // of the last walk that has failed
	pendingTasks atomic.Int64   // what was posted and is not done
	loading      loading

	// The goroutine's.
	state          snapshot.Meta // as of the last entry that was applied
	standby        Standby       // nil while there was no stamp, and while this node leads
	leadership     *Leadership   // that the queue serves in; nil for a standby
	reader         entry.Reader
	decoder        snapshot.Decoder
	effects        []journal.Effect // of the entry that is applied
	again          bool             // entries are applied once more, to a new standby
	unreported     int64            // bytes that were applied since raft was woken to hear of it
	logBytes       int64            // bytes of entries behind the current snapshot
	walk           *walk            // the snapshot that is being taken; nil if there is none
	walkLock       sync.Mutex       // held by the goroutine of a walk, also of one that was given up
	snapshotsOff   bool             // no snapshot may be taken
	snapshotWanted bool             // a snapshot is to be taken however short the log is
}

func newApplier(n *Node) *applier {
	a := &applier{node: n, waker: newWaker(), done: make(chan struct{})}
	a.post(a.install)
	return a
}

// post adds something to do. It never blocks.
func (a *applier) post(f func() error) {
	a.pendingTasks.Add(1)
	a.mu.Lock()
	a.tasks = append(a.tasks, f)
	a.mu.Unlock()
	a.wake()
}

// applied is the state as of the last message.
func (a *applier) applied() snapshot.Meta {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stateCopy
}

func (a *applier) publish() {
	a.mu.Lock()
	a.stateCopy = a.state
	a.mu.Unlock()
}

func (a *applier) run() {
	defer close(a.done)
	defer a.end()
	for !a.node.ended() {
		a.mu.Lock()
		queue := a.tasks
		a.tasks = nil
		a.mu.Unlock()
		for _, f := range queue {
			if a.node.ended() {
				return
			}
			if err := f(); err != nil {
				a.node.fail(err)
				return
			}
			a.pendingTasks.Add(-1)
		}
		if more := a.standby != nil && a.standby.Tidy(); more || a.node.bodies.tend() || len(queue) > 0 {
			continue
		}
		select {
		case <-a.node.stopped:
			return
		case <-a.waker:
		}
	}
}

// end retires the queue of a node that ends.
func (a *applier) end() {
	a.voidSnapshot()
	if a.leadership != nil {
		a.leadership.end()
		a.node.opts.Queue.Retire(a.leadership)
		a.node.bodies.end()
	}
}

// install makes a new standby of the current snapshot.
func (a *applier) install() error {
	a.voidSnapshot()
	if err := a.load(); err != nil {
		return err
	}
	a.snapshotsOff = false
	a.node.opts.Queue.EffectsLost()
	a.node.opts.Queue.Applied(a.state.Index, nil)
	a.publish()
	index, members := a.state.Index, a.state.Members
	a.node.inbox.call(func() {
		a.node.transport.SetPeers(index, members)
		a.node.consensus.standbyMade()
	})
	return nil
}

// load makes a standby of the current snapshot.
func (a *applier) load() error {
	a.node.bodies.halt() // also of a snapshot without a queue, or if the node ends before there is another one
	meta, path := a.node.store.hold()
	defer a.node.store.release(path)
	if err := a.readable(meta.Version); err != nil {
		return fmt.Errorf("the snapshot of %v: %w", meta.Entry(), err)
	}
	a.standby, a.logBytes = nil, 0
	a.loading.begin(meta.Bytes + a.node.log.SizeBehind(meta.Index))
	if meta.Stamp != 0 {
		to, err := a.begin(meta.Stamp, meta.Files)
		if err != nil {
			return err
		}
		if err := snapshot.Load(a.node.opts.FS, path, to, a.loaded); err != nil {
			return err
		}
		a.node.bodies.whole()
		a.standby.Strict()
		a.standby.Stamp(meta.Stamp)
		a.standby.Decided(meta.Decided)
		a.node.clock.observe(meta.Stamp, meta.BatchTerm)
	}
	a.state = meta
	return nil
}

// loaded counts bytes of the snapshot that is loaded, and ends that with the node.
func (a *applier) loaded(bytes int64) error {
	a.loading.readBytes.Add(bytes)
	if a.node.ended() {
		return ErrClosed
	}
	return a.node.bodies.room(false)
}

// begin begins a standby, and returns what is to be fed with a snapshot that has that list of body files.
func (a *applier) begin(start int64, files []spill.File) (to snapshot.Standby, err error) {
	if a.standby, err = a.node.opts.Queue.Standby(start); err != nil {
		return nil, err
	}
	return a.node.bodies.begin(a.standby, files)
}

// retire takes the end of a leadership. If the queue has served in it, it has executed
// what may never be committed, and has to be made anew.
func (a *applier) retire(l *Leadership) error {
	if a.leadership != l {
		return nil
	}
	a.voidSnapshot()
	ended := make(chan struct{})
	go a.node.awaitRetirement(ended)
	a.node.opts.Queue.Retire(l)
	close(ended)
	a.leadership = nil
	was := a.state
	if err := a.load(); err != nil {
		return err
	}
	if err := a.replay(was.Index); err != nil {
		return err
	}
	a.state.ConfState, a.state.Members = was.ConfState, was.Members
	a.publish()
	return nil
}

// awaitRetirement fails the node if the queue does not end its service: nothing else can
// end it, and its clients would wait in vain.
func (n *Node) awaitRetirement(ended <-chan struct{}) {
	if timeout := n.opts.retireTime; !endsWithin(ended, timeout) {
		n.fail(fmt.Errorf("%w: it was told to end its service more than %v ago", ErrStuck, timeout))
	}
}

// endsTicks is how many ticks endsWithin divides its timeout into.
const endsTicks = 40

// endsWithin waits until something has ended, but not for longer than a timeout. Time is counted
// by ticks that this goroutine has seen, so that a process that gets no processor is not taken for
// one that hangs.
func endsWithin(ended <-chan struct{}, timeout time.Duration) bool {
	ticker := time.NewTicker(timeout / endsTicks)
	defer ticker.Stop()
	for range endsTicks {
		select {
		case <-ended:
			return true
		case <-ticker.C:
		}
	}
	select {
	case <-ended: // with the last tick
		return true
	default:
		return false
	}
}

// replay applies entries once more, to a new standby. The members are not changed
// again.
func (a *applier) replay(last uint64) error {
	a.again = true
	defer func() { a.again = false }()
	return a.node.eachEntry(a.state.Index, last, func(e *raftpb.Entry) error {
		if e.GetType() != raftpb.EntryNormal {
			a.state.Index, a.state.Term = e.GetIndex(), e.GetTerm()
			return nil
		}
		return a.entry(e)
	})
}

// eachEntry reads committed entries behind index from up to last from the log.
func (n *Node) eachEntry(from, last uint64, f func(*raftpb.Entry) error) error {
	return n.log.Each(from, last, func(e *raftpb.Entry) error {
		if n.ended() {
			return ErrClosed
		}
		return f(e)
	})
}

// apply takes a MsgStorageApply.
func (a *applier) apply(m *raftpb.Message) {
	a.post(func() error {
		for _, e := range m.GetEntries() {
			if err := a.entry(e); err != nil {
				return err
			}
			a.node.opts.Queue.Applied(e.GetIndex(), a.effects)
			a.effects = a.effects[:0]
		}
		a.publish()
		a.respond(m)
		a.considerSnapshot()
		return nil
	})
}

// quietBytes is how much may be applied before raft has to hear of it. Raft hands out no
// further entries while maxApplying bytes are out that it has not heard of.
const quietBytes = maxApplying / 16

// respond tells raft what was applied: at once if that is much or changes the members,
// otherwise when raft wakes for something else.
func (a *applier) respond(m *raftpb.Message) {
	a.unreported += payload(m)
	urgent := a.unreported >= quietBytes || slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool {
		return e.GetType() != raftpb.EntryNormal
	})
	if !urgent {
		a.node.inbox.respondLater(m.GetResponses()...)
		return
	}
	a.unreported = 0
	a.node.inbox.respond(m.GetResponses()...)
}

// entry applies an entry.
func (a *applier) entry(e *raftpb.Entry) (err error) {
	switch e.GetType() {
	case raftpb.EntryNormal:
		if len(e.GetData()) > 0 { // else raft's own
			err = a.normal(e)
		}
	case raftpb.EntryConfChangeV2:
		err = a.confChange(e)
	default:
		err = fmt.Errorf("%w: %v", entry.ErrUnknown, e.GetType())
	}
	if err != nil {
		return fmt.Errorf("%v: %w", entrylog.EntryID{Index: e.GetIndex(), Term: e.GetTerm()}, err)
	}
	a.state.Index, a.state.Term = e.GetIndex(), e.GetTerm()
	size := int64(len(e.GetData())) + entryOverhead
	a.logBytes += size
	a.loading.readBytes.Add(size)
	return nil
}

// entryOverhead is what an entry takes on disk beside its data.
const entryOverhead = 64

// normal applies an entry of ours.
func (a *applier) normal(e *raftpb.Entry) error {
	h, err := a.reader.Reset(e.GetData())
	if err != nil {
		return err
	}
	if h.Term != e.GetTerm() && !planted.Has(planted.OldTerm) {
		if a.leadership != nil && h.Term == a.leadership.term {
			return diverged("a batch of %v is ignored", a.leadership)
		}
		return nil
	}
	if err := a.follows(&h); err != nil && !planted.Has(planted.OldTerm) {
		return err
	}
	if err := a.readable(uint32(h.Version)); err != nil {
		return err
	}
	if a.leadership != nil {
		if h.Term != a.leadership.term {
			return diverged("an entry of term %d while this node is in %v", h.Term, a.leadership)
		}
		a.advance(&h)
		return a.leadership.complete(h.Sequence)
	}
	if a.standby == nil {
		if _, err := a.begin(h.Stamp, nil); err != nil {
			return err
		}
		a.node.bodies.whole()
		a.standby.Strict()
	}
	a.standby.Stamp(max(a.state.Stamp, h.Stamp))
	if h.Decided > a.state.Decided {
		a.standby.Decided(h.Decided)
	}
	if err := a.records(); err != nil {
		return err
	}
	if err := a.node.bodies.room(!a.again); err != nil {
		return err
	}
	a.advance(&h)
	if h.Kind == entry.Begin {
		return a.serve(h.Term)
	}
	return nil
}

// follows checks that an entry comes in its place: behind the last one of its term.
func (a *applier) follows(h *entry.Header) error {
	switch {
	case h.Term == a.state.BatchTerm && h.Sequence == a.state.Sequence+1 && h.Kind != entry.Begin:
	case h.Term > a.state.BatchTerm && h.Sequence == 1 && h.Kind == entry.Begin:
	default:
		return diverged("a %v, number %d of term %d, behind number %d of term %d",
			h.Kind, h.Sequence, h.Term, a.state.Sequence, a.state.BatchTerm)
	}
	return nil
}

// readable refuses a version of entries that the members have agreed on and that this program
// cannot read.
func (a *applier) readable(version uint32) error {
	if newest := a.node.opts.Newest; version > newest {
		return fmt.Errorf("%w: the members have agreed on version %d, and it knows %d: start this node with a newer program",
			entry.ErrUnknown, version, newest)
	}
	return nil
}

// advance takes over what a header says, for the snapshot to come and the clock.
func (a *applier) advance(h *entry.Header) {
	a.state.BatchTerm, a.state.Sequence = h.Term, h.Sequence
	a.state.Stamp = max(a.state.Stamp, h.Stamp)
	a.state.Highest = max(a.state.Highest, h.LastID)
	a.state.Decided = max(a.state.Decided, h.Decided)
	a.state.Version = max(a.state.Version, uint32(h.Version))
	a.node.clock.observe(h.Stamp, h.Term)
}

// records applies the records of the reader's entry to the standby.
func (a *applier) records() error {
	for {
		b, err := a.reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		a.state.Highest = max(a.state.Highest, record.LastID(b)) // sessions are no ids
		if err := a.record(b); err != nil {
			return fmt.Errorf("the standby refuses a record: %w", err)
		}
		if x, ok := record.EffectOf(b); ok && !a.again && !planted.Has(planted.NoEffects) {
			a.effects = append(a.effects, x)
		}
	}
}

func (a *applier) record(b []byte) error {
	if planted.Has(planted.NoHolds) && record.KindOf(b) == record.Hold {
		return nil
	}
	known, err := a.decoder.Tell(b, segment, a.standby)
	if err == nil && !known {
		err = diverged("the end of job %d, which is not there", record.Number(b))
	}
	return err
}

// serve lets the queue serve, if the entry that was applied begins this node's leadership.
func (a *applier) serve(term uint64) error {
	l := a.node.leadership.Load()
	if l == nil || l.term != term || l.over.Load() {
		return nil
	}
	a.voidSnapshot()
	// The entry tells the time, to this node too, as it tells all others. The wall clock was
	// looked at for it, and may have been set since.
	a.node.clock.hear(term)
	l.base = a.node.clock.lead(a.state.Stamp)
	l.nextID = a.state.Highest + 1
	l.highest = a.state.Highest
	l.allow(uint16(a.state.Version))
	if err := a.node.opts.Queue.Serve(l); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	a.leadership, a.standby = l, nil
	a.node.bodies.lead()
	l.serving.Store(true)
	a.node.inbox.wake()
	a.node.opts.Log.Info("this node leads", "term", term)
	return nil
}

// confChange applies a change of the members. Raft is told on its own goroutine.
func (a *applier) confChange(e *raftpb.Entry) error {
	cc := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return fmt.Errorf("a change of the members: %w", err)
	}
	index := e.GetIndex()
	done := make(chan *raftpb.ConfState, 1)
	a.node.inbox.call(func() { done <- a.node.consensus.applyConfChange(index, cc) })
	select {
	case <-a.node.stopped:
		return ErrClosed
	case a.state.ConfState = <-done:
	}
	members, err := changeMembers(slices.Clone(a.state.Members), a.state.ConfState, cc)
	if err != nil {
		return err
	}
	a.state.Members = members
	a.node.inbox.call(func() { a.node.transport.SetPeers(index, members) })
	return a.removed()
}

// removed ends a node that is a member no more.
func (a *applier) removed() error {
	if isMember(a.state.ConfState, uint64(a.node.opts.Self)) {
		return nil
	}
	return ErrRemoved
}

// ended reports whether the node ends.
func (n *Node) ended() bool {
	select {
	case <-n.stopped:
		return true
	default:
		return false
	}
}

var errVoid = errors.New("the snapshot is void")
