package audit

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"trellis/codec"
)

// A kind of commands is limited by itself: what is denied to a client by the million must not
// keep what it does from being told.
type kind uint8

const (
	done kind = iota
	denied
)

func (k kind) message() string { return [...]string{done: "command done", denied: "command denied"}[k] }

// A client may have so many lines at once, and then one in each interval.
var allowed = [...]struct {
	burst    int
	interval time.Duration
}{done: {100, 100 * time.Millisecond}, denied: {10, time.Second}}

// reportAfter is how long commands that are not told of may go uncounted.
const reportAfter = 10 * time.Second

// limits are those of all clients, command by command: who gives one too often must not hide
// behind that that he gives another. The names of clients are the operator's, so that they
// are few. Any goroutine may call the methods.
type limits struct {
	report func(of limitOf, n int)

	mu  sync.Mutex
	all map[limitOf]*limit // guarded by mu
}

type limitOf struct {
	kind   kind
	client string
	op     codec.Op
}

// limit bounds the lines that a client may have.
type limit struct {
	lines      *rate.Limiter
	unreported int
	timer      *time.Timer // reports those that are unreported; nil while there are none
}

// allow reports whether a command is to be told of by itself, and if so, how many were not before it.
func (l *limits) allow(of limitOf) (unreported int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.all[of]
	if b == nil {
		if l.all == nil {
			l.all = make(map[limitOf]*limit)
		}
		a := allowed[of.kind]
		b = &limit{lines: rate.NewLimiter(rate.Every(a.interval), a.burst)}
		l.all[of] = b
	}
	if !b.lines.Allow() {
		b.unreported++
		if b.timer == nil {
			b.timer = time.AfterFunc(reportAfter, func() { l.tell(of) })
		}
		return 0, false
	}
	return b.take(), true
}

// take ends the count of those that are unreported.
func (b *limit) take() (n int) {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	n, b.unreported = b.unreported, 0
	return n
}

// tell reports what of a client is unreported.
func (l *limits) tell(of limitOf) {
	l.mu.Lock()
	n := l.all[of].take()
	l.mu.Unlock()
	if n > 0 {
		l.report(of, n)
	}
}

// flush reports what is unreported of all clients.
func (l *limits) flush() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.all))
	l.mu.Unlock()
	for _, of := range all {
		l.tell(of)
	}
}
