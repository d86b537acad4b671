package operate

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"time"

	"trellis/cmd/internal/client"
)

// Counts are what tubes and the server as a whole have in common.
type Counts struct {
	Ready, Reserved, Delayed, Buried int64 // jobs
	Waiting                          int64 // clients that wait for a job

	// Since the tube or the server exists. stats-tube does not tell Timeouts and Reserves.
	Puts, Deletes, Timeouts, Reserves uint64

	// For how long jobs were ready that were reserved then, and for how long jobs were reserved: sums in seconds, which
	// are told of a tube. NaN: not known.
	Wait, Busy float64
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

// CountsOf takes them from statistics: of stats, stats-tube or stats-tube-x. The latter does not
// count what flush-tube deletes.
func CountsOf(f client.Fields) Counts {
	return Counts{
		Ready: number(f, "current-jobs-ready"), Reserved: number(f, "current-jobs-reserved"),
		Delayed: number(f, "current-jobs-delayed"), Buried: number(f, "current-jobs-buried"),
		Waiting: number(f, "current-waiting"),
		Puts:    f.Uint("total-jobs"), Deletes: cmp.Or(f.Uint("cmd-delete"), f.Uint("total-deletes")),
		Timeouts: cmp.Or(f.Uint("job-timeouts"), f.Uint("total-timeouts")), Reserves: f.Uint("total-reserves"),
		Wait: sum(f, "wait-time"), Busy: sum(f, "busy-time"),
	}
}

// sum is a number of seconds; NaN if it is none.
func sum(f client.Fields, key string) float64 {
	v, _ := f.Get(key)
	if n, err := strconv.ParseFloat(v.Text, 64); err == nil && n >= 0 && n <= 1<<53 {
		return n
	}
	return math.NaN()
}

// number is a number of things. A server can claim any; sums of these do not overflow, and a float64 holds them.
func number(f client.Fields, key string) int64 { return int64(min(f.Uint(key), 1<<53)) }

// A Tube is what is known of a tube.
type Tube struct {
	Name string
	Counts
	Urgent, Using, Watching int64
	Orphaned                int64 // reserved jobs whose workers have lost their connections; negative: not known
	Keys                    int64 // those of deleted jobs included; negative: not known
	PauseLeft               time.Duration
	Limited                 string        // what keeps its jobs back, as in stats-tube-x; none or "" if nothing does
	Oldest                  time.Duration // how long its oldest ready job has been ready; negative: not known
	Rates                   Rates
}

// TubeOf makes a tube of the answer to stats-tube, or to stats-tube-x, which alone tells the age of the oldest ready
// job, and does not tell Urgent and Using. Neither tells the rates.
func TubeOf(name string, f client.Fields) *Tube {
	t := &Tube{
		Name: name, Counts: CountsOf(f),
		Urgent: number(f, "current-jobs-urgent"), Using: number(f, "current-using"), Watching: number(f, "current-watching"),
		PauseLeft: FromSeconds(f.Uint("pause-time-left")), Limited: f.Text("limited-by"),
		Orphaned: -1, Keys: -1, Oldest: -1, Rates: unknownRates,
	}
	if _, ok := f.Get("current-jobs-orphaned"); ok {
		t.Orphaned = number(f, "current-jobs-orphaned")
	}
	if _, ok := f.Get("oldest-ready-age"); ok && t.Ready > 0 {
		t.Oldest = FromSeconds(f.Uint("oldest-ready-age"))
	}
	switch {
	case t.Paused():
		t.PauseLeft = FromSeconds(f.Uint("limited-for"))
	case t.PauseLeft > 0:
		t.Limited = pause
	}
	return t
}

// StatsTubes are the answers about many tubes, of which [TubeOf] makes tubes: to stats-tube-x, or to stats-tube where
// the server does not have that. It is nil for a tube that does not exist (any more).
func StatsTubes(ctx context.Context, c *client.Conn, tubes []string) ([]client.Fields, error) {
	has, err := c.Has(ctx, "stats-tube-x")
	switch {
	case err != nil:
		return nil, err
	case has:
		return c.StatsTubesX(ctx, tubes)
	}
	return c.StatsTubes(ctx, tubes)
}

// AllStatsTube is the answer to stats-tube with what stats-tube-x adds, where the server has that.
func AllStatsTube(ctx context.Context, c *client.Conn, tube string) (client.Fields, error) {
	all, err := AllStatsTubes(ctx, c, []string{tube})
	switch {
	case err != nil:
		return nil, err
	case all[0] == nil:
		return nil, client.ErrNotFound
	}
	return all[0], nil
}

// AllStatsTubes are those of AllStatsTube, of many tubes; nil for one that does not exist (any more).
func AllStatsTubes(ctx context.Context, c *client.Conn, tubes []string) ([]client.Fields, error) {
	all, err := c.StatsTubes(ctx, tubes)
	if err != nil {
		return nil, err
	}
	has, err := c.Has(ctx, "stats-tube-x")
	if err != nil || !has {
		return all, err
	}
	more, err := c.StatsTubesX(ctx, tubes)
	for i, stats := range all {
		if stats == nil {
			continue
		}
		for _, f := range more[i] {
			if _, ok := stats.Get(f.Key); !ok {
				all[i] = append(all[i], f)
			}
		}
	}
	return all, err
}

// pause is what limits a paused tube, in the words of stats-tube-x.
const pause = "pause"

// Paused reports whether the tube is paused, by a command or by its setting.
func (t *Tube) Paused() bool { return t.Limited == pause }

// limited is why it hands out no jobs, empty if nothing keeps it from that.
func (t *Tube) limited() string {
	if t.Limited == "none" {
		return ""
	}
	return t.Limited
}

// LimitText says why the tube hands out none of its ready jobs; empty if nothing keeps it from that, or none is ready.
func (t *Tube) LimitText() string {
	switch by := t.limited(); {
	case t.PauseLeft > 0:
		return "paused " + Duration(t.PauseLeft)
	case t.Paused():
		return "paused by its setting"
	case by == "" || t.Ready == 0:
		return ""
	case by == "reserved":
		return "held back by max-reserved"
	default:
		return "held back by " + by
	}
}

// OrphansText says how many jobs linger; empty for none, or if that is not known.
func (t *Tube) OrphansText() string {
	if t.Orphaned <= 0 {
		return ""
	}
	return Count(t.Orphaned) + " orphaned"
}

// FromSeconds is a time of so many seconds. A server can claim any: it is cut after some centuries.
func FromSeconds(seconds uint64) time.Duration {
	return time.Duration(min(seconds, maxSeconds)) * time.Second
}

const maxSeconds = 1 << 33

// Rates are what counters tell of the time between two looks; NaN: not known.
type Rates struct {
	In, Out, Timeouts float64 // in a second
	Wait              float64 // for how many seconds the jobs that were reserved meanwhile had been ready, on average
	Busy              float64 // how many jobs were reserved at once, on average: workers that were busy
}

var unknownRates = Rates{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}

// A Meter makes rates of counters that are looked at again and again. The zero Meter has not seen any.
type Meter struct {
	at   time.Time // zero: nothing to compare with
	last Counts
}

// Rates returns what the counters tell of the time since the look before. That is not known of the first look, nor when
// they have become less: they are those of another server then, or of another tube of that name.
func (m *Meter) Rates(at time.Time, n Counts) Rates {
	last, took := m.last, at.Sub(m.at).Seconds()
	first := m.at.IsZero()
	*m = Meter{at, n}
	if first || took <= 0 || n.Puts < last.Puts || n.Deletes < last.Deletes || n.Timeouts < last.Timeouts ||
		n.Reserves < last.Reserves || n.Wait < last.Wait || n.Busy < last.Busy {
		return unknownRates
	}
	rate := func(now, before uint64) float64 { return float64(now-before) / took }
	r := Rates{
		rate(n.Puts, last.Puts), rate(n.Deletes, last.Deletes), rate(n.Timeouts, last.Timeouts), math.NaN(),
		(n.Busy - last.Busy) / took,
	}
	if started := n.Reserves - last.Reserves; started > 0 {
		r.Wait = min((n.Wait-last.Wait)/float64(started), maxSeconds)
	}
	return r
}
