package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/internal/planted"
)

// writer is the goroutine that stores entries, votes, and the places of snapshots. It
// puts all that waits into one store, and lets the responses go, in order, when that is on
// disk.
type writer struct {
	node *Node
	waker

	mu              sync.Mutex
	queue           []job            // in order
	trim            entrylog.EntryID // the log may begin behind it; zero is none
	bytes           atomic.Int64     // of the store that is under way
	store           atomic.Uint64    // its number; 0 if there is none
	pendingMessages atomic.Int64     // messages that are not done

	// The goroutine's.
	stores        uint64
	lastHardState *entrylog.Update // the latest hard state, if nobody waits for it
	nextWarning   int64            // Clock.Mono before which a full disk is not logged again
}

// Times of the writer.
const (
	idleTime = 100 * time.Millisecond // before a mark
	fullTime = 100 * time.Millisecond // before another try when the disk is full
	fullWarn = time.Minute            // between two warnings of a full disk
)

// job is a MsgStorageAppend.
type job struct {
	*raftpb.Message
	snapshot *incoming // the message's snapshot; nil if it has none
}

// append takes a MsgStorageAppend. It never blocks. One without responses has no entries, and
// does not wake the writer: nobody waits for it.
func (w *writer) append(m *raftpb.Message, s *incoming) {
	w.pendingMessages.Add(1)
	w.mu.Lock()
	w.queue = append(w.queue, job{m, s})
	w.mu.Unlock()
	if s != nil || len(m.GetResponses()) > 0 {
		w.wake()
	}
}

// trimTo drops the log up to an entry that is applied, and that the current snapshot
// includes.
func (w *writer) trimTo(id entrylog.EntryID) {
	w.mu.Lock()
	w.trim = id
	w.mu.Unlock()
	w.wake()
}

func (w *writer) take() ([]job, entrylog.EntryID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue, trim := w.queue, w.trim
	w.queue, w.trim = nil, entrylog.EntryID{}
	return queue, trim
}

// storing tells which store is under way, 0 if none, and how many bytes it has.
func (w *writer) storing() (number uint64, bytes int64) { return w.store.Load(), w.bytes.Load() }

// stores reports whether the entry log is being written to. Any goroutine may call it.
func (n *Node) stores() bool { return n.writer.store.Load() != 0 }

func (w *writer) run() {
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		var err error
		select {
		case <-w.node.stopped:
			return
		case <-w.waker:
			err = w.work()
		case <-idle.C:
			err = w.rest()
		}
		idle.Reset(idleTime)
		if err != nil {
			w.node.fail(fmt.Errorf("the entry log in %s: %w", w.node.opts.Dir, err))
			return
		}
	}
}

// work does all that waits.
func (w *writer) work() error {
	queue, trim := w.take()
	for len(queue) > 0 {
		n := 1 // a snapshot's message begins a part
		for n < len(queue) && queue[n].snapshot == nil {
			n++
		}
		if err := w.save(queue[:n]); err != nil {
			return err
		}
		w.pendingMessages.Add(-int64(n))
		queue = queue[n:]
	}
	if trim.Index > 0 {
		return w.retryWhileFull(0, func() error { return w.node.log.Trim(trim) })
	}
	return nil
}

// save stores messages, of which the first one may have a snapshot, and lets their
// responses go.
func (w *writer) save(ms []job) error {
	if s := ms[0].snapshot; s != nil {
		if err := w.install(s); err != nil {
			return err
		}
	}
	var updates []entrylog.Update
	var bytes int64
	answers := false
	if w.lastHardState != nil {
		updates = append(updates, *w.lastHardState)
	}
	for _, m := range ms {
		answers = answers || len(m.GetResponses()) > 0
		bytes += payload(m.Message)
		u := entrylog.Update{Entries: m.GetEntries()}
		if m.Term != nil {
			u.HardState = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
		}
		updates = append(updates, u)
	}
	if !answers {
		w.lastHardState = &updates[len(updates)-1]
		return nil
	}
	w.lastHardState = nil
	if planted.Has(planted.EarlyAnswer) {
		w.answerPeers(ms)
	}
	began := time.Now()
	if err := w.retryWhileFull(bytes, func() error { return w.node.log.Append(updates...) }); err != nil {
		return err
	}
	w.node.opts.Observer.Stored(time.Since(began))
	if !planted.Has(planted.EarlyAnswer) {
		w.answerPeers(ms)
	}
	w.answerRaft(ms)
	return nil
}

// answerPeers lets the responses of messages go to other members: what they promise was
// stored.
func (w *writer) answerPeers(ms []job) {
	for _, m := range ms {
		for _, r := range m.GetResponses() {
			if r.GetTo() != uint64(w.node.opts.Self) {
				w.node.transport.Send(r)
			}
		}
	}
}

// answerRaft tells this node's own raft what was stored.
func (w *writer) answerRaft(ms []job) {
	var own []*raftpb.Message
	for _, m := range ms {
		for _, r := range m.GetResponses() {
			if r.GetTo() == uint64(w.node.opts.Self) {
				own = append(own, r)
			}
		}
	}
	w.node.inbox.respond(own...)
}

// retryWhileFull calls store, again and again while the disk is full: that is the one failure
// that leaves the log as it was.
func (w *writer) retryWhileFull(bytes int64, store func() error) error {
	for {
		err := w.timed(bytes, store)
		if !errors.Is(err, entrylog.ErrNoSpace) {
			return err
		}
		if w.node.space.release() {
			continue
		}
		w.warnFull()
		if err := w.trimFull(); err != nil {
			return err
		}
		if err := w.node.pause(context.Background(), fullTime); err != nil {
			return err
		}
	}
}

// timed calls store, and lets others see for how long that takes.
func (w *writer) timed(bytes int64, store func() error) error {
	w.bytes.Store(bytes)
	w.stores++
	w.store.Store(w.stores)
	defer w.store.Store(0)
	return store()
}

// trimFull removes what the log need not have any more, while something that came before waits
// for space.
func (w *writer) trimFull() error {
	w.mu.Lock()
	trim := w.trim
	w.mu.Unlock()
	if trim.Index == 0 {
		return nil
	}
	if err := w.node.log.Trim(trim); !errors.Is(err, entrylog.ErrNoSpace) {
		return err
	}
	return nil // it is tried again
}

// warnFull tells that the disk is full, once for many tries.
func (w *writer) warnFull() {
	now := w.node.opts.Clock.Mono()
	if now < w.nextWarning {
		return
	}
	w.nextWarning = now + int64(fullWarn)
	w.node.opts.Log.Warn("the disk is full: this node waits for space", "dir", w.node.opts.Dir)
}

// rest runs when nothing has come for a moment: it stores what nobody waits for, and has the
// log marked.
func (w *writer) rest() error {
	if err := w.work(); err != nil {
		return err
	}
	if w.lastHardState != nil {
		u := *w.lastHardState
		w.lastHardState = nil
		if err := w.retryWhileFull(0, func() error { return w.node.log.Append(u) }); err != nil {
			return err
		}
	}
	if err := w.timed(0, w.node.log.Mark); !errors.Is(err, entrylog.ErrNoSpace) {
		return err
	}
	return nil // a mark that found no space is tried again
}

// install makes a durable snapshot of the leader's the current one, drops the log up to it, and
// passes it to the applier.
func (w *writer) install(s *incoming) error {
	if err := w.retryWhileFull(0, func() error { return w.node.store.setCurrent(s.meta, s.path) }); err != nil {
		return err
	}
	if err := w.retryWhileFull(0, func() error { return w.node.log.Install(s.meta.Entry()) }); err != nil {
		return err
	}
	w.node.applier.post(w.node.applier.install)
	return nil
}
