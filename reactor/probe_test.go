package reactor

import (
	"context"
	"strings"
	"testing"

	"trellis/codec"
)

func TestALoopThatIsBusyWithACommandDoesNotRespond(t *testing.T) {
	t.Parallel()
	entered, goOn := make(chan struct{}), make(chan struct{})
	ts := serve(t, "tcp", 2, hooks{command: func(_ *conn, cmd *codec.Command) {
		if cmd.Op == codec.OpListTubes {
			close(entered)
			<-goOn
		}
	}})
	c := ts.dial()
	c.do("use x\r\n", "USING x\r\n")
	if err := ts.Responds(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.send("list-tubes\r\n")
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	responded := make(chan error, 1)
	go func() { responded <- ts.Responds(ctx) }()
	select {
	case err := <-responded:
		t.Fatalf("responds: %v", err)
	default:
	}
	cancel()
	if err := <-responded; err == nil || !strings.Contains(err.Error(), "event loop") {
		t.Errorf("%v", err)
	}
	close(goOn)
	if err := ts.Responds(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHeldServerResponds(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	ts.Hold(true)
	if err := ts.Responds(t.Context()); err != nil {
		t.Error(err)
	}
	ts.Hold(false)
}

func TestAServerThatHasEndedResponds(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 2, hooks{})
	ts.Abort()
	for range 3 {
		if err := ts.Responds(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
