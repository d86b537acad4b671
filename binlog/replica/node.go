package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
)

// Node is a member of a cluster: a replica of the queue, and a part of the vote on who
// leads. Methods may be called from any goroutine.
type Node struct {
	opts      Options
	log       *entrylog.Log
	store     *store
	bodies    *bodies
	space     *space
	clock     *clusterClock
	inbox     *inbox
	transport Transport // set by Run

	consensus *consensus
	writer    *writer
	applier   *applier

	changing sync.Mutex // held while the members or the leader are changed

	disk sync.WaitGroup // goroutines that the disk may keep from ending

	snapshotTook atomic.Int64 // nanoseconds; of the last one that was taken here

	leadership atomic.Pointer[Leadership]
	status     atomic.Pointer[raftStatus]
	leader     news // when status names another leader or term

	stopped  chan struct{} // closed at the end, after err was set
	stopOnce sync.Once
	err      error
}

// Directories in Options.Dir.
const (
	entriesDir   = "entries"
	snapshotsDir = "snapshots"
	bodiesDir    = "bodies"
)

// Open opens a node's entry log and current snapshot. Errors are those of entrylog.Open
// and of the snapshots. Run or Close follows.
func Open(opts Options) (*Node, error) {
	opts.setDefaults()
	n := &Node{
		opts: opts, clock: newClusterClock(opts.Clock), inbox: newInbox(), leader: news{next: make(chan struct{})},
		stopped: make(chan struct{}),
	}
	var err error
	if n.store, err = openStore(opts.FS, filepath.Join(opts.Dir, snapshotsDir)); err != nil {
		return nil, err
	}
	meta := n.store.current()
	if n.bodies, err = openBodies(n, meta.Files); err != nil {
		return nil, err
	}
	if err := n.openLog(&meta); err != nil {
		return nil, err
	}
	n.space = &space{node: n}
	n.space.free.Store(-1)
	n.writer = &writer{node: n, waker: newWaker()}
	n.applier = newApplier(n)
	if n.consensus, err = newConsensus(n, meta); err != nil {
		return nil, errors.Join(err, n.log.Close())
	}
	return n, nil
}

func (n *Node) openLog(meta *snapshot.Meta) error {
	dir := filepath.Join(n.opts.Dir, entriesDir)
	if n.opts.New {
		if err := n.opts.FS.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := vfs.SyncDir(n.opts.FS, n.opts.Dir); err != nil {
			return err
		}
	}
	log, err := entrylog.Open(dir, entrylog.Options{
		New: n.opts.New, Snapshot: meta.Raft(), OfferSnapshot: n.offer, FS: n.opts.FS, SegmentSize: n.opts.SegmentSize,
	})
	if err != nil {
		return err
	}
	n.log = log
	r := log.Recovery()
	if r.Entries > 0 {
		n.opts.Log.Info("the entry log was read", "entries", r.Entries, "bytes", r.Bytes, "took", r.Took)
	}
	if c := r.Cut; c != nil {
		n.opts.Log.Warn("the end of the entry log was cut off: a crash has torn the last write, of which nobody was told",
			"file", c.File, "offset", c.Offset)
	}
	return nil
}

// Close releases the log of a node that was opened and not run.
func (n *Node) Close() error {
	n.stop(ErrClosed)
	return n.log.Close()
}

// Run takes part in the cluster until the context ends, and then returns nil, or until
// the node cannot go on. When it returns the queue was retired, and the directory is
// free, unless the error is ErrHung or ErrStuck: then the disk, or the queue, may hold up
// anything, and the process has to end.
func (n *Node) Run(ctx context.Context, t Transport) error {
	n.transport = t
	meta := n.store.current()
	t.SetPeers(meta.Index, meta.Members)
	if n.opts.Ticks == nil {
		ticker := time.NewTicker(Tick)
		defer ticker.Stop()
		n.opts.Ticks = ticker.C
	}
	var others sync.WaitGroup
	n.disk.Go(n.writer.run)
	n.disk.Go(n.space.run)
	others.Go(n.applier.run)
	others.Go(n.consensus.run)
	others.Go(n.watchRaft)
	select {
	case <-ctx.Done():
		n.stop(nil)
	case <-n.stopped:
	}
	var closed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		others.Wait() // they begin walks
		if n.bodies.store != nil {
			n.bodies.store.Close()
		}
		n.disk.Wait()
		closed = n.log.Close()
	}()
	switch {
	case errors.Is(n.err, ErrStuck):
		return n.err
	case errors.Is(n.err, ErrHung):
		// The applier, which retires the queue, may wait for the disk too.
		endsWithin(n.applier.done, n.opts.hangGrace)
		return n.err
	}
	if !endsWithin(ended, n.opts.hangGrace) {
		return errors.Join(n.err, n.stuck())
	}
	return errors.Join(n.err, closed)
}

// hangGrace is how long the applier has to retire the queue when the disk does not answer,
// and how long a node may take to end. Nothing is lost that was acknowledged if it does not
// come to its end, as nothing is when the process is killed.
const hangGrace = 3 * time.Second

// stuck tells what keeps a node from ending.
func (n *Node) stuck() error {
	select {
	case <-n.applier.done:
		return fmt.Errorf("%w: the node is to end, and what it writes to %s has not come back for %v; look at the disk",
			ErrHung, n.opts.Dir, n.opts.hangGrace)
	default:
		return fmt.Errorf("%w: the node is to end, and its clients' connections have not ended in %v",
			ErrStuck, n.opts.hangGrace)
	}
}

// stop ends the node. The first error counts; nil is none.
func (n *Node) stop(err error) {
	n.stopOnce.Do(func() {
		n.err = err
		close(n.stopped)
	})
}

// fail ends the node because it cannot go on. Run's caller says why, when Run returns.
func (n *Node) fail(err error) {
	if errors.Is(err, ErrClosed) {
		return
	}
	n.opts.Log.Info("the node ends", "error", err)
	n.stop(err)
}

// Message takes a message of another member. It never blocks, and discards the message
// when too many wait.
func (n *Node) Message(m *raftpb.Message) {
	if fromPeers(m) {
		n.inbox.peer(m)
	}
}

// Unreachable tells that messages to a member may be lost.
func (n *Node) Unreachable(id member.ID) {
	n.inbox.call(func() { n.consensus.rn.ReportUnreachable(uint64(id)) })
}
