package operate

import (
	"math"
	"time"

	"trellis/cmd/internal/client"
)

// Counts are what tubes and the server as a whole have in common.
type Counts struct {
	Ready, Reserved, Delayed, Buried int64 // jobs
	Waiting                          int64 // clients that wait for a job

	// Since the tube or the server exists. Timeouts are not counted by tube.
	Puts, Deletes, Timeouts uint64
}

// Jobs is how many jobs there are in all states.
func (n *Counts) Jobs() int64 { return n.Ready + n.Reserved + n.Delayed + n.Buried }

// Of is how many jobs there are in a state.
func (n *Counts) Of(s client.State) int64 {
	switch s {
	case client.Ready:
		return n.Ready
	case client.Reserved:
		return n.Reserved
	case client.Delayed:
		return n.Delayed
	}
	return n.Buried
}

// CountsOf takes them from statistics.
func CountsOf(f client.Fields) Counts {
	return Counts{
		Ready: number(f, "current-jobs-ready"), Reserved: number(f, "current-jobs-reserved"),
		Delayed: number(f, "current-jobs-delayed"), Buried: number(f, "current-jobs-buried"),
		Waiting: number(f, "current-waiting"),
		Puts:    f.Uint("total-jobs"), Deletes: f.Uint("cmd-delete"), Timeouts: f.Uint("job-timeouts"),
	}
}

// number is a number of things. A server can claim any; sums of these do not overflow, and a float64 holds them.
func number(f client.Fields, key string) int64 { return int64(min(f.Uint(key), 1<<53)) }

// A Tube is what is known of a tube.
type Tube struct {
	Name string
	Counts
	Urgent, Using, Watching int64
	Keys                    int64 // those of deleted jobs included; negative: not known
	PauseLeft               time.Duration

	// Oldest is how long the job that has been ready for longest has been so, and Age how long ago the one was put that is
	// taken next. Negative: not known.
	Oldest, Age time.Duration
	Rates       Rates
}

// TubeOf makes a tube of the answer to stats-tube. That does not tell the ages and the rates.
func TubeOf(name string, f client.Fields) *Tube {
	return &Tube{
		Name: name, Counts: CountsOf(f),
		Urgent: number(f, "current-jobs-urgent"), Using: number(f, "current-using"), Watching: number(f, "current-watching"),
		PauseLeft: FromSeconds(f.Uint("pause-time-left")), Keys: -1, Oldest: -1, Age: -1, Rates: unknownRates,
	}
}

// FromSeconds is a time of so many seconds. A server can claim any: it is cut after some centuries.
func FromSeconds(seconds uint64) time.Duration {
	return time.Duration(min(seconds, 1<<33)) * time.Second
}

// Rates are how fast counters grow, in a second; NaN: not known.
type Rates struct{ In, Out, Timeouts float64 }

var unknownRates = Rates{math.NaN(), math.NaN(), math.NaN()}

// A Meter makes rates of counters that are looked at again and again. The zero Meter has not seen any.
type Meter struct {
	at   time.Time // zero: nothing to compare with
	last Counts
}

// Rates returns how fast the counters have grown since the look before. That is not known of the first look, nor when
// they have become less: they are those of another server then, or of another tube of that name.
func (m *Meter) Rates(at time.Time, n Counts) Rates {
	before := *m
	*m = Meter{at, n}
	took := at.Sub(before.at).Seconds()
	if before.at.IsZero() || took <= 0 || n.Puts < before.last.Puts || n.Deletes < before.last.Deletes || n.Timeouts < before.last.Timeouts {
		return unknownRates
	}
	rate := func(now, before uint64) float64 { return float64(now-before) / took }
	return Rates{rate(n.Puts, before.last.Puts), rate(n.Deletes, before.last.Deletes), rate(n.Timeouts, before.last.Timeouts)}
}
