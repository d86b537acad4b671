package reactor

import (
	"strings"
	"sync/atomic"
	"testing"

	"trellis/codec"
)

// panicky makes hooks with which the command "use panic" panics.
func panicky() hooks {
	return hooks{command: func(_ *conn, cmd *codec.Command) {
		if cmd.Op == codec.OpUse && string(cmd.Tube) == "panic" {
			panic("provoked")
		}
	}}
}

func TestPanicInACommandCostsOneConnection(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, network string) {
		ts := serve(t, network, 1, panicky())
		c, w := ts.dial(), ts.dial()
		c.put("x")
		c.do("reserve\r\n", reserved(1, "x"))
		w.send("reserve\r\n")
		ts.untilWaiting(1)
		c.send("use a\r\nuse panic\r\nuse b\r\n")
		w.expect(reserved(1, "x"))
		// What it executed before may or may not have been answered.
		if _, err := c.r.ReadString(0); err == nil {
			t.Error("the connection is still there")
		}
		w.do("delete 1\r\n", "DELETED\r\n")
		ts.until("it is counted", func() bool { s := ts.sum(); return s.Panics == 1 && s.Connections == 1 })
		if log := ts.log.String(); !strings.Contains(log, "provoked") || !strings.Contains(log, "panic_test.go") {
			t.Errorf("the log lacks the panic or its stack: %s", log)
		}
	})
}

// The command stands behind a reserve that another client's put ends: that
// client must not suffer.
func TestPanicInAWokenClientsCommandCostsThatClient(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		ts := serve(t, "tcp", loops, panicky())
		c, d, p := ts.dial(), ts.dial(), ts.dial()
		c.send("reserve\r\nuse panic\r\n")
		ts.untilWaiting(1)
		d.send("reserve\r\n")
		ts.untilWaiting(2)
		p.do("put 0 0 60 1\r\nx\r\nput 0 0 60 1\r\ny\r\nuse b\r\n", "INSERTED 1\r\nINSERTED 2\r\nUSING b\r\n")
		d.expect(reserved(2, "y"))
		p.do("reserve\r\n", reserved(1, "x"))
		ts.until("it is counted", func() bool { s := ts.sum(); return s.Panics == 1 && s.Connections == 2 })
	}
}

func TestPanicInALastCommandOfAHalfClosedClient(t *testing.T) {
	t.Parallel()
	ts := serve(t, "tcp", 1, panicky())
	c, w := ts.dial(), ts.dial()
	c.put("x")
	c.do("reserve\r\n", reserved(1, "x"))
	c.send("reserve\r\nuse panic\r\n")
	ts.untilWaiting(1)
	c.closeWrite()
	w.do("reserve\r\n", reserved(1, "x"))
	ts.until("it is counted", func() bool { s := ts.sum(); return s.Panics == 1 && s.Connections == 1 })
}

func TestPanicInsideTheEngineEndsTheProcess(t *testing.T) {
	t.Parallel()
	h := panicky()
	var fatal atomic.Int32
	h.fatal = func() { fatal.Add(1) }
	h.busy = func() bool { return true }
	ts := serve(t, "tcp", 1, h)
	ts.dial().send("use panic\r\n")
	ts.until("the process would have ended", func() bool { return fatal.Load() == 1 })
	if log := ts.log.String(); !strings.Contains(log, "fatal: a panic has interrupted the engine") || !strings.Contains(log, "provoked") {
		t.Errorf("the log does not say why: %s", log)
	}
}

func TestPanicOutsideOfCommandsEndsTheProcess(t *testing.T) {
	t.Parallel()
	var fatal atomic.Int32
	ts := serve(t, "tcp", 1, hooks{fatal: func() { fatal.Add(1) }})
	ts.loops[0].call(func(*loop) { panic("provoked") })
	ts.until("the process would have ended", func() bool { return fatal.Load() == 1 })
	if log := ts.log.String(); !strings.Contains(log, "fatal: a panic outside of any command") {
		t.Errorf("the log does not say why: %s", log)
	}
}
