package relay

import (
	"fmt"
	"slices"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

const (
	// MaxPings is how many pings of a gateway may wait to be answered. More are not answered.
	MaxPings = 32

	// maxResumes is how many bytes there may be of sessions that are to go on, and of effects, on a trunk.
	maxResumes = 64 << 20

	// maxAnswered is so far from what a session's input can be that nobody counts that far.
	maxAnswered = journal.MaxOffset / 2
)

// LeaderHost is what a Leader needs of the loop that drives it. None of its methods calls the leader.
type LeaderHost interface {
	// NewChannel makes a channel for a client. A host has it in a struct of its own.
	NewChannel() *Channel
	// TakeMemory counts n bytes more that may be kept for clients. It reports false if there is no room for them.
	TakeMemory(n int) bool
	// GiveMemory counts n bytes less.
	GiveMemory(n int)
}

// Ask is what a gateway asks for.
type Ask uint8

// What a gateway asks for.
const (
	NoRequest     Ask = iota
	OpenSession       // open the session of a new client
	ResumeSession     // resume a session, behind those that were asked for before
	EndAbsent         // end the absent sessions that were not resumed, behind those that are to be resumed
	Execute           // execute Data
	EndInput          // the client sends no more than what has come, or is to come
	Reconsider        // all has come of a client that sends no more
	CloseSession      // the client has gone
	SendMore          // the client takes replies again
	EndReplay         // the last of the effects has come, of which Execute was not asked for before
	Pong              // call Pong when it is proven that this server led
	EndAll            // end all sessions: the gateway ends
)

// Request is what a gateway asks the host for.
type Request struct {
	Ask     Ask
	Channel *Channel
	Opening *Opening // of OpenSession and ResumeSession; valid until the next item
	Number  uint32   // of Pong and SendMore
	Data    []byte   // of Execute; valid until the next item
}

// Opening is what a gateway says of a client when it comes.
type Opening struct {
	Client  trunk.Open
	Grant   *engine.Grant    // nil for a client that may do everything
	Session *engine.Detached // of one that is resumed
	Replay  *Replay          // of its input; nil if all of that is executed as it comes
	Size    int              // for Resumed
}

// phase is how far a trunk has come at the leader.
type phase uint8

const (
	taking  phase = iota
	retired       // the last item was said
	ended         // nothing is taken or said any more
)

// Leader is the leader's end of the trunk of a gateway's loop, whose clients it serves.
type Leader struct {
	output
	host     LeaderHost
	number   uint32 // of the gateway's loop, with which the ids of its sessions begin
	version  uint16 // of what is said
	phase    phase
	attached bool // all sessions were named that go on
	left     bool // the gateway ends

	grants   givenGrants
	channels []*Channel         // by number; those that have ended stay until the gateway says close
	last     uint64             // the id of the session that was opened last
	pings    int                // that wait to be answered
	resumes  map[uint32]resumed // those of which more is to come, by channel
	replays  map[uint32]*Replay // of channels whose effects are to come
	size     int                // bytes of resumes and effects that are kept
	sessions int                // that have not ended, those of channels included that have
	opening  Opening
	unused   []*interestChanges
}

// resumed is what has come of a resume of which more is to come.
type resumed struct {
	trunk.Resume
	size int
}

// NewLeader returns the leader's end of the trunk of a gateway's loop, which has that number. It speaks version 1.
func NewLeader(h LeaderHost, t Trunk, number uint32) *Leader {
	return &Leader{
		output: output{trunk: t}, host: h, number: number, version: 1, grants: newGivenGrants(),
		resumes: make(map[uint32]resumed), replays: make(map[uint32]*Replay),
	}
}

// Speak sets the version of what is said.
func (e *Leader) Speak(version uint16) { e.version = version }

// ResumesSessions reports whether sessions outlive the trunk.
func (e *Leader) ResumesSessions() bool { return e.version >= trunk.ResumesSince }

// Welcome says to the gateway what it has come to.
func (e *Leader) Welcome(w trunk.Welcome) {
	w.Version = e.version
	e.say(trunk.Item{Kind: trunk.KindWelcome, Data: w.Append(nil)})
}

// IsRetired reports whether Retire has said the last item, and the trunk has not ended.
func (e *Leader) IsRetired() bool { return e.phase == retired }

// Number is that of the gateway's loop.
func (e *Leader) Number() uint32 { return e.number }

// CreditError is why a trunk ends whose gateway gives a client more credit for replies than may be given.
func (h *Channel) CreditError() error {
	return misuse(h.number, "more credit for replies than may be given")
}

// misuse is the error of a gateway that says what no gateway says.
func misuse(channel uint32, what string) error { return fmt.Errorf("channel %d: %s", channel, what) }

// say sends an item, unless the last one was sent.
func (e *Leader) say(it trunk.Item) {
	if e.phase != retired {
		e.send(it)
	}
}

// Item takes what the gateway has said, and returns what it asks for. After an error the trunk is to be ended.
func (e *Leader) Item(it *trunk.Item) (r Request, err error) {
	switch it.Kind {
	case trunk.KindGrant:
		return r, e.grants.take(it)
	case trunk.KindOpen:
		return e.open(it)
	case trunk.KindResume:
		return e.resume(it)
	case trunk.KindAttached:
		if e.attached || len(e.resumes) > 0 {
			return r, misuse(0, "it is attached, or not yet")
		}
		e.attached = true
		return Request{Ask: EndAbsent}, nil
	case trunk.KindPing:
		if e.pings == MaxPings {
			return r, nil
		}
		e.pings++
		return Request{Ask: Pong, Number: it.Number}, nil
	case trunk.KindLeave:
		e.left = true
		return Request{Ask: EndAll}, nil
	}
	h := e.at(it.Channel)
	switch {
	case h == nil:
		return r, misuse(it.Channel, it.Kind.String()+" for a channel that is not open")
	case it.Kind == trunk.KindClose:
		e.channels[it.Channel] = nil
		return Request{Ask: CloseSession, Channel: h}, nil
	case h.fate != lives:
		return r, nil // it was on its way when the session ended
	}
	switch it.Kind {
	case trunk.KindInput:
		return e.input(h, it.Data)
	case trunk.KindEffects:
		return e.effects(h, it)
	case trunk.KindCredit:
		return Request{Ask: SendMore, Channel: h, Number: it.Number}, nil
	case trunk.KindHalfClose:
		return h.halfClose(it.Flags)
	}
	return r, misuse(it.Channel, it.Kind.String()+" is not for a leader")
}

// at is the channel that the gateway has opened under a number, and not closed; nil for none.
func (e *Leader) at(n uint32) *Channel {
	if n < uint32(len(e.channels)) {
		return e.channels[n]
	}
	return nil
}

// open begins to serve a client.
func (e *Leader) open(it *trunk.Item) (r Request, err error) {
	o, err := trunk.ParseOpen(it.Data)
	n := it.Channel
	g, known := e.grants.get(it.Number)
	switch {
	case err != nil:
		return r, err
	case e.left:
		return r, misuse(n, "an open behind leave")
	case !known:
		return r, misuse(n, noGrant(it.Number))
	case journal.NumberOf(o.Session) != e.number || o.Session <= e.last:
		return r, misuse(n, fmt.Sprintf("session %d is opened behind %d, by loop %d", o.Session, e.last, e.number))
	case e.at(n) != nil:
		return r, misuse(n, "it is open")
	}
	e.last = o.Session
	e.opening = Opening{Client: o, Grant: g}
	return Request{Ask: OpenSession, Channel: e.channel(n), Opening: &e.opening}, nil
}

func noGrant(number uint32) string { return fmt.Sprintf("no grant has the number %d", number) }

// channel makes a channel for a client.
func (e *Leader) channel(n uint32) *Channel {
	if n >= uint32(len(e.channels)) {
		e.channels = slices.Grow(e.channels, int(n)+1-len(e.channels))[:n+1]
	}
	h := e.host.NewChannel()
	h.number, h.window, h.quota = n, trunk.FirstCredit, trunk.FirstCredit
	e.channels[n] = h
	e.sessions++
	return h
}

// resume takes a session of the gateway that goes on, or a part of what is known of it.
func (e *Leader) resume(it *trunk.Item) (none Request, err error) {
	r, err := trunk.ParseResume(it.Data)
	n := it.Channel
	begun, begins := e.resumes[n]
	g, known := e.grants.get(it.Number)
	switch {
	case err != nil:
		return none, err
	case e.attached || e.left:
		return none, misuse(n, "a resume behind the last")
	case !known:
		return none, misuse(n, noGrant(it.Number))
	case journal.NumberOf(r.Session) != e.number || begins && begun.Session != r.Session:
		return none, misuse(n, "a resume of another session")
	case r.Partial > 0 && !r.Unanswered || r.Answered > maxAnswered:
		return none, misuse(n, "a resume behind what can have been answered")
	case e.at(n) != nil:
		return none, misuse(n, "it is open")
	}
	size := len(it.Data)
	if begins {
		r.Watched, r.Weights = append(begun.Watched, r.Watched...), append(begun.Weights, r.Weights...)
		size += begun.size
	}
	if e.size += len(it.Data); e.size > maxResumes {
		return none, misuse(n, "more sessions at a time than may go on")
	}
	if it.Flags&trunk.More != 0 {
		e.resumes[n] = resumed{r, size}
		return none, nil
	}
	delete(e.resumes, n)
	x := engine.Interests{Used: r.Used, Watched: r.Watched, Weights: r.Weights, Mode: r.Mode, Info: r.Info, Abort: r.Abort}
	was, err := engine.Absent(r.Session, g, x, engine.Time(r.Age))
	if err != nil {
		return none, misuse(n, err.Error())
	}
	e.last = max(e.last, r.Session)
	h := e.channel(n)
	h.received, h.ends, h.before, h.answered = r.Answered, r.Answered, r.Answered, r.Answered
	h.resumes = true
	e.opening = Opening{Client: r.Open, Grant: g, Session: was, Size: size}
	if r.Unanswered {
		e.opening.Replay = &Replay{session: r.Session, at: r.Answered, partial: int(r.Partial), awaits: true}
		e.replays[n] = e.opening.Replay
	}
	return Request{Ask: ResumeSession, Channel: h, Opening: &e.opening}, nil
}

// Resumed says that so many bytes that have come of a resume are kept no more.
func (e *Leader) Resumed(size int) { e.size -= size }

// ResumeBytes is how many bytes of resumes and effects are kept.
func (e *Leader) ResumeBytes() int { return e.size }

// effects takes what the log tells of a resumed session.
func (e *Leader) effects(h *Channel, it *trunk.Item) (r Request, err error) {
	d := e.replays[h.number]
	if d == nil {
		return r, misuse(h.number, "effects that nobody waits for")
	}
	if err := d.add(it); err != nil {
		return r, err
	}
	if e.size += len(it.Data); e.size > maxResumes {
		return r, misuse(h.number, "more effects than may be kept")
	}
	if it.Flags&trunk.Last == 0 {
		return r, nil
	}
	e.endReplay(h.number)
	d.complete()
	return Request{Ask: EndReplay, Channel: h}, nil
}

// endReplay forgets a replay whose effects have come, or need not come.
func (e *Leader) endReplay(n uint32) {
	if d := e.replays[n]; d != nil {
		e.size -= len(d.effects) * trunk.EffectSize
		delete(e.replays, n)
	}
}

// input takes what a client has sent.
func (e *Leader) input(h *Channel, p []byte) (r Request, err error) {
	switch {
	case h.hasAll():
		return r, misuse(h.number, "input behind a half-close")
	case len(p) > int(h.quota):
		return r, misuse(h.number, "input beyond its credit")
	case len(e.replays) > 0 && e.replays[h.number] != nil:
		return r, misuse(h.number, "input before the last of the effects")
	}
	h.quota -= int32(len(p))
	h.received += uint64(len(p))
	return Request{Ask: Execute, Channel: h, Data: p}, nil
}

// GiveCredit lets a client send as much more as was executed of its input, of which so many bytes are left, when that
// is half of what it may send. The host calls it as long as commands are executed for the client.
func (e *Leader) GiveCredit(h *Channel, left int) {
	if h.hasAll() {
		return // there is no more
	}
	if h.quota == 0 && left == 0 {
		if more := min(h.window, MaxInputWindow-h.window); e.host.TakeMemory(int(more)) {
			h.window += more
		}
	}
	n := h.window - h.quota - int32(left)
	if n < h.window/2 {
		return
	}
	h.quota += n
	e.say(trunk.Item{Kind: trunk.KindCredit, Channel: h.number, Number: uint32(n)})
}

// Pong answers a ping, unless it is not proven that this server led.
func (e *Leader) Pong(number uint32, proven bool) {
	if e.pings--; proven {
		e.say(trunk.Item{Kind: trunk.KindPong, Number: number})
	}
}

// Denied says that something was denied to a client.
func (e *Leader) Denied(h *Channel, d *trunk.Denied) {
	e.say(trunk.Item{Kind: trunk.KindDenied, Channel: h.number, Data: d.Append(nil)})
}

// Refuse says to a client, whatever room there is, that it is not served. It is no part of an answer, which the
// gateway has to see.
func (e *Leader) Refuse(h *Channel, reply string) {
	e.say(trunk.Item{Kind: trunk.KindReplies, Channel: h.number, Data: []byte(reply)})
}

// Retire tells the gateway that no more commands are executed. It is the last item.
func (e *Leader) Retire() {
	e.say(trunk.Item{Kind: trunk.KindRetire})
	e.phase = retired
}

// Channels are those that the gateway has opened, and not closed, by number; nil for others.
func (e *Leader) Channels() []*Channel { return e.channels }

// Disconnected says that the trunk has ended.
func (e *Leader) Disconnected() { e.phase = ended }

// StopAll drops what comes from now on for all channels, whose sessions become absent, or end with their clients.
func (e *Leader) StopAll(part bool) {
	for _, h := range e.channels {
		if h != nil && h.fate == lives {
			if h.fate = closes; part {
				h.fate = parts
			}
		}
	}
}

// SessionEnded says that all is given back that the session of a channel had.
func (e *Leader) SessionEnded() { e.sessions-- }

// HasLeft reports whether the gateway has left, and all its sessions have ended.
func (e *Leader) HasLeft() bool { return e.left && e.sessions == 0 }
