package shard

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// Whatever clients do, in whatever order things happen, they are answered as the
// documents say, and what the engine keeps fits together after every step.
//
// More: go test -run Random -timeout 0 ./engine -rapid.checks=100000 -rapid.seed=7. A failure
// leaves a file under testdata/rapid, which -rapid.failfile replays.
func TestRandomCommandsAreAnsweredAsByTheModel(t *testing.T) {
	rapidFlag(t, "rapid.checks", 1200)
	rapidFlag(t, "rapid.steps", 80)
	rapid.Check(t, func(t *rapid.T) {
		var f *file
		if rapid.Bool().Draw(t, "journal") {
			f = newFile(t)
		}
		r := newRig(t, drawPlan(t), f, time.Unix(1e9, 0))
		t.Repeat(r.actions())
		r.audit()
		if f != nil {
			r = r.restart(among(t, "pause", clock.Second, 0, 100*clock.Second))
			t.Repeat(r.actions())
			r.audit()
		}
		r.empty()
	})
}

// The same holds where keys, dead letters and moves meet, which come together often here:
// a dead letter takes its unique key along, or loses it, and leaves its slot to others.
func TestRandomDeadLettersWithKeysAreAnsweredAsByTheModel(t *testing.T) {
	rapidFlag(t, "rapid.checks", 300)
	rapidFlag(t, "rapid.steps", 60)
	rapid.Check(t, func(t *rapid.T) {
		var f *file
		if rapid.IntRange(0, 3).Draw(t, "journal") > 0 {
			f = newFile(t)
		}
		p := drawPlan(t)
		p.keyed = true
		if len(p.places) == 1 {
			p.places = append(p.places, p.shards-1)
		}
		p.places = p.places[:min(len(p.places), 3)]
		r := newRig(t, p, f, time.Unix(1e9, 0))
		for again := 0; ; again++ {
			t.Repeat(r.actionsOnKeys())
			r.audit()
			if f == nil || again == 2 {
				break
			}
			r = r.restart(among(t, "pause", 0, clock.Second, 2*clock.Second, 100*clock.Second))
		}
		r.empty()
	})
}

// actionsOnKeys are the actions that put jobs with keys and let their reservations fail.
func (r *rig) actionsOnKeys() map[string]func(*rapid.T) {
	all, some := r.actions(), map[string]func(*rapid.T){}
	for _, name := range []string{
		"", "put", "put many", "reserve", "reserve until it waits", "reserve-with-timeout", "reserve-job", "reserve-batch", "delete", "release",
		"bury", "kick", "kick-job", "use", "watch", "reserve-mode", "pause-tube", "stats", "look at a tube", "clear", "move", "dead letters",
		"settings", "connect",
		"close", "stats-group", "deliver", "resume", "accounts", "journal", "migrate", "time passes", "time is full",
	} {
		some[name] = all[name]
	}
	for _, name := range []string{"put many", "release", "reserve-job", "dead letters", "settings", "time is full"} {
		some[name+" again"] = all[name]
	}
	return some
}

// The same holds where clients choose among tubes by weights, which they change, and tubes come
// and go.
func TestRandomChoicesByWeightAreThoseOfTheModel(t *testing.T) {
	rapidFlag(t, "rapid.checks", 100)
	rapidFlag(t, "rapid.steps", 60)
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		for len(p.places) < 4 {
			p.places = append(p.places, p.shards-1)
		}
		r := newRig(t, p, nil, time.Unix(1e9, 0))
		all, some := r.actions(), map[string]func(*rapid.T){}
		for _, name := range []string{
			"", "put", "put many", "reserve-with-timeout", "reserve-batch", "delete", "release", "use", "watch", "ignore", "reserve-mode",
			"pause-tube", "move", "connect", "close", "deliver", "resume", "time passes",
		} {
			some[name] = all[name]
		}
		for _, name := range []string{"put many", "use", "watch", "reserve-mode", "reserve-batch"} {
			some[name+" again"] = all[name]
		}
		t.Repeat(some)
		r.audit()
		r.empty()
	})
}

// rapidFlag sets a flag of rapid for one test, unless the command line does. The histories are the
// same each time, so that a change is judged by what it does: others come from another -rapid.seed.
func rapidFlag(t *testing.T, name string, n int) {
	if name == "rapid.checks" {
		rapidFlag(t, "rapid.seed", 1)
		if raceEnabled || !proof {
			n /= 10
		}
	}
	f := flag.Lookup(name)
	if old := f.Value.String(); old == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(old) })
	}
}

func drawPlan(t *rapid.T) rigPlan {
	p := rigPlan{
		patience: rapid.IntRange(atOnce, deliversLater).Draw(t, "patience"),
		loops:    rapid.IntRange(1, 4).Draw(t, "loops"),
		shards:   1 << rapid.IntRange(0, 2).Draw(t, "shards"),
		maxJob:   70_000,
	}
	for range rapid.IntRange(1, 5).Draw(t, "tubes") {
		p.places = append(p.places, rapid.IntRange(0, p.shards-1).Draw(t, "shard"))
	}
	p.lastID = rapid.SampledFrom([]uint64{0, 0, 0, 1<<8 - 3, 1<<22 - 3, math.MaxUint64 - 10_000}).Draw(t, "last id")
	p.maxKeys = rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "max keys")
	p.ballast = rapid.IntRange(0, 9).Draw(t, "ballast") == 9
	return p
}

// pick draws one of a list by its index, which shrinks to the first. It gives up
// the action when there is none.
func pick[T any](t *rapid.T, label string, list []T) T {
	if len(list) == 0 {
		t.Skip("no " + label)
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(t, label)]
}

func among[T any](t *rapid.T, label string, list ...T) T { return pick(t, label, list) }

func (r *rig) those(want func(*rigConn) bool) (list []*rigConn) {
	for _, c := range r.conns {
		if !c.closed && want(c) {
			list = append(list, c)
		}
	}
	return list
}

// idle draws a connection that can execute a command.
func (r *rig) idle(t *rapid.T) *rigConn {
	list := r.those(func(c *rigConn) bool { return !c.waiting && c.rest == nil })
	if len(list) == 0 && len(r.conns) < maxConns {
		return r.open(0, 0)
	}
	return pick(t, "conn", list)
}

const maxConns = 8

func (r *rig) tubeName(t *rapid.T) string { return pick(t, "tube", r.names) }

// jobID draws the id of a job, preferably one that there is.
func (r *rig) jobID(t *rapid.T) uint64 {
	m := r.model
	ids := []uint64{}
	for id := range m.jobs {
		ids = append(ids, id)
	}
	for _, x := range m.tombs {
		ids = append(ids, x.id)
	}
	slices.Sort(ids)
	return pick(t, "job", append(ids, 0, m.lastID, m.lastID+1, r.firstID, math.MaxUint64))
}

// heldID draws the id of a job, preferably one that the connection has reserved.
func (r *rig) heldID(t *rapid.T, c *rigConn) uint64 {
	held := r.model.heldBy(c.client)
	if orphans := r.model.heldBy(nobody); len(orphans) > 0 && rapid.Bool().Draw(t, "orphan") {
		held = orphans
	}
	if len(held) == 0 || rapid.IntRange(0, 7).Draw(t, "any") == 7 {
		return r.jobID(t)
	}
	return pick(t, "held", held).id
}

// More than a ready queue has runs.
func priority(t *rapid.T) uint32 {
	return among[uint32](t, "pri", 0, 1, 2, 3, 4, 5, 6, 7, 8, 1023, 1024, 1<<31, math.MaxUint32)
}

func anyState(t *rapid.T) string { return among(t, "state", "ready", "reserved", "delayed", "buried") }

func delay(t *rapid.T) uint32 {
	return among[uint32](t, "delay", 0, 0, 0, 1, 2, 3, 10, math.MaxUint32)
}

// somePair draws a key of set-tube with a value, and says what it makes of a policy.
func (r *rig) somePair(t *rapid.T) (pair string, change func(*journal.Policy)) {
	d := journal.DefaultPolicy
	number := func(key string, to func(*journal.Policy) *uint32, values ...uint32) (string, func(*journal.Policy)) {
		if n := pick(t, "value", append(values, 1<<32-1)); n != 1<<32-1 {
			return fmt.Sprint(key, "=", n), func(p *journal.Policy) { *to(p) = n }
		}
		return key + "=", func(p *journal.Policy) { *to(p) = *to(&d) }
	}
	switch rapid.IntRange(0, 15).Draw(t, "key") {
	case 0:
		return number("attempts", func(p *journal.Policy) *uint32 { return &p.Attempts }, 0, 1, 2, 3)
	case 1, 2:
		return number("retry-min", func(p *journal.Policy) *uint32 { return &p.RetryMin }, 1, 2, 0, 1<<32-2)
	case 3:
		return number("retry-factor", func(p *journal.Policy) *uint32 { return &p.RetryFactor }, 1, 2, 10)
	case 4:
		return number("retry-max", func(p *journal.Policy) *uint32 { return &p.RetryMax }, 1, 3, 1<<32-2)
	case 5:
		return number("retry-jitter", func(p *journal.Policy) *uint32 { return &p.RetryJitter }, 0, 10, 100)
	case 6:
		on := rapid.Bool().Draw(t, "on")
		return fmt.Sprint("disconnects=", map[bool]int{true: 1}[on]), func(p *journal.Policy) { p.Disconnects = on }
	case 7, 8:
		rate := among(t, "rate", "1/1", "2/3", "7/2", "0", "1/86400", "1000000/1")
		return "rate=" + rate, func(p *journal.Policy) {
			p.Rate, p.Per = 0, 1
			_, _ = fmt.Sscanf(rate, "%d/%d", &p.Rate, &p.Per)
		}
	case 9:
		return number("burst", func(p *journal.Policy) *uint32 { return &p.Burst }, 1, 2, 10)
	case 10:
		return number("max-reserved", func(p *journal.Policy) *uint32 { return &p.MaxReserved }, 1, 2, 0)
	case 11:
		on := rapid.Bool().Draw(t, "on")
		return fmt.Sprint("paused=", map[bool]int{true: 1}[on]), func(p *journal.Policy) { p.Paused = on }
	case 13, 14:
		return number("linger", func(p *journal.Policy) *uint32 { return &p.Linger }, 2, 0, 1, 3, 86_400)
	case 12:
		return number("expire", func(p *journal.Policy) *uint32 { return &p.Expire }, 0, 1, 2, 5)
	}
	dead := among(t, "dead", "", r.tubeName(t))
	return "dead=" + dead, func(p *journal.Policy) { p.Dead = dead }
}

func (r *rig) actions() map[string]func(*rapid.T) {
	m := r.model
	return map[string]func(*rapid.T){
		"": func(t *rapid.T) { r.check() },

		"put": func(t *rapid.T) { r.putAny(t) },
		"put many": func(t *rapid.T) {
			c := r.idle(t)
			for range rapid.IntRange(2, 15).Draw(t, "jobs") {
				r.put(t, c, modelPut{pri: priority(t), ttr: among[uint32](t, "ttr", 1, 2, 3, 100), size: 1, keys: r.someKeys(t)})
			}
		},
		"more of a put": func(t *rapid.T) {
			c := pick(t, "conn", r.those(func(c *rigConn) bool { return c.rest != nil }))
			r.more(c, rapid.IntRange(1, len(c.rest)).Draw(t, "bytes"))
		},

		"reserve": func(t *rapid.T) {
			c := r.idle(t)
			r.do(c, "reserve", func() string { return m.reserve(c.client, clock.MaxTime) })
		},
		"reserve until it waits": func(t *rapid.T) {
			c := r.idle(t)
			for !c.waiting && !c.halfShut && r.now < m.margin(c.client) {
				r.do(c, "reserve", func() string { return m.reserve(c.client, clock.MaxTime) })
			}
		},
		"reserve-with-timeout": func(t *rapid.T) {
			c := r.idle(t)
			n := among[uint32](t, "timeout", 0, 0, 1, 2, 3, 1<<31-1)
			r.do(c, fmt.Sprint("reserve-with-timeout ", n), func() string {
				return m.reserve(c.client, r.now+clock.Seconds(n))
			})
		},
		"reserve-job": func(t *rapid.T) {
			c, id := r.idle(t), r.jobID(t)
			r.do(c, fmt.Sprint("reserve-job ", id), func() string { return m.reserveJob(c.client, id) })
		},

		"delete": func(t *rapid.T) {
			c := r.idle(t)
			id := r.heldID(t, c)
			r.do(c, fmt.Sprint("delete ", id), func() string { return m.delete(c.client, id) })
		},
		"release": func(t *rapid.T) {
			c := r.idle(t)
			id, pri, delay := r.heldID(t, c), priority(t), delay(t)
			r.do(c, fmt.Sprint("release ", id, " ", pri, " ", delay), func() string {
				return m.release(c.client, id, pri, delay)
			})
		},
		"bury": func(t *rapid.T) {
			c := r.idle(t)
			id, pri := r.heldID(t, c), priority(t)
			r.do(c, fmt.Sprint("bury ", id, " ", pri), func() string { return m.bury(c.client, id, pri) })
		},
		"touch": func(t *rapid.T) {
			c := r.idle(t)
			id := r.heldID(t, c)
			r.do(c, fmt.Sprint("touch ", id), func() string { return m.touch(c.client, id) })
		},

		"kick": func(t *rapid.T) {
			c := r.idle(t)
			n := among[uint32](t, "bound", 0, 1, 2, 3, math.MaxUint32)
			r.do(c, fmt.Sprint("kick ", n), func() string { return m.kick(c.client, int(n)) })
		},
		"kick-job": func(t *rapid.T) {
			c, id := r.idle(t), r.jobID(t)
			r.do(c, fmt.Sprint("kick-job ", id), func() string { return m.kickJob(id) })
		},

		"peek": func(t *rapid.T) {
			c, id := r.idle(t), r.jobID(t)
			r.do(c, fmt.Sprint("peek ", id), func() string { return m.peek(id) })
		},
		"peek at the first": func(t *rapid.T) {
			c, state := r.idle(t), among(t, "state", "ready", "delayed", "buried")
			r.do(c, "peek-"+state, func() string { return m.peekFirst(c.client, state) })
		},

		"use": func(t *rapid.T) {
			c, name := r.idle(t), r.tubeName(t)
			r.do(c, "use "+name, func() string { return m.use(c.client, name) })
		},
		"watch": func(t *rapid.T) {
			c, name := r.idle(t), r.tubeName(t)
			line, weight := "watch "+name, among(t, "weight", 0, 1, 2, 3, 9999)
			if weight > 0 {
				line += fmt.Sprint(" ", weight)
			}
			r.do(c, line, func() string { return m.watch(c.client, name, max(weight, 1)) })
		},
		"reserve-mode": func(t *rapid.T) {
			c := r.idle(t)
			words := among(t, "mode", "weighted", "weighted-fair", "fifo", "default") + among(t, "info", "", " info")
			r.do(c, "reserve-mode "+words, func() string { return m.reserveMode(c.client, words) })
		},
		"ignore": func(t *rapid.T) {
			c, name := r.idle(t), r.tubeName(t)
			r.do(c, "ignore "+name, func() string { return m.ignore(c.client, name) })
		},
		"pause-tube": func(t *rapid.T) {
			c, name := r.idle(t), r.tubeName(t)
			delay := delay(t)
			r.do(c, fmt.Sprint("pause-tube ", name, " ", delay), func() string { return m.pauseTube(name, delay) })
		},

		"list": func(t *rapid.T) {
			c := r.idle(t)
			switch among(t, "list", "tubes", "used", "watched") {
			case "tubes":
				r.do(c, "list-tubes", m.listTubes)
			case "used":
				r.do(c, "list-tube-used", func() string { return "USING " + c.client.used.name + "\r\n" })
			default:
				r.do(c, "list-tubes-watched", func() string { return m.listTubesWatched(c.client) })
			}
		},
		"stats": func(t *rapid.T) {
			c := r.idle(t)
			switch among(t, "stats", "all", "tube", "job") {
			case "all":
				r.do(c, "stats", m.stats)
				r.do(c, "list-dlq", m.listDLQ)
			case "tube":
				name := r.tubeName(t)
				r.statsTube(c, name)
				r.statsTubeX(c, name)
			default:
				id := r.jobID(t)
				r.do(c, fmt.Sprint("stats-job ", id), func() string { return m.statsJob(id) })
			}
		},
		"look at a tube": func(t *rapid.T) {
			c, name, state := r.idle(t), r.tubeName(t), anyState(t)
			if rapid.Bool().Draw(t, "peek") {
				r.do(c, "peek-tube "+name+" "+state, func() string { return m.peekTube(name, state) })
				return
			}
			limit, after := among(t, "limit", 1, 2, 100), uint64(0)
			if x := m.find(name); x != nil && rapid.Bool().Draw(t, "goes on") {
				if list := m.listed(x, state); len(list) > 0 {
					after = pick(t, "after", list).id
				}
			}
			r.do(c, fmt.Sprint("list-jobs ", name, " ", state, " ", limit, " ", after), func() string {
				return m.listJobs(c.client, name, state, limit, after)
			})
		},
		"clear": func(t *rapid.T) {
			c, name, state := r.idle(t), r.tubeName(t), anyState(t)
			n := among[uint32](t, "bound", 1, 0, 2, 3, math.MaxUint32)
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				r.do(c, "flush-tube "+name, func() string { return m.flushTube(name) })
			case 1, 2:
				r.do(c, fmt.Sprint("kick-tube ", name, " ", n), func() string { return m.kickTube(name, int(n)) })
			default:
				r.do(c, fmt.Sprint("delete-tube-jobs ", name, " ", state, " ", n), func() string {
					return m.deleteTubeJobs(name, state, int(n))
				})
			}
		},
		"move": func(t *rapid.T) {
			c, to := r.idle(t), r.tubeName(t)
			if rapid.Bool().Draw(t, "one") {
				id := r.heldID(t, c)
				r.do(c, fmt.Sprint("move-job ", id, " ", to), func() string { return m.moveJob(c.client, id, to) })
				return
			}
			from, state := r.tubeName(t), among(t, "state", "ready", "delayed", "buried")
			n := among[uint32](t, "bound", 1, 0, 2, 3, math.MaxUint32)
			r.do(c, fmt.Sprint("move-tube ", from, " ", state, " ", to, " ", n), func() string {
				return m.moveTube(from, state, to, int(n))
			})
		},
		"dead letters": func(t *rapid.T) {
			c := r.idle(t)
			if rapid.IntRange(0, 3).Draw(t, "list") == 3 {
				r.do(c, "list-dlq", m.listDLQ)
				r.do(c, "list-settings", m.listSettings)
				return
			}
			name, dead, n := r.tubeName(t), r.tubeName(t), among(t, "attempts", 1, 2, 0, 3)
			r.do(c, fmt.Sprint("set-dlq ", name, " ", n, " ", dead), func() string { return m.setDLQ(name, n, dead) })
		},
		"settings": func(t *rapid.T) {
			c, name := r.idle(t), r.tubeName(t)
			pair, change := r.somePair(t)
			if rapid.IntRange(0, 9).Draw(t, "none") == 9 {
				pair, change = "none", func(p *journal.Policy) { *p = journal.DefaultPolicy }
			}
			r.do(c, "set-tube "+name+" "+pair, func() string {
				p := m.policy(name)
				change(&p)
				return m.set(name, p, "TUBE_SET\r\n")
			})
		},
		"stats-group": func(t *rapid.T) {
			c, name := r.idle(t), among(t, "group", "g", "h")
			r.do(c, "stats-group "+name, func() string { return m.statsGroup(name) })
		},
		"reserve-batch": func(t *rapid.T) {
			c, n := r.idle(t), rapid.IntRange(1, 5).Draw(t, "jobs")
			timeout := among[uint32](t, "timeout", 0, 0, 1, 2, 3, 1<<31-1)
			r.do(c, fmt.Sprint("reserve-batch ", n, " ", timeout), func() string {
				return m.reserveBatch(c.client, n, timeout)
			})
		},
		"touch-all": func(t *rapid.T) {
			c := r.idle(t)
			r.do(c, "touch-all", func() string { return m.touchAll(c.client) })
		},
		"nonsense": func(t *rapid.T) {
			c := r.idle(t)
			line := among(t, "line", "nonsense", "peek x", "put 0 0 1 1 x", "pause-tube -a 1")
			r.do(c, line, func() string {
				if line == "peek x" {
					m.commands["peek"]-- // badly formed, not counted
				}
				if line == "nonsense" {
					return "UNKNOWN_COMMAND\r\n"
				}
				return "BAD_FORMAT\r\n"
			})
		},

		"connect": func(t *rapid.T) {
			if len(r.conns) >= maxConns {
				t.Skip("enough connections")
			}
			turn := among[uint32](t, "turn", 0, 0, math.MaxUint32-1)
			r.open(rapid.IntRange(0, len(r.loops)-1).Draw(t, "loop"), turn)
		},
		"close": func(t *rapid.T) {
			c := pick(t, "conn", r.those(func(c *rigConn) bool { return true }))
			if !c.waiting && c.rest == nil && rapid.Bool().Draw(t, "quits") {
				if outcome := c.feed([]byte("quit\r\n")); outcome != Quit {
					t.Fatalf("outcome of quit: %d", outcome)
				}
				c.client.quit = true
			}
			t.Logf("conn %d closes", c.number)
			r.close(c)
		},
		"half-close": func(t *rapid.T) {
			c := pick(t, "conn", r.those(func(c *rigConn) bool { return c.waiting || !c.halfShut }))
			t.Logf("conn %d half-closes", c.number)
			r.halfClose(c)
		},

		"deliver": func(t *rapid.T) {
			var l []*rigLoop
			for _, x := range r.loops {
				if x.woken || x.owed {
					l = append(l, x)
				}
			}
			r.deliver(pick(t, "loop", l))
		},
		"resume": func(t *rapid.T) {
			c := pick(t, "conn", r.those(func(c *rigConn) bool { return c.woken }))
			t.Logf("conn %d resumes", c.number)
			r.resume(c)
		},

		"accounts":     r.changeAccounts,
		"journal":      r.journalAction,
		"migrate":      r.migrate,
		"time passes":  func(t *rapid.T) { r.pass(t) },
		"time is full": func(t *rapid.T) { r.meet(t) },
		"rarely": func(t *rapid.T) {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 7:
				c, word := r.idle(t), among(t, "word", "drain", "drain on", "drain off", "drain status", "undrain")
				r.do(c, word, func() string { return m.drain(word) })
			case 8:
				m.draining = !m.draining
				t.Logf("draining: %v", m.draining)
				r.engine.Drain(m.draining)
			case 9:
				r.shed()
			}
		},
	}
}

// putAny draws a put of every kind.
func (r *rig) putAny(t *rapid.T) {
	c := r.idle(t)
	p := modelPut{pri: priority(t), delay: delay(t), ttr: among[uint32](t, "ttr", 100, 0, 1, 2, 3, math.MaxUint32)}
	p.keys = r.someKeys(t)
	p.size = among(t, "size", 1, 0, 2, 8, ballastBody, ballastBody, 300)
	if rapid.IntRange(0, 29).Draw(t, "large") == 29 {
		p.size = among(t, "size", 65_536, 69_999, 70_000, 70_001)
	}
	c.bad = rapid.IntRange(0, 15).Draw(t, "bad") == 15
	r.put(t, c, p)
}

// someKeys draws the keys of a put: none, as a rule, unless the plan wants them.
func (r *rig) someKeys(t *rapid.T) journal.Keys {
	if r.plan.keyed {
		return keysOfKind(t, among(t, "keys", "idp", "con", "both", "idp", "", "fair", "fair", "fair", "all"))
	}
	return someKeys(t)
}

// someKeys draws the keys of a put: none, as a rule.
func someKeys(t *rapid.T) journal.Keys {
	return keysOfKind(t, among(t, "keys", "", "", "", "idp", "con", "both", "fair"))
}

func keysOfKind(t *rapid.T, kind string) (k journal.Keys) {
	if kind == "idp" || kind == "both" || kind == "all" {
		k.Unique, k.Seconds = among(t, "idp", "k", "j"), among[uint32](t, "seconds", 0, 1, 3, 100)
	}
	if kind == "con" || kind == "both" || kind == "all" {
		k.Limited, k.Limit = among(t, "con", "c", "d"), among[uint32](t, "limit", 1, 1, 2, 3)
	}
	var terms journal.Terms
	if kind == "fair" || kind == "all" {
		terms.Fair = among(t, "fair", "f", "g", "h")
	}
	if rapid.IntRange(0, 3).Draw(t, "terms") == 3 {
		someGroups(t, &terms)
	}
	if rapid.IntRange(0, 3).Draw(t, "expires") == 3 {
		terms.Expires = among[uint32](t, "exp", 1, 2, 3, 5, 1<<32-1)
	}
	if terms != (journal.Terms{}) {
		k.Terms = &terms
	}
	return k
}

// someGroups draws a part in groups.
func someGroups(t *rapid.T, x *journal.Terms) {
	x.Group = among(t, "grp", "g", "h", "")
	if after := among(t, "aft", "", "g", "h"); after != "" && after != x.Group {
		x.After, x.Settled = after, rapid.Bool().Draw(t, "settled")
	}
}

// put sends a put, or at least its line.
func (r *rig) put(t *rapid.T, c *rigConn, p modelPut) {
	r.bodies++
	p.body = strings.Repeat(fmt.Sprintf("%d\r\n", r.bodies), p.size/3+1)[:p.size]
	line := fmt.Sprintf("put %d %d %d %d%s\r\n", p.pri, p.delay, p.ttr, p.size, tagsOf(&p.keys))
	t.Logf("conn %d > %s", c.number, line)
	c.rest = []byte(line + p.body + map[bool]string{false: "\r\n", true: "\r\r"}[c.bad])
	n := len(c.rest)
	if p.size != 1 && rapid.IntRange(0, 3).Draw(t, "whole") == 3 {
		n = rapid.IntRange(len(line), len(c.rest)).Draw(t, "bytes")
	}
	if p.size <= r.model.maxJob {
		p.account = r.shares.known[r.shares.of(c.client.used.name)]
	}
	r.model.putBegin(c.client, p)
	r.more(c, n)
}

// more sends n bytes of a put.
func (r *rig) more(c *rigConn, n int) {
	r.expect(c, r.feed(c, c.rest[:n]))
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.client.out += r.model.putEnd(c.client, !c.bad)
		r.model.fire()
		c.rest, c.bad = nil, false
	} else if p := c.client.incoming; p != nil {
		p.arrived = min(p.size, p.size+len("\r\n")-len(c.rest))
	}
	r.ran(c.loop)
}

// statsTube allows for claimed sessions that still stand in other queues.
func (r *rig) statsTube(c *rigConn, name string) {
	r.do(c, "stats-tube "+name, func() string {
		t := r.model.find(name)
		if t == nil {
			return notFound
		}
		least, most := r.waitingIn(t)
		for n := least; n < most; n++ {
			if want := r.model.statsTube(name, n); strings.HasSuffix(string(c.out.Buf), want) {
				return want
			}
		}
		return r.model.statsTube(name, most)
	})
}

// waitingIn is how many waiting clients a tube may show.
func (r *rig) waitingIn(t *modelTube) (least, most int) {
	least = len(r.model.waitingFor(t))
	return least, least + r.model.countClients(func(c *modelClient) bool {
		return c.claimed && slices.Contains(c.watched, t)
	})
}

// tick is the precision in nanoseconds with which the wheel sorts its timers.
const tick = 1 << 16

// pass lets some time pass.
func (r *rig) pass(t *rapid.T) {
	d := among(t, "time", clock.Second, 0, 1, 2*clock.Second, 3*clock.Second, clock.Second/2, tick, 100*clock.Second, -1)
	if d < 0 {
		d = clock.Time(rapid.Int64Range(0, int64(5*clock.Second)).Draw(t, "nanoseconds"))
	}
	r.passUntil(t, r.now+d)
}

// meet lets time pass until about the next thing that will happen by itself.
func (r *rig) meet(t *rapid.T) {
	at := r.model.soonest()
	// Three waits of 2^32 seconds, restarts between them or not, are more than Time can hold.
	if at == clock.MaxTime || at-r.now > 1000*clock.Second && r.start.Add(time.Duration(r.now)).Unix() > 1e9+1<<28 {
		t.Skip("nothing will happen")
	}
	r.passUntil(t, max(r.now, at+among[clock.Time](t, "off", 0, -1, 1, -tick)))
}

func (r *rig) passUntil(t *rapid.T, to clock.Time) {
	nobodyWaits := !slices.ContainsFunc(r.model.clients, func(c *modelClient) bool { return c.waiting })
	// A dead letter is where its shard does not show until somebody looks there, and an ended
	// tombstone counts against the limit on keys until then.
	counted := r.model.maxKeys > 0 && len(r.model.tombs) > 0
	if nobodyWaits && !counted && !r.model.judges() && len(r.model.firings) == 0 && rapid.IntRange(0, 3).Draw(t, "late") == 3 {
		t.Logf("%d: nobody looks at the clock", to)
		r.jump(to)
		return
	}
	if len(r.model.firings) > 0 { // which is tried again every 10 ms
		to = min(to, r.now+10*clock.Second)
	}
	t.Logf("%d", to)
	r.wait(to, rapid.Bool().Draw(t, "loops first"))
}

// audit compares all that clients can see.
func (r *rig) audit() {
	m := r.model
	c := r.open(0, 0)
	r.do(c, "list-tubes", m.listTubes)
	r.do(c, "stats", m.stats)
	for _, name := range r.names {
		r.statsTube(c, name)
		r.statsTubeX(c, name)
		r.do(c, "use "+name, func() string { return m.use(c.client, name) })
		for _, state := range []string{"ready", "delayed", "buried"} {
			r.do(c, "peek-"+state, func() string { return m.peekFirst(c.client, state) })
			r.do(c, "list-jobs "+name+" "+state, func() string { return m.listJobs(c.client, name, state, 100, 0) })
		}
		r.do(c, "peek-tube "+name+" reserved", func() string { return m.peekTube(name, "reserved") })
	}
	for id := range m.jobs {
		r.do(c, fmt.Sprint("stats-job ", id), func() string { return m.statsJob(id) })
		r.do(c, fmt.Sprint("peek ", id), func() string { return m.peek(id) })
	}
	r.check()
}

// empty closes all connections and deletes all jobs: nothing must be left.
func (r *rig) empty() {
	m := r.model
	if r.file != nil {
		r.file.err = nil
	}
	if !r.plan.cold { // the time to run of a cold job begins when its client goes on
		r.patience = resumesLater
	}
	r.settle()
	for len(r.conns) > 0 {
		r.close(r.conns[0])
		r.check()
	}
	c := r.open(0, 0)
	for id := range m.jobs {
		r.do(c, fmt.Sprint("delete ", id), func() string { return m.delete(c.client, id) })
	}
	r.wait(r.now, false)
	m.endTombstones()
	for len(m.tombs) > 0 {
		name := m.tombs[0].tube // not one of r.names after a restart
		r.do(c, "flush-tube "+name, func() string { return m.flushTube(name) })
	}
	r.check()
	r.close(c)
	r.shed()
	r.check()
	for _, err := range checkEmpty(r.engine) {
		r.t.Error(err)
	}
	r.wait(r.now+10*clock.Second, false)
	if n := r.engine.mapped(); n != 0 {
		r.t.Errorf("%d bytes are mapped for no job", n)
	}
}
