package entrylog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/vfs"
)

// errReadOnly is what the writer's calls get of a log that Read has opened.
var errReadOnly = fmt.Errorf("%w: it was opened for reading", ErrFailed)

// Read opens the log of a node that does not run, and changes nothing. It is for those who make
// something else of what a node has, and not for the node: nothing tells that what it says is
// durable. The caller has locked the node's directory. Errors are those of Open.
//
// If skip is set, the log ends before the first damage, which is returned too, nil if there is
// none. What was read before it is sound.
func Read(dir string, opts Options, skip bool) (*Log, *DamageError, error) {
	opts.FS = readOnly{cmp.Or[vfs.FS](opts.FS, vfs.OS{})}
	opts.CacheSize = cmp.Or(opts.CacheSize, DefaultCacheSize)
	l := &Log{
		fs: opts.FS, dir: dir, opts: opts, conf: raftpb.EnsureConfState(opts.Snapshot.GetConfState()), failed: errReadOnly,
	}
	l.lock, l.keeper.halt = io.NopCloser(nil), make(chan struct{})
	damage, err := l.readAll(skip)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("entry log %s: %w", dir, err), l.release())
	}
	return l, damage, nil
}

// readOnly opens files for reading.
type readOnly struct{ vfs.FS }

// Open implements vfs.FS.
func (f readOnly) Open(name string) (vfs.File, error) { return f.OpenRead(name) }

func (l *Log) readAll(skip bool) (damage *DamageError, err error) {
	if err := l.openFiles(); err != nil {
		return nil, err
	}
	r := reader{log: l}
	segs, _, err := r.segments()
	if err != nil && !(skip && errors.As(err, &damage)) {
		return nil, err
	}
	if len(segs) == 0 && damage == nil {
		return nil, ErrNoLog
	}
	for _, s := range l.segments[len(segs):] {
		err = errors.Join(err, s.file.Close())
	}
	l.segments = slices.Clip(segs)
	l.state, l.table = r.state, r.table
	if id := idOfSnapshot(l.opts.Snapshot); !l.holds(id) && (len(segs) == 0 || segs[0].state.last != id) {
		// A node would begin the log anew behind the snapshot.
		l.state = state{hard: l.state.hard, base: id, last: id}
		l.table.reset(id.Index + 1)
	}
	return damage, nil
}
