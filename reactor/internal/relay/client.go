package relay

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

const (
	// MaxWindow is how far a window is raised for a client that takes replies faster than they come.
	MaxWindow = 256 << 10

	// Never is the time of what does not happen.
	Never = time.Duration(math.MaxInt64)

	// unknownPartial is the number of bytes of the next answer that a client has got where that is not known, or where
	// the client is refused.
	unknownPartial = math.MaxUint32
)

// Intake is whether more may come from a client.
type Intake uint8

// What may come.
const (
	Reading Intake = iota // the client may send more
	Unread                // it sends no more, and not all that it has sent was read
	Ended                 // all that it has sent was read
)

// Conn is the connection of a client that is forwarded, as the gateway's host has it. None of its methods calls the
// gateway; what has to be done for the connection besides is done behind a Wish, or behind the event that has called
// them.
type Conn interface {
	// Open says who the client is.
	Open(session uint64) trunk.Open
	// Intake is whether more may come from the client.
	Intake() Intake
	// Input is what the client has sent and the gateway has not taken. It is valid until the connection changes.
	Input() []byte
	// TakeInput drops the first n bytes of Input.
	TakeInput(n int)
	// ReturnInput puts a copy of what was taken before Input.
	ReturnInput(pieces [][]byte)
	// Owed is how many bytes of replies the client has not taken.
	Owed() int
	// AwaitLeader resets the connection at a time of the loop's clock, unless LeaderHeard comes before.
	AwaitLeader(now, until time.Duration)
	// LeaderHeard is called when a leader has heard of the client, whose limits are the leader's to set from then on.
	LeaderHeard()
	// Drain ends the connection when the client has taken what it is owed. It may have sent more than was executed.
	Drain(more bool)
	// Reset ends the connection so that the client knows that it was not answered.
	Reset()
	// GaveBack is called when the leader has given back what the client had reserved.
	GaveBack()
}

// Client is what a gateway knows of a client whose bytes it forwards to the leader, and back.
type Client struct {
	conn    Conn          // nil when the connection has ended
	grant   *engine.Grant // what the client may do; nil for everything
	session uint64        // its id; 0 until a leader hears of the client
	wants   *wants        // what the client has asked for; nil for what all begin with
	replay  *replay       // what of the input may have been executed by an earlier leader; nil for nothing
	input   *replayInput  // what was sent on this trunk and is not answered; nil for nothing
	next    *Client       // in a line

	waitsForTrunk  time.Duration // when the client began to wait for a trunk; while no leader has heard of it
	waitsForAnswer time.Duration // when it began to wait for the next answer

	sent        uint64 // bytes of the client's that were sent to the leader
	answered    uint64 // of them, those that are answered by what has come for the client
	unresumable uint64 // while fewer are answered, some of the others cannot be sent again

	channel uint32 // 0 while there is no trunk on which the leader has heard of it, and when the leader has ended it
	partial uint32 // bytes of the next answer that the client has got
	quota   int32  // how many bytes of input more the leader takes now
	window  int32  // how many bytes of replies there may be here that the client has not taken
	credit  int32  // how many more the leader may send now
	at      int32  // in Gateway.clients
	state   state
	queued  bool // in a line
}

// replay is the beginning of the input that waits, which was sent to an earlier leader.
type replay struct {
	unanswered int              // how many bytes of it were sent
	effects    []journal.Effect // of commands in it that were executed, by offset, as far as the log is known
	complete   bool             // the log tells of nothing else: this server led, and has sent nothing since
}

// Session is a session of a client's that goes on elsewhere.
type Session struct {
	ID        uint64 // 0 if no engine has heard of the client
	Grant     *engine.Grant
	Interests engine.Interests
	// Age is for how long the client has waited for the next answer.
	Age time.Duration
	// Answered is how much of its input is answered, and Unanswered how many bytes behind that may have been executed.
	Answered   uint64
	Unanswered int
	// Effects are those of commands that are not answered, by offset, and Partial is how many bytes of the next answer the
	// client has got.
	Effects []journal.Effect
	Partial uint32
}

// add makes a client of a connection.
func (g *Gateway) add(c Conn, grant *engine.Grant, begin state) *Client {
	f := &Client{
		conn: c, grant: grant, at: int32(len(g.clients)), state: begin,
		quota: trunk.FirstCredit, window: trunk.FirstCredit, credit: trunk.FirstCredit,
	}
	g.clients = append(g.clients, f)
	return f
}

// Forward begins to forward a new client.
func (g *Gateway) Forward(now time.Duration, c Conn, grant *engine.Grant) *Client {
	f := g.add(c, grant, unannounced)
	g.announce(f, now)
	return f
}

// Resume begins to forward a client whose session this server had, and has put on record. The log tells of nothing but
// x.Effects.
func (g *Gateway) Resume(now time.Duration, c Conn, x *Session) *Client {
	f := g.add(c, x.Grant, detached)
	f.session, f.sent, f.answered, f.waitsForAnswer = x.ID, x.Answered, x.Answered, now-x.Age
	f.replay = &replay{unanswered: x.Unanswered, effects: x.Effects, complete: true}
	g.setInterests(f, x.Interests)
	g.resumes[f.session] = f
	return f
}

// announce opens a channel for a new client, now or when the trunk is ready.
func (g *Gateway) announce(f *Client, now time.Duration) {
	f.waitsForTrunk = now
	if g.takes(0) {
		g.open(f)
		return
	}
	g.AskTurn(f)
	f.conn.AwaitLeader(now, now+LeaderPatience)
}

// reopen gives a client that has sent nothing a new session.
func (g *Gateway) reopen(f *Client, now time.Duration) {
	f.move(unannounced)
	delete(g.resumes, f.session)
	f.session = 0
	g.announce(f, now)
}

// open tells the leader of a new client.
func (g *Gateway) open(f *Client) {
	grant, ok := g.assign(f)
	if !ok {
		return
	}
	if len(g.resumes) == 0 {
		g.inContact(g.host.BootTime()) // nobody has anything to lose yet
	}
	g.sessions++
	f.session = uint64(g.number)<<(64-journal.NumberBits) | g.sessions
	g.resumes[f.session] = f
	o := f.conn.Open(f.session)
	k := &g.link
	k.data = o.Append(k.data[:0])
	g.say(f, trunk.KindOpen, grant, k.data)
	f.move(serving)
	f.conn.LeaderHeard()
}

// AwaitsLeader returns the time at which a client is given up of whom no leader has heard yet; ok is false for others.
func (f *Client) AwaitsLeader() (until time.Duration, ok bool) {
	return f.waitsForTrunk + LeaderPatience, f.state == unannounced
}

// Conn is the client's connection.
func (f *Client) Conn() Conn { return f.conn }

// Input takes what the client has sent. If it reports false, nothing was taken: the host keeps it behind the
// connection's other input, and calls AskTurn.
func (g *Gateway) Input(f *Client, now time.Duration, p []byte) (taken bool) {
	if f.state == halfClosed {
		return true // the server is shut down, and has read the client for the last time
	}
	waiting := f.conn.Input()
	if !f.hasAsked(waiting) {
		f.waitsForAnswer = now
	}
	if len(waiting) > 0 || len(p) > min(int(f.quota), trunk.MaxData) || !f.state.takesInput() || !g.takes(len(p)) {
		return false
	}
	g.send(f, p)
	return true
}

// hasAsked reports whether the client has sent a whole line that has no answer, with the input that waits. Before
// that it waits for none.
func (f *Client) hasAsked(waiting []byte) bool {
	switch n := f.sent - f.answered + uint64(len(waiting)); {
	case n == 0:
		return false
	case n > codec.MaxLine || f.input == nil && f.sent > f.answered:
		return true
	}
	return f.input != nil && hasLine(f.input.bytes()) || hasLine(waiting)
}

func hasLine(b []byte) bool { return bytes.IndexByte(b, '\n') >= 0 }

// age is for how long the client has waited for what comes next from a leader.
func (f *Client) age(now time.Duration) time.Duration {
	if !f.hasAsked(f.conn.Input()) {
		return 0
	}
	return max(0, now-f.waitsForAnswer)
}

// waitsSince is when the client began to wait for what comes next from a leader. Who waits for nothing is last.
func (f *Client) waitsSince() time.Duration {
	switch {
	case f.session == 0:
		return f.waitsForTrunk
	case f.conn != nil && len(f.conn.Input()) > 0:
		return f.waitsForAnswer
	}
	return Never
}

func (g *Gateway) send(f *Client, p []byte) {
	f.quota -= int32(len(p))
	f.sent += uint64(len(p))
	if f.replay != nil {
		f.replay.complete = false
		f.endReplay()
	}
	g.keep(f, p)
	g.say(f, trunk.KindInput, 0, p)
}

// say sends an item of the client's channel.
func (g *Gateway) say(f *Client, kind trunk.Kind, number uint32, data []byte) {
	g.link.send(trunk.Item{Kind: kind, Channel: f.channel, Number: number, Data: data})
}

// AskTurn puts the client in line for the trunk, if there is something to say to the leader.
func (g *Gateway) AskTurn(f *Client) {
	if g.IsReady() && !f.queued && g.hasMore(f) {
		g.link.line.push(f)
	}
}

// hasMore reports whether there is something to say to the leader that only has to wait for the trunk.
func (g *Gateway) hasMore(f *Client) bool {
	switch f.state {
	case unannounced, detached:
		return true
	case serving, lastRead, ending:
	default:
		return false
	}
	intake := f.conn.Intake()
	if len(f.conn.Input()) > 0 {
		return f.quota > 0 || f.endsEarly(intake)
	}
	return intake != Reading || g.finishes
}

// endsEarly reports whether the leader has to know that the client sends no more before it takes the rest: until then a
// reserve may wait for ever.
func (f *Client) endsEarly(intake Intake) bool { return intake != Reading && f.state != ending }

// goOn says to the leader what is next: what a client sends comes in pieces, in turn with those of others.
func (g *Gateway) goOn(f *Client, now time.Duration) Wish {
	waiting, intake := f.conn.Input(), f.conn.Intake()
	n := min(len(waiting), int(f.quota), trunk.MaxData)
	switch {
	case f.state == unannounced:
		g.open(f)
	case f.state == detached:
		g.resume(f, now)
	case n > 0:
		if f.replay != nil {
			f.replay.unanswered = max(0, f.replay.unanswered-n)
		}
		g.send(f, waiting[:n])
		f.conn.TakeInput(n)
	case len(waiting) > 0:
		f.move(ending)
		g.halfClose(f, trunk.Ahead)
	case intake == Unread:
		return Wish{Do: Read, Client: f}
	case intake == Reading && f.state == serving:
		f.move(lastRead)
		return Wish{Do: Read, Client: f}
	case intake == Reading:
		f.move(halfClosed)
		g.halfClose(f, trunk.Leaves)
	default:
		f.move(halfClosed)
		g.halfClose(f, 0)
	}
	g.AskTurn(f)
	return Wish{Do: Settle, Client: f}
}

// halfClose tells the leader that the client sends no more, or is not read any more.
func (g *Gateway) halfClose(f *Client, flags uint8) {
	g.link.send(trunk.Item{Kind: trunk.KindHalfClose, Flags: flags, Channel: f.channel})
}

// HalfClose says that the client sends no more.
func (g *Gateway) HalfClose(f *Client) {
	if f.channel != 0 || !f.isAnswered() {
		g.AskTurn(f)
		return
	}
	f.move(over) // whether there is a leader or not
	f.conn.Drain(false)
}

// takeQuota lets the client send so many bytes more.
func (g *Gateway) takeQuota(f *Client, n uint32) error {
	if int64(f.quota)+int64(n) > trunk.MaxCredit {
		return fmt.Errorf("credit for %d bytes of input on channel %d", int64(f.quota)+int64(n), f.channel)
	}
	f.quota += int32(n)
	g.AskTurn(f)
	return nil
}

// deliver takes replies for the client.
func (g *Gateway) deliver(f *Client, now time.Duration, it *trunk.Item) (w Wish, err error) {
	answered := uint64(it.Number - uint32(f.answered))
	switch {
	case len(it.Data) > int(f.credit):
		return w, fmt.Errorf("%d bytes of replies on channel %d, with credit for %d", len(it.Data), it.Channel, f.credit)
	case answered > f.sent-f.answered:
		return w, fmt.Errorf("an answer to %d bytes more of channel %d, of %d that were sent",
			answered, it.Channel, f.sent-f.answered)
	}
	f.credit -= int32(len(it.Data))
	if f.conn == nil {
		f.answered += answered
		return w, nil
	}
	g.answer(f, now, answered, it)
	if f.state == closed {
		return w, nil
	}
	return Wish{Do: Write, Client: f, Data: it.Data}, nil
}

// answer notes how much is answered by replies, and what the client has got of another answer.
func (g *Gateway) answer(f *Client, now time.Duration, answered uint64, it *trunk.Item) {
	if len(g.link.states) > 0 {
		g.settleStates(f)
	}
	more := it.Flags&trunk.More != 0
	if answered == 0 {
		// Without the flag it answers nothing: it tells the client that it is refused, who has heard the end then.
		if n := uint64(f.partial) + uint64(len(it.Data)); more && n < unknownPartial {
			f.partial = uint32(n)
		} else {
			f.partial = unknownPartial
		}
		return
	}
	f.answered += answered
	g.dropInput(f, int(f.sent-f.answered))
	if f.replay != nil {
		f.dropEffects()
	}
	f.waitsForAnswer = now
	if f.partial = 0; more {
		// A part of the next answer follows the end of the last one, and only the leader knows where.
		f.partial = unknownPartial
	}
}

// GiveCredit lets the leader send as much more as the client has taken, once that is half of what there may be here.
// The host calls it when it has written, for a client that is forwarded.
func (g *Gateway) GiveCredit(f *Client) {
	if f.channel == 0 {
		return
	}
	owed := int32(f.conn.Owed())
	n := f.window - f.credit - owed
	if n < f.window/2 {
		return
	}
	if f.credit == 0 && owed == 0 {
		if more := min(f.window, MaxWindow-f.window); g.host.TakeMemory(int(more)) {
			f.window += more
			n += more
		}
	}
	f.credit += n
	g.say(f, trunk.KindCredit, uint32(n), nil)
}

// Close says that the client has gone, or gets nothing more than what it is owed. It reports whether the leader has
// to give back what the client has reserved: then GaveBack follows.
func (g *Gateway) Close(f *Client) (waits bool) {
	if f.channel == 0 {
		if f.state != over {
			f.move(over)
		}
		return false
	}
	f.move(closed)
	g.say(f, trunk.KindClose, 0, nil)
	return true
}

// Forget says that the client's connection has ended, behind Close.
func (g *Gateway) Forget(f *Client) {
	g.host.GiveMemory(int(f.window - trunk.FirstCredit))
	g.dropInput(f, 0)
	g.dropWants(f)
	if len(g.link.states) > 0 {
		g.endStates(f, func(*clientState) {}) // the replies do not reach it
	}
	last := len(g.clients) - 1
	g.clients[f.at] = g.clients[last]
	g.clients[f.at].at = f.at
	g.clients[last] = nil
	g.clients = g.clients[:last]
	delete(g.resumes, f.session)
	f.conn = nil
}

// sessionEnded is the end of the client's session at the leader. The channel's number is free.
func (g *Gateway) sessionEnded(f *Client, it *trunk.Item) Wish {
	forwarded := f.state.isForwarded()
	if f.state != closed {
		g.say(f, trunk.KindClose, 0, nil)
	}
	f.move(over)
	f.channel = 0
	if f.conn == nil {
		return Wish{}
	}
	f.conn.GaveBack()
	switch {
	case it.Flags&trunk.Reset != 0:
		f.conn.Reset()
	case forwarded:
		f.conn.Drain(it.Number != uint32(f.sent) || len(f.conn.Input()) > 0)
	}
	return Wish{Do: Settle, Client: f}
}

// isAnswered reports whether all that the client has sent is answered.
func (f *Client) isAnswered() bool {
	return f.given() == f.answered && len(f.conn.Input()) == 0 && f.conn.Intake() != Unread
}

// isUntouched reports whether the client's session is as a new one: it has sent nothing, here or to the server itself
// before that forwarded it.
func (f *Client) isUntouched() bool { return f.given() == 0 && f.wants == nil }

// isRepeatable reports whether what the client has sent and has no answer to can be sent to another leader.
func (f *Client) isRepeatable() bool {
	return f.answered >= f.unresumable && f.partial != unknownPartial
}

// unanswered is how much of the input that waits was sent to an earlier leader.
func (f *Client) unanswered() int {
	if f.replay == nil {
		return 0
	}
	return f.replay.unanswered
}

// given is how much of what the client has sent some leader may have executed.
func (f *Client) given() uint64 { return f.sent + uint64(f.unanswered()) }

// Session takes the client's session, to go on elsewhere. Of what has come for the client nothing is left on a trunk.
func (g *Gateway) Session(f *Client, now time.Duration) Session {
	x := Session{
		ID: f.session, Grant: f.grant, Interests: f.interests(), Age: f.age(now), Answered: f.answered, Partial: f.partial,
		Unanswered: f.unanswered(),
	}
	if f.replay != nil {
		x.Effects = slices.Clip(f.replay.effects)
	}
	return x
}

// IsServed reports whether a leader executes what the client sends.
func (f *Client) IsServed() bool { return f.state >= serving && f.state <= halfClosed }
