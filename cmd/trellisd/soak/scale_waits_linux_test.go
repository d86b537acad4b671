//go:build proof

package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trellis/cmd/trellisd/internal/servertest"
)

func init() { scales = append(scales, scale{"waits", scaleWaits}) }

// waitTrials is how often each wait is measured, on a server of its own each time.
const waitTrials = 5

// A waitCase is something that one client does and others wait for.
type waitCase struct {
	name, what string
	args       []string // of the server
	binlog     bool     // the server keeps one
	// prepare brings the server into its state. It returns what is done while the probes run; that ends when the server has
	// done its work.
	prepare func(w *waits) (do func())
	// check, when set, fails the test unless all jobs are where they should be afterwards.
	check func(w *waits)
}

// waits is one trial: a server, and its clients but for the probes.
type waits struct {
	*testing.T
	s *servertest.Server
	a net.Addr
	c *servertest.Client // asks for statistics, and may do what the others wait for
	// conns are closed at the end of the trial.
	conns []net.Conn
	// memory is what the server's memory grew by at most, for each client that asked; 0 when the case is not about it.
	memory int64
	// watched is the length of a watch list; 0 when the case is not about it.
	watched int
}

// scaleWaits measures the longest time that a client waits for the answer to a command that costs nothing, while another
// client gives the server as much to do as it can. With one loop, the server has a processor of its own, and the clients
// have another one. With two loops nothing is bound to a processor, and there is a probe on each loop; w.c is on the loop
// of probe 1. It reports times and asserts only counts.
func scaleWaits(t *testing.T) {
	for _, c := range slices.Concat(stockWaits, extensionWaits) {
		t.Run(c.name, func(t *testing.T) {
			for _, loops := range []int{1, 2} {
				c.measure(t, loops)
			}
		})
	}
}

const workers = 8000

// stockWaits are waits for commands of the stock protocol, and for what happens by time.
var stockWaits = []waitCase{
	{name: "quiet", what: "nothing happens for 0.5 s", prepare: func(*waits) func() {
		return func() { time.Sleep(500 * time.Millisecond) }
	}},
	{name: "pause", what: "a pause ends for which 8,000 workers wait, with 8,000 jobs", prepare: func(w *waits) func() {
		w.c.Send("pause-tube default 4000000")
		w.c.Want("PAUSED")
		pump(w, w.a, workers, "INSERTED", putting(10, "0"))
		crowd := w.crowd(workers, "reserve")
		return func() {
			w.c.Send("pause-tube default 1")
			w.c.Want("PAUSED")
			crowd.await("RESERVED", 2)
		}
	}, check: func(w *waits) {
		wantCounts(w.c, map[string]int{"current-jobs-reserved": workers, "current-jobs-ready": 0, "current-waiting": 0})
	}},
	{name: "list", what: "16 clients ask for list-tubes with 100,000 tubes of 200 bytes", prepare: prepareLists, check: func(w *waits) {
		wantCounts(w.c, map[string]int{"current-jobs-ready": listTubes, "current-tubes": listTubes + 1})
	}},
	{name: "kick", what: "two clients kick 300,000 buried jobs each", prepare: func(w *waits) func() {
		const n = 300_000
		w.buried("one", 1, n)
		w.buried("two", n+1, n)
		clients := []*servertest.Client{w.dial("use one", "USING one"), w.dial("use two", "USING two")}
		return func() {
			for _, c := range clients {
				c.Send("kick 4294967295")
			}
			for _, c := range clients {
				c.Want(fmt.Sprint("KICKED ", n))
			}
		}
	}, check: func(w *waits) {
		wantCounts(w.c, map[string]int{"current-jobs-ready": 600_000, "current-jobs-buried": 0})
	}},
	{name: "timeout", what: "8,000 reserve-with-timeout end in the same moment", prepare: func(w *waits) func() {
		crowd := w.crowd(workers, "reserve-with-timeout 5")
		// A server that stands still while they come to their end has all of them to end when it goes on.
		w.s.Signal(syscall.SIGSTOP)
		time.Sleep(5 * time.Second)
		return func() {
			w.s.Signal(syscall.SIGCONT)
			crowd.await("TIMED_OUT", 1)
		}
	}, check: func(w *waits) { wantCounts(w.c, map[string]int{"current-waiting": 0}) }},
	{name: "kicks", what: "74 kicks of 4,000 jobs in one write", prepare: func(w *waits) func() {
		w.buried("one", 1, 74*4000)
		c := w.dial("use one", "USING one")
		return func() {
			c.Send(slices.Repeat([]string{"kick 4000"}, 74)...)
			c.Want(slices.Repeat([]string{"KICKED 4000"}, 74)...)
		}
	}, check: func(w *waits) {
		wantCounts(w.c, map[string]int{"current-jobs-ready": 74 * 4000, "current-jobs-buried": 0})
	}},
	{name: "watched", what: "a client loops reserve-with-timeout 0, 40 in a write, with as long a watch list as it may have", prepare: prepareWatching},
	{
		name: "watched-20000", what: "a client loops reserve-with-timeout 0, 40 in a write, with 20,000 watched tubes",
		args: []string{"--max-watched=0"}, prepare: prepareWatching,
	},
	{name: "close", what: "a client with 1,000,000 reservations closes", prepare: func(w *waits) func() {
		const n = 1_000_000
		conn := w.connect()
		pumpConn(w, conn, n, "INSERTED", putting(1, "0"))
		pumpConn(w, conn, 2*n, "", func(b []byte, i int) []byte {
			if i%2 == 0 { // a reply has two lines
				b = append(b, "reserve\r\n"...)
			}
			return b
		})
		wantCounts(w.c, map[string]int{"current-jobs-reserved": n})
		return func() {
			conn.Close()
			servertest.Await(w.T, "all jobs are ready", func() bool { return servertest.Stats(w.c)["current-jobs-ready"] == strconv.Itoa(n) })
		}
	}, check: func(w *waits) {
		wantCounts(w.c, map[string]int{"current-jobs-ready": 1_000_000, "current-jobs-reserved": 0})
		for id := 1; id <= 1000; id++ { // in their old order
			w.c.Send("reserve")
			w.c.Want(fmt.Sprintf("RESERVED %d 1", id), "j")
		}
	}},
	cold("cold-drain", "a client takes 300,000 jobs of 1 KB, most of whose bodies are on the disk only", func(w *waits) {
		pumpConn(w, w.connect(), 3*coldJobs, "", func(b []byte, i int) []byte {
			switch i % 3 {
			case 0: // a reply of two lines
				b = append(b, "reserve\r\n"...)
			case 2:
				b = deleting(1, 1)(b, i/3)
			}
			return b
		})
	}),
	cold("cold-peeks", "four clients peek at 20,000 such jobs at random each", func(w *waits) {
		const clients, peeks = 4, 20_000
		ended := make(chan error, clients)
		for k := range clients {
			conn, rnd := w.connect(), rand.New(rand.NewPCG(1, uint64(k)))
			go func() {
				ended <- pumpOver(conn, 2*peeks, "", func(b []byte, i int) []byte {
					if i%2 == 0 {
						b = fmt.Appendf(b, "peek %d\r\n", 1+rnd.IntN(coldJobs))
					}
					return b
				})
			}()
		}
		for range clients {
			if err := <-ended; err != nil {
				w.Fatal(err)
			}
		}
	}),
	cold("cold-compaction", "three of four such jobs are deleted, and the log is compacted", func(w *waits) {
		conn := w.connect()
		for k := range 3 {
			pumpConn(w, conn, coldJobs/4, "DELETED", deleting(k+1, 4))
		}
		moved := "0"
		servertest.Await(w.T, "jobs are moved", func() bool {
			before := moved
			moved = servertest.Stats(w.c)["binlog-records-migrated"]
			time.Sleep(200 * time.Millisecond)
			return moved != "0" && moved == before
		})
	}),
}

// coldJobs is how many jobs the cases of cold are about.
const coldJobs = 300_000

// cold is a case with a backlog of which 64 MB are in memory.
func cold(name, what string, do func(w *waits)) waitCase {
	return waitCase{name: name, what: what, args: []string{"--body-memory=64MB"}, binlog: true, prepare: func(w *waits) func() {
		pump(w, w.a, coldJobs, "INSERTED", putting(1024, "0"))
		return func() { do(w) }
	}}
}

// measure writes a row.
func (c *waitCase) measure(t *testing.T, loops int) {
	longest, work := make([][]time.Duration, loops), make([][]time.Duration, loops) // for each loop, of each trial
	var memory []int64
	n, watched := 0, 0
	for range waitTrials {
		probes, w := c.trial(t, loops)
		for i, p := range probes {
			longest[i], work[i] = append(longest[i], p.longest), append(work[i], p.work)
			n += p.n
		}
		watched = w.watched
		if w.memory > 0 {
			memory = append(memory, w.memory)
		}
		if t.Failed() {
			return
		}
	}
	var told []string
	for i := range loops {
		text := fmt.Sprintf("longest wait %s ms, most CPU of the server during a wait %s ms", spread(longest[i]), spread(work[i]))
		if loops > 1 {
			text = fmt.Sprintf("probe %d: %s", i+1, text)
		}
		told = append(told, text)
	}
	if len(memory) > 0 {
		slices.Sort(memory)
		told = append(told, fmt.Sprintf("memory for each client %d / %d / %d KiB", memory[0]>>10, memory[len(memory)/2]>>10, memory[len(memory)-1]>>10))
	}
	if watched > 0 {
		told = append(told, fmt.Sprintf("%d tubes watched", watched))
	}
	row(t, "%s, --loops %d: %s (least, median, greatest of %d trials; %d commands of the probes)",
		c.what, loops, strings.Join(told, "; "), waitTrials, n)
}

// spread is the least, the median and the greatest of some times in milliseconds.
func spread(all []time.Duration) string {
	slices.Sort(all)
	ms := func(i int) float64 { return float64(all[i]) / 1e6 }
	return fmt.Sprintf("%.2f / %.2f / %.2f", ms(0), ms(len(all)/2), ms(len(all)-1))
}

// trial measures once. It returns a probe for each loop.
func (c *waitCase) trial(t *testing.T, loops int) ([]*waitProbe, *waits) {
	t.Helper()
	args := append([]string{"--loops=" + strconv.Itoa(loops)}, c.args...)
	if c.binlog {
		dir, err := os.MkdirTemp("", "trellis-waits-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		args = append(args, "-b", dir)
	}
	cmd := exec.Command(servertest.Binary, append([]string{"-p0", "-l127.0.0.1", "-V", "--log-format=json"}, args...)...)
	var p *servertest.Process
	onProcessor(t, pinning(loops, serverProcessor), func() { p = servertest.LaunchCommand(t, cmd) })
	if t.Failed() {
		t.FailNow()
	}
	defer bindTest(t, pinning(loops, clientProcessor))()
	s := servertest.Ready(p, 1)
	defer s.Kill()

	// The server gives a connection to the loop that has the fewest. The first ones are the probes', one on each loop.
	var probes []*waitProbe
	for range loops {
		probes = append(probes, startProbe(t, s.Addrs[0].String(), s.Cmd.Process.Pid, askPeek))
	}
	w := &waits{T: t, s: s, a: s.Addrs[0]}
	defer w.close()
	w.c = w.dial("use default", "USING default")
	do := c.prepare(w)
	if t.Failed() {
		t.FailNow()
	}

	for _, p := range probes {
		p.begin(t)
	}
	do()
	time.Sleep(50 * time.Millisecond) // of what it leaves behind
	for _, p := range probes {
		p.end(t)
	}
	if c.check != nil {
		c.check(w)
	}
	return probes, w
}

// connect returns a connection that is closed at the end of the trial.
func (w *waits) connect() net.Conn {
	w.Helper()
	conn, err := net.Dial(w.a.Network(), w.a.String())
	if err != nil {
		w.Fatal(err)
	}
	w.conns = append(w.conns, conn)
	return conn
}

func (w *waits) close() {
	for _, conn := range w.conns {
		conn.Close()
	}
}

// dial returns a client that has had one command answered.
func (w *waits) dial(command, reply string) *servertest.Client {
	w.Helper()
	c := &servertest.Client{T: w.T, Conn: w.connect()}
	c.In = bufio.NewReader(c.Conn)
	if err := c.Conn.SetDeadline(time.Now().Add(10 * servertest.Patience)); err != nil {
		w.Fatal(err)
	}
	c.Send(command)
	c.Want(reply)
	return c
}

// pumpConn is pump on a connection of the caller's.
func pumpConn(w *waits, conn net.Conn, count int, reply string, command func(b []byte, i int) []byte) {
	w.Helper()
	if err := pumpOver(conn, count, reply, command); err != nil {
		w.Fatal(err)
	}
}

// buried fills a tube with n buried jobs, of which the first gets the id first.
func (w *waits) buried(tube string, first, n int) {
	w.Helper()
	conn := w.connect()
	defer conn.Close()
	pumpConn(w, conn, 3, "", func(b []byte, i int) []byte {
		return append(b, []string{"use " + tube + "\r\n", "watch " + tube + "\r\n", "ignore default\r\n"}[i]...)
	})
	pumpConn(w, conn, 4*n, "", func(b []byte, i int) []byte {
		switch i % 4 {
		case 0:
			b = append(b, "put 0 0 600 1\r\nx\r\n"...)
		case 1: // a reply of two lines
			b = append(b, "reserve\r\n"...)
		case 3:
			b = append(strconv.AppendInt(append(b, "bury "...), int64(first+i/4), 10), " 0\r\n"...)
		}
		return b
	})
	stat := w.c.Data("stats-tube " + tube)
	if want := fmt.Sprintf("\ncurrent-jobs-buried: %d\n", n); !strings.Contains(stat, want) {
		w.Fatalf("stats-tube %s: got %q, want %q", tube, stat, want)
	}
}

// A crowd is many clients that wait for the answer to a command.
type crowd struct {
	w     *waits
	conns []net.Conn
}

// crowd connects n clients and returns when all of them wait.
func (w *waits) crowd(n int, command string) *crowd {
	w.Helper()
	c := &crowd{w: w}
	for range n {
		c.conns = append(c.conns, w.connect())
	}
	for _, conn := range c.conns {
		if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
			w.Fatal(err)
		}
	}
	servertest.Await(w.T, "all workers wait", func() bool { return servertest.Stats(w.c)["current-waiting"] == strconv.Itoa(n) })
	return c
}

// await reads an answer of so many lines on every connection.
func (c *crowd) await(begin string, lines int) {
	c.w.Helper()
	var wg sync.WaitGroup
	for _, conn := range c.conns {
		wg.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(2 * servertest.Patience))
			var b []byte
			for bytes.Count(b, []byte("\n")) < lines {
				b = slices.Grow(b, 64)
				n, err := conn.Read(b[len(b):cap(b)])
				if b = b[:len(b)+n]; err != nil {
					c.w.Errorf("got %q, %v", b, err)
					return
				}
			}
			if !bytes.HasPrefix(b, []byte(begin)) {
				c.w.Errorf("got %q, want %s", b, begin)
			}
		})
	}
	wg.Wait()
}

const (
	listTubes   = 100_000
	listClients = 16
)

// prepareLists makes tubes with long names. The clients that ask do not read for a moment, so that what the server keeps
// for them is seen.
func prepareLists(w *waits) func() {
	name := func(i int) string { return fmt.Sprintf("%0200d", i) }
	pump(w, w.a, 2*listTubes, "", func(b []byte, i int) []byte {
		if i%2 == 0 {
			return fmt.Appendf(b, "use %s\r\n", name(i/2))
		}
		return append(b, "put 0 0 600 1\r\nx\r\n"...)
	})
	var clients []*servertest.Client
	for range listClients {
		clients = append(clients, w.dial("use default", "USING default"))
	}
	pid := w.s.Cmd.Process.Pid
	before := resident(w, pid)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // forget the peak
		w.Logf("the server's peak of memory is that since its start: %v", err)
	}
	return func() {
		for _, c := range clients {
			c.Send("list-tubes")
		}
		time.Sleep(300 * time.Millisecond)
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() { w.wantLines(c, listTubes+3) }) // "---", default, and the end
		}
		wg.Wait()
		w.memory = max(1, (peakMemory(w, pid)-before)/listClients)
	}
}

// wantLines reads a reply with so many lines of data. Any goroutine may call it.
func (w *waits) wantLines(c *servertest.Client, want int) {
	line, err := c.In.ReadString('\n')
	size := 0
	if _, scanErr := fmt.Sscanf(line, "OK %d", &size); scanErr != nil {
		w.Errorf("a list begins with %q, %v", line, errors.Join(err, scanErr))
		return
	}
	counts := new(lineCounter)
	if _, err := io.CopyN(counts, c.In, int64(size)+2); err != nil {
		w.Errorf("a list of %d bytes: %v", size, err)
	}
	if counts.n != want {
		w.Errorf("a list has %d lines, want %d", counts.n, want)
	}
}

// A lineCounter counts the lines that are written to it.
type lineCounter struct{ n int }

func (l *lineCounter) Write(p []byte) (int, error) {
	l.n += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// peakMemory is the most resident memory that a process has had.
func peakMemory(w *waits, pid int) int64 {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		w.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb := int64(0)
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		w.Fatalf("VmHWM: %v", err)
	}
	return kb << 10
}

// prepareWatching has a client watch 20,000 tubes or, when the server refuses one of them, as many as it may.
func prepareWatching(w *waits) func() {
	const most = 20_000
	c := w.dial("use default", "USING default")
	watched := 1
	for watched < most {
		batch := min(1000, most-watched)
		lines := make([]string, batch)
		for i := range lines {
			lines[i] = fmt.Sprint("watch w", watched+i)
		}
		c.Send(lines...)
		accepted := 0
		for range batch {
			if strings.HasPrefix(c.Line(), "WATCHING ") {
				accepted++
			}
		}
		if watched += accepted; accepted < batch {
			break
		}
	}
	w.watched = watched
	const batch = 40 // less than a kilobyte
	return func() {
		n := 0
		for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); n++ {
			c.Send(slices.Repeat([]string{"reserve-with-timeout 0"}, batch)...)
			c.Want(slices.Repeat([]string{"TIMED_OUT"}, batch)...)
		}
		if n == 0 {
			w.Error("no reserve has ended")
		}
	}
}

// The processors of a server with one loop and of its clients.
const (
	serverProcessor = 0
	clientProcessor = 1
)

// pinning returns the processor to bind to, or a negative number when there is no need or no second processor.
func pinning(loops, cpu int) int {
	if loops > 1 || runtime.NumCPU() < 2 {
		return -1
	}
	return cpu
}

// onProcessor runs f on a thread that is bound to a processor, which a process that f starts inherits.
func onProcessor(t *testing.T, cpu int, f func()) {
	t.Helper()
	if cpu < 0 {
		f()
		return
	}
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its binding
		var set unix.CPUSet
		set.Set(cpu)
		if err = unix.SchedSetaffinity(0, &set); err == nil {
			f()
		}
	}()
	if <-done; err != nil {
		t.Fatalf("binding the server to processor %d: %v", cpu, err)
	}
}

// bindTest binds all threads of this process to a processor. The function that it returns frees them.
func bindTest(t *testing.T, cpu int) (free func()) {
	t.Helper()
	if cpu < 0 {
		return func() {}
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	set.Set(cpu)
	bind := func(set *unix.CPUSet) {
		tasks, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(filepath.Base(task))
			if err == nil {
				err = unix.SchedSetaffinity(tid, set)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				t.Fatalf("binding the clients: %v", err)
			}
		}
	}
	bind(&set)
	return func() { bind(&before) }
}
