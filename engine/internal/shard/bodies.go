package shard

import (
	"trellis/codec"
	"trellis/engine/internal/arena"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/resident"
)

// pinnedSize is the size in bytes from which on a body is sent from where it lies:
// below it, copying costs less than a second piece of a write.
const pinnedSize = 32 << 10

// bodyKey names a body within its shard.
type bodyKey struct {
	body ref
	size uint32
}

// A pin keeps a body where it is for as long as replies refer to it. The shard's
// lock guards it.
type pin struct {
	shard  *shard
	key    bodyKey
	count  int  // Bodies that are not released
	orphan bool // the job is gone: the last Unpin frees the body

	entry resident.Entry // of the body, that Evict has come to: the last Unpin adds it again. It may be zero
}

// Unpin implements [reply.Pin].
func (p *pin) Unpin() {
	if sh := p.shard; p.unpin() && sh.residents != nil {
		sh.shared.loads.Sent(-arena.Footprint(p.key.size))
	}
}

// unpin is Unpin, and reports whether it was the last one.
func (p *pin) unpin() bool {
	sh := p.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p.count--; p.count > 0 {
		return false
	}
	delete(sh.pins, p.key)
	switch {
	case p.orphan:
		sh.freeBlock(p.key.body, p.key.size)
	case p.entry.ID != 0 && !sh.shared.discarded.Load() && sh.placeRoom() == nil: // without an entry it stays in memory
		sh.residents.Add(p.entry, false)
	}
	return true
}

// appendFound appends a job, as clients are shown it.
func (sh *shard) appendFound(out *reply.Output, j *job) {
	out.DependOn(sh.dependsOn(sh.now))
	out.Buf = codec.AppendFoundLine(out.Buf, j.ID, int(j.size))
	sh.appendBody(out, j)
}

// appendReserved appends the reply that hands out a job, with more of it if the client has asked for that.
func (sh *shard) appendReserved(out *reply.Output, j *job, informed bool) {
	out.Buf = sh.appendReservedLine(out.Buf, j, informed)
	sh.appendBody(out, j)
}

func (sh *shard) appendReservedLine(b []byte, j *job, informed bool) []byte {
	if !informed {
		return codec.AppendReservedLine(b, j.ID, int(j.size))
	}
	info := sh.info(j)
	return codec.AppendReservedInfoLine(b, j.ID, int(j.size), &info)
}

// appendBody appends a body, or a reference to it if it is large.
func (sh *shard) appendBody(out *reply.Output, j *job) {
	if j.size < pinnedSize {
		out.Buf = append(out.Buf, sh.body(j)...)
	} else {
		out.Bodies = append(out.Bodies, sh.pin(j, len(out.Buf)))
	}
	out.Buf = append(out.Buf, "\r\n"...)
}

// pin makes a reference to a job's body.
func (sh *shard) pin(j *job, at int) reply.Body {
	key := bodyKey{j.body, j.size}
	p := sh.pins[key]
	if p == nil {
		if sh.pins == nil {
			sh.pins = make(map[bodyKey]*pin)
		}
		p = &pin{shard: sh, key: key}
		sh.pins[key] = p
		if sh.residents != nil {
			sh.shared.loads.Sent(arena.Footprint(j.size))
		}
	}
	p.count++
	return reply.Body{At: at, Bytes: sh.body(j), Pin: p}
}

// pinOf is what keeps a body where it is, nil if nothing does.
func (sh *shard) pinOf(body ref, size uint32) *pin {
	if size < pinnedSize {
		return nil
	}
	return sh.pins[bodyKey{body, size}]
}

// freeBody frees a body, or leaves that to those who still refer to it.
func (sh *shard) freeBody(body ref, size uint32) {
	if p := sh.pinOf(body, size); p != nil {
		p.orphan = true
		return
	}
	sh.freeBlock(body, size)
}
