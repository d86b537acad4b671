package cluster

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// survivor is a client of a member that has a job reserved, and one that waits for the next of its tube.
type survivor struct {
	member int
	tube   string
	holds  *asideClient
	waits  *asideClient
	job    uint64
}

// survivor makes the clients of a member.
func (r *rig) survivor(i int, tube string) (s survivor) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("clients of member %d hold a job and wait for one", i), func() bool {
		s = survivor{member: i, tube: fmt.Sprint(tube, "-", i)}
		s.holds = r.hold(i, s.tube)
		line, err := s.holds.say("put 0 0 1000 4\r\nmine\r\n")
		if err != nil || !strings.HasPrefix(line, "INSERTED ") {
			return false
		}
		if line, err = s.holds.say("reserve\r\n"); err != nil {
			return false
		}
		if s.job, _, err = s.holds.body(line, "RESERVED %d %d"); err != nil {
			return false
		}
		if s.waits, line, err = r.try(i, false, "watch "+s.tube+"\r\nignore default\r\n"); err != nil || line != "WATCHING 2\r\n" {
			return false
		}
		if line, err = s.waits.r.ReadString('\n'); err != nil || line != "WATCHING 1\r\n" {
			return false
		}
		_, err = io.WriteString(s.waits, "reserve\r\n")
		return err == nil
	})
	return s
}

// goesOn checks that the clients have noticed nothing. An error is that of a connection.
func (s *survivor) goesOn(t *testing.T) error {
	t.Helper()
	for _, x := range []struct{ say, want string }{
		{"list-tube-used\r\n", "USING " + s.tube + "\r\n"},
		{fmt.Sprintf("touch %d\r\n", s.job), "TOUCHED\r\n"},
		{"put 0 0 1000 5\r\nother\r\n", "INSERTED "},
		{fmt.Sprintf("delete %d\r\n", s.job), "DELETED\r\n"},
		{fmt.Sprintf("delete %d\r\n", s.job), "NOT_FOUND\r\n"},
	} {
		line, err := s.holds.say(x.say)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(line, x.want) {
			t.Fatalf("member %d: %q is answered %q", s.member, x.say, line)
		}
	}
	line, err := s.waits.r.ReadString('\n')
	if err != nil {
		return err
	}
	if _, body, err := s.waits.body(line, "RESERVED %d %d"); err != nil || body != "other" {
		t.Fatalf("member %d: who waits is told %q, %q, %v", s.member, line, body, err)
	}
	return nil
}

// ends checks that the clients were reset.
func (s *survivor) ends(t *testing.T) {
	t.Helper()
	for _, c := range []*asideClient{s.holds, s.waits} {
		if got := c.ended(t); got != "" {
			t.Errorf("member %d: a client is told %q", s.member, got)
		}
	}
}

// attempts is how often a test is made anew because a leader was deposed that should not have been, or no member led for
// so long that clients were given up.
const attempts = 5

// Clients of members that survive do not notice that the leader has handed over, was deposed, or was lost. Nor do its
// own, if it has handed over.
func TestClientsDoNotNoticeAChangeOfLeader(t *testing.T) {
	for name, x := range map[string]struct {
		end    func(r *rig, leader int)
		spares bool // the leader's own clients, too
	}{
		"it hands over": {func(r *rig, l int) { r.transfer(l) }, true},
		"it hands over again and again": {func(r *rig, l int) {
			for range 5 {
				r.transfer(l)
				l, _ = r.leader(-1)
			}
		}, true},
		"it is deposed": {func(r *rig, l int) { r.members[l].resign("a test") }, false},
		"it is cut off": {(*rig).cutOff, false},
		"it is killed":  {(*rig).kill, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := range attempts {
				err := change(t, x.end, x.spares)
				if err == nil {
					return
				}
				t.Logf("attempt %d: %v", try, err)
			}
			t.Error("clients are reset")
		})
	}
}

var errDeposed = errors.New("another member was elected meanwhile")

func change(t *testing.T, end func(r *rig, leader int), spares bool) error {
	r := newCutRig(t, 3)
	r.all()
	l, _ := r.leader(-1)
	of := r.queues[l].Leaderships()
	var all []survivor
	for i := range r.queues {
		all = append(all, r.survivor(i, "tube"))
	}
	if r.queues[l].Serving() == nil || r.queues[l].Leaderships() != of {
		return errDeposed
	}
	began := time.Now()
	end(r, l)
	for _, s := range all {
		if s.member != l || spares {
			if err := s.goesOn(t); err != nil {
				return fmt.Errorf("a client of member %d, of which %d leads: %w", s.member, l, err)
			}
			continue
		}
		s.ends(t)
	}
	t.Logf("after %v all goes on", time.Since(began))
	r.net.heal()
	return nil
}

// cutOff cuts a member off from all others.
func (r *rig) cutOff(i int) {
	for o := range r.nodes {
		if o != i {
			r.net.cut(r.nodes[i].Addr, r.nodes[o].Addr)
		}
	}
}

// kill ends a member that can say nothing to others any more.
func (r *rig) kill(i int) {
	r.t.Helper()
	r.cutOff(i)
	if err := r.stop(i); err != nil {
		r.t.Error(err)
	}
}

// A snapshot does not tell which commands were executed: they are not taken for such as were not, and sent again.
func TestClientsOfWhomASnapshotSaysNothingAreReset(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.all()
	var l, g int
	var c *asideClient
	r.eventually("a client of a gateway waits", func() bool {
		l, _ = r.leader(-1)
		g = r.others(l)[0]
		var line string
		var err error
		if c, line, err = r.try(g, false, "watch x\r\nreserve\r\n"); err != nil || line != "WATCHING 2\r\n" {
			return false
		}
		waits := 0
		r.eventually("the leader knows of the client", func() bool {
			s := r.queues[l].Serving()
			if s == nil {
				return true
			}
			waits = int(s.Engine.Snapshot(s.Now()).Waiting)
			return waits > 0
		})
		return waits > 0
	})
	r.queues[g].EffectsLost()
	r.transfer(l)
	if got := c.ended(t); got != "" {
		t.Errorf("the client is told %q", got)
	}
}
