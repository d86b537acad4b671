package reactor

import (
	"trellis/binlog/journal"
	"trellis/engine"
	"trellis/reactor/internal/trunk"
)

// pong is the answer to a ping of a gateway's. It proves that this server led when the ping had come, so it
// waits for the journal, as replies do.
type pong struct {
	to        *leaderEnd
	number    uint32
	dependsOn journal.Pos
}

// ping answers a ping as soon as that is proven.
func (e *leaderEnd) ping(number uint32) {
	l := e.loop
	if l.server.engine.Load() == nil || e.pings == maxPings {
		return
	}
	var pos journal.Pos
	if b, ok := l.journal.(engine.Barrier); ok {
		pos = b.Barrier()
	}
	if !l.mustWait(pos) {
		e.pong(number)
		return
	}
	e.pings++
	l.awaitsCommit()
	l.commits.pongs.Push(pong{e, number, pos})
}

func (e *leaderEnd) pong(number uint32) {
	e.say(trunk.Item{Kind: trunk.KindPong, Number: number})
}

// answerPings answers the pings whose answers need not wait any more, and drops those that always would.
func (k *commits) answerPings() {
	failing := k.failing.Load()
	for !k.pongs.Empty() && (failing || k.pongs.First().dependsOn <= k.committed) {
		p := k.pongs.Pop()
		p.to.pings--
		if !failing {
			p.to.pong(p.number)
		}
	}
}
