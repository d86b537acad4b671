package shard

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine/account"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/reply"
)

// A crew runs an engine as a server does: a goroutine for each loop, real
// timers, clients on goroutines of their own. Its clock goes a thousand times
// as fast as the real one, so that seconds of the protocol pass in milliseconds.
type crew struct {
	t        *testing.T
	engine   *Engine
	accounts account.Accounts
	start    time.Time
	loops    []*crewLoop
	opened   atomic.Int64
	sent     [codec.NumCommands]atomic.Uint64
	steps    atomic.Int64 // the budget of a round, if it is not 0
	ended    sync.WaitGroup
}

const haste = 1000

type crewLoop struct {
	*Loop
	crew  *crew
	calls chan func(now clock.Time)
	waker chan struct{}
	timer *time.Timer
}

func newCrew(t *testing.T, loops, shards int) *crew {
	c := &crew{t: t, start: time.Now()}
	c.engine = New(Config{MaxJobSize: 1 << 16, Shards: shards, Info: testInfo, Accounts: &c.accounts})
	for range loops {
		l := &crewLoop{crew: c, calls: make(chan func(clock.Time), 64), waker: make(chan struct{}, 1)}
		l.timer = time.AfterFunc(time.Hour, l.Wake)
		l.Loop = c.engine.NewLoop(l)
		c.loops = append(c.loops, l)
		c.ended.Go(l.run)
	}
	return c
}

func (c *crew) now() clock.Time { return clock.Time(time.Since(c.start)) * haste }

func (c *crew) real(at clock.Time) time.Duration {
	return max(0, time.Duration((at-c.now()+haste-1)/haste))
}

// Ring implements Waker.
func (l *crewLoop) Wake() {
	select {
	case l.waker <- struct{}{}:
	default:
	}
}

// Alarm implements Waker.
func (l *crewLoop) Alarm(at clock.Time) { l.timer.Reset(l.crew.real(at)) }

func (l *crewLoop) run() {
	for {
		select {
		case f := <-l.calls:
			if f == nil {
				return
			}
			now := l.crew.now()
			f(now)
			// A batch, as a read brings it.
			for n := min(len(l.calls), 16); n > 0; n-- {
				if f := <-l.calls; f != nil {
					f(now)
				}
			}
		case <-l.waker:
		}
		l.Refill()
		if steps := l.crew.steps.Load(); steps > 0 {
			l.allow(int(steps))
		}
		for {
			s := l.Next(l.crew.now())
			if s == nil {
				break
			}
			(*hand)(unsafe.Pointer(s)).resume(l.crew.now())
		}
	}
}

// within fails loudly when f does not come back.
func (c *crew) within(f func()) {
	stuck := time.AfterFunc(5*time.Minute, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s hangs: %+v\n%s", c.t.Name(), c.engine.Snapshot(c.now()), buf[:runtime.Stack(buf, true)]))
	})
	f()
	stuck.Stop()
}

// stop ends the loops and checks that the engine is left empty and has counted
// right.
func (c *crew) stop() {
	for _, l := range c.loops {
		close(l.calls)
	}
	c.ended.Wait()
	for _, l := range c.loops {
		l.timer.Stop()
	}
	for _, err := range checkEmpty(c.engine) {
		c.t.Error(err)
	}
	n := c.engine.Snapshot(c.now())
	for op := range n.Commands {
		if got, want := n.Commands[op], c.sent[op].Load(); got != want {
			c.t.Errorf("%d commands %v were counted, %d were sent", got, codec.Op(op), want)
		}
	}
	if n.Opened != uint64(c.opened.Load()) || n.Connections+n.Producers+n.Workers+n.Waiting != 0 {
		c.t.Errorf("%d connections were opened, and the engine counts %+v", c.opened.Load(), n)
	}
}

// A hand is a client. Its methods are for any goroutine; do for one at a time.
type hand struct {
	session Session // the first field: see run
	loop    *crewLoop
	out     reply.Output // the loop's, as is what follows
	waiting bool
	closed  bool
	replies chan string
}

func (c *crew) hire() *hand {
	n := c.opened.Add(1)
	h := &hand{loop: c.loops[int(n)%len(c.loops)], replies: make(chan string, 1)}
	h.call(func(now clock.Time) { h.loop.Open(&h.session, now) })
	return h
}

// call runs f on the loop's goroutine and waits for it.
func (h *hand) call(f func(now clock.Time)) {
	done := make(chan struct{})
	h.loop.calls <- func(now clock.Time) {
		f(now)
		close(done)
	}
	<-done
}

func (h *hand) resume(now clock.Time) {
	if h.closed {
		return
	}
	if !h.waiting {
		h.loop.crew.t.Error("woken, and does not wait")
		return
	}
	if h.session.Resume(now, &h.out) == Done {
		h.reply()
	}
}

func (h *hand) reply() {
	flatten(&h.out)
	h.waiting = false
	h.replies <- string(h.out.Buf)
	h.out.Buf = h.out.Buf[:0]
}

// do executes a command and returns the reply, "" if the session was closed
// before there was one.
func (h *hand) do(cmd codec.Command) string {
	cmd.CountAs = cmd.Op
	h.loop.calls <- func(now clock.Time) {
		if h.closed {
			h.replies <- ""
			return
		}
		h.loop.crew.sent[cmd.Op].Add(1)
		if h.session.Execute(now, &cmd, &h.out) == Wait {
			h.waiting = true
		} else {
			h.reply()
		}
	}
	return <-h.replies
}

func (h *hand) close() {
	h.call(func(now clock.Time) {
		h.session.Close(now)
		h.closed = true
		if h.waiting {
			h.reply()
		}
	})
}

func (h *hand) halfClose() {
	h.call(func(now clock.Time) {
		if !h.closed && h.session.HalfClose(now, &h.out) == Done && h.waiting {
			h.reply()
		}
	})
}

func (h *hand) use(tube string) { h.do(codec.Command{Op: codec.OpUse, Tube: []byte(tube)}) }
func (h *hand) watch(tube string) {
	h.do(codec.Command{Op: codec.OpWatch, Weight: 1, Tube: []byte(tube)})
}

func (h *hand) watchOnly(tubes ...string) {
	for _, tube := range tubes {
		h.watch(tube)
	}
	h.do(codec.Command{Op: codec.OpIgnore, Tube: []byte(DefaultTube)})
}

// put puts a job whose body says so, and returns its id.
func (h *hand) put(pri, delay, ttr uint32, body string) uint64 {
	reply := h.do(codec.Command{
		Op: codec.OpPut, Pri: pri, Delay: delay, TTR: ttr,
		Size: uint32(len(body)), Body: []byte(body), Terminated: true,
	})
	id, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(reply, "INSERTED "), "\r\n"), 10, 64)
	if err != nil {
		h.loop.crew.t.Errorf("put: %q", reply)
	}
	return id
}

// reserve returns the id and the body of a job, or 0 and the reply.
func (h *hand) reserve() (uint64, string) {
	return reservedIn(h.do(codec.Command{Op: codec.OpReserve}))
}

func (h *hand) reserveFor(timeout uint32) (uint64, string) {
	return reservedIn(h.do(codec.Command{Op: codec.OpReserveWithTimeout, Timeout: timeout}))
}

func reservedIn(reply string) (id uint64, rest string) {
	if line, body, _ := strings.Cut(reply, "\r\n"); strings.HasPrefix(line, "RESERVED ") {
		if _, err := fmt.Sscanf(line, "RESERVED %d", &id); err == nil {
			return id, strings.TrimSuffix(body, "\r\n")
		}
	}
	return 0, reply
}

func (h *hand) with(op codec.Op, id uint64) string { return h.do(codec.Command{Op: op, ID: id}) }

// A ledger notes what happens once to each job.
type ledger struct {
	t    *testing.T
	what string
	mu   sync.Mutex
	seen map[uint64]bool
	full chan struct{} // closed when all have happened
	left int
}

func newLedger(t *testing.T, what string, jobs int) *ledger {
	return &ledger{t: t, what: what, seen: map[uint64]bool{}, full: make(chan struct{}), left: jobs}
}

func (l *ledger) note(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[id] {
		l.t.Errorf("job %d was %s twice", id, l.what)
	}
	l.seen[id] = true
	if l.left--; l.left == 0 {
		close(l.full)
	}
}
