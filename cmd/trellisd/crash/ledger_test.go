package crash

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"trellis/cmd/trellisd/internal/servertest"
)

// A ledger is what one client knows of its jobs, by the number that is in each
// body. Nobody else touches its tubes, and nothing in them is due during a test,
// so that it can tell what every command does.
type ledger struct {
	client  int
	jobs    map[int]entry
	tombs   map[keyOf]tomb
	burials int
	dead    [ledgerTubes]uint32 // attempts with which jobs of a tube go to deadTube; 0 if they do not
	wait    [ledgerTubes]uint32 // seconds that jobs of a tube wait when they have failed
}

// A ledger's tubes are numbered. The dead letters of all of them go to the last.
const (
	ledgerTubes = 3
	deadTube    = ledgerTubes - 1
)

// A keyOf is a unique key in one of a ledger's tubes.
type keyOf struct {
	tube int
	key  string
}

// A tomb is what is left of a deleted job that keeps its unique key. None ends during a test.
type tomb struct {
	id      uint64
	unknown bool // it may have been erased by a flush that was not acknowledged
}

// keys are those of a job's put, and its groups.
type keys struct {
	unique  string
	seconds uint32
	limited string
	limit   uint32
	fair    string
	group   string
	after   string // the group that it waits for
	settled bool   // it does not wait for those that are buried
}

// tags are what a put's line says of the keys.
func (k *keys) tags() (s string) {
	if k.unique != "" {
		s += fmt.Sprintf(" idp:%s:%d", k.unique, k.seconds)
	}
	if k.limited != "" {
		s += fmt.Sprintf(" con:%s:%d", k.limited, k.limit)
	}
	if k.fair != "" {
		s += " fair:" + k.fair
	}
	if k.group != "" {
		s += " grp:" + k.group
	}
	if k.after != "" {
		s += " aft:" + k.after
		if k.settled {
			s += ":settled"
		}
	}
	return s
}

// info is what a worker is told of them.
func (k *keys) info() (s string) {
	for _, x := range []struct{ name, key string }{{"idp", k.unique}, {"con", k.limited}, {"grp", k.group}, {"fair", k.fair}} {
		if x.key != "" {
			s += " " + x.name + ":" + x.key
		}
	}
	return s
}

// An entry is one job in a ledger.
type entry struct {
	keys            keys
	id              uint64 // 0 until it is known
	tube, size      int
	pri, delay, ttr uint32
	state           string
	kept            string // the state on record: a reservation is not recorded
	burial          int    // the order of burials, if kept is buried
	born, due       span

	held   bool // for a group. The state is delayed
	firing bool // the group has been complete since: it is held no more, or will soon not be

	reserves, keptReserves  uint32 // now, and on record
	releases, buries, kicks uint32
	attempts                uint32
}

// span is when something happened: between the sending of a command and the
// arrival of its reply.
type span struct{ from, to time.Time }

// deed is a command of a ledger's client.
type deed struct {
	line       string // what is sent; a put's body follows it
	word       string
	job        int    // its number
	id         uint64 // of the job
	tube, size int
	pri, delay uint32
	ttr        uint32
	bound      int
	keys       keys
	sent       time.Time
}

func (l *ledger) clone() *ledger {
	c := *l
	c.jobs, c.tombs = maps.Clone(l.jobs), maps.Clone(l.tombs)
	return &c
}

func (l *ledger) tubeName(tube int) string { return fmt.Sprintf("client-%d-%d", l.client, tube) }

// bodyOf is the body of a client's job: its number, and what no number looks like.
func bodyOf(client, number, size int) string {
	b := fmt.Sprintf("%d %d ", client, number)
	if len(b) < size {
		b += strings.Repeat(fmt.Sprintf("%x\r\n\x00", number), size/4+1)[:size-len(b)]
	}
	return b
}

// buried are the numbers of a tube's buried jobs in the order of their burial.
func (l *ledger) buried(tube int) []int {
	var list []int
	for n, e := range l.jobs {
		if e.tube == tube && e.state == "buried" {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return l.jobs[a].burial - l.jobs[b].burial })
	return list
}

// in is how many jobs a tube has.
func (l *ledger) in(tube int) (n int) {
	for _, e := range l.jobs {
		if e.tube == tube {
			n++
		}
	}
	return n
}

// holder is the number of the job that has a unique key in a tube, 0 if none has.
func (l *ledger) holder(tube int, key string) int {
	for n, e := range l.jobs {
		if key != "" && e.tube == tube && e.keys.unique == key {
			return n
		}
	}
	return 0
}

// duplicate is the answer to a put whose unique key is held, "" if it is free.
func (l *ledger) duplicate(d *deed) string {
	if n := l.holder(d.tube, d.keys.unique); n != 0 {
		e := l.jobs[n]
		s := fmt.Sprintf("INSERTED %d %s", e.id, strings.ToUpper(e.state))
		if d.pri < e.pri {
			s += fmt.Sprint(" ", d.pri)
		}
		return s
	}
	if x, ok := l.tombs[keyOf{d.tube, d.keys.unique}]; ok {
		return fmt.Sprintf("INSERTED %d DELETED", x.id)
	}
	return ""
}

// passedOver reports whether the limit of a job keeps it from being reserved.
func (l *ledger) passedOver(e entry) bool {
	held := uint32(0)
	for _, o := range l.jobs {
		if o.tube == e.tube && o.keys.limited == e.keys.limited && o.state == "reserved" {
			held++
		}
	}
	return e.keys.limited != "" && held >= e.keys.limit
}

// enter gives a job the keys that it has in another tube, and puts it there.
func (l *ledger) enter(e *entry, tube int) {
	switch {
	case e.tube == tube || e.keys.unique == "":
	case l.holder(tube, e.keys.unique) != 0:
		e.keys.unique, e.keys.seconds = "", 0
	default:
		delete(l.tombs, keyOf{tube, e.keys.unique})
	}
	e.tube = tube
}

// waits reports whether a job that waits for a group has to.
func (l *ledger) waits(k *keys) bool {
	for _, e := range l.jobs {
		if k.after != "" && e.keys.group == k.after && !(k.settled && e.state == "buried") {
			return true
		}
	}
	return false
}

// fire fires the groups that have become complete.
func (l *ledger) fire(at span) {
	for n, e := range l.jobs {
		if e.held && !e.firing && !l.waits(&e.keys) {
			e.firing = true
			// If the server goes first the next one does it, or the one after that.
			delay := time.Duration(e.delay) * time.Second
			e.due = span{at.from.Add(delay), at.to.Add(delay + 5*servertest.Patience)}
			l.jobs[n] = e
		}
	}
}

// fired is a job as it shows itself, if it waits for a group that has been complete: it may still
// be held, because there was no room to record more, or because the server has gone meanwhile.
func (e entry) fired(stats map[string]string) entry {
	if !e.firing || stats["state"] == "delayed" && stats["time-left"] == "0" {
		return e
	}
	e.held, e.firing, e.state = false, false, "ready"
	if e.delay > 0 {
		e.state = "delayed"
	}
	e.kept = e.state
	return e
}

// do notes what a command does to the jobs, and to those that wait for them.
func (l *ledger) do(d *deed, at span) {
	l.change(d, at)
	l.fire(at)
}

func (l *ledger) change(d *deed, at span) {
	e := l.jobs[d.job]
	later := span{at.from.Add(time.Duration(d.delay) * time.Second), at.to.Add(time.Duration(d.delay) * time.Second)}
	queue := func() {
		e.state, e.due = "ready", span{}
		if d.delay > 0 {
			e.state, e.due = "delayed", later
		}
		e.kept, e.keptReserves = e.state, e.reserves
	}
	switch d.word {
	case "put":
		if n := l.holder(d.tube, d.keys.unique); n != 0 {
			if e = l.jobs[n]; d.pri < e.pri {
				e.pri, e.kept, e.keptReserves = d.pri, e.state, e.reserves
				if e.state == "reserved" {
					e.kept = "ready"
				}
				l.jobs[n] = e
			}
			return
		}
		if _, ok := l.tombs[keyOf{d.tube, d.keys.unique}]; ok {
			return
		}
		e = entry{keys: d.keys, tube: d.tube, size: d.size, pri: d.pri, delay: d.delay, ttr: d.ttr, born: at, id: d.id}
		if queue(); l.waits(&d.keys) {
			e.held, e.state, e.kept, e.due = true, "delayed", "delayed", span{}
		}
	case "reserve-job":
		if e.held || l.passedOver(e) {
			return
		}
		e.reserves++
		if e.state != "ready" {
			e.kept, e.keptReserves = "ready", e.reserves
		}
		e.state = "reserved"
	case "release":
		e.pri, e.delay = d.pri, d.delay
		e.releases++
		e.attempts++
		if n := l.dead[e.tube]; n == 0 || e.attempts < n {
			if queue(); d.delay == 0 && l.wait[e.tube] > 0 {
				wait := time.Duration(l.wait[e.tube]) * time.Second
				e.state, e.kept, e.delay, e.due = "delayed", "delayed", l.wait[e.tube], span{at.from.Add(wait), at.to.Add(wait)}
			}
			break
		}
		l.burials++
		l.enter(&e, deadTube)
		e.state, e.kept, e.burial, e.due = "buried", "buried", l.burials, span{}
		e.buries++
		e.keptReserves = e.reserves
	case "set-dlq":
		l.dead[d.tube] = uint32(d.bound)
		return
	case "set-tube":
		l.wait[d.tube] = uint32(d.bound)
		return
	case "move-job":
		l.enter(&e, d.tube)
		switch e.state {
		case "reserved":
			e.state = "ready"
		case "buried":
			l.burials++
			e.burial = l.burials
		}
		e.kept, e.keptReserves = e.state, e.reserves
	case "flush-tube":
		maps.DeleteFunc(l.jobs, func(_ int, e entry) bool { return e.tube == d.tube })
		maps.DeleteFunc(l.tombs, func(k keyOf, _ tomb) bool { return k.tube == d.tube })
		return
	case "bury":
		l.burials++
		e.pri, e.state, e.kept, e.burial = d.pri, "buried", "buried", l.burials
		e.buries++
		e.keptReserves = e.reserves
	case "kick-job":
		e = kicked(e)
	case "kick":
		for _, n := range l.buried(d.tube)[:d.bound] {
			l.jobs[n] = kicked(l.jobs[n])
		}
		return
	case "delete":
		if e.keys.seconds > 0 {
			l.tombs[keyOf{e.tube, e.keys.unique}] = tomb{id: e.id}
		}
		delete(l.jobs, d.job)
		return
	default:
		return
	}
	l.jobs[d.job] = e
}

func kicked(e entry) entry {
	e.held = false
	e.state, e.kept, e.keptReserves = "ready", "ready", e.reserves
	e.kicks++
	e.attempts = 0
	return e
}

// check compares a command's reply with the one that is due before its effect.
func (l *ledger) check(d *deed, r reply) error {
	e := l.jobs[d.job]
	want, body := "", ""
	switch d.word {
	case "use":
		want = "USING " + l.tubeName(d.tube)
	case "put":
		if want = l.duplicate(d); want == "" {
			want = fmt.Sprintf("INSERTED %d", d.id)
		}
	case "reserve-job":
		if e.held || l.passedOver(e) {
			want = "NOT_FOUND"
			break
		}
		body = bodyOf(l.client, d.job, e.size)
		age := "0"
		if f := strings.Fields(r.line); len(f) > 5 {
			age = strings.TrimPrefix(f[5], "age:")
		}
		want = fmt.Sprintf("RESERVED %d %d tube:%s pri:%d age:%s ttr:%d attempts:%d%s",
			d.id, len(body), l.tubeName(e.tube), e.pri, age, e.ttr, e.attempts, e.keys.info())
	case "release", "touch", "delete":
		want = map[string]string{"release": "RELEASED", "touch": "TOUCHED", "delete": "DELETED"}[d.word]
	case "bury":
		want = "BURIED"
	case "kick-job":
		want = "KICKED"
	case "set-dlq":
		want = "DLQ_SET"
	case "set-tube":
		want = "TUBE_SET"
	case "move-job":
		want = "MOVED"
	case "flush-tube":
		want = fmt.Sprintf("FLUSHED %d", l.in(d.tube))
	case "kick":
		want = fmt.Sprintf("KICKED %d", d.bound)
	case "peek-buried":
		want = "NOT_FOUND"
		if list := l.buried(d.tube); len(list) > 0 {
			body = bodyOf(l.client, list[0], l.jobs[list[0]].size)
			want = fmt.Sprintf("FOUND %d %d", l.jobs[list[0]].id, len(body))
		}
	case "stats-job":
		got := parseStats(r.body)
		if diff := l.differ(e, got, e.state, e.reserves, e.reserves); diff != "" {
			return fmt.Errorf("stats-job of job %d (number %d): %s", d.id, d.job, diff)
		}
		return nil
	}
	if r.line != want || r.body != body {
		return fmt.Errorf("the reply to %q is %q, body %.40q; want %q, body %.40q", d.line, r.line, r.body, want, body)
	}
	return nil
}

// differ tells in what a job's stats are not as they must be.
func (l *ledger) differ(e entry, got map[string]string, state string, reserves, maxReserves uint32) string {
	var diff []string
	want := func(key, value string) {
		if got[key] != value {
			diff = append(diff, fmt.Sprintf("%s is %s, want %s", key, got[key], value))
		}
	}
	number := func(key string, n uint32) { want(key, strconv.FormatUint(uint64(n), 10)) }
	want("tube", strconv.Quote(l.tubeName(e.tube)))
	want("state", state)
	number("pri", e.pri)
	number("delay", e.delay)
	number("ttr", e.ttr)
	number("releases", e.releases)
	number("buries", e.buries)
	number("kicks", e.kicks)
	number("timeouts", 0)
	if e.held {
		number("time-left", 0)
	}
	if n, err := strconv.ParseUint(got["reserves"], 10, 32); err != nil || uint32(n) < reserves || uint32(n) > maxReserves {
		diff = append(diff, fmt.Sprintf("reserves is %s, want %d to %d", got["reserves"], reserves, maxReserves))
	}
	return strings.Join(diff, ", ")
}

// A found job is one that a server has after a restart.
type found struct {
	id    uint64
	stats map[string]string
	body  string
	at    span // when it was looked at
}

// compare tells in what the jobs and settings that a server has after a restart are not
// those of the ledger.
func (l *ledger) compare(jobs map[int]found, settings map[string]setting) (diff []string) {
	for tube, n := range l.dead {
		want := setting{attempts: n, wait: l.wait[tube]}
		if n > 0 {
			want.dead = l.tubeName(deadTube)
		}
		if name := l.tubeName(tube); settings[name] != want {
			diff = append(diff, fmt.Sprintf("the setting of %s is %+v, want %+v", name, settings[name], want))
		}
	}
	for n, f := range jobs {
		if _, ok := l.jobs[n]; !ok {
			diff = append(diff, fmt.Sprintf("job %d (number %d) is there", f.id, n))
		}
	}
	for n, e := range l.jobs {
		f, ok := jobs[n]
		if !ok {
			diff = append(diff, fmt.Sprintf("job %d (number %d, %s) is lost", e.id, n, e.state))
			continue
		}
		e = e.fired(f.stats)
		state := e.kept
		if e.state == "reserved" && f.stats["state"] == "ready" {
			state = "ready" // recorded anew by the log itself, while it was reserved
		}
		d := l.differ(e, f.stats, state, e.keptReserves, e.reserves)
		if e.id != 0 && e.id != f.id {
			d += fmt.Sprintf(", the id is %d", f.id)
		}
		if f.body != bodyOf(l.client, n, e.size) {
			d += fmt.Sprintf(", the body is %.40q", f.body)
		}
		if state == "delayed" && !e.held {
			d += wrongTime("time-left", f.stats["time-left"], f.at.from.Sub(e.due.to), f.at.to.Sub(e.due.from), -1)
		}
		d += wrongTime("age", f.stats["age"], f.at.from.Sub(e.born.to), f.at.to.Sub(e.born.from), 1)
		if d != "" {
			diff = append(diff, fmt.Sprintf("job %d (number %d): %s", f.id, n, d))
		}
	}
	return diff
}

// wrongTime checks a number of whole seconds, which may be rounded in any way.
func wrongTime(key, got string, least, most time.Duration, sign time.Duration) string {
	n, err := strconv.Atoi(got)
	s := time.Duration(n) * time.Second * sign
	if err != nil || s < least-2*time.Second || s > most+2*time.Second {
		return fmt.Sprintf(", %s is %s, want %v to %v", key, got, sign*least, sign*most)
	}
	return ""
}

// adopt notes what a restart has made of the jobs.
func (l *ledger) adopt(jobs map[int]found) {
	for n, f := range jobs {
		e := l.jobs[n].fired(f.stats)
		e.id, e.state, e.firing = f.id, f.stats["state"], e.held && !l.waits(&e.keys)
		reserves, _ := strconv.ParseUint(f.stats["reserves"], 10, 32)
		e.kept, e.reserves, e.keptReserves = e.state, uint32(reserves), uint32(reserves)
		l.jobs[n] = e
	}
}

// setting is what the books tell of a tube's setting.
type setting struct {
	attempts uint32
	dead     string
	wait     uint32
}

// parseSettings reads the reply to a list-settings, by tube.
func parseSettings(body string) map[string]setting {
	settings := map[string]setting{}
	for item := range strings.SplitSeq(body, "- tube: ") {
		var tube string
		var s setting
		if _, err := fmt.Sscanf(item, "%q\n  attempts: %d\n  dead: %q\n  disconnects: 0\n  retry-min: %d", &tube, &s.attempts, &s.dead, &s.wait); err == nil {
			settings[tube] = s
		}
	}
	return settings
}

// parseStats reads the dictionary of a reply.
func parseStats(body string) map[string]string {
	dict := map[string]string{}
	for line := range strings.Lines(body) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
			dict[key] = value
		}
	}
	return dict
}
