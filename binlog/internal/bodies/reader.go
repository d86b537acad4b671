package bodies

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trellis/binlog/internal/elevator"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Options say where the segments are. Their functions may be called from any goroutine, and take no lock
// that a caller of the Reader's holds.
type Options struct {
	Salt func(segment uint32) record.Salt
	Open func(segment uint32) (vfs.File, error)

	// Other is a segment with records, and a length in bytes that can be read of it, another one than
	// the given if there is one.
	Other func(segment uint32) (other uint32, size int64)

	Needs   func() elevator.Load    // what else needs the disk now
	Flush   func()                  // what was appended is to be written: somebody waits for it
	Fetched func([]journal.Fetched) // what was asked for, at most mostTold at a time
}

// mostTold is how many bodies are told at a time: whoever takes them holds locks for it.
const mostTold = 32

// Reader reads bodies.
type Reader struct {
	Options
	files    descriptors
	written  atomic.Uint64 // the place before which all is written
	awaiting atomic.Bool   // the elevator is to be told when that moves

	// mu guards what follows. Nothing that takes time is done with it.
	mu     sync.Mutex
	wanted elevator.Elevator[body]
	alarm  *time.Timer // nil before it is set for the first time
	quiet  sync.Cond   // a read has ended, or was given up
	count  Stats
}

// Report tells the operator of the bodies that cannot be read, in which file and where in it, and returns how many
// there are. name is that of a segment's file.
func Report(log *slog.Logger, name func(segment uint32) string, found []journal.Fetched) (unreadable int) {
	for i := range found {
		if f := &found[i]; errors.Is(f.Err, journal.ErrUnreadable) {
			unreadable++
			log.Error("the body of a job cannot be read",
				"job", f.ID, "file", name(f.Place.Segment), "offset", int64(f.Place.Offset)*8)
		}
	}
	return unreadable
}

// Stats are counters of a Reader, by lanes.
type Stats [journal.Move + 1]struct {
	Bodies uint64 // that were told
	Bytes  uint64 // that were read
	Took   time.Duration
}

// body is what a request is for: a job's, or a range of a segment.
type body struct {
	fetch journal.Fetch
	bytes []byte       // what was read of a body that takes more than one read; of a range, where it goes
	done  chan<- error // of a range
}

type (
	request = elevator.Request[body]
	read    = elevator.Read[body]
	end     = elevator.End[body]
)

// headRoom is the most that a full record has beside the body.
const headRoom = journal.FullFixed + journal.OriginSize + journal.AttemptsSize + journal.MaxTube +
	journal.KeysFixed + 2*journal.MaxKey + journal.TermsFixed + 3*journal.MaxKey + 7

// New makes a reader. All before end is written.
func New(o Options, end journal.Place) *Reader {
	r := &Reader{Options: o, files: descriptors{files: map[uint32]*descriptor{}}}
	r.quiet.L = &r.mu
	r.Written(end)
	return r
}

// Load asks for bodies. It does not wait, and keeps nothing of the slice.
func (r *Reader) Load(fetches []journal.Fetch) {
	all := make([]request, len(fetches))
	rs := make([]*request, len(fetches))
	for i, f := range fetches {
		from := int64(f.Place.Offset) * 8
		all[i] = request{
			Place: f.Place, From: from, To: from + int64(f.Size) + headRoom, Lane: f.Lane, Turn: f.Turn, Of: body{fetch: f},
		}
		rs[i] = &all[i]
	}
	slices.SortFunc(rs, func(a, b *request) int { return a.Place.Compare(b.Place) })
	r.add(rs)
}

// Range reads from a segment in the lane of compaction, and waits for it.
func (r *Reader) Range(segment uint32) io.ReaderAt { return ranges{r, segment} }

type ranges struct {
	r       *Reader
	segment uint32
}

func (s ranges) ReadAt(p []byte, off int64) (int, error) {
	done := make(chan error, 1)
	s.r.add([]*request{{
		Place: journal.Place{Segment: s.segment}, From: off, To: off + int64(len(p)), Lane: journal.Move,
		Of: body{bytes: p, done: done},
	}})
	if err := <-done; err != nil {
		return 0, err
	}
	return len(p), nil
}

func (r *Reader) add(rs []*request) {
	r.mu.Lock()
	r.wanted.Written(r.end())
	ends := r.wanted.Add(rs, time.Now())
	if r.wanted.Awaits() {
		r.awaiting.Store(true)
		r.wanted.Written(r.end()) // which may have moved before that was set
	}
	waits := r.wanted.Awaits()
	r.begin()
	r.mu.Unlock()
	if waits {
		r.Flush()
	}
	if len(ends) > 0 {
		go r.tell(nil, ends)
	}
}

func (r *Reader) end() journal.Place {
	p := r.written.Load()
	return journal.Place{Segment: uint32(p >> 32), Offset: uint32(p)}
}

// Written says that all before a place is written. It costs next to nothing while nobody waits for that.
func (r *Reader) Written(end journal.Place) {
	r.written.Store(uint64(end.Segment)<<32 | uint64(end.Offset))
	if !r.awaiting.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted.Written(r.end())
	r.awaiting.Store(r.wanted.Awaits())
	r.begin()
}

// begin starts the reads that are due. With mu held.
func (r *Reader) begin() {
	for {
		read := r.wanted.Next(time.Now(), r.Needs())
		if read == nil {
			break
		}
		go r.serve(read)
	}
	switch at := r.wanted.Wake(); {
	case at.IsZero():
	case r.alarm == nil:
		r.alarm = time.AfterFunc(time.Until(at), r.tick)
	default:
		r.alarm.Reset(time.Until(at))
	}
}

// tick is called at times that the elevator waits for.
func (r *Reader) tick() {
	r.mu.Lock()
	ends := r.wanted.Tick(time.Now())
	r.begin()
	r.quiet.Broadcast()
	r.mu.Unlock()
	r.tell(nil, ends)
}

var buffers = sync.Pool{New: func() any { return new([elevator.MaxRead]byte) }}

// serve makes a read, and those that follow it.
func (r *Reader) serve(read *read) {
	buf := buffers.Get().(*[elevator.MaxRead]byte)
	defer buffers.Put(buf)
	for read != nil {
		began := time.Now()
		b, err := r.read(read, buf[:])
		outcomes, found := r.look(read, b, err)
		r.mu.Lock()
		if !r.wanted.Returned(read) {
			r.mu.Unlock()
			return
		}
		c := &r.count[read.Lane]
		c.Bytes += uint64(len(b))
		c.Took += time.Since(began)
		c.Bodies += uint64(len(found))
		r.mu.Unlock()
		for _, q := range read.Requests {
			if at := max(q.From, read.From); q.Of.done != nil { // nobody reads into what a range has given up
				copy(q.Of.bytes[at-q.From:], b[min(at-read.From, int64(len(b))):])
			}
		}
		r.tell(found, nil)
		r.mu.Lock()
		ends := r.wanted.Ended(read, outcomes, time.Now())
		r.quiet.Broadcast()
		if len(ends) > len(found) {
			r.mu.Unlock()
			r.tell(nil, ends)
			r.mu.Lock()
		}
		read = r.wanted.Next(time.Now(), r.Needs())
		r.begin()
		r.mu.Unlock()
	}
}

// read returns the bytes of a read, fewer with an error, unless that says that the file has no more.
func (r *Reader) read(read *read, buf []byte) ([]byte, error) {
	segment, from, n := read.File, read.From, read.To-read.From
	if read.Probe {
		var size int64
		segment, size = r.Other(read.File)
		n = min(size, 4096)
		from = time.Now().UnixNano() % max(size-n, 1)
	}
	file, err := r.files.open(segment, func() (vfs.File, error) { return r.Open(segment) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnopened, err)
	}
	defer r.files.release(file)
	if len(read.Requests) == 1 && read.Requests[0].Of.done == nil && n < read.Requests[0].To-read.Requests[0].From {
		q := read.Requests[0]
		if q.Of.bytes == nil {
			q.Of.bytes = make([]byte, q.To-q.From)
		}
		buf = q.Of.bytes[from-q.From:]
	}
	m, err := file.ReadAt(buf[:n], from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf[:m], err
}

var errUnopened = errors.New("open")

// look tells what bytes from a read are, and which bodies are in them.
func (r *Reader) look(read *read, b []byte, err error) (outcomes []elevator.Outcome, found []journal.Fetched) {
	if read.Probe {
		return []elevator.Outcome{outcome(err, err == nil)}, nil
	}
	salt := r.Salt(read.File)
	outcomes = make([]elevator.Outcome, 0, len(read.Requests))
	found = make([]journal.Fetched, 0, len(read.Requests))
	for _, q := range read.Requests {
		from, to := max(q.From, read.From), min(q.To, read.To)
		part := b[min(from-read.From, int64(len(b))):min(to-read.From, int64(len(b)))]
		sound := int64(len(part)) == to-from
		if q.Of.done == nil && read.To < q.To {
			sound = err == nil // the file may end soon behind the record
		} else if q.Of.done == nil {
			if q.Of.bytes != nil {
				part = q.Of.bytes[:from-q.From+int64(len(part))]
			}
			var body []byte
			if body, sound = check(part, &q.Of.fetch, salt); sound {
				found = append(found, journal.Fetched{Fetch: q.Of.fetch, Body: body})
			}
		}
		outcomes = append(outcomes, outcome(err, sound))
	}
	return outcomes, found
}

// check returns the body that was asked for, if b begins with its record.
func check(b []byte, f *journal.Fetch, salt record.Salt) ([]byte, bool) {
	b, err := record.First(b, f.Place.Segment, salt)
	if err != nil || record.KindOf(b) != record.Full || record.Number(b) != f.ID {
		return nil, false
	}
	body := record.Body(b)
	return body, len(body) == int(f.Size)
}

func outcome(err error, sound bool) elevator.Outcome {
	switch {
	case sound:
		return elevator.Sound
	case errors.Is(err, errUnopened) && errors.Is(err, fs.ErrNotExist):
		return elevator.Gone
	case errors.Is(err, errUnopened):
		return elevator.Unopened
	case err != nil:
		return elevator.Failed
	}
	return elevator.Misfit
}

// tell tells bodies that were found, and requests that have ended without.
func (r *Reader) tell(found []journal.Fetched, ends []end) {
	for _, e := range ends {
		switch {
		case e.Of.done != nil:
			e.Of.done <- e.Err
		case e.Err != nil:
			found = append(found, journal.Fetched{Fetch: e.Of.fetch, Err: e.Err})
		}
	}
	for some := range slices.Chunk(found, mostTold) {
		r.Fetched(some)
	}
}

// Forget says that the file of a segment was removed.
func (r *Reader) Forget(segment uint32) { r.files.forget(segment) }

// Fail says that nothing more will be written. It does not wait.
func (r *Reader) Fail(err error) {
	r.mu.Lock()
	ends := r.wanted.Fail(err)
	r.mu.Unlock()
	go r.tell(nil, ends)
}

// Stats tells what was read. Any goroutine may call it.
func (r *Reader) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Close ends all that waits with an error, and waits for reads that do not hang.
func (r *Reader) Close(err error) {
	r.mu.Lock()
	ends := r.wanted.Close(err)
	for r.wanted.Busy() {
		r.quiet.Wait()
	}
	r.mu.Unlock()
	if r.alarm != nil {
		r.alarm.Stop()
	}
	r.tell(nil, ends)
	r.files.close()
}
