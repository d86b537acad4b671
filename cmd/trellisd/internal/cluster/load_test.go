package cluster

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// load is clients at all members that put jobs, and reserve, touch, release, bury, kick and delete them. Each job is
// deleted once, by who holds it.
type load struct {
	t       *testing.T
	r       *rig
	ending  atomic.Bool
	clients sync.WaitGroup
	resets  atomic.Int64
	replies atomic.Int64
	longest atomic.Int64 // that a client has waited for a reply that was due at once

	put     sync.Map // jobs that were acknowledged, and are not deleted
	held    sync.Map // by whom; until it has said that it does not want it any more
	deleted atomic.Int64
}

var errWrong = errors.New("a wrong reply")

// ask says something and returns the reply's first line.
func (l *load) ask(c *asideClient, format string, args ...any) (string, error) {
	began := time.Now()
	line, err := c.say(fmt.Sprintf(format, args...))
	for took := int64(time.Since(began)); ; {
		longest := l.longest.Load()
		if took <= longest || l.longest.CompareAndSwap(longest, took) {
			break
		}
	}
	if err == nil {
		l.replies.Add(1)
	}
	return line, err
}

// expect is ask, for one of some replies.
func (l *load) expect(c *asideClient, wants, format string, args ...any) (string, error) {
	line, err := l.ask(c, format, args...)
	if err != nil {
		return "", err
	}
	for want := range strings.SplitSeq(wants, "|") {
		if strings.HasPrefix(line, want) {
			return line, nil
		}
	}
	return "", fmt.Errorf("%w: %q is answered %q", errWrong, fmt.Sprintf(format, args...), line)
}

// run has clients of a member work until the load ends. One that is reset comes again.
func (l *load) run(member int, secure bool, work func(c *asideClient) error) {
	l.clients.Go(func() {
		for !l.ending.Load() {
			addrs := l.r.addrs(member)
			if addrs == nil {
				time.Sleep(time.Millisecond)
				continue
			}
			c, err := l.r.dialAside(addrs, secure)
			for err == nil && !l.ending.Load() {
				err = work(c)
			}
			if errors.Is(err, errWrong) {
				l.t.Errorf("member %d: %v", member, err)
				return
			}
			if err != nil {
				l.resets.Add(1)
			}
			if c != nil {
				_ = c.Close()
			}
		}
	})
}

func (l *load) produce(name string) func(c *asideClient) error {
	n := 0
	return func(c *asideClient) error {
		n++
		body := fmt.Sprint(name, " ", n)
		text := fmt.Sprintf("put 0 0 1000 %d\r\n%s\r\n", len(body), body)
		half := n % len(text)
		if _, err := io.WriteString(c, text[:half]); err != nil {
			return err
		}
		line, err := l.expect(c, "INSERTED ", "%s", text[half:])
		if err != nil {
			return err
		}
		l.put.Store(strings.TrimSpace(strings.TrimPrefix(line, "INSERTED ")), body)
		time.Sleep(time.Millisecond)
		return nil
	}
}

func (l *load) consume() func(c *asideClient) error {
	n := 0
	return func(c *asideClient) error {
		n++
		line, err := c.say("reserve-with-timeout 1\r\n")
		if err != nil || line == "TIMED_OUT\r\n" {
			return err
		}
		id, body, err := c.body(line, "RESERVED %d %d")
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		key := fmt.Sprint(id)
		if other, held := l.held.LoadOrStore(key, c); held {
			return fmt.Errorf("%w: job %d is held by %v and by %v", errWrong, id, other.(*asideClient).LocalAddr(), c.LocalAddr())
		}
		defer l.held.Delete(key) // who is reset holds nothing any more
		if want, ok := l.put.Load(key); ok && want != body {
			return fmt.Errorf("%w: job %d has the body %q, and was put with %q", errWrong, id, body, want)
		}
		if n%3 == 0 {
			if _, err := l.expect(c, "TOUCHED", "touch %d\r\n", id); err != nil {
				return err
			}
		}
		switch n % 5 {
		case 1:
			l.held.Delete(key)
			_, err = l.expect(c, "RELEASED", "release %d 0 0\r\n", id)
			return err
		case 2:
			l.held.Delete(key)
			if _, err = l.expect(c, "BURIED", "bury %d 0\r\n", id); err == nil {
				_, err = l.expect(c, "KICKED|NOT_FOUND", "kick-job %d\r\n", id)
			}
			return err
		}
		if _, err := l.expect(c, "DELETED", "delete %d\r\n", id); err != nil {
			return err
		}
		l.deleted.Add(1)
		l.put.Delete(key)
		return nil
	}
}

// Clients of all members work while the leader hands over again and again: no connection ends.
func TestNoConnectionEndsWhenALeaderHandsOver(t *testing.T) {
	t.Parallel()
	times := 5
	if proof && !servertest.RaceEnabled {
		times = 15
	}
	for try := range attempts {
		r := newRig(t, 3)
		r.all()
		l := &load{t: t, r: r}
		for i := range r.queues {
			for _, secure := range []bool{false, true} {
				l.run(i, secure, l.produce(fmt.Sprint("producer ", i, secure)))
				l.run(i, secure, l.consume())
				l.run(i, secure, l.consume())
			}
		}
		for range times {
			before := l.replies.Load()
			r.eventually("clients are served", func() bool { return l.replies.Load() > before+300 || t.Failed() })
			from, _ := r.leader(-1)
			r.transfer(from)
		}
		l.ending.Store(true)
		l.clients.Wait()
		t.Logf("%d replies, %d jobs done; the longest wait was %v", l.replies.Load(), l.deleted.Load(), time.Duration(l.longest.Load()))
		if l.resets.Load() == 0 || t.Failed() {
			return
		}
		t.Logf("attempt %d: %d connections have ended", try, l.resets.Load())
	}
	t.Error("connections end")
}
