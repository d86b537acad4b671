//go:build proof

package faults

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"trellis/cmd/trellisd/internal/servertest"
)

// What clients see of a server that is killed again and again is what they would see of
// one that executes their commands one after another and loses nothing.
func TestAHistoryOverKillsIsLinearizable(t *testing.T) {
	t.Parallel()
	if err := killedHistory(t, "-b", t.TempDir(), "-f0", "-s65536"); err != nil {
		t.Fatal(err)
	}
}

// The check would notice: a server that keeps nothing on record is found out.
func TestAHistoryOfAServerThatForgetsIsNotLinearizable(t *testing.T) {
	t.Parallel()
	err := killedHistory(t)
	if err == nil || !strings.Contains(err.Error(), "cannot have been executed in any order") && !strings.Contains(err.Error(), "have made the job") && !strings.Contains(err.Error(), "has made two jobs") {
		t.Fatalf("not found out: %v", err)
	}
}

// killedHistory has clients use a server with these arguments that is killed and started
// anew, and checks what they saw.
func killedHistory(t *testing.T, args ...string) error {
	kills, commands := 5, 400
	if servertest.RaceEnabled {
		kills = 2
	}
	var addr atomic.Value
	spawnServer := func() *servertest.Server {
		s := &servertest.Server{Process: servertest.LaunchCommand(t, exec.Command(servertest.Binary, append([]string{"-l127.0.0.1", "-p0", "-V", "--log-format=json"}, args...)...))}
		s, err := servertest.AwaitReady(s.Process)
		if err != nil {
			t.Fatal(err)
		}
		addr.Store(s.Addrs[0].String())
		return s
	}
	w := &Workload{
		Recorder: NewRecorder(), Tubes: []string{"a", "b", "d"}, Clients: 4, Jobs: 30,
		Addrs: func() []string { return []string{addr.Load().(string)} },
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*servertest.Patience)
	defer cancel()
	working, stop := context.WithCancel(ctx)
	s := spawnServer()
	done := make(chan error, 1)
	go func() { done <- w.Run(working) }()
	var err error
	for range kills {
		err = errors.Join(err, w.Recorder.Await(ctx, w.Recorder.Answered()+commands))
		s.Kill()
		s = spawnServer()
	}
	err = errors.Join(err, w.Recorder.Await(ctx, w.Recorder.Answered()+commands))
	stop()
	if err := errors.Join(err, <-done, w.Audit(ctx)); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	return Check(w.Recorder.History())
}
