package shard

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// holds reports whether the client was told of a job that it has reserved.
func (c *simConn) holds() bool {
	by, client := c.loop.by(), clientOf(&c.session)
	n := by.CountReserved(0, client, 2)
	if id := c.session.handedJob(); n == 1 && id != 0 && by.HasReserved(0, client, id) {
		n--
	}
	return n > 0
}

// change gives the clients another engine, whose time differs, if none of them has a job. It
// reports whether it did.
func (s *sim) change(t *testing.T) bool {
	t.Helper()
	for _, c := range s.conns {
		if !c.ended && (c.holds() || c.session.isBusy()) {
			return false
		}
	}
	old := s.engine
	old.Hold(true)
	cfg := old.config
	cfg.Journal = old.log.Journal
	e := New(cfg)
	const by = clock.Time(77 * time.Hour)
	f := e.Follow(s.now + by)
	for from := uint64(1); from != 0; {
		var err error
		from, err = old.Walk(from, 100, func(r *journal.Record, _ *journal.Hold) error {
			r.Created += int64(by) // as the clocks of both begin at the same
			if r.State == journal.Delayed {
				r.Due += int64(by)
			}
			_, err := f.Full(r, journal.Place{Segment: 1})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Serve(old.ids.Last.Load()+1000, s.now+by)
	detached := map[*simConn]*Detached{}
	var list []*simConn
	for _, c := range s.conns {
		if c.ended {
			continue
		}
		d, ok := c.session.Detach()
		if !ok {
			t.Fatal("a client without a job cannot go on")
		}
		detached[c] = d
		list = append(list, c)
	}
	old.Discard()
	s.engine, s.now = e, s.now+by
	for _, l := range s.loops {
		l.Loop, l.woken = e.NewLoop(l), true
	}
	slices.SortStableFunc(list, func(a, b *simConn) int {
		return int(min(1, max(-1, detached[a].WaitsSince()-detached[b].WaitsSince())))
	})
	var sessions []*Session
	for _, c := range list {
		if !c.loop.Attach(&c.session, detached[c], by, s.now) {
			t.Fatal("there is no room for a client that was there")
		}
		sessions = append(sessions, &c.session)
	}
	for _, c := range list {
		if c.waiting {
			c.resume()
		}
	}
	s.Settle()
	for _, err := range (&census{engine: e, sessions: sessions}).run() {
		t.Error(err)
	}
	return true
}

var toldID = regexp.MustCompile(`^(INSERTED|RESERVED|FOUND) (\d+)`)

const longestHead = 60 // of a reply; a longer line is a body, in which a search would take its time

// Clients that hold nothing are told the same by engines that follow each other as by a single one.
func TestClientsAreToldTheSameByEnginesThatFollowEachOther(t *testing.T) {
	seeds, steps, changed := uint64(2), 150, 0
	if proof {
		seeds, steps = 30, 300
	}
	for seed := range seeds {
		say := func(changes bool) string {
			var told strings.Builder
			r := rand.New(rand.NewPCG(seed, 1))
			s := newSim(200_000, 1)
			var conns []*simConn
			for range 5 {
				conns = append(conns, s.open())
			}
			half := map[*simConn]string{}
			for step := range steps {
				s.Wait(time.Millisecond)
				c := conns[r.IntN(len(conns))]
				tube := fmt.Sprint("t", r.IntN(4))
				send := ""
				switch what := r.IntN(12); {
				case half[c] != "":
					send, half[c] = half[c], ""
				case what == 0:
					send = "use " + tube + "\r\n"
				case what == 1:
					send = "watch " + tube + "\r\nlist-tubes-watched\r\n"
				case what == 2:
					send = "ignore " + tube + "\r\nignore default\r\n"
				case what == 3:
					send = "reserve\r\nlist-tube-used\r\n"
				case what == 4:
					send = fmt.Sprintf("reserve-with-timeout %d\r\n", r.IntN(3))
				case what == 5:
					send = "reserve-batch 2 1\r\n"
				case what == 6:
					send = "peek-ready\r\n"
				case what == 7:
					s.Wait(700 * time.Millisecond)
				default:
					body := strings.Repeat("b", 1+step%3*20_000) + fmt.Sprint(step)
					text := fmt.Sprintf("put %d %d 99 %d\r\n%s\r\n", step, r.IntN(2), len(body), body)
					cut := r.IntN(len(text)-1) + 1
					send, half[c] = text[:cut], text[cut:]
				}
				if err := c.Send([]byte(send)); err != nil {
					t.Fatal(err)
				}
				for i, c := range conns {
					text := string(c.out.Buf)
					c.out.Buf = nil
					fmt.Fprintln(&told, step, i)
					for line := range strings.Lines(text) {
						if len(line) > longestHead {
							told.WriteString(line)
							continue
						}
						told.WriteString(toldID.ReplaceAllString(line, "$1"))
						if m := toldID.FindStringSubmatch(line); m != nil && m[1] == "RESERVED" { // it ends the job, so that it holds none
							if err := c.Send([]byte("delete " + m[2] + "\r\n")); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				if changes && step%3 == 0 && s.change(t) {
					changed++
				}
			}
			s.engine.Discard()
			return told.String()
		}
		want, got := say(false), say(true)
		if want != got {
			w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
			for i := range w {
				if w[i] != g[i] {
					t.Fatalf("seed %d: %.200q with changes, and %.200q without", seed, g[i], w[i])
				}
			}
		}
	}
	if changed < 10 {
		t.Errorf("the engine was changed %d times", changed)
	}
}

func TestWeightsAreDetached(t *testing.T) {
	s := newSim(200_000, 1)
	c := s.open()
	c.say("watch a 3", "watch b 5", "reserve-mode weighted-fair info abort")
	w := *c.session.weights()
	if !s.change(t) {
		t.Fatal("the engine is not changed")
	}
	if got := c.session.weights(); got == nil || !reflect.DeepEqual(*got, w) || c.session.client.Flags&(hasWeights|isWeighted|isInformed|aborts) != hasWeights|isWeighted|isInformed|aborts {
		t.Errorf("of the weights %+v are left %+v", w, got)
	}
	s.engine.Discard()
}
