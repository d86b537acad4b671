package engine

import (
	"strconv"
	"time"

	"trellis/codec"
)

// yaml is a dictionary of scalars as beanstalkd writes it.
type yaml []byte

func (y *yaml) key(k string) {
	*y = append(*y, k...)
	*y = append(*y, ": "...)
}

func (y *yaml) number(k string, n uint64) {
	y.key(k)
	*y = append(strconv.AppendUint(*y, n, 10), '\n')
}

func (y *yaml) signed(k string, n int64) {
	y.key(k)
	*y = append(strconv.AppendInt(*y, n, 10), '\n')
}

func (y *yaml) bare(k, v string) {
	y.key(k)
	*y = append(*y, v...)
	*y = append(*y, '\n')
}

func (y *yaml) quoted(k, v string) {
	y.key(k)
	*y = append(*y, '"')
	*y = append(*y, v...)
	*y = append(*y, '"', '\n')
}

func (y *yaml) duration(k string, d time.Duration) {
	y.micros(k, uint64(d/time.Microsecond))
}

// micros appends microseconds as seconds.
func (y *yaml) micros(k string, n uint64) {
	y.key(k)
	*y = strconv.AppendUint(*y, n/1e6, 10)
	*y = append(*y, '.')
	for unit := uint64(100_000); unit > 0; unit /= 10 {
		*y = append(*y, byte('0'+n/unit%10))
	}
	*y = append(*y, '\n')
}

// reply appends statistics that were gathered in the loop's scratch memory, and keeps
// that memory for the next time.
func (l *Loop) reply(out *Output, data []byte) {
	out.Buf = codec.AppendOK(out.Buf, data)
	l.scratch = data[:0]
}

// statsCommands are the counters of commands in the order of stats. The
// commands reserve-job, kick-job and quit have none.
var statsCommands = [...]codec.Op{
	codec.OpPut, codec.OpPeek, codec.OpPeekReady, codec.OpPeekDelayed, codec.OpPeekBuried,
	codec.OpReserve, codec.OpReserveWithTimeout, codec.OpDelete, codec.OpRelease, codec.OpUse,
	codec.OpWatch, codec.OpIgnore, codec.OpBury, codec.OpKick, codec.OpTouch, codec.OpStats,
	codec.OpStatsJob, codec.OpStatsTube, codec.OpListTubes, codec.OpListTubeUsed,
	codec.OpListTubesWatched, codec.OpPauseTube,
}

// statsCost is what it takes to look at all shards and to ask the system for the
// processor time.
const statsCost = 32

func (s *Session) stats(now Time, out *Output) {
	l := s.loop
	l.budget -= statsCost
	e := l.engine
	t := e.snapshot(&l.tx, now)
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.number("current-jobs-urgent", uint64(t.Urgent))
	y.number("current-jobs-ready", uint64(t.Ready))
	y.number("current-jobs-reserved", uint64(t.Reserved))
	y.number("current-jobs-delayed", uint64(t.Delayed))
	y.number("current-jobs-buried", uint64(t.Buried))
	for _, op := range statsCommands {
		y = append(y, "cmd-"...)
		y.number(op.String(), t.Commands[op])
	}
	y.number("job-timeouts", t.Timeouts)
	y.number("total-jobs", t.Puts)
	y.number("max-job-size", uint64(e.config.MaxJobSize))
	y.number("current-tubes", uint64(t.Tubes))
	y.number("current-connections", uint64(t.Connections))
	y.number("current-producers", uint64(t.Producers))
	y.number("current-workers", uint64(t.Workers))
	y.number("current-waiting", uint64(t.Waiting))
	y.number("total-connections", t.Opened)
	info := &e.config.Info
	y.number("pid", uint64(info.PID))
	y.quoted("version", info.Version)
	user, system := info.Usage()
	y.duration("rusage-utime", user)
	y.duration("rusage-stime", system)
	y.number("uptime", uint64(info.uptime(now).Whole()))
	log := e.Log().Counters()
	y.number("binlog-oldest-index", uint64(log.Oldest))
	y.number("binlog-current-index", uint64(log.Current))
	y.number("binlog-records-migrated", log.Migrated)
	y.number("binlog-records-written", log.Written)
	y.signed("binlog-max-size", e.config.SegmentSize)
	y.bare("draining", strconv.FormatBool(t.Draining))
	y.bare("id", info.ID)
	y.quoted("hostname", info.Hostname)
	y.quoted("os", info.OS)
	y.quoted("platform", info.Platform)
	l.reply(out, y)
}

func (i *Info) uptime(now Time) Time {
	if i.Uptime == nil {
		return now
	}
	return Time(i.Uptime())
}

func (s *Session) statsTube(now Time, name []byte, out *Output) {
	l := s.loop
	n, err := l.tx.Tube(now, name, out)
	if err != nil {
		out.Answer(err, "")
		return
	}
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.quoted("name", n.Name)
	y.number("current-jobs-urgent", uint64(n.Urgent))
	y.number("current-jobs-ready", uint64(n.Ready))
	y.number("current-jobs-reserved", uint64(n.Reserved))
	y.number("current-jobs-delayed", uint64(n.Delayed))
	y.number("current-jobs-buried", uint64(n.Buried))
	y.number("total-jobs", n.Puts)
	y.number("current-using", uint64(n.Using))
	y.number("current-watching", uint64(n.Watching))
	y.number("current-waiting", uint64(n.Waiting))
	y.number("cmd-delete", n.Deletes)
	y.number("cmd-pause-tube", n.Pauses)
	y.number("pause", uint64(Time(n.Pause).Whole()))
	y.number("pause-time-left", uint64(Time(n.PauseLeft).Whole()))
	l.reply(out, y)
}

func (s *Session) statsJob(now Time, id uint64, out *Output) {
	l := s.loop
	x, err := l.tx.Job(now, id, out)
	if err != nil {
		out.Answer(err, "")
		return
	}
	y := yaml(append(l.scratch[:0], "---\n"...))
	y.number("id", id)
	y.quoted("tube", x.Tube)
	y.bare("state", x.State)
	y.number("pri", uint64(x.Pri))
	y.number("age", uint64(x.Age.Whole()))
	y.number("delay", uint64(x.Delay))
	y.number("ttr", uint64(x.TTR))
	y.number("time-left", uint64(x.Left.Whole()))
	y.number("file", uint64(x.Segment))
	y.number("reserves", uint64(x.Reserves))
	y.number("timeouts", uint64(x.Timeouts))
	y.number("releases", uint64(x.Releases))
	y.number("buries", uint64(x.Buries))
	y.number("kicks", uint64(x.Kicks))
	l.reply(out, y)
}
