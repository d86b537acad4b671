package process

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beanstalkd/go-beanstalk"

	"trellis/cmd/trellisd/internal/servertest"
)

// clientOf connects the Go client to a server.
func clientOf(t *testing.T, s *servertest.Server) *beanstalk.Conn {
	t.Helper()
	c, err := beanstalk.Dial(s.Addrs[0].Network(), s.Addrs[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// isErr fails the test if err is not want, wrapped by the client or not.
func isErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v; want %v", err, want)
	}
}

// job fails the test if a call did not return the job with this id and body.
func job(t *testing.T, id uint64, body []byte, err error, wantID uint64, wantBody string) {
	t.Helper()
	servertest.NoError(t, err)
	if id != wantID || string(body) != wantBody {
		t.Fatalf("got job %d, %q; want %d, %q", id, body, wantID, wantBody)
	}
}

func TestGoBeanstalkTakesAJobThroughEveryState(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	c := clientOf(t, s)
	tube, tubes := beanstalk.NewTube(c, "t"), beanstalk.NewTubeSet(c, "t")
	state := func(want string) {
		t.Helper()
		dict, err := c.StatsJob(1)
		servertest.NoError(t, err)
		if dict["state"] != want || dict["tube"] != `"t"` && dict["tube"] != "t" {
			t.Fatalf("got %v; want state %s", dict, want)
		}
	}

	put, err := tube.Put([]byte("hello"), 7, 0, 60*time.Second)
	job(t, put, nil, err, 1, "")
	state("ready")
	id, body, err := tube.PeekReady()
	job(t, id, body, err, 1, "hello")

	id, body, err = tubes.Reserve(0)
	job(t, id, body, err, 1, "hello")
	state("reserved")
	servertest.NoError(t, c.Touch(1))
	servertest.NoError(t, c.Release(1, 5, time.Hour))
	state("delayed")
	id, body, err = tube.PeekDelayed()
	job(t, id, body, err, 1, "hello")
	servertest.NoError(t, c.KickJob(1))
	state("ready")

	body, err = c.ReserveJob(1)
	job(t, 1, body, err, 1, "hello")
	servertest.NoError(t, c.Bury(1, 9))
	state("buried")
	id, body, err = tube.PeekBuried()
	job(t, id, body, err, 1, "hello")
	body, err = c.Peek(1)
	job(t, 1, body, err, 1, "hello")
	n, err := tube.Kick(10)
	servertest.NoError(t, err)
	if n != 1 {
		t.Fatalf("kicked %d", n)
	}
	state("ready")
	servertest.NoError(t, c.Delete(1))

	for name, err := range map[string]error{
		"delete":    c.Delete(1),
		"release":   c.Release(1, 0, 0),
		"bury":      c.Bury(1, 0),
		"touch":     c.Touch(1),
		"kick-job":  c.KickJob(1),
		"peek":      second(c.Peek(1)),
		"reserve":   second(c.ReserveJob(1)),
		"stats-job": second(c.StatsJob(1)),
	} {
		if !errors.Is(err, beanstalk.ErrNotFound) {
			t.Errorf("%s of a deleted job: %v", name, err)
		}
	}
	for name, peek := range map[string]func() (uint64, []byte, error){
		"ready": tube.PeekReady, "delayed": tube.PeekDelayed, "buried": tube.PeekBuried,
	} {
		if _, _, err := peek(); !errors.Is(err, beanstalk.ErrNotFound) {
			t.Errorf("peek-%s of an empty tube: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestGoBeanstalkReservesFromManyTubes(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	producer, worker := clientOf(t, s), clientOf(t, s)
	set := beanstalk.NewTubeSet(worker, "a", "b", "c")

	_, _, err := set.Reserve(0)
	isErr(t, err, beanstalk.ErrTimeout)
	_, _, err = set.Reserve(time.Second)
	isErr(t, err, beanstalk.ErrTimeout)

	for i, name := range []string{"c", "a", "unwatched", "b"} {
		_, err := beanstalk.NewTube(producer, name).Put([]byte(name), uint32(10-i), 0, time.Minute)
		servertest.NoError(t, err)
	}
	for _, want := range []string{"b", "a", "c"} { // by priority over all tubes
		_, body, err := set.Reserve(0)
		servertest.NoError(t, err)
		if string(body) != want {
			t.Fatalf("got %q; want %q", body, want)
		}
	}

	type reserved struct {
		body string
		err  error
	}
	got := make(chan reserved)
	go func() {
		_, body, err := set.Reserve(servertest.Patience)
		got <- reserved{string(body), err}
	}()
	_, err = beanstalk.NewTube(producer, "b").Put([]byte("late"), 0, time.Second, time.Minute)
	servertest.NoError(t, err)
	if r := <-got; r.err != nil || r.body != "late" {
		t.Fatalf("got %+v", r)
	}
}

func TestGoBeanstalkSeesDeadlineSoon(t *testing.T) {
	t.Parallel()
	c := clientOf(t, servertest.Start(t))
	id, err := c.Put([]byte("x"), 0, 0, time.Second)
	servertest.NoError(t, err)
	got, _, err := c.Reserve(0)
	job(t, got, nil, err, id, "")
	for range servertest.Attempts { // it is given again if the time is over before the next reserve
		if got, _, err = c.Reserve(servertest.Patience); err != nil {
			break
		}
		job(t, got, nil, nil, id, "")
	}
	isErr(t, err, beanstalk.ErrDeadline)
}

func TestGoBeanstalkReadsStatisticsAndLists(t *testing.T) {
	t.Parallel()
	c := clientOf(t, servertest.Start(t))
	tube := beanstalk.NewTube(c, "numbers")
	for i := range 3 {
		_, err := tube.Put([]byte("x"), uint32(i), 0, time.Minute)
		servertest.NoError(t, err)
	}
	names, err := c.ListTubes()
	servertest.NoError(t, err)
	slices.Sort(names)
	if want := []string{"default", "numbers"}; !reflect.DeepEqual(names, want) {
		t.Errorf("tubes are %v; want %v", names, want)
	}
	dict, err := tube.Stats()
	servertest.NoError(t, err)
	if dict["current-jobs-ready"] != "3" || dict["total-jobs"] != "3" {
		t.Errorf("stats-tube: %v", dict)
	}
	dict, err = c.Stats()
	servertest.NoError(t, err)
	if dict["cmd-put"] != "3" || !strings.Contains(dict["version"], "1.13+trellis.") || dict["draining"] != "false" {
		t.Errorf("stats: %v", dict)
	}
	_, err = beanstalk.NewTube(c, "nosuch").Stats()
	isErr(t, err, beanstalk.ErrNotFound)
}

func TestGoBeanstalkPausesATube(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	c := clientOf(t, s)
	_, err := c.Put([]byte("x"), 0, 0, time.Minute)
	servertest.NoError(t, err)
	servertest.NoError(t, c.Pause(time.Hour))
	_, _, err = c.Reserve(0)
	isErr(t, err, beanstalk.ErrTimeout)
	servertest.NoError(t, c.Pause(0))
	id, body, err := c.Reserve(servertest.Patience)
	job(t, id, body, err, 1, "x")
	isErr(t, beanstalk.NewTube(clientOf(t, s), "nosuch").Pause(0), beanstalk.ErrNotFound)
}

func TestGoBeanstalkGetsTheProtocolsErrors(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, "-z10")
	c := clientOf(t, s)
	_, err := c.Put(make([]byte, 11), 0, 0, time.Minute)
	isErr(t, err, beanstalk.ErrJobTooBig)
	servertest.NoError(t, s.Cmd.Process.Signal(syscall.SIGUSR1))
	s.WaitText("drain mode")
	_, err = c.Put([]byte("x"), 0, 0, time.Minute)
	isErr(t, err, beanstalk.ErrDraining)
}

func TestGoBeanstalkWorkersShareTheJobsOut(t *testing.T) {
	t.Parallel()
	const workers, jobs = 10, 1000
	s := servertest.Start(t, "--loops=4")
	done := make(chan string, jobs)
	failed := make(chan error, workers)
	for range workers {
		c := clientOf(t, s)
		go func() {
			set := beanstalk.NewTubeSet(c, "work")
			for {
				id, body, err := set.Reserve(servertest.Patience)
				if err == nil {
					err = c.Delete(id)
				}
				if err != nil {
					failed <- err
					return
				}
				done <- string(body)
				if string(body) == "stop" {
					return
				}
			}
		}()
	}
	producer := beanstalk.NewTube(clientOf(t, s), "work")
	for i := range jobs {
		_, err := producer.Put(fmt.Append(nil, i), 1, 0, time.Minute)
		servertest.NoError(t, err)
	}
	for range workers {
		_, err := producer.Put([]byte("stop"), 2, 0, time.Minute)
		servertest.NoError(t, err)
	}
	seen := make(map[string]int)
	for range jobs + workers {
		select {
		case body := <-done:
			seen[body]++
		case err := <-failed:
			t.Fatal(err)
		}
	}
	delete(seen, "stop")
	if len(seen) != jobs || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
		t.Errorf("%d of %d jobs were done, some of them more than once", len(seen), jobs)
	}
}
