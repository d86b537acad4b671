package replica

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/snapshot"
	"trellis/binlog/vfs"
)

// store is the snapshots of a node's directory. Methods may be called from any goroutine.
type store struct {
	fs  vfs.FS
	dir string

	// turn holds one while the pointer is changed. It is no mutex: who waits for it waits for a disk, for which time has
	// to pass where time is simulated.
	turn chan struct{}

	mu      sync.Mutex
	meta    snapshot.Meta // the current one; Index 0 if there is none
	path    string
	reading map[string]int // readers of a snapshot's directory, by its path
}

// openStore finds the current snapshot. A node that is about to join has none.
func openStore(fsys vfs.FS, dir string) (*store, error) {
	s := &store{fs: fsys, dir: dir, turn: make(chan struct{}, 1), reading: map[string]int{}}
	var err error
	if s.meta, s.path, err = snapshot.Current(fsys, dir); err != nil && !errors.Is(err, snapshot.ErrNone) {
		return nil, err
	}
	s.meta.ConfState = raftpb.EnsureConfState(s.meta.ConfState)
	return s, nil
}

// current is the snapshot that the pointer names.
func (s *store) current() snapshot.Meta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta
}

// hold returns the current snapshot and its directory, which stays until release.
func (s *store) hold() (snapshot.Meta, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading[s.path]++
	return s.meta, s.path
}

func (s *store) release(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[path]--; s.reading[path] == 0 {
		delete(s.reading, path)
	}
}

// setCurrent has the pointer name a snapshot that is complete, and removes older ones
// that nobody reads.
func (s *store) setCurrent(m snapshot.Meta, path string) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if err := snapshot.SetCurrent(s.fs, s.dir, &m); err != nil {
		return err
	}
	s.mu.Lock()
	s.meta, s.path = m, path
	keep := slices.AppendSeq([]string{path}, maps.Keys(s.reading))
	s.mu.Unlock()
	// The snapshot counts, whatever becomes of the old ones.
	_ = snapshot.Prune(s.fs, s.dir, keep...)
	return nil
}

// remove removes a snapshot that is not the current one, and that nobody reads.
func (s *store) remove(path string) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.mu.Lock()
	used := path == s.path || s.reading[path] > 0
	s.mu.Unlock()
	if used {
		return nil
	}
	return snapshot.Remove(s.fs, s.dir, path)
}

// send writes the snapshot of an entry, if it is the current one.
func (s *store) send(m *raftpb.SnapshotMetadata, w io.Writer) error {
	meta, path := s.hold()
	defer s.release(path)
	if meta.Index != m.GetIndex() {
		return fmt.Errorf("the snapshot of entry %d is gone; that of entry %d comes next", m.GetIndex(), meta.Index)
	}
	return snapshot.Send(s.fs, path, w)
}

// raftSnapshot is a snapshot as raft has it: without data, which the files hold.
func raftSnapshot(m *snapshot.Meta) *raftpb.Snapshot { return &raftpb.Snapshot{Metadata: m.Raft()} }
