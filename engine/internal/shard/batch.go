package shard

import (
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/loads"
	"trellis/engine/internal/reply"
	"trellis/engine/internal/sliceheap"
	"trellis/engine/internal/weights"
)

// maxBatchBytes bounds the bodies in the reply to a reserve-batch, but for the first.
const maxBatchBytes = 8 << 20

// A batch is the jobs that a reserve-batch has reserved. The reply says first how many
// they are, so it is put together before any of it is sent; small bodies are copied a
// few at a time.
type batch struct {
	of       *Client
	informed bool // the client is told more of each job

	most  int
	jobs  []batchJob
	bytes int // of their bodies
	pos   journal.Pos
	whole bool  // no job may be left out
	cold  bool  // the body of one, which is still needed, was not in memory
	err   error // why one was given back, or buried if none was given back

	wait   *loads.Wait // that keeps in memory what was loaded; nil if nothing was
	untold bool        // the times to run of some jobs begin with the reply

	looked int    // jobs whose bodies were copied, or will be pinned
	data   []byte // the lines and bodies of small jobs
	small  int    // how many jobs are in data
	large  []largeJob
}

type batchJob struct {
	shard *shard
	id    uint64
}

// A largeJob stands behind data[:at]. Its body is pinned, and sent from where it lies, when
// the reply is whole.
type largeJob struct {
	batchJob
	at   int
	line []byte // that comes before the body
	body reply.Body
}

// A choice is the tubes from which a reserve-batch may take jobs, all of whose shards are locked.
type choice interface {
	// Next is the place in the watch list of the tube from which the next job is to be taken, -1 if there is none.
	Next() (place int)
	// Taken puts things right after the first job of that tube was taken.
	Taken()
}

// take reserves jobs of the watched tubes, whose shards are locked, as that many reserves would.
func (b *batch) take(c *Tx, by *weights.Weights) error {
	c.spend(len(b.of.watched) / watchesPerCost)
	var tubes choice
	if by != nil {
		tubes = by.Choice((*watchList)(b.of))
	} else {
		tubes = mostUrgent(b.of.watched)
	}
	for len(b.jobs) < b.most {
		place := tubes.Next()
		if place < 0 {
			break
		}
		t := b.of.watched[place].tube
		sh := t.shard
		r := t.candidate()
		j := sh.job(r)
		if len(b.jobs) > 0 && b.bytes+int(j.size) > maxBatchBytes {
			break
		}
		pos := sh.dependsOn(j.at())
		held, err := sh.reserve(b.of.set(), r, j)
		if err != nil {
			return err
		}
		b.pos = max(b.pos, pos, held)
		b.cold = b.cold || j.cold()
		b.bytes += int(j.size)
		b.jobs = append(b.jobs, batchJob{sh, j.ID})
		c.spend(1)
		tubes.Taken()
	}
	if b.cold {
		b.postpone(c)
	}
	return nil
}

// postpone has the times to run of all jobs begin when the client is told of them. Shards of all that were taken are
// locked.
func (b *batch) postpone(c *Tx) {
	for _, x := range b.jobs {
		if r, j := x.shard.find(x.id); c.held&x.shard.self != 0 && j != nil && x.shard.reservedBy(b.of.reserved, j) {
			x.shard.postpone(r, j)
		}
	}
}

// ReserveBatch is Reserve for up to so many jobs, as that many reserves in one moment would be, and returns what puts
// the reply together.
func (c *Tx) ReserveBatch(
	now clock.Time, cl *Client, until clock.Time, by *weights.Weights, informed bool, most int, out *reply.Output,
) (rest Work, waits bool, err error) {
	b := &batch{of: cl, informed: informed, most: most}
	set := cl.watchedShards | cl.reserved.set()
	c.lockAll(set, now)
	err = b.take(c, by)
	switch {
	case len(b.jobs) > 0:
		err = nil // without memory there are fewer
	case err == nil:
		waits, err = c.waitOr(now, cl, until, out)
	}
	c.unlockAll(set)
	return b, waits, err
}

// HandedBatch is ReserveBatch, and begins with the job of that id, for which the client has waited, and which the
// reply depends on pos. It returns nil if the client does not have the job any more.
func (c *Tx) HandedBatch(
	now clock.Time, cl *Client, by *weights.Weights, informed bool, most int, id uint64, pos journal.Pos,
) Work {
	sh, _, j := c.shared.lockJob(c, id, now)
	if sh == nil {
		return nil
	}
	has, size := sh.reservedBy(cl.reserved, j), int(j.size)
	sh.unlock(c)
	if !has {
		return nil
	}
	b := &batch{of: cl, informed: informed, most: most, jobs: []batchJob{{sh, id}}, bytes: size, pos: pos}
	c.lockAll(cl.watchedShards, now)
	_ = b.take(c, by) // without memory there are fewer
	c.unlockAll(cl.watchedShards)
	return b
}

// RepeatBatch returns what puts together the reply to a reserve-batch again that has reserved these jobs, as far as the
// client has them still; nil if it has none. The reply is the same if it has all and is not told more of them: then
// none may be left out any more, as the client may have a part of it.
func (c *Tx) RepeatBatch(now clock.Time, cl *Client, ids []uint64, informed bool) (rest Work, same bool) {
	b := &batch{of: cl, informed: informed}
	for _, id := range ids {
		if sh, _, j := c.shared.lockJob(c, id, now); sh != nil {
			if sh.reservedBy(cl.reserved, j) {
				b.jobs = append(b.jobs, batchJob{sh, id})
			}
			sh.unlock(c)
		}
		c.spend(1)
	}
	if len(b.jobs) == 0 {
		return nil, false
	}
	b.whole = !informed && len(b.jobs) == len(ids)
	return b, b.whole
}

// errBuried: no job of a batch is left, and some were buried. The client reserves others.
var errBuried = fmt.Errorf("%w, and the jobs of a batch are buried", journal.ErrUnreadable)

// errGone: a job of which the client may have been told is not there any more.
var errGone = errors.New("a job of a batch has gone")

// batchSlice is how many bytes of bodies are copied before others have their turn.
const batchSlice = 128 << 10

// Turn implements Work. It puts a part of the reply together, and appends it when it is whole. A job that has gone
// meanwhile is left out; it is an error if none may be.
func (b *batch) Turn(c *Tx, now clock.Time, out *reply.Output) (n int, more bool, err error) {
	if b.cold {
		b.cold = false
		if err := b.await(c, now); err != nil {
			return 0, false, err
		}
	}
	copied := 0
	for ; b.looked < len(b.jobs) && copied < batchSlice; b.looked++ {
		n, ok := b.copyJob(c, now, b.jobs[b.looked])
		if !ok {
			b.cold = true
			return b.Turn(c, now, out)
		}
		copied += n
	}
	c.spend(copied >> 10)
	if b.looked < len(b.jobs) {
		return 0, true, nil
	}
	if !b.pinLarge(c, now) {
		b.cold = true
		return b.Turn(c, now, out)
	}
	if n = b.small + len(b.large); b.whole && n < len(b.jobs) {
		for i := range b.large {
			b.large[i].body.Release()
		}
		return 0, false, errGone
	}
	if n == 0 && b.err == errBuried {
		out.DependOn(b.pos)
		return 0, false, errBuried
	}
	if n == 0 && b.err != nil {
		out.Answer(b.err, "")
		return 0, false, nil
	}
	if b.untold {
		b.beginRuns(c, now)
	}
	b.appendTo(out)
	return n, false, nil
}

// copyJob appends a job to the data, or notes where it belongs if its body is large. It returns false if the body is
// not in memory.
func (b *batch) copyJob(c *Tx, now clock.Time, x batchJob) (bytes int, ok bool) {
	sh := x.shard
	sh.lock(c, now)
	defer sh.unlock(c)
	switch r, j := sh.find(x.id); {
	case j == nil || !sh.reservedBy(b.of.reserved, j):
	case j.cold():
		return 0, b.without(c, sh, r, j)
	case j.size >= pinnedSize:
		b.large = append(b.large, largeJob{batchJob: x, at: len(b.data)})
	default:
		b.untold = b.untold || j.storage&isUntold != 0
		b.data = sh.appendReservedLine(b.data, j, b.informed)
		b.data = append(b.data, sh.body(j)...)
		b.data = append(b.data, "\r\n"...)
		b.small++
		return int(j.size), true
	}
	return 0, true
}

// beginRuns begins the times to run that were postponed: the client is told of the jobs now.
func (b *batch) beginRuns(c *Tx, now clock.Time) {
	var out reply.Output
	for _, x := range b.jobs {
		x.shard.lock(c, now)
		if r, j := x.shard.find(x.id); j != nil && x.shard.reservedBy(b.of.reserved, j) {
			x.shard.beginRun(r, j, &out)
		}
		x.shard.unlock(c)
	}
	b.pos = max(b.pos, out.Pos)
}

// pinLarge pins the bodies of large jobs. Those that have gone meanwhile are left out. It pins none and returns false
// if one is not in memory.
func (b *batch) pinLarge(c *Tx, now clock.Time) bool {
	held := b.large[:0]
	for at, x := range b.large {
		sh := x.shard
		sh.lock(c, now)
		r, j := sh.find(x.id)
		switch {
		case j == nil || !sh.reservedBy(b.of.reserved, j) || j.cold() && b.without(c, sh, r, j):
		case j.cold():
			sh.unlock(c)
			for i := range held {
				held[i].body.Release()
			}
			b.large = append(held, b.large[at:]...) // in place: each of those that are left is there once
			return false
		default:
			b.untold = b.untold || j.storage&isUntold != 0
			x.line = sh.appendReservedLine(nil, j, b.informed)
			x.body = sh.pin(j, 0)
			held = append(held, x)
		}
		sh.unlock(c)
	}
	b.large = held
	return true
}

// await has the bodies loaded that are still needed and not in memory. It returns the wait for them, or nil if all are
// in memory. What was loaded for the batch stays there until its wait is left: otherwise two halves of its bodies might
// take turns.
func (b *batch) await(c *Tx, now clock.Time) error {
	var list []journal.Fetch
	for i, x := range b.jobs {
		x.shard.lock(c, now)
		_, j := x.shard.find(x.id)
		if j != nil && j.cold() && x.shard.reservedBy(b.of.reserved, j) && (i >= b.looked || j.size >= pinnedSize) {
			list = append(list, j.fetch())
		}
		x.shard.unlock(c)
	}
	if len(list) == 0 {
		return nil
	}
	if b.wait == nil {
		b.wait = c.shared.loads.Wait(b.of.watched[0].waiter)
		b.wait.Need(int64(b.bytes))
	}
	b.wait.Add(list...)
	c.shared.sendLoads()
	return b.wait
}

// without leaves a job out if its body could not be loaded.
func (b *batch) without(c *Tx, sh *shard, r ref, j *job) bool {
	err := c.shared.loads.Failed(j.ID)
	if err == nil {
		return false
	}
	var out reply.Output
	if !sh.endUnread(r, j, err, &out) {
		b.err = err
	} else if b.err == nil {
		b.err = errBuried
	}
	b.pos = max(b.pos, out.Pos)
	return true
}

func (b *batch) appendTo(out *reply.Output) {
	out.DependOn(b.pos)
	out.Buf = codec.AppendCount(out.Buf, "RESERVED_BATCH", uint64(b.small+len(b.large)))
	sent := 0
	for _, x := range b.large {
		out.Buf = append(out.Buf, b.data[sent:x.at]...)
		sent = x.at
		out.Buf = append(out.Buf, x.line...)
		x.body.At = len(out.Buf)
		out.Bodies = append(out.Bodies, x.body)
		out.Buf = append(out.Buf, "\r\n"...)
	}
	out.Buf = append(out.Buf, b.data[sent:]...)
}

// firstJobs is a heap of watched tubes by their first ready jobs, the most urgent one first.
type firstJobs struct{ tubes []placedTube }

type placedTube struct {
	*tube
	place int
}

// mostUrgent chooses the most urgent job each time.
func mostUrgent(watched []subscription) *firstJobs {
	f := new(firstJobs)
	for i := range watched {
		if t := watched[i].tube; t.candidate() != 0 {
			f.tubes = append(f.tubes, placedTube{t, i})
			sliceheap.Up(f.tubes, sooner)
		}
	}
	return f
}

func sooner(a, b *placedTube) bool { return a.firstJob().sooner(b.firstJob()) }

// firstJob is the tube's first ready job.
func (t *tube) firstJob() *job { return t.shard.job(t.next()) }

// Next implements choice.
func (f *firstJobs) Next() (place int) {
	if len(f.tubes) == 0 {
		return -1
	}
	return f.tubes[0].place
}

// Taken implements choice.
func (f *firstJobs) Taken() {
	if h := f.tubes; h[0].candidate() == 0 {
		last := len(h) - 1
		h[0], h[last] = h[last], placedTube{}
		f.tubes = h[:last]
	}
	sliceheap.Down(f.tubes, sooner)
}
