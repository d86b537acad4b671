package shard

import (
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/reply"
)

// putKeys are the keys and terms of a put in one piece of memory. One that is done at once has
// those of its loop, of which the job gets a copy.
type putKeys struct {
	journal.Keys
	terms journal.Terms
}

// set makes them those of tags. It returns nil if there are none.
func (k *putKeys) set(t *codec.Tags) *journal.Keys {
	k.Keys = journal.Keys{
		Unique: string(t.Unique), Seconds: t.Seconds,
		Limited: string(t.Limited), Limit: t.Limit,
	}
	k.terms = journal.Terms{
		Fair: string(t.Fair), Group: string(t.Group), After: string(t.After), Settled: t.Settled, Expires: t.Expires,
	}
	if k.terms != (journal.Terms{}) {
		k.Terms = &k.terms
	}
	if k.Keys == (journal.Keys{}) {
		return nil
	}
	return &k.Keys
}

// copy makes them those of keys, which may be nil, or be these.
func (k *putKeys) copy(keys *journal.Keys) *journal.Keys {
	if keys == nil {
		*k = putKeys{}
	} else if k.Keys = *keys; k.Terms != nil {
		k.terms, k.Terms = *k.Terms, &k.terms
	} else {
		k.terms = journal.Terms{}
	}
	return &k.Keys
}

// errDuplicate: a put was answered, because its unique key has a holder.
var errDuplicate = errors.New("the unique key has a holder")

// findDuplicate answers a put whose unique key has a holder, and gives that the put's
// priority if it is more urgent. It returns errDuplicate then, or why the priority could not
// be changed, and nil if the key is free.
func (c *Tx) findDuplicate(t *tube, in *Incoming, out *reply.Output) error {
	sh := t.shard
	k := sh.holder(t.name, in.keys.Unique)
	if k == nil {
		return nil
	}
	r, j := sh.find(k.id)
	if j.state == tombstone && j.at() <= sh.now {
		sh.loseKey(k)
		return nil
	}
	out.ShowsState()
	out.DependOn(sh.dependsOn(sh.now))
	if j.state != tombstone && in.pri < j.pri {
		if err := sh.raise(r, j, in.pri, out); err != nil {
			return err
		}
		out.Buf = codec.AppendRaised(out.Buf, j.ID, duplicateStates[j.state], in.pri)
	} else {
		out.Buf = codec.AppendDuplicate(out.Buf, j.ID, duplicateStates[j.state])
	}
	sh.totals.duplicates++
	return errDuplicate
}

// duplicateStates are the words for a holder's state.
var duplicateStates = [numStates]string{
	ready: "READY", reserved: "RESERVED", buried: "BURIED", delayed: "DELAYED", held: "DELAYED", tombstone: "DELETED",
}

// AppendCommand appends the line that begins such a put, without the end of the line. It returns false if there was no
// memory for the put, whose body is discarded.
func (in *Incoming) AppendCommand(b []byte) (_ []byte, ok bool) {
	if in.id == 0 {
		return b, false
	}
	b = fmt.Appendf(b, "put %d %d %d %d", in.pri, in.delay, in.ttr, in.size)
	return in.appendTags(b), true
}

// appendTags appends the tags of a put.
func (in *Incoming) appendTags(b []byte) []byte {
	if in.timed && (in.keys == nil || in.keys.Terms == nil) {
		b = append(b, " exp:0"...)
	}
	k := in.keys
	if k == nil {
		return b
	}
	if k.Unique != "" {
		b = fmt.Appendf(b, " idp:%s:%d", k.Unique, k.Seconds)
	}
	if k.Limited != "" {
		b = fmt.Appendf(b, " con:%s:%d", k.Limited, k.Limit)
	}
	t := k.Terms
	if t == nil {
		return b
	}
	for _, x := range [...]struct{ tag, name string }{{" fair:", t.Fair}, {" grp:", t.Group}, {" aft:", t.After}} {
		if x.name != "" {
			b = append(append(b, x.tag...), x.name...)
		}
	}
	if t.Settled {
		b = append(b, ":settled"...)
	}
	if in.timed {
		b = fmt.Appendf(b, " exp:%d", t.Expires)
	}
	return b
}
