package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// lane carries messages of one sort to one member, in their order, over one connection
// at a time that it makes itself. Its messages are discarded whenever it has none.
type lane struct {
	t       *Transport
	peer    *peer
	purpose purpose
	waker   chan struct{} // has a token when there are messages
	hurry   chan struct{} // has a token when the member is known to live

	mu    sync.Mutex
	up    bool
	queue []*raftpb.Message
	bytes int // of the messages in queue
	spare []*raftpb.Message
}

// put takes a message, or says that there is no room or no connection.
func (l *lane) put(m *raftpb.Message) bool {
	size := messageSize(m)
	l.mu.Lock()
	ok := l.up && len(l.queue) < maxQueued && (len(l.queue) == 0 || l.bytes+size <= maxQueue)
	if ok {
		l.queue = append(l.queue, m)
		l.bytes += size
	}
	l.mu.Unlock()
	if ok {
		wake(l.waker)
	}
	return ok
}

// take returns what waits. It is valid until the next take.
func (l *lane) take() []*raftpb.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue, l.spare = l.spare[:0], l.queue
	l.bytes = 0
	return l.spare
}

func (l *lane) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = up
	l.queue, l.spare, l.bytes = nil, nil, 0
}

// run connects again and again until the peer is disconnected or the transport closed.
func (l *lane) run() {
	ctx, tm := l.peer.ctx, &l.t.timing
	retry := tm.retry
	for ctx.Err() == nil {
		c, err := open(ctx, l.t.client(), tm.greet, l.peer.Addr, l.t.members.Load().hello(l.purpose, l.peer.Member))
		if err == nil {
			began := time.Now()
			l.set(true)
			err = l.serve(c)
			l.set(false)
			l.t.lost(l.peer.ID)
			if time.Since(began) > tm.retries {
				retry = tm.retry
			}
		}
		if ctx.Err() != nil {
			return
		}
		l.t.log.warn("no connection to a member", l.peer.String(), err)
		if r := (*refusal)(nil); errors.As(err, &r) && r.status == notMember {
			l.t.cfg.Handler.NotMember(l.peer.ID)
		}
		select {
		case <-ctx.Done():
		case <-l.hurry:
			retry = tm.retry
			time.Sleep(l.pause(retry)) // so that two members cannot hurry each other on
		case <-time.After(l.pause(retry)):
			retry = min(2*retry, tm.retries)
		}
	}
}

// pause is about as long as d, so that lanes do not connect all at the same moment. It is of the source that a test
// can seed.
func (l *lane) pause(d time.Duration) time.Duration {
	part, err := rand.Int(rand.Reader, big.NewInt(int64(d)))
	if err != nil {
		return d // never: crypto/rand ends the process instead
	}
	return d/2 + time.Duration(part.Int64())
}

// serve writes messages until the connection ends.
func (l *lane) serve(c net.Conn) error {
	ctx, cancel := context.WithCancelCause(l.peer.ctx)
	defer cancel(nil)
	defer until(ctx, c)()
	defer l.t.stand(c, l.peer.String())()
	tc := &timedConn{c, l.t.timing.dead, l.t.timing.dead}
	var reading sync.WaitGroup
	reading.Go(func() { cancel(readPulses(tc)) })
	err := l.write(ctx, tc)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // the reader saw the reason first
	}
	_ = c.Close()
	reading.Wait()
	return err
}

// readPulses returns when the connection ends.
func readPulses(c net.Conn) error {
	r := newFrameReader(c, 64, kindPulse)
	for {
		if _, _, err := r.next(); err != nil {
			return fmt.Errorf("the connection ended: %w", err)
		}
	}
}

func (l *lane) write(ctx context.Context, c *timedConn) error {
	w := newFrameWriter(c, bufSize)
	pulse := time.NewTicker(l.t.timing.pulse)
	defer pulse.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pulse.C:
			if err := w.frame(kindPulse, nil); err != nil {
				return err
			}
		case <-l.waker:
		}
		batch := l.take()
		for _, m := range batch {
			if err := w.message(m); err != nil {
				l.t.cfg.Log.Error("a message cannot be sent", "peer", l.peer.String(), "error", err)
				l.t.lost(l.peer.ID)
			}
		}
		clear(batch)
		if err := w.w.Flush(); err != nil {
			return err
		}
	}
}
