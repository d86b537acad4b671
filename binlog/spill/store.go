package spill

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"trellis/binlog/internal/bodies"
	"trellis/binlog/internal/elevator"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
)

const (
	fileLimit = 64 << 20  // bytes from which on a file is sealed
	pieceSize = 512 << 10 // bytes that are written and synced at a time
)

// An Owner has the jobs whose bodies are in body files. Its methods are called without a lock, on the goroutine of
// whoever calls Add, Write, Move or Seal, but for Loaded, which comes on others.
type Owner interface {
	// Spilled is called once for each job that Add was given. Its body is on disk at that place for certain, and need
	// not be in memory; or it could not be written, and the place is zero. It reports whether the job refers to the
	// place from now on.
	Spilled(id uint64, at journal.Place) bool

	// Leaves says that no body is to be at that place any more. It reports whether that of the job is there and not in
	// memory: then Moved follows, unless that fails. A job that refers to the place and has its body in memory forgets
	// the place.
	Leaves(id uint64, at journal.Place) bool

	// Moved says that a body is at another place, too, for certain. It reports whether the job refers to that from now
	// on, and so no more to the one before, which is not to be forgotten for it.
	Moved(id uint64, from, to journal.Place) bool

	// Loaded takes what was asked for by Load, of each once.
	Loaded(list []journal.Fetched)
}

// Options say where the body files are.
type Options struct {
	FS  vfs.FS
	Dir string
	Log *slog.Logger
	// Commits reports whether commits of something else wait for the disk just now, to which bodies give way. Nil: never.
	Commits func() bool
}

// Store is the body files of a directory.
type Store struct {
	Options
	limit int64 // bytes from which on a file is sealed

	unreadable atomic.Uint64 // of Stats

	// writing is held by whoever writes, moves, removes, or begins a life. It guards what follows.
	writing vfs.Mutex
	out     *sealed.Writer // nil if no file is open
	file    *file          // the one that is open
	piece   []copied       // what is not written yet
	from    int64          // where in the file that begins
	move    *move          // nil if no file is being moved

	mu      sync.Mutex // guards what follows; held for a moment, also under locks of owners
	books   *books
	life    *Life                  // nil before the first
	damaged map[journal.Place]bool // bodies that could not be read, in files that are there
}

// source is where a body comes from that is in the piece.
type source uint8

const (
	fromMemory source = iota // Owner.Spilled is told
	fromFile                 // it is moved, and Owner.Moved is told
	fromMember               // it belongs to a snapshot that another member sends: no owner is told
)

// copied is a body in the piece that is not written yet.
type copied struct {
	id     uint64
	size   uint32
	source source
	to     journal.Place
	from   journal.Place // of one from a file
}

// Life is the time in which one owner has the bodies.
type Life struct {
	store  *Store
	owner  Owner
	reader *bodies.Reader
	bell   chan struct{} // of one place
}

// Reads are counters of what was read, by lanes.
type Reads = bodies.Stats

// ErrEnded is the error of what is asked for in a life that has ended: another owner has the bodies.
var ErrEnded = errors.New("the bodies have another owner")

// Open opens the directory, and makes it if there is none. Nothing is removed.
func Open(o Options) (*Store, error) {
	list, err := o.FS.List(o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = o.FS.Mkdir(o.Dir)
	}
	if err == nil { // whoever has made it may have ended before its name was durable
		err = vfs.SyncDir(o.FS, filepath.Dir(o.Dir))
	}
	if err != nil {
		return nil, fmt.Errorf("body files: %w", err)
	}
	s := &Store{
		Options: o, limit: fileLimit, writing: vfs.NewMutex(), books: newBooks(fileLimit), damaged: map[journal.Place]bool{},
	}
	for _, e := range list {
		if n := record.FileIndex(e.Name); n >= firstNumber {
			s.books.found(n, e.Size)
		}
	}
	return s, nil
}

func (s *Store) name(number uint32) string { return filepath.Join(s.Dir, record.FileName(number)) }

// Begin gives the bodies to an owner, whose jobs are those of a snapshot with that list of files; the one before takes
// nothing any more. Each file must be there as the list says, as far as its size and header tell. A header that cannot
// be read says nothing: the bodies behind it are found, and known, without it.
func (s *Store) Begin(owner Owner, files []File) (*Life, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.endLife()
	for i := range files {
		if err := s.check(&files[i]); err != nil {
			return nil, err
		}
	}
	l := &Life{store: s, owner: owner, bell: make(chan struct{}, 1)}
	l.Crowded() // files may be longer than they should
	l.reader = bodies.New(bodies.Options{
		Salt:    s.salt,
		Open:    func(n uint32) (vfs.File, error) { return s.FS.OpenRead(s.name(n)) },
		Other:   s.other,
		Needs:   s.needs,
		Flush:   func() {},
		Fetched: l.fetched,
	}, journal.Place{Segment: math.MaxUint32, Offset: math.MaxUint32})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.books.list(files)
	s.life = l
	return l, nil
}

// endLife ends the life that there is, if there is one. writing is held.
func (s *Store) endLife() {
	s.mu.Lock()
	l := s.life
	s.life = nil
	s.mu.Unlock()
	if l != nil {
		l.reader.Close(ErrEnded)
	}
	s.abandon()
	s.move = nil
}

// check looks whether a file of a list is what the list says.
func (s *Store) check(x *File) error {
	damage := func(what string, err error) error {
		return &record.DamageError{File: s.name(x.Number), What: what, Err: err}
	}
	f, err := s.FS.OpenRead(s.name(x.Number))
	if errors.Is(err, fs.ErrNotExist) {
		return damage("it is missing", nil)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if size, err := f.Size(); err != nil || size != x.Size {
		return damage(fmt.Sprintf("it has %d bytes, not %d", size, x.Size), err)
	}
	var b [record.HeaderSize]byte
	var h record.Header
	_, err = f.ReadAt(b[:], 0)
	if err == nil {
		err = h.Decode(b[:])
	}
	if err != nil {
		s.Log.Warn("the header of a body file cannot be read", "file", s.name(x.Number), "error", err)
		return nil
	}
	if h.Seed != x.Seed || h.Index != x.Number {
		return damage("it has the header of another file", nil)
	}
	return nil
}

func (s *Store) salt(number uint32) record.Salt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.books.files[number]; f != nil {
		return record.NewSalt(f.Seed, number)
	}
	return 0 // it was removed, and whoever reads it will hear of that
}

// other is any file but the given one, if there is another, and its length in bytes.
func (s *Store) other(but uint32) (number uint32, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, f := range s.books.files { // in any order
		if number, size = n, f.Size; n != but && size > 0 {
			break
		}
	}
	return number, size
}

func (s *Store) needs() elevator.Load {
	return elevator.Load{Commits: s.Commits != nil && s.Commits()}
}

func (l *Life) fetched(found []journal.Fetched) {
	s := l.store
	if n := bodies.Report(s.Log, s.name, found); n > 0 {
		s.unreadable.Add(uint64(n))
		s.mu.Lock()
		for i := range found {
			if errors.Is(found[i].Err, journal.ErrUnreadable) {
				s.damaged[found[i].Place] = true
			}
		}
		s.mu.Unlock()
	}
	l.owner.Loaded(found)
}

// lives locks the books of a life that has not ended, and otherwise returns false.
func (l *Life) lives() bool {
	l.store.mu.Lock()
	if l.store.life != l {
		l.store.mu.Unlock()
		return false
	}
	return true
}

// Keep says that a job refers to the body of that size at a place, as the snapshot has it. It fails if the file is in
// no list, which is damage.
func (l *Life) Keep(at journal.Place, size uint32) error {
	if !l.lives() {
		return ErrEnded
	}
	defer l.store.mu.Unlock()
	if !l.store.books.keep(at.Segment, size) {
		return fmt.Errorf("a body is said to be in file %s, which is in no list", l.store.name(at.Segment))
	}
	return nil
}

// Listed says that the snapshot was read whole, and that all of its bodies were told to Keep.
func (l *Life) Listed() {
	if l.lives() {
		l.store.books.unlisted()
		l.store.mu.Unlock()
	}
}

// Load asks for bodies. It never waits.
func (l *Life) Load(fetches []journal.Fetch) { l.reader.Load(fetches) }

// Forget says that a job refers no more to the body of that size at a place, to which it did.
func (l *Life) Forget(at journal.Place, size uint32) {
	if l.lives() {
		many := l.store.books.forget(at.Segment, size)
		l.store.mu.Unlock()
		if many {
			l.Crowded()
		}
	}
}

// Bell has something when bodies are to be added, since somebody has called Crowded, or when Move is to be called.
// Otherwise there is nothing to do.
func (l *Life) Bell() <-chan struct{} { return l.bell }

// Crowded rings the bell: bodies take so much memory that some are to leave it.
func (l *Life) Crowded() {
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

// Reads tells what was read.
func (l *Life) Reads() Reads { return l.reader.Stats() }

// Ready makes a file to be written to, if none is open: until the next Write, Add waits for no disk.
func (l *Life) Ready() error {
	s := l.store
	s.writing.Lock()
	defer s.writing.Unlock()
	if !l.current() {
		return ErrEnded
	}
	if s.out != nil {
		return nil
	}
	s.open()
	if _, _, err := s.out.Place(0); err != nil {
		return s.giveUp(l, nil, err)
	}
	return nil
}

// Add takes the full record of a job, whose body is to leave memory, and keeps nothing of it. Of every record that it
// takes Owner.Spilled is told, also when it returns an error.
func (l *Life) Add(r *journal.Record) error {
	s := l.store
	s.writing.Lock()
	defer s.writing.Unlock()
	if !l.current() {
		return ErrEnded
	}
	return s.add(l, r, copied{id: r.ID, size: uint32(len(r.Body))})
}

func (l *Life) current() bool {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.life == l
}

// add puts a record into the piece. writing is held.
func (s *Store) add(l *Life, r *journal.Record, c copied) error {
	if s.out == nil {
		s.open()
	}
	n := r.Size()
	s.out.LastID = max(s.out.LastID, r.ID)
	b, salt, err := s.out.Place(n)
	if err != nil {
		return s.giveUp(l, append(s.piece, c), err)
	}
	record.EncodeFull(b, salt, r)
	c.to = journal.Place{Segment: s.file.Number, Offset: uint32((s.out.Size() - n) / 8)}
	s.piece = append(s.piece, c)
	return nil
}

// open begins a file, of which nothing is on disk yet.
func (s *Store) open() {
	var seed [4]byte
	_, _ = rand.Read(seed[:]) // never fails
	s.mu.Lock()
	s.file = s.books.begin(binary.LittleEndian.Uint32(seed[:]))
	s.mu.Unlock()
	s.out = &sealed.Writer{
		FS: s.FS, Dir: s.Dir, Limit: math.MaxInt64, Gentle: true, Index: s.file.Number, Seed: s.file.Seed,
	}
	s.from = 0
}

// Full reports whether there is enough to be written.
func (l *Life) Full() bool {
	s := l.store
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.full()
}

func (s *Store) full() bool { return s.out != nil && s.out.Size()-s.from >= pieceSize }

// Write writes and syncs what Add was given, and tells the owner. After an error the bodies are where they were, and
// may be given to Add again.
func (l *Life) Write() error {
	s := l.store
	s.writing.Lock()
	defer s.writing.Unlock()
	if !l.current() {
		return ErrEnded
	}
	return s.write(l)
}

// write is Write, and seals the file if it is long enough. writing is held.
func (s *Store) write(l *Life) error {
	if len(s.piece) == 0 {
		return nil
	}
	if err := s.out.Sync(); err != nil {
		return s.giveUp(l, s.piece, err)
	}
	size := s.out.Size()
	s.mu.Lock()
	s.file.Size = size
	s.mu.Unlock()
	s.from = size
	s.tell(l)
	if size < s.limit {
		return nil
	}
	return s.seal(l)
}

// tell tells the owner where the bodies of the piece are.
func (s *Store) tell(l *Life) {
	s.mu.Lock()
	for _, c := range s.piece { // before anybody can forget them
		s.file.Records++
		s.file.Bodies += int64(c.size)
		if c.source != fromMember {
			s.books.add(c.to.Segment, c.size)
		}
	}
	s.mu.Unlock()
	for _, c := range s.piece {
		switch c.source {
		case fromMemory:
			if !l.owner.Spilled(c.id, c.to) {
				l.Forget(c.to, c.size)
			}
		case fromFile:
			left := c.to
			if l.owner.Moved(c.id, c.from, c.to) {
				left = c.from
			}
			l.Forget(left, c.size)
		}
	}
	s.piece = s.piece[:0]
}

// giveUp gives up the file that is open: what was told of it before can be read, but nothing follows, and no list has
// it. It returns why.
func (s *Store) giveUp(l *Life, piece []copied, why error) error {
	s.piece = s.piece[:0]
	why = fmt.Errorf("body file %s: %w", s.name(s.file.Number), why)
	s.abandon()
	s.move = nil // what it has moved, and is not told, is moved again
	for _, c := range piece {
		if c.source == fromMemory {
			l.owner.Spilled(c.id, journal.Place{})
		}
	}
	return why
}

// abandon ends the file that is open as it is, and what was to be written is not. It is removed at once if nothing was
// told of it.
func (s *Store) abandon() {
	if s.out == nil {
		return
	}
	_ = s.out.Abandon()
	number := s.file.Number
	s.mu.Lock()
	none := s.file.Records == 0
	if none {
		delete(s.books.files, number)
	} else if s.file.phase = broken; s.life != nil {
		s.life.Crowded() // what lives in it is to be moved
	}
	s.mu.Unlock()
	if none {
		_ = s.FS.Remove(s.name(number)) // otherwise it is found after a restart
	}
	s.out, s.file, s.piece = nil, nil, s.piece[:0]
}

// seal ends the file that is open, all of which was told.
func (s *Store) seal(l *Life) error {
	if s.out == nil || s.file.Records == 0 {
		return nil
	}
	if err := s.out.Close(); err != nil {
		return s.giveUp(l, nil, err)
	}
	s.mu.Lock()
	s.file.Size, s.file.Sum = s.out.Sealed[0].Size, s.out.Sealed[0].Sum
	s.file.phase = whole
	s.mu.Unlock()
	s.out, s.file = nil, nil
	return nil
}

// Walk says that a snapshot begins to ask for the places of bodies. It returns the walk's number.
func (s *Store) Walk() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.books.walks++
	return s.books.walks
}

// Seal makes the files of these numbers whole and durable, which the places have that a walk was told, and returns the
// list of them. It fails if that cannot be done; then the snapshot cannot be made.
func (s *Store) Seal(numbers []uint32) (list []File, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	l := s.life
	s.mu.Unlock()
	if l == nil {
		return nil, ErrEnded
	}
	if err = s.write(l); err == nil {
		err = s.seal(l)
	}
	if err != nil {
		return nil, err
	}
	if err = vfs.SyncDir(s.FS, s.Dir); err != nil {
		s.abandon() // nor does anybody know of the name of the next one
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.books.name(err == nil); err != nil {
		return nil, fmt.Errorf("the directory of body files: %w", err)
	}
	for _, n := range numbers {
		f := s.books.files[n]
		if f == nil || !f.named || f.phase != whole && f.phase != stuck {
			return nil, fmt.Errorf("body file %s is not whole", s.name(n))
		}
		list = append(list, f.File)
	}
	return list, nil
}

// Current says that the snapshot of that walk counts now, for certain.
func (s *Store) Current(walk uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.books.current = max(s.books.current, walk)
}

// Remove removes the files that nobody needs. held are the numbers of those in the lists of all snapshots that there
// are, be they current, read or sent; none becomes one of them before it has returned.
func (s *Store) Remove(held []uint32) (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	lists := make(map[uint32]bool, len(held))
	for _, n := range held {
		lists[n] = true
	}
	s.mu.Lock()
	numbers, l := s.books.removable(lists), s.life
	s.mu.Unlock()
	for _, n := range numbers {
		if e := s.FS.Remove(s.name(n)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
			continue
		}
		s.mu.Lock()
		delete(s.books.files, n)
		maps.DeleteFunc(s.damaged, func(at journal.Place, _ bool) bool { return at.Segment == n })
		s.mu.Unlock()
		if l != nil {
			l.reader.Forget(n)
		}
	}
	return err
}

// Stats tell of the files.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.books.stats()
	st.Unreadable = s.unreadable.Load()
	return st
}

// Close ends the life that there is. The files stay.
func (s *Store) Close() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.endLife()
}
