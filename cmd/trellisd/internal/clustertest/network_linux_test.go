package clustertest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// patience is how long anything may take that should happen at once.
const patience = 60 * time.Second

// echoNode is a node "b" that sends back what it gets, in a network where this process is
// node "a".
func echoNode(t *testing.T) (n *Network, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	n = NewNetwork()
	t.Cleanup(n.Close)
	if _, err := n.Add("a"); err != nil {
		t.Fatal(err)
	}
	if addr, err = n.Add("b"); err != nil {
		t.Fatal(err)
	}
	n.Runs("a", "", os.Getpid())
	n.Runs("b", l.Addr().String(), 0)
	return n, addr
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// reached reports whether a new connection gets through: one that is reset may be so before
// the dialler has it.
func reached(addr, text string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	return c.SetDeadline(time.Now().Add(patience)) == nil && echoes(c, text)
}

func echoes(c net.Conn, text string) bool {
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && line == text+"\n"
}

func TestANodeIsReachedUntilItIsCutOff(t *testing.T) {
	n, addr := echoNode(t)
	c := dial(t, addr)
	if !echoes(c, "one") {
		t.Fatal("no echo")
	}
	n.Cut("b", "a")
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection is still there")
	}
	if reached(addr, "two") {
		t.Fatal("a new connection gets through")
	}
	n.Heal()
	if !echoes(dial(t, addr), "three") {
		t.Fatal("no echo when it is healed")
	}
	c = dial(t, addr)
	if !echoes(c, "four") {
		t.Fatal("no echo")
	}
	n.Reset()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection was not reset")
	}
	n.Isolate("b")
	if reached(addr, "five") {
		t.Fatal("an isolated node is reached")
	}
}

// Others' connections are no node's, and are not cut.
func TestAStrangerIsNotCutOff(t *testing.T) {
	n, addr := echoNode(t)
	n.Runs("a", "", 0)
	n.Cut("a", "b")
	if !echoes(dial(t, addr), "one") {
		t.Fatal("no echo")
	}
	n.Runs("b", "", 0)
	if reached(addr, "two") {
		t.Fatal("a node that does not run is reached")
	}
}

// A node that has dialled before it was known is cut off like any other.
func TestANodeIsKnownThatHasDialledBefore(t *testing.T) {
	n, addr := echoNode(t)
	n.Runs("a", "", 0)
	c := dial(t, addr)
	if !echoes(c, "one") {
		t.Fatal("no echo")
	}
	n.Runs("a", "", os.Getpid())
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection of nobody is still there: %v", err)
	}
	if !reached(addr, "two") {
		t.Fatal("a new connection does not get through")
	}
	n.Cut("a", "b")
	if reached(addr, "three") {
		t.Fatal("a node that is cut off is reached")
	}
}

func TestWhatIsBlockedOneWayArrivesLater(t *testing.T) {
	for _, d := range []direction{{"a", "b"}, {"b", "a"}} {
		n, addr := echoNode(t)
		c := dial(t, addr)
		if !echoes(c, "one") {
			t.Fatal("no echo")
		}
		n.Block(d.from, d.to)
		if _, err := io.WriteString(c, "two\n"); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			got <- line
		}()
		select { // what does not come cannot be waited for: a while is all there is
		case line := <-got:
			t.Fatalf("%q came through", line)
		case <-time.After(50 * time.Millisecond):
		}
		n.Heal()
		if line := <-got; line != "two\n" {
			t.Fatalf("%q came after the block", line)
		}
	}
}

func TestWhatIsDelayedTakesAsLong(t *testing.T) {
	n, addr := echoNode(t)
	c := dial(t, addr)
	const delay = 30 * time.Millisecond
	n.Delay("a", "b", delay)
	n.Delay("b", "a", delay)
	began := time.Now()
	if !echoes(c, "one") {
		t.Fatal("no echo")
	}
	if took := time.Since(began); took < 2*delay {
		t.Fatalf("there and back in %v", took)
	}
}
