package quota

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// However the bytes lie in quotas, all of them can be taken, and not one more.
func TestAPoolIsUsedUpToItsLimit(t *testing.T) {
	const limit = 20 * portion
	var p Pool
	p.Limit(limit)
	quotas := make([]Quota, 3)
	for i := range quotas {
		p.Open(&quotas[i])
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var taken []int64
	used, refused := int64(0), uint64(0)
	for step := range 100_000 {
		q := &quotas[rnd.IntN(len(quotas))]
		if more := rnd.IntN(3) > 0; more {
			n := 1 + rnd.Int64N(portion)
			fits := used+n <= limit
			if p.Fits(q, n) != fits || p.Take(q, n) != fits {
				t.Fatalf("step %d: %d bytes are used, and whether %d more fit is not %v", step, used, n, fits)
			}
			if fits {
				taken, used = append(taken, n), used+n
			} else {
				refused += 2
			}
		} else if last := len(taken) - 1; last >= 0 {
			p.Refund(q, taken[last])
			taken, used = taken[:last], used-taken[last]
		}
		if n := p.used.Load(); p.Used() != used || n > limit || p.Refused() != refused {
			t.Fatalf("step %d: %d bytes are used, not %d; %d are counted, %d refusals", step, p.Used(), used, n, p.Refused())
		}
		for i := range quotas {
			if n := quotas[i].bytes.Load(); n < 0 || n > 2*portion {
				t.Fatalf("step %d: a quota has %d bytes", step, n)
			}
		}
	}
}

// What is counted without asking may exceed the limit, and then nothing can be taken.
func TestWhatIsCountedAnywayMayExceedTheLimit(t *testing.T) {
	var p Pool
	p.Limit(100)
	var q Quota
	p.Open(&q)
	p.Count(nil, 60)
	p.Count(&q, 60)
	if p.Take(&q, 1) || p.Used() != 120 {
		t.Errorf("a byte is taken, or %d are used", p.Used())
	}
	p.Refund(&q, 60)
	if p.Refund(nil, 60); p.Used() != 0 || !p.Take(&q, 100) {
		t.Errorf("%d bytes are used, or 100 do not fit", p.Used())
	}
}

func TestLoopsNeverExceedTheLimitTogether(t *testing.T) {
	const limit = 10 * portion
	var p Pool
	p.Limit(limit)
	var loops sync.WaitGroup
	quotas := make([]Quota, 4)
	for i := range quotas {
		p.Open(&quotas[i])
	}
	for i := range quotas {
		loops.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(i)))
			var taken []int64
			for range 20_000 {
				if n := 1 + rnd.Int64N(portion); rnd.IntN(2) == 0 && p.Take(&quotas[i], n) {
					taken = append(taken, n)
				} else if last := len(taken) - 1; last >= 0 {
					p.Refund(&quotas[i], taken[last])
					taken = taken[:last]
				}
				if n := p.used.Load(); n > limit {
					t.Errorf("%d bytes are counted", n)
					return
				}
			}
			for _, n := range taken {
				p.Refund(&quotas[i], n)
			}
		})
	}
	if loops.Wait(); p.Used() != 0 {
		t.Errorf("%d bytes are left", p.Used())
	}
}

func TestWithoutALimitNothingIsCounted(t *testing.T) {
	var p Pool
	var q Quota
	p.Open(&q)
	if !p.Fits(&q, 1<<62) || !p.Take(&q, 1<<62) || p.Used() != 0 || p.Limited() {
		t.Error("a pool without a limit has one")
	}
}
