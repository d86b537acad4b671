//go:build proof

package process

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// keepsRight is how long a client may have a right after the file lacks it.
const keepsRight = time.Second

// A revocable client puts jobs for as long as it is let, and tries again when it is not.
type revocable struct {
	name   string
	rights string // in the file: "put,work"; "work", which lets it do nothing; "" when it is not there

	puts    atomic.Int64
	lastPut atomic.Int64 // when the last put was sent that was answered INSERTED, as UnixNano
	denials atomic.Int64 // puts that were answered UNKNOWN_COMMAND
	ends    atomic.Int64 // connections that ended, or were not let in
	late    atomic.Int64 // for how long replies did not come at once, as while the server does not run, in all
}

func (c *revocable) line() string {
	return servertest.TokenLine(c.name, "token-"+c.name, c.rights, c.name+"/*")
}

// work puts until stop is closed.
func (c *revocable) work(t *testing.T, addr net.Addr, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := c.connection(addr, stop); err != nil {
			t.Errorf("%s: %v", c.name, err)
			return
		}
		c.ends.Add(1)
		time.Sleep(time.Millisecond) // not to keep the server busy with nothing else
	}
}

// connection works on one connection until that ends.
func (c *revocable) connection(addr net.Addr, stop <-chan struct{}) error {
	conn, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * servertest.Patience)); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	do := func(command string) string { // "" when the connection has ended
		if _, err := io.WriteString(conn, command); err != nil {
			return ""
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(line, "\r\n")
	}
	if do("auth token-"+c.name+"\r\n") != "AUTHENTICATED" || do("use "+c.name+"/x\r\n") == "" {
		return nil
	}
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		sent := time.Now()
		reply := do("put 0 0 60 1\r\nx\r\n")
		if took := time.Since(sent); took > nap {
			c.late.Add(int64(took))
		}
		switch {
		case strings.HasPrefix(reply, "INSERTED "):
			c.lastPut.Store(sent.UnixNano())
			c.puts.Add(1)
		case reply == "UNKNOWN_COMMAND":
			c.denials.Add(1)
		case reply == "":
			return nil
		default:
			return fmt.Errorf("got %q", reply)
		}
		time.Sleep(time.Millisecond) // likewise
	}
}

// nap is how long something may take that takes no time.
const nap = 5 * time.Millisecond

// stalled adds up for how long this machine keeps a process from running.
func stalled(stop <-chan struct{}, sum *atomic.Int64) {
	for {
		from := time.Now()
		select {
		case <-stop:
			return
		case <-time.After(nap):
		}
		sum.Add(int64(time.Since(from) - nap))
	}
}

// Lines come, go, lose rights and get them back while all clients work, beside lines with
// mistakes. Whose line has gone puts no more a second later, and whose line is as it was does
// not notice.
func TestRightsEndWithTheirLinesAndNoOthersDo(t *testing.T) {
	t.Parallel()
	const edits, most = 50, 8
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	var clients []*revocable
	for i := range most {
		clients = append(clients, &revocable{name: fmt.Sprintf("c%d", i), rights: "put,work"})
	}
	path := filepath.Join(t.TempDir(), "auth")
	write := func(text string) {
		servertest.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
		servertest.NoError(t, os.Rename(path+".new", path))
	}
	all := func() (text string) {
		for _, i := range r.Perm(most) {
			if clients[i].rights != "" {
				text += clients[i].line()
			}
		}
		return text
	}
	write(all())
	s := servertest.Start(t, "--auth-file", path)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	defer busy.Wait()
	defer close(stop)
	for _, c := range clients {
		busy.Go(func() { c.work(t, s.Addrs[0], stop) })
	}
	var stall atomic.Int64
	busy.Go(func() { stalled(stop, &stall) })
	settled := func() {
		t.Helper()
		for _, c := range clients {
			puts, denials, ends := c.puts.Load(), c.denials.Load(), c.ends.Load()
			servertest.Await(t, c.name+" does what it may", func() bool {
				return c.rights == "put,work" && c.puts.Load() > puts || c.rights == "work" && c.denials.Load() > denials ||
					c.rights == "" && c.ends.Load() > ends+1
			})
		}
	}
	settled()
	var longest time.Duration
	for edit := range edits {
		type before struct {
			rights                    string
			puts, denials, ends, late int64
		}
		was := make([]before, most)
		empty := r.IntN(20) == 0
		for i, c := range clients {
			was[i] = before{c.rights, c.puts.Load(), c.denials.Load(), c.ends.Load(), c.late.Load()}
			switch {
			case empty:
				c.rights = ""
			case r.IntN(4) == 0:
				c.rights = []string{"", "work", "put,work"}[r.IntN(3)]
			}
		}
		text := all()
		if !empty && r.IntN(3) == 0 {
			text = "a line with mistakes\n" + text + "another\n"
		}
		stall.Store(0)
		write(text)
		told := time.Now().UnixNano()
		if r.IntN(2) == 0 {
			s.Signal(syscall.SIGHUP) // otherwise the server finds out by itself
		}
		settled()
		for i, c := range clients {
			kept := time.Duration(c.lastPut.Load() - told)
			switch {
			case was[i].rights == "put,work" && c.rights != "put,work":
				longest = max(longest, kept)
				if kept > keepsRight+time.Duration(stall.Load()+c.late.Load()-was[i].late) {
					t.Errorf("edit %d of seed %d: %s has put %v after its right was gone", edit, seed, c.name, kept)
				}
			case was[i].rights == "" || was[i].rights != c.rights:
			case c.ends.Load() != was[i].ends || c.rights == "put,work" && c.denials.Load() != was[i].denials:
				t.Errorf("edit %d of seed %d: %s, whose line stayed, lost its connection or its right", edit, seed, c.name)
			}
		}
	}
	t.Logf("the longest that a right was kept: %v", longest)
}
