package account

import (
	"sync/atomic"

	"trellis/engine/internal/clock"
)

// MaxRate is the greatest limit on the commands of an account, a second.
const MaxRate = 10_000_000

// A Rate bounds how many commands the clients of an account have executed. It is a bucket of
// tokens, in the form that needs one number: the time at which it would be full (the generic
// cell rate algorithm, ITU-T I.371). A command takes a token; one that takes long takes as
// many as there could be commands in that time, and may leave the bucket in debt. The bucket
// holds what comes in a tenth of a second, and one token at least.
//
// Nobody is refused: whoever executes commands asks with Left, and leaves those that are too
// many for later. Any goroutine may call the methods.
type Rate struct {
	account *Account
	full    atomic.Int64  // when the bucket is full, a Time
	waits   atomic.Uint64 // times that a client had to wait
}

// rateTerms are what a limit comes to.
type rateTerms struct {
	interval clock.Time // between two tokens; 0 if there is no limit
	depth    clock.Time // of the bucket, as the time in which it fills
}

func (r *Rate) terms() rateTerms {
	rate := min(r.account.limits.Load().Rate, MaxRate)
	if rate <= 0 {
		return rateTerms{}
	}
	interval := clock.Second / clock.Time(rate)
	return rateTerms{interval, max(clock.Second/10, interval)}
}

// Limited reports whether there is a limit now.
func (r *Rate) Limited() bool { return r.account.limits.Load().Rate > 0 }

// Left returns how many commands may be executed now, a great number without a limit.
func (r *Rate) Left(now clock.Time) int {
	t := r.terms()
	if t.interval == 0 {
		return 1 << 30
	}
	owed := max(0, clock.Time(r.full.Load())-now)
	return int(max(0, t.depth-owed) / t.interval)
}

// Take takes n tokens.
func (r *Rate) Take(now clock.Time, n int) {
	t := r.terms()
	if t.interval == 0 {
		return
	}
	for {
		full := r.full.Load()
		if r.full.CompareAndSwap(full, int64(max(clock.Time(full), now)+clock.Time(n)*t.interval)) {
			return
		}
	}
}

// rateQuantum is the least time for which it is worth to wake those who wait.
const rateQuantum = clock.Second / 200

// Ready returns when there are some tokens again: one, and as many as come in 5 ms.
func (r *Rate) Ready(now clock.Time) clock.Time {
	t := r.terms()
	if t.interval == 0 {
		return now
	}
	return max(now, clock.Time(r.full.Load())-t.depth+max(t.interval, min(rateQuantum, t.depth)))
}

// Waited counts a client that has to wait.
func (r *Rate) Waited() { r.waits.Add(1) }
