//go:build proof

package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/clustertest"
	"trellis/cmd/trellisd/internal/servertest"
)

const (
	soakLimit   = 64_000_000 // bytes of bodies in memory
	soakAim     = 120_000    // jobs, of 8,500 bytes
	soakClients = 12
	soakTubes   = 4
	soakSegment = 64 << 20 // bytes of a segment, or of a body file
)

// TestSoakOfBacklogs has clients put, move, bury, kick and take jobs of which most are on the disk only, for as long as
// make soak says in SOAK, while servers are killed, stopped, cut off, and have full disks. Then every job is there, with
// its body, and taken; nothing is left in memory, and next to nothing on the disk.
func TestSoakOfBacklogs(t *testing.T) {
	v := os.Getenv("SOAK")
	if v == "" {
		t.Skip("make soak runs it; the tests of backlogs beyond memory are the same, but shorter")
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("SOAK: %v", err)
	}
	t.Parallel()
	for _, part := range []struct {
		name string
		run  func(t *testing.T) soaked
	}{
		{"server", func(t *testing.T) soaked { return newSoakedServer(t) }},
		{"members", func(t *testing.T) soaked { return newSoakedMembers(t) }},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			newBacklog(t).soak(part.run(t), time.Now().Add(d))
		})
	}
}

// soaked is what is soaked.
type soaked interface {
	// connect connects a client, or fails because nobody answers now.
	connect() (net.Conn, error)
	// fault does some harm and ends it.
	fault(rng *rand.Rand)
	// check says what is wrong with what is in memory and on the disk while nothing is done with it, or when no job is
	// left.
	check(empty bool) error
}

// soak has clients at work until a time, and then empties the queue.
func (b *backlog) soak(x soaked, until time.Time) {
	var next atomic.Int64
	var clients sync.WaitGroup
	for i := range soakClients {
		rng := rand.New(rand.NewPCG(uint64(i), 11))
		clients.Go(func() {
			for time.Now().Before(until) && !b.t.Failed() {
				conn, err := x.connect()
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				b.churn(newWire(conn), conn, rng, &next, until)
				_ = conn.Close()
			}
		})
	}
	faults, rng := 0, rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 12))
	for ; time.Now().Before(until) && !b.t.Failed(); faults++ {
		time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Second))))
		x.fault(rng)
	}
	clients.Wait()
	b.t.Logf("%d faults; of %d jobs that were put %d are left; %d were not their clients' any more", faults, len(b.put), b.left(), b.strays)
	b.await("what lives, and little more", x, false)
	if b.empty(x); b.left() > 0 {
		b.t.Errorf("of %d jobs that were put %d are lost", len(b.put), b.left())
	}
	b.await("nothing", x, true)
}

// await waits until there is no more than that in memory and on the disk.
func (b *backlog) await(what string, x soaked, empty bool) {
	var why error
	servertest.Await(b.t, "there is "+what, func() bool {
		why = x.check(empty)
		return why == nil
	})
	if why != nil {
		b.t.Error(why)
	}
}

func soakTube(n int) string { return fmt.Sprint("backlog-", n) }

const soakDead = "backlog-dead"

// churn has one connection do this and that until it ends, or until a time.
func (b *backlog) churn(w *wire, conn net.Conn, rng *rand.Rand, next *atomic.Int64, until time.Time) {
	ask := func(lines ...string) []reply {
		_ = conn.SetDeadline(time.Now().Add(servertest.Patience))
		replies, err := w.ask(lines)
		if err != nil {
			return nil
		}
		return replies
	}
	tube := func() string { return soakTube(rng.IntN(soakTubes)) }
	begin := []string{"ignore default"}
	for i := range soakTubes {
		begin = append(begin, "watch "+soakTube(i), fmt.Sprintf("set-tube %s attempts=2 dead=%s", soakTube(i), soakDead))
	}
	for replies := ask(begin...); replies != nil && time.Now().Before(until) && rng.IntN(200) > 0; {
		switch kind := rng.IntN(100); {
		case kind < 30 || kind < 60 && b.left() < soakAim:
			replies = b.putSome(ask, tube(), rng, next)
		case kind < 90:
			replies = b.takeSome(ask, rng)
		case kind < 93:
			replies = ask(fmt.Sprintf("move-tube %s ready %s %d", tube(), tube(), rng.IntN(50)))
		case kind < 95:
			replies = ask(fmt.Sprintf("move-tube %s buried %s %d", soakDead, tube(), rng.IntN(50)))
		case kind < 97:
			replies = ask(fmt.Sprint("kick-tube ", tube(), " 100"))
		default:
			if replies = ask("peek-tube " + tube() + " ready"); replies != nil && replies[0].line != "NOT_FOUND" {
				b.number(replies[0])
			}
		}
	}
}

// putSome puts some jobs.
func (b *backlog) putSome(ask func(...string) []reply, tube string, rng *rand.Rand, next *atomic.Int64) []reply {
	const some = 20
	end := int(next.Add(some))
	lines := []string{"use " + tube}
	for n := end - some; n < end; n++ {
		tags := ""
		switch rng.IntN(8) {
		case 0:
			tags = fmt.Sprintf(" idp:%d:100000", n) // what is left of it stays to the end: members are compared while nothing changes
		case 1:
			tags = fmt.Sprintf(" con:%d:3", n%50)
		case 2:
			tags = fmt.Sprintf(" fair:%d", n%5)
		}
		delay := max(0, rng.IntN(12)-9)
		lines = append(lines, fmt.Sprintf("put %d %d 600 %d%s\r\n%s", rng.IntN(3), delay, len(longBody(n)), tags, longBody(n)))
	}
	replies := ask(lines...)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := 1; i < len(replies); i++ {
		switch r := replies[i].line; {
		case strings.HasPrefix(r, "INSERTED "):
			b.put[end-some+i-1] = true
		case r != "OUT_OF_MEMORY":
			b.t.Errorf("put: %q", r)
		}
	}
	return replies
}

// takeSome reserves some jobs, and deletes, releases or buries each, or has it come back with the end of its connection.
func (b *backlog) takeSome(ask func(...string) []reply, rng *rand.Rand) []reply {
	const some = 8
	replies := ask(strings.Split(strings.Repeat("reserve-with-timeout 0\n", some)[:some*23-1], "\n")...)
	var lines []string
	var deletes []int // numbers of jobs, -1 for another command
	for _, r := range replies {
		id, isJob := strings.CutPrefix(r.line, "RESERVED ")
		if !isJob {
			if r.line != "TIMED_OUT" && r.line != "DEADLINE_SOON" {
				b.t.Errorf("reserve: %q", r.line)
			}
			continue
		}
		id, _, _ = strings.Cut(id, " ")
		n := b.number(r)
		b.mu.Lock()
		if b.taken[n] {
			b.t.Errorf("%s: job %d is back", r.line, n)
		}
		b.mu.Unlock()
		switch kind := rng.IntN(20); {
		case kind < 13:
			b.mu.Lock()
			b.deleted[n] = true
			b.mu.Unlock()
			lines, deletes = append(lines, "delete "+id), append(deletes, n)
		case kind < 17:
			lines, deletes = append(lines, fmt.Sprintf("release %s %d %d", id, rng.IntN(3), rng.IntN(2))), append(deletes, -1)
		case kind < 19:
			lines, deletes = append(lines, "bury "+id+" 1"), append(deletes, -1)
		}
	}
	if len(lines) == 0 {
		return replies
	}
	replies = ask(lines...)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range replies {
		switch {
		case deletes[i] >= 0 && r.line == "DELETED":
			b.taken[deletes[i]] = true
		case r.line == "NOT_FOUND": // the session was not heard of for too long
			b.strays++
		case r.line != "RELEASED" && r.line != "BURIED" && r.line != "OUT_OF_MEMORY":
			b.t.Errorf("%s: %q", lines[i], r.line)
		}
	}
	return replies
}

// number is that of the job in a reply, whose body is the one that was put.
func (b *backlog) number(r reply) (n int) {
	if _, err := fmt.Sscanf(r.body[:min(8, len(r.body))], "%d", &n); err != nil || r.body != string(longBody(n)) {
		b.t.Errorf("%s: the body is none that was put, of %d bytes", r.line, len(r.body))
	}
	return n
}

// empty takes all jobs.
func (b *backlog) empty(x soaked) {
	for left := -1; left != 0 && !b.t.Failed(); {
		conn, err := x.connect()
		if err != nil {
			continue
		}
		lines := []string{"watch " + soakDead, "kick-tube " + soakDead + " 1000000"}
		for i := range soakTubes {
			lines = append(lines, "watch "+soakTube(i), "kick-tube "+soakTube(i)+" 1000000")
		}
		_ = conn.SetDeadline(time.Now().Add(servertest.Patience))
		if _, err := newWire(conn).ask(lines); err == nil && b.drain(servertest.ClientOn(b.t, conn), 0) {
			left = 0
			stats, err := newWire(conn).ask([]string{"stats"})
			for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
				if err == nil {
					n, _ := strconv.Atoi(parseStats(stats[0].body)["current-jobs-"+state])
					left += n
				}
			}
			if err != nil {
				left = -1
			}
		}
		_ = conn.Close()
	}
}

// soakedServer is one server at a time, on one directory.
type soakedServer struct {
	t   *testing.T
	dir string
	url string
	s   atomic.Pointer[servertest.Server]
}

func newSoakedServer(t *testing.T) *soakedServer {
	x := &soakedServer{t: t, dir: t.TempDir()}
	x.start()
	return x
}

func (x *soakedServer) start() {
	s, url := servertest.Monitored(x.t, "-b", x.dir, "--body-memory", fmt.Sprint(soakLimit))
	x.url = url
	x.s.Store(s)
}

func (x *soakedServer) connect() (net.Conn, error) {
	a := x.s.Load().Addrs[0]
	return net.DialTimeout(a.Network(), a.String(), servertest.Patience)
}

func (x *soakedServer) fault(rng *rand.Rand) {
	if s := x.s.Load(); rng.IntN(2) == 0 {
		fullDisk(x.t, s.Process, rng)
	} else {
		s.Kill()
		x.start()
	}
}

func (x *soakedServer) check(empty bool) error {
	return checkBodies("the server", empty, diskUse(x.t, x.dir), 2, func(name string) float64 {
		return servertest.GaugeOf(x.t, x.url, name)
	})
}

// fullDisk has a process write nothing for a moment, or nothing beyond some place of a file.
func fullDisk(t *testing.T, p *servertest.Process, rng *rand.Rand) {
	t.Helper()
	for _, limit := range []uint64{uint64(rng.IntN(2)) * uint64(rng.IntN(soakSegment)), unix.RLIM_INFINITY} {
		l := unix.Rlimit{Cur: limit, Max: unix.RLIM_INFINITY}
		if err := unix.Prlimit(p.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
	}
}

// diskUse is how many bytes the files of a directory have.
func diskUse(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil
		}
		if err == nil && !d.IsDir() {
			if i, e := d.Info(); e == nil {
				n += i.Size()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkBodies says what is wrong with the bodies of a server, and with so many bytes that are on its disk for them, which
// may be so many times as many as live, and some files more.
func checkBodies(who string, empty bool, disk int64, times float64, metric func(name string) float64) error {
	memory, cold := metric("beanstalkd_bodies_memory_bytes"), metric("beanstalkd_bodies_cold_bytes")
	unreadable, stuck := metric("beanstalkd_bodies_unreadable_total"), metric("beanstalkd_bodies_stuck_segments")
	if most := times*1.05*(memory+cold) + 4*soakSegment; memory > soakLimit || float64(disk) > most || unreadable+stuck > 0 ||
		empty && (memory > 1<<20 || cold > 0) {
		return fmt.Errorf("%s has %.1f MB of bodies in memory and %.1f MB not, %.1f MB on the disk, %v unreadable bodies, %v stuck files",
			who, memory/1e6, cold/1e6, float64(disk)/1e6, unreadable, stuck)
	}
	return nil
}

// soakedMembers are a cluster.
type soakedMembers struct{ *coldCluster }

func newSoakedMembers(t *testing.T) soakedMembers {
	x := soakedMembers{&coldCluster{Lab: clustertest.NewLab(t)}}
	for range 3 {
		x.Add(t.TempDir()).Args = []string{"--http=127.0.0.1:0", fmt.Sprint("--body-memory=", soakLimit)}
	}
	x.StartAll()
	return x
}

func (x soakedMembers) connect() (net.Conn, error) {
	addrs := x.Addrs()
	return net.DialTimeout("tcp", addrs[rand.IntN(len(addrs))], servertest.Patience)
}

func (x soakedMembers) fault(rng *rand.Rand) {
	n := x.Nodes[rng.IntN(len(x.Nodes))]
	if rng.IntN(2) == 0 {
		n = x.Leader()
	}
	while := func() { time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second)))) }
	switch rng.IntN(5) {
	case 0:
		fullDisk(x.T, n.Process, rng)
	case 1:
		x.Stop(n)
		while()
		x.Start(n)
	case 2:
		n.Signal(syscall.SIGSTOP)
		while()
		n.Signal(syscall.SIGCONT)
	case 3:
		x.Network.Isolate(n.Name)
		while()
		x.Network.Heal()
	case 4:
		_, _ = x.Ask(x.Leader(), fmt.Sprintf(`{"op":"transfer","to":%q}`, n.Name)) // it may lead already
	}
}

func (x soakedMembers) check(empty bool) (err error) {
	for _, n := range x.Nodes {
		if empty {
			x.backup(n, filepath.Join(x.T.TempDir(), "backup")) // for which it takes a snapshot
		}
		metric := func(name string) float64 { return x.metric(n, name) }
		files := int64(metric("beanstalkd_bodies_files_bytes"))
		if !empty {
			files -= 1 << 30 // that wait for the next snapshot
		}
		err = errors.Join(err, checkBodies(n.Name, empty, files, 1.5, metric))
	}
	if err == nil {
		x.Agree()
	}
	return err
}
