package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"trellis/binlog/replica/member"
)

// TrunkHello is what a loop of a gateway says of itself when it begins a trunk.
type TrunkHello struct {
	Version uint16 // of what follows: the latest that the gateway speaks
	Number  uint32 // of the loop
	Nonce   uint64 // of the gateway's process
	Count   uint64 // of this loop's dials: each one has a greater number than those before
}

const trunkHelloSize = 24

func (h *TrunkHello) encode() []byte {
	b := make([]byte, trunkHelloSize)
	le.PutUint16(b, h.Version)
	le.PutUint32(b[4:], h.Number)
	le.PutUint64(b[8:], h.Nonce)
	le.PutUint64(b[16:], h.Count)
	return b
}

func decodeTrunkHello(b []byte) (h TrunkHello, err error) {
	if len(b) != trunkHelloSize || b[2] != 0 || b[3] != 0 {
		return h, malformed("the beginning of a trunk, in %d bytes", len(b))
	}
	h = TrunkHello{le.Uint16(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
	if h.Version == 0 || h.Number == 0 || h.Nonce == 0 || h.Count == 0 {
		return h, malformed("a trunk of version %d, number %d, nonce %x and dial %d", h.Version, h.Number, h.Nonce, h.Count)
	}
	return h, nil
}

// Trunk is a connection between a loop of a gateway and the leader, at either end. All before the
// first frame of the gateway's or the leader's own has been read, and not a byte more.
type Trunk struct {
	// Peer is the member at the other end.
	Peer member.Member
	// Socket is the connection below TLS. Who has the trunk may close it, having taken its
	// descriptor, and must do so before it calls End.
	Socket net.Conn
	// TLS is over Socket; nil without TLS.
	TLS *tls.Conn
	// Context ends when the trunk has to; its cause tells why.
	Context context.Context

	cancel context.CancelCauseFunc
	below  *below
	once   sync.Once
	ended  chan struct{}
	err    error // why it has ended; set before ended is closed
}

// Swap has TLS read from and write to c from now on. Nobody uses TLS meanwhile.
func (k *Trunk) Swap(c net.Conn) { k.below.Conn = c }

// End tells that nothing of the trunk is used any more, and why. Calls but the first do nothing.
func (k *Trunk) End(err error) {
	k.once.Do(func() {
		k.err = err
		close(k.ended)
	})
}

// below is what lies below a tls.Conn.
type below struct{ net.Conn }

// newTrunk makes a trunk of a connection whose handshake is done. It has to end with ctx.
func newTrunk(ctx context.Context, peer member.Member, c net.Conn) *Trunk {
	k := &Trunk{Peer: peer, Socket: c, ended: make(chan struct{})}
	if s, ok := c.(*tls.Conn); ok {
		k.TLS, k.below = s, s.NetConn().(*below)
		k.Socket = k.below.Conn
	}
	k.Context, k.cancel = context.WithCancelCause(ctx)
	return k
}

// wait returns when the trunk has ended, and with why it had to, if it had.
func (k *Trunk) wait() error {
	<-k.ended
	err := k.err
	if cause := context.Cause(k.Context); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	k.cancel(nil)
	_ = k.Socket.Close()
	return err
}

// maxTrunks is how many connections a member may have for trunks: those of all loops that a
// process can have, and those that come in their place.
const maxTrunks = 512

var (
	errNewerDial  = errors.New("the gateway has dialled anew")
	errNewProcess = errors.New("the gateway is another process by now")
	errNoMember   = errors.New("it is no member")
)

// gateway is what a leader knows of the trunks of a member.
type gateway struct {
	conns int    // for trunks, also those that have not begun
	nonce uint64 // of the process whose trunks these are
	loops map[uint32]*loopTrunks
}

// loopTrunks is what a leader knows of the trunks of a loop.
type loopTrunks struct {
	count uint64 // of the dial that was heard last
	trunk *Trunk // nil when it has ended
}

// takeTrunk serves a trunk, from what the gateway's loop says of itself to its end.
func (t *Transport) takeTrunk(c, raw net.Conn, h hello) error {
	stop := until(t.ctx, raw)
	defer stop()
	tc := &timedConn{c, t.timing.greet, t.timing.greet}
	// The gateway sends nothing more before it is answered.
	_, payload, err := newFrameReader(tc, frameHead+trunkHelloSize+frameTail, kindTrunk).next()
	if err != nil {
		return err
	}
	th, err := decodeTrunkHello(payload)
	if err != nil {
		return err
	}
	trunk, take, err := t.beginTrunk(c, h, th)
	text := ""
	if err != nil {
		text = cut(err.Error())
	}
	if werr := newFrameWriter(tc, smallBuf).frame(kindDone, []byte(text)); err == nil && werr != nil {
		trunk.End(werr)
	}
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Time{})
	done := t.standAs(c, trunk.Peer.String(), trunk.cancel)
	stop() // the trunk's context ends with t.ctx
	select {
	case <-trunk.ended:
	default:
		take(trunk)
	}
	err = trunk.wait()
	done()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gateways[h.from.ID]; g != nil {
		if l := g.loops[th.Number]; l != nil && l.trunk == trunk {
			l.trunk = nil
		}
	}
	return err
}

// beginTrunk makes a trunk of the loop's latest dial.
func (t *Transport) beginTrunk(c net.Conn, h hello, th TrunkHello) (trunk *Trunk, take func(*Trunk), err error) {
	p := t.members.Load().peers[h.from.ID]
	if p == nil {
		return nil, nil, errNoMember
	}
	if take, err = t.cfg.Handler.Trunk(p.ctx, p.Member, th); err != nil {
		return nil, nil, err
	}
	trunk = newTrunk(p.ctx, p.Member, c)
	if err = t.replaceTrunks(h, th, trunk); err != nil {
		trunk.End(err)
		trunk.cancel(err)
		return nil, nil, err
	}
	return trunk, take, nil
}

// replaceTrunks notes a trunk in place of the loop's one before, and of those of the process before. It
// ends these, and returns when they have ended.
func (t *Transport) replaceTrunks(h hello, th TrunkHello, trunk *Trunk) error {
	old, err := t.noteTrunk(h, th, trunk)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(trunk.Context, t.timing.dead, errors.New("the trunk before does not end"))
	defer cancel()
	return awaitEnds(ctx, old)
}

// EndTrunks ends the trunks of a member that are of another process than the one with that nonce, and
// returns when they have ended.
func (t *Transport) EndTrunks(ctx context.Context, of member.ID, nonce uint64) error {
	var old []*Trunk
	t.mu.Lock()
	if g := t.gateways[of]; g != nil && g.nonce != nonce {
		old = g.end()
	}
	t.mu.Unlock()
	return awaitEnds(ctx, old)
}

// end ends all trunks of a member, and returns them: see awaitEnds. The caller holds Transport.mu.
func (g *gateway) end() (old []*Trunk) {
	for _, l := range g.loops {
		if l.trunk != nil {
			l.trunk.cancel(errNewProcess)
			old = append(old, l.trunk)
		}
	}
	return old
}

// awaitEnds waits until trunks have ended.
func awaitEnds(ctx context.Context, trunks []*Trunk) error {
	for _, k := range trunks {
		select {
		case <-k.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// noteTrunk notes a trunk as the loop's latest, and returns those whose place it takes. They end.
func (t *Transport) noteTrunk(h hello, th TrunkHello, trunk *Trunk) (old []*Trunk, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.refuse(h); r != nil {
		return nil, r // that has come about since it was welcomed
	}
	g := t.gateways[h.from.ID]
	if g.nonce != th.Nonce {
		old = g.end()
		g.nonce, g.loops = th.Nonce, map[uint32]*loopTrunks{}
	}
	l := g.loops[th.Number]
	if l == nil {
		l = &loopTrunks{}
		g.loops[th.Number] = l
	}
	if th.Count <= l.count {
		return nil, errors.New("the loop has dialled later than that")
	}
	if l.trunk != nil {
		l.trunk.cancel(errNewerDial)
		old = append(old, l.trunk)
	}
	l.count, l.trunk = th.Count, trunk
	return old, nil
}

// acquireTrunk takes one of the connections that a member may have for trunks.
func (t *Transport) acquireTrunk(from member.ID) (release func(), r *refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateways[from]
	if g == nil {
		g = &gateway{}
		t.gateways[from] = g
	}
	if g.conns >= maxTrunks {
		return nil, refuse(refused, "%d connections for trunks are all that a member may have", maxTrunks)
	}
	g.conns++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		g.conns--
		if p := t.members.Load().peers[from]; g.conns == 0 && p == nil {
			delete(t.gateways, from)
		}
	}, nil
}

// DialTrunk begins a trunk to a member. Beside those of the network, errors are what the member
// says if it takes none: a [RemoteError], or why it refuses all connections. Whoever gets the
// trunk calls its End.
func (t *Transport) DialTrunk(ctx context.Context, to member.ID, th TrunkHello) (*Trunk, error) {
	ms := t.members.Load()
	p := ms.peers[to]
	if p == nil {
		return nil, errNoMember
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	cfg := t.client()
	cfg.speaks.lowest = max(cfg.speaks.lowest, trunksSince)
	c, err := open(ctx, cfg, t.timing.greet, p.Addr, ms.hello(purposeTrunk, p.Member))
	if err != nil {
		return nil, err
	}
	stop := until(ctx, c)
	err = sayTrunk(&timedConn{c, 2 * t.timing.dead, t.timing.dead}, &th)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	trunk := newTrunk(p.ctx, p.Member, c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = c.Close()
		return nil, errClosed
	}
	t.all.Go(func() {
		defer t.standAs(c, p.String(), trunk.cancel)()
		_ = trunk.wait() // who has it knows why
	})
	return trunk, nil
}

// sayTrunk tells a member what a loop says of itself, and reads the answer, not a byte more: the
// trunk's own frames may follow it.
func sayTrunk(c net.Conn, th *TrunkHello) error {
	if err := newFrameWriter(c, smallBuf).frame(kindTrunk, th.encode()); err != nil {
		return err
	}
	whole := make([]byte, frameHead+frameTail) // of an answer that is not followed by the connection's end
	if _, err := io.ReadFull(c, whole); err != nil {
		return fmt.Errorf("the connection ended: %w", err)
	}
	return readDone(io.MultiReader(bytes.NewReader(whole), c), nil)
}
