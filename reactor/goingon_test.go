package reactor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/reactor/internal/trunk"
)

// facing are a gateway and its leader, whose trunks end where a test says.
type facing struct {
	*cluster
	gateway  *testServer
	number   uint32
	late     time.Duration // see newFacing
	applying chan func()   // what the gateway is to apply

	mu     sync.Mutex
	leader *testServer // nil while there is none; guarded by mu, as what follows
	term   uint64
	cuts   []*cutTrunk   // the next trunks; those behind are whole
	told   int           // effects of the tape that the gateway was told of
	before chan struct{} // closed when the leader has taken all of its trunk before; nil if it has had none
}

// newFacing starts both. The gateway applies what was executed that late, at most.
func newFacing(t testing.TB, late time.Duration) *facing {
	t.Helper()
	k := &facing{cluster: newCluster(t), late: late, applying: make(chan func(), 1000)}
	k.stopped = true // whatever takes long on a busy machine, nobody is given up
	var applier sync.WaitGroup
	applier.Go(func() {
		for apply := range k.applying {
			apply()
		}
	})
	t.Cleanup(func() {
		close(k.applying)
		applier.Wait()
	})
	k.elect()
	numbers, _, err := k.leader.engine.GiveNumbers(2, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	k.number = numbers[0]
	k.gateway = serveConfig(t, "tcp", hooks{trunks: trunk.ResumesSince, boot: func() time.Duration { return 0 }}, nil, func(c *Config) {
		c.Engine, c.Now, c.Extensions = nil, k.clock, true
		c.Log = slog.New(slog.DiscardHandler)
	})
	k.gateway.Forward(k.dial)
	return k
}

// elect has another leader lead, with all that is on record.
func (k *facing) elect() {
	k.t.Helper()
	k.mu.Lock()
	old := k.leader
	k.leader, k.before = nil, nil
	k.mu.Unlock()
	if old != nil {
		old.Abort()
	}
	e, now := k.engine()
	next := serveConfig(k.t, "unix", hooks{trunks: trunk.ResumesSince}, nil, func(c *Config) {
		c.Engine, c.Journal, c.Now, c.Extensions = e, k.tape, now, true
	})
	next.engine = e
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leader, k.term = next, k.term+1
}

var errNobodyLeads = errors.New("nobody leads")

// underWay reports whether the leader may still execute what has come over its trunk before. With mu held.
func (k *facing) underWay() bool {
	select {
	case <-k.before:
	default:
		if k.before != nil {
			return true
		}
	}
	return k.leader.engine.NumberPresent(k.number)
}

// dial lays the next trunk, as members do: when what was under way has ended.
func (k *facing) dial(ctx context.Context, _ int) (TrunkConn, error) {
	for ; ; time.Sleep(time.Millisecond) {
		k.mu.Lock()
		if ctx.Err() != nil || k.leader == nil || !k.underWay() {
			break
		}
		k.mu.Unlock()
	}
	defer k.mu.Unlock()
	if ctx.Err() != nil || k.leader == nil {
		return TrunkConn{}, errors.Join(errNobodyLeads, ctx.Err())
	}
	connect := socketPair
	if len(k.cuts) > 0 {
		connect = k.cuts[0].between
		k.cuts = k.cuts[1:]
	}
	here, there, err := connect()
	if err != nil {
		return TrunkConn{}, err
	}
	j := k.tape
	j.mu.Lock()
	effects, fence := slices.Clone(j.effects[k.told:]), uint64(len(j.entries))
	j.mu.Unlock()
	k.told += len(effects)
	ended := make(chan struct{})
	k.before = ended
	if err := k.leader.AcceptTrunk(TrunkConn{
		Conn: there, Peer: "gateway", Number: k.number, Version: trunk.ResumesSince, Term: k.term, Fence: fence,
		Ended: func(error) { close(ended) },
	}); err != nil {
		here.Close()
		return TrunkConn{}, err
	}
	k.applying <- func() {
		time.Sleep(rand.N(k.late + 1))
		k.gateway.Applied(fence, effects)
	}
	return TrunkConn{Conn: here, Peer: "leader", Number: k.number}, nil
}

// part ends the trunk that there is. The next ones are cut there.
func (k *facing) part(cuts ...*cutTrunk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cuts = cuts
	k.gateway.onLoops(func(l *loop) { l.endTrunks(l.server.now(), errNobodyLeads) })
}

// exchange is what a client sends, and what it gets before it sends more. %1 is the id of the first job that it has put,
// and so on.
type exchange struct{ sends, gets string }

// conversation is what a client of the gateway sends and gets. Tubes are its own.
type conversation struct {
	name   string
	parts  []exchange
	closes bool // behind the last of what it sends it half-closes
}

func body(n int, seed byte) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + (seed+byte(i*7)+byte(i>>8))%26
	}
	return string(b)
}

var (
	largeBody = body(40_000, 1)
	inserts   = fmt.Sprintf("put 1 0 100 5\r\nfirst\r\nput 2 0 100 6\r\nsecond\r\nput 3 0 100 %d\r\n%s\r\n", len(largeBody), largeBody)
	begins    = exchange{"use %t\r\nwatch %t\r\nignore default\r\n", "USING %t\r\nWATCHING 2\r\nWATCHING 1\r\n"}
	threePuts = exchange{inserts, "INSERTED %1\r\nINSERTED %2\r\nINSERTED %3\r\n"}
)

// conversations are exact wherever a trunk ends: before each command that the log tells nothing of, the client waits
// for its replies.
var conversations = []conversation{
	{name: "a worker and producer", parts: []exchange{
		begins,
		{"put 1 0 100 5\r\nfirst\r\n", "INSERTED %1\r\n"},
		{"put 2 0 100 6\r\nsecond\r\n", "INSERTED %2\r\n"},
		{"reserve\r\n", "RESERVED %1 5\r\nfirst\r\n"},
		{"touch %1\r\n", "TOUCHED\r\n"},
		{"release %1 9 0\r\n", "RELEASED\r\n"},
		{"reserve-with-timeout 10\r\n", "RESERVED %2 6\r\nsecond\r\n"},
		{"bury %2 3\r\n", "BURIED\r\n"},
		{"reserve-with-timeout 0\r\n", "RESERVED %1 5\r\nfirst\r\n"},
		{"reserve-with-timeout 0\r\n", "TIMED_OUT\r\n"},
		{"kick-job %2\r\n", "KICKED\r\n"},
		{"delete %1\r\n", "DELETED\r\n"},
		{"reserve-job %2\r\n", "RESERVED %2 6\r\nsecond\r\n"},
		{"list-tube-used\r\n", "USING %t\r\n"},
		{"delete %2\r\n", "DELETED\r\n"},
		{"delete %2\r\n", "NOT_FOUND\r\n"},
		{"bogus\r\n", "UNKNOWN_COMMAND\r\n"},
		{"quit\r\n", ""},
	}},
	{name: "a body in parts", parts: []exchange{
		begins,
		{fmt.Sprintf("put 1 0 100 %d\r\n", len(largeBody)), ""},
		{largeBody[:1], ""},
		{largeBody[1:20_000], ""},
		{largeBody[20_000:] + "\r", ""},
		{"\n", "INSERTED %1\r\n"},
		{"rese", ""},
		{"rve\r\n", "RESERVED %1 40000\r\n" + largeBody + "\r\n"},
		{"delete %1\r\n", "DELETED\r\n"},
		{"quit\r\n", ""},
	}},
	{name: "a pipeline", closes: true, parts: []exchange{
		begins, threePuts,
		{"reserve\r\nreserve\r\nreserve\r\n", "RESERVED %1 5\r\nfirst\r\nRESERVED %2 6\r\nsecond\r\nRESERVED %3 40000\r\n" + largeBody + "\r\n"},
		{
			"touch %3\r\ndelete %1\r\nuse %t\r\nrelease %2 7 0\r\nbogus\r\nbury %3 1\r\nwatch a%t\r\nignore a%t\r\nput 5 0 100 1\r\nx\r\nkick-job %3\r\nreserve\r\n",
			"TOUCHED\r\nDELETED\r\nUSING %t\r\nRELEASED\r\nUNKNOWN_COMMAND\r\nBURIED\r\nWATCHING 2\r\nWATCHING 1\r\nINSERTED %4\r\nKICKED\r\nRESERVED %3 40000\r\n" + largeBody + "\r\n",
		},
		{"delete %2\r\ndelete %3\r\ndelete %4\r\n", "DELETED\r\nDELETED\r\nDELETED\r\n"},
	}},
	{name: "a batch", parts: []exchange{
		begins, threePuts,
		{"reserve-batch 5 10\r\n", "RESERVED_BATCH 3\r\nRESERVED %1 5\r\nfirst\r\nRESERVED %2 6\r\nsecond\r\nRESERVED %3 40000\r\n" + largeBody + "\r\n"},
		{"delete %1\r\ndelete %2\r\ndelete %3\r\n", "DELETED\r\nDELETED\r\nDELETED\r\n"},
		{"quit\r\n", ""},
	}},
	{name: "a half-close", closes: true, parts: []exchange{
		begins,
		{"put 1 0 100 5\r\nfirst\r\nreserve\r\n", "INSERTED %1\r\nRESERVED %1 5\r\nfirst\r\n"},
		{"delete %1\r\nreserve\r\n", "DELETED\r\nTIMED_OUT\r\n"},
	}},
}

// talker is the client of a conversation.
type talker struct {
	net.Conn
	r    *bufio.Reader
	tube string
	ids  map[byte]string
}

// fill is a text with what stands for names and ids. rest is what follows an id that is not known.
func (c *talker) fill(s string) (known string, id byte, rest string) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			b.WriteString(s)
			return b.String(), 0, ""
		}
		b.WriteString(s[:i])
		at := s[i+1]
		s = s[i+2:]
		switch {
		case at == 't':
			b.WriteString(c.tube)
		case c.ids[at] == "":
			return b.String(), at, s
		default:
			b.WriteString(c.ids[at])
		}
	}
}

func (c *talker) get(want string) error {
	for want != "" {
		known, id, rest := c.fill(want)
		got := make([]byte, len(known))
		n, err := io.ReadFull(c.r, got)
		switch {
		case string(got[:n]) != known[:n]:
			return fmt.Errorf("got %.200q, want %.200q", got[:n], known)
		case err != nil:
			return fmt.Errorf("behind %d bytes of %d, %.200q: %w", n, len(known), known, err)
		}
		if want = rest; id != 0 {
			line, err := c.r.ReadString('\r')
			if err != nil {
				return err
			}
			if _, err := strconv.ParseUint(line[:len(line)-1], 10, 64); err != nil {
				return err
			}
			c.ids[id] = line[:len(line)-1]
			want = strings.TrimPrefix(rest, "\r")
		}
	}
	return nil
}

// hold has a client say all, and returns how what it got differs from what it should have.
func (k *facing) hold(v *conversation, tube string) error { return k.holdWith(v, tube, func() {}) }

// holdWith is hold, and does something behind each part.
func (k *facing) holdWith(v *conversation, tube string, then func()) error {
	nc, err := net.Dial("tcp", k.gateway.addr.String())
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(testTimeout))
	c := &talker{Conn: nc, r: bufio.NewReader(nc), tube: tube, ids: make(map[byte]string)}
	for i, x := range v.parts {
		sends, _, _ := c.fill(x.sends)
		if _, err := io.WriteString(c, sends); err != nil {
			return fmt.Errorf("sending part %d: %w", i, err)
		}
		if v.closes && i == len(v.parts)-1 {
			_ = nc.(*net.TCPConn).CloseWrite()
		}
		if err := c.get(x.gets); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		then()
	}
	if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
		return fmt.Errorf("at the end there are %d bytes, %w", len(rest), err)
	}
	return nil
}

// settled makes sure that nothing is left of the clients, and that no record contradicts another.
func (k *facing) settled() {
	k.t.Helper()
	k.gateway.until("all clients are gone", func() bool { return k.gateway.sum().Connections == 0 })
	k.mu.Lock()
	leader := k.leader
	k.mu.Unlock()
	leader.until("their jobs are free", func() bool { return leader.engine.Snapshot(leader.cfg.Now()).Reserved == 0 })
	k.engine() // which counts contradictions
}

// Wherever a trunk is cut, clients get the replies that they get without.
func TestClientsGetAllTheirRepliesWhereverATrunkIsCut(t *testing.T) {
	t.Parallel()
	for _, v := range conversations {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			k := newFacing(t, 0)
			if err := k.hold(&v, "whole"); err != nil {
				t.Fatalf("without a cut: %v", err)
			}
			k.cutEverywhere(&v, some(30))
			k.settled()
		})
	}
}

// cutEverywhere holds a conversation with a trunk that is cut at a place, for about so many places in each direction.
func (k *facing) cutEverywhere(v *conversation, places int) {
	k.t.Helper()
	const whole = 1 << 30
	for _, toLeader := range []bool{true, false} {
		for at, step, most := 0, 1, 0; ; at += step {
			c := &cutTrunk{toLeader: whole, toGateway: whole}
			if toLeader {
				c.toLeader = at
			} else {
				c.toGateway = at
			}
			k.part(c)
			if err := k.hold(v, fmt.Sprintf("t%t-%d", toLeader, at)); err != nil {
				k.t.Fatalf("cut at %d to the leader, %d to the gateway: %v", c.toLeader, c.toGateway, err)
			}
			if !c.cut.Load() {
				break
			}
			if most++; most%places == 0 {
				step *= 2
			}
		}
	}
}

// Trunks end at random, leaders change, and this member applies late what was executed: all clients get exactly their replies.
func TestClientsGetAllTheirRepliesWhateverBecomesOfLeaders(t *testing.T) {
	t.Parallel()
	k := newFacing(t, 5*time.Millisecond)
	var over atomic.Bool
	var talk sync.WaitGroup
	var held atomic.Int64
	for i := range 10 {
		talk.Go(func() {
			for n := 0; !over.Load(); n++ {
				v := &conversations[rand.IntN(len(conversations))]
				if err := k.hold(v, fmt.Sprintf("t%d-%d", i, n)); err != nil {
					t.Errorf("%s: %v", v.name, err)
					return
				}
				held.Add(1)
			}
		})
	}
	for i := range some(300) {
		time.Sleep(rand.N(20 * time.Millisecond))
		if rand.IntN(5) == 0 {
			k.elect()
			continue
		}
		var cuts []*cutTrunk
		for range rand.IntN(4) {
			c := &cutTrunk{toLeader: 1 << 30, toGateway: rand.IntN(1 << rand.IntN(20))}
			if rand.IntN(2) > 0 {
				c.toLeader, c.toGateway = c.toGateway, c.toLeader
			}
			cuts = append(cuts, c)
		}
		k.part(cuts...)
		if t.Failed() {
			t.Logf("behind %d changes", i)
			break
		}
	}
	k.gateway.until("some conversations are at an end", func() bool { return held.Load() >= 10 || t.Failed() })
	over.Store(true)
	talk.Wait()
	k.settled()
}
