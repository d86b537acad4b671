package relay

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// leaderRig drives the leader's end of a trunk, and writes down what it says and is asked for. What clients send are
// commands, a line each.
type leaderRig struct {
	*Leader
	t      testing.TB
	taken  int
	said   []string
	served map[uint32]*servedClient // by channel
}

// servedClient is a client as the host has it.
type servedClient struct {
	channel *Channel
	input   []byte
	replies []byte // that were not sent
	credit  int    // bytes of them that the client takes
	resets  bool   // it is not answered
	waits   bool   // in a reserve
	replay  *Replay
}

func newLeaderRig(t testing.TB, version uint16) *leaderRig {
	r := &leaderRig{t: t, served: make(map[uint32]*servedClient)}
	r.Leader = NewLeader(r, r, testNumber)
	r.Speak(version)
	return r
}

func (r *leaderRig) note(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// Send implements Trunk.
func (r *leaderRig) Send(it *trunk.Item) {
	r.note("-> %s", show(*it))
}

// Room implements Trunk.
func (r *leaderRig) Room() int { return MaxOutput }

// NewChannel implements LeaderHost, as do the methods that follow.
func (r *leaderRig) NewChannel() *Channel { return new(Channel) }

func (r *leaderRig) TakeMemory(n int) bool {
	r.taken += n
	return true
}

func (r *leaderRig) GiveMemory(n int) { r.taken -= n }

// tell takes what the gateway says.
func (r *leaderRig) tell(it trunk.Item) {
	q, err := r.Item(&it)
	if err != nil {
		r.note("the trunk fails: %v", err)
		r.end()
		return
	}
	asks := [...]string{
		"", "open", "resume", "end absent sessions", "execute", "end input", "reconsider", "close", "send more", "end replay",
		"pong", "end all",
	}
	if q.Ask != NoRequest {
		s := asks[q.Ask]
		if q.Channel != nil {
			s += fmt.Sprint(" ", q.Channel.number)
		}
		if q.Data != nil {
			s += fmt.Sprintf(" %.40q", q.Data)
		}
		r.note("%s", s)
	}
	switch q.Ask {
	case OpenSession, ResumeSession:
		r.served[q.Channel.number] = &servedClient{
			channel: q.Channel, replay: q.Opening.Replay, credit: trunk.FirstCredit,
		}
		r.Resumed(q.Opening.Size)
	case Execute:
		c := r.served[q.Channel.number]
		c.input = append(c.input, q.Data...)
	case CloseSession:
		r.close(it.Channel)
	case SendMore:
		r.served[it.Channel].credit += int(q.Number)
		r.flush(it.Channel)
	case EndAll:
		r.StopAll(false)
	}
}

// end is the end of the trunk.
func (r *leaderRig) end() {
	r.Disconnected()
	r.StopAll(r.ResumesSessions())
	for _, n := range slices.Sorted(maps.Keys(r.served)) {
		if r.served[n].channel.Parts() {
			r.note("%d parts", n)
		}
		r.close(n)
	}
}

// close ends a session.
func (r *leaderRig) close(n uint32) {
	c := r.served[n]
	if c == nil {
		return
	}
	delete(r.served, n)
	r.End(c.channel, c.resets, false)
	if r.SessionEnded(); r.HasLeft() {
		r.note("the gateway has left")
	}
}

// execute answers the next line that a client has sent; with more, that was a part of the answer.
func (r *leaderRig) execute(n uint32, reply string, more bool) {
	c := r.served[n]
	i := bytes.IndexByte(c.input, '\n') + 1
	cmd := codec.Command{Op: codec.OpStats}
	switch words := strings.Fields(string(c.input[:i])); words[0] {
	case "use":
		cmd = codec.Command{Op: codec.OpUse, Tube: []byte(words[1])}
	case "watch":
		cmd = codec.Command{Op: codec.OpWatch, Tube: []byte(words[1])}
	}
	c.input = c.input[i:]
	end, _ := c.channel.CommandEnds(cmd.Op, len(c.input))
	outcome := engine.Done
	if c.waits = more; more {
		outcome = engine.Wait
	}
	if c.replay != nil {
		effects, fit := c.replay.Decoded(i, true)
		r.note("the command that ends at %d has %d effects, %v", end, len(effects), fit)
	}
	r.Replied(c.channel, &cmd, []byte(reply), outcome)
	c.replies = append(c.replies, reply...)
	r.GiveCredit(c.channel, len(c.input))
	r.flush(n)
}

// goOn is the rest of an answer.
func (r *leaderRig) goOn(n uint32, reply string) {
	c := r.served[n]
	c.waits = false
	c.channel.RepliedMore([]byte(reply), engine.Done)
	c.replies = append(c.replies, reply...)
	r.flush(n)
}

// flush sends the first of the replies of a client, as many as it takes.
func (r *leaderRig) flush(n uint32) {
	c := r.served[n]
	for c.credit > 0 && len(c.replies) > 0 {
		k := min(c.credit, trunk.MaxData, len(c.replies))
		r.Reply(c.channel, c.replies[:k], k == len(c.replies), c.waits)
		c.replies = c.replies[k:]
		c.credit -= k
	}
}

// The scripts in testdata say what happens, a line each, and behind it, indented, what the leader says and is asked
// for.
func TestLeadersDoWhatTheScriptsSay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/leader/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			var r *leaderRig
			playScript(t, name, func(line string) {
				if version, ok := strings.CutPrefix(line, "version "); ok {
					n, err := strconv.Atoi(version)
					if err != nil {
						t.Fatal(err)
					}
					r = newLeaderRig(t, uint16(n))
					r.Welcome(trunk.Welcome{Extensions: true, MaxJobSize: maxJob, Term: 1})
					return
				}
				r.play(line)
			}, func() string {
				s := strings.Join(r.said, "\n")
				r.said = nil
				return s
			})
		})
	}
}

// play does what a line of a script says: a word, a channel, and more.
func (r *leaderRig) play(line string) {
	r.t.Helper()
	w := append(strings.Fields(line), "", "", "")
	channel := uint32(0)
	if n, err := strconv.Atoi(w[1]); err == nil {
		channel = uint32(n)
	}
	number := func(i int) uint64 {
		n, err := strconv.Atoi(w[i])
		if err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		return uint64(n)
	}
	id := func(i int) uint64 { return testNumber<<(64-journal.NumberBits) | number(i) }
	switch w[0] {
	case "open": // channel session
		o := trunk.Open{Session: id(2), Network: trunk.NetworkUnix}
		r.tell(trunk.Item{Kind: trunk.KindOpen, Channel: channel, Data: o.Append(nil)})
	case "resume": // channel session answered [unanswered]
		x := trunk.Resume{
			Open: trunk.Open{Session: id(2), Network: trunk.NetworkUnix}, Answered: number(3), Unanswered: w[4] != "",
			Mode: codec.FIFO, Used: "default", Watched: []string{"default"},
		}
		r.tell(trunk.Item{Kind: trunk.KindResume, Channel: channel, Data: x.Append(nil)})
	case "effect": // channel offset, of a command that has reserved a job; all that come
		e := journal.Effect{Offset: number(2), ID: 1, Kind: journal.EffectHold}
		r.tell(trunk.Item{Kind: trunk.KindEffects, Channel: channel, Flags: trunk.Last, Data: trunk.AppendEffect(nil, &e)})
	case "attached":
		r.tell(trunk.Item{Kind: trunk.KindAttached})
	case "sends":
		r.tell(trunk.Item{Kind: trunk.KindInput, Channel: channel, Data: []byte(plain(w[2]))})
	case "fills": // with a line of so many bytes
		line := append(bytes.Repeat([]byte{'x'}, int(number(2))-1), '\n')
		r.tell(trunk.Item{Kind: trunk.KindInput, Channel: channel, Data: line})
	case "credit":
		r.tell(trunk.Item{Kind: trunk.KindCredit, Channel: channel, Number: uint32(number(2))})
	case "half-close":
		flags := map[string]uint8{"": 0, "ahead": trunk.Ahead, "leaves": trunk.Leaves}[w[2]]
		r.tell(trunk.Item{Kind: trunk.KindHalfClose, Channel: channel, Flags: flags})
	case "close":
		r.tell(trunk.Item{Kind: trunk.KindClose, Channel: channel})
	case "leave":
		r.tell(trunk.Item{Kind: trunk.KindLeave})
		for _, n := range slices.Sorted(maps.Keys(r.served)) {
			r.close(n)
		}
	case "ping":
		r.tell(trunk.Item{Kind: trunk.KindPing, Number: channel})
	case "proven":
		r.Pong(channel, true)
	case "answers":
		r.execute(channel, plain(w[2]), false)
	case "begins": // to answer
		r.execute(channel, plain(w[2]), true)
	case "goes-on":
		r.goOn(channel, plain(w[2]))
	case "answers-long": // with so many bytes
		r.execute(channel, strings.Repeat("x", int(number(2))), false)
	case "ends":
		r.close(channel)
	case "resets":
		r.served[channel].resets = true
		r.close(channel)
	case "resumed":
		r.served[channel].channel.Resume()
	case "retire":
		r.Retire()
	case "trunk-ends":
		r.end()
	default:
		r.t.Fatalf("%s: what is that?", line)
	}
}
