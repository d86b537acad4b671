package main

import (
	"errors"
	"fmt"
	"runtime"
	runtimemetrics "runtime/metrics"
	"strconv"
	"strings"
	"time"

	"trellis/binlog"
	"trellis/binlog/journal"
	"trellis/cmd/internal/console"
	"trellis/cmd/internal/operate"
	"trellis/cmd/trellisd/internal/metrics"
	"trellis/cmd/trellisd/internal/options"
	"trellis/codec"
	"trellis/engine/account"
	"trellis/engine/histogram"
	"trellis/engine/stats"
	"trellis/reactor"
)

// ownServer is the server in this process: a [console.Local].
type ownServer struct {
	monitor *monitor
	opt     *options.Options
	src     metrics.Sources
	began   time.Time
}

var errNotLeading = errors.New("this member cannot prove that it still leads")

// read calls read with the server that serves. If it fails, what was read does not count: a
// member that was cut off from the others has executed what will never be committed.
func (s *ownServer) read(read func(*metrics.Serving)) error {
	serving := s.src.Serving()
	if serving == nil {
		return s.monitor.notServing()
	}
	read(serving)
	if serving.Current != nil && !serving.Current() {
		return errNotLeading
	}
	return nil
}

// snapshot is what the engine that serves has counted.
func (s *ownServer) snapshot() (e *stats.Server, err error) {
	err = s.read(func(serving *metrics.Serving) { e = serving.Engine.Snapshot(serving.Now()) })
	return e, err
}

// Counts implements [console.Local].
func (s *ownServer) Counts() (n operate.Counts, ok bool) {
	e, err := s.snapshot()
	if err != nil {
		return n, false
	}
	return operate.Counts{
		Ready: int64(e.Ready), Reserved: int64(e.Reserved), Delayed: int64(e.Delayed), Buried: int64(e.Buried),
		Waiting: e.Waiting, Puts: e.Puts, Deletes: e.Commands[codec.OpDelete], Timeouts: e.Timeouts,
	}, true
}

// Tubes implements [console.Local].
func (s *ownServer) Tubes(visit func(*operate.Tube)) error {
	return s.read(func(serving *metrics.Serving) {
		serving.Engine.EachTube(serving.Now(), func(t *stats.Tube) {
			visit(&operate.Tube{
				Name: t.Name, Urgent: int64(t.Urgent), Using: int64(t.Using), Watching: int64(t.Watching), PauseLeft: t.PauseLeft,
				Oldest:  t.OldestReady,
				Limited: t.LimitedBy.String(),
				Keys:    int64(t.Keys), Orphaned: int64(t.Orphaned),
				Counts: operate.Counts{
					Ready: int64(t.Ready), Reserved: int64(t.Reserved), Delayed: int64(t.Delayed), Buried: int64(t.Buried),
					Waiting: int64(t.Waiting), Puts: t.Puts, Deletes: t.Deletes,
				},
			})
		})
	})
}

// Waits implements [console.Local]: how long jobs were ready, in powers of four.
func (s *ownServer) Waits() (buckets []console.Bucket) {
	e, err := s.snapshot()
	if err != nil {
		return nil
	}
	waits := e.ReadyTimes
	i := 0
	for exponent := -10; exponent <= 16; exponent += 2 {
		upTo := float64(uint64(1)<<(exponent+10)) / (1 << 10) // seconds
		n := uint64(0)
		for ; i < len(waits.Buckets) && histogram.UpperBound(i) <= upTo; i++ {
			n += waits.Buckets[i]
		}
		buckets = append(buckets, console.Bucket{UpTo: time.Duration(upTo * float64(time.Second)), Count: n})
	}
	rest := uint64(0)
	for ; i < len(waits.Buckets); i++ {
		rest += waits.Buckets[i]
	}
	return append(buckets, console.Bucket{UpTo: -1, Count: rest})
}

// near is the share of a limit from which on Problems reports it.
const near = 0.9

// Blocks implements [console.Local].
func (s *ownServer) Blocks(job uint64) (group string, waiting int) {
	err := s.read(func(serving *metrics.Serving) { group, waiting = serving.Engine.Blocks(serving.Now(), job) })
	if err != nil {
		return "", 0
	}
	return group, waiting
}

// Problems implements [console.Local].
func (s *ownServer) Problems() (all []console.Problem) {
	severe := func(path, format string, args ...any) {
		all = append(all, console.Problem{Severe: true, Text: fmt.Sprintf(format, args...), Path: path})
	}
	note := func(path, format string, args ...any) {
		all = append(all, console.Problem{Text: fmt.Sprintf(format, args...), Path: path})
	}
	if b := s.monitor.binlogStats(); b != nil && b.Failed {
		severe("/server", "The log has failed: nothing is acknowledged any more.")
	} else if b != nil && b.Full {
		severe("/server", "The disk is full: new jobs are refused.")
	}
	if b := s.bodies(); b != nil {
		if b.Unreadable > 0 {
			severe("/failed", "%s could not be read from the disk since the start: their jobs are buried when their turn comes.",
				operate.Counted(b.Unreadable, "body"))
		}
		if b.Stuck > 0 {
			severe("/server", "A file with bodies is damaged, and stays until the jobs in it are deleted: the log names it.")
		}
	}
	if c := s.monitor.clusterStats(); c != nil {
		if c.Leader == 0 {
			severe("/server", "No member of the cluster leads, as far as this one knows.")
		}
		if err := s.monitor.ready.Err(); err != nil && !c.Leads {
			severe("/server", "Clients of this member are not answered: %v.", err)
		}
		if c.Contradictions > 0 {
			severe("/server", "%s of reservations did not fit those before: this is a fault of the program.",
				operate.Counted(c.Contradictions, "record"))
		}
		for _, member := range c.Members {
			if c.Leads && !member.Alive {
				note("/server", "The member %s has not been heard of lately.", member.Name)
			}
		}
	}
	e, err := s.snapshot()
	if errors.Is(err, errNotLeading) {
		severe("/server", "This member cannot prove that it still leads: its jobs are not shown.")
	}
	serving := s.src.Serving()
	if err != nil || serving == nil {
		return all // nothing can be asked for then, and pages say why
	}
	if e.Draining {
		severe("/server", "Draining: new jobs are refused.")
	}
	if e.Blocked > 0 {
		note("/failed", "%s waiting for groups of which all that is left is buried.", operate.Counted(e.Blocked, "job"))
	}
	jobs := e.Memory
	if s.src.Limits.Bodies > 0 { // bodies have a limit of their own
		jobs -= e.Bodies
	}
	if limit := s.src.Limits.Memory; limit > 0 && float64(jobs) >= near*float64(limit) {
		severe("/server", "Jobs take %s of memory, of at most %s.", operate.Size(jobs), operate.Size(limit))
	}
	if limit := s.src.Limits.Tubes; limit > 0 && float64(e.Tubes) >= near*float64(limit) {
		severe("/tubes", "There are %d tubes, of at most %d.", e.Tubes, limit)
	}
	if most := serving.Reactor.Stats().MaxConnections; float64(e.Connections) >= near*float64(most) {
		severe("/connections", "There are %d connections, of at most %d.", e.Connections, most)
	}
	return all
}

// lines collects the lines of a section.
type lines []console.SectionLine

func (l *lines) add(key, format string, args ...any) {
	*l = append(*l, console.SectionLine{Key: key, Value: fmt.Sprintf(format, args...)})
}

// Sections implements [console.Local].
func (s *ownServer) Sections() (all []console.Section) {
	section := func(title string, l lines) { all = append(all, console.Section{Title: title, Lines: l}) }
	serving := s.src.Serving()
	section("Program", s.program())
	section("Settings", s.settings(serving))
	if given := s.opt.Settings(); len(given) > 0 {
		var l lines
		for _, o := range given {
			l.add("--"+o.Name, "%s (%s)", o.Value, o.From)
		}
		section("Options", l)
	}
	section("Memory", s.memory())
	if l := s.accounts(); len(l) > 0 {
		section("Accounts", l)
	}
	if b := s.monitor.binlogStats(); b != nil {
		var l lines
		l.add("Directory", "%s", s.opt.Binlog)
		l.add("Synced", "%s", synced(s.opt.Sync))
		l.add("Segments", "%d", b.Segments)
		l.add("On disk", "%s", operate.Size(b.DiskBytes))
		l.add("Needed by jobs", "%s", operate.Size(b.LiveBytes))
		l.add("To be compacted", "%s", operate.Size(b.UsedBytes-b.LiveBytes))
		l.add("Not yet synced", "%s", operate.Size(b.PendingBytes+b.UnsyncedBytes))
		l.add("Last sync took", "%s", b.LastSync.Round(10*time.Microsecond))
		section("Log", l)
	}
	if b := s.bodies(); b != nil {
		section("Bodies", bodyLines(b))
	}
	if c := s.monitor.clusterStats(); c != nil {
		l := clusterLines(c)
		if f := s.monitor.forwarding(); f != nil {
			st := f.Stats()
			l = append(l, forwardingLines(&st)...)
		}
		section("Cluster", l)
	}
	return all
}

// bodies are nil where all are in memory.
func (s *ownServer) bodies() *metrics.Bodies {
	if s.src.Bodies == nil {
		return nil
	}
	return s.src.Bodies()
}

// bodyLines are those of a server with --body-memory.
func bodyLines(b *metrics.Bodies) (l lines) {
	l.add("In memory", "%s of %s", operate.Size(b.Memory), operate.Size(b.Limit))
	l.add("Not in memory", "%s of %d jobs", operate.Size(b.ColdBytes), b.ColdJobs)
	l.add("Have left memory", "%s", operate.Size(b.Evicted))
	l.add("Clients waiting for bodies", "%d, %d of them for over a second", b.Waits, b.Late)
	l.add("Puts that have waited", "%d", b.PutWaits)
	l.add("Read back for clients", "%d", b.Reads[journal.Urgent].Bodies)
	l.add("Unreadable", "%d", b.Unreadable)
	l.add("Damaged files", "%d", b.Stuck)
	if b.Files == nil {
		l.add("Segments without an index", "%d", b.Unindexed)
		return l
	}
	l.add("Body files", "%s", operate.Size(b.Files.Bytes))
	l.add("Copied to them", "%s", operate.Size(b.Files.Spilled))
	return l
}

func (s *ownServer) program() (l lines) {
	l.add("Version", "%s", s.src.Build.Version)
	if s.src.Build.Revision != "" {
		l.add("Revision", "%s, %s", s.src.Build.Revision, s.src.Build.Date)
	}
	l.add("Compiler", "%s", runtime.Version())
	l.add("Up for", "%s", time.Since(s.began).Round(time.Second))
	state := "serving"
	if err := s.monitor.leads.Err(); err != nil {
		state = err.Error()
	}
	l.add("State", "%s", state)
	return l
}

func (s *ownServer) settings(serving *metrics.Serving) (l lines) {
	l.add("Largest body", "%s", operate.Size(int64(s.src.MaxJobSize)))
	if serving != nil {
		st := serving.Reactor.Stats()
		l.add("Event loops", "%d", len(st.Loops))
		l.add("Connections", "at most %d", st.MaxConnections)
	}
	l.add("Tubes", "%s", atMost(s.src.Limits.Tubes))
	l.add("Watched by a client", "%s", atMost(s.src.Limits.Watched))
	idle := "never closed"
	if s.opt.IdleTimeout > 0 {
		idle = "closed after " + s.opt.IdleTimeout.String()
	}
	l.add("Idle clients", "%s", idle)
	access := "everybody may do everything"
	if s.opt.AuthFile != "" {
		access = s.opt.AuthFile
	}
	l.add("Access", "%s", access)
	l.add("Extensions", "%s", map[bool]string{false: "on", true: "off"}[s.opt.NoExtensions])
	return l
}

func (s *ownServer) memory() (l lines) {
	// Not runtime.ReadMemStats, for which everything stops.
	r := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/sched/goroutines:goroutines"},
	}
	runtimemetrics.Read(r)
	if e, err := s.snapshot(); err == nil {
		l.add("Of jobs", "%s", operate.Size(e.Memory))
	}
	limit := "none"
	if s.src.Limits.Memory > 0 {
		limit = operate.Size(s.src.Limits.Memory)
	}
	l.add("Limit for jobs", "%s", limit)
	untouched := int64(len(ballast))
	l.add("Collected heap", "%s", operate.Size(int64(r[0].Value.Uint64())-untouched))
	l.add("Of the Go runtime", "%s", operate.Size(int64(r[1].Value.Uint64())-untouched))
	l.add("Goroutines", "%d", r[2].Value.Uint64())
	return l
}

// maxAccountLines is how many accounts are shown.
const maxAccountLines = 100

func (s *ownServer) accounts() (l lines) {
	var all []account.Snapshot
	if err := s.read(func(serving *metrics.Serving) { all = serving.Engine.Accounts().Snapshots() }); err != nil {
		return nil
	}
	of := func(n, limit int64, show func(int64) string) string {
		if limit == 0 {
			return show(n)
		}
		return show(n) + " of " + show(limit)
	}
	for i := range all[:min(len(all), maxAccountLines)] {
		a := &all[i]
		var amounts []string
		refused := uint64(0)
		for _, x := range a.Amounts() {
			if refused += x.Refused; x.What == "memory" {
				amounts = append(amounts, of(x.Holds, x.Limit, operate.Size))
				continue
			}
			amounts = append(amounts, of(x.Holds, x.Limit, func(n int64) string { return strconv.FormatInt(n, 10) })+" "+x.What)
		}
		l.add(a.Name, "%s; %d refused, %d waits", strings.Join(amounts, ", "), refused, a.Waits)
	}
	if more := len(all) - maxAccountLines; more > 0 {
		l.add("Others", "%d more; trellis accounts lists all", more)
	}
	return l
}

func clusterLines(c *metrics.Cluster) (l lines) {
	leader := "nobody"
	for _, member := range c.Members {
		if member.ID == c.Leader {
			leader = member.Name
		}
	}
	l.add("Leads", "%s", leader)
	l.add("Term", "%d", c.Term)
	l.add("Entries applied", "%d of %d", c.Applied, c.Last)
	l.add("Log", "%s", operate.Size(c.LogBytes))
	l.add("Snapshot", "%s", operate.Size(c.SnapshotBytes))
	for _, member := range c.Members {
		state := "member"
		switch {
		case member.ID == c.Leader:
			state = "leads"
		case c.Leads && !member.Alive:
			state = "not heard of lately"
		case c.Leads && member.ToLoad > 0:
			state = "loading its jobs, " + strconv.FormatUint(100-member.ToLoad, 10) + " %"
		case c.Leads:
			state = strconv.FormatUint(c.Last-min(c.Last, member.Match), 10) + " entries behind"
		}
		l.add(member.Name, "%s, %s", member.Addr, state)
	}
	return l
}

// forwardingLines are those of a member that passes on to the leader what its clients send.
func forwardingLines(st *reactor.Stats) (l lines) {
	clients, contact := int64(0), time.Duration(-1)
	for i := range st.Loops {
		clients += st.Loops[i].Connections
		contact = max(contact, st.Loops[i].Contact)
	}
	l.add("Connections here", "%d, at most %d; the leader executes their commands", clients, st.MaxConnections)
	if contact >= 0 {
		l.add("The leader has answered", "a ping that was sent %s ago", operate.Duration(contact))
	}
	return l
}

func synced(p binlog.SyncPolicy) string {
	switch p {
	case binlog.SyncNever:
		return "by the system"
	case binlog.SyncAlways:
		return "before each reply"
	}
	return "every " + p.Interval().String()
}

func atMost(n int) string {
	if n == 0 {
		return "no limit"
	}
	return "at most " + strconv.Itoa(n)
}
