package engine

import (
	"fmt"
	"runtime"
	"testing"

	"trellis/codec"
	"trellis/engine/internal/shard"
)

// BenchmarkMillionSessions is the cost of a hand-over, and of a cycle by one
// client, in an engine that has a million sessions: idle, or waiting in a thousand
// tubes. It reports what each of those takes of memory.
func BenchmarkMillionSessions(b *testing.B) {
	const sessions, tubes = 1_000_000, 1000
	for _, waiting := range []bool{false, true} {
		b.Run(map[bool]string{false: "idle", true: "waiting"}[waiting], func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			p := newPlant(b, 1)
			l := p.loops[0]
			all := make([]Session, sessions)
			var out Output
			names := make([][]byte, tubes)
			for i := range names {
				names[i] = fmt.Append(nil, "tube", i)
			}
			for i := range all {
				s := &all[i]
				l.Open(s, l.now)
				if !waiting {
					continue
				}
				out.Buf = out.Buf[:0]
				s.Execute(l.now, &codec.Command{Op: codec.OpWatch, Weight: 1, Tube: names[i%tubes]}, &out)
				s.Execute(l.now, &codec.Command{Op: codec.OpIgnore, Tube: []byte(shard.DefaultTube)}, &out)
				if s.Execute(l.now, &codec.Command{Op: codec.OpReserveWithTimeout, Timeout: 1e9}, &out) != Wait {
					b.Fatalf("%q", out.Buf)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			producer, worker := p.client(0), p.client(0)
			reserve := &codec.Command{Op: codec.OpReserveWithTimeout, Timeout: 1e9}
			b.ReportAllocs()
			for b.Loop() {
				if worker.do(reserve) != Wait {
					b.Fatalf("%q", worker.out.Buf)
				}
				producer.put(0, 0)
				worker.loop.pull(producer.loop.now)
				worker.delete(worker.replyID())
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/sessions, "B/session")
			runtime.KeepAlive(all)
		})
	}
}
