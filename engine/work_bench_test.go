package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"trellis/codec"
	"trellis/engine/internal/clock"
	"trellis/engine/internal/fifo"
	"trellis/engine/internal/shard"
)

// putTagged puts a job with tags, in a batch of its own, and returns its id.
func (c *plantClient) putTagged(tags *codec.Tags, body []byte) uint64 {
	c.must(&codec.Command{
		Op: codec.OpPut, TTR: 1e9, Size: uint32(len(body)), Body: body, Terminated: true, Tags: tags,
	}, "INSERTED ")
	c.loop.tx.EndRound()
	return c.replyID()
}

// BenchmarkTags is a put and a delete of a job with a tag each, beside one that has none.
func BenchmarkTags(b *testing.B) {
	named := func(i int) []byte { return fmt.Appendf(nil, "billing/invoices-%d", i) }
	for _, x := range []struct {
		name string
		tags func(i int) *codec.Tags
	}{
		{"none", func(int) *codec.Tags { return nil }},
		{"idp", func(i int) *codec.Tags { return &codec.Tags{Unique: named(i)} }},
		{"con", func(int) *codec.Tags { return &codec.Tags{Limited: named(0), Limit: 9} }},
		{"fair", func(int) *codec.Tags { return &codec.Tags{Fair: named(0)} }},
		{"exp", func(int) *codec.Tags { return &codec.Tags{Expires: 1e9, HasExpiry: true} }},
		{"grp, one group", func(int) *codec.Tags { return &codec.Tags{Group: named(0)} }},
		{"grp, a group each", func(i int) *codec.Tags { return &codec.Tags{Group: named(i)} }},
		{"aft", func(i int) *codec.Tags { return &codec.Tags{After: named(i)} }},
	} {
		b.Run(x.name, func(b *testing.B) {
			p := newPlant(b, 1)
			c := p.client(0)
			var tags [benchRound]*codec.Tags
			for i := range tags {
				tags[i] = x.tags(i)
			}
			c.putTagged(tags[0], smallBody) // a group that has one member already
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				c.delete(c.putTagged(tags[i%benchRound], smallBody))
			}
			b.StopTimer()
			p.engine.Discard()
		})
	}
}

// A stopwatch knows the longest of some times.
type stopwatch struct{ longest time.Duration }

func (w *stopwatch) time(f func()) {
	began := time.Now()
	f()
	w.longest = max(w.longest, time.Since(began))
}

// rounds has the loop go on until done tells that all is, and times each round. A nanosecond passes
// between them.
func (l *plantLoop) rounds(w *stopwatch, done func() bool) {
	for !done() {
		l.now++
		w.time(func() { l.pull(l.now) })
	}
}

// BenchmarkFiring deletes the last of a million members of a group for which 100,000 jobs in 16
// tubes are held, and goes on until these are ready.
func BenchmarkFiring(b *testing.B) {
	const members, waiting, tubes = 1_000_000, 100_000, 16
	group := []byte("g")
	for range b.N {
		b.StopTimer()
		p := newPlant(b, 1)
		c := p.client(0)
		var puts, rounds stopwatch
		last := uint64(0)
		for range members {
			puts.time(func() { last = c.putTagged(&codec.Tags{Group: group}, nil) })
		}
		b.ReportMetric(float64(puts.longest.Microseconds()), "µs-longest-put")
		puts = stopwatch{}
		for i := range waiting {
			if i%(waiting/tubes) == 0 {
				c.must(&codec.Command{Op: codec.OpUse, Tube: fmt.Append(nil, "tube", i)}, "USING")
			}
			puts.time(func() { c.putTagged(&codec.Tags{After: group}, nil) })
		}
		b.ReportMetric(float64(puts.longest.Microseconds()), "µs-longest-put-held")
		puts = stopwatch{}
		for id := last - members + 1; id < last; id++ {
			puts.time(func() { c.delete(id) })
		}
		b.ReportMetric(float64(puts.longest.Microseconds()), "µs-longest-delete")
		b.StartTimer()
		rounds.time(func() { c.delete(last) })
		p.loops[0].rounds(&rounds, func() bool { return p.engine.Snapshot(0).Held == 0 })
		b.StopTimer()
		b.ReportMetric(float64(rounds.longest.Microseconds()), "µs-longest-round")
		p.engine.Discard()
	}
}

// set gives a tube one setting, and names a dead tube unless dead is empty.
func (c *plantClient) set(tube, dead string, key codec.TubeKey, value uint32) {
	pairs := &codec.Pairs{Per: 1}
	pairs.Given[key], pairs.Values[key] = true, value
	cmd := &codec.Command{Op: codec.OpSetTube, Tube: []byte(tube), Pairs: pairs}
	if dead != "" {
		pairs.Given[codec.KeyDead] = true
		cmd.To = []byte(dead)
	}
	c.must(cmd, "TUBE_SET")
}

// BenchmarkExpiry is a million jobs of one tube that expire within 0.4 s.
func BenchmarkExpiry(b *testing.B) {
	const jobs, within = 1_000_000, 400 * clock.Second / 1000
	for _, dead := range []string{"", "dead"} {
		b.Run(map[string]string{"": "deleted", "dead": "buried"}[dead], func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				p := newPlant(b, 1)
				c, l := p.client(0), p.loops[0]
				c.must(&codec.Command{Op: codec.OpUse, Tube: []byte("tube")}, "USING")
				c.set("tube", dead, codec.KeyExpire, 1000)
				began := l.now
				for i := range Time(jobs) {
					l.now = began + i*within/jobs
					c.putTagged(nil, nil)
				}
				var rounds stopwatch
				l.now += 1000 * clock.Second
				b.StartTimer()
				l.rounds(&rounds, func() bool { return p.engine.Snapshot(0).Ready == 0 })
				b.StopTimer()
				b.ReportMetric(float64(rounds.longest.Microseconds()), "µs-longest-round")
				p.engine.Discard()
			}
		})
	}
}

// BenchmarkStatsOfTubes lists 10,000 tubes with a job each, a thousand at a time.
func BenchmarkStatsOfTubes(b *testing.B) {
	const tubes, page = 10_000, 1000
	p := newPlant(b, 1)
	c, l := p.client(0), p.loops[0]
	for i := range tubes {
		c.must(&codec.Command{Op: codec.OpUse, Tube: fmt.Append(nil, "tube", i)}, "USING")
		c.put(0, 0)
	}
	b.ReportAllocs()
	var rounds stopwatch
	for b.Loop() {
		after := []byte("default")
		for range tubes / page {
			ended := false
			l.now++
			rounds.time(func() {
				ended = c.do(&codec.Command{Op: codec.OpStatsTubes, Bound: page, Tube: after}) == Done
			})
			for !ended {
				l.Refill()
				l.now++
				rounds.time(func() {
					for s := l.Next(l.now); s != nil; s = l.Next(l.now) {
						ended = s.Resume(l.now, &c.out) == Done
					}
				})
			}
			names := bytes.Split(c.out.Buf, []byte("- name: \""))
			after, _, _ = bytes.Cut(names[len(names)-1], []byte("\""))
			if len(names) != page+1 {
				b.Fatal(len(names)-1, "tubes")
			}
		}
	}
	b.ReportMetric(float64(rounds.longest.Microseconds()), "µs-longest-round")
	b.StopTimer()
	p.engine.Discard()
}

// BenchmarkMaxReserved has a thousand workers share ten places in a tube: who has a job deletes it,
// the worker that has waited longest has the next, and the former waits again.
func BenchmarkMaxReserved(b *testing.B) {
	const workers, places = 1000, 10
	p := newPlant(b, 1)
	l := p.loops[0]
	producer := p.client(0)
	producer.set(shard.DefaultTube, "", codec.KeyMaxReserved, places)
	reserve := &codec.Command{Op: codec.OpReserve}
	var working fifo.Queue[*plantClient]
	for i := range workers {
		producer.put(0, 0)
		if c := p.client(0); (c.do(reserve) == Done) != (i < places) {
			b.Fatalf("worker %d: %q", i, c.out.Buf)
		} else if i < places {
			working.Push(c)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		producer.put(0, 0)
		c := working.Pop()
		c.delete(c.replyID())
		l.Refill()
		next := (*plantClient)(unsafe.Pointer(l.Next(l.now)))
		next.out.Buf = next.out.Buf[:0]
		if next.session.Resume(l.now, &next.out); next.replyID() == 0 {
			b.Fatalf("%q", next.out.Buf)
		}
		working.Push(next)
		if c.do(reserve) != Wait {
			b.Fatalf("%q", c.out.Buf)
		}
	}
	b.StopTimer()
	if n := p.engine.Snapshot(l.now).Reserved; n != places {
		b.Fatalf("%d jobs are reserved", n)
	}
	p.engine.Discard()
}

// Who puts one job a second is served as soon as a worker is free, however many another has put.
func TestAKeyWithFewJobsDoesNotWaitForOneWithMany(t *testing.T) {
	const workers, work, longest = 10, 10 * clock.Second / 1000, 30 * clock.Second / 1000
	many, few := 20_000, 12
	if proof {
		many, few = 100_000, 60
	}
	p := newPlant(t, 1)
	loop, producer := p.loops[0], p.client(0)
	put := func(key string) uint64 {
		producer.must(&codec.Command{Op: codec.OpPut, TTR: 100, Terminated: true, Tags: &codec.Tags{Fair: []byte(key)}}, "INSERTED ")
		return producer.replyID()
	}
	for range many {
		put("a")
	}
	type worker struct {
		*plantClient
		job  uint64
		free Time
	}
	crew := make([]worker, workers)
	for i := range crew {
		crew[i].plantClient, crew[i].free = p.client(0), loop.now+Time(i)*clock.Second/1000
	}
	since := map[uint64]Time{}
	served := 0
	for next := loop.now + clock.Second; served < few; {
		w := slices.MinFunc(crew, func(a, b worker) int { return cmp.Compare(a.free, b.free) })
		if loop.now = max(loop.now, min(next, w.free)); next <= w.free {
			since[put("b")] = loop.now
			next += clock.Second + clock.Second/977
			continue
		}
		i := slices.IndexFunc(crew, func(o worker) bool { return o.plantClient == w.plantClient })
		if w.job != 0 {
			w.delete(w.job)
		}
		crew[i].job = w.reserve()
		crew[i].free = loop.now + work
		if at, ok := since[crew[i].job]; ok {
			served++
			if waited := loop.now - at; waited > longest {
				t.Fatalf("a job has waited for %d ns", waited)
			}
		}
	}
}

// BenchmarkKeyedCycle compares the cost of fair keys with that of limited ones.
func BenchmarkKeyedCycle(b *testing.B) {
	for _, kind := range []struct {
		name string
		tags func(key []byte) *codec.Tags
	}{
		{"con", func(key []byte) *codec.Tags { return &codec.Tags{Limited: key, Limit: 1000} }},
		{"fair", func(key []byte) *codec.Tags { return &codec.Tags{Fair: key} }},
	} {
		for _, keys := range []int{1, 100_000} {
			b.Run(fmt.Sprint(kind.name, "/", keys), func(b *testing.B) {
				p := newPlant(b, 1)
				c := p.client(0)
				tags := make([]*codec.Tags, keys)
				for i := range tags {
					tags[i] = kind.tags(fmt.Appendf(nil, "key-%d", i))
				}
				put := func(i int) {
					c.must(&codec.Command{
						Op: codec.OpPut, TTR: 1e9, Size: uint32(len(smallBody)), Body: smallBody, Terminated: true, Tags: tags[i%keys],
					}, "INSERTED ")
					c.loop.tx.EndRound()
				}
				for i := range 2 * keys {
					put(i)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					put(i * 7919)
					c.delete(c.reserve())
					i++
				}
				b.StopTimer()
				p.engine.Discard()
			})
		}
	}
}

// BenchmarkReserveAmongTubes reserves and deletes among ten tubes with jobs.
func BenchmarkReserveAmongTubes(b *testing.B) {
	for name, mode := range map[string]codec.Mode{"fifo": codec.FIFO, "weighted": codec.Weighted, "weighted-fair": codec.WeightedFair} {
		b.Run(name, func(b *testing.B) {
			p := newPlant(b, 1)
			c := p.client(0)
			c.must(&codec.Command{Op: codec.OpReserveMode, Mode: mode}, "USING")
			for i := range 10 {
				tube := []byte(fmt.Sprint("tube", i))
				c.must(&codec.Command{Op: codec.OpWatch, Tube: tube, Weight: uint32(1 + i)}, "WATCHING")
				c.must(&codec.Command{Op: codec.OpUse, Tube: tube}, "USING")
				for range 100 {
					c.put(0, 0)
				}
			}
			c.must(&codec.Command{Op: codec.OpIgnore, Tube: []byte(shard.DefaultTube)}, "WATCHING")
			b.ReportAllocs()
			for b.Loop() {
				id := c.reserve()
				c.must(&codec.Command{Op: codec.OpRelease, ID: id}, "RELEASED")
			}
			b.StopTimer()
			p.engine.Discard()
		})
	}
}
