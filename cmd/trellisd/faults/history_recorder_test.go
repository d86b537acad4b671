package faults

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder collects the history of many clients. All methods may be called from any
// goroutine.
type Recorder struct {
	// Dial connects clients to an address. Nil means TCP. It is set before there are clients.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Pause is how long a client waits when no address has served it. NewRecorder sets it to 10 ms.
	Pause time.Duration

	// Silent is told when a patient client gives up because a reply has not come from an address for so long. Nil does
	// nothing. It is set before there are clients.
	Silent func(addr string, since time.Duration)

	began time.Time
	name  string // in the keys of its jobs: those of an earlier history may outlive their jobs

	sessions atomic.Int64 // numbers given out
	numbers  atomic.Int64 // of puts

	mu       sync.Mutex
	ops      []Op          // guarded by mu
	answered int           // guarded by mu; commands that had a reply
	more     chan struct{} // guarded by mu; closed when answered has grown
}

// NewRecorder begins a history.
func NewRecorder() *Recorder {
	return &Recorder{Pause: pause, began: time.Now(), name: rand.Text(), more: make(chan struct{})}
}

// now is the history's clock: monotonic nanoseconds.
func (r *Recorder) now() int64 { return int64(time.Since(r.began)) }

// longBody is the length of a body that is remembered whole.
const longBody = 100

func (r *Recorder) add(o Op) {
	if len(o.Body) > longBody {
		o.Body = fmt.Sprintf("%s %d bytes %x", o.Body[:longBody/2], len(o.Body), sha256.Sum256([]byte(o.Body)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
	if o.Reply != "" {
		r.answered++
		close(r.more)
		r.more = make(chan struct{})
	}
}

// Answered is how many commands have had a reply.
func (r *Recorder) Answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered
}

// Await waits until that many commands have had a reply.
func (r *Recorder) Await(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		answered, more := r.answered, r.more
		r.mu.Unlock()
		if answered >= n {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Serves notes that another server begins to serve.
func (r *Recorder) Serves() {
	now := r.now()
	r.add(Op{Verb: serves, Call: now, Return: now})
}

func (r *Recorder) session() int { return int(r.sessions.Add(1)) }

func (r *Recorder) number() int { return int(r.numbers.Add(1)) }

// ended notes that the server ends a session at some time from then on.
func (r *Recorder) ended(session int, from int64) {
	r.add(Op{Session: session, Verb: end, Call: from, Return: never})
}

// History is what has happened so far. Every client must have been closed.
func (r *Recorder) History() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ops)
}
