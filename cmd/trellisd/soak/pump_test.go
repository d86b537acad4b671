//go:build proof

package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// pump sends count commands, which command appends, without waiting for the
// replies, each of which must be one line that begins as told.
func pump(t testing.TB, a net.Addr, count int, reply string, command func(b []byte, i int) []byte) {
	t.Helper()
	conn, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := pumpOver(conn, count, reply, command); err != nil {
		t.Fatal(err)
	}
}

func pumpOver(conn net.Conn, count int, reply string, command func(b []byte, i int) []byte) error {
	sent := make(chan error, 1)
	go func() {
		var b []byte
		for i := range count {
			if b = command(b, i); len(b) > 32<<10 || i == count-1 {
				if _, err := conn.Write(b); err != nil {
					sent <- err
					return
				}
				b = b[:0]
			}
		}
		sent <- nil
	}()
	in := bufio.NewReaderSize(conn, 64<<10)
	for i := range count {
		if err := conn.SetReadDeadline(time.Now().Add(servertest.Patience)); err != nil {
			return err
		}
		line, err := in.ReadSlice('\n')
		if err != nil || !bytes.HasPrefix(line, []byte(reply)) {
			conn.Close()
			<-sent
			return fmt.Errorf("reply %d: got %.60q (%w), want %s", i, line, err, reply)
		}
	}
	return <-sent
}

// putting makes a command for pump that puts jobs of size bytes.
func putting(size int, delay string) func(b []byte, i int) []byte {
	line := fmt.Appendf(nil, "put 1024 %s 600 %d\r\n%s\r\n", delay, size, strings.Repeat("j", size))
	return func(b []byte, _ int) []byte { return append(b, line...) }
}

// deleting makes a command for pump that deletes the jobs first, first+step, ...
func deleting(first, step int) func(b []byte, i int) []byte {
	return func(b []byte, i int) []byte {
		return append(strconv.AppendInt(append(b, "delete "...), int64(first+i*step), 10), '\r', '\n')
	}
}

// resident is a process's resident memory in bytes. It walks the page tables,
// because the counters in /proc/PID/status lag behind.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no /proc/PID/smaps_rollup here")
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Rss:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no Rss in smaps_rollup")
	return 0
}

// probeInterval is the time from one command of a prober to its next.
const probeInterval = time.Millisecond

// prober measures how long one client's commands take. They are due at regular
// times; one that has to wait for the answers to those before it takes that long
// in addition, so that a server which stands still is not asked less for it.
type prober struct {
	t    testing.TB
	conn net.Conn
	stop chan struct{}
	done sync.WaitGroup

	took []time.Duration // to be read after end
	err  error
}

// probe begins to send commands. Each must be answered with one line, or with a
// job whose body has one.
func probe(t testing.TB, a net.Addr, commands ...string) *prober {
	t.Helper()
	conn, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	p := &prober{t: t, conn: conn, stop: make(chan struct{})}
	p.done.Go(func() {
		in := bufio.NewReader(conn)
		due := time.Now()
		for i := 0; p.err == nil; i++ {
			began := due
			if wait := time.Until(due); wait > 0 {
				select {
				case <-p.stop: // with nothing left that was due before
					return
				case <-time.After(wait):
				}
				began = time.Now() // the prober itself may be late
			}
			p.err = ask(conn, in, commands[i%len(commands)])
			p.took = append(p.took, time.Since(began))
			due = due.Add(probeInterval)
		}
	})
	return p
}

func ask(conn net.Conn, in *bufio.Reader, command string) error {
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return err
	}
	line, err := in.ReadString('\n')
	if err == nil && strings.HasPrefix(line, "FOUND ") {
		_, err = in.ReadString('\n')
	}
	return err
}

// end stops it and returns percentiles of what it has measured.
func (p *prober) end() (n int, p50, p99, most time.Duration) {
	p.t.Helper()
	close(p.stop)
	p.done.Wait()
	p.conn.Close()
	if p.err != nil {
		p.t.Fatal(p.err)
	}
	slices.Sort(p.took)
	n = len(p.took)
	return n, p.took[n/2], p.took[n*99/100], p.took[n-1]
}
