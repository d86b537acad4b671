package crash

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// crashKills is the environment variable with the number of kills.
const crashKills = "CRASH_KILLS"

// crashModes are what a server is started with. They take turns, on one directory.
var crashModes = [][]string{
	{"-s4096"}, {"-f0", "-s4096"}, {"-F", "-s4096"}, {}, {"-f0"}, {"-F"}, {"-f5", "-s65536"}, {"-f0", "-s4096", "--loops=3"},
}

// crashOverTLS is every how many-th connection of a round is over TLS.
const crashOverTLS = 3

// A killed server has, after its restart, what clients were told that it has:
// for each client the jobs are exactly those after the commands that were
// acknowledged and, of those behind them that were not, some of the first.
func TestNothingAcknowledgedIsLostByAKilledServer(t *testing.T) {
	kills := 10
	switch n, err := strconv.Atoi(os.Getenv(crashKills)); {
	case err == nil:
		kills = n
	case servertest.RaceEnabled || !servertest.Proof:
		kills = 4
	}
	t.Parallel()
	c := newCrash(t)
	for i := range kills {
		c.round(crashModes[i%len(crashModes)])
	}
	c.over = true
	c.round(nil)
	t.Logf("%d kills, %d commands acknowledged, %d not, of which %d had been done; %d jobs fired, %d expired",
		kills, c.acked, c.unacked, c.done, c.fired, c.expirers[0].expired+c.expirers[1].expired)
}

// crash is a directory that servers have and lose one after another.
type crash struct {
	t        *testing.T
	dir      string
	certs    *servertest.CertFiles
	clients  []*bookkeeper
	relays   []*relay
	expirers []*expirer
	greatest uint64 // of all ids that were told to anybody
	first    uint64 // id of the last round
	left     bool   // the last audit was given up
	over     bool   // all jobs of expirers have to expire

	acked, unacked, done int
	fired                int // jobs that waited for a group
}

func newCrash(t *testing.T) *crash {
	c := &crash{t: t, dir: t.TempDir(), certs: servertest.NewCertFiles(t), first: 1}
	for i, depth := range []int{1, 1, 1, 4, 32, 100} {
		l := &ledger{client: i, jobs: map[int]entry{}, tombs: map[keyOf]tomb{}}
		c.clients = append(c.clients, &bookkeeper{sure: l, hoped: l.clone(), depth: depth})
	}
	for i, depth := range []int{1, 20} {
		c.relays = append(c.relays, &relay{number: 100 + i, depth: depth, jobs: map[int]*relayed{}})
	}
	for i, buries := range []bool{false, true} {
		c.expirers = append(c.expirers, &expirer{number: 200 + i, buries: buries, jobs: map[int]expiring{}})
	}
	return c
}

// round starts a server, compares what it has with the books, lets the clients at
// it and kills it.
func (c *crash) round(mode []string) {
	t := c.t
	t.Helper()
	p, err := servertest.Spawn(exec.Command(servertest.Binary, append([]string{"-l127.0.0.1", "-p0", "-V", "--log-format=json", "-b", c.dir}, slices.Concat(c.certs.Flags(), mode)...)...))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	s, err := servertest.AwaitReady(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.audit(s, 5*servertest.Patience); err != nil {
		t.Fatal(err)
	}

	after := time.Duration(rand.Int64N(int64(150 * time.Millisecond)))
	time.AfterFunc(after, func() { _ = p.Cmd.Process.Kill() })
	err = c.work(s)
	p.Kill()
	if err != nil {
		t.Errorf("after %v with %q: %v", after, mode, err)
	}
	if log := strings.Join(p.Log(), "\n"); strings.Contains(log, "DATA RACE") || t.Failed() {
		t.Fatalf("the server wrote:\n%s", log)
	}
}

// work lets the clients at a server until it is gone. The error is what it did wrong.
func (c *crash) work(s *servertest.Server) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	connections := rand.IntN(crashOverTLS)
	run := func(work func(*wire) error) {
		connections++
		overTLS := connections%crashOverTLS == 0
		all.Go(func() {
			conn, err := c.dial(s, overTLS)
			if err != nil {
				return // killed already
			}
			defer conn.Close()
			if err := work(newWire(conn)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong = errors.Join(wrong, err)
			}
		})
	}
	for _, b := range c.clients {
		run(b.run)
	}
	for _, r := range c.relays {
		run(r.put)
		run(r.take)
	}
	for _, x := range c.expirers {
		run(x.run)
	}
	all.Wait()
	for _, b := range c.clients {
		c.greatest = max(c.greatest, b.greatest)
	}
	for _, r := range c.relays {
		c.greatest = max(c.greatest, r.greatest)
	}
	for _, x := range c.expirers {
		c.greatest = max(c.greatest, x.greatest)
	}
	return wrong
}

// dial connects to a server, over TLS if the server has a listener for it.
func (c *crash) dial(s *servertest.Server, overTLS bool) (net.Conn, error) {
	if overTLS && len(s.Addrs) > 1 {
		return tls.Dial(s.Addrs[1].Network(), s.Addrs[1].String(), c.certs.Client())
	}
	return net.Dial(s.Addrs[0].Network(), s.Addrs[0].String())
}

// audit compares what a server has with the books. The error tells that the server has gone, or
// has not answered for as long as that may take. Then another audit has to follow before
// anything else.
func (c *crash) audit(s *servertest.Server, limit time.Duration) error {
	c.t.Helper()
	conn, err := net.Dial(s.Addrs[0].Network(), s.Addrs[0].String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		c.t.Fatal(err)
	}
	err = c.compare(newWire(conn))
	if err == nil {
		return nil
	}
	if !errors.Is(err, errGone) {
		c.t.Fatal(err)
	}
	c.left = true
	// What the server has been sent is done, or is never done, before the next audit.
	_ = conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetDeadline(time.Now().Add(5 * servertest.Patience))
	_, _ = io.Copy(io.Discard, conn)
	return err
}

// compare is an audit over one connection.
func (c *crash) compare(w *wire) error {
	t := c.t
	t.Helper()
	next, err := c.nextID(w)
	if err != nil {
		return err
	}
	jobs, settings, err := c.look(w, next)
	if err != nil {
		return err
	}
	c.first, c.left = next+1, false
	for _, b := range c.clients {
		done, err := b.settle(jobs[b.sure.client], settings, time.Now())
		if err != nil {
			t.Error(err)
		} else {
			b.doubtTombs(b.open[done:])
		}
		c.done += done
		c.acked, c.unacked = c.acked+b.acked, c.unacked+len(b.open)
		c.fired += b.fired
		b.acked, b.fired, b.open = 0, 0, nil
	}
	for _, r := range c.relays {
		if err := r.settle(jobs[r.number]); err != nil {
			t.Error(err)
		}
	}
	for _, x := range c.expirers {
		if err := x.settle(jobs[x.number], time.Now()); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, b := range c.clients {
		if err := b.auditTombs(w); err != nil {
			return err
		}
		if err := b.auditBurials(w); err != nil {
			return err
		}
	}
	for _, x := range c.expirers {
		then := time.Now()
		if c.over {
			then = then.Add(servertest.Patience)
		}
		if err := x.awaitExpiries(w, then); err != nil {
			return err
		}
	}
	return nil
}

// nextID is an id greater than all that the server has given.
func (c *crash) nextID(w *wire) (next uint64, err error) {
	replies, err := w.ask([]string{"put 0 0 60 0\r\n"})
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(replies[0].line, "INSERTED %d", &next); err != nil {
		return 0, fmt.Errorf("the reply to a put is %q: %w", replies[0].line, err)
	}
	if next <= c.greatest {
		c.t.Errorf("id %d is given, and %d was before", next, c.greatest)
	}
	c.greatest = next
	_, err = w.ask([]string{fmt.Sprint("delete ", next)})
	return next, err
}

// look returns the jobs that the server has, by client and number, and the settings of tubes. All of them have ids below next.
func (c *crash) look(w *wire, next uint64) (jobs map[int]map[int]found, settings map[string]setting, err error) {
	t := c.t
	t.Helper()
	ids := map[uint64]bool{}
	for id := c.first; id < next; id++ {
		ids[id] = true
	}
	for _, b := range c.clients {
		for _, e := range b.sure.jobs {
			ids[e.id] = true
		}
	}
	for _, r := range c.relays {
		for _, j := range r.jobs {
			ids[j.id] = true
		}
	}
	expiring := 0 // which may happen meanwhile
	for _, x := range c.expirers {
		for _, j := range x.jobs {
			ids[j.id] = true
		}
		expiring += len(x.jobs)
	}
	delete(ids, 0)

	jobs = map[int]map[int]found{}
	count, at := 0, span{from: time.Now()}
	var lines []string
	var asked []uint64
	for id := range ids {
		lines, asked = append(lines, fmt.Sprint("stats-job ", id), fmt.Sprint("peek ", id)), append(asked, id)
	}
	replies, err := w.ask(append(lines, "stats", "list-settings"))
	if err != nil {
		return nil, nil, err
	}
	at.to = time.Now()
	var strays []string
	for i, id := range asked {
		stats, peeked := replies[2*i], replies[2*i+1]
		if stats.line == "NOT_FOUND" || peeked.line == "NOT_FOUND" {
			continue
		}
		count++
		f := found{id: id, stats: parseStats(stats.body), body: peeked.body, at: at}
		if c.left && f.body == "" { // an audit that was given up has put it
			strays = append(strays, fmt.Sprint("delete ", id))
			continue
		}
		var client, number int
		if _, err := fmt.Sscan(f.body, &client, &number); err != nil {
			t.Errorf("job %d has the body %q", id, f.body)
		}
		if jobs[client] == nil {
			jobs[client] = map[int]found{}
		}
		if was, ok := jobs[client][number]; ok {
			t.Errorf("one put made two jobs, %d and %d", was.id, id)
		}
		jobs[client][number] = f
	}
	total := 0
	stats := parseStats(replies[len(lines)].body)
	for _, state := range []string{"ready", "reserved", "delayed", "buried"} {
		n, err := strconv.Atoi(stats["current-jobs-"+state])
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total > count || total < count-expiring {
		t.Errorf("the server has %d jobs, %d of them with ids that can be", total, count)
	}
	_, err = w.ask(strays)
	return jobs, parseSettings(replies[len(lines)+1].body), err
}

// A bookkeeper is a client that uses all commands and keeps a ledger.
type bookkeeper struct {
	sure  *ledger // after what was acknowledged
	hoped *ledger // after what was sent
	open  []*deed // sent and not acknowledged
	depth int     // commands at once
	use   int     // the tube that is used

	numbers  int
	greatest uint64
	acked    int
	fired    int // jobs that were seen to wait for a group no more
}

// run uses a server until it is gone. The error is what the server did wrong.
func (b *bookkeeper) run(w *wire) error {
	b.use = -1
	lines := []string{"reserve-mode fifo info"}
	for tube := range ledgerTubes {
		lines = append(lines, "watch "+b.sure.tubeName(tube))
	}
	if _, err := w.ask(lines); err != nil {
		return nil
	}
	for {
		if err := b.awaitFirings(w); err != nil {
			if errors.Is(err, errGone) {
				return nil
			}
			return err
		}
		if err := b.reserveAny(w); err != nil {
			return err
		}
		for range 1 + rand.IntN(b.depth) {
			b.add(w)
		}
		if w.flush() != nil {
			return nil
		}
		for len(b.open) > 0 {
			r, err := w.read()
			if err != nil {
				return nil
			}
			if err := b.take(b.open[0], r); err != nil {
				return fmt.Errorf("client %d: %w", b.sure.client, err)
			}
			b.open = b.open[1:]
			b.acked++
		}
	}
}

// awaitFirings waits until no job is held for a group that is complete.
func (b *bookkeeper) awaitFirings(w *wire) error {
	for n, e := range b.sure.jobs {
		for began := time.Now(); e.firing; time.Sleep(time.Millisecond) {
			r, err := w.ask([]string{fmt.Sprint("stats-job ", e.id)})
			if err != nil {
				return err
			}
			if e = e.fired(parseStats(r[0].body)); e.firing && time.Since(began) < servertest.Patience {
				continue
			}
			b.sure.jobs[n], b.hoped.jobs[n] = e, e
			if err := b.sure.check(&deed{word: "stats-job", job: n, id: e.id}, r[0]); err != nil || e.firing {
				return fmt.Errorf("client %d: job %d of a group that is complete: %w, %q", b.sure.client, e.id, err, r[0].body)
			}
			b.fired++
		}
	}
	return nil
}

// reserveAny reserves a job that the server chooses.
func (b *bookkeeper) reserveAny(w *wire) error {
	if rand.IntN(4) > 0 {
		return nil
	}
	r, err := w.ask([]string{"reserve-with-timeout 0"})
	if err != nil {
		return nil
	}
	var id uint64
	var size int
	if _, err := fmt.Sscanf(r[0].line, "RESERVED %d %d", &id, &size); err != nil {
		return nil // nothing is ready, or the deadline of a job is near
	}
	for n, e := range b.sure.jobs {
		if e.id == id && e.state == "ready" && !b.sure.passedOver(e) {
			d := &deed{word: "reserve-job", line: "reserve-with-timeout 0", job: n, id: id}
			b.hoped.do(d, span{})
			return b.take(d, r[0])
		}
	}
	return fmt.Errorf("client %d is given job %d, which is not ready, or passed over", b.sure.client, id)
}

// take notes an acknowledged command.
func (b *bookkeeper) take(d *deed, r reply) error {
	if d.word == "put" && b.sure.duplicate(d) == "" {
		if _, err := fmt.Sscanf(r.line, "INSERTED %d", &d.id); err != nil || d.id <= b.greatest {
			return fmt.Errorf("the reply to %q is %q, and there was an id %d", d.line, r.line, b.greatest)
		}
		b.greatest = d.id
		if e, ok := b.hoped.jobs[d.job]; ok { // not flushed meanwhile
			e.id = d.id
			b.hoped.jobs[d.job] = e
		}
	}
	if err := b.sure.check(d, r); err != nil {
		return err
	}
	b.sure.do(d, span{d.sent, time.Now()})
	return nil
}

// add sends one more command.
func (b *bookkeeper) add(w *wire) {
	d := b.choose()
	d.sent = time.Now()
	if d.line == "" {
		d.line = fmt.Sprint(d.word, " ", d.id)
	}
	b.open = append(b.open, d)
	b.hoped.do(d, span{})
	w.send(d.line)
	if d.word == "put" {
		w.send(bodyOf(b.hoped.client, d.job, d.size))
	}
}

// choose makes up a command that will succeed.
func (b *bookkeeper) choose() *deed {
	l := b.hoped
	var n int
	var e entry
	for n, e = range l.jobs { // any
		break
	}
	kind := rand.IntN(100)
	switch {
	case b.use < 0 || kind < 5:
		b.use = rand.IntN(ledgerTubes)
		return &deed{word: "use", tube: b.use, line: "use " + l.tubeName(b.use)}
	case len(l.jobs) < 5 || kind < 30 && len(l.jobs) < 150:
		b.numbers++
		d := &deed{
			word: "put", job: b.numbers, tube: b.use, pri: rand.Uint32N(10), ttr: 1000 + rand.Uint32N(1000),
			delay: anyDelay(), size: rand.IntN(300),
		}
		if rand.IntN(50) == 0 {
			d.size = rand.IntN(20000)
		}
		d.keys = b.anyKeys()
		d.line = fmt.Sprintf("put %d %d %d %d%s", d.pri, d.delay, d.ttr, len(bodyOf(l.client, d.job, d.size)), d.keys.tags())
		return d
	case kind == 30 && rand.IntN(2) == 0:
		const long = 500_000 // no test lasts so long; it is more than retry-max, so that it does not grow
		d := &deed{word: "set-tube", tube: rand.IntN(ledgerTubes), bound: long * rand.IntN(2)}
		d.line = fmt.Sprintf("set-tube %s retry-min=%d retry-jitter=0", l.tubeName(d.tube), d.bound)
		if d.bound == 0 {
			d.line = fmt.Sprintf("set-tube %s retry-min= retry-jitter=", l.tubeName(d.tube))
		}
		return d
	case kind == 30:
		d := &deed{word: "set-dlq", tube: rand.IntN(ledgerTubes), bound: rand.IntN(4)}
		d.line = fmt.Sprintf("set-dlq %s %d %s", l.tubeName(d.tube), d.bound, l.tubeName(deadTube))
		return d
	case kind == 31 && rand.IntN(10) == 0:
		// A tube that nobody uses and that has no job is none.
		d := &deed{word: "flush-tube", tube: b.use}
		d.line = "flush-tube " + l.tubeName(b.use)
		return d
	case kind < 33:
		return &deed{word: "peek-buried", line: "peek-buried", tube: b.use}
	case kind < 36:
		if list := l.buried(b.use); len(list) > 0 {
			d := &deed{word: "kick", tube: b.use, bound: 1 + rand.IntN(len(list))}
			d.line = fmt.Sprint("kick ", d.bound)
			return d
		}
	}
	if e.id == 0 || e.firing {
		return &deed{word: "peek-buried", line: "peek-buried", tube: b.use}
	}
	d := &deed{job: n, id: e.id, pri: rand.Uint32N(10)}
	switch {
	case kind < 50 || len(l.jobs) > 140 && kind < 75:
		d.word = "delete"
	case kind < 53:
		d.word = "stats-job"
	case kind > 96:
		d.word, d.tube = "move-job", (e.tube+1+rand.IntN(ledgerTubes-1))%ledgerTubes
		d.line = fmt.Sprintf("move-job %d %s", d.id, l.tubeName(d.tube))
	case e.state == "reserved" && kind < 56:
		d.word = "touch"
	case e.state == "reserved" && kind < 80:
		d.word, d.delay = "release", anyDelay()
		d.line = fmt.Sprintf("release %d %d %d", d.id, d.pri, d.delay)
	case e.state == "reserved":
		d.word = "bury"
		d.line = fmt.Sprintf("bury %d %d", d.id, d.pri)
	case e.state != "ready" && kind < 75:
		d.word = "kick-job"
	default:
		d.word = "reserve-job"
	}
	return d
}

// anyKeys are the keys of a put: a unique one of a few, as a rule, which a job seldom keeps
// when it is deleted, or one that limits reservations, both or none. A few jobs in turn are of
// the same group, or wait for it.
func (b *bookkeeper) anyKeys() (k keys) {
	group := func(n int) string { return fmt.Sprintf("g%d-%d", b.sure.client, n) }
	turn := b.numbers / 6
	switch rand.IntN(4) {
	case 0, 1:
		k.group = group(turn)
	case 2:
		k.after, k.settled = group(turn), rand.IntN(2) == 0
		if rand.IntN(3) == 0 {
			k.group = group(turn + 1)
		}
	}
	if rand.IntN(4) == 0 {
		k.fair = fmt.Sprint("f", rand.IntN(3))
	}
	if k.after == "" && rand.IntN(2) > 0 {
		k.unique = fmt.Sprint("k", rand.IntN(20))
		if rand.IntN(3) == 0 {
			k.seconds = 10000 + rand.Uint32N(10000)
		}
	}
	if rand.IntN(3) == 0 {
		k.limited, k.limit = fmt.Sprint("c", rand.IntN(3)), 1+rand.Uint32N(3)
	}
	return k
}

// anyDelay is none, or so long that it will not end.
func anyDelay() uint32 {
	if rand.IntN(3) > 0 {
		return 0
	}
	return 10000 + rand.Uint32N(10000)
}

// settle finds out how many of the commands that were not acknowledged have been
// done, given the jobs that there are.
func (b *bookkeeper) settle(jobs map[int]found, settings map[string]setting, now time.Time) (done int, err error) {
	l := b.sure.clone()
	var all []string
	agrees := func() bool {
		diff := l.compare(jobs, settings)
		if len(diff) == 0 {
			l.adopt(jobs)
			b.sure, b.hoped = l, l.clone()
			return true
		}
		slices.Sort(diff)
		if len(diff) > 5 {
			diff = append(diff[:5], "and more")
		}
		all = append(all, strings.Join(diff, "; "))
		return false
	}
	for done, d := range b.open {
		if agrees() {
			return done, nil
		}
		all = append(all, d.line)
		if d.word == "kick" { // it moves each job for itself
			for one := (&deed{word: "kick", tube: d.tube, bound: 1}); d.bound > 1; d.bound-- {
				l.do(one, span{})
				if agrees() {
					return done, nil
				}
			}
		}
		if d.word == "flush-tube" { // so does that
			was := l.clone()
			maps.DeleteFunc(l.jobs, func(n int, e entry) bool { return e.tube == d.tube && jobs[n].id == 0 })
			l.fire(span{d.sent, now})
			if agrees() {
				return done, nil
			}
			l = was
		}
		l.do(d, span{d.sent, now})
	}
	if agrees() {
		return len(b.open), nil
	}
	return 0, fmt.Errorf("client %d has other jobs than it can have after %d commands that were not acknowledged:\n%s",
		b.sure.client, len(b.open), strings.Join(all, "\n"))
}

// doubtTombs notes whose keys may be free because a flush of their tube was sent that does
// not show: it erases tombstones last, and there may have been nothing else.
func (b *bookkeeper) doubtTombs(undone []*deed) {
	for _, d := range undone {
		for k, x := range b.sure.tombs {
			if d.word == "flush-tube" && k.tube == d.tube {
				x.unknown = true
				b.sure.tombs[k] = x
			}
		}
	}
}

// auditTombs puts jobs with the unique keys that deleted jobs keep.
func (b *bookkeeper) auditTombs(w *wire) error {
	for k, x := range b.sure.tombs {
		r, err := w.ask([]string{"use " + b.sure.tubeName(k.tube), "put 4294967295 0 60 0 idp:" + k.key + "\r\n"})
		if err != nil {
			return err
		}
		var id uint64
		switch _, err := fmt.Sscanf(r[1].line, "INSERTED %d", &id); {
		case r[1].line == fmt.Sprintf("INSERTED %d DELETED", x.id):
			b.sure.tombs[k] = tomb{id: x.id}
		case err == nil && x.unknown && r[1].line == fmt.Sprint("INSERTED ", id):
			delete(b.sure.tombs, k)
			r, err := w.ask([]string{fmt.Sprint("delete ", id)})
			if err != nil {
				return err
			}
			if r[0].line != "DELETED" {
				return fmt.Errorf("client %d: the reply to a delete is %v", b.sure.client, r)
			}
		default:
			return fmt.Errorf("client %d: key %s of %s is not kept by job %d: %q (may it be free: %v)",
				b.sure.client, k.key, b.sure.tubeName(k.tube), x.id, r[1].line, x.unknown)
		}
	}
	b.hoped = b.sure.clone()
	return nil
}

// auditBurials kicks the buried jobs of a tube one after another.
func (b *bookkeeper) auditBurials(w *wire) error {
	tube := rand.IntN(ledgerTubes)
	ds := []*deed{{word: "use", tube: tube, line: "use " + b.sure.tubeName(tube)}}
	for range b.sure.buried(tube) {
		ds = append(ds, &deed{word: "peek-buried", line: "peek-buried", tube: tube}, &deed{word: "kick", tube: tube, bound: 1, line: "kick 1"})
	}
	var lines []string
	for _, d := range ds {
		lines, d.sent = append(lines, d.line), time.Now()
	}
	replies, err := w.ask(lines)
	if err != nil {
		b.open = ds // some of the first may have been done
		return err
	}
	for i, d := range ds {
		b.hoped.do(d, span{})
		if err := b.take(d, replies[i]); err != nil {
			return fmt.Errorf("client %d: %w", b.sure.client, err)
		}
	}
	return nil
}

// A relay is two clients: one puts, and the other waits for the jobs and deletes
// them.
type relay struct {
	number, depth int
	numbers       int // the last one's. The putting client's

	mu       sync.Mutex
	jobs     map[int]*relayed // guarded by mu. Those that may be there
	greatest uint64           // guarded by mu
}

type relayed struct {
	id     uint64
	known  bool // somebody was told of it
	ending bool // delete was sent
}

func (r *relay) tube() string { return fmt.Sprint("relay-", r.number) }

func (r *relay) put(w *wire) error {
	w.send("use " + r.tube())
	if w.flush() != nil {
		return nil
	}
	if _, err := w.read(); err != nil {
		return nil
	}
	for {
		r.mu.Lock()
		full := len(r.jobs) > 300
		r.mu.Unlock()
		if full {
			if _, err := w.ask([]string{"list-tube-used"}); err != nil {
				return nil
			}
			continue
		}
		r.mu.Lock()
		first := r.numbers + 1
		for range r.depth {
			r.numbers++
			r.jobs[r.numbers] = &relayed{}
			body := bodyOf(r.number, r.numbers, r.numbers%200)
			w.send(fmt.Sprintf("put %d 0 1000 %d", r.numbers%3, len(body)))
			w.send(body)
		}
		r.mu.Unlock()
		if w.flush() != nil {
			return nil
		}
		for i := range r.depth {
			reply, err := w.read()
			if err != nil {
				return nil
			}
			var id uint64
			if _, err := fmt.Sscanf(reply.line, "INSERTED %d", &id); err != nil {
				return fmt.Errorf("relay %d: the reply to a put is %q", r.number, reply.line)
			}
			r.mu.Lock()
			j := r.jobs[first+i]
			if j == nil {
				j = &relayed{id: id} // it has gone already
			}
			if j.id != 0 && j.id != id {
				return fmt.Errorf("relay %d: a job has the ids %d and %d", r.number, id, j.id)
			}
			j.id, j.known = id, true
			r.greatest = max(r.greatest, id)
			r.mu.Unlock()
		}
	}
}

func (r *relay) take(w *wire) error {
	w.send("watch " + r.tube())
	w.send("reserve")
	if w.flush() != nil {
		return nil
	}
	if _, err := w.read(); err != nil {
		return nil
	}
	for {
		reply, err := w.read()
		if err != nil {
			return nil
		}
		var id uint64
		var size, relay, number int
		_, err = fmt.Sscanf(reply.line, "RESERVED %d %d", &id, &size)
		_, err2 := fmt.Sscan(reply.body, &relay, &number)
		if err != nil || err2 != nil || reply.body != bodyOf(r.number, number, number%200) {
			return fmt.Errorf("relay %d: the reply to a reserve is %q, body %q", r.number, reply.line, reply.body)
		}
		r.mu.Lock()
		j := r.jobs[number]
		if j == nil || j.id != 0 && j.id != id {
			r.mu.Unlock()
			return fmt.Errorf("relay %d: job %d comes, which is none: %+v", r.number, id, j)
		}
		j.id, j.known = id, true
		j.ending = true
		r.greatest = max(r.greatest, id)
		r.mu.Unlock()
		w.send(fmt.Sprint("delete ", id))
		w.send("reserve")
		if w.flush() != nil {
			return nil
		}
		if reply, err = w.read(); err != nil {
			return nil
		}
		if reply.line != "DELETED" {
			return fmt.Errorf("relay %d: the reply to a delete is %q", r.number, reply.line)
		}
		r.mu.Lock()
		delete(r.jobs, number)
		r.mu.Unlock()
	}
}

// settle compares the jobs that there are with those that there must be.
func (r *relay) settle(jobs map[int]found) error {
	for n, f := range jobs {
		j := r.jobs[n]
		if j == nil || j.id != 0 && j.id != f.id {
			return fmt.Errorf("relay %d: job %d (number %d) is there, and there was %+v", r.number, f.id, n, j)
		}
		if f.body != bodyOf(r.number, n, n%200) || f.stats["state"] != "ready" || f.stats["pri"] != strconv.Itoa(n%3) ||
			f.stats["ttr"] != "1000" || f.stats["tube"] != strconv.Quote(r.tube()) {
			return fmt.Errorf("relay %d: job %d (number %d) has changed: %v, body %q", r.number, f.id, n, f.stats, f.body)
		}
		j.id, j.known, j.ending = f.id, true, false
	}
	for n, j := range r.jobs {
		if _, ok := jobs[n]; ok {
			continue
		}
		if j.known && !j.ending {
			return fmt.Errorf("relay %d: job %d (number %d) is lost", r.number, j.id, n)
		}
		delete(r.jobs, n)
	}
	return nil
}

// wire is one connection as a client sees it.
type wire struct {
	in  *bufio.Reader
	out *bufio.Writer
}

// reply is a line, and the body that it announces.
type reply struct{ line, body string }

func newWire(c net.Conn) *wire { return &wire{bufio.NewReader(c), bufio.NewWriter(c)} }

// send sends a line with the next flush, or a body. Its errors come with that.
func (w *wire) send(line string) {
	_, _ = w.out.WriteString(line)
	_, _ = w.out.WriteString("\r\n")
}

func (w *wire) flush() error { return w.out.Flush() }

func (w *wire) read() (r reply, err error) {
	line, err := w.in.ReadString('\n')
	if err != nil {
		return r, err
	}
	r.line = strings.TrimSuffix(line, "\r\n")
	f := strings.Fields(r.line)
	if len(f) < 2 || !slices.Contains([]string{"RESERVED", "FOUND", "OK"}, f[0]) {
		return r, nil
	}
	size, err := strconv.Atoi(f[min(2, len(f)-1)])
	if err != nil {
		return r, err
	}
	body := make([]byte, size+2)
	if _, err := io.ReadFull(w.in, body); err != nil {
		return r, err
	}
	if string(body[size:]) != "\r\n" {
		return r, errors.New("a body does not end where it should")
	}
	r.body = string(body[:size])
	return r, nil
}

// errGone tells that a connection has ended before all replies had come.
var errGone = errors.New("the server has gone")

// ask sends lines and reads a reply to each.
func (w *wire) ask(lines []string) ([]reply, error) {
	failed := make(chan error, 1)
	go func() {
		for _, l := range lines {
			w.send(l)
		}
		failed <- w.flush()
	}()
	var replies []reply
	for range lines {
		r, err := w.read()
		if err != nil {
			return nil, errors.Join(errGone, err, <-failed)
		}
		replies = append(replies, r)
	}
	return replies, <-failed
}
