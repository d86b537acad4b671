package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trellis/binlog/replica"
	"trellis/binlog/replica/member"
	"trellis/binlog/vfs/faultfs"
	"trellis/engine"
	"trellis/reactor"
	"trellis/reactor/tlstest"
)

// patience is how long a test waits for what must come.
const patience = 3 * time.Minute

// rig is a cluster in one process, whose loops can be made to hang.
type rig struct {
	t       *testing.T
	net     *network
	nodes   []member.Node
	dirs    []string
	members []*Member
	queues  []*Queue
	hangs   []chan chan struct{} // a client's `stats` takes a gate from it, and waits for that
	newest  []uint32             // version of entries that a member reads; 0 for that of the program
	trunks  map[int]uint16       // version of what trunks carry that a member speaks, if it is not that of the program
	runs    []*running           // nil of those that do not run
	bodies  int64                // bytes that bodies may take in the memory of members that are started
	every   int64                // bytes of entries between snapshots; 0 for the default
	mono    func() time.Duration // nil is the system's
	disks   map[int]*faultfs.FS  // of all members; nil if they are on the machine's
	rests   atomic.Int64         // snapshots that came without the bodies that were there
}

// running is a member that runs.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Run
}

func newRig(t *testing.T, size int) *rig {
	t.Helper()
	return newRigOf(t, false, make([]uint32, size)...)
}

// newCutRig makes a cluster whose network can be cut.
func newCutRig(t *testing.T, size int) *rig {
	t.Helper()
	return newRigOf(t, true, make([]uint32, size)...)
}

// newRigOf makes a cluster of members that read these versions of entries.
func newRigOf(t *testing.T, cut bool, newest ...uint32) *rig {
	t.Helper()
	r := &rig{t: t, net: newNetwork(!cut), newest: newest, trunks: map[int]uint16{}}
	r.startAll()
	return r
}

// startAll starts as many members as there are versions, which are the first.
func (r *rig) startAll() {
	t := r.t
	var listeners []net.Listener
	for i := range r.newest {
		l := listenLocally(t)
		listeners = append(listeners, l)
		r.nodes = append(r.nodes, member.Node{Name: fmt.Sprint("n", i+1), Addr: l.Addr().String()})
	}
	_ = t.TempDir() // directories are removed when no member runs
	t.Cleanup(func() {
		for _, run := range r.runs {
			if run != nil {
				run.cancel() // all at once, so that none is elected meanwhile
			}
		}
		for i, run := range r.runs {
			if run != nil {
				if err := r.stop(i); err != nil {
					t.Error(err)
				}
			}
		}
		r.net.close()
	})
	for i, l := range listeners {
		r.run(r.nodes[i], r.nodes, l)
	}
}

// stop ends a member, and returns the error of its Run.
func (r *rig) stop(i int) error {
	r.t.Helper()
	run := r.runs[i]
	run.cancel()
	return r.ended(i)
}

// ended waits for the end of a member, and returns the error of its Run.
func (r *rig) ended(i int) error {
	r.t.Helper()
	run := r.runs[i]
	<-run.ended
	r.runs[i] = nil
	r.net.left(r.nodes[i].Addr)
	if err := r.members[i].Close(); err != nil {
		r.t.Error(err)
	}
	if n := r.queues[i].Contradictions(); n != 0 {
		r.t.Errorf("member %d has met %d contradictions between records of reservations", i, n)
	}
	return run.err
}

// run runs another member.
func (r *rig) run(self member.Node, nodes []member.Node, l net.Listener) *Member {
	r.t.Helper()
	i := len(r.members)
	if i == len(r.nodes) {
		r.nodes, r.newest = append(r.nodes, self), append(r.newest, 0)
	}
	r.dirs, r.members, r.queues = append(r.dirs, r.t.TempDir()), append(r.members, nil), append(r.queues, nil)
	if r.disks != nil {
		r.disks[i] = faultfs.New(r.dirs[i])
	}
	r.hangs, r.runs = append(r.hangs, nil), append(r.runs, nil)
	r.start(i, nodes, l)
	return r.members[i]
}

// start starts a member that does not run.
func (r *rig) start(i int, nodes []member.Node, l net.Listener) {
	r.t.Helper()
	self := r.nodes[i]
	r.net.listens(self.Addr, l.Addr())
	log := slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey && strings.Contains(a.Value.String(), "but for the bodies that were here") {
				r.rests.Add(1)
			}
			return a
		},
	}))
	hang := make(chan chan struct{}, 1)
	q := NewQueue(QueueConfig{
		Engine: engine.Config{MaxJobSize: 1 << 16, Limits: engine.Limits{Bodies: r.bodies}, Info: engine.Info{Usage: func() (user, system time.Duration) {
			select {
			case gate := <-hang:
				<-gate
			default:
			}
			return 0, 0
		}}},
		Reactor: reactor.Config{Loops: 2, MaxJobSize: 1 << 16, Extensions: true, Log: log},
		Listen: func() (plain, tls []net.Listener, err error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, nil, err
			}
			s, err := net.Listen("tcp", "127.0.0.1:0")
			return []net.Listener{l}, []net.Listener{s}, err
		},
		TLS:  &tls.Config{Certificates: []tls.Certificate{tlstest.NewAuthority("test").Issue("localhost", nil)}},
		Mono: r.mono,
		Log:  log,
	})
	if v := r.trunks[i]; v != 0 {
		q.trunks = v
	}
	options := replica.Options{Newest: r.newest[i], Bodies: r.bodies, SnapshotBytes: r.every}
	if d := r.disks[i]; d != nil {
		options.FS, options.Reserve, options.SegmentSize = d, 1<<20, 1<<20
	}
	m, err := Open(Config{
		Dir: r.dirs[i], Self: self, Nodes: nodes, Listener: l, Queue: q, Log: log, Dial: r.net.dialer(self.Addr), Node: options,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{cancel: cancel, ended: make(chan struct{})}
	r.members[i], r.queues[i], r.hangs[i], r.runs[i] = m, q, hang, run
	go func() {
		defer close(run.ended)
		run.err = m.Run(ctx)
	}()
}

func listenLocally(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// eventually waits for a condition.
func (r *rig) eventually(what string, so func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatal("waited in vain: ", what)
		}
	}
}

// leader waits until a member but one serves clients.
func (r *rig) leader(but int) (leader int, addr net.Addr) {
	r.t.Helper()
	r.eventually("a leader", func() bool {
		for i, q := range r.queues {
			if s := q.Serving(); s != nil && len(s.Addrs) > 0 && i != but {
				leader, addr = i, s.Addrs[0]
				return true
			}
		}
		return false
	})
	return leader, addr
}

// ask connects to a server, sends a command, and returns the connection and the first line of
// the reply.
func (r *rig) ask(addr net.Addr, command string) (c net.Conn, line string, err error) {
	if c, err = net.Dial(addr.Network(), addr.String()); err != nil {
		return nil, "", err
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err = io.WriteString(c, command); err == nil {
		line, err = bufio.NewReader(c).ReadString('\n')
	}
	return c, line, err
}

// A leader one of whose loops hangs would go on to lead, since its heartbeats need none.
func TestALeaderWhoseLoopHangsStepsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	var (
		l        int
		c        net.Conn
		others   []net.Conn
		answered chan error // what c reads
	)
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	// More clients than the loop can have that is about to hang: a new one goes to the loop
	// with the fewest.
	r.eventually("a loop of a leader that has clients hangs", func() bool { // again if it is deposed meanwhile
		var addr net.Addr
		l, addr = r.leader(-1)
		others = nil
		for i := range 5 {
			o, line, err := r.ask(addr, "list-tube-used\r\n")
			if err != nil {
				return false
			}
			if line != "USING default\r\n" {
				t.Fatalf("%q", line)
			}
			if i == 0 {
				c = o
			} else {
				others = append(others, o)
			}
		}
		hang, ended := r.hangs[l], make(chan error, 1)
		hang <- gate
		_, _ = io.WriteString(c, "stats\r\n") // if it fails the read does
		go func() {
			_, err := bufio.NewReader(c).ReadString('\n')
			ended <- err
		}()
		answered = ended
		for len(hang) > 0 && len(ended) == 0 {
			time.Sleep(time.Millisecond)
		}
		select {
		case <-hang:
			return false
		default:
			return true
		}
	})
	reset := make(chan struct{}, len(others))
	for _, o := range others {
		go func() {
			_, _ = o.Read(make([]byte, 1))
			reset <- struct{}{}
		}()
	}
	if runtime.GOOS == "linux" {
		<-reset // a client of the other loop, though this one hangs
	}
	tries := uint64(0)
	r.eventually("the next leader acknowledges a job", func() bool {
		_, addr := r.leader(l)
		tries++
		_, line, err := r.ask(addr, "put 0 0 9 1\r\nx\r\n")
		if err == nil && !strings.HasPrefix(line, "INSERTED ") {
			t.Errorf("the next leader says %q", line)
		}
		return err == nil
	})
	release()
	if err := <-answered; err == nil {
		t.Error("the one before has answered")
	}
	r.eventually("the one before stands by", func() bool {
		s, jobs := r.members[l].Status(), r.queues[l].Digest(0).Jobs
		return r.queues[l].Serving() == nil && s.Applied == s.Last && jobs >= 1 && jobs <= tries
	})
}
