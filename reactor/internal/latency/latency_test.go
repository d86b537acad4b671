package latency

import (
	"testing"
	"time"

	"trellis/codec"
)

func TestABatchBeginsWithItsFirstCommand(t *testing.T) {
	t.Parallel()
	var r Recorder
	var t1, t2 Batch
	t1.Begin(10)
	t1.Add(codec.OpUnknown)
	r.Answered(&t1, 11)
	t1.Begin(20)
	t1.Add(codec.OpUse)
	t1.Begin(25)
	t1.Add(codec.OpWatch)
	t2.Take(&t1)
	t1.Begin(30)
	t1.Add(codec.OpWatch)
	t1.Add(codec.OpPutBegin)
	t2.Take(&t1)
	r.Answered(&t1, 1000)
	r.Answered(&t2, 40)
	r.Answered(&t2, 1000)
	seen := &r.seen.Answered
	if use, watch := &seen[codec.OpUse], &seen[codec.OpWatch]; use.Count() != 1 || watch.Count() != 2 || use.Sum != 20 || watch.Sum != 40 {
		t.Errorf("use: %d in %v, watch: %d in %v", use.Count(), use.Sum, watch.Count(), watch.Sum)
	}
	for op := range codec.NumCommands {
		if n := seen[op].Count(); n > 0 && op != codec.OpUse && op != codec.OpWatch {
			t.Errorf("%v: %d", op, n)
		}
	}
}

func BenchmarkTimingABatch(b *testing.B) {
	for _, size := range []int{1, 32} {
		b.Run([]string{1: "1 command", 32: "32 commands"}[size], func(b *testing.B) {
			var r Recorder
			var t Batch
			start := time.Now()
			ops := [...]codec.Op{codec.OpPut, codec.OpReserve, codec.OpDelete}
			for b.Loop() {
				t.Begin(1)
				for i := range size {
					t.Add(ops[i%3])
				}
				r.Answered(&t, time.Since(start))
			}
		})
	}
}
