package replica

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/journal"
	"trellis/binlog/replica/snapshot"
)

// walk is a snapshot that is being taken, on a goroutine of its own. The queue changes
// meanwhile, so the snapshot is put right by the entries that were applied since.
type walk struct {
	applier    *applier
	leadership *Leadership // in which the queue serves; nil for a standby
	from       uint64      // the last entry that was applied when the walk began
	last       uint64      // the highest id that the entries up to from name
	logBytes   int64       // applier.grown then
	number     uint64      // of the node's walks, from 1 on
	cancel     chan struct{}

	waitsForEnd bool        // the walk has ended, and waits for its extent; the applier's
	endPos      journal.Pos // as leader: all that the walk has seen was appended up to there; the applier's
	end         chan extent // where the snapshot ends
}

// extent is where a snapshot ends.
type extent struct {
	meta     snapshot.Meta
	logBytes int64 // bytes of entries up to there
}

// failure is why a walk has failed; the zero one is of none.
type failure struct {
	walk uint64 // its number
	at   int64  // Clock.Mono then
	err  error
}

// failedPause is the time for which no snapshot is taken because it is wanted, after one could
// not be taken. Those who want it ask again all the time, and the reason, which may be a full
// disk, may well be there still.
const failedPause = int64(5 * time.Second)

// requestSnapshot has a snapshot taken however short the log is, unless one has just failed: who
// wants it asks again.
func (a *applier) requestSnapshot() {
	a.post(func() error {
		a.snapshotWanted = a.snapshotWanted || a.hopes()
		a.considerSnapshot()
		return nil
	})
}

// hopes reports whether a snapshot that is wanted may be taken: not if one has just failed.
func (a *applier) hopes() bool {
	a.mu.Lock()
	f := a.failure
	a.mu.Unlock()
	return f.err == nil || a.node.opts.Clock.Mono()-f.at >= failedPause
}

// outgrown reports whether the next snapshot, which is of a later entry, is to replace the current one for its bodies:
// all are in memory again and it has some in files, so that these stay, and no earlier program reads it; or it has all
// of them itself, as one has that another member has sent, and most are in files by now.
func (a *applier) outgrown(current *snapshot.Meta) bool {
	o, files := &a.node.opts, len(current.Files) > 0
	if files != (o.Bodies == 0) || current.Index >= a.state.Index {
		return false
	}
	most := files || current.Bytes > o.SnapshotBytes && a.node.bodies.store.Stats().Needed > current.Bytes/2
	return most && a.hopes()
}

// begun is how many walks have begun.
func (a *applier) begun() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.walks
}

// failedSince tells why a walk has failed that began when `walks` had begun before, or later.
// It is nil if none has.
func (a *applier) failedSince(walks uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure.walk <= walks {
		return nil
	}
	return fmt.Errorf("no snapshot could be taken: %w", a.failure.err)
}

// considerSnapshot begins a snapshot if the log has become long or one is wanted. If one is
// being taken, it looks whether that can end.
func (a *applier) considerSnapshot() {
	if a.walk != nil {
		a.endWalk()
		return
	}
	current := a.node.store.current()
	long := a.logBytes+a.node.bodies.empty() > max(a.node.opts.SnapshotBytes, current.Bytes)
	wanted := long || a.snapshotWanted || a.outgrown(&current)
	if a.snapshotsOff || !wanted || a.standby == nil && a.leadership == nil || !a.walkLock.TryLock() {
		return
	}
	a.snapshotWanted = false
	a.mu.Lock()
	a.walks++
	number := a.walks
	a.mu.Unlock()
	w := &walk{
		applier: a, leadership: a.leadership, from: a.state.Index, last: a.state.Highest, logBytes: a.logBytes,
		number: number,
		cancel: make(chan struct{}), end: make(chan extent, 1),
	}
	a.walk = w
	a.node.disk.Go(func() {
		defer a.walkLock.Unlock()
		w.run()
		a.node.bodies.remove()
	})
}

// voidSnapshot gives up the snapshot that is being taken: the queue is not what it was.
// It does not wait for the walk, which may be waiting for the disk while clients wait to
// hear that leadership is lost.
func (a *applier) voidSnapshot() {
	if a.walk != nil {
		close(a.walk.cancel)
		a.walk = nil
	}
}

// endWalk tells the walk where its snapshot ends, once all that it has seen is
// committed.
func (a *applier) endWalk() {
	w := a.walk
	if !w.waitsForEnd || w.leadership != nil && w.leadership.Committed() < w.endPos {
		return
	}
	w.waitsForEnd = false
	w.end <- extent{a.state, a.logBytes}
}

func (w *walk) run() {
	n := w.applier.node
	began := time.Now()
	x, meta, err := w.write()
	switch {
	case w.void():
		return // whatever came of it
	case err != nil:
		n.opts.Log.Warn("no snapshot could be taken", "error", err)
	default:
		n.snapshotTook.Store(int64(time.Since(began)))
		n.opts.Log.Info("a snapshot was taken", "entry", meta.Index, "records", meta.Records, "bytes", meta.Bytes)
	}
	w.applier.post(func() error { w.applier.ended(w, x, meta.Index, err); return nil })
}

// ended takes the end of a walk, whose snapshot is current up to index if err is nil. A walk
// that was given up a moment before may have made its snapshot current nevertheless. The log
// is not trimmed then, because the applier may be reading the entries since the one before.
func (a *applier) ended(w *walk, x extent, index uint64, err error) {
	if a.walk != w {
		return
	}
	a.walk, a.snapshotWanted = nil, false
	a.logBytes -= x.logBytes // after an error only what comes now counts
	if err != nil {
		a.mu.Lock()
		a.failure = failure{w.number, a.node.opts.Clock.Mono(), err}
		a.mu.Unlock()
		return
	}
	a.node.inbox.call(func() { a.node.consensus.trimIndex = index })
}

// write takes the snapshot, up to its being current.
func (w *walk) write() (x extent, meta snapshot.Meta, err error) {
	n := w.applier.node
	x.logBytes = w.logBytes
	sw, err := snapshot.Create(n.opts.FS, n.store.dir)
	if err != nil {
		return x, meta, err
	}
	defer func() {
		if e := sw.Abort(); err != errVoid {
			err = errors.Join(err, e)
		}
	}()
	walk := n.bodies.walk()
	if err := w.jobs(sw, newTurns(w.cancel)); err != nil {
		return x, meta, err
	}
	if err := n.opts.Queue.Settings(sw.Setting); err != nil {
		return x, meta, err
	}
	if err := n.opts.Queue.Numbers(sw.Numbers); err != nil {
		return x, meta, err
	}
	if x, err = w.extent(); err != nil {
		return x, meta, err
	}
	if err := w.redo(sw, x.meta.Index, newTurns(w.cancel)); err != nil {
		return x, meta, err
	}
	if x.meta.Files, err = n.bodies.seal(sw.Files()); err != nil {
		return x, meta, err
	}
	meta, path, err := sw.Finish(x.meta)
	if err != nil {
		return x, meta, err
	}
	if w.void() {
		return x, meta, errVoid
	}
	if err := n.store.setCurrent(meta, path); err != nil {
		return x, meta, err
	}
	n.bodies.current(walk)
	return x, meta, nil
}

func (w *walk) void() bool {
	select {
	case <-w.cancel:
		return true
	default:
		return false
	}
}

// jobs writes all jobs that may have come into being before the walk. The records of later
// ones are written by redo. Were they visited as well, the walk of a queue that grows faster
// than the walk goes on would have no end.
//
// Retire and Standby wait for the call of Walk that is under way. So that call waits for no
// disk: the jobs of a turn are collected, and written when Walk has returned.
func (w *walk) jobs(sw *snapshot.Writer, t *turns) error {
	var c collected
	for id := uint64(1); id != 0 && id <= w.last; {
		if w.void() {
			return errVoid
		}
		c.jobs, c.bodies, c.bytes = c.jobs[:0], c.bodies[:0], 0 // records of the turn before are not used any more
		next, err := w.applier.node.opts.Queue.Walk(id, jobsAtATime, c.add)
		if err != nil && !errors.Is(err, errTurn) {
			return err
		}
		id = next
		for i := range c.jobs {
			x := &c.jobs[i]
			if err := sw.Full(&x.record); err != nil {
				return err
			}
			if x.hold.ID == 0 {
				continue
			}
			if err := sw.Hold(&x.hold); err != nil {
				return err
			}
		}
		t.end()
	}
	return nil
}

// extent waits until all that the walk has seen is committed and applied.
func (w *walk) extent() (extent, error) {
	var want journal.Pos
	if w.leadership != nil {
		want = w.leadership.position()
		w.leadership.wake()
	}
	a := w.applier
	a.post(func() error {
		if a.walk == w {
			w.waitsForEnd, w.endPos = true, want
			a.endWalk()
		}
		return nil
	})
	for {
		select {
		case x := <-w.end:
			return x, nil
		case <-w.cancel:
			return extent{}, errVoid
		case <-time.After(freshTime): // it may be a read round that was waited for: nothing is applied then
			a.post(func() error {
				if a.walk == w {
					a.endWalk()
				}
				return nil
			})
		}
	}
}

// redo writes the records of the entries since the walk began.
func (w *walk) redo(sw *snapshot.Writer, last uint64, t *turns) error {
	return w.applier.node.eachEntry(w.from, last, func(e *raftpb.Entry) error {
		if w.void() {
			return errVoid
		}
		t.did(int64(len(e.GetData())))
		_, _, err := sw.Entry(e)
		return err
	})
}
