package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"trellis/binlog"
	"trellis/binlog/vfs/faultfs"
	"trellis/cmd/trellisd/internal/options"
	"trellis/cmd/trellisd/internal/servertest"
	"trellis/cmd/trellisd/internal/web"
	"trellis/engine"
	"trellis/reactor"
)

// wired is a server in this process, on a file system that can be made to fail.
type wired struct {
	t     *testing.T
	addr  net.Addr
	sigs  *signals
	ready web.Readiness
	ended chan error
}

const faultyDir = "/faulty"

// wireUp starts a server as serve does.
func wireUp(t *testing.T, fs *faultfs.FS, sync binlog.SyncPolicy) *wired {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	opts := logOptions(&options.Options{Binlog: faultyDir, Sync: sync, SegmentSize: 16 << 10}, log)
	opts.FS = fs
	l, err := binlog.Open(faultyDir, opts)
	if err != nil {
		t.Fatal(err)
	}
	d := newDurable(l, faultyDir)
	start, now := newClock()
	eng := engine.New(engine.Config{MaxJobSize: 1000, Start: start, Journal: d})
	if err := d.restore(eng, now, log); err != nil {
		t.Fatal(err)
	}
	srv, err := reactor.New(reactor.Config{Engine: eng, Now: now, Loops: 2, Log: log, MaxJobSize: 1000, Journal: d})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.start(eng, srv); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wired{t: t, addr: listener.Addr(), sigs: catchSignals(), ended: make(chan error, 1)}
	go func() {
		defer w.sigs.release()
		w.ended <- w.sigs.during(func() (err error) {
			defer func() { err = errors.Join(err, d.end()) }()
			return supervise(eng, srv, &sockets{plain: []net.Listener{listener}}, nil, d.failed, &w.ready, 0, w.sigs, log)
		}, log)
	}()
	return w
}

func (w *wired) dial() *servertest.Client { return servertest.Dial(w.t, w.addr) }

// wait returns how the server ended.
func (w *wired) wait() error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(servertest.Patience):
		w.t.Fatal("the server does not end")
		return nil
	}
}

func (w *wired) stop() {
	w.t.Helper()
	w.sigs.caught <- syscall.SIGTERM
	if err := w.wait(); err != nil {
		w.t.Error(err)
	}
}

// Whatever call of the file system fails, what waits for it is refused, nothing is
// acknowledged any more, the process ends and says why, and what was acknowledged
// before is there after the restart.
func TestAFailingDiskLeavesUnansweredWhatWaitsForItAndEndsTheServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		call string
		sync binlog.SyncPolicy
	}{
		{"write", binlog.SyncAlways},
		{"sync", binlog.SyncAlways},
		{"write", binlog.SyncEvery(50 * time.Millisecond)},
		{"write", binlog.SyncNever},
	} {
		t.Run(fmt.Sprintf("%s, interval %d", tt.call, tt.sync), func(t *testing.T) {
			t.Parallel()
			fs := faultfs.New(faultyDir)
			w := wireUp(t, fs, tt.sync)
			a := w.dial()
			a.Send("put 1 0 60 5", "first", "put 1 0 60 6", "second", "reserve", "bury 1 7", "put 1 0 60 1", "x", "delete 3")
			a.Want("INSERTED 1", "INSERTED 2", "RESERVED 1 5", "first", "BURIED", "INSERTED 3", "DELETED")

			fs.Hook(func(c faultfs.Call) faultfs.Fault {
				if c.Op == tt.call {
					return faultfs.Fault{Err: fmt.Errorf("%s %s: %w", c.Op, c.Name, syscall.EIO)}
				}
				return faultfs.Fault{}
			})
			a.Send("put 1 0 60 1", "y", "put 1 0 60 1", "y")
			a.WantEOF() // what became of them is unknown
			err := w.wait()
			if err == nil || exitCode(err) == exitOK || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "the binlog in "+faultyDir+" has failed: ") {
				t.Errorf("the server ended with %v", err)
			}

			w = wireUp(t, fs.Killed(), tt.sync)
			c := w.dial()
			c.Send("peek-buried", "peek-ready", "peek 3", "stats-job 1")
			c.Want("FOUND 1 5", "first", "FOUND 2 6", "second", "NOT_FOUND")
			got := c.Dict()
			if got["pri"] != "7" || got["buries"] != "1" || got["reserves"] != "1" {
				t.Errorf("job 1: %v", got)
			}
			w.stop()
		})
	}
}

// A disk that hangs keeps nobody from ending the server.
func TestASecondSignalDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(faultyDir)
	w := wireUp(t, fs, binlog.SyncAlways)
	c := w.dial()
	c.Send("use x")
	c.Want("USING x")
	hangs, repaired := make(chan struct{}), make(chan struct{})
	defer close(repaired)
	hung := sync.OnceFunc(func() { close(hangs) })
	fs.Hook(func(c faultfs.Call) faultfs.Fault {
		if c.Op == "sync" {
			hung()
			<-repaired
		}
		return faultfs.Fault{}
	})
	c.Send("put 1 0 60 1", "x")
	<-hangs
	w.sigs.caught <- syscall.SIGTERM
	w.sigs.caught <- syscall.SIGTERM
	if err := w.wait(); exitCode(err) != exitBySignal+int(syscall.SIGTERM) || !errors.Is(err, errStoppedTwice) {
		t.Errorf("the server ended with %v", err)
	}
}

// A disk that fails while the server stops is not mistaken for a client that does not
// read.
func TestALogThatFailsWhileTheServerStopsIsTold(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(faultyDir)
	w := wireUp(t, fs, binlog.SyncAlways)
	c := w.dial()
	c.Send("use x")
	c.Want("USING x")
	hangs, fails := make(chan struct{}), make(chan struct{})
	hung := sync.OnceFunc(func() { close(hangs) })
	fs.Hook(func(call faultfs.Call) faultfs.Fault {
		if call.Op == "sync" {
			hung()
			<-fails
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	c.Send("put 1 0 60 1", "x")
	<-hangs
	w.sigs.caught <- syscall.SIGTERM
	for end := time.Now().Add(servertest.Patience); w.ready.Err() == nil || w.ready.Err().Error() != "stopping"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server does not stop")
		}
	}
	close(fails)
	c.WantEOF()
	if err := w.wait(); exitCode(err) == exitOK || !errors.Is(err, syscall.EIO) {
		t.Errorf("the server ended with %v", err)
	}
}

// What was acknowledged may not be on the disk if the last sync fails, which comes when
// nobody is served any more.
func TestALogThatFailsWhenItIsClosedIsTold(t *testing.T) {
	t.Parallel()
	fs := faultfs.New(faultyDir)
	w := wireUp(t, fs, binlog.SyncEvery(time.Hour))
	c := w.dial()
	c.Send("put 1 0 60 1", "x")
	c.Want("INSERTED 1")
	fs.Hook(func(call faultfs.Call) faultfs.Fault {
		if call.Op == "sync" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	w.sigs.caught <- syscall.SIGTERM
	c.WantEOF()
	err := w.wait()
	if exitCode(err) != exitFailed || !errors.Is(err, syscall.EIO) || strings.Count(err.Error(), "the binlog in "+faultyDir+" has failed: ") != 1 {
		t.Errorf("the server ended with %v", err)
	}
}

func TestAServerWhoseListenerHasFailedIsNotReady(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	start, now := newClock()
	eng := engine.New(engine.Config{MaxJobSize: 1000, Start: start})
	srv, err := reactor.New(reactor.Config{Engine: eng, Now: now, Loops: 1, Log: log, MaxJobSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	sigs := catchSignals()
	defer sigs.release()
	var ready web.Readiness
	err = supervise(eng, srv, &sockets{plain: []net.Listener{listener}}, nil, nil, &ready, 0, sigs, log)
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("the server ended with %v", err)
	}
	if err := ready.Err(); err == nil || err.Error() != "a listener has failed" {
		t.Errorf("readiness: %v", err)
	}
}
