//go:build proof

package soak

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// Clients that send byte by byte cost each other nothing but time, and none
// gets another's reply.
func TestThousandsOfClientsThatSendByteByByte(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	a := s.Addrs[0]
	const n = 2000
	var wg sync.WaitGroup
	for i := range n {
		conn, err := net.Dial(a.Network(), a.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		wg.Go(func() {
			tube := fmt.Sprint("slow-", i)
			send := fmt.Sprintf("use %s\r\nput 0 0 3600 9\r\nbody-%04d\r\nwatch %s\r\nignore default\r\nreserve\r\n", tube, i, tube)
			for j := range len(send) {
				if _, err := io.WriteString(conn, send[j:j+1]); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				time.Sleep(time.Duration(i%5) * 100 * time.Microsecond)
			}
			_ = conn.SetReadDeadline(time.Now().Add(servertest.Patience))
			head := fmt.Sprintf("USING %s\r\nINSERTED ", tube)
			got := make([]byte, 0, 200)
			var b [200]byte
			for strings.Count(string(got), "\r\n") < 6 {
				m, err := conn.Read(b[:])
				got = append(got, b[:m]...)
				if err != nil {
					t.Errorf("client %d: %v after %q", i, err, got)
					return
				}
			}
			id, rest, _ := strings.Cut(strings.TrimPrefix(string(got), head), "\r\n")
			if want := fmt.Sprintf("WATCHING 2\r\nWATCHING 1\r\nRESERVED %s 9\r\nbody-%04d\r\n", id, i); rest != want {
				t.Errorf("client %d: got %q", i, got)
			}
		})
	}
	quick := s.Dial(0)
	for range 100 {
		quick.Send("use quick")
		quick.Want("USING quick")
	}
	wg.Wait()
	if got := servertest.Stats(quick); got["total-jobs"] != strconv.Itoa(n) || got["current-jobs-reserved"] != strconv.Itoa(n) {
		t.Errorf("%s jobs, %s reserved", got["total-jobs"], got["current-jobs-reserved"])
	}
}

// Silent connections, and ones that stop in the middle of a command, cost nobody
// else anything, and are gone when they are closed.
func TestThousandsOfSilentConnections(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	a := s.Addrs[0]
	const n = 2000
	c := s.Dial(0)
	before := servertest.CPU(t, c)
	var silent []net.Conn
	for i := range n {
		conn, err := net.Dial(a.Network(), a.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		silent = append(silent, conn)
		_, _ = io.WriteString(conn, []string{"", "rese", "put 0 0 60 60000\r\nxxx", "put 0 0 60 70000\r\nxxx"}[i%4])
	}
	connections := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(servertest.Patience); ; time.Sleep(time.Millisecond) {
			got := servertest.Stats(c)["current-connections"]
			if got == strconv.Itoa(want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s connections, want %d", got, want)
			}
		}
	}
	connections(n + 1)
	for i := range 1000 {
		c.Send(fmt.Sprint("use t", i))
		c.Want(fmt.Sprint("USING t", i))
	}
	for _, conn := range silent {
		_ = conn.Close()
	}
	connections(1)
	got := servertest.Stats(c)
	if got["current-jobs-ready"] != "0" || got["current-tubes"] != "2" {
		t.Errorf("left behind: %s ready jobs, %s tubes", got["current-jobs-ready"], got["current-tubes"])
	}
	if used := servertest.CPU(t, c) - before; used > 10 {
		t.Errorf("it took %.1f s of CPU", used)
	}
}

// With 100,000 tubes, clients that ask for stats and list-tubes all the time do
// not keep others from working.
func TestStatsAndListTubesInALoopWithManyTubes(t *testing.T) {
	t.Parallel()
	tubes := 100_000
	if servertest.RaceEnabled {
		tubes = 10_000
	}
	s := servertest.Start(t, "--max-watched=0")
	a := s.Addrs[0]
	holders := make([]net.Conn, 10)
	for i := range holders {
		conn, err := net.Dial(a.Network(), a.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		holders[i] = conn
		err = pumpOver(conn, tubes/len(holders), "WATCHING ", func(b []byte, j int) []byte {
			return fmt.Appendf(b, "watch tube-%d-%d\r\n", i, j)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 {
		c := s.Dial(0)
		wg.Go(func() {
			for n := 0; n < 3 || !stop.Load(); n++ {
				if i%2 == 0 {
					if got := servertest.Stats(c)["current-tubes"]; got != strconv.Itoa(tubes+1) {
						t.Errorf("%s tubes", got)
						return
					}
				} else if got := strings.Count(c.Data("list-tubes"), "\n"); got != tubes+2 {
					t.Errorf("list-tubes has %d lines", got)
					return
				}
			}
		})
	}
	w := s.Dial(0)
	for i := 1; i <= 300; i++ {
		w.Send("put 0 0 60 1", "x", "reserve", fmt.Sprint("delete ", i))
		w.Want(fmt.Sprint("INSERTED ", i), fmt.Sprintf("RESERVED %d 1", i), "x", "DELETED")
	}
	stop.Store(true)
	wg.Wait() // each of them is answered thrice, too
	for _, conn := range holders {
		_ = conn.Close()
	}
	for deadline := time.Now().Add(servertest.Patience); servertest.Stats(w)["current-tubes"] != "1"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("tubes are left")
		}
	}
}

func TestAFloodOfTheLargestBodiesStopsAtMaxMemory(t *testing.T) {
	t.Parallel()
	const limit, size = 64 << 20, 1 << 20
	s := servertest.Start(t, "-z", strconv.Itoa(size), "--max-memory", strconv.Itoa(limit))
	a := s.Addrs[0]
	watcher := s.Dial(0)
	before := resident(t, s.Cmd.Process.Pid)
	body := strings.Repeat("b", size)
	var mu sync.Mutex
	var ids []string
	refused := 0
	var wg sync.WaitGroup
	for range 8 {
		c := servertest.Dial(t, a)
		wg.Go(func() {
			for range 40 {
				if _, err := fmt.Fprintf(c.Conn, "put 0 0 600 %d\r\n%s\r\n", size, body); err != nil {
					t.Error(err)
					return
				}
				line, err := c.In.ReadString('\n')
				mu.Lock()
				if id, ok := strings.CutPrefix(line, "INSERTED "); ok {
					ids = append(ids, strings.TrimSpace(id))
				} else if refused++; line != "OUT_OF_MEMORY\r\n" {
					t.Errorf("got %q, %v", line, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := len(ids) * size; n > limit || n < limit*3/4 {
		t.Errorf("%d bytes were accepted, the limit is %d", n, limit)
	}
	if grown := resident(t, s.Cmd.Process.Pid) - before; grown > 2*limit && !servertest.RaceEnabled {
		t.Errorf("the server has grown by %d MB", grown>>20)
	}
	// All else goes on, and room that is made is used.
	if got := servertest.Stats(watcher)["current-jobs-ready"]; got != strconv.Itoa(len(ids)) {
		t.Errorf("%s jobs, want %d", got, len(ids))
	}
	for _, id := range ids[:3] {
		watcher.Send("delete " + id)
		watcher.Want("DELETED")
	}
	watcher.Send(fmt.Sprintf("put 0 0 600 %d\r\n%s", size, body))
	if line := watcher.Line(); !strings.HasPrefix(line, "INSERTED") {
		t.Errorf("got %q after jobs were deleted", line)
	}
}
