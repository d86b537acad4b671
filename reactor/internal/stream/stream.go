package stream

import (
	"sync/atomic"

	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/tlsmem"
)

// Kind is what carries a client's bytes. A stream's kind does not change.
type Kind uint8

// The kinds of streams.
const (
	OnSocket Kind = iota // a TCP or Unix socket
	OnTLS                // a socket, with TLS: see TLS
	OnTrunk              // a channel of a trunk: see Channel
)

// intake is who reads what the client sends.
type intake uint8

const (
	reading  intake = iota // the poller reads
	resumed                // the poller reads again, but may have an event at hand from while it was paused
	paused                 // the poller does not read for now
	finished               // the client has sent its last, and the poller is about to close its descriptor
	detached               // the poller has closed its descriptor; ours is a copy, and we read what it has left
)

// Stream is one client's bytes, in and out. It belongs to its loop's goroutine. Its zero value is not used:
// see Init.
type Stream struct {
	pending *Pending // nil while nothing is pending
	fd      int32    // of the socket, valid until Close; -1 for a channel
	kind    Kind
	intake  intake
	polled  bool // the poller has fd, and is not about to close it
	stalled bool // the client has to take output before it can go on
}

// Pending is what is pending of a stream: input that is not executed, output that is not taken. Most streams
// have none.
type Pending struct {
	In     Input
	out    output
	armed  bool  // the loop is told when the client takes output
	owedAt int32 // index in Streams.owed, if owed is not 0
	owed   int   // bytes for which the stream stands there
}

// Owner has the connections that streams are parts of: it is their loop.
type Owner interface {
	// NewPending returns an empty Pending. The owner gives it to the stream, and takes it back with SetPending.
	NewPending() *Pending
	// TLS is that of a stream of the kind OnTLS.
	TLS(*Stream) *TLS
	// Channel is that of a stream of the kind OnTrunk.
	Channel(*Stream) *Channel
	// Took notes that the client has taken bytes that are no replies.
	Took(*Stream)
	// Duplicate returns a copy of a descriptor.
	Duplicate(fd int) (int, error)
	// DescriptorFreed notes that a descriptor was closed.
	DescriptorFreed()
	// OwedMore is called when a client is owed more than before, if Config.MaxOutputTotal is not 0.
	OwedMore()
}

// Poller polls sockets for the loop.
type Poller interface {
	// Pause has a socket not be read, and Resume has it be read again.
	Pause(fd int) error
	Resume(fd int) error
	// AwaitOutput has Streams.Writable called once when fd takes output. again says that it was called for fd before.
	AwaitOutput(fd int, again bool) error
	// ForgetOutput undoes AwaitOutput.
	ForgetOutput(fd int)
	// Close has a socket closed that is polled.
	Close(fd int)
}

// Config is how a loop's streams behave. It does not change.
type Config struct {
	Owner          Owner
	Poller         Poller
	MaxOutput      int64 // bytes of output that a client may be owed
	MaxOutputTotal int64 // bytes that all clients of all loops may be owed; 0 for any number
}

// Streams are the streams of one loop, and what they share. They belong to the loop's goroutine.
type Streams struct {
	Counts   Counts
	Engine   *engine.Loop // pays for what is done; the owner changes it
	MostOwed atomic.Int64 // what Largest is owed, in bytes; any goroutine may read it

	cfg      Config
	pieces   [][]byte          // room for those of a write
	gathered []byte            // pieces of replies that are sealed, or sent over a trunk, together
	read     []byte            // what was read last; made when first needed
	memory   tlsmem.Memory     // of the TLS connection that is dealt with
	plain    []byte            // what was decrypted; made when first needed
	awaited  map[int32]*Stream // those for which the poller awaits output, by descriptor
	writable []*Stream         // whose clients take output again, perhaps
	owed     owed
}

// Counts are what the streams of a loop have done and hold. The loop alone writes them, any goroutine may
// read them.
type Counts struct {
	BytesIn, BytesOut                   atomic.Uint64
	PendingInput, PendingOutput         atomic.Int64 // bytes
	PeakInput, PeakOutput               atomic.Int64 // bytes that one stream has had pending
	Stalled                             atomic.Int64 // streams whose clients have to take output
	Stalls, TooMuchInput, TooMuchOutput atomic.Uint64
}

// New returns the streams of a loop, which has none yet.
func New(cfg Config) *Streams {
	return &Streams{cfg: cfg, Engine: new(engine.Loop), awaited: make(map[int32]*Stream)}
}

// Init makes s a stream of a kind. fd is its socket, which is non-blocking, or -1 for a channel.
func (s *Stream) Init(fd int, kind Kind) { s.fd, s.kind = int32(fd), kind }

// Begin notes that the poller has the socket. It reports whether something may have come of the client before
// that: then Decrypt brings it.
func (ss *Streams) Begin(s *Stream) (early bool) {
	s.polled = true
	if s.kind != OnTLS {
		return false
	}
	ss.cfg.Owner.TLS(s).wire.ReadWriter = &ss.memory
	return true
}

// Kind is what carries the client's bytes.
func (s *Stream) Kind() Kind { return s.kind }

// FD is the descriptor of the stream's socket, -1 for a channel.
func (s *Stream) FD() int { return int(s.fd) }

// Pending is what is pending, nil for nothing.
func (s *Stream) Pending() *Pending { return s.pending }

// SetPending gives the stream a Pending, or takes it away with nil, when nothing is pending.
func (s *Stream) SetPending(p *Pending) { s.pending = p }

// needPending returns s.pending, which it makes if need be.
func (ss *Streams) needPending(s *Stream) *Pending {
	if s.pending == nil {
		s.pending = ss.cfg.Owner.NewPending()
	}
	return s.pending
}

// Idle reports whether nothing is pending but what the owner may have.
func (s *Stream) Idle() bool {
	x := s.pending
	return x == nil || x.out.empty() && x.In.Empty() && !x.In.Rest && !s.stalled
}

// InputLen is the number of bytes that were read and wait to be executed.
func (s *Stream) InputLen() int {
	if s.pending == nil {
		return 0
	}
	return s.pending.In.Len()
}

// HasInput reports whether something that the client has sent waits to be executed, or to be read by ReadRest.
func (s *Stream) HasInput() bool {
	return s.pending != nil && (!s.pending.In.Empty() || s.pending.In.Rest)
}

// Keep keeps what the client has sent until it can be executed.
func (ss *Streams) Keep(s *Stream, p []byte) { ss.needPending(s).In.Add(p, &ss.Counts) }

// Owes reports whether the client has not taken all replies.
func (s *Stream) Owes() bool { return s.pending != nil && !s.pending.out.empty() }

// Owed is how many bytes of replies the client has not taken.
func (s *Stream) Owed() int {
	if s.pending == nil {
		return 0
	}
	return s.pending.out.len()
}

// Stalled reports whether the client has to take output before it can go on, as of the last Supervise.
func (s *Stream) Stalled() bool { return s.stalled }

// Pinned is how many bytes of the replies are bodies that are pinned in the engine.
func (s *Stream) Pinned() int {
	if s.pending == nil {
		return 0
	}
	return s.pending.out.pinned
}

// Unpin copies pinned bodies, and releases them. No reply may wait for a commit.
func (s *Stream) Unpin() {
	if s.Pinned() > 0 {
		s.pending.out.unpin()
	}
}

// DependsOn is the position up to which the journal has to be committed before all replies may be sent; 0 if
// they may be now.
func (s *Stream) DependsOn() journal.Pos {
	if s.pending == nil {
		return 0
	}
	return s.pending.out.dependsOn
}

// Committed notes that the journal is committed up to DependsOn.
func (s *Stream) Committed() { s.pending.out.dependsOn = 0 }

// DiscardUncommitted drops the replies that wait for a commit, which never comes.
func (ss *Streams) DiscardUncommitted(s *Stream) { s.pending.out.discardUncommitted(&ss.Counts) }

// Discard drops all that is pending, and what the loop has of it. The stream is about to be closed.
func (ss *Streams) Discard(s *Stream) {
	ss.setStalled(s, false)
	ss.forgetOutput(s)
	ss.forgetOwed(s)
	if s.kind == OnTrunk {
		ss.cfg.Owner.Channel(s).waits = false
	}
	if x := s.pending; x != nil {
		x.In.Discard(&ss.Counts)
		x.out.discard(&ss.Counts)
	}
}
