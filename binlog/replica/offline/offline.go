package offline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog"
	"trellis/binlog/record"
	"trellis/binlog/replica/entrylog"
	"trellis/binlog/replica/member"
	"trellis/binlog/replica/snapshot"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// SkippedIDs is how many ids behind the last one on record no job of the new cluster gets.
const SkippedIDs = 10_000_000

// Errors that a caller decides by.
var (
	// ErrNotEmpty tells that the new directory has something in it.
	ErrNotEmpty = errors.New("the directory is not empty")

	// ErrNoLog tells that the source has no binlog.
	ErrNoLog = errors.New("there is no binlog")

	// ErrNoMember tells that the source is not the directory of a node that was a member.
	ErrNoMember = errors.New("not the directory of a member of a cluster")
)

// Made tells what was made.
type Made struct {
	Cluster member.ClusterID
	Records uint64 // of jobs and settings: at least as many as there are jobs
	Bytes   int64
	LastID  uint64 // no job had a greater id
	NextID  uint64 // of the first new job

	// Set by Recover: the cluster that was, how many entries of its log followed the
	// snapshot, and how many of them are not known to be committed.
	Old         member.ClusterID
	Entries     uint64
	Uncommitted uint64

	// Damage is what Recover has left out: of the snapshot or of the log what lies in that file
	// from that offset on, and all that follows. It is nil where there is none.
	Damage struct{ Snapshot, Log *record.DamageError }
	// Lost is the index of the first entry that is lost; 0 if none is.
	Lost uint64
}

// Init makes the directory of node, a cluster of its own, out of the binlog in from. That
// may be a backup, or a log of beanstalkd's. dir is made if it does not exist. Errors wrap
// those of binlog.Open, ErrNoLog and ErrNotEmpty.
func Init(fsys vfs.FS, from string, node member.Node, dir string) (Made, error) {
	return build(fsys, node, dir, func(w *snapshot.Writer, m *snapshot.Meta, _ *Made) error {
		log, err := binlog.Open(from, binlog.Options{FS: fsys})
		if err != nil {
			return err
		}
		if log.Recovery().Segments == 0 {
			return errors.Join(fmt.Errorf("%s: %w", from, ErrNoLog), log.Close())
		}
		if err := log.Replay(w.Copier()); err != nil {
			return errors.Join(err, log.Close())
		}
		m.Highest = log.NextID() - 1
		m.Stamp = time.Now().UnixNano()
		return log.Close()
	})
}

// Recover makes the directory of node, a cluster of its own, out of the directory of a
// member that does not run, which stays as it is. dir is made if it does not exist. Damage in
// the old directory is an error, a *record.DamageError; if skip is set, what is sound before it
// is taken instead. Errors wrap those of member.Read, snapshot.Find, entrylog.Read,
// vfs.ErrLocked, ErrNotEmpty and ErrNoMember.
func Recover(fsys vfs.FS, from string, node member.Node, dir string, skip bool) (Made, error) {
	lock, err := lockSource(fsys, from)
	if err != nil {
		return Made{}, err
	}
	defer func() { _ = lock.Close() }()
	id, err := member.Read(fsys, from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Made{}, fmt.Errorf("%s: %w: it has no mark", from, ErrNoMember)
	case err != nil:
		return Made{}, err
	case id.State != member.Joined:
		return Made{}, fmt.Errorf("%s: %w: its node is %s", from, ErrNoMember, id.State)
	}
	return build(fsys, node, dir, func(w *snapshot.Writer, m *snapshot.Meta, made *Made) error {
		made.Old = id.Cluster.ID
		return recoverInto(fsys, from, w, m, made, skip)
	})
}

// lockSource locks a member's directory, unless no node has ever run in it or nobody can write
// there: then none runs.
func lockSource(fsys vfs.FS, from string) (io.Closer, error) {
	es, err := fsys.List(from)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(es, func(e vfs.Entry) bool { return e.Name == "lock" }) {
		return io.NopCloser(nil), nil
	}
	lock, err := vfs.LockDir(fsys, from)
	if errors.Is(err, syscall.EROFS) {
		return io.NopCloser(nil), nil
	}
	return lock, err
}

func recoverInto(fsys vfs.FS, from string, w *snapshot.Writer, m *snapshot.Meta, made *Made, skip bool) (err error) {
	old, path, err := snapshot.Find(fsys, filepath.Join(from, snapshotsDir))
	if err != nil {
		return err
	}
	opts := entrylog.Options{Snapshot: old.Raft(), FS: fsys}
	log, damage, err := entrylog.Read(filepath.Join(from, entriesDir), opts, skip)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	made.Damage.Log = damage
	c := w.Copier()
	bodies := spill.NewReader(fsys, filepath.Join(from, bodiesDir), old.Files)
	defer func() { err = errors.Join(err, bodies.Close()) }()
	lost := func(err error) error { // of one job
		if skip && (made.Damage.Snapshot != nil || errors.As(err, &made.Damage.Snapshot)) {
			return nil
		}
		return err
	}
	err = snapshot.Load(fsys, path, snapshot.Filled(c, bodies, lost), nil)
	if err != nil && !(skip && errors.As(err, &made.Damage.Snapshot)) {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	m.Highest, m.Stamp = old.Highest, old.Stamp
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	hard, _, err := log.InitialState()
	if err != nil {
		return err
	}
	if damage != nil {
		made.Lost = last + 1
	}
	made.Entries = last - old.Index
	made.Uncommitted = last - min(last, max(hard.GetCommit(), old.Index))
	return log.Each(old.Index, last, func(e *raftpb.Entry) error {
		h, counts, err := w.Entry(e)
		if err != nil {
			return fmt.Errorf("entry %d of term %d: %w", e.GetIndex(), e.GetTerm(), err)
		}
		if counts {
			m.Highest, m.Stamp = max(m.Highest, h.LastID), max(m.Stamp, h.Stamp)
		}
		return nil
	})
}

// Names of the directories in a member's directory.
const (
	entriesDir   = "entries"
	snapshotsDir = "snapshots"
	bodiesDir    = "bodies"
)

// build makes a directory whose first snapshot is what fill writes. fill sets Highest, the
// greatest id on record, and Stamp.
func build(
	fsys vfs.FS, node member.Node, dir string, fill func(*snapshot.Writer, *snapshot.Meta, *Made) error,
) (made Made, err error) {
	id, err := member.Alone(node)
	if err != nil {
		return made, err
	}
	lock, err := takeEmpty(fsys, dir)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	w, err := snapshot.Create(fsys, filepath.Join(dir, snapshotsDir))
	if err != nil {
		return made, err
	}
	meta := snapshot.Meta{
		Index: 1, Term: 1, ConfState: &raftpb.ConfState{Voters: []uint64{uint64(id.Self)}}, Members: id.Cluster.Members,
	}
	if err := fill(w, &meta, &made); err != nil {
		return made, errors.Join(err, w.Abort(), fsys.Remove(filepath.Join(dir, snapshotsDir)))
	}
	made.LastID = meta.Highest
	meta.Highest += SkippedIDs
	meta.Decided = meta.Highest + 1 // those that are no jobs now never will be
	if meta, _, err = w.Finish(meta); err != nil {
		return made, err
	}
	if err := snapshot.SetCurrent(fsys, filepath.Join(dir, snapshotsDir), &meta); err != nil {
		return made, err
	}
	if err := makeLog(fsys, dir, &meta); err != nil {
		return made, err
	}
	if err := member.Write(fsys, dir, id); err != nil {
		return made, err
	}
	made.Cluster, made.NextID, made.Records, made.Bytes = id.Cluster.ID, meta.Highest+1, meta.Records, meta.Bytes
	return made, nil
}

// takeEmpty locks a directory with nothing in it, and makes it if need be.
func takeEmpty(fsys vfs.FS, dir string) (io.Closer, error) {
	switch err := fsys.Mkdir(dir); {
	case err == nil:
		if err := vfs.SyncDir(fsys, filepath.Dir(dir)); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	lock, err := vfs.LockDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	es, err := fsys.List(dir)
	for _, e := range es {
		if err == nil && e.Name != "lock" && e.Name != "lost+found" {
			err = fmt.Errorf("%s: %w: it has %s", dir, ErrNotEmpty, e.Name)
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// makeLog makes an entry log that begins behind the snapshot.
func makeLog(fsys vfs.FS, dir string, meta *snapshot.Meta) error {
	entries := filepath.Join(dir, entriesDir)
	if err := fsys.Mkdir(entries); err != nil {
		return err
	}
	if err := vfs.SyncDir(fsys, dir); err != nil {
		return err
	}
	log, err := entrylog.Open(entries, entrylog.Options{New: true, Snapshot: meta.Raft(), FS: fsys})
	if err != nil {
		return err
	}
	return log.Close()
}

// Backup fills dir, which is made if it does not exist, from the stream of a node's backup:
// with a binlog that a server opens with -b, and that Init takes. After an error none of it is
// there. Errors wrap those of snapshot.Extract, vfs.ErrLocked and ErrNotEmpty.
func Backup(fsys vfs.FS, dir string, r io.Reader) (meta snapshot.Meta, err error) {
	lock, err := takeEmpty(fsys, dir)
	if err != nil {
		return meta, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return snapshot.Extract(fsys, dir, r)
}
