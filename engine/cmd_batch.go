package engine

import (
	"trellis/binlog/journal"
	"trellis/codec"
)

// maxBatchBytes bounds the bodies in the reply to a reserve-batch, but for the first.
const maxBatchBytes = 8 << 20

// reserveBatch takes up to as many ready jobs as the command asks for, as that many
// reserves in one moment would, or waits for the first one.
func (s *Session) reserveBatch(now Time, cmd *codec.Command, out *Output) Outcome {
	until := now
	if cmd.Timeout > 0 {
		until += seconds(cmd.Timeout)
	}
	return s.reserveUpTo(int(cmd.Bound), now, until, out)
}

func (s *Session) reserveUpTo(count int, now, until Time, out *Output) Outcome {
	s.becomeWorker()
	set := s.watchedShards | s.reserved.set()
	s.lockAll(set, now)
	b := &batch{most: count}
	err := b.take(s)
	outcome := Done
	switch {
	case len(b.jobs) > 0:
	case err != nil:
		out.reply(codec.ReplyOutOfMemory)
	default:
		outcome = s.waitOr(count, now, until, out)
	}
	s.unlockAll(set)
	if len(b.jobs) == 0 {
		return outcome
	}
	if outcome = b.turn(s, now, out); outcome == Wait {
		s.wait.since = now // see WaitingSince
	}
	return outcome
}

// handedBatch goes on with a reserve-batch that has waited for the job with the given id.
func (s *Session) handedBatch(sh *shard, id uint64, size uint32, count int, now Time, out *Output) Outcome {
	b := &batch{most: count, jobs: []batchJob{{sh, id}}, bytes: int(size)}
	b.pos = s.wait.pos
	s.lockAll(s.watchedShards, now)
	_ = b.take(s) // without memory there are fewer
	s.unlockAll(s.watchedShards)
	return b.turn(s, now, out)
}

// A batch is the jobs that a reserve-batch has reserved. The reply says first how many
// they are, so it is put together before any of it is sent; small bodies are copied a
// few at a time.
type batch struct {
	most  int
	jobs  []batchJob
	bytes int // of their bodies
	pos   journal.Pos
	whole bool // the client may have a part of the reply, so that no job may be left out

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
	body Body
}

// A choice is the tubes from which a reserve-batch may take jobs, all of whose shards are locked.
type choice interface {
	// next is the tube from which the next job is to be taken, nil if there is none.
	next() *tube
	// taken puts things right after the first job of that tube was taken.
	taken()
}

// take reserves jobs of the watched tubes, whose shards are locked, as that many reserves would.
func (b *batch) take(s *Session) error {
	s.loop.budget -= len(s.watched) / watchesPerCost
	var tubes choice
	if s.flags&isWeighted != 0 {
		tubes = s.loop.weights[s].choice(s.watched)
	} else {
		tubes = mostUrgent(s.watched)
	}
	for len(b.jobs) < b.most {
		t := tubes.next()
		if t == nil {
			break
		}
		sh := t.shard
		r := t.candidate()
		j := sh.job(r)
		if len(b.jobs) > 0 && b.bytes+int(j.size) > maxBatchBytes {
			break
		}
		pos := sh.dependsOn(j.at())
		held, err := sh.reserve(s.reservationSet(), r, j)
		if err != nil {
			return err
		}
		b.pos = max(b.pos, pos, held)
		b.bytes += int(j.size)
		b.jobs = append(b.jobs, batchJob{sh, j.ID})
		s.loop.budget--
		tubes.taken()
	}
	return nil
}

// batchSlice is how many bytes of bodies are copied before others have their turn.
const batchSlice = 128 << 10

// turn puts a part of the reply together, and sends it when it is whole. A job that has
// gone meanwhile is left out.
func (b *batch) turn(s *Session, now Time, out *Output) Outcome {
	l := s.loop
	n, copied := len(b.jobs), 0
	for ; b.looked < n && copied < batchSlice; b.looked++ {
		copied += b.copyJob(s, now, b.jobs[b.looked])
	}
	l.Spend(copied >> 10)
	if b.looked < n {
		return s.yield(b)
	}
	b.pinLarge(s, now)
	if b.whole && b.small+len(b.large) < n {
		for i := range b.large {
			b.large[i].body.Release()
		}
		return Quit
	}
	b.reply(out)
	return Done
}

// copyJob appends a job to the data, or notes where it belongs if its body is large.
func (b *batch) copyJob(s *Session, now Time, x batchJob) (bytes int) {
	sh := x.shard
	sh.lock(&s.loop.locks, now)
	defer sh.unlock(&s.loop.locks)
	switch _, j := sh.find(x.id); {
	case j == nil || !sh.reservedBy(s.reserved, j):
	case j.size >= pinnedSize:
		b.large = append(b.large, largeJob{batchJob: x, at: len(b.data)})
	default:
		b.data = s.appendReservedLine(b.data, sh, j)
		b.data = append(b.data, sh.body(j)...)
		b.data = append(b.data, "\r\n"...)
		b.small++
		return int(j.size)
	}
	return 0
}

// pinLarge pins the bodies of large jobs. Those that have gone meanwhile are left out.
func (b *batch) pinLarge(s *Session, now Time) {
	held := b.large[:0]
	for _, x := range b.large {
		sh := x.shard
		sh.lock(&s.loop.locks, now)
		if _, j := sh.find(x.id); j != nil && sh.reservedBy(s.reserved, j) {
			x.line = s.appendReservedLine(nil, sh, j)
			x.body = sh.pin(j, 0)
			held = append(held, x)
		}
		sh.unlock(&s.loop.locks)
	}
	b.large = held
}

func (b *batch) reply(out *Output) {
	out.dependOn(b.pos)
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

// firstJobs is a heap of tubes by their first ready jobs, the most urgent one first.
type firstJobs struct{ tubes []*tube }

// mostUrgent chooses the most urgent job each time.
func mostUrgent(watched []subscription) *firstJobs {
	f := new(firstJobs)
	for i := range watched {
		if t := watched[i].tube; t.candidate() != 0 {
			f.tubes = append(f.tubes, t)
			heapUp(f.tubes, sooner)
		}
	}
	return f
}

func sooner(a, b **tube) bool { return (*a).firstJob().sooner((*b).firstJob()) }

// firstJob is the tube's first ready job.
func (t *tube) firstJob() *job { return t.shard.job(t.next()) }

func (f *firstJobs) next() *tube {
	if len(f.tubes) == 0 {
		return nil
	}
	return f.tubes[0]
}

func (f *firstJobs) taken() {
	if h := f.tubes; h[0].candidate() == 0 {
		last := len(h) - 1
		h[0], h[last] = h[last], nil
		f.tubes = h[:last]
	}
	heapDown(f.tubes, sooner)
}
