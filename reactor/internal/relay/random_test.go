package relay

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/reactor/internal/trunk"
)

// modelLeader is what a leader knows of a trunk.
type modelLeader struct {
	channels map[uint32]*modelChannel
	attached bool
	resumes  bool
}

// modelChannel is what a leader knows of a client.
type modelChannel struct {
	session uint64
	taken   uint64 // bytes of the client's input
	replied uint64 // of them, those that are answered
	quota   int
	credit  int
	barred  bool // until the last of the effects
	ended   bool
	closed  bool
	half    bool
}

// take checks what a gateway says.
func (m *modelLeader) take(it trunk.Item, clients map[uint64]*modelClient) error {
	h := m.channels[it.Channel]
	switch it.Kind {
	case trunk.KindOpen, trunk.KindResume:
		if h != nil {
			return errors.New("a channel is opened again")
		}
		h = &modelChannel{quota: trunk.FirstCredit, credit: trunk.FirstCredit}
		m.channels[it.Channel] = h
		if it.Kind == trunk.KindOpen {
			o, err := trunk.ParseOpen(it.Data)
			h.session = o.Session
			return err
		}
		x, err := trunk.ParseResume(it.Data)
		h.session, h.taken, h.replied, h.barred = x.Session, x.Answered, x.Answered, x.Unanswered
		c := clients[x.Session]
		if !m.resumes || m.attached || c == nil || c.answered != x.Answered || c.partial != int(x.Partial) {
			return fmt.Errorf("%d is resumed at %d with %d: %+v", x.Session, x.Answered, x.Partial, *m)
		}
		return err
	case trunk.KindAttached:
		m.attached = true
		return nil
	case trunk.KindPing:
		return nil
	}
	if h == nil || h.closed {
		return errors.New("the channel is not open")
	}
	switch it.Kind {
	case trunk.KindInput:
		c := clients[h.session]
		h.quota -= len(it.Data)
		end := h.taken + uint64(len(it.Data))
		if h.half || h.barred || h.quota < 0 || end > uint64(len(c.sent)) || !bytes.Equal(it.Data, c.sent[h.taken:end]) {
			return fmt.Errorf("input at %d of %d bytes, with room for %d more: %+v", h.taken, len(c.sent), h.quota, *h)
		}
		h.taken = end
	case trunk.KindEffects:
		if !h.barred {
			return errors.New("effects that nobody waits for")
		}
		h.barred = it.Flags != trunk.Last
	case trunk.KindCredit:
		h.credit += int(it.Number)
	case trunk.KindHalfClose:
		if h.half {
			return errors.New("a second half-close")
		}
		h.half = it.Flags&trunk.Ahead == 0
	case trunk.KindClose:
		if h.closed = true; h.ended {
			delete(m.channels, it.Channel)
		}
	default:
		return errors.New("is not for a leader")
	}
	return nil
}

// modelClient is what is known of a client's session.
type modelClient struct {
	conn     *testConn
	sent     []byte
	answered uint64
	partial  int
}

// Whatever happens in whatever order, a gateway says only what a leader takes, and what it sends again is what the
// client has sent behind its last answer. When all have gone, nothing is left of them.
func TestAGatewaySaysWhatALeaderTakes(t *testing.T) {
	t.Parallel()
	all := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := newRig(t)
		g.most = []int{0, 20 << 10, 1 << 30}[r.IntN(3)]
		var sent []*modelClient
		known := make(map[uint64]*modelClient)
		var m *modelLeader
		term, taken, resumed := uint64(0), 0, 0
		check := func(what string) {
			g.run()
			for _, x := range sent {
				if id := x.conn.client.session; id != 0 {
					known[id] = x
				}
			}
			for ; taken < len(g.items); taken++ {
				it := g.items[taken]
				if m == nil {
					t.Fatalf("seed %d: %s without a trunk", seed, show(it))
				}
				if err := m.take(it, known); err != nil {
					t.Fatalf("seed %d: behind %s, %s: %v", seed, what, show(it), err)
				}
				if it.Kind == trunk.KindResume {
					resumed++
				}
			}
			for _, line := range g.said {
				if strings.HasPrefix(line, "the trunk fails") {
					t.Fatalf("seed %d: behind %s, %s", seed, what, line)
				}
			}
			g.said = nil
		}
		pick := func() *modelClient {
			sent = slices.DeleteFunc(sent, func(x *modelClient) bool { return x.conn.gone })
			if len(sent) == 0 {
				return nil
			}
			return sent[r.IntN(len(sent))]
		}
		channel := func() (uint32, *modelChannel) {
			if m == nil || len(m.channels) == 0 {
				return 0, nil
			}
			numbers := slices.Sorted(maps.Keys(m.channels))
			n := numbers[r.IntN(len(numbers))]
			if h := m.channels[n]; !h.ended {
				return n, h
			}
			return 0, nil
		}
		for range 400 {
			x, what := pick(), r.IntN(12)
			switch n, h := channel(); {
			case what == 0 && len(sent) < 20:
				c := g.client("c")
				sent = append(sent, &modelClient{conn: c})
			case what <= 3 && x != nil && x.conn.intake == Reading && x.conn.isForwarded():
				p := bytes.Repeat([]byte{byte(r.Uint32())}, 1+r.IntN(1<<r.IntN(16)))
				x.sent = append(x.sent, p...)
				x.conn.send(string(p))
			case what == 4 && x != nil && r.IntN(8) == 0:
				x.conn.halfClose()
			case what == 5 && x != nil && r.IntN(8) == 0:
				x.conn.leave()
			case what == 6 && x != nil:
				x.conn.slow, x.conn.owed = r.IntN(2) > 0, 0
				x.conn.settle()
			case what == 7 && m != nil && r.IntN(4) == 0:
				g.Disconnected(g.now, []error{errors.New("it has ended"), ErrNoContact, ErrNumberGone}[max(0, r.IntN(10)-7)])
				m = nil
			case what == 8 && m == nil:
				w := welcome(term, term)
				if r.IntN(5) == 0 {
					w.Version = 1
				}
				term++
				m = &modelLeader{channels: make(map[uint32]*modelChannel), resumes: w.Version > 1, attached: w.Version < 2}
				g.connect(w)
			case what == 9:
				g.now += time.Duration(r.IntN(int(time.Second)))
				g.Applied(uint64(r.IntN(int(term)+1)), nil, r.IntN(20) == 0)
			case h != nil && what == 10:
				more := 1 + r.IntN(trunk.FirstCredit)
				h.quota += more
				g.tell(credit(n, more))
			case h != nil && r.IntN(20) == 0:
				h.ended = true
				if h.closed {
					delete(m.channels, n)
				}
				g.tell(trunk.Item{Kind: trunk.KindEnd, Channel: n, Number: uint32(h.taken), Flags: uint8(r.IntN(2))})
			case h != nil && h.taken > 0:
				y := known[h.session]
				flags, size, more := uint8(trunk.More), 1+r.IntN(100), uint64(r.IntN(int(h.taken-h.replied)+1))
				if h.credit < size {
					continue
				}
				h.credit -= size
				h.replied += more
				if !h.closed {
					y.answered = h.replied
					y.partial += size
				}
				if more > 0 {
					flags, y.partial = 0, 0
				}
				g.tell(replies(n, int(h.replied), flags, string(bytes.Repeat([]byte{'r'}, size))))
			}
			check(fmt.Sprint("event ", what))
		}
		for x := pick(); x != nil; x = pick() {
			x.conn.leave()
			check("the end")
		}
		g.Disconnected(g.now, errors.New("the end"))
		if g.taken != 0 || len(g.clients) > 0 || len(g.resumes) > 0 || g.names.unused != len(g.names.all) {
			t.Fatalf("seed %d: %d bytes are kept, and %d clients", seed, g.taken, len(g.clients))
		}
		all += resumed
	}
	if all < 1000 {
		t.Errorf("%d sessions were resumed", all)
	}
}
