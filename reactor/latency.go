package reactor

import (
	"math/bits"
	"sync"
	"time"

	"trellis/codec"
	"trellis/engine/histogram"
)

// Latency is how long commands took from when they had been read until their
// replies were written, or kept because the client does not take them. What
// cannot be executed when it is read, because a command before it waits or others
// have their turn, is counted from when it can.
type Latency struct {
	// Answered are the commands that were answered without waiting for a job.
	Answered [codec.NumCommands]histogram.Histogram
	// Waited are those that did wait, until they had one or their time was over; also each
	// reserve-batch that found so much that others had their turn before it was answered.
	Waited [codec.NumCommands]histogram.Histogram
}

// Latency sums up how long commands took. Any goroutine may call it. A loop waits
// for it as long as it takes to copy that loop's numbers.
func (s *Server) Latency() *Latency {
	sum := new(Latency)
	for _, l := range s.loops {
		l.latency.addTo(sum)
	}
	return sum
}

// latency is what a loop's commands took.
type latency struct {
	mu   sync.Mutex
	seen Latency // guarded by mu
}

func (y *latency) addTo(sum *Latency) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for op := range codec.NumCommands {
		sum.Answered[op].Add(&y.seen.Answered[op])
		sum.Waited[op].Add(&y.seen.Waited[op])
	}
}

// answered counts the commands of a batch, whose replies have just been written,
// and empties it.
func (y *latency) answered(b *batch, now time.Duration) {
	if b.commands == 0 {
		return
	}
	d := now - b.began
	y.mu.Lock()
	for set := b.commands &^ (1 << noCommand); set != 0; set &= set - 1 {
		op := bits.TrailingZeros64(set)
		y.seen.Answered[op].Observe(d, uint64(b.counts[op]))
		b.counts[op] = 0
	}
	y.mu.Unlock()
	b.commands = 0
}

// waited counts a command that has waited.
func (y *latency) waited(op codec.Op, d time.Duration) {
	y.mu.Lock()
	y.seen.Waited[op].Observe(d, 1)
	y.mu.Unlock()
}

// batch is commands whose replies leave together, so that they take the same
// time. Counting one costs next to nothing; the rest is done once for all.
//
// With a journal, that is the commands of a round: their time begins with the
// first of them, when the others had arrived too.
type batch struct {
	began    time.Duration                 // when the first command was read
	commands uint64                        // the set of them, a bit for each
	counts   [codec.NumCommands + 1]uint32 // of those in the set
}

// noCommand stands for answers to what was no command.
const noCommand = codec.NumCommands

// counted is the command that an event of the decoder counts as.
var counted = func() (c [256]codec.Op) {
	for op := range c {
		c[op] = min(codec.Op(op), noCommand)
	}
	c[codec.OpPutEnd] = codec.OpPut
	c[codec.OpPutTooBigEnd] = codec.OpPut
	c[codec.OpDrainStatus] = codec.OpDrain
	c[codec.OpStatsOwnConn] = codec.OpStatsConn
	return c
}()

// begin notes when the commands that are added next were read.
func (b *batch) begin(now time.Duration) {
	if b.commands == 0 {
		b.began = now
	}
}

func (b *batch) add(op codec.Op) {
	op = counted[op]
	b.commands |= 1 << op
	b.counts[op]++
}

// take adds the commands of another batch, which it empties.
func (b *batch) take(o *batch) {
	b.begin(o.began)
	b.commands |= o.commands
	for set := o.commands; set != 0; set &= set - 1 {
		op := bits.TrailingZeros64(set)
		b.counts[op] += o.counts[op]
		o.counts[op] = 0
	}
	o.commands = 0
}
