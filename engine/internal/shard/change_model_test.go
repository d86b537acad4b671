package shard

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/internal/clock"
)

// A voyager is a client whose server may be replaced, with what another server learns of it then.
type voyager struct {
	*simConn
	sent    string     // to which it has no reply
	order   int        // of clients, by when what comes first of that could begin
	asked   clock.Time // since when it has waited for the next reply
	done    uint64     // bytes of its input to which it has the reply
	wants   Interests
	replies []lateReply // that it has not got
	told    strings.Builder
}

// A lateReply is one to a command that is done.
type lateReply struct {
	text  string
	end   uint64 // of the command
	wants Interests
	pos   journal.Pos
	ids   uint64 // the last that was used
	log   int    // how many entries there were then
}

// A voyage is clients of servers that follow each other. Each server knows the first records of the one before: all
// that its clients were told of, and perhaps more. One of the clients sends several commands at a time.
type voyage struct {
	*sim
	record  *tape
	clients []*voyager
	sends   int
	ids     uint64 // the last that any reply tells of, or may
	seen    int    // entries that will not be lost
	lost    bool   // a client could not go on
}

func newVoyage(t *testing.T, clients int) *voyage {
	s, record := numberedSim(t, 1)
	y := &voyage{sim: s, record: record, seen: len(record.entries)}
	for range clients {
		v := &voyager{simConn: s.open(), wants: plain}
		v.replied = func() {
			v.loop.by().ids.GiveBack()
			x := lateReply{string(v.out.Buf), v.offset, v.session.Interests(), v.out.Pos, 0, len(y.record.entries)}
			if strings.HasPrefix(x.text, "INSERTED ") { // and not to a wait that has ended behind that
				x.ids = s.engine.ids.Last.Load()
			}
			v.replies = append(v.replies, x)
			v.out.Buf, v.out.Pos = nil, 0
		}
		y.clients = append(y.clients, v)
	}
	return y
}

func (y *voyage) says(v *voyager, in string) {
	if y.sends++; v.sent == "" {
		v.order, v.asked = y.sends, y.now
	}
	v.sent += in
	_ = v.Send([]byte(in))
}

// gets has a client get the first n replies that it has not.
func (y *voyage) gets(v *voyager, n int) {
	if n > 0 {
		y.sends++
		v.order = y.sends
	}
	for _, x := range v.replies[:n] {
		v.told.WriteString(x.text)
		v.sent = v.sent[x.end-v.done:]
		v.done, v.wants, v.asked = x.end, x.wants, y.now
		y.ids, y.seen = max(y.ids, x.ids), max(y.seen, int(x.pos/10))
	}
	v.replies = slices.Clone(v.replies[n:])
}

// settled has all get their replies.
func (y *voyage) settled() {
	for _, v := range y.clients {
		y.gets(v, len(v.replies))
	}
}

// upTo is a tape with the first n entries.
func (t *tape) upTo(n int) *tape {
	again := &tape{file: newFile(nil)}
	h := heldTape{again}
	for i := range t.entries[:n] {
		x := &t.entries[i]
		r := x.record
		was := again.jobs[r.ID]
		switch {
		case x.kind == 'p' && was == nil:
			_, _ = h.Put(&r)
		case x.kind == 'p':
			_, _ = h.Replace(&r, was.former())
		case x.kind == 'u':
			_, _ = h.Update(&r)
		case x.kind == 'd':
			_, _ = h.DeleteFor(r.ID, was.former(), r.Origin)
		case x.kind == 's':
			_, _ = h.Set(&x.setting)
		default:
			_, _ = h.keep(*x)
		}
	}
	return again
}

// known chooses how many entries the next server knows: all of which somebody was told, and of any command all
// or nothing, but that a put for a client who waits is two of them.
func (y *voyage) known(r *rand.Rand) int {
	ends := []int{y.seen, len(y.record.entries)}
	for _, v := range y.clients {
		for _, x := range v.replies {
			if x.log >= y.seen {
				ends = append(ends, x.log)
			}
		}
	}
	n := ends[r.IntN(len(ends))]
	for ; n > y.seen && r.IntN(3) > 0; n-- {
		x, before := &y.record.entries[n-1], &y.record.entries[n-2]
		if x.kind != 'h' || before.kind != 'p' || x.hold.Session == before.record.Origin.Session {
			break
		}
	}
	return n
}

// changes has another server take office. The clients go on there with what they have no reply to.
func (y *voyage) changes(t *testing.T, r *rand.Rand) {
	t.Helper()
	for _, v := range y.clients {
		y.gets(v, r.IntN(len(v.replies)+1))
	}
	y.seen = y.known(r)
	y.record = y.record.upTo(y.seen)
	for _, v := range y.clients {
		v.effects = y.record.effectsOn(v.session.number(), v.done)
		n := len(v.effects)
		if n == 0 {
			continue
		}
		y.sends++
		v.order = y.sends // if it waits, others have waited longer
		for _, x := range v.replies {
			if x.end <= v.effects[n-1].Offset {
				y.ids = max(y.ids, x.ids)
			}
		}
	}
	list := slices.Clone(y.clients)
	slices.SortFunc(list, func(a, b *voyager) int { return cmp.Compare(a.order, b.order) })
	ids := make([]uint64, len(list))
	for i, v := range list {
		ids[i] = v.session.number()
		v.session = Session{}
	}
	y.engine.ids.Last.Store(y.ids)
	by := y.succeed(t, y.record)
	for _, set := range y.engine.LoopNumbers.Absent() { // or their times to run may end later than without a change
		set.holder.patience.Store(0)
	}
	for i, v := range list {
		age := clock.Time(0)
		if v.asked += by; v.sent != "" {
			age = y.now - v.asked
		}
		d, err := Absent(ids[i], nil, v.wants, age)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.loop.GoOn(&v.session, d, 0, y.now); err != nil {
			t.Fatal(err)
		}
		v.decoder.Release()
		v.out.Discard()
		v.in, v.waiting, v.offset, v.replies = nil, false, v.done, nil
	}
	for _, v := range list {
		single := strings.Count(v.sent, "\n") == 1
		if v.again(v.sent, v.effects, 0); !v.unknown && len(v.effects) > 0 {
			t.Errorf("no command ends where something was done: %+v", v.effects)
		}
		if y.lost = y.lost || v.unknown; v.unknown && single && !strings.HasPrefix(v.sent, "kick ") {
			t.Errorf("a client of which nothing but %q is unanswered cannot go on", v.sent)
		}
	}
	if n := y.engine.Contradictions(); n != 0 {
		t.Errorf("%d contradictions", n)
	}
}

// aCommand is one, any of so many jobs is named.
func aCommand(r *rand.Rand, puts *int) string {
	id, tube := 1+r.IntN(*puts+1), string("abc"[r.IntN(3)])
	switch r.IntN(26) {
	default:
		*puts++
		tags := [...]string{"", "", "", "", " idp:k", " idp:k:3", " idp:l", " con:m", " grp:g", " aft:g", " exp:4"}[r.IntN(11)]
		return fmt.Sprintf("put %d %d %d 2%s\r\nx%d\r\n", r.IntN(3), r.IntN(3)/2*r.IntN(4), 3+r.IntN(20), tags, *puts%10)
	case 6:
		return "reserve\r\n"
	case 7, 8:
		return "reserve-with-timeout 0\r\n"
	case 9:
		return fmt.Sprintf("reserve-batch %d\r\n", 1+r.IntN(4))
	case 10:
		return fmt.Sprintf("reserve-job %d\r\n", id)
	case 11, 12:
		return fmt.Sprintf("delete %d\r\n", id)
	case 13, 14:
		return fmt.Sprintf("release %d %d %d\r\n", id, r.IntN(4), r.IntN(3)/2*r.IntN(3))
	case 15:
		return fmt.Sprintf("bury %d %d\r\n", id, r.IntN(3))
	case 16:
		return fmt.Sprintf("touch %d\r\n", id)
	case 17:
		return "touch-all\r\n"
	case 18:
		return fmt.Sprintf("kick %d\r\n", 1+r.IntN(5)/4)
	case 19:
		return fmt.Sprintf("kick-job %d\r\n", id)
	case 20:
		return fmt.Sprintf("move-job %d %s\r\n", id, tube)
	case 21:
		return "use " + tube + "\r\n"
	case 22:
		return "watch " + tube + "\r\n"
	case 23:
		return "ignore " + tube + "\r\nlist-tubes-watched\r\n"
	case 24:
		return fmt.Sprintf("peek %d\r\n", id)
	case 25:
		return fmt.Sprintf("set-dlq %s %d c\r\n", tube, 1+r.IntN(3))
	}
}

// sails has clients do at random what follows from seed, and servers follow each other unless changes is nil.
func sails(t *testing.T, seed uint64, steps int, changes *rand.Rand) (y *voyage, n int) {
	y = newVoyage(t, 3)
	r := rand.New(rand.NewPCG(seed, 1))
	many, one, worker := y.clients[0], y.clients[1], y.clients[2]
	puts := 0
	for range steps {
		switch r.IntN(8) {
		case 0:
			y.settled()
			y.says(one, aCommand(r, &puts))
			y.gets(one, len(one.replies))
		case 1:
			y.settled()
			if in := fmt.Sprintf("watch a\r\ndelete %d\r\nreserve\r\n", 1+r.IntN(puts+1)); !worker.waiting {
				y.says(worker, in)
				y.gets(worker, len(worker.replies))
			}
		case 2:
			y.settled()
			y.Wait(time.Duration(r.IntN(3000)) * time.Millisecond)
			y.settled() // what was due may come late behind a change, and a refusal be none
			y.seen = len(y.record.entries)
		default:
			in := ""
			for range 1 + r.IntN(4)*r.IntN(2) {
				in += aCommand(r, &puts)
			}
			y.says(many, in)
		}
		if changes != nil && changes.IntN(3) == 0 {
			if y.changes(t, changes); y.lost {
				return y, n
			}
			n++
		}
	}
	y.settled()
	return y, n
}

// Whatever clients do, they are told the same if their server is replaced at any time, and whatever replies are lost
// then, or they cannot go on; and nothing is done twice, or not at all.
func TestClientsAreToldTheSameByServersThatFollowEachOther(t *testing.T) {
	seeds, steps := uint64(20), 40
	if proof {
		seeds, steps = 400, 60
	}
	changes, lost := 0, 0
	for seed := range seeds {
		want, _ := sails(t, seed, steps, nil)
		got, n := sails(t, seed, steps, rand.New(rand.NewPCG(seed, 2)))
		changes += n
		for i, v := range got.clients {
			told, all := v.told.String(), want.clients[i].told.String()
			if !strings.HasPrefix(all, told) || !got.lost && told != all {
				at := 0
				for at < min(len(told), len(all)) && told[at] == all[at] {
					at++
				}
				t.Fatalf("seed %d: client %d was told %q, and then %.300q, and without a change %.300q", seed, i, told[max(0, at-200):at], told[at:], all[at:])
			}
		}
		if got.lost {
			lost++
			continue
		}
		if is, was := got.engine.dump()+got.engine.held(got.ids), want.engine.dump()+want.engine.held(want.ids); is != was {
			t.Fatalf("seed %d: there is\n%s\nand without a change\n%s", seed, is, was)
		}
		got.noErrors(t)
		got.standbyAgrees(t, got.record)
		got.engine.Discard()
		want.engine.Discard()
	}
	t.Logf("%d changes, %d voyages ended of %d", changes, lost, seeds)
	if changes < int(seeds)*steps/20 {
		t.Errorf("%d changes are too few", changes)
	}
}
