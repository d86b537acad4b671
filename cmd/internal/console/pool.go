package console

import (
	"context"
	"errors"
	"sync"
	"time"

	"trellis/cmd/internal/client"

	"golang.org/x/sync/semaphore"
)

const (
	// maxConns is how many connections a console has to its server.
	maxConns = 4
	// idleTime is how long a connection is kept that nobody needs.
	idleTime = 10 * time.Second
)

// pool are the connections to a server. Any goroutine may use it.
type pool struct {
	dial  func(context.Context) (*client.Conn, error)
	inUse *semaphore.Weighted

	mu     sync.Mutex
	idle   []idleConn  // the one used last is the last; guarded by mu
	sweep  *time.Timer // runs closeIdle; nil if none is idle; guarded by mu
	closed bool        // guarded by mu
}

type idleConn struct {
	*client.Conn
	since time.Time
}

// with lends a connection to do, which must change nothing: if do fails on an idle connection,
// which the server may have closed since, it is called again with a new one.
func (p *pool) with(ctx context.Context, do func(*client.Conn) error) (err error) {
	if err := p.inUse.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.inUse.Release(1)
	for conn := p.take(); ; conn = nil {
		fresh := conn == nil
		if fresh {
			if conn, err = p.connect(ctx); err != nil {
				return err
			}
		}
		if err = do(conn); !isConnError(err) {
			p.put(conn)
			return err
		}
		_ = conn.Close()
		if fresh || ctx.Err() != nil || errors.Is(err, errTooBig) {
			return err
		}
	}
}

// once lends a new connection to do, for what must not be done twice. If do fails, the
// connection is closed, so that the server releases what it may have reserved.
func (p *pool) once(ctx context.Context, do func(*client.Conn) error) error {
	if err := p.inUse.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.inUse.Release(1)
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if err = do(conn); err != nil {
		_ = conn.Close()
		return err
	}
	p.put(conn)
	return nil
}

func (p *pool) connect(ctx context.Context) (*client.Conn, error) {
	conn, err := p.dial(ctx)
	if err == nil {
		conn.MaxBody = maxReply
	}
	return conn, err
}

func isConnError(err error) bool {
	_, broken := errors.AsType[*client.ConnError](err)
	return broken
}

func (p *pool) take() *client.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	conn := p.idle[n-1].Conn
	p.idle = p.idle[:n-1]
	return conn
}

func (p *pool) put(conn *client.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return
	}
	p.idle = append(p.idle, idleConn{conn, time.Now()})
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleTime, p.closeIdle)
	}
}

func (p *pool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep = nil
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].since) >= idleTime {
		_ = p.idle[n].Close()
		n++
	}
	p.idle = append(p.idle[:0], p.idle[n:]...)
	if len(p.idle) > 0 && !p.closed {
		p.sweep = time.AfterFunc(idleTime-time.Since(p.idle[0].since), p.closeIdle)
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
	if p.sweep != nil {
		p.sweep.Stop()
	}
}
