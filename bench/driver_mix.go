package bench

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A Mix is a set of commands with weights. The zero value is empty.
type Mix struct {
	steps []mixStep
	total uint32
}

type mixStep struct {
	until uint32 // the sum of the weights up to this step
	word  string // the command
	m     metric
	job   bool // it needs a job that the connection has reserved
	span  [numMixOptions]span
}

// A span is a range of numbers to choose from, both ends included.
type span struct{ lo, hi uint32 }

type mixOption int

const (
	mixPri mixOption = iota
	mixDelay
	mixBound
	numMixOptions
)

var mixOptions = map[string]mixOption{"pri": mixPri, "delay": mixDelay, "bound": mixBound}

var mixCommands = map[string]mixStep{
	"put":          {m: metricPut},
	"reserve":      {m: metricReserve},
	"delete":       {m: metricDelete, job: true},
	"release":      {m: metricRelease, job: true},
	"bury":         {m: metricBury, job: true},
	"touch":        {m: metricTouch, job: true},
	"stats-job":    {m: metricStats, job: true},
	"kick":         {m: metricKick},
	"peek-ready":   {m: metricPeek},
	"peek-delayed": {m: metricPeek},
	"peek-buried":  {m: metricPeek},
	"stats":        {m: metricStats},
	"stats-tube":   {m: metricStats},
	"list-tubes":   {m: metricStats},
}

// ParseMix reads a mix. Each line has a weight, a command and its options; # begins a comment:
//
//	40 put pri=0-1000 delay=0
//	40 reserve
//	35 delete
//	 4 release pri=5 delay=0-1
//	 1 bury
//	 1 kick bound=10
//
// Numbers may be ranges, chosen from at random. The commands are put, reserve (which does not wait), delete, release,
// bury, touch, kick, peek-ready, peek-delayed, peek-buried, stats, stats-job, stats-tube and list-tubes. Those that
// need a reserved job take one that the connection holds, and reserve one instead when it holds none.
func ParseMix(in io.Reader) (Mix, error) {
	var m Mix
	sc := bufio.NewScanner(in)
	for line := 1; sc.Scan(); line++ {
		text, _, _ := strings.Cut(sc.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		step, weight, err := parseStep(fields)
		if err != nil {
			return Mix{}, fmt.Errorf("mix, line %d: %w", line, err)
		}
		m.total += weight
		step.until = m.total
		m.steps = append(m.steps, step)
	}
	if err := sc.Err(); err != nil {
		return Mix{}, fmt.Errorf("reading the mix: %w", err)
	}
	if m.total == 0 {
		return Mix{}, fmt.Errorf("the mix has no commands")
	}
	return m, nil
}

func parseStep(fields []string) (mixStep, uint32, error) {
	weight, err := strconv.ParseUint(fields[0], 10, 16)
	if err != nil || weight == 0 || len(fields) < 2 {
		return mixStep{}, 0, fmt.Errorf("want a weight from 1 to 65535 and a command, not %q", strings.Join(fields, " "))
	}
	step, ok := mixCommands[fields[1]]
	if !ok {
		return mixStep{}, 0, fmt.Errorf("command %q is not known", fields[1])
	}
	step.word = fields[1]
	step.span[mixBound] = span{1, 1}
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		option, ok := mixOptions[key]
		lo, hi, isRange := strings.Cut(value, "-")
		if !isRange {
			hi = lo
		}
		l, err1 := strconv.ParseUint(lo, 10, 32)
		h, err2 := strconv.ParseUint(hi, 10, 32)
		if !ok || err1 != nil || err2 != nil || h < l {
			return mixStep{}, 0, fmt.Errorf("option %q is not understood", f)
		}
		step.span[option] = span{uint32(l), uint32(h)}
	}
	return step, uint32(weight), nil
}

const (
	// mostHeld is how many jobs a connection of a mix holds at most.
	mostHeld = 1000
	// mostMixed is how many jobs a mix leaves in the server at most; then a put becomes a delete.
	mostMixed = 100000
)

// mixDriver sends commands at random. A unit is a command.
type mixDriver struct{ noConsumers }

// mayFindNothing, as a step, allows the other reply of a command.
const mayFindNothing uint8 = 0xff

func (mixDriver) setup(w *worker, c *conn, k int) bool { return ownTube(w, c, k) }

func (d mixDriver) begin(w *worker, c *conn, at int64) {
	m := &w.cfg.Mix
	at32 := w.rng.Uint32N(m.total)
	i := 0
	for m.steps[i].until <= at32 {
		i++
	}
	step := &m.steps[i]
	pick := func(o mixOption) uint32 {
		s := step.span[o]
		return s.lo + uint32(w.rng.Uint64N(uint64(s.hi-s.lo)+1))
	}
	switch {
	case step.job && len(c.held) == 0, step.m == metricReserve && len(c.held) < mostHeld:
		w.sendNumber(c, metricReserve, "reserve-with-timeout ", 0, at, at, mayFindNothing)
	case step.m == metricPut && w.backlog() < mostMixed:
		delay := pick(mixDelay)
		w.sendPut(c, at, at, pick(mixPri), delay, delay) // tagged, so that the delay does not count as the server's
	case step.m == metricKick:
		w.sendNumber(c, metricKick, "kick ", uint64(pick(mixBound)), at, at, 0)
	case step.job && (step.m == metricTouch || step.m == metricStats):
		w.sendNumber(c, step.m, step.word+" ", c.held[len(c.held)-1], at, at, 0)
	case step.job || step.m == metricPut || step.m == metricReserve:
		if len(c.held) == 0 { // a put too many
			w.sendNumber(c, metricReserve, "reserve-with-timeout ", 0, at, at, mayFindNothing)
			return
		}
		id := c.held[len(c.held)-1]
		c.held = c.held[:len(c.held)-1]
		switch step.m {
		case metricRelease:
			w.book.letGo(id)
			w.out = append(w.out, "release "...)
			w.out = append(strconv.AppendUint(w.out, id, 10), ' ')
			w.out = append(strconv.AppendUint(w.out, uint64(pick(mixPri)), 10), ' ')
			w.out = append(strconv.AppendUint(w.out, uint64(pick(mixDelay)), 10), '\r', '\n')
			w.push(c, slot{sent: at, start: at, arg: id, metric: metricRelease})
		case metricBury:
			w.sendBury(c, id, at, at)
		default:
			w.sendDelete(c, id, at, at, 0)
		}
	case step.word == "stats-tube":
		w.out = append(append(append(w.out, "stats-tube "...), w.tube(int(c.number))...), '\r', '\n')
		w.push(c, slot{sent: at, start: at, metric: metricStats})
	default:
		w.out = append(append(w.out, step.word...), '\r', '\n')
		w.push(c, slot{sent: at, start: at, metric: step.m, step: mayFindNothing})
	}
}

func (mixDriver) reply(w *worker, c *conn, s slot, r *reply, now int64, ok bool) {
	if ok && r.kind == replyReserved {
		c.held = append(c.held, r.id)
	}
	w.end(c, s.start, now)
}
