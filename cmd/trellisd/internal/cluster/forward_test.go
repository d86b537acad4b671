package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"trellis/binlog/replica/wire"
)

// addrs are where a member serves clients or forwards them; nil while it does neither, and while its own have no numbers
// although those of others may have.
func (r *rig) addrs(i int) []net.Addr {
	q := r.queues[i]
	if s := q.Serving(); s != nil {
		if now := q.serving(); now != nil && q.resumes() && now.leadership.TakesTrunks() && !now.numbered.Load() {
			return nil
		}
		return s.Addrs
	}
	if f := r.queues[i].Forwarding(); f != nil && f.Attached {
		return f.Addrs
	}
	return nil
}

// all waits until each member that runs has clients served.
func (r *rig) all() {
	r.t.Helper()
	r.eventually("all members serve", func() bool {
		for i, run := range r.runs {
			if run != nil && r.addrs(i) == nil {
				return false
			}
		}
		return true
	})
}

// try connects to a member and says something; an error is no answer.
func (r *rig) try(i int, secure bool, s string) (c *asideClient, line string, err error) {
	addrs := r.addrs(i)
	if addrs == nil {
		return nil, "", fmt.Errorf("member %d does not serve", i)
	}
	if c, err = r.dialAside(addrs, secure); err != nil {
		return nil, "", err
	}
	line, err = c.say(s)
	return c, line, err
}

// must is try again and again, until there is an answer.
func (r *rig) must(i int, s, want string) (c *asideClient, line string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("member %d answers %q", i, s), func() (ok bool) {
		var err error
		c, line, err = r.try(i, false, s)
		return err == nil
	})
	if !strings.HasPrefix(line, want) {
		r.t.Fatalf("member %d answers %q with %q", i, s, line)
	}
	return c, line
}

// held reports whether a client of a member has a job reserved, which is in a tube of its own.
func (r *rig) hold(i int, tube string) (c *asideClient) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("a client of member %d holds a job", i), func() bool {
		var line string
		var err error
		c, line, err = r.try(i, false, "use "+tube+"\r\nput 0 0 1000 1\r\nx\r\nwatch "+tube+"\r\nreserve\r\n")
		for _, want := range []string{"USING", "INSERTED", "WATCHING", "RESERVED"} {
			if err != nil {
				return false
			}
			if !strings.HasPrefix(line, want) {
				r.t.Fatalf("member %d says %q, want %s", i, line, want)
			}
			if want != "RESERVED" {
				line, err = c.r.ReadString('\n')
			}
		}
		_, _, err = c.body(line, "RESERVED %d %d")
		return err == nil
	})
	return c
}

// free waits until the jobs of hold are ready for a client of a member.
func (r *rig) free(i int, tube string) {
	r.t.Helper()
	r.eventually("the job of who has gone is ready", func() bool {
		c, line, err := r.try(i, false, "watch "+tube+"\r\nreserve-with-timeout 1\r\n")
		if err == nil && line != "WATCHING 2\r\n" {
			r.t.Fatal(line)
		}
		if err == nil {
			line, err = c.r.ReadString('\n')
		}
		return err == nil && strings.HasPrefix(line, "RESERVED ")
	})
}

// ended waits until a client's connection is over, and returns what has come.
func (c *asideClient) ended(t *testing.T) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection goes on")
	}
	return string(b)
}

// transfer makes another member the leader.
func (r *rig) transfer(from int) {
	r.t.Helper()
	reign := r.queues[from].Leaderships()
	r.eventually("another member leads", func() bool {
		_, err := r.members[from].control(r.t.Context(), wire.Caller{}, []byte(`{"op":"transfer"}`), nil)
		return err == nil || r.queues[from].Serving() == nil || r.queues[from].Leaderships() != reign
	})
}

func (r *rig) others(i int) (list []int) {
	for o, run := range r.runs {
		if o != i && run != nil {
			list = append(list, o)
		}
	}
	return list
}

func TestEachMemberServes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.all()
	for _, secure := range []bool{false, true} {
		for from := range 3 {
			for to := range 3 {
				tube := fmt.Sprint("from-", from, "-to-", to, "-", secure)
				r.eventually("a job goes from one to the other", func() bool { // again if the leader is deposed meanwhile
					_, line, err := r.try(from, secure, "put 0 0 99 4\r\nbody\r\n")
					if err == nil && !strings.HasPrefix(line, "INSERTED ") {
						t.Fatalf("%s: %q", tube, line)
					}
					if err != nil {
						return false
					}
					c, line, err := r.try(to, secure, "reserve\r\n")
					if err != nil {
						return false
					}
					id, body, err := c.body(line, "RESERVED %d %d")
					if err == nil && body != "body" {
						t.Fatalf("%s: %q", tube, body)
					}
					if err == nil {
						line, err = c.say(fmt.Sprintf("delete %d\r\n", id))
					}
					if err == nil && line != "DELETED\r\n" {
						t.Fatalf("%s: %q", tube, line)
					}
					return err == nil
				})
			}
		}
	}
}
