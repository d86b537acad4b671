package gnetloop

import (
	"io"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"trellis/reactor/internal/sockets"
)

// stage is a simulation of sockets, and the poller of its only loop.
type stage struct {
	mu      sync.Mutex
	input   map[int][]string // what reads bring; the end behind the last
	watched map[int]Report   // without FD
	closed  []int
	token   chan struct{}
}

func (s *stage) Accept(int) (int, error)        { return -1, unix.EAGAIN }
func (s *stage) Unread(int) bool                { return true }
func (s *stage) Write(int, []byte) (int, error) { return 0, unix.EAGAIN }
func (s *stage) EndOutput(int) error            { return nil }
func (s *stage) ResetOnClose(int)               {}
func (s *stage) Duplicate(fd int) (int, error)  { return fd, nil }

func (s *stage) Read(fd int, p []byte) (int, error) {
	if len(s.input[fd]) == 0 {
		return 0, nil
	}
	n := copy(p, s.input[fd][0])
	s.input[fd] = s.input[fd][1:]
	return n, nil
}

func (s *stage) Close(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, fd)
}

func (s *stage) Watch(fd int, number int32, input, end bool) {
	s.watched[fd] = Report{Number: number, Input: input, End: end}
}

func (s *stage) AwaitOutput(fd int) { s.watched[fd] = Report{Output: true} }

func (s *stage) Poll(reports []Report) (n int) {
	for fd, r := range s.watched {
		if r.FD = fd; r.Input || r.Output {
			reports[n] = r
			n++
		}
		if r.Output {
			delete(s.watched, fd)
		}
	}
	return n
}

func (s *stage) Sleep() { <-s.token }

func (s *stage) Wake() {
	select {
	case s.token <- struct{}{}:
	default:
	}
}

// heard is a Conn that keeps what it gets.
type heard struct {
	got  []string
	ends chan error
}

func (h *heard) Received(p []byte) { h.got = append(h.got, string(p)) }
func (h *heard) Closing(err error) { h.ends <- err }

func TestALoopOfASimulationMakesNoSystemCalls(t *testing.T) {
	const first, second, other = sockets.First, sockets.First + 1, sockets.First + 2
	s := &stage{
		input: map[int][]string{first: {"a", "b"}}, watched: map[int]Report{}, token: make(chan struct{}, 1),
	}
	sockets.Simulate(s)
	loops, err := Start(Config{Loops: 1, ReadSize: 10, Poller: func() Poller { return s }})
	if err != nil {
		t.Fatal(err)
	}
	l := loops[0]
	r, call := run(t, l)
	a, b := &heard{ends: make(chan error, 1)}, &heard{ends: make(chan error, 1)}
	call(func() {
		if err := l.Adopt(first, a); err != nil {
			t.Error(err)
		}
	})
	for done := false; !done; {
		select {
		case err := <-a.ends:
			if err != io.EOF || !slices.Equal(a.got, []string{"a", "b"}) {
				t.Errorf("got %q, and %v", a.got, err)
			}
			done = true
		default:
			call(func() {})
		}
	}
	call(func() {
		err := l.Adopt(second, b)
		if err == nil {
			err = l.Pause(second)
		}
		if err == nil {
			err = l.Watch(other, -7)
		}
		if err == nil {
			err = l.AwaitOutput(first, false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	call(func() {})
	if fd := <-r.writable; fd != first || r.number.Load() != -7 {
		t.Errorf("%d takes output, and %d was reported", fd, r.number.Load())
	}
	if err := Stop(loops); err != nil || <-b.ends != nil || len(b.got) > 0 {
		t.Errorf("Stop: %v; the connection that is paused got %q", err, b.got)
	}
	if !slices.Equal(s.closed, []int{first, second}) {
		t.Errorf("closed are %v", s.closed)
	}
}
