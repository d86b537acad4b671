package shard

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/loads"
)

// toldBodies are the ids and bodies in replies.
var toldBodies = regexp.MustCompile(`(?:RESERVED|FOUND) (\d+) \d+\r\n([^\r]*)\r\n`)

// However late bodies come, in whatever order, and if some cannot be read, nobody is told another one, no job is lost,
// and nothing is left behind by those who have gone while they waited.
func TestNothingIsLostWhenBodiesComeLateOrNotAtAll(t *testing.T) {
	rapidFlag(t, "rapid.checks", 500)
	rapidFlag(t, "rapid.steps", 100)
	rapid.Check(t, func(t *rapid.T) {
		s := coldSim(rapid.IntRange(1, 3).Draw(t, "loops"))
		if rapid.Bool().Draw(t, "little room") {
			s.engine.loads = loads.Table{}
			s.engine.loads.Open(int64(rapid.IntRange(0, 40).Draw(t, "bytes")), (*sender)(s.engine.Shards))
		}
		defer s.engine.Discard()
		bodies := map[uint64]string{}
		clients := []*simConn{s.open(), s.open(), s.open()}
		operator := s.open()
		operator.say("set-tube a attempts=2 dead=b", "set-tube b linger=5")
		check := func(reply string) {
			for _, m := range toldBodies.FindAllStringSubmatch(reply, -1) {
				id, _ := strconv.ParseUint(m[1], 10, 64)
				if want, ok := bodies[id]; m[2] != want || !ok {
					t.Fatalf("the body of job %d is %q, was put as %q", id, m[2], want)
				}
			}
		}
		id := func(t *rapid.T) uint64 { return rapid.Uint64Range(1, s.engine.ids.Last.Load()+1).Draw(t, "id") }
		say := func(t *rapid.T, format string, args ...any) {
			check(pick(t, "client", clients).say(fmt.Sprintf(format, args...)))
		}
		tube := func(t *rapid.T) string { return among(t, "tube", "default", "a", "b", "c") }
		actions := map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				in := tube(t)
				for range rapid.IntRange(1, 5).Draw(t, "jobs") {
					body := fmt.Sprintf("%d of %s", s.engine.ids.Last.Load()+1, in)
					bodies[s.engine.ids.Last.Load()+1] = body
					operator.say("use "+in, fmt.Sprintf("put %d %d %d %d\r\n%s",
						rapid.IntRange(0, 3).Draw(t, "pri"), rapid.IntRange(0, 1).Draw(t, "delay"), rapid.IntRange(1, 5).Draw(t, "ttr"), len(body), body))
				}
			},
			"watch":   func(t *rapid.T) { say(t, "watch %s", tube(t)) },
			"reserve": func(t *rapid.T) { say(t, "reserve-with-timeout %d", rapid.IntRange(0, 9).Draw(t, "seconds")) },
			"batch":   func(t *rapid.T) { say(t, "reserve-batch %d", rapid.IntRange(1, 4).Draw(t, "jobs")) },
			"by id":   func(t *rapid.T) { say(t, "reserve-job %d", id(t)) },
			"peek":    func(t *rapid.T) { say(t, "peek %d", id(t)) },
			"first":   func(t *rapid.T) { say(t, "peek-tube %s %s", tube(t), among(t, "state", "ready", "reserved", "buried")) },
			"release": func(t *rapid.T) { say(t, "release %d 1 0", id(t)) },
			"bury":    func(t *rapid.T) { say(t, "bury %d 1", id(t)) },
			"kick":    func(t *rapid.T) { say(t, "kick-tube %s 3", tube(t)) },
			"move":    func(t *rapid.T) { say(t, "move-job %d %s", id(t), tube(t)) },
			"moves":   func(t *rapid.T) { say(t, "move-tube %s ready %s 3", tube(t), tube(t)) },
			"delete": func(t *rapid.T) {
				n := id(t)
				if got := operator.say(fmt.Sprint("delete ", n)); got == "DELETED\r\n" {
					delete(bodies, n)
				}
			},
			"compact": func(t *rapid.T) {
				if x := s.cold.jobs[id(t)]; x != nil {
					if err := s.engine.Migrate(x.full.ID, x.place(), x.full.Body); err != nil {
						t.Fatal(err)
					}
				}
			},
			"close": func(t *rapid.T) {
				i := rapid.IntRange(0, len(clients)-1).Draw(t, "client")
				_ = clients[i].Close()
				clients[i] = s.open()
			},
			"late": func(t *rapid.T) { s.cold.late = among(t, "settles", 0, 0, 1, 10, 1000) },
			"fail": func(t *rapid.T) {
				why := among(t, "why", nil, nil, journal.ErrUnreadable, journal.ErrHangs)
				s.cold.fails = func(x journal.Fetch) error {
					if x.ID%3 == 0 {
						return why
					}
					return nil
				}
			},
			"shuffle": func(t *rapid.T) { s.cold.asked = rapid.Permutation(s.cold.asked).Draw(t, "order") },
			"time":    func(t *rapid.T) { s.Wait(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond) },
			"": func(t *rapid.T) {
				for _, c := range clients {
					check(c.say())
				}
			},
		}
		t.Repeat(actions)
		s.cold.late, s.cold.fails = 0, nil
		s.Settle()
		s.Wait(100 * time.Second)
		for _, c := range clients {
			check(c.say())
			_ = c.Close()
		}
		s.Settle()
		s.engine.evictTo(0, 0, everyEvict)
		c := census{engine: s.engine, sessions: []*Session{&operator.session}}
		for _, err := range c.run() {
			t.Error(err)
		}
		for _, id := range slices.Sorted(maps.Keys(bodies)) {
			want := fmt.Sprintf("FOUND %d %d\r\n%s\r\n", id, len(bodies[id]), bodies[id])
			if got := operator.say(fmt.Sprint("peek ", id)); got != want {
				t.Errorf("job %d is %q, want %q", id, got, want)
			}
		}
	})
}
