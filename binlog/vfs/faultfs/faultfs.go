package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"trellis/binlog/vfs"
)

// ErrOff is what every call returns after the power has gone or the process was
// killed.
var ErrOff = errors.New("the machine is off")

// Call is a call that a Hook may interfere with.
type Call struct {
	N int // counts from 1
	// Op is create, open, read, write, sync, allocate, truncate, remove, rename, mkdir, opendir, syncdir, list or lock.
	Op   string
	Name string
}

// Fault is what a Hook does to a call. The zero Fault does nothing.
type Fault struct {
	Err   error // returned by the call, which has no effect
	Short int   // of a write or a read with Err: the bytes that it writes or reads nevertheless
	Off   bool  // the power goes during the call
	Lies  bool  // of a sync: it returns nil, and nothing is durable

	// Until is what the call waits for before it begins, while others go on. Nil is nothing.
	Until <-chan struct{}
}

// FS is a file system. Its zero value is not ready for use; see New.
type FS struct {
	root     string
	mu       sync.Mutex
	dirs     map[string]*directory
	locks    map[string]bool
	calls    int
	hook     func(Call) Fault
	off      bool
	capacity int64 // bytes, for all files; 0 means no limit
	boot     uint64
}

type directory struct {
	entries map[string]any // *inode or *directory
	durable map[string]any
	changes []change // since the last sync
}

func newDirectory() *directory {
	return &directory{entries: map[string]any{}, durable: map[string]any{}}
}

type change struct {
	add    string // with node
	remove string
	node   any
	both   *both // of a move from one directory to another
}

// both are the changes of two directories that a power cut keeps or loses
// together.
type both struct{ durable bool }

type inode struct {
	data    []byte
	durable []byte
	writes  []write // since the last sync
	lost    []write // before a sync that failed: the system believes them written
	shrunk  bool    // since the last sync: durable has more to follow than writes
}

type write struct {
	off  int64
	data []byte
}

// New returns a file system with one directory.
func New(dir string) *FS {
	return &FS{root: dir, dirs: map[string]*directory{dir: newDirectory()}, locks: map[string]bool{}, boot: 1}
}

// Hook sets a function that decides about every call before it is made; nil for none.
func (f *FS) Hook(hook func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// SetCapacity sets how many bytes all files may have. Zero means any number.
func (f *FS) SetCapacity(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = n
}

// Used is the number of bytes that all files have.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}

// Free is the number of bytes that files may grow by; very many without a capacity.
func (f *FS) Free() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.capacity == 0 {
		return math.MaxInt64
	}
	return max(f.capacity-f.used(), 0)
}

func (f *FS) used() (n int64) {
	for _, d := range f.dirs {
		for _, e := range d.entries {
			if i, ok := e.(*inode); ok {
				n += int64(len(i.data))
			}
		}
	}
	return n
}

// Calls is the number of calls so far.
func (f *FS) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Off switches the machine off: all further calls fail.
func (f *FS) Off() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
}

// Killed returns the file system as the next process of the same machine finds
// it: nothing that was written is lost. The old one is off.
func (f *FS) Killed() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
	return &FS{root: f.root, dirs: f.dirs, locks: map[string]bool{}, capacity: f.capacity, boot: f.boot}
}

// PowerCut returns the file system as the machine may find it when it is started
// again. The old one is off, and is not changed otherwise: each call draws anew.
func (f *FS) PowerCut(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
	g := &FS{root: f.root, dirs: map[string]*directory{}, locks: map[string]bool{}, capacity: f.capacity, boot: f.boot + 1}
	r := &restart{g, rng, map[*inode]*inode{}, map[*both]bool{}}
	r.directory(f.root, f.dirs[f.root])
	return g
}

// restart is what a power cut leaves, as it is drawn.
type restart struct {
	fs    *FS
	rng   *rand.Rand
	files map[*inode]*inode
	moves map[*both]bool
}

func (r *restart) kept(c change) bool {
	if c.both == nil {
		return r.rng.IntN(2) == 0
	}
	if _, ok := r.moves[c.both]; !ok {
		r.moves[c.both] = c.both.durable || r.rng.IntN(2) == 0
	}
	return r.moves[c.both]
}

func (r *restart) directory(name string, d *directory) *directory {
	entries := maps.Clone(d.durable)
	for _, c := range d.changes {
		if !r.kept(c) {
			continue
		}
		if c.remove != "" {
			delete(entries, c.remove)
		}
		if c.add != "" {
			entries[c.add] = c.node
		}
	}
	nd := &directory{entries: map[string]any{}}
	for _, n := range slices.Sorted(maps.Keys(entries)) {
		switch e := entries[n].(type) {
		case *inode:
			if r.files[e] == nil {
				r.files[e] = e.restart(r.rng)
			}
			nd.entries[n] = r.files[e]
		case *directory:
			nd.entries[n] = r.directory(filepath.Join(name, n), e)
		}
	}
	nd.durable = maps.Clone(nd.entries)
	r.fs.dirs[name] = nd
	return nd
}

const sector = 512

func (i *inode) restart(rng *rand.Rand) *inode {
	size := len(i.durable)
	if rng.IntN(2) == 0 {
		size = len(i.data)
	}
	data := make([]byte, max(len(i.durable), len(i.data)))
	copy(data, i.durable)
	versions := map[int64][][]byte{}
	for _, w := range i.writes {
		for off := w.off; off < w.off+int64(len(w.data)); {
			at := off / sector * sector
			end := min(at+sector, w.off+int64(len(w.data)))
			vs := versions[at]
			if vs == nil {
				v := make([]byte, sector)
				if at < int64(len(data)) {
					copy(v, data[at:])
				}
				vs = [][]byte{v}
			}
			v := slices.Clone(vs[len(vs)-1])
			copy(v[off-at:], w.data[off-w.off:end-w.off])
			versions[at] = append(vs, v)
			off = end
		}
	}
	for _, at := range slices.Sorted(maps.Keys(versions)) {
		vs := versions[at]
		v := slices.Clone(vs[rng.IntN(len(vs))])
		if rng.IntN(4) == 0 {
			torn := rng.IntN(sector)
			copy(v[torn:], vs[rng.IntN(len(vs))][torn:])
		}
		if at < int64(len(data)) {
			copy(data[at:], v)
		}
	}
	data = data[:size]
	return &inode{data: data, durable: slices.Clone(data)}
}

// enter begins a call. With mu held.
func (f *FS) enter(op, name string) (Fault, error) {
	if f.off {
		return Fault{}, ErrOff
	}
	f.calls++
	if f.hook == nil {
		return Fault{}, nil
	}
	x := f.hook(Call{f.calls, op, name})
	if x.Until != nil {
		f.mu.Unlock()
		<-x.Until
		f.mu.Lock()
	}
	if x.Off {
		f.off = true
	} else if x.Err != nil {
		x.Err = fmt.Errorf("%s %s: %w", op, name, x.Err)
	}
	return x, x.Err
}

// call does a call that has no effect if the hook has it fail, and all of its effect if the
// power goes meanwhile. An error of do is one of name.
func (f *FS) call(op, name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.enter(op, name)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	if x.Off {
		return ErrOff
	}
	return nil
}

// at does a call on the entry of that name in its directory, which is nil if there is none.
func (f *FS) at(op, name string, do func(d *directory, base string, node any) error) error {
	return f.call(op, name, func() error {
		d, base, node, err := f.lookup(name)
		if err != nil {
			return err
		}
		return do(d, base, node)
	})
}

func (f *FS) lookup(name string) (*directory, string, any, error) {
	d := f.dirs[filepath.Dir(name)]
	if d == nil {
		return nil, "", nil, fs.ErrNotExist
	}
	base := filepath.Base(name)
	return d, base, d.entries[base], nil
}

func (d *directory) add(name string, node any) {
	d.entries[name] = node
	d.changes = append(d.changes, change{add: name, node: node})
}

// List implements vfs.FS.
func (f *FS) List(dir string) (es []vfs.Entry, err error) {
	err = f.call("list", dir, func() error {
		d := f.dirs[dir]
		if d == nil {
			return fs.ErrNotExist
		}
		for _, name := range slices.Sorted(maps.Keys(d.entries)) {
			e := vfs.Entry{Name: name}
			switch n := d.entries[name].(type) {
			case *inode:
				e.Size = int64(len(n.data))
			case *directory:
				e.Dir = true
			}
			es = append(es, e)
		}
		return nil
	})
	return es, err
}

// Create implements vfs.FS.
func (f *FS) Create(name string, size int64) (vfs.File, error) {
	n := &inode{}
	err := f.at("create", name, func(d *directory, base string, node any) error {
		if node != nil {
			return fs.ErrExist
		}
		if f.full(size) {
			return syscall.ENOSPC
		}
		n.data = make([]byte, size)
		d.add(base, n)
		return nil
	})
	return &file{f, n, name}, err
}

func (f *FS) full(more int64) bool {
	return f.capacity > 0 && more > 0 && f.used()+more > f.capacity
}

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) {
	var n *inode
	err := f.at("open", name, func(_ *directory, _ string, node any) error {
		var ok bool
		if n, ok = node.(*inode); !ok {
			return fs.ErrNotExist
		}
		return nil
	})
	return &file{f, n, name}, err
}

// OpenRead implements vfs.FS.
func (f *FS) OpenRead(name string) (vfs.File, error) { return f.Open(name) }

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	return f.at("remove", name, func(d *directory, base string, node any) error {
		if node == nil {
			return fs.ErrNotExist
		}
		if sub, ok := node.(*directory); ok {
			if len(sub.entries) > 0 {
				return syscall.ENOTEMPTY
			}
			delete(f.dirs, name)
		}
		delete(d.entries, base)
		d.changes = append(d.changes, change{remove: base})
		return nil
	})
}

// Rename implements vfs.FS.
func (f *FS) Rename(from, to string) error {
	return f.at("rename", from, func(d *directory, base string, node any) error {
		d2, base2, there, err := f.lookup(to)
		if err != nil {
			return err
		}
		if node == nil {
			return fs.ErrNotExist
		}
		if sub, ok := there.(*directory); ok && len(sub.entries) > 0 {
			return syscall.ENOTEMPTY
		}
		if sub, ok := node.(*directory); ok {
			delete(f.dirs, from)
			f.dirs[to] = sub
		}
		delete(d.entries, base)
		d2.entries[base2] = node
		if d == d2 {
			d.changes = append(d.changes, change{remove: base, add: base2, node: node})
		} else {
			b := &both{}
			d2.changes = append(d2.changes, change{add: base2, node: node, both: b})
			d.changes = append(d.changes, change{remove: base, both: b})
		}
		return nil
	})
}

// Mkdir implements vfs.FS.
func (f *FS) Mkdir(name string) error {
	return f.at("mkdir", name, func(d *directory, base string, node any) error {
		if node != nil {
			return fs.ErrExist
		}
		sub := newDirectory()
		f.dirs[name] = sub
		d.add(base, sub)
		return nil
	})
}

// OpenDir implements vfs.FS.
func (f *FS) OpenDir(name string) (vfs.Dir, error) {
	var d *directory
	err := f.call("opendir", name, func() error {
		if d = f.dirs[name]; d == nil {
			return fs.ErrNotExist
		}
		return nil
	})
	return openDir{f, d, name}, err
}

type openDir struct {
	fs   *FS
	dir  *directory
	name string
}

func (o openDir) Close() error { return nil }

func (o openDir) Sync() error {
	o.fs.mu.Lock()
	defer o.fs.mu.Unlock()
	x, err := o.fs.enter("syncdir", o.name)
	switch {
	case err != nil:
		return err
	case x.Off:
		return ErrOff
	}
	d := o.dir
	d.durable = maps.Clone(d.entries)
	for _, c := range d.changes {
		if c.both != nil {
			c.both.durable = true
		}
	}
	d.changes = nil
	return nil
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	err := f.at("lock", name, func(d *directory, base string, node any) error {
		if f.locks[name] {
			return &vfs.LockedError{Name: name, PID: 1}
		}
		if node == nil {
			d.add(base, &inode{})
		}
		f.locks[name] = true
		return nil
	})
	return unlocker{f, name}, err
}

type unlocker struct {
	fs   *FS
	name string
}

func (u unlocker) Close() error {
	u.fs.mu.Lock()
	defer u.fs.mu.Unlock()
	delete(u.fs.locks, u.name)
	return nil
}

// Boot implements vfs.FS.
func (f *FS) Boot() uint64 { return f.boot }

type file struct {
	fs   *FS
	node *inode
	name string
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	x, err := f.fs.enter("read", f.name)
	if err != nil {
		return copy(p[:min(x.Short, len(p))], f.node.data[min(off, int64(len(f.node.data))):]), err
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	switch {
	case n < len(p):
		return n, io.EOF
	case x.Off:
		return n, ErrOff
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	x, err := f.fs.enter("write", f.name)
	if err != nil {
		f.write(p[:min(x.Short, len(p))], off)
		return min(x.Short, len(p)), err
	}
	if f.fs.full(off + int64(len(p)) - int64(len(f.node.data))) {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	f.write(p, off)
	if x.Off {
		return 0, ErrOff
	}
	return len(p), nil
}

func (f *file) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	f.node.grow(off + int64(len(p)))
	copy(f.node.data[off:], p)
	f.node.writes = append(f.node.writes, write{off, slices.Clone(p)})
	f.node.rewritten(off, off+int64(len(p)))
}

// grow makes the file at least that long.
func (i *inode) grow(size int64) {
	if more := size - int64(len(i.data)); more > 0 {
		i.data = append(i.data, make([]byte, more)...)
	}
}

// rewritten takes bytes that are written again out of what is lost.
func (i *inode) rewritten(from, to int64) {
	var lost []write
	for _, w := range i.lost {
		end := w.off + int64(len(w.data))
		if w.off < from {
			lost = append(lost, write{w.off, w.data[:min(from, end)-w.off]})
		}
		if end > to {
			at := max(to, w.off)
			lost = append(lost, write{at, w.data[at-w.off:]})
		}
	}
	i.lost = lost
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	x, err := f.fs.enter("sync", f.name)
	n := f.node
	if errors.Is(err, ErrOff) {
		return err
	}
	if x.Lies {
		return nil
	}
	if err != nil {
		n.lost = append(n.lost, n.writes...)
		n.writes = nil
		return err
	}
	if x.Off {
		return ErrOff
	}
	n.sync()
	return nil
}

// sync makes durable what was written. What was lost stays as it was.
func (i *inode) sync() {
	if i.shrunk {
		was := i.durable
		i.durable = slices.Clone(i.data)
		for _, w := range i.lost {
			part := i.durable[min(int(w.off), len(i.durable)):min(int(w.off)+len(w.data), len(i.durable))]
			clear(part)
			copy(part, was[min(int(w.off), len(was)):])
		}
	} else {
		if more := len(i.data) - len(i.durable); more > 0 {
			i.durable = append(i.durable, make([]byte, more)...)
		}
		for _, w := range i.writes {
			copy(i.durable[w.off:], w.data)
		}
	}
	i.writes, i.shrunk = nil, false
}

func (f *file) Allocate(size int64) error {
	return f.fs.call("allocate", f.name, func() error {
		if f.fs.full(size - int64(len(f.node.data))) {
			return syscall.ENOSPC
		}
		f.node.grow(size)
		return nil
	})
}

func (f *file) Truncate(size int64) error {
	return f.fs.call("truncate", f.name, func() error {
		f.node.grow(size)
		f.node.shrunk = f.node.shrunk || int64(len(f.node.data)) > size
		f.node.data = f.node.data[:size:size]
		return nil
	})
}

func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.off {
		return 0, ErrOff
	}
	return int64(len(f.node.data)), nil
}

func (f *file) Close() error { return nil }
