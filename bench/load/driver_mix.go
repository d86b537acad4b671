package load

import (
	"strconv"

	"trellis/bench"
)

// A mixTable is a bench.Mix, prepared for choosing steps by their weights.
type mixTable struct {
	steps []mixStep
	total uint32 // the sum of all weights
}

type mixStep struct {
	bench.MixStep
	until    uint32 // the sum of the weights up to and including this step
	metric   metric
	needsJob bool // it takes a job that the connection has reserved
}

// mixMetrics are the metrics of the commands of a mix.
var mixMetrics = map[string]metric{
	"put": metricPut, "reserve": metricReserve, "delete": metricDelete, "release": metricRelease, "bury": metricBury,
	"touch": metricTouch, "stats-job": metricStats, "kick": metricKick, "peek-ready": metricPeek,
	"peek-delayed": metricPeek, "peek-buried": metricPeek, "stats": metricStats, "stats-tube": metricStats,
	"list-tubes": metricStats,
}

func newMixTable(m bench.Mix) *mixTable {
	t := new(mixTable)
	for _, s := range m.Steps {
		t.total += s.Weight
		step := mixStep{MixStep: s, until: t.total, metric: mixMetrics[s.Command]}
		switch s.Command {
		case "delete", "release", "bury", "touch", "stats-job":
			step.needsJob = true
		}
		t.steps = append(t.steps, step)
	}
	return t
}

// standardMix is the mix of the standard comparison: mostly puts, reserves and deletes, and a little of what happens
// when workers fail and operators look.
var standardMix = bench.Mix{Steps: []bench.MixStep{
	{Weight: 30, Command: "put", Priority: bench.Range{Most: 1000}},
	{Weight: 30, Command: "reserve"},
	{Weight: 26, Command: "delete"},
	{Weight: 4, Command: "release", Priority: bench.Range{Most: 1000}},
	{Weight: 3, Command: "touch"},
	{Weight: 2, Command: "bury"},
	{Weight: 2, Command: "kick", Bound: bench.Range{Least: 1, Most: 10}},
	{Weight: 1, Command: "peek-ready"},
	{Weight: 1, Command: "stats-job"},
	{Weight: 1, Command: "stats-tube"},
}}

const (
	// mostHeld is how many jobs a connection of a mix holds at most.
	mostHeld = 1000
	// mostMixed is how many jobs a mix leaves in the server at most; then a put becomes a delete.
	mostMixed = 100000
)

// mixDriver sends commands at random. A unit is a command.
type mixDriver struct{ ownTube }

// mayFindNothing, as a stage, also allows the reply that the command has in allowed.
const mayFindNothing uint8 = 0xff

func (w *worker) choose() *mixStep {
	at := w.rng.Uint32N(w.mix.total)
	i := 0
	for w.mix.steps[i].until <= at {
		i++
	}
	return &w.mix.steps[i]
}

func (w *worker) pick(r bench.Range) uint32 {
	return r.Least + uint32(w.rng.Uint64N(uint64(r.Most-r.Least)+1))
}

func (d mixDriver) begin(w *worker, c *conn, at int64) {
	step := w.choose()
	switch {
	case step.needsJob && len(c.reservations) == 0, step.metric == metricReserve && len(c.reservations) < mostHeld:
		w.sendNumber(c, metricReserve, "reserve-with-timeout ", 0, at, at, mayFindNothing)
	case step.metric == metricPut && w.backlog() < mostMixed:
		delay := w.pick(step.Delay)
		w.sendPut(c, at, at, w.pick(step.Priority), delay, delay) // tagged, so that the delay does not count as the server's
	case step.metric == metricKick:
		w.sendNumber(c, metricKick, "kick ", uint64(w.pick(step.Bound)), at, at, 0)
	case step.needsJob && (step.metric == metricTouch || step.metric == metricStats):
		w.sendNumber(c, step.metric, step.Command+" ", c.reservations[len(c.reservations)-1], at, at, 0)
	case step.needsJob || step.metric == metricPut || step.metric == metricReserve:
		d.giveAway(w, c, step, at)
	case step.Command == "stats-tube":
		w.out = append(append(append(w.out, "stats-tube "...), w.tube(int(c.number))...), '\r', '\n')
		w.push(c, slot{sentAt: at, start: at, metric: metricStats})
	default:
		w.out = append(append(w.out, step.Command...), '\r', '\n')
		w.push(c, slot{sentAt: at, start: at, metric: step.metric, stage: mayFindNothing})
	}
}

// giveAway releases, buries or deletes a job that c holds. A put beyond mostMixed and a reserve beyond mostHeld become
// a delete; when c holds no job, any of them becomes a reserve.
func (mixDriver) giveAway(w *worker, c *conn, step *mixStep, at int64) {
	if len(c.reservations) == 0 {
		w.sendNumber(c, metricReserve, "reserve-with-timeout ", 0, at, at, mayFindNothing)
		return
	}
	id := c.reservations[len(c.reservations)-1]
	c.reservations = c.reservations[:len(c.reservations)-1]
	switch step.metric {
	case metricRelease:
		w.book.release(id)
		w.out = append(w.out, "release "...)
		w.out = append(strconv.AppendUint(w.out, id, 10), ' ')
		w.out = append(strconv.AppendUint(w.out, uint64(w.pick(step.Priority)), 10), ' ')
		w.out = append(strconv.AppendUint(w.out, uint64(w.pick(step.Delay)), 10), '\r', '\n')
		w.push(c, slot{sentAt: at, start: at, arg: id, metric: metricRelease})
	case metricBury:
		w.sendBury(c, id, at, at)
	default:
		w.sendDelete(c, id, at, at)
	}
}

func (mixDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	if ok && r.kind == replyReserved {
		c.reservations = append(c.reservations, r.id)
	}
	w.end(c, s.start, now)
}
