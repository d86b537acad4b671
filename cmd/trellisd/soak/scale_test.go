//go:build proof

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trellis/bench"
	"trellis/bench/load"
	"trellis/cmd/trellisd/internal/servertest"
)

// TestScale measures how the server does with very many of everything, and writes
// rows of a Markdown table. It reports what depends on the machine, and fails when
// counts are wrong or memory is not given back. It takes minutes and up to 6 GB, and
// says little on a busy machine. make scale runs it, make scale SCALE=waits only the
// subject of that name.
func TestScale(t *testing.T) {
	if os.Getenv("TRELLIS_SCALE") == "" {
		t.Skip("TRELLIS_SCALE is not set")
	}
	ran := false
	for _, m := range scales {
		t.Run(m.name, func(t *testing.T) {
			ran = true
			m.run(t)
		})
	}
	if !ran {
		t.Error("nothing of that name is measured")
	}
}

// A scale is one subject of TestScale.
type scale struct {
	name string
	run  func(t *testing.T)
}

var scales = []scale{
	{"jobs", scaleJobs},
	{"connections", scaleConnections},
	{"tubes", scaleTubes},
	{"watched", scaleWatched},
	{"due", scaleDue},
	{"kick", scaleKick},
	{"memory", scaleMemory},
}

// row writes a row of the table.
func row(t *testing.T, format string, args ...any) {
	fmt.Printf("| %s | %s |\n", t.Name(), fmt.Sprintf(format, args...))
}

// wantCounts compares figures of stats.
func wantCounts(c *servertest.Client, want map[string]int) {
	c.T.Helper()
	got := servertest.Stats(c)
	for key, n := range want {
		if got[key] != strconv.Itoa(n) {
			c.T.Errorf("%s: %s, want %d", key, got[key], n)
		}
	}
}

// startTraced starts a server whose garbage collector logs every cycle.
func startTraced(t *testing.T, args ...string) *servertest.Server {
	t.Helper()
	cmd := exec.Command(servertest.Binary, append([]string{"-p0", "-l127.0.0.1", "-V", "--log-format=json"}, args...)...)
	cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1")
	return servertest.Ready(servertest.LaunchCommand(t, cmd), 1)
}

// gcClock matches the times of a gctrace line and captures those in which the
// program stands still. Between them is the time of the concurrent mark.
var gcClock = regexp.MustCompile(`^gc .*: ([0-9.]+)\+[0-9.]+\+([0-9.]+) ms clock`)

// longestPause returns the longest time for which the garbage collector has
// stopped a server, and the number of its cycles.
func longestPause(s *servertest.Server) (pause time.Duration, cycles int) {
	for _, line := range s.Log() {
		m := gcClock.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		cycles++
		for _, part := range m[1:] {
			ms, _ := strconv.ParseFloat(part, 64)
			pause = max(pause, time.Duration(ms*1e6))
		}
	}
	return pause, cycles
}

// underLoad puts a load on the server and returns its figures.
func underLoad(t *testing.T, s *servertest.Server, cfg bench.Config) *bench.RunResult {
	t.Helper()
	var err error
	if cfg.Addr, err = bench.ParseAddress(s.Addrs[0].String()); err != nil {
		t.Fatal(err)
	}
	cfg.ReplyTimeout, cfg.Seed = time.Minute, 1
	r, err := load.Run(context.Background(), cfg)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &r.Runs[0]
}

const measured = 5 * time.Second // of load that is measured

func cycle(t *testing.T, s *servertest.Server, conns, waiting int) *bench.RunResult {
	t.Helper()
	return underLoad(t, s, bench.Config{
		Scenario: "cycle", Conns: conns, Waiting: waiting, Duration: measured, Warmup: time.Second, Threads: 1,
	})
}

func scaleJobs(t *testing.T) {
	const n = 10_000_000
	s := startTraced(t)
	empty := cycle(t, s, 50, 0)
	began := time.Now()
	before := resident(t, s.Cmd.Process.Pid)
	r := underLoad(t, s, bench.Config{Scenario: "put", Conns: 50, Depth: 32, Count: n, Keep: true})
	row(t, "10,000,000 jobs of 100 bytes: %.0f bytes a job, %.0f puts/s, p99.9 %v (50 connections, 32 in flight; %v)",
		float64(resident(t, s.Cmd.Process.Pid)-before)/n, r.UnitRate, time.Duration(r.UnitP999), time.Since(began).Round(time.Second))
	full := cycle(t, s, 50, 0)
	wantCounts(s.Dial(0), map[string]int{"current-jobs-ready": n, "current-jobs-reserved": 0})
	pause, cycles := longestPause(s)
	row(t, "cycles beside them: %.0f/s, p50 %v, p99 %v, p99.9 %v; empty server: %.0f/s, p50 %v, p99 %v, p99.9 %v; longest pause of %d collections %v",
		full.UnitRate, time.Duration(full.UnitP50), time.Duration(full.UnitP99), time.Duration(full.UnitP999),
		empty.UnitRate, time.Duration(empty.UnitP50), time.Duration(empty.UnitP99), time.Duration(empty.UnitP999), cycles, pause)
}

func scaleConnections(t *testing.T) {
	few := cycle(t, startTraced(t), 50, 0)
	row(t, "50 connections: %.0f cycles/s, %.1f µs of CPU a command, p99 %v", few.UnitRate, few.CPUPerCommand/1e3, time.Duration(few.UnitP99))
	for _, n := range []int{5000, 10_000, 19_000} {
		s := startTraced(t)
		idle := underLoad(t, s, bench.Config{Scenario: "idle", Conns: n, Duration: measured, Warmup: time.Second})
		row(t, "%d idle: %.0f bytes each, %.4f cores", n, idle.BytesPerConn, idle.ServerBusy)
		s = startTraced(t)
		active := cycle(t, s, n, 0)
		pause, _ := longestPause(s)
		row(t, "%d active: %.0f bytes each, %.0f cycles/s (%.2f of 50 connections), %.1f µs of CPU a command, p99 %v, longest pause %v",
			n, active.BytesPerConn, active.UnitRate, active.UnitRate/few.UnitRate,
			active.CPUPerCommand/1e3, time.Duration(active.UnitP99), pause)
		s = startTraced(t)
		waiting := cycle(t, s, 50, n-50)
		row(t, "%d waiting and 50 active: %.0f bytes each, %.0f cycles/s (%.2f), %.1f µs of CPU a command",
			n-50, waiting.BytesPerConn, waiting.UnitRate, waiting.UnitRate/few.UnitRate, waiting.CPUPerCommand/1e3)
	}
}

func scaleTubes(t *testing.T) {
	const n = 100_000
	s := startTraced(t)
	a := s.Addrs[0]
	few := cycle(t, s, 50, 0)
	before := resident(t, s.Cmd.Process.Pid)
	pump(t, a, 2*n, "", func(b []byte, i int) []byte {
		if i%2 == 0 {
			return fmt.Appendf(b, "use tube-%d\r\n", i)
		}
		return append(b, "put 0 0 60 1\r\nx\r\n"...)
	})
	grown := resident(t, s.Cmd.Process.Pid) - before
	c := servertest.Dial(t, a)
	wantCounts(c, map[string]int{"current-tubes": n + 1, "current-jobs-ready": n})
	p := probe(t, a, "use a", "use default")
	took := map[string]time.Duration{}
	for range 5 {
		for _, cmd := range []string{"stats", "list-tubes"} {
			began := time.Now()
			c.Data(cmd)
			took[cmd] = max(took[cmd], time.Since(began))
		}
	}
	_, _, p99, most := p.end()
	many := cycle(t, s, 50, 0)
	row(t, "%d tubes with a job each: %.0f bytes each; stats takes %v, list-tubes %v (others meanwhile: p99 %v, longest %v); cycles %.0f/s (%.2f of an empty server)",
		n, float64(grown)/n, took["stats"], took["list-tubes"], p99, most, many.UnitRate, many.UnitRate/few.UnitRate)
}

func scaleWatched(t *testing.T) {
	const n = 10_000
	s := startTraced(t, "--max-watched=0")
	a := s.Addrs[0]
	few := cycle(t, s, 50, 0)
	before := resident(t, s.Cmd.Process.Pid)
	c := servertest.Dial(t, a)
	began := time.Now()
	for i := range n {
		c.Send(fmt.Sprint("watch w", i))
	}
	for i := range n {
		c.Want(fmt.Sprint("WATCHING ", i+2))
	}
	watching := time.Since(began)
	grown := resident(t, s.Cmd.Process.Pid) - before
	p := probe(t, a, "use w1", "use default")
	producer := servertest.Dial(t, a)
	var waits, served []time.Duration
	for id := 100; id < 200; id++ {
		producer.Send(fmt.Sprint("use w", rand.IntN(n)), "put 0 0 60 1", "x")
		producer.Line()
		job := strings.Fields(producer.Line())[1]
		began := time.Now()
		c.Send("reserve")
		c.Want("RESERVED "+job+" 1", "x")
		served = append(served, time.Since(began))
		c.Send("delete " + job)
		c.Want("DELETED")
		began = time.Now()
		c.Send("reserve-with-timeout 0")
		c.Want("TIMED_OUT")
		waits = append(waits, time.Since(began))
	}
	_, _, p99, most := p.end()
	slices.Sort(served)
	slices.Sort(waits)
	// One worker waits in 10,000 queues while others work.
	c.Send("reserve")
	beside := cycle(t, s, 50, 0)
	row(t, "a watch list of %d tubes: made in %v, %d bytes a tube; reserve of a job: median %v, longest %v; in vain: median %v; others meanwhile: p99 %v, longest %v; cycles beside one that waits: %.2f of an empty server",
		n, watching, grown/n, served[50], served[99], waits[50], p99, most, beside.UnitRate/few.UnitRate)
}

func scaleDue(t *testing.T) {
	const n = 1_000_000
	s := startTraced(t)
	a := s.Addrs[0]
	c := servertest.Dial(t, a)
	if err := c.Conn.SetDeadline(time.Now().Add(10 * servertest.Patience)); err != nil {
		t.Fatal(err)
	}
	c.Send("use due")
	c.Want("USING due")
	const delay = 12
	began := time.Now()
	pump(t, a, n, "INSERTED", putting(10, strconv.Itoa(delay)))
	put := time.Since(began)
	if put > delay*time.Second {
		t.Skip("putting takes longer than the delay: ", put)
	}
	// The other probes use other tubes, which lie in several shards.
	sameShard := probe(t, a, "use default", "use x")
	others := []*prober{}
	for i := range 4 {
		others = append(others, probe(t, a, fmt.Sprint("use probe-", i), "pause-tube default 0"))
	}
	for servertest.Stats(c)["current-jobs-ready"] != strconv.Itoa(n) {
		if time.Since(began) > delay*time.Second+put+servertest.Patience {
			t.Fatal("they are not ready: ", servertest.Stats(c)["current-jobs-ready"])
		}
		time.Sleep(20 * time.Millisecond)
	}
	late := time.Since(began) - delay*time.Second - put
	_, _, p99, most := sameShard.end()
	for _, p := range others {
		_, _, q, m := p.end()
		p99, most = max(p99, q), max(most, m)
	}
	row(t, "%d delayed jobs of one tube, put in %v and so due within that: all ready %v after the last was due; others from then on: p99 %v, longest %v",
		n, put, late, p99, most)
}

func scaleKick(t *testing.T) {
	const n = 1_000_000
	s := startTraced(t)
	a := s.Addrs[0]
	pump(t, a, n, "INSERTED", putting(10, "4000000"))
	probes := []*prober{probe(t, a, "peek-delayed"), probe(t, a, "use a", "use b"), probe(t, a, "use c", "pause-tube default 0")}
	time.Sleep(200 * time.Millisecond) // how long they wait while nothing happens
	c := servertest.Dial(t, a)
	began := time.Now()
	c.Send("kick 4294967295")
	c.Want(fmt.Sprint("KICKED ", n))
	took := time.Since(began)
	wantCounts(c, map[string]int{"current-jobs-ready": n, "current-jobs-delayed": 0})
	_, _, _, same := probes[0].end()
	var p99, most time.Duration
	for _, p := range probes[1:] {
		_, _, q, m := p.end()
		p99, most = max(p99, q), max(most, m)
	}
	row(t, "kick of %d delayed jobs: %v; others meanwhile: p99 %v, longest %v; longest on the same tube %v", n, took, p99, most, same)
}

// giveBack is the time within which the memory of deleted jobs is given back, but
// for giveBackAllBut bytes.
const (
	giveBack       = 30 * time.Second
	giveBackAllBut = 25 << 20
)

func scaleMemory(t *testing.T) {
	for _, tt := range []struct{ jobs, size int }{{1_000_000, 100}, {10_000, 60_000}} {
		for _, stay := range []int{0, 100} { // every hundredth stays
			s := startTraced(t)
			a := s.Addrs[0]
			c := servertest.Dial(t, a)
			c.Send("use default")
			c.Want("USING default")
			before := resident(t, s.Cmd.Process.Pid)
			pump(t, a, tt.jobs, "INSERTED", putting(tt.size, "0"))
			full := resident(t, s.Cmd.Process.Pid)
			left := 0
			pump(t, a, tt.jobs, "", func(b []byte, i int) []byte {
				if stay > 0 && i%stay == 0 {
					left++
					return append(b, "use default\r\n"...)
				}
				return deleting(1, 1)(b, i)
			})
			want := before + int64(left)*int64(tt.size+64) + giveBackAllBut
			began := time.Now()
			now := resident(t, s.Cmd.Process.Pid)
			for now > want && time.Since(began) < giveBack {
				time.Sleep(250 * time.Millisecond)
				now = resident(t, s.Cmd.Process.Pid)
			}
			took := time.Since(began)
			if now > want {
				t.Errorf("%d MB after %v, want %d", now>>20, giveBack, want>>20)
			}
			wantCounts(servertest.Dial(t, a), map[string]int{"current-jobs-ready": left})
			time.Sleep(10 * time.Second)
			row(t, "%d jobs of %d bytes put and deleted but for %d: %d MB before, %d MB full; within %d MB of that and the rest after %v; %d MB 10 s later",
				tt.jobs, tt.size, left, before>>20, full>>20, giveBackAllBut>>20, took.Round(100*time.Millisecond), resident(t, s.Cmd.Process.Pid)>>20)
		}
	}
}
