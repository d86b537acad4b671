package bodies

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"trellis/binlog/internal/elevator"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

const seed = 5

// rig is a reader of segments in memory, and what it has told.
type rig struct {
	*Reader
	t      *testing.T
	disk   *faultfs.FS
	bodies map[uint64][]byte
	all    []journal.Fetch
	end    journal.Place

	mu      sync.Mutex
	told    map[journal.Fetch][]error
	wrong   string
	flushes int
	most    int
}

// newRig makes segments with jobs that have bodies of those sizes, shared out.
func newRig(t *testing.T, segments int, sizes ...int) *rig {
	g := &rig{t: t, disk: faultfs.New("d"), bodies: map[uint64][]byte{}, told: map[journal.Fetch][]error{}}
	id := uint64(0)
	for s := range uint32(segments) {
		b := make([]byte, record.HeaderSize)
		for i := int(s); i < len(sizes); i += segments {
			id++
			body := make([]byte, sizes[i])
			for k := range body {
				body[k] = byte(rand.Uint32())
			}
			r := journal.Record{ID: id, State: journal.Ready, Tube: fmt.Sprint("tube", id), Body: body}
			g.bodies[id] = body
			g.all = append(g.all, journal.Fetch{ID: id, Size: uint32(len(body)), Place: journal.Place{Segment: s + 1, Offset: uint32(len(b) / 8)}})
			full := make([]byte, r.Size())
			record.EncodeFull(full, record.NewSalt(seed, s+1), &r)
			b = append(b, full...)
		}
		if err := vfs.WriteFile(g.disk, name(s+1), b); err != nil {
			t.Fatal(err)
		}
		g.end = journal.Place{Segment: s + 1, Offset: uint32(len(b) / 8)}
	}
	g.Reader = New(Options{
		Salt: func(s uint32) record.Salt { return record.NewSalt(seed, s) },
		Open: func(s uint32) (vfs.File, error) { return g.disk.OpenRead(name(s)) },
		Other: func(but uint32) (uint32, int64) {
			return but%uint32(segments) + 1, 100
		},
		Needs:   func() elevator.Load { return elevator.Load{} },
		Flush:   func() { g.flushes++ },
		Fetched: g.fetched,
	}, g.end)
	return g
}

func name(s uint32) string { return "d/" + record.FileName(s) }

func (g *rig) fetched(found []journal.Fetched) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = max(g.most, len(found))
	for _, f := range found {
		if f.Err == nil && !bytes.Equal(f.Body, g.bodies[f.ID]) {
			g.wrong = fmt.Sprintf("job %d has a body of %d bytes that is not its own", f.ID, len(f.Body))
		}
		g.told[f.Fetch] = append(g.told[f.Fetch], f.Err)
	}
}

// results waits until all is told and returns what was told of each, which is once.
func (g *rig) results(fetches []journal.Fetch) []error {
	g.t.Helper()
	var errs []error
	for _, f := range fetches {
		for {
			g.mu.Lock()
			told := g.told[f]
			g.mu.Unlock()
			if len(told) == 1 {
				errs = append(errs, told[0])
				break
			}
			if len(told) > 1 {
				g.t.Fatalf("job %d is told %d times", f.ID, len(told))
			}
			time.Sleep(time.Millisecond)
		}
	}
	if g.wrong != "" {
		g.t.Fatal(g.wrong)
	}
	clear(g.told)
	return errs
}

func (g *rig) want(fetches []journal.Fetch, want error) {
	g.t.Helper()
	for i, err := range g.results(fetches) {
		if !errors.Is(err, want) {
			g.t.Errorf("job %d: %v, want %v", fetches[i].ID, err, want)
		}
	}
}

// faults has calls of that kind fail in some files.
func (g *rig) faults(f func(c faultfs.Call) faultfs.Fault) { g.disk.Hook(f) }

func TestBodiesOfAnySizeAreReadBackInAnyLane(t *testing.T) {
	t.Parallel()
	sizes := []int{1, 7, 100 << 10, 127 << 10, 128 << 10, 129 << 10, 700 << 10, 128<<10 - 80, 256<<10 - 80}
	for range 200 {
		sizes = append(sizes, 1+rand.IntN(3000), 1+rand.IntN(30))
	}
	g := newRig(t, 3, sizes...)
	defer g.Close(journal.ErrClosed)
	for range 2 {
		fetches := append([]journal.Fetch(nil), g.all...)
		for i := range fetches {
			fetches[i].Lane, fetches[i].Turn = journal.Lane(rand.IntN(4)), uint64(rand.IntN(5))
		}
		rand.Shuffle(len(fetches), func(i, j int) { fetches[i], fetches[j] = fetches[j], fetches[i] })
		half := len(fetches) / 2
		g.Load(fetches[:half])
		g.Load(fetches[half:])
		g.want(fetches, nil)
	}
	g.Load(g.all)
	g.want(g.all, nil)
	if g.most != mostTold {
		t.Errorf("up to %d are told at a time", g.most)
	}
	if s := g.Stats(); s[journal.Urgent].Bodies == 0 || s[journal.Move].Bytes == 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatDoesNotFitIsUnreadableAfterThreeReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 2, 100, 100, 100, 100)
		defer g.Close(journal.ErrClosed)
		other, size, place := g.all[0], g.all[0], g.all[0]
		other.ID, size.Size, place.Place.Offset = 77, 99, 11
		wrong := []journal.Fetch{other, size, place}
		began := time.Now()
		g.Load(append(wrong, g.all[1]))
		g.want(g.all[1:2], nil)
		g.want(wrong, journal.ErrUnreadable)
		if took := time.Since(began); took < 110*time.Millisecond || took > time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestABadRegionMakesNothingElseUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 2, 300, 300, 300, 300, 300, 300)
		defer g.Close(journal.ErrClosed)
		bad := int64(g.all[1].Place.Offset)*8 + 100 // in the second of the first segment
		g.Reader.Options.Open = func(s uint32) (vfs.File, error) {
			f, err := g.disk.OpenRead(name(s))
			if s == 1 && err == nil {
				return badSector{f, bad}, nil
			}
			return f, err
		}
		g.Load(g.all)
		for i, err := range g.results(g.all) {
			if want := map[bool]error{true: journal.ErrUnreadable}[i == 1]; !errors.Is(err, want) {
				t.Errorf("job %d: %v, want %v", g.all[i].ID, err, want)
			}
		}
	})
}

// badSector is a file of which one byte cannot be read, nor anything behind it by the same call.
type badSector struct {
	vfs.File
	at int64
}

func (f badSector) ReadAt(p []byte, off int64) (int, error) {
	if off > f.at || off+int64(len(p)) <= f.at {
		return f.File.ReadAt(p, off)
	}
	n, err := f.File.ReadAt(p[:f.at-off], off)
	return n, errors.Join(err, syscall.EIO)
}

func TestADyingDiskMakesNothingUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 2, 100, 100, 100, 100)
		defer g.Close(journal.ErrClosed)
		for what, fault := range map[string]faultfs.Fault{
			"it fails":          {Err: syscall.EIO},
			"it reads short":    {Err: syscall.EIO, Short: 50},
			"it cannot be open": {Err: syscall.EMFILE},
		} {
			g.files.close()
			g.faults(func(c faultfs.Call) faultfs.Fault {
				if (c.Op == "open") == (fault.Err == syscall.EMFILE) {
					return fault
				}
				return faultfs.Fault{}
			})
			g.Load(g.all[:1])
			g.want(g.all[:1], journal.ErrHangs)
			synctest.Wait()
			g.faults(nil)
			g.Load(g.all[1:2])
			g.want(g.all[1:2], journal.ErrHangs) // within a second
			time.Sleep(time.Second)
			g.Load(g.all)
			if g.want(g.all, nil); t.Failed() {
				t.Fatal(what)
			}
		}
	})
}

func TestAReadThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 2, 100, 200<<10, 100, 100)
		for _, f := range g.all {
			end := make(chan struct{})
			g.faults(func(c faultfs.Call) faultfs.Fault {
				if c.Op == "read" {
					return faultfs.Fault{Until: end}
				}
				return faultfs.Fault{}
			})
			began := time.Now()
			g.Load([]journal.Fetch{f})
			g.want([]journal.Fetch{f}, journal.ErrHangs)
			if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("after %v", took)
			}
			g.faults(nil)
			time.Sleep(time.Second)
			g.Load(g.all) // while that one still hangs
			g.want(g.all, nil)
			close(end) // its goroutine ends, and nothing is told
		}
		p := make([]byte, 200<<10)
		hang := make(chan struct{})
		g.faults(func(faultfs.Call) faultfs.Fault { return faultfs.Fault{Until: hang} })
		if _, err := g.Range(2).ReadAt(p, 0); !errors.Is(err, journal.ErrHangs) {
			t.Errorf("a range: %v", err)
		}
		g.Close(journal.ErrClosed) // although it hangs
		close(hang)
		synctest.Wait()
		if !bytes.Equal(p, make([]byte, len(p))) {
			t.Error("a read that was given up goes on in the memory of who has asked")
		}
		if _, err := g.Range(1).ReadAt(p, 0); !errors.Is(err, journal.ErrClosed) {
			t.Errorf("when it is closed: %v", err)
		}
	})
}

func TestARemovedFileMeansThatTheBodyHasMoved(t *testing.T) {
	t.Parallel()
	g := newRig(t, 2, 100, 100, 100, 100)
	defer g.Close(journal.ErrClosed)
	g.Load(g.all)
	g.want(g.all, nil)
	if err := g.disk.Remove(name(1)); err != nil {
		t.Fatal(err)
	}
	g.Load(g.all)
	g.want(g.all, nil) // it is open
	g.Forget(1)
	g.Load(g.all)
	g.want(g.all[:2], journal.ErrMoved)
	g.Load(g.all[2:])
	g.want(g.all[2:], nil)
}

func TestARecordThatIsNotWrittenIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 1, 100, 100, 100)
		defer g.Close(journal.ErrClosed)
		r := New(g.Options, g.all[1].Place)
		defer r.Close(journal.ErrClosed)
		r.Load(g.all)
		g.want(g.all[:1], nil)
		synctest.Wait()
		if len(g.told) > 0 || g.flushes != 1 {
			t.Errorf("%d are told, %d flushes", len(g.told), g.flushes)
		}
		r.Written(g.all[2].Place)
		g.want(g.all[1:2], nil)
		r.Fail(journal.ErrFailed)
		g.want(g.all[2:], journal.ErrFailed)
		r.Load(g.all)
		g.want(g.all[2:], journal.ErrFailed)
	})
}

func TestARecordThatIsNeverWrittenIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 1, 100)
		r := New(g.Options, g.all[0].Place)
		defer r.Close(journal.ErrClosed)
		r.Load(g.all)
		g.want(g.all, journal.ErrHangs)
	})
}

// counted counts open files.
type counted struct {
	vfs.File
	close func()
}

func (c counted) Close() error {
	c.close()
	return c.File.Close()
}

func TestDescriptorsHaveABound(t *testing.T) {
	t.Parallel()
	sizes := make([]int, 400)
	for i := range sizes {
		sizes[i] = 10
	}
	g := newRig(t, len(sizes), sizes...)
	var mu sync.Mutex
	open, opened := 0, 0
	g.Reader.Options.Open = func(s uint32) (vfs.File, error) {
		mu.Lock()
		defer mu.Unlock()
		f, err := g.disk.OpenRead(name(s))
		open++
		opened++
		return counted{f, func() { mu.Lock(); open--; mu.Unlock() }}, err
	}
	g.Load(g.all)
	g.want(g.all, nil)
	if g.Load(g.all[300:]); true {
		g.want(g.all[300:], nil)
	}
	mu.Lock()
	if open > mostDescriptors+9 || opened != len(sizes) {
		t.Errorf("%d files are open, %d were opened", open, opened)
	}
	mu.Unlock()
	g.Close(journal.ErrClosed)
	if open != 0 {
		t.Errorf("%d files are open at the end", open)
	}
}

func TestAFileThatIsRemovedWhileItIsReadIsClosedThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, 1, 100)
		defer g.Close(journal.ErrClosed)
		open := 0
		g.Reader.Options.Open = func(s uint32) (vfs.File, error) {
			f, err := g.disk.OpenRead(name(s))
			open++
			return counted{f, func() { open-- }}, err
		}
		end := make(chan struct{})
		g.faults(func(c faultfs.Call) (f faultfs.Fault) {
			if c.Op == "read" {
				f.Until = end
			}
			return f
		})
		g.Load(g.all)
		synctest.Wait()
		if g.Forget(1); open != 1 {
			t.Errorf("it is read, and open %d times", open)
		}
		close(end)
		g.want(g.all, nil)
		if synctest.Wait(); open != 0 {
			t.Errorf("nobody reads it, and it is open %d times", open)
		}
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1, 100, 100)
	end := make(chan struct{})
	g.faults(func(faultfs.Call) faultfs.Fault { return faultfs.Fault{Until: end} })
	moves := append([]journal.Fetch(nil), g.all...)
	moves[0].Lane, moves[1].Lane = journal.Move, journal.Walk
	g.Load(moves)
	time.AfterFunc(10*time.Millisecond, func() { close(end) })
	g.Close(journal.ErrClosed)
	errs := g.results(moves)
	if errs[0] == nil == (errs[1] == nil) || errors.Join(errs...) == nil {
		t.Errorf("one is being read, one waits: %v", errs)
	}
}
