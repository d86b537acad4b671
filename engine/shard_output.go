package engine

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
	// be sent before the journal is committed up to there. [Session.Replied] completes
	// it. It only grows; the owner sets it back to 0.
	Pos journal.Pos
	// showState says that the replies show state that may be newer than Pos: see
	// Session.Replied.
	showState bool
	// by is the session on record whose command is executed; nil for other sessions.
	by *holder
	// Bodies are large bodies that belong into the replies and were not copied
	// to Buf, in the order of At. The owner releases and removes them.
	Bodies []Body
}

// reply appends a reply.
func (o *Output) reply(r string) { o.Buf = append(o.Buf, r...) }

// size is the number of bytes in the replies.
func (o *Output) size() int {
	n := len(o.Buf)
	for i := range o.Bodies {
		n += len(o.Bodies[i].Bytes)
	}
	return n
}

// dependOn keeps the replies from being sent before the journal is committed up to pos.
func (o *Output) dependOn(pos journal.Pos) { o.Pos = max(o.Pos, pos) }

// answer appends the reply to a command that an operation has carried out, or what the error of that
// comes to.
func (o *Output) answer(err error, reply string) {
	switch {
	case err == nil:
		o.reply(reply)
	case errors.Is(err, errNotFound):
		o.reply(codec.ReplyNotFound)
	case errors.Is(err, journal.ErrFailed) || errors.Is(err, journal.ErrClosed):
		o.showsState()
		o.reply(codec.ReplyInternalError)
	default:
		o.reply(codec.ReplyOutOfMemory)
	}
}

// executesFor says for which client, whose session is on record, a command is executed from now on: records name
// it.
func (o *Output) executesFor(cl *client) { o.by = cl.reserved.holder }

// executesForNone says that no command is executed for a session on record any more.
func (o *Output) executesForNone() { o.by = nil }

// pinnedSize is the size in bytes from which on a body is sent from where it lies:
// below it, copying costs less than a second piece of a write.
const pinnedSize = 32 << 10

// A Body is a job's body that is part of a reply. It stays in memory as it was until
// Release, even if its job is deleted.
type Body struct {
	At    int    // it belongs before Buf[At] of its Output
	Bytes []byte // not to be written to
	shard *shard
	key   bodyKey
}

// Release gives the body back. It is called once, on the goroutine of the session's
// loop.
func (b *Body) Release() {
	sh := b.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p := sh.pins[b.key]
	if p.count--; p.count > 0 {
		return
	}
	delete(sh.pins, b.key)
	if p.orphan {
		sh.bodies.Free(b.key.body, b.key.size)
	}
}

// bodyKey names a body within its shard.
type bodyKey struct {
	body ref
	size uint32
}

// A pin keeps a body where it is for as long as replies refer to it. The shard's
// lock guards it.
type pin struct {
	count  int  // Bodies that are not released
	orphan bool // the job is gone: the last Release frees the body
}

// appendFound appends a job, as clients are shown it.
func (o *Output) appendFound(sh *shard, j *job) {
	o.dependOn(sh.dependsOn(sh.now))
	o.Buf = codec.AppendFoundLine(o.Buf, j.ID, int(j.size))
	o.appendBody(sh, j)
}

// appendReserved appends the reply that hands out a job, with more of it if the client has asked for that.
func (o *Output) appendReserved(sh *shard, j *job, informed bool) {
	if !informed {
		o.Buf = codec.AppendReservedLine(o.Buf, j.ID, int(j.size))
	} else {
		o.Buf = sh.appendReservedLine(o.Buf, j, informed)
	}
	o.appendBody(sh, j)
}

func (sh *shard) appendReservedLine(b []byte, j *job, informed bool) []byte {
	if !informed {
		return codec.AppendReservedLine(b, j.ID, int(j.size))
	}
	info := sh.info(j)
	return codec.AppendReservedInfoLine(b, j.ID, int(j.size), &info)
}

// appendBody appends a body, or a reference to it if it is large.
func (o *Output) appendBody(sh *shard, j *job) {
	if j.size < pinnedSize {
		o.Buf = append(o.Buf, sh.body(j)...)
	} else {
		o.Bodies = append(o.Bodies, sh.pin(j, len(o.Buf)))
	}
	o.Buf = append(o.Buf, "\r\n"...)
}

// pin makes a reference to a job's body.
func (sh *shard) pin(j *job, at int) Body {
	key := bodyKey{j.body, j.size}
	p := sh.pins[key]
	if p == nil {
		if sh.pins == nil {
			sh.pins = make(map[bodyKey]*pin)
		}
		p = new(pin)
		sh.pins[key] = p
	}
	p.count++
	return Body{At: at, Bytes: sh.body(j), shard: sh, key: key}
}

// pinned reports whether a body must stay where it is.
func (sh *shard) pinned(body ref, size uint32) bool {
	return size >= pinnedSize && sh.pins[bodyKey{body, size}] != nil
}

// freeBody frees a body, or leaves that to those who still refer to it.
func (sh *shard) freeBody(body ref, size uint32) {
	if size >= pinnedSize {
		if p := sh.pins[bodyKey{body, size}]; p != nil {
			p.orphan = true
			return
		}
	}
	sh.bodies.Free(body, size)
}

// showsState notes that the replies may tell of a state that all clients share. It comes
// before the command is executed, because a record that the command makes then proves
// that state.
func (o *Output) showsState() { o.showState = true }

// waits is for a command that waits. What it has noted is not for the replies of others, if it has
// told nothing so far.
func (o *Output) waits() {
	if len(o.Buf) == 0 {
		o.showState = false
	}
}

// takeShowState reports whether the replies may tell of a state that no record of the command's own proves, and
// forgets it.
func (o *Output) takeShowState() bool {
	shows := o.showState
	o.showState = false
	return shows
}

// Discard drops the replies. Their bodies are released.
func (o *Output) Discard() {
	for i := range o.Bodies {
		o.Bodies[i].Release()
	}
	clear(o.Bodies)
	*o = Output{Buf: o.Buf[:0], Bodies: o.Bodies[:0]}
}

// recorded notes a record of a command's own. It stands behind everything that the replies
// tell of, so that its commit is proof of that too.
func (o *Output) recorded(pos journal.Pos) {
	o.dependOn(pos)
	o.showState = false
	if o.by != nil {
		o.by.told = true
	}
}
