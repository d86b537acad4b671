package latency

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

// Recorder has what the commands of one loop took. Its methods may be called from any goroutine. Its zero value is
// empty.
type Recorder struct {
	mu   sync.Mutex
	seen Latency // guarded by mu
}

// AddTo adds it to sum.
func (r *Recorder) AddTo(sum *Latency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for op := range codec.NumCommands {
		sum.Answered[op].Add(&r.seen.Answered[op])
		sum.Waited[op].Add(&r.seen.Waited[op])
	}
}

// Answered counts the commands of a batch, whose replies have just been written,
// and empties it.
func (r *Recorder) Answered(b *Batch, now time.Duration) {
	if b.commands == 0 {
		return
	}
	d := now - b.began
	r.mu.Lock()
	for set := b.commands &^ (1 << noCommand); set != 0; set &= set - 1 {
		op := bits.TrailingZeros64(set)
		r.seen.Answered[op].Observe(d, uint64(b.counts[op]))
		b.counts[op] = 0
	}
	r.mu.Unlock()
	b.commands = 0
}

// Waited counts a command that has waited.
func (r *Recorder) Waited(op codec.Op, d time.Duration) {
	r.mu.Lock()
	r.seen.Waited[op].Observe(d, 1)
	r.mu.Unlock()
}

// Batch is commands whose replies leave together, so that they take the same
// time. Counting one costs next to nothing; the rest is done once for all.
//
// With a journal, that is the commands of a round: their time begins with the
// first of them, when the others had arrived too. Its zero value is empty.
type Batch struct {
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

// Begin notes when the commands that are added next were read.
func (b *Batch) Begin(now time.Duration) {
	if b.commands == 0 {
		b.began = now
	}
}

// Add adds a command, or an event of the decoder that counts as one.
func (b *Batch) Add(op codec.Op) {
	op = counted[op]
	b.commands |= 1 << op
	b.counts[op]++
}

// Take adds the commands of another batch, which it empties.
func (b *Batch) Take(o *Batch) {
	b.Begin(o.began)
	b.commands |= o.commands
	for set := o.commands; set != 0; set &= set - 1 {
		op := bits.TrailingZeros64(set)
		b.counts[op] += o.counts[op]
		o.counts[op] = 0
	}
	o.commands = 0
}
