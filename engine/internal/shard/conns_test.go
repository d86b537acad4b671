package shard

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"trellis/binlog/journal"
	"trellis/codec"
)

// idsIn returns the ids in a list of connections.
func idsIn(list string) (ids []uint64) {
	for line := range strings.Lines(list) {
		if id, ok := strings.CutPrefix(line, "- id: "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
			ids = append(ids, n)
		}
	}
	return ids
}

func TestAListOfManyConnectionsKeepsToItsRounds(t *testing.T) {
	const n = 25_000
	s := newSim(100, 1)
	l := slow(t, s)
	c := s.open()
	for range n - 1 {
		s.open()
	}
	after := 0
	for _, want := range []int{10_000, 10_000, 5000, 0} {
		l.loop.Refill()
		outcome := c.start(t, "list-connections 10000 %d", after)
		if (outcome == Wait) != (want > 0) {
			t.Fatalf("the list of %d connections: %v", want, outcome)
		}
		rounds := l.rounds()
		ids := idsIn(c.took())
		if len(ids) != want || want > 0 && (ids[0] != uint64(after+1) || ids[want-1] != uint64(after+want)) {
			t.Fatalf("behind %d: %d connections", after, len(ids))
		}
		if most := want*entryCost/roundBudget + 1; want > 0 && rounds < most {
			t.Errorf("%d connections took %d rounds, want at least %d", want, rounds, most)
		}
		after += want
	}
	if most := roundBudget + 2*callSlice*entryCost; l.most > most {
		t.Errorf("a round took %d steps; its budget is %d", l.most, roundBudget)
	}
}

// The list of a client that may see few connections goes on until it has found as many as
// were asked for.
func TestAListLooksForConnectionsThatTheClientMaySee(t *testing.T) {
	s := newSim(100, 3)
	others := NewGrant("others", RightAll, []string{"a"})
	mine := NewGrant("mine", RightRead, []string{"a"})
	var want []uint64
	for i := range 5000 {
		if i%700 == 0 {
			want = append(want, s.openAs(mine).session.number())
		} else {
			s.openAs(others)
		}
	}
	c := s.openAs(mine)
	want = append(want, c.session.number())
	if got := idsIn(c.say("list-connections 5")); !slices.Equal(got, want[:5]) {
		t.Errorf("the first 5 are %v, want %v", got, want[:5])
	}
	if got := idsIn(c.say("list-connections 9999 " + fmt.Sprint(want[4]))); !slices.Equal(got, want[5:]) {
		t.Errorf("the others are %v, want %v", got, want[5:])
	}
}

func TestWhoAsksForConnectionsAndGoesIsForgotten(t *testing.T) {
	for _, command := range []string{"list-connections", "stats-conn 2"} {
		s := newSim(100, 2)
		c, other := s.open(), s.open()
		outcome := c.start(t, "%s", command)
		if outcome != Wait {
			t.Fatalf("%s is done at once: %q", command, c.took())
		}
		c.end()
		c.loop.Wake()
		s.Settle()
		if got := c.took(); got != "" {
			t.Errorf("%s: it was sent %q", command, got)
		}
		for _, err := range (&census{engine: s.engine, sessions: []*Session{&other.session}}).run() {
			t.Error(err)
		}
	}
}

func TestAConnectionThatGoesWhileItIsAskedForIsNotShown(t *testing.T) {
	s := newSim(100, 2)
	c, other := s.open(), s.open()
	c.start(t, "stats-conn 2")
	other.end()
	c.loop.Wake()
	s.Settle()
	if got := c.took(); got != "NOT_FOUND\r\n" {
		t.Errorf("got %q", got)
	}
	third := s.open()
	c.start(t, "list-connections")
	third.end()
	c.loop.Wake()
	s.Settle()
	if got := idsIn(c.took()); !slices.Equal(got, []uint64{1}) {
		t.Errorf("got %v", got)
	}
}

func TestOfManyReservationsThoseThatEndFirstAreShown(t *testing.T) {
	s := newSim(100, 1)
	c := s.open()
	r := rand.New(rand.NewPCG(1, 2))
	type reservation struct{ id, ttr int }
	var all []reservation
	ttrs := r.Perm(5000)
	for i, id := range r.Perm(5000) {
		all = append(all, reservation{id + 1, 0})
		c.expect(t, fmt.Sprintf("USING t%d\r\nINSERTED %d\r\n", i%5, i+1), "use t%d\r\nput 0 0 %d 0\r\n\r\n", i%5, 100+ttrs[i])
	}
	for i := range all {
		all[i].ttr = ttrs[all[i].id-1]
		c.expect(t, fmt.Sprintf("RESERVED %d 0\r\n\r\n", all[i].id), "reserve-job %d\r\n", all[i].id)
	}
	var want []string
	for _, x := range all { // in the order of reservation
		if x.ttr < 100 {
			want = append(want, fmt.Sprint(x.id))
		}
	}
	reply := c.say("stats-conn")
	if line := "\nreserved-jobs: [" + strings.Join(want, ", ") + "]\n"; !strings.Contains(reply, line) || !strings.Contains(reply, "\nreserved-count: 5000\n") {
		t.Errorf("got %q, want %q", reply, line)
	}
}

func TestTheNameOfAClientIsQuoted(t *testing.T) {
	s := newSim(100, 1)
	c := s.openAs(NewGrant(`a"b\c`, RightAll, []string{"*"}))
	if got := c.say("stats-conn"); !strings.Contains(got, "\n"+`name: "a\"b\\c"`+"\n") {
		t.Errorf("got %q", got)
	}
}

// What clients are shown of others fits together, whatever these do at the same time.
func TestConnectionsAreListedWhileTheyComeAndGo(t *testing.T) {
	c := newCrew(t, 4, 4)
	defer c.stop()
	var stop atomic.Bool
	var busy sync.WaitGroup
	stayers := map[uint64]bool{}
	var hands []*hand
	for i := range 8 {
		h := c.hire()
		hands = append(hands, h)
		stayers[h.session.number()] = true
		busy.Go(func() {
			for n := 0; !stop.Load(); n++ {
				h.use(fmt.Sprint("t", n%3))
				h.watchOnly(fmt.Sprint("t", i%3), fmt.Sprint("t", n%3))
				h.put(0, 0, 60, "")
				if id, _ := h.reserveFor(1); id != 0 {
					h.with(codec.OpDelete, id)
				}
			}
		})
	}
	for range 2 {
		busy.Go(func() {
			for !stop.Load() {
				h := c.hire()
				h.do(codec.Command{Op: codec.OpReserveWithTimeout, Timeout: 0})
				h.close()
			}
		})
	}
	asker := c.hire()
	rounds := 60
	if proof {
		rounds = 200
	}
	c.within(func() {
		for range rounds {
			var last uint64
			left := len(stayers)
			for page := true; page; {
				list := asker.do(codec.Command{Op: codec.OpListConns, Bound: 3, ID: last})
				ids := idsIn(list)
				for _, id := range ids {
					if id <= last {
						t.Fatalf("connection %d is listed behind %d", id, last)
					}
					if last = id; stayers[id] {
						left--
					}
				}
				page = len(ids) > 0
				checkEntries(t, list)
			}
			if left != 0 {
				t.Fatalf("%d connections are missing", left)
			}
			if got := asker.do(codec.Command{Op: codec.OpStatsConn, ID: 1}); !strings.HasPrefix(got, "OK ") {
				t.Fatalf("got %q", got)
			}
		}
	})
	stop.Store(true)
	busy.Wait()
	asker.close()
	for _, h := range hands {
		for {
			h.watchOnly("t0", "t1", "t2")
			id, _ := h.reserveFor(0)
			if id == 0 {
				break
			}
			h.with(codec.OpDelete, id)
		}
		h.close()
	}
}

// checkEntries checks that each connection is shown as it was at one moment.
func checkEntries(t *testing.T, list string) {
	for _, entry := range strings.Split(list, "- id: ")[1:] {
		waits := strings.Contains(entry, "\n  waiting: true\n")
		count := strings.Contains(entry, "\n  reserved-count: 0\n")
		none := strings.Contains(entry, "\n  reserved-jobs: []\n")
		if count != none || waits && !none || waits && !strings.Contains(entry, "\n  worker: true\n") {
			t.Fatalf("%q", entry)
		}
	}
}

// A halting journal calls something under the lock of a shard in which a job is put.
type halting struct {
	*file
	put func()
}

func (f *halting) Put(r *journal.Record) (journal.Ticket, error) {
	f.put()
	return f.file.Put(r)
}

// awaitLock waits until a goroutine that executes a function waits for a mutex.
func awaitLock(function string) {
	buf := make([]byte, 1<<20)
	for {
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if state, stack, _ := strings.Cut(g, "\n"); strings.Contains(state, "sync.Mutex.Lock") && strings.Contains(stack, function) {
				return
			}
		}
		runtime.Gosched()
	}
}

// What a waiting session holds may change until the locks of its tubes are held. The race
// detector sees it if that is read sooner.
func TestAWaitingSessionIsShownWhileAnotherLoopClaimsIt(t *testing.T) {
	s := newSim(100, 2)
	waiting, other := s.open(), s.open()
	waiting.say("reserve")
	shown := make(chan uint64, 1)
	s.engine.log.Journal = &halting{file: newFile(nil), put: func() {
		go func() {
			defer close(shown)
			jobs, _, _, _ := waiting.loop.by().HeldBy(s.now, clientOf(&waiting.session), nil, 1)
			for _, j := range jobs {
				shown <- j
			}
		}()
		awaitLock("HeldBy")
	}}
	c := codec.Command{Op: codec.OpPut, CountAs: codec.OpPut, TTR: 9, Size: 1, Body: []byte("x"), Terminated: true}
	if other.session.Execute(s.now, &c, &other.out) != Done || other.took() != "INSERTED 1\r\n" {
		t.Fatal("no put")
	}
	if id := <-shown; id != 1 {
		t.Errorf("it holds job %d, want 1", id)
	}
	s.Settle()
	if got := waiting.took(); got != "RESERVED 1 1\r\nx\r\n" {
		t.Errorf("got %q", got)
	}
}

// What is kept for a client that does not take a list is bounded. A thousand connections
// are listed at once, whatever they watch.
func TestALongListOfConnectionsEndsWhereTheNextOneBegins(t *testing.T) {
	const n = 2000
	s := newSim(100, 2)
	var watches []string
	for i := range 11 {
		watches = append(watches, fmt.Sprintf("watch %0200d", i))
	}
	use := fmt.Sprintf("use %0200d", 0)
	for range n {
		c := s.open()
		c.say(append(watches, use, "ignore default")...)
	}
	c := s.conns[0]
	if got := len(idsIn(c.say("list-connections"))); got != 1000 {
		t.Errorf("the first page has %d connections", got)
	}
	after, pages := uint64(0), 0
	for {
		list := c.say(fmt.Sprint("list-connections 10000 ", after))
		ids := idsIn(list)
		if len(ids) == 0 {
			break
		}
		if pages++; len(list) > maxConnsText+100 {
			t.Errorf("a list has %d bytes", len(list))
		}
		for _, id := range ids {
			if after++; id != after {
				t.Fatalf("connection %d is listed behind %d", id, after-1)
			}
		}
	}
	if after != n || pages != 2 {
		t.Errorf("%d connections are listed on %d pages", after, pages)
	}
}
