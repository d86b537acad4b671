package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
)

// Barrier is a further method of a [Journal] that other servers share, one of which may
// take over. There the commit of a record proves that the record is safe; but a reply
// that only shows state may come from a server that does not know yet that it was
// replaced, and the state may be another one by now.
type Barrier interface {
	// Barrier returns a position that is committed only if this server was not
	// replaced when Barrier was called, and only when all that was recorded before is
	// committed. Like the methods of Journal it does not wait.
	Barrier() journal.Pos
}

// ownOps are the commands whose replies show nothing that other clients can change,
// apart from what the command itself has recorded. All others are assumed to.
var ownOps = [256]bool{
	codec.OpPut: true, codec.OpPutBegin: true, codec.OpPutChunk: true, codec.OpPutEnd: true,
	codec.OpPutTooBig: true, codec.OpPutTooBigEnd: true,
	codec.OpUse: true, codec.OpWatch: true, codec.OpIgnore: true,
	codec.OpListTubeUsed: true, codec.OpListTubesWatched: true,
	codec.OpQuit: true, codec.OpUnknown: true, codec.OpBadFormat: true,
}

// observes notes that the replies may tell of a state that all clients share. It comes
// before the command is executed, because a record that the command makes then proves
// that state.
func (o *Output) observes() { o.observed = true }

// proves notes a record of a command's own. It stands behind everything that the replies
// tell of, so that its commit is proof of that too.
func (o *Output) proves(pos journal.Pos) {
	o.dependOn(pos)
	o.observed = false
}

// Barrier completes out.Pos. It is called once for the replies in out, before they are
// sent or kept, and makes them depend on the journal's barrier if they tell of a state
// that clients share and no record behind that state proves it already. Without a
// [Barrier] it does nothing.
func (l *Loop) Barrier(out *Output) {
	if b := l.engine.barrier; b != nil && out.observed {
		out.dependOn(b.Barrier())
	}
	out.observed = false
}

// recordIn makes changes go into a journal, nil for none.
func (e *Engine) recordIn(j Journal) {
	e.cfg.Journal = j
	e.barrier, _ = j.(Barrier)
}
