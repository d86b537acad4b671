package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trellis/binlog/replica/member"
)

// pulse writes pulses until the context ends; then the channel is closed. Nobody else may
// write before that.
func (t *Transport) pulse(ctx context.Context, c net.Conn) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(t.timing.pulse)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if _, err := c.Write(pulseFrame); err != nil {
				return
			}
		}
	}()
	return done
}

// outStream is a snapshot on its way to a member.
type outStream struct{ cancel context.CancelCauseFunc }

var errSuperseded = errors.New("a newer snapshot is sent")

// SendSnapshot sends a MsgSnap and the files of its snapshot to the member m.To, on a
// goroutine and a connection of its own. open writes the files; its writes block when the
// member is slow, and fail when the transfer has failed. Handler.SnapshotSent tells the
// end, once. A later call for the same member ends the transfer before without that:
// raft waits for the later one. If m has a context, open waits with told for what the member says in answer to it,
// before it writes.
func (t *Transport) SendSnapshot(m *raftpb.Message, open func(w io.Writer, told func() ([]byte, error)) error) {
	id := member.ID(m.GetTo())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	ms := t.members.Load()
	parent := t.ctx
	if p := ms.peers[id]; p != nil {
		parent = p.ctx
	}
	ctx, cancel := context.WithCancelCause(parent)
	s := &outStream{cancel}
	if old := t.streams[id]; old != nil {
		old.cancel(errSuperseded)
	}
	t.streams[id] = s
	t.all.Go(func() {
		err := errors.New("it is no member")
		if p := ms.peers[id]; p != nil {
			err = t.stream(ctx, ms.hello(purposeSnapshot, p.Member), p.Member, m, open)
		}
		superseded := context.Cause(ctx) == errSuperseded
		cancel(nil)
		t.mu.Lock()
		if t.streams[id] == s {
			delete(t.streams, id)
		} else {
			superseded = true
		}
		t.mu.Unlock()
		if superseded || t.ctx.Err() != nil {
			return
		}
		if err != nil {
			t.cfg.Log.Warn("a snapshot was not sent", "peer", id.String(), "error", err)
		}
		t.cfg.Handler.SnapshotSent(id, err == nil)
	})
}

// stream is a transfer, from the dialling to the member's word that it has the snapshot.
func (t *Transport) stream(
	ctx context.Context, h hello, to member.Member, m *raftpb.Message,
	write func(w io.Writer, told func() ([]byte, error)) error,
) error {
	tm := &t.timing
	c, err := open(ctx, t.client(), tm.greet, to.Addr, h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer until(ctx, c)()
	answer, has := make(chan error, 1), make(chan []byte, 1)
	if len(m.GetContext()) == 0 {
		has = nil
	}
	go func() {
		err := readDone(&timedConn{c, tm.dead, 0}, has)
		answer <- err
		cancel(err) // ends the writing if it goes on
	}()
	w := &chunkWriter{w: newFrameWriter(&timedConn{c, 0, tm.stall}, bufSize), kind: kindChunk}
	told := func() ([]byte, error) {
		if err := w.w.w.Flush(); err != nil {
			return nil, err
		}
		select {
		case b := <-has:
			return b, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	err = w.w.message(m)
	if err == nil {
		err = write(w, told)
	}
	if err == nil {
		err = w.w.frame(kindEnd, nil)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // what the member says, or why the transfer was ended
		}
		_ = c.Close()
		<-answer
		return err
	}
	limit := time.NewTimer(tm.finish + time.Duration(w.bytes/finishRate)*time.Second)
	defer limit.Stop()
	select {
	case err = <-answer:
	case <-limit.C:
		err = errors.New("the member did not finish in time")
		_ = c.Close()
		<-answer
	}
	return err
}

// readDone waits for the receiver's word. Before that it may tell what it has, unless has is nil.
func readDone(c io.Reader, has chan<- []byte) error {
	r := newFrameReader(c, 1<<10, kindDone, kindPulse)
	if has != nil {
		r = newFrameReader(c, bufSize, kindDone, kindPulse, kindHas, kindEnd)
	}
	var told []byte
	for {
		switch k, payload, err := r.next(); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errors.New("the member gives no sign of life")
		case err != nil:
			return fmt.Errorf("the connection ended: %w", err)
		case k == kindDone && len(payload) > 0:
			return &RemoteError{printable(payload)}
		case k == kindDone:
			return nil
		case k == kindHas && len(told)+len(payload) > MaxHas:
			return malformed("a member that has too much")
		case k == kindHas:
			told = append(told, payload...)
		case k == kindEnd:
			select {
			case has <- told:
			default:
				return malformed("a member that tells twice what it has")
			}
			told = nil
		}
	}
}

// chunkWriter makes frames of what is written to a stream.
type chunkWriter struct {
	w     *frameWriter
	kind  kind
	bytes int64
}

func (c *chunkWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		chunk := b[:min(len(b), maxChunk)]
		if err := c.w.frame(c.kind, chunk); err != nil {
			return n, err
		}
		n += len(chunk)
		b = b[len(chunk):]
	}
	c.bytes += int64(n)
	return n, nil
}

// inStream is a snapshot that comes in.
type inStream struct {
	from member.ID
	term uint64
	conn net.Conn
	done chan struct{}
}

// takeSnapshot gives a stream to the handler, and tells the sender how that has ended.
func (t *Transport) takeSnapshot(c net.Conn, from member.ID) error {
	tm := &t.timing
	tc := &timedConn{c, tm.stall, tm.stall}
	ctx, cancel := context.WithCancel(t.ctx)
	pulses := t.pulse(ctx, tc)
	quiet := func() {
		cancel()
		<-pulses
	}
	err := t.take(tc, from, func(has []byte) error {
		quiet()
		w := chunkWriter{w: newFrameWriter(tc, bufSize), kind: kindHas}
		_, err := w.Write(has)
		if err == nil {
			err = w.w.frame(kindEnd, nil)
		}
		ctx, cancel = context.WithCancel(t.ctx)
		pulses = t.pulse(ctx, tc)
		return err
	})
	quiet()
	text := ""
	if err != nil {
		text = cut(err.Error())
	}
	if werr := newFrameWriter(tc, smallBuf).frame(kindDone, []byte(text)); err == nil {
		return werr
	}
	// If more came from the sender behind the close, the system would drop the reason on its way.
	tc.read = tm.greet
	_, _ = io.Copy(io.Discard, io.LimitReader(tc, lingerBytes))
	return err
}

// lingerBytes is what a sender may have on its way when it learns that the stream ends.
const lingerBytes = 16 << 20

func (t *Transport) take(c *timedConn, from member.ID, tell func([]byte) error) error {
	r := &chunkReader{r: newFrameReader(c, bufSize, kindMessage, kindChunk, kindEnd)}
	k, payload, err := r.r.next()
	if err != nil {
		return err
	}
	if k != kindMessage {
		return malformed("a snapshot stream without its message")
	}
	m, err := decodeMessage(payload)
	if err != nil {
		return err
	}
	if m.GetType() != raftpb.MsgSnap {
		return malformed("a snapshot stream that begins with a %s", m.GetType())
	}
	if err := checkWay(m, t.members.Load().self.ID, from); err != nil {
		return err
	}
	s := &inStream{from, m.GetTerm(), c, make(chan struct{})}
	if err := t.turn(s); err != nil {
		return err
	}
	err = t.cfg.Handler.Snapshot(m, r, tell)
	if err == nil && !r.ended {
		err = errors.New("the snapshot was not read to its end")
	}
	t.mu.Lock()
	t.taking = nil
	close(s.done)
	t.mu.Unlock()
	return err
}

// turn waits until no other snapshot comes in. It ends one that is not of a later term,
// because its sender sends no more, or leads no more.
func (t *Transport) turn(s *inStream) error {
	for {
		t.mu.Lock()
		old := t.taking
		if old == nil && t.members.Load().peers[s.from] != nil {
			t.taking = s
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		switch {
		case old == nil:
			return errors.New("its sender is no member")
		case old.term > s.term:
			return fmt.Errorf("a snapshot of a later term comes in, from %s", old.from)
		}
		_ = old.conn.Close()
		select {
		case <-old.done:
		case <-t.ctx.Done():
			return errClosed
		}
	}
}

// chunkReader is what a snapshot's chunks hold. It ends with io.EOF only where the
// sender says that the stream is whole.
type chunkReader struct {
	r     *frameReader
	chunk []byte // what is left of the last one
	ended bool
}

func (c *chunkReader) Read(b []byte) (int, error) {
	for len(c.chunk) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		k, payload, err := c.r.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, errors.New("the sender of the snapshot does not go on")
		case err != nil:
			return 0, torn(err, 1)
		case k == kindMessage:
			return 0, malformed("a message within a snapshot stream")
		}
		c.chunk, c.ended = payload, k == kindEnd
	}
	n := copy(b, c.chunk)
	c.chunk = c.chunk[n:]
	return n, nil
}
