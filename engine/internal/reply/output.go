package reply

import (
	"errors"

	"trellis/binlog/journal"
	"trellis/codec"
)

// Output is where the replies to a session's commands go.
type Output struct {
	// Buf is appended to. The owner empties it and may use its memory again.
	Buf []byte
	// Pos is the position in the journal that the replies depend on: they must not
	// be sent before the journal is committed up to there. Session.Replied of package engine
	// completes it. It only grows; the owner sets it back to 0.
	Pos journal.Pos
	// showState says that the replies show state that may be newer than Pos: see
	// TakeShowState.
	showState bool
	// by is the session on record whose command is executed; nil for other sessions.
	by *Source
	// Bodies are large bodies that belong into the replies and were not copied
	// to Buf, in the order of At. The owner releases and removes them.
	Bodies []Body
}

// ErrNotFound: there is no such job or tube, or it is not as it would have to be for the operation. What
// the answer depends on is noted in the operation's Output.
var ErrNotFound = errors.New("there is no such job or tube")

// Why a reserve gets no job, and does not wait for one.
var (
	// ErrTimedOut: there is none.
	ErrTimedOut = errors.New("there is no job")
	// ErrDeadlineSoon: nor that, and the safety margin of one of the client's jobs has begun.
	ErrDeadlineSoon = errors.New("there is no job, and one that the client has is about to time out")
)

// Reply appends a reply.
func (o *Output) Reply(r string) { o.Buf = append(o.Buf, r...) }

// Size is the number of bytes in the replies.
func (o *Output) Size() int {
	n := len(o.Buf)
	for i := range o.Bodies {
		n += len(o.Bodies[i].Bytes)
	}
	return n
}

// DependOn keeps the replies from being sent before the journal is committed up to pos.
func (o *Output) DependOn(pos journal.Pos) { o.Pos = max(o.Pos, pos) }

// Answer appends the reply to a command that an operation has carried out, or what the error of that
// comes to.
func (o *Output) Answer(err error, reply string) {
	switch {
	case err == nil:
		o.Reply(reply)
	case errors.Is(err, ErrNotFound):
		o.Reply(codec.ReplyNotFound)
	case errors.Is(err, ErrTimedOut):
		o.Reply(codec.ReplyTimedOut)
	case errors.Is(err, ErrDeadlineSoon):
		o.Reply(codec.ReplyDeadlineSoon)
	case errors.Is(err, journal.ErrFailed), errors.Is(err, journal.ErrClosed),
		errors.Is(err, journal.ErrUnreadable), errors.Is(err, journal.ErrHangs):
		o.ShowsState()
		o.Reply(codec.ReplyInternalError)
	default:
		o.Reply(codec.ReplyOutOfMemory)
	}
}

// ShowsState notes that the replies may tell of a state that all clients share. It comes
// before the command is executed, because a record that the command makes then proves
// that state.
func (o *Output) ShowsState() { o.showState = true }

// Waits is for a command that waits. What it has noted is not for the replies of others, if it has
// told nothing so far.
func (o *Output) Waits() {
	if len(o.Buf) == 0 {
		o.showState = false
	}
}

// TakeShowState reports whether the replies may tell of a state that no record of the command's own proves, and
// forgets it.
func (o *Output) TakeShowState() bool {
	shows := o.showState
	o.showState = false
	return shows
}

// Recorded notes a record of a command's own. It stands behind everything that the replies
// tell of, so that its commit is proof of that too.
func (o *Output) Recorded(pos journal.Pos) {
	o.DependOn(pos)
	o.showState = false
	if o.by != nil {
		o.by.Recorded = true
	}
}

// ExecutesFor says which session on record has sent the command that is executed from now on: records name it. Nil
// stands for a session off the record.
func (o *Output) ExecutesFor(s *Source) { o.by = s }

// Source is the session on record whose command is executed, nil for one off the record.
func (o *Output) Source() *Source { return o.by }

// Aside returns an Output for what the same command records before it is known what o depends on.
func (o *Output) Aside() Output { return Output{by: o.by} }

// Discard drops the replies. Their bodies are released.
func (o *Output) Discard() {
	for i := range o.Bodies {
		o.Bodies[i].Release()
	}
	clear(o.Bodies)
	*o = Output{Buf: o.Buf[:0], Bodies: o.Bodies[:0]}
}

// A Body is a job's body that is part of a reply. It stays in memory as it was until
// Release, even if its job is deleted.
type Body struct {
	At    int    // it belongs before Buf[At] of its Output
	Bytes []byte // not to be written to
	Pin   Pin    // keeps it where it is
}

// A Pin keeps a body in memory.
type Pin interface {
	// Unpin is called once for each Body, on the goroutine of the session's loop.
	Unpin()
}

// Release gives the body back. It is called once, on the goroutine of the session's
// loop.
func (b *Body) Release() { b.Pin.Unpin() }

// A Source is a session on record, and the command of it that is executed.
type Source struct {
	Session  uint64 // its id
	Offset   uint64 // where in the session's input the command ends; 0 if no record is to name it
	Recorded bool   // a record names the command
}

// Origin is the command that a record tells of which is made now: the first record of a command
// does. Nil stands for a session off the record.
func (s *Source) Origin() (o journal.Origin) {
	if s != nil && !s.Recorded && s.Offset > 0 {
		o = journal.Origin{Session: s.Session, Offset: s.Offset}
	}
	return o
}
