package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trellis/binlog/convert"
	"trellis/binlog/vfs"
	"trellis/cmd/trellisd/internal/servertest"
)

// startBeanstalkd starts a beanstalkd with a log and returns a connection to it,
// and what kills it.
func startBeanstalkd(t *testing.T, dir string) (c *servertest.Client, kill func()) {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		servertest.NeedPeer(t, "beanstalkd is not installed: %v", err)
	}
	sock := filepath.Join(servertest.SocketDir(t), "s")
	p := servertest.LaunchCommand(t, exec.Command(path, "-b", dir, "-l", "unix:"+sock, "-z", "70000"))
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("unix", sock); err == nil {
			conn.Close()
			return servertest.Dial(t, servertest.AddrOn("unix", sock)), p.Kill
		}
		if time.Since(began) > servertest.Patience {
			t.Fatal("beanstalkd does not listen")
		}
	}
}

func askAll(c *servertest.Client, lines ...string) []reply {
	c.T.Helper()
	w := newWire(c.Conn)
	w.in = c.In
	c.Renew()
	replies, err := w.ask(lines)
	if err != nil {
		c.T.Fatal(err)
	}
	return replies
}

// jobSeen is what a client can see of a job.
type jobSeen struct {
	stats map[string]string
	body  string
}

// lookAt returns all jobs with ids up to last, and the buried ones of each tube
// in their order, which it kicks.
func lookAt(c *servertest.Client, last int) (jobs map[int]jobSeen, burials map[string][]string) {
	c.T.Helper()
	jobs, burials = map[int]jobSeen{}, map[string][]string{}
	for id := 1; id <= last; id++ {
		r := askAll(c, fmt.Sprint("stats-job ", id), fmt.Sprint("peek ", id))
		if r[0].line == "NOT_FOUND" {
			continue
		}
		j := jobSeen{parseStats(r[0].body), r[1].body}
		if j.stats["state"] == "buried" {
			burials[strings.Trim(j.stats["tube"], `"`)] = nil
		}
		jobs[id] = j
	}
	for tube := range burials {
		askAll(c, "use "+tube)
		for {
			r := askAll(c, "peek-buried", "kick 1")
			if r[0].line == "NOT_FOUND" {
				break
			}
			burials[tube] = append(burials[tube], strings.Fields(r[0].line)[1])
		}
	}
	return jobs, burials
}

// wantSame compares jobs. Theirs were seen by beanstalkd after a restart, which
// adds one to the burials of each buried job.
func wantSame(t *testing.T, ours, theirs map[int]jobSeen) {
	t.Helper()
	if len(ours) != len(theirs) {
		t.Errorf("%d jobs, want %d", len(ours), len(theirs))
	}
	for id, want := range theirs {
		got, ok := ours[id]
		if !ok {
			t.Errorf("job %d is lost", id)
			continue
		}
		if got.body != want.body {
			t.Errorf("job %d has the body %.50q, want %.50q", id, got.body, want.body)
		}
		for key, value := range want.stats {
			have := strings.Trim(got.stats[key], `"`) // the tube's name
			switch value = strings.Trim(value, `"`); key {
			case "file": // of the log
				continue
			case "buries":
				if want.stats["state"] == "buried" {
					n, _ := strconv.Atoi(have)
					have = strconv.Itoa(n + 1)
				}
			case "age", "time-left":
				a, _ := strconv.Atoi(have)
				b, _ := strconv.Atoi(value)
				if min(a, b)+int(10*servertest.Patience/time.Second) > max(a, b) {
					continue
				}
			}
			if have != value {
				t.Errorf("job %d (%s) has %s %s, want %s", id, want.stats["state"], key, have, value)
			}
		}
	}
}

func TestWhatBeanstalkdHasIsTakenOverAndGivenBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, kill := startBeanstalkd(t, dir)
	const last = 400
	rng := rand.New(rand.NewPCG(1, 2))
	for id := 1; id <= last; id++ {
		size := rng.IntN(200)
		if id%50 == 0 {
			size = 65535 - rng.IntN(3)
		}
		delay := 0
		if rng.IntN(4) == 0 {
			delay = 5000 + rng.IntN(1000)
		}
		askAll(c, fmt.Sprint("use tube-", rng.IntN(7)))
		put := fmt.Sprintf("put %d %d %d %d\r\n%s", rng.Uint32(), delay, 1000+rng.IntN(100), size, strings.Repeat("\r\n\x00a", size)[:size])
		if r := askAll(c, put); r[0].line != fmt.Sprint("INSERTED ", id) {
			t.Fatalf("%q", r[0].line)
		}
	}
	buried := map[string][]string{}
	for range 3 * last {
		id := 1 + rng.IntN(last)
		switch rng.IntN(7) {
		case 0:
			askAll(c, fmt.Sprint("reserve-job ", id), fmt.Sprintf("release %d %d %d", id, rng.Uint32(), 6000))
		case 1, 2, 3:
			r := askAll(c, fmt.Sprint("stats-job ", id), fmt.Sprint("reserve-job ", id), fmt.Sprintf("bury %d %d", id, rng.Uint32()))
			if r[2].line == "BURIED" {
				tube := strings.Trim(parseStats(r[0].body)["tube"], `"`)
				buried[tube] = append(slices.DeleteFunc(buried[tube], func(s string) bool { return s == strconv.Itoa(id) }), strconv.Itoa(id))
			}
		case 4:
			askAll(c, fmt.Sprint("kick-job ", id))
		case 5:
			if rng.IntN(4) == 0 {
				askAll(c, fmt.Sprint("reserve-job ", id), fmt.Sprint("delete ", id))
			}
		case 6:
			askAll(c, fmt.Sprint("reserve-job ", id))
		}
	}
	kill()

	// What beanstalkd itself would have after a restart is what there must be.
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	c, kill = startBeanstalkd(t, copied)
	theirs, _ := lookAt(c, last)
	kill()

	if len(theirs) < last/2 || len(buried) < 7 {
		t.Fatalf("only %d jobs are left, and %d tubes have buried ones", len(theirs), len(buried))
	}

	s := servertest.Start(t, "-b", dir, "-s65536")
	// The order of burials is not that of beanstalkd's restart, but the true one.
	for tube := range buried {
		buried[tube] = slices.DeleteFunc(buried[tube], func(id string) bool {
			n, _ := strconv.Atoi(id)
			return theirs[n].stats["state"] != "buried"
		})
	}
	maps.DeleteFunc(buried, func(_ string, ids []string) bool { return len(ids) == 0 })
	s.Signal(syscall.SIGKILL) // before anything has changed
	s.Wait()
	back := t.TempDir()
	if _, err := convert.Export(vfs.OS{}, dir, back); err != nil {
		t.Fatal(err)
	}

	c = servertest.Start(t, "-b", dir).Dial(0)
	ours, order := lookAt(c, last)
	wantSame(t, ours, theirs)
	if !maps.EqualFunc(order, buried, slices.Equal) {
		t.Errorf("the buried jobs come in the order %v, want %v", order, buried)
	}
	if r := askAll(c, "put 1 0 60 1\r\nx"); r[0].line != fmt.Sprint("INSERTED ", last+1) {
		t.Errorf("the next job is %s", r[0].line)
	}

	c, _ = startBeanstalkd(t, back)
	again, order := lookAt(c, last)
	wantSame(t, ours, again)
	if !maps.EqualFunc(order, buried, slices.Equal) {
		t.Errorf("beanstalkd has the buried jobs in the order %v, want %v", order, buried)
	}
	if r := askAll(c, "put 1 0 60 1\r\nx"); r[0].line != fmt.Sprint("INSERTED ", last+1) {
		t.Errorf("beanstalkd's next job is %s", r[0].line)
	}
}

func TestADirectoryIsForOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := servertest.Start(t, "-b", dir)
	second := servertest.Launch(t, "-l127.0.0.1", "-p0", "-b", dir)
	want := fmt.Sprintf("trellisd: log directory %s: the directory is in use: %s/lock is locked by process %d", dir, dir, first.Cmd.Process.Pid)
	if code := second.Wait(); code != servertest.ExitBinlog || strings.Join(second.Log(), "\n") != want {
		t.Errorf("exit code %d, %q; want %d, %q", code, second.Log(), servertest.ExitBinlog, want)
	}
}

func TestDamageStopsTheStartUnlessItIsToBeSkipped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := servertest.Start(t, "-b", dir, "-s4096")
	c := s.Dial(0)
	body := strings.Repeat("x", 200)
	for id := 1; id <= 100; id++ {
		askAll(c, fmt.Sprintf("put 1 0 60 %d\r\n%s", len(body), body))
	}
	s.Signal(syscall.SIGTERM)
	s.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "trellis.*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	f, err := os.OpenFile(files[1], os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("damage"), 1000)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}

	p := servertest.Launch(t, "-l127.0.0.1", "-p0", "-b", dir)
	code, log := p.Wait(), strings.Join(p.Log(), "\n")
	for _, want := range []string{
		files[1] + ": offset ", "look with: trellis binlog verify " + dir + "; to start with what is sound, and keep the files aside, add --skip-damaged",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	if code == servertest.ExitOK {
		t.Error("exit code 0")
	}
	s = servertest.Start(t, "-b", dir, "--skip-damaged")
	if got := servertest.Stats(s.Dial(0))["current-jobs-ready"]; got != "99" {
		t.Errorf("%s of 100 jobs are there; one was damaged", got)
	}
	s.WaitText("taking over what is sound")
}
