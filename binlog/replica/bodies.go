package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// Spilling is a Standby whose bodies can leave memory for body files, also while it serves: an engine. Spill and the
// methods of a Standby are called by one goroutine at a time.
type Spilling interface {
	Standby
	spill.Owner

	// SpillTo gives it the body files, before anything is fed.
	SpillTo(l *spill.Life)
	// Spill hands out full records of bodies that are to leave memory, having looked at so many bodies at most. It
	// reports how many bytes have left, and whether there is more to do at once. give waits for no disk.
	Spill(most int, give func(*journal.Record) (more bool)) (freed int64, more bool)
	// BodyMemory is how many bytes bodies take.
	BodyMemory() int64
}

// BodyStats tell of bodies that may leave memory.
type BodyStats struct {
	Memory  int64 // bytes that bodies take, which may be Limit
	Limit   int64
	Freed   int64 // bytes of memory that they have left
	Spilled int64 // bytes of bodies that were written to body files
	Files   spill.Stats
	Reads   spill.Reads
}

// bodies are the body files of a node, and who spills to them: the applier while it feeds a standby, and a goroutine of
// its own while the queue serves. Its methods are the applier's, unless they say otherwise.
type bodies struct {
	node  *Node
	store *spill.Store               // nil if there are none
	life  atomic.Pointer[spill.Life] // any goroutine reads it; nil before the first
	queue atomic.Pointer[Spilling]   // whose bodies leave memory, nil if they do not; any goroutine reads it

	stop  chan struct{} // ends the goroutine of a leadership; nil if there is none
	ended chan struct{}

	next    time.Time     // when the applier looks again; zero when the bell rings only
	loads   *spill.Reader // of a snapshot whose bodies all get into memory; nil if none is loaded
	waits   int64         // bytes of files that wait for the next snapshot, as of counted
	counted time.Time

	freed, spilled atomic.Int64
}

const (
	// spillLook is how many bodies are looked at before the goroutine looks whether it is to end.
	spillLook = 1 << 14
	// spillPause is waited before bodies are tried again that could not leave memory: they are not committed yet, or
	// clients are being sent them.
	spillPause = 10 * time.Millisecond
	// spillFailed is the same after an error of the disk.
	spillFailed = time.Second
)

// openBodies opens the body files if bodies may leave memory, or ever have: then they are read back.
func openBodies(n *Node, files []spill.File) (*bodies, error) {
	b := &bodies{node: n}
	dir := filepath.Join(n.opts.Dir, bodiesDir)
	if n.opts.Bodies == 0 && len(files) == 0 {
		if _, err := n.opts.FS.List(dir); errors.Is(err, fs.ErrNotExist) {
			return b, nil
		} else if err != nil {
			return nil, err
		}
	}
	var err error
	b.store, err = spill.Open(spill.Options{FS: n.opts.FS, Dir: dir, Log: n.opts.Log, Commits: n.stores})
	return b, err
}

// begin gives the body files to a new standby, which is about to be fed with a snapshot that has that list of them. It
// returns what is fed. The queue before was given up.
func (b *bodies) begin(s Standby, files []spill.File) (snapshot.Standby, error) {
	if b.store == nil {
		return s, nil
	}
	owner := spill.Owner(nobodys{})
	q, spills := s.(Spilling)
	if spills = spills && b.node.opts.Bodies > 0; spills {
		owner = q
	}
	life, err := b.store.Begin(owner, files)
	if err != nil {
		return nil, err
	}
	b.life.Store(life)
	if !spills {
		b.loads = spill.NewReader(b.node.opts.FS, b.store.Dir, files)
		return snapshot.Filled(s, b.loads, func(err error) error { return fmt.Errorf("%w; %w", err, ErrBodies) }), nil
	}
	q.SpillTo(life)
	b.queue.Store(&q)
	return keeper{s, life}, nil
}

// whole says that the snapshot was read whole: what is in no list is of no use.
func (b *bodies) whole() {
	if b.store == nil {
		return
	}
	b.life.Load().Listed()
	if b.loads != nil {
		_ = b.loads.Close()
		b.loads = nil
	}
	if b.node.applier.walkLock.TryLock() { // otherwise the walk does it that has the lock
		defer b.node.applier.walkLock.Unlock()
		b.remove()
	}
}

// remove removes body files that nobody needs. The caller holds the lock of walks: no list comes to be held meanwhile.
func (b *bodies) remove() {
	if b.store == nil {
		return
	}
	if err := b.store.Remove(b.node.store.lists()); err != nil {
		b.node.opts.Log.Warn("body files that are not needed stay", "error", err)
	}
}

// walk says that a snapshot begins to ask for the places of bodies, and returns the walk's number. The goroutine of the
// walk calls it, as it does the next two.
func (b *bodies) walk() uint64 {
	if b.store == nil {
		return 0
	}
	return b.store.Walk()
}

// seal makes body files durable that a snapshot refers to, and returns their list.
func (b *bodies) seal(numbers []uint32) ([]spill.File, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	return b.store.Seal(numbers)
}

// current says that the snapshot of a walk counts.
func (b *bodies) current(walk uint64) {
	if b.store != nil {
		b.store.Current(walk)
	}
}

// empty is how many bytes of body files wait for the next snapshot to count, to be removed.
func (b *bodies) empty() int64 {
	if now := time.Now(); b.queue.Load() != nil && now.Sub(b.counted) > spillFailed {
		b.waits, b.counted = b.store.Stats().Empty, now
	}
	return b.waits
}

// keeper is a Standby that is fed with a snapshot, and refers to bodies where that has them.
type keeper struct {
	Standby
	life *spill.Life
}

// Full implements snapshot.Standby.
func (k keeper) Full(r *journal.Record, place journal.Place) (journal.Former, error) {
	if r.Absent == nil {
		return k.Standby.Full(r, journal.Place{Segment: segment}) // and not that of the snapshot
	}
	if err := k.life.Keep(place, r.Absent.Size); err != nil { // before the standby may forget it
		return journal.Former{}, err
	}
	return k.Standby.Full(r, place)
}

// nobodys are bodies of a queue that has all of them in memory.
type nobodys struct{}

func (nobodys) Spilled(uint64, journal.Place) bool              { return false }
func (nobodys) Leaves(uint64, journal.Place) bool               { return false }
func (nobodys) Moved(uint64, journal.Place, journal.Place) bool { return false }
func (nobodys) Loaded([]journal.Fetched)                        {}

// turn lets bodies leave memory. more: there is more to do at once. freed: some have left.
func (b *bodies) turn(q Spilling, life *spill.Life) (freed, more bool, err error) {
	if b.full(q, 6) {
		if err := life.Ready(); err != nil {
			q.Spill(0, nil) // puts that wait are tried again
			return false, false, err
		}
	}
	var failed error
	written := int64(0)
	n, more := q.Spill(spillLook, func(r *journal.Record) bool {
		written += int64(len(r.Body))
		failed = errors.Join(failed, life.Add(r))
		return failed == nil && !life.Full()
	})
	if err := errors.Join(failed, life.Write()); err != nil {
		return false, false, err
	}
	b.freed.Add(n)
	b.spilled.Add(written)
	return n+written > 0, more, nil
}

// full reports whether bodies take more memory than so many eighths of what they may.
func (b *bodies) full(q Spilling, eighths int64) bool {
	return q.BodyMemory() > b.node.opts.Bodies/8*eighths
}

// room has bodies of the standby leave memory that take more than they may, before more is fed. After an error of the
// disk it waits and tries again: a standby does not grow. Where the disk is full it goes on if grow is set, because
// little can come then, and what lies on the disk becomes less only if this node goes on. Nothing is moved: jobs of a
// snapshot that is loaded may not be there yet, whose bodies would be taken for damaged.
func (b *bodies) room(grow bool) error {
	p := b.queue.Load()
	if p == nil {
		return nil
	}
	for b.full(*p, 8) {
		freed, _, err := b.turn(*p, b.life.Load())
		switch {
		case b.node.ended():
			return ErrClosed
		case err == nil && !freed, grow && vfs.IsNoSpace(err):
			return nil
		case err == nil:
			continue
		}
		b.node.opts.Log.Warn("bodies cannot leave memory, and this node waits", "error", err)
		select {
		case <-b.node.stopped:
			return ErrClosed
		case <-time.After(spillFailed):
		}
	}
	return nil
}

// tend spills and moves some bodies of the standby, if that is due. more: it is to be called again as soon as nothing
// else is to be done.
func (b *bodies) tend() (more bool) {
	p := b.queue.Load()
	if p == nil || b.stop != nil {
		return false
	}
	life := b.life.Load()
	if b.next.IsZero() {
		select {
		case <-life.Bell():
		default:
			return false
		}
	} else if time.Now().Before(b.next) {
		return false
	}
	pause, calm := b.work(*p, life)
	if b.next = time.Now().Add(pause); calm {
		b.next = time.Time{}
	}
	return !calm && pause == 0
}

// work is turn, or moves bodies from file to file, and returns after how long it is to be called again; or calm: not
// before the bell rings. Any one goroutine may call it.
func (b *bodies) work(q Spilling, life *spill.Life) (pause time.Duration, calm bool) {
	_, more, err := b.turn(q, life)
	if err == nil && !more {
		more, err = life.Move()
	}
	switch {
	case errors.Is(err, spill.ErrEnded): // the office was lost, and nobody waits for this queue's bodies to leave
		return 0, true
	case err != nil:
		b.node.opts.Log.Warn("bodies cannot leave memory, or be moved", "error", err)
		return spillFailed, false
	case more:
		return 0, false
	case b.full(q, 7):
		return spillPause, false
	}
	return 0, true
}

// lead has a goroutine spill while the queue serves.
func (b *bodies) lead() {
	p := b.queue.Load()
	if p == nil {
		return
	}
	stop, ended, life := make(chan struct{}), make(chan struct{}), b.life.Load()
	b.stop, b.ended = stop, ended
	b.node.disk.Go(func() {
		defer close(ended)
		for {
			bell, again := life.Bell(), (<-chan time.Time)(nil)
			if pause, calm := b.work(*p, life); !calm {
				bell, again = nil, time.After(pause)
			}
			select {
			case <-stop:
				return
			case <-bell:
			case <-again:
			}
		}
	})
}

// end has that goroutine end, and does not wait for it.
func (b *bodies) end() {
	if b.stop != nil {
		close(b.stop)
		b.stop = nil
	}
}

// halt ends that goroutine, which may wait for the disk. The queue was retired.
func (b *bodies) halt() {
	if b.stop != nil {
		b.end()
		<-b.ended
	}
	b.queue.Store(nil)
	b.waits, b.counted = 0, time.Time{}
}

// bodiesHere are the bodies that this node has on disk, as of what it has applied, which are held until endBodies.
func (n *Node) bodiesHere() (*spill.Incoming, error) {
	if n.opts.Bodies == 0 {
		return nil, errors.New("this node has all bodies in memory")
	}
	var in *spill.Incoming
	listed := make(chan error, 1)
	n.applier.post(func() error {
		var err error
		in, err = n.applier.list()
		listed <- err
		return nil
	})
	select {
	case err := <-listed:
		return in, err
	case <-n.stopped:
		return nil, ErrClosed
	}
}

// list lists the bodies that the standby has in files: none if the queue serves, and has executed what may never be
// committed. Nothing is applied meanwhile, and no body forgets its place.
func (a *applier) list() (*spill.Incoming, error) {
	b := a.node.bodies
	life := b.life.Load()
	if life == nil { // a new member, which has no queue yet
		var err error
		if life, err = b.store.Begin(nobodys{}, nil); err != nil {
			return nil, err
		}
		life.Listed()
		b.life.Store(life)
	}
	in := life.Incoming()
	if a.standby == nil {
		return in, nil
	}
	for id := uint64(1); id != 0; {
		if a.node.ended() {
			return in, ErrClosed
		}
		var err error
		id, err = a.node.opts.Queue.Walk(id, jobsAtATime, func(r *journal.Record, _ *journal.Hold) error {
			if r.Absent != nil {
				in.Here(r.ID, r.Absent.Place)
			}
			return nil
		})
		if err != nil {
			return in, err
		}
	}
	return in, nil
}

// endBodies lets go of the bodies of a snapshot that is given up, and is nowhere.
func (n *Node) endBodies(in *spill.Incoming) {
	if in == nil {
		return
	}
	in.End()
	if n.applier.walkLock.TryLock() { // otherwise the walk removes what came that has the lock
		defer n.applier.walkLock.Unlock()
		n.bodies.remove()
	}
}

// reader reads bodies of a snapshot that is held. Any goroutine may call it.
func (b *bodies) reader(files []spill.File) *spill.Reader {
	if l := b.life.Load(); l != nil {
		return l.Reader(files)
	}
	return spill.NewReader(b.node.opts.FS, filepath.Join(b.node.opts.Dir, bodiesDir), files)
}

// Bodies tells of bodies that may leave memory, nil if they may not. Any goroutine may call it.
func (n *Node) Bodies() *BodyStats {
	p, l := n.bodies.queue.Load(), n.bodies.life.Load()
	if p == nil || l == nil {
		return nil
	}
	return &BodyStats{
		Memory: (*p).BodyMemory(), Limit: n.opts.Bodies, Freed: n.bodies.freed.Load(), Spilled: n.bodies.spilled.Load(),
		Files: n.bodies.store.Stats(), Reads: l.Reads(),
	}
}
