package audit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"trellis/reactor/throttle"
)

// queueLen is how many lines may wait to be written.
const queueLen = 4096

// Trail takes lines and writes them. Any goroutine may call its methods. Make one with [Open].
type Trail struct {
	log   *slog.Logger // through which lines come
	plain *slog.Logger // for what is wrong with the trail itself
	file  *file        // nil if there is none; the writing goroutine's

	mu     sync.RWMutex // held to close queue, and for reading to send on it
	closed bool         // guarded by mu
	queue  chan *line
	ended  chan struct{} // closed when all is written

	clients limits

	denied, unreported, lost atomic.Uint64
	trouble                  throttle.Throttle
}

// A line is on its way to those who write it.
type line struct {
	to     []slog.Handler
	record slog.Record
}

func (l *line) writeTo(h slog.Handler) error {
	ctx := context.Background()
	if !h.Enabled(ctx, l.record.Level) {
		return nil
	}
	return h.Handle(ctx, l.record)
}

// Open begins a trail that goes to a log, and to the file of that path unless it is "".
func Open(path string, log *slog.Logger) (*Trail, error) {
	t := &Trail{plain: log, queue: make(chan *line, queueLen), ended: make(chan struct{})}
	to := []slog.Handler{log.Handler()}
	if path != "" {
		var err error
		if t.file, err = openFile(path); err != nil {
			return nil, err
		}
		to = append(to, slog.NewJSONHandler(t.file, nil))
	}
	t.log = slog.New(&handler{t, to}).With("audit", true)
	t.clients.report = t.report
	go t.write()
	return t, nil
}

// Logger is for what else belongs into the trail. To log takes no time, and fails if too much
// waits to be written.
func (t *Trail) Logger() *slog.Logger { return t.log }

// Close writes what waits, and closes the file. What is logged afterwards goes to the log only.
func (t *Trail) Close() error {
	t.clients.flush()
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if !closed {
		close(t.queue)
	}
	<-t.ended
	if t.file == nil {
		return nil
	}
	return t.file.close()
}

// Stats count what has happened since the trail began.
type Stats struct {
	Denied     uint64 // commands that a client had no right to
	Unreported uint64 // commands of which only the number is in the trail: one client gave too many
	Lost       uint64 // lines that could not be written
}

// Stats returns the counts.
func (t *Trail) Stats() Stats {
	return Stats{Denied: t.denied.Load(), Unreported: t.unreported.Load(), Lost: t.lost.Load()}
}

func (t *Trail) enqueue(l *line) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		_ = l.writeTo(l.to[0]) // nobody is left who could be told
		return
	}
	select {
	case t.queue <- l:
	default:
		t.lost.Add(1)
	}
}

// write is the goroutine that writes.
func (t *Trail) write() {
	defer close(t.ended)
	for l := range t.queue {
		for _, h := range l.to {
			if err := l.writeTo(h); err != nil {
				t.lost.Add(1)
				if n, ok := t.trouble.Allow(); ok {
					t.plain.Error("a line of the audit trail cannot be written", "error", err, "unreported", n)
				}
			}
		}
	}
}

// handler leaves lines in the trail's queue.
type handler struct {
	trail *Trail
	to    []slog.Handler
}

// Enabled tells that every line is wanted: the log may want fewer than the file.
func (h *handler) Enabled(context.Context, slog.Level) bool { return true }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.trail.enqueue(&line{h.to, r.Clone()})
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.with(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *handler) with(derive func(slog.Handler) slog.Handler) slog.Handler {
	derived := &handler{trail: h.trail}
	for _, next := range h.to {
		derived.to = append(derived.to, derive(next))
	}
	return derived
}
