package relay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// smallInput is more than most clients send ahead.
const smallInput = 8 << 10

// Host is what a Gateway needs of the loop that drives it. None of its methods calls the gateway.
type Host interface {
	// BootTime is a clock that goes on while the machine sleeps.
	BootTime() time.Duration
	// Leads reports whether no later term is known than that of a leader, which is known from then on.
	Leads(term uint64) bool
	// TakeMemory counts n bytes more that are kept for clients. It reports false if there is no room for them.
	TakeMemory(n int) bool
	// GiveMemory counts n bytes less.
	GiveMemory(n int)
	// AwaitApplied asks for a call of Applied when this member has applied the log up to an index; NoIndex takes the
	// request back.
	AwaitApplied(index uint64)
	// LeaderReady is called when a leader takes clients, after a time without one.
	LeaderReady(w *trunk.Welcome, without time.Duration)
	// LeaderLost is called when a leader that took clients takes them no more. The gateway was in contact with it at
	// that time of the loop's clock.
	LeaderLost(contact time.Duration)
	// InContact is called with the boot time at which the gateway was in contact last.
	InContact(at time.Duration)
	// Denied is called when the leader has denied something to a client, which is nil if it has gone.
	Denied(c Conn, g *engine.Grant, d *trunk.Denied)
}

// Terms are what a leader lets clients do, as far as it decides where commands end.
type Terms struct {
	MaxJobSize uint32
	Extensions bool
}

// Cause is why a client cannot go on.
type Cause uint8

// The causes.
const (
	NoCause      Cause = iota // it has left by itself
	TrunkEnded                // the trunk has ended on which it was forwarded, or no trunk takes it
	Unrepeatable              // what it has no answer to cannot be sent to another leader
	Contactless               // the gateway has given up
	Lagging                   // this member has not applied for too long what was executed for it
)

// Do is what a host is to do.
type Do uint8

// What there is to do.
const (
	Nothing Do = iota
	Write      // write Data to the client, and keep what it does not take
	Read       // read the client's socket once, for input, then call AskTurn, and Settle
	Settle     // decide anew whether the connection ends, and whether the client is read
	End        // count the cause, and Settle
)

// Wish is what a host is to do for one client behind an event.
type Wish struct {
	Do     Do
	Cause  Cause
	Client *Client
	Data   []byte // valid until the next event
}

// Gateway is the gateway's end of the trunks that a loop has one after the other: it forwards clients to the leader.
type Gateway struct {
	host     Host
	speaks   uint16 // the latest version of what is said on trunks
	number   uint32 // of the loop, with which the ids of sessions begin
	sessions uint64 // that there were, whatever the number was

	clients  []*Client          // all that are forwarded
	resumes  map[uint64]*Client // those of which a leader has heard, by their sessions
	losses   []loss             // clients for whom there is a wish
	names    tubeNames
	memory   inputMemory
	log      log
	contact  contact
	leader   leader
	link     link
	finishes bool // clients are read at most once more, because the server is shut down

	disconnectedAt time.Duration // when the last trunk ended, or forwarding began
}

// loss is a client that cannot go on.
type loss struct {
	client *Client
	cause  Cause
}

// leader is what the leader of the trunk, or of the last one, has said of itself.
type leader struct {
	version uint16        // of what is said on the trunk
	terms   *Terms        // nil before the first leader
	fence   uint64        // the index of the log up to which all is that was executed for sessions on earlier trunks
	at      time.Duration // when it said so
}

func (l *leader) resumes() bool { return l.version >= trunk.ResumesSince }

// stage is how far a trunk has come.
type stage uint8

const (
	noTrunk   stage = iota
	connected       // the leader has not said yet what it is
	attaching       // the leader has not heard yet of all sessions that go on
	attached
)

// link is what a gateway knows of its trunk, and what ends with it.
type link struct {
	output
	stage    stage
	channels []*Client     // by number, nil for one that is free; the first is nobody's
	free     []uint32      // numbers of channels
	line     line          // clients who have something to say that waits for the trunk
	unnamed  int           // how many are first in line of whom the leader hears before it has heard of all
	fenced   line          // clients who wait until this member has applied all that was executed for them
	grants   grantNumbers  // of which the leader knows
	states   []clientState // that await the replies of their clients
}

// NewGateway returns a gateway that has no trunk. It speaks the versions up to that one.
func NewGateway(h Host, version uint16, now time.Duration) *Gateway {
	return &Gateway{
		host: h, speaks: version, resumes: make(map[uint64]*Client), contact: contact{next: Never}, disconnectedAt: now,
	}
}

// AfterLeading says that the server has led until now, with these terms, and was in contact with itself at that boot
// time. Its loop has opened so many sessions whose ids begin with the number.
func (g *Gateway) AfterLeading(now time.Duration, number uint32, sessions uint64, t Terms, contact time.Duration) {
	g.number, g.sessions = number, sessions
	g.leader = leader{version: trunk.ResumesSince, terms: &t}
	g.inContact(contact)
	g.contact.begin(now)
}

// Connect goes on over a trunk, when its leader is ready. Sessions get ids that begin with the number.
func (g *Gateway) Connect(t Trunk, number uint32) {
	g.number = number
	g.link = link{output: output{trunk: t}, stage: connected, channels: make([]*Client, 1)}
}

// SetNumber sets the number with which the ids of sessions begin.
func (g *Gateway) SetNumber(n uint32) { g.number = n }

// Number is the number with which the ids of sessions begin, and the number of sessions that there were.
func (g *Gateway) Number() (number uint32, sessions uint64) { return g.number, g.sessions }

// IsReady reports whether there is a trunk whose leader takes clients.
func (g *Gateway) IsReady() bool { return g.link.stage >= attaching }

// takes reports whether an item with so many bytes of data can be sent now. What is small does not wait for those who
// send much.
func (g *Gateway) takes(n int) bool {
	if n > smallInput {
		n = MaxOutput - FewOutput
	}
	return g.IsReady() && g.link.trunk.Room() >= n
}

// hasTurn reports whether who is first in line may say something.
func (g *Gateway) hasTurn() bool { return !g.link.line.empty() && g.takes(trunk.MaxData) }

// Next says to the leader what the client has to say whose turn it is.
func (g *Gateway) Next(now time.Duration) (w Wish) {
	for g.hasTurn() {
		f := g.link.line.pop()
		g.link.unnamed = max(0, g.link.unnamed-1)
		if g.hasMore(f) {
			return g.goOn(f, now)
		}
	}
	return Wish{}
}

// Turn does what is to be done beside: it sends a ping, or says what was executed for a client that goes on. It reports
// false if there was nothing.
func (g *Gateway) Turn(now time.Duration) (did bool) {
	g.endNaming()
	if g.canReplay() {
		g.replayNext()
		did = true
	}
	if g.contact.next <= now {
		g.tick(now)
		did = true
	}
	return did
}

// NextLoss is a wish for one of the clients that cannot go on, or have nothing more to do.
func (g *Gateway) NextLoss() (w Wish) {
	for n := len(g.losses); n > 0; n = len(g.losses) {
		x := g.losses[n-1]
		g.losses = slices.Delete(g.losses, n-1, n)
		if x.client.conn != nil {
			return Wish{Do: End, Client: x.client, Cause: x.cause}
		}
	}
	return Wish{}
}

// HasWork reports whether Next, Turn or NextLoss would do something.
func (g *Gateway) HasWork(now time.Duration) bool {
	return g.hasTurn() || len(g.losses) > 0 || g.canReplay() || g.contact.next <= now
}

// Item takes what the leader has said, and what it wishes for a client. After an error the trunk is to be ended.
func (g *Gateway) Item(now time.Duration, it *trunk.Item) (w Wish, err error) {
	switch it.Kind {
	case trunk.KindWelcome:
		return w, g.begin(now, it)
	case trunk.KindPong:
		err := g.contact.pong(it.Number)
		g.inContact(g.contact.last)
		return w, err
	case trunk.KindRetire:
		return w, ErrRetired
	}
	k := &g.link
	if it.Channel >= uint32(len(k.channels)) || k.channels[it.Channel] == nil {
		return w, fmt.Errorf("%v for channel %d, which is not open", it.Kind, it.Channel)
	}
	f := k.channels[it.Channel]
	switch it.Kind {
	case trunk.KindReplies:
		return g.deliver(f, now, it)
	case trunk.KindCredit:
		if f.state != closed {
			err = g.takeQuota(f, it.Number)
		}
	case trunk.KindState:
		err = g.takeState(f, it)
	case trunk.KindDenied:
		err = g.denied(f, it)
	case trunk.KindEnd:
		k.channels[it.Channel] = nil
		k.free = append(k.free, it.Channel)
		w = g.sessionEnded(f, it)
	}
	return w, err
}

// ErrRetired ends a trunk whose leader executes no more commands.
var ErrRetired = errors.New("the leader executes no more commands")

func (g *Gateway) denied(f *Client, it *trunk.Item) error {
	d, err := trunk.ParseDenied(it.Data)
	switch {
	case err != nil:
		return err
	case f.grant == nil:
		return errors.New("something was denied to a client that may do everything")
	}
	g.host.Denied(f.conn, f.grant, &d)
	return nil
}

// assign gives a client a channel, and returns the number of its grant. It reports false if there is none.
func (g *Gateway) assign(f *Client) (grant uint32, ok bool) {
	k := &g.link
	grant, ok = k.grantNumber(f.grant)
	switch n := len(k.free); {
	case !ok: // it is larger than a leader takes
	case n > 0:
		f.channel = k.free[n-1]
		k.free = k.free[:n-1]
		k.channels[f.channel] = f
	case len(k.channels) <= trunk.MaxChannel:
		f.channel = uint32(len(k.channels))
		k.channels = append(k.channels, f)
	default: // there are more clients than can be
		ok = false
	}
	if !ok {
		g.lose(f, TrunkEnded)
	}
	return grant, ok
}

// lose resets a client that cannot go on.
func (g *Gateway) lose(f *Client, why Cause) {
	f.move(lost)
	f.conn.Reset()
	g.losses = append(g.losses, loss{f, why})
}

// Disconnected says that the trunk has ended, or that the gateway gives up, if that is the reason. Clients wait for
// another trunk, if they can go on there.
func (g *Gateway) Disconnected(now time.Duration, why error) {
	gaveUp := errors.Is(why, ErrNoContact) || errors.Is(why, ErrNumberGone)
	if gaveUp {
		for _, f := range g.clients {
			if !f.isUntouched() && g.leader.resumes() {
				f.unresumable = f.given() + 1
			}
		}
	}
	if g.IsReady() {
		g.host.LeaderLost(g.lastContact(now))
		g.disconnectedAt = now
	}
	g.dropStates()
	g.link = link{}
	g.host.AwaitApplied(NoIndex)
	for _, f := range g.clients {
		g.detach(f, now, gaveUp)
	}
	if gaveUp {
		for _, f := range g.clients {
			if f.state == detached {
				g.reopen(f, now)
			}
		}
		clear(g.resumes)
	}
}

// detach makes a client whose trunk has ended wait for the next one. Those that are owed an answer that nobody can
// give them there are reset. Those whose session is over, or has nothing more to do, get what has come for them.
func (g *Gateway) detach(f *Client, now time.Duration, gaveUp bool) {
	f.channel, f.queued, f.next = 0, false, nil
	switch f.state {
	case unannounced, lost, over:
		return
	case closed:
		f.move(over)
		f.conn.GaveBack()
		g.losses = append(g.losses, loss{f, NoCause})
		return
	}
	answered := f.isAnswered()
	goesOn := g.rewind(f)
	why := TrunkEnded
	switch {
	case gaveUp:
		why = Contactless
	case !goesOn:
		why = Unrepeatable
	}
	resumes := g.leader.resumes()
	switch {
	case answered && (g.finishes || f.conn.Intake() != Reading || !resumes && f.answered > 0):
		f.move(over)
		f.conn.Drain(false)
		g.losses = append(g.losses, loss{f, why})
	case !goesOn || g.finishes || !resumes && !f.isUntouched():
		g.lose(f, why)
	default:
		if f.state != detached {
			f.move(detached)
		}
		if !resumes {
			g.reopen(f, now)
		}
	}
}

// Leave tells the leader that the loop ends.
func (g *Gateway) Leave() {
	if g.IsReady() {
		g.link.send(trunk.Item{Kind: trunk.KindLeave})
	}
}

// Finish says that the server is shut down: each client is read once more, and the leader answers all that has come
// of it, and then ends its session. The host settles all clients that are forwarded behind it.
func (g *Gateway) Finish() {
	g.finishes = true
	for _, f := range g.clients {
		switch {
		case !f.state.isForwarded():
		case f.channel == 0:
			g.lose(f, TrunkEnded)
		default:
			g.AskTurn(f)
		}
	}
}

// Release ends the gateway, which has no trunk any more: the server leads, on those terms. It returns the clients
// that can go on there, those first who have waited longest. The host takes their sessions, and lets go of all
// clients.
func (g *Gateway) Release(t Terms) (list []*Client) {
	g.shareLog()
	for _, f := range g.clients {
		if !f.state.isForwarded() {
			continue
		}
		if !f.canReplay() || f.unanswered() > 0 && g.leader.terms != nil && *g.leader.terms != t {
			g.lose(f, Unrepeatable)
			continue
		}
		list = append(list, f)
	}
	sortByWait(list)
	return list
}

func sortByWait(list []*Client) {
	slices.SortStableFunc(list, func(a, b *Client) int { return cmp.Compare(a.waitsSince(), b.waitsSince()) })
}

// begin takes the leader's welcome. Who has waited longest is first to go on.
func (g *Gateway) begin(now time.Duration, it *trunk.Item) error {
	w, err := trunk.ParseWelcome(it.Data)
	switch {
	case err != nil:
		return err
	case w.Version == 0 || w.Version > g.speaks:
		return fmt.Errorf("the leader speaks version %d on trunks", w.Version)
	case g.IsReady():
		return errors.New("a second welcome")
	case !g.host.Leads(w.Term):
		return fmt.Errorf("the leader's term %d is over", w.Term)
	}
	g.link.stage = attaching
	g.host.LeaderReady(&w, now-g.disconnectedAt)
	terms := Terms{MaxJobSize: w.MaxJobSize, Extensions: w.Extensions}
	alike := g.leader.terms == nil || *g.leader.terms == terms
	g.leader = leader{version: w.Version, terms: &terms, fence: w.Fence, at: now}
	resumes := g.leader.resumes()
	for _, f := range g.clients {
		switch {
		case f.state != detached:
		case !resumes && f.isUntouched():
			g.reopen(f, now)
		case !resumes || journal.NumberOf(f.session) != g.number || !alike && f.unanswered() > 0:
			g.lose(f, TrunkEnded)
		}
	}
	waiting := slices.Clone(g.clients)
	sortByWait(waiting)
	for _, f := range waiting {
		g.AskTurn(f)
	}
	g.link.unnamed = g.link.line.len
	if !resumes {
		g.link.stage = attached
	}
	g.contact.begin(now)
	return nil
}

// endNaming tells the leader that it has heard of all sessions that go on, once it has.
func (g *Gateway) endNaming() {
	if g.link.stage == attaching && g.link.unnamed == 0 {
		g.link.stage = attached
		g.link.send(trunk.Item{Kind: trunk.KindAttached})
	}
}
