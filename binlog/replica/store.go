package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
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
	reading map[string]*reading // by the path of a snapshot's directory
}

// reading is a snapshot that somebody reads or sends.
type reading struct {
	readers int
	files   []spill.File
}

// openStore finds the current snapshot. A node that is about to join has none.
func openStore(fsys vfs.FS, dir string) (*store, error) {
	s := &store{fs: fsys, dir: dir, turn: make(chan struct{}, 1), reading: map[string]*reading{}}
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
	r := s.reading[s.path]
	if r == nil {
		r = &reading{files: s.meta.Files}
		s.reading[s.path] = r
	}
	r.readers++
	return s.meta, s.path
}

func (s *store) release(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.reading[path]
	if r.readers--; r.readers == 0 {
		delete(s.reading, path)
	}
}

// lists are the numbers of the body files of the current snapshot, and of those that are read or sent.
func (s *store) lists() (numbers []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(files []spill.File) {
		for i := range files {
			numbers = append(numbers, files[i].Number)
		}
	}
	add(s.meta.Files)
	for _, r := range s.reading {
		add(r.files)
	}
	return numbers
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
	used := path == s.path || s.reading[path] != nil
	s.mu.Unlock()
	if used {
		return nil
	}
	return snapshot.Remove(s.fs, s.dir, path)
}

// isCurrent is an error if a snapshot is not that of an entry which was current a moment before.
func isCurrent(meta *snapshot.Meta, m *raftpb.SnapshotMetadata) error {
	if meta.Index != m.GetIndex() {
		return fmt.Errorf("the snapshot of entry %d is gone; that of entry %d comes next", m.GetIndex(), meta.Index)
	}
	return nil
}

// raftSnapshot is a snapshot as raft has it: without data, which the files hold.
func raftSnapshot(m *snapshot.Meta) *raftpb.Snapshot { return &raftpb.Snapshot{Metadata: m.Raft()} }
