package faults

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// script reads a history: a command a line, as in
//
//	1 put 7 10-20 INSERTED pri=3
//
// session, verb, id, time of call and return (open: no reply), reply, fields. Puts with the
// same key are those of one number. The line "another server 100" says when another server begins to serve.
func script(t *testing.T, text string) []Op {
	t.Helper()
	var h []Op
	numbers, keys := map[uint64]int{}, map[string]int{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if f[0]+" "+f[1] == string(serves) {
			at, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			h = append(h, Op{Verb: serves, Call: at, Return: at})
			continue
		}
		o := Op{Verb: Verb(f[1]), Tube: "t", TTR: 1000}
		var from, to string
		from, to, _ = strings.Cut(f[3], "-")
		if _, err := fmt.Sscan(f[0]+" "+f[2]+" "+from, &o.Session, &o.ID, &o.Call); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		o.Return = never
		if to != "open" {
			if _, err := fmt.Sscan(to, &o.Return); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		fields := f[4:]
		if to != "open" && o.Verb != "end" {
			o.Reply, fields = fields[0], fields[1:]
		}
		switch o.Verb {
		case "end":
			o.Verb = end
		case "reserve":
			o.Verb = Reserve
		case Put:
			o.Number = len(h) + 1
			numbers[o.ID] = o.Number
			o.Body = bodyOf(o.Number, 0)
			if o.Return == never {
				o.ID = 0
			}
		}
		if o.Reply == "OK" {
			o.Stats = &Stats{Tube: "t", TTR: 1000}
		}
		for _, x := range fields {
			key, value, _ := strings.Cut(x, "=")
			switch {
			case key == "body":
				o.Body = value
			case key == "tube" && o.Stats == nil:
				o.Tube = value
			case key == "tube":
				o.Stats.Tube = value
			case key == "to":
				o.To = value
			case key == "found":
				o.Found = value
			case key == "key":
				o.Keyed = true
				if keys[value] == 0 {
					keys[value] = o.Number
				}
				o.Number, o.Body = keys[value], bodyOf(keys[value], 0)
				if o.ID > 0 {
					numbers[o.ID] = o.Number
				}
			case key == "wait":
				d, err := time.ParseDuration(value)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				o.Wait = d
			case key == "limited":
				o.Limited = value
			case key == "group":
				o.Group = value
			case key == "after":
				o.After = value
			case key == "linger":
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				o.Linger = time.Duration(n)
			case key == "late":
				o.Late = true
			case key == "expires", key == "apart":
				ns, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				if key == "apart" {
					o.Bounds.Apart = time.Duration(ns)
				} else {
					o.Expires = time.Duration(ns)
				}
			case key == "reserved":
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				o.Bounds.Reserved = n
			case o.Stats == nil:
				set(t, value, map[string]*uint32{"pri": &o.Pri, "delay": &o.Delay, "ttr": &o.TTR, "limit": &o.Limit, "most": &o.Most}[key])
			case key == "state":
				o.Stats.State = value
			default:
				x := o.Stats
				set(t, value, map[string]*uint32{
					"pri": &x.Pri, "delay": &x.Delay, "ttr": &x.TTR, "releases": &x.Releases, "buries": &x.Buries, "kicks": &x.Kicks,
				}[key])
			}
		}
		if (o.Reply == "RESERVED" || o.Reply == "FOUND") && o.Body == "" {
			o.Body = bodyOf(numbers[o.ID], 0)
		}
		h = append(h, o)
	}
	return h
}

func set(t *testing.T, value string, to *uint32) {
	t.Helper()
	if to == nil {
		t.Fatalf("no such field: %s", value)
	}
	if _, err := fmt.Sscan(value, to); err != nil {
		t.Fatal(err)
	}
}

func TestHistoriesThatCanBeAreAccepted(t *testing.T) {
	for what, text := range map[string]string{
		"a job's life": `
			1 put 7 10-20 INSERTED pri=3
			1 stats-job 7 21-22 OK state=ready pri=3
			2 reserve 7 30-40 RESERVED
			1 delete 7 41-42 NOT_FOUND
			2 touch 7 43-44 TOUCHED
			2 release 7 50-60 RELEASED pri=4 delay=100
			1 stats-job 7 61-62 OK state=delayed pri=4 delay=100 releases=1
			1 peek-delayed 7 63-64 FOUND
			1 kick-job 7 65-66 KICKED
			1 reserve-job 7 67-68 RESERVED
			1 bury 7 69-70 BURIED pri=5
			2 peek-buried 7 71-72 FOUND
			2 stats-job 7 73-74 OK state=buried pri=5 delay=100 releases=1 buries=1 kicks=1
			2 delete 7 75-76 DELETED
			2 peek 7 77-78 NOT_FOUND`,
		"commands at once": `
			1 put 7 10-20 INSERTED
			2 peek 7 12-13 NOT_FOUND
			2 peek 7 14-15 FOUND
			2 reserve 7 30-50 RESERVED
			3 reserve 0 31-49 TIMED_OUT`,
		"a put without a reply whose job is there": `
			1 put 7 10-open
			2 reserve 0 20-21 TIMED_OUT
			2 reserve 7 30-31 RESERVED
			2 delete 7 40-41 DELETED`,
		"a put without a reply whose job never comes": `
			1 put 7 10-open
			2 reserve 0 20-21 TIMED_OUT`,
		"a delete without a reply that was executed late": `
			1 put 7 10-20 INSERTED
			1 delete 7 30-open
			2 peek 7 40-41 FOUND
			2 peek 7 50-51 NOT_FOUND`,
		"a delete without a reply that was not executed": `
			1 put 7 10-20 INSERTED
			1 delete 7 30-open
			2 peek 7 90-91 FOUND`,
		"a release without a reply that was executed": `
			1 put 7 10-20 INSERTED
			1 reserve 7 30-31 RESERVED
			1 release 7 40-open pri=9
			2 stats-job 7 50-51 OK state=ready pri=9 releases=1`,
		"a change of leader that frees a reservation": `
			1 put 7 10-20 INSERTED
			1 reserve 7 30-40 RESERVED
			1 end 0 30-open
			2 reserve 7 50-60 RESERVED
			2 delete 7 61-62 DELETED`,
		"another leader serves the job before the reply of the one before has come": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-90 RESERVED
			2 end 0 30-open
			3 reserve 7 50-60 RESERVED`,
		"a reserve without a reply that keeps the job for a while": `
			1 put 7 10-20 INSERTED
			2 reserve 0 30-open
			2 end 0 30-open
			1 delete 7 40-41 NOT_FOUND
			1 reserve 0 42-43 TIMED_OUT
			1 delete 7 50-51 DELETED`,
		"a job that becomes a dead letter, and what is found elsewhere": `
			1 put 7 10-20 INSERTED limit=2
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED pri=1
			1 reserve 7 25-26 RESERVED
			1 release 7 27-28 RELEASED pri=2 delay=5
			2 reserve 0 30-31 TIMED_OUT
			2 stats-job 7 32-33 OK state=buried tube=t.dead pri=2 delay=5 releases=2 buries=1
			2 peek-buried 0 34-35 NOT_FOUND
			2 peek-buried 7 36-37 FOUND tube=t.dead
			2 kick-job 7 38-39 KICKED
			2 reserve-job 7 40-41 RESERVED
			2 release 7 42-43 RELEASED
			2 stats-job 7 44-45 OK state=ready tube=t.dead releases=3 buries=1 kicks=1
			2 move-job 7 46-47 MOVED to=t
			1 reserve 7 48-49 RESERVED
			1 move-job 7 50-51 MOVED to=t.dead
			2 stats-job 7 52-53 OK state=ready tube=t.dead releases=3 buries=1 kicks=1`,
		"a release without a reply that made a dead letter": `
			1 put 7 10-20 INSERTED limit=1
			1 reserve 7 21-22 RESERVED
			1 release 7 23-open
			1 end 0 23-open
			2 peek-buried 7 36-37 FOUND tube=t.dead`,
		"a flush, and a put meanwhile": `
			1 put 7 10-20 INSERTED
			1 put 8 25-40 INSERTED
			1 reserve 7 21-22 RESERVED
			2 flush-tube 0 30-50 FLUSHED
			1 touch 7 60-61 NOT_FOUND
			1 peek 8 62-63 FOUND`,
		"a flush without a reply that was executed in part": `
			1 put 7 10-20 INSERTED
			1 put 8 21-22 INSERTED
			2 flush-tube 0 30-open
			1 peek 7 60-61 NOT_FOUND
			1 peek 8 62-63 FOUND`,
		"a put that finds the job of its key": `
			1 put 7 10-20 INSERTED key=k
			2 put 7 21-22 INSERTED key=k found=READY
			1 reserve 7 23-24 RESERVED
			2 put 7 25-26 INSERTED key=k found=RESERVED
			1 delete 7 27-28 DELETED
			2 put 7 29-30 INSERTED key=k found=DELETED`,
		"a put without a reply whose job another one finds": `
			1 put 0 10-open key=k
			2 put 7 21-22 INSERTED key=k found=READY
			2 peek 7 23-24 FOUND`,
		"two puts of a key at once": `
			1 put 7 10-20 INSERTED key=k found=READY
			2 put 7 11-21 INSERTED key=k
			1 put 0 30-31 OUT_OF_MEMORY key=k`,
		"a job that its limited key keeps back": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			2 reserve 0 32-33 TIMED_OUT
			2 reserve-job 8 34-35 NOT_FOUND
			2 peek-ready 8 36-37 FOUND
			2 stats-job 8 38-39 OK state=ready
			1 delete 7 40-41 DELETED
			2 reserve 8 42-43 RESERVED`,
		"a delayed job that its limited key keeps back": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1 delay=9
			1 reserve 7 30-31 RESERVED
			2 reserve-job 8 34-35 NOT_FOUND
			1 bury 7 36-37 BURIED
			2 reserve-job 8 38-39 RESERVED`,
		"jobs of a limited key of which two are reserved at a time, and one alone": `
			1 put 7 10-20 INSERTED limited=k most=2
			1 put 8 21-22 INSERTED limited=k most=2
			1 put 9 23-24 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			2 reserve 8 32-33 RESERVED
			3 reserve 0 34-35 TIMED_OUT
			1 release 7 36-37 RELEASED
			3 reserve-job 9 38-39 NOT_FOUND
			2 release 8 40-41 RELEASED
			3 reserve 9 42-43 RESERVED`,
		"a limited key that a change of leader frees": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			1 end 0 30-open
			2 reserve 8 40-41 RESERVED`,
		"a limited key in two tubes": `
			1 put 7 10-20 INSERTED limited=k most=1 limit=9
			1 put 8 21-22 INSERTED limited=k most=1 limit=9
			1 move-job 8 23-24 MOVED to=t.dead
			1 reserve 7 30-31 RESERVED
			2 reserve-job 8 40-41 RESERVED`,
		"a reserve without a reply that keeps a limited key for a while": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			2 reserve 0 30-open
			2 end 0 30-open
			1 reserve 0 42-43 TIMED_OUT
			1 reserve 8 50-51 RESERVED`,
		"a job that nobody has seen and that keeps a limited key for a while": `
			1 put 7 10-20 INSERTED limited=k most=1
			3 put 0 21-open limited=k most=1
			2 reserve 0 30-open
			2 end 0 30-open
			1 reserve-job 7 42-43 NOT_FOUND
			1 stats-job 7 44-45 OK state=ready
			1 reserve-job 7 46-47 NOT_FOUND
			1 reserve 7 50-51 RESERVED`,
		"what is read in another tube": `
			1 put 7 10-20 INSERTED
			2 reserve 0 30-31 TIMED_OUT tube=u`,
		"a job that waits for its group": `
			1 put 7 10-20 INSERTED group=g
			1 put 8 21-22 INSERTED after=g
			2 stats-job 8 23-24 OK state=delayed
			2 peek-delayed 8 25-26 FOUND
			2 reserve-job 8 27-28 NOT_FOUND
			1 reserve 7 30-31 RESERVED
			2 reserve 0 32-33 TIMED_OUT
			1 bury 7 34-35 BURIED
			2 reserve 0 36-37 TIMED_OUT
			1 delete 7 40-41 DELETED
			2 reserve 8 42-43 RESERVED late`,
		"a job that waits and is fired a bit later": `
			1 put 7 10-20 INSERTED group=g
			1 put 8 21-22 INSERTED after=g
			1 delete 7 40-41 DELETED
			1 put 9 42-43 INSERTED group=g
			2 stats-job 8 44-45 OK state=delayed
			2 reserve 9 46-47 RESERVED
			2 reserve 8 48-49 RESERVED`,
		"a job that waits for its group, and is kicked": `
			1 put 7 10-20 INSERTED group=g
			1 put 8 21-22 INSERTED after=g
			1 reserve 7 30-31 RESERVED
			2 kick-job 8 32-33 KICKED
			2 reserve 8 34-35 RESERVED
			2 release 8 36-37 RELEASED
			2 stats-job 8 38-39 OK state=ready kicks=1 releases=1`,
		"a job whose group is complete": `
			1 put 8 21-22 INSERTED after=g
			1 put 7 23-24 INSERTED group=g
			2 reserve 8 48-49 RESERVED`,
		"a job that waits for one whose put had no reply": `
			1 put 0 10-open group=g
			1 put 8 21-22 INSERTED after=g
			2 peek-delayed 8 48-49 FOUND late`,
		"a job that waits, and then for its delay": `
			1 put 7 10-20 INSERTED group=g
			1 put 8 21-22 INSERTED after=g delay=100
			1 delete 7 40-41 DELETED
			2 reserve 0 48-49 TIMED_OUT late
			2 reserve-job 8 50-51 RESERVED late`,
		"a job that expires": `
			1 put 7 10-20 INSERTED expires=100
			2 peek 7 130-131 FOUND
			2 reserve 0 140-141 TIMED_OUT
			2 peek 7 150-151 NOT_FOUND late`,
		"a job that expires when it is released": `
			1 put 7 10-20 INSERTED expires=100
			1 reserve 7 50-60 RESERVED
			2 stats-job 7 130-131 OK state=reserved
			1 release 7 140-141 RELEASED
			2 peek 7 150-151 NOT_FOUND`,
		"a job that does not expire, as it was kicked": `
			1 put 7 10-20 INSERTED expires=100 delay=100
			1 kick-job 7 50-60 KICKED
			2 peek 7 150-151 FOUND late`,
		"a tube of which one job is reserved at a time": `
			1 put 7 10-20 INSERTED reserved=1
			1 put 8 21-22 INSERTED reserved=1
			1 reserve 7 30-31 RESERVED
			2 reserve 0 32-33 TIMED_OUT
			2 reserve-job 8 34-35 NOT_FOUND
			1 release 7 40-49 RELEASED
			2 reserve 8 42-43 RESERVED
			2 end 0 42-open
			1 reserve 7 50-51 RESERVED`,
		"a job that lingers is another's for a moment": `
			1 put 7 10-20 INSERTED linger=1000
			1 put 8 21-22 INSERTED linger=1000
			2 reserve 7 30-31 RESERVED
			2 reserve 8 32-33 RESERVED
			1 delete 8 34-35 NOT_FOUND
			1 bury 7 40-41 BURIED
			2 touch 7 50-51 NOT_FOUND
			2 delete 8 52-53 DELETED`,
		"a tube whose jobs begin apart": `
			1 put 7 10-20 INSERTED apart=10000000
			1 put 8 21-22 INSERTED apart=10000000
			1 put 9 23-24 INSERTED apart=10000000
			1 reserve 7 30-31 RESERVED
			2 reserve 0 32-33 TIMED_OUT
			2 reserve 8 34-10000031 RESERVED
			another server 10000040
			2 reserve 9 10000041-10000042 RESERVED`,
	} {
		h := script(t, text)
		if err := Check(h); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		agreeOn(t, h)
	}
}

func TestHistoriesThatCannotBeAreRefused(t *testing.T) {
	for what, text := range map[string]string{
		"a job that lingers is another's, and the worker's still": `
			1 put 7 10-20 INSERTED linger=1000
			2 reserve 7 30-31 RESERVED
			1 touch 7 40-41 TOUCHED
			2 touch 7 50-51 TOUCHED
			2 delete 7 60-61 DELETED
			1 delete 7 70-71 DELETED`,
		"a job of another that does not linger is deleted": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED
			1 delete 7 40-41 DELETED`,
		"a lost job": `
			1 put 7 10-20 INSERTED
			1 peek 7 30-31 NOT_FOUND`,
		"a lost job, found out at the end only": `
			1 put 7 10-20 INSERTED
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED
			1 end 0 23-open
			9 stats-job 7 90-91 NOT_FOUND`,
		"a job that was put without a reply, seen, and lost": `
			1 put 7 10-open
			2 peek 7 30-31 FOUND
			2 peek 7 40-41 NOT_FOUND`,
		"a job that comes back after its delete": `
			1 put 7 10-20 INSERTED
			1 delete 7 30-31 DELETED
			2 reserve 7 40-41 RESERVED`,
		"a deleted job in a list": `
			1 put 7 10-20 INSERTED
			1 delete 7 30-31 DELETED
			2 peek 7 40-41 FOUND`,
		"a job that was deleted twice": `
			1 put 7 10-20 INSERTED
			1 delete 7 30-31 DELETED
			2 delete 7 40-41 DELETED`,
		"two holders": `
			1 put 7 10-20 INSERTED
			1 reserve 7 30-31 RESERVED
			2 reserve 7 40-41 RESERVED`,
		"two holders, of whom the first one's session ends, but was alive afterwards": `
			1 put 7 10-20 INSERTED
			1 reserve 7 30-31 RESERVED
			2 reserve 7 40-41 RESERVED
			1 touch 7 50-51 TOUCHED
			1 end 0 50-open`,
		"a reservation that was lost, and comes back": `
			1 put 7 10-20 INSERTED
			1 reserve 7 30-31 RESERVED
			1 end 0 30-open
			2 reserve 7 40-41 RESERVED
			2 release 7 42-43 RELEASED
			1 bury 7 44-45 BURIED`,
		"a changed priority": `
			1 put 7 10-20 INSERTED pri=3
			1 stats-job 7 30-31 OK state=ready pri=4`,
		"a release that is forgotten": `
			1 put 7 10-20 INSERTED pri=3
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED pri=4
			1 stats-job 7 30-31 OK state=ready pri=3`,
		"a counter that is forgotten": `
			1 put 7 10-20 INSERTED
			1 reserve 7 21-22 RESERVED
			1 bury 7 23-24 BURIED
			1 stats-job 7 30-31 OK state=buried`,
		"a burial that is forgotten": `
			1 put 7 10-20 INSERTED
			1 reserve 7 21-22 RESERVED
			1 bury 7 23-24 BURIED
			1 end 0 23-open
			2 peek-ready 7 40-41 FOUND`,
		"a changed time to run": `
			1 put 7 10-20 INSERTED
			1 stats-job 7 30-31 OK state=ready ttr=5`,
		"a changed body": `
			1 put 7 10-20 INSERTED
			1 peek 7 30-31 FOUND body=1x`,
		"another job's body": `
			1 put 7 10-20 INSERTED
			1 put 8 21-22 INSERTED
			1 peek 7 30-31 FOUND body=2`,
		"an old NOT_FOUND": `
			1 put 7 10-20 INSERTED
			2 delete 7 30-31 NOT_FOUND
			1 delete 7 40-41 DELETED`,
		"an old TIMED_OUT": `
			1 put 7 10-20 INSERTED
			2 reserve 0 30-31 TIMED_OUT
			1 delete 7 40-41 DELETED`,
		"an old TIMED_OUT after a command without a reply": `
			1 put 7 10-20 INSERTED
			3 peek-ready 0 21-open
			3 end 0 21-open
			2 reserve 0 30-31 TIMED_OUT`,
		"an old empty peek": `
			1 put 7 10-20 INSERTED
			2 peek-ready 0 30-31 NOT_FOUND`,
		"an old peek": `
			1 put 7 10-20 INSERTED
			1 reserve 7 21-22 RESERVED
			2 peek-ready 7 30-31 FOUND
			1 touch 7 40-41 TOUCHED`,
		"an id that is told twice": `
			1 put 7 10-20 INSERTED
			1 put 7 21-22 INSERTED`,
		"a put that makes two jobs": `
			1 put 7 10-20 INSERTED
			2 reserve 8 21-22 RESERVED body=1`,
		"a job that waits for its group and is handed out": `
			1 put 7 10-20 INSERTED group=g
			1 put 8 21-22 INSERTED after=g
			2 reserve 8 30-31 RESERVED
			2 reserve 7 32-33 RESERVED`,
		"a job that its complete group keeps back": `
			1 put 7 10-20 INSERTED group=g
			1 put 8 21-22 INSERTED after=g
			1 delete 7 40-41 DELETED
			2 reserve 0 42-43 TIMED_OUT late`,
		"a job that a group keeps back which was complete when it was put": `
			1 put 7 10-20 INSERTED group=g
			1 delete 7 21-22 DELETED
			1 put 8 23-24 INSERTED after=g
			2 reserve 0 42-43 TIMED_OUT`,
		"a job that expires early": `
			1 put 7 10-20 INSERTED expires=100
			2 peek 7 90-91 NOT_FOUND`,
		"a job that does not expire": `
			1 put 7 10-20 INSERTED expires=100
			2 peek 7 150-151 FOUND late`,
		"a job that has expired and comes back": `
			1 put 7 10-20 INSERTED expires=100
			2 peek 7 150-151 NOT_FOUND
			2 reserve 7 152-153 RESERVED`,
		"a reserved job that expires": `
			1 put 7 10-20 INSERTED expires=100
			1 reserve 7 50-60 RESERVED
			2 peek 7 130-131 NOT_FOUND
			1 touch 7 140-141 TOUCHED`,
		"two jobs of a tube of which one is reserved at a time": `
			1 put 7 10-20 INSERTED reserved=1
			1 put 8 21-22 INSERTED reserved=1
			1 reserve 7 30-31 RESERVED
			2 reserve 8 42-43 RESERVED
			1 release 7 50-51 RELEASED`,
		"a job that its tube's bounds keep back in the end": `
			1 put 7 10-20 INSERTED reserved=1
			1 reserve 7 30-31 RESERVED
			1 release 7 40-49 RELEASED
			2 reserve 0 50-51 TIMED_OUT late`,
		"two jobs that have begun too soon": `
			1 put 7 10-20 INSERTED apart=10000000
			1 put 8 21-22 INSERTED apart=10000000
			another server 25
			1 reserve 7 30-31 RESERVED
			2 reserve 8 42-43 RESERVED`,
		"a job that nobody has put": `
			2 reserve 8 21-22 RESERVED body=5`,
		"a job of a put that was refused": `
			1 put 7 10-20 OUT_OF_MEMORY
			2 reserve 7 30-31 RESERVED`,
		"a dead letter that is still at home": `
			1 put 7 10-20 INSERTED limit=1
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED
			2 reserve 7 30-31 RESERVED`,
		"a dead letter whose attempts a change of leader has forgotten": `
			1 put 7 10-20 INSERTED limit=2
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED
			1 end 0 23-open
			2 reserve 7 30-31 RESERVED
			2 release 7 32-33 RELEASED
			2 peek-ready 7 34-35 FOUND`,
		"a dead letter too early": `
			1 put 7 10-20 INSERTED limit=2
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED
			2 peek-buried 7 34-35 FOUND tube=t.dead`,
		"a dead letter without its field": `
			1 put 7 10-20 INSERTED limit=1
			1 reserve 7 21-22 RESERVED
			1 release 7 23-24 RELEASED
			1 stats-job 7 25-26 OK state=buried tube=t.dead releases=1`,
		"a move that is forgotten": `
			1 put 7 10-20 INSERTED limit=9
			1 move-job 7 21-22 MOVED to=t.dead
			2 reserve 7 23-24 RESERVED`,
		"a move that was not asked for": `
			1 put 7 10-20 INSERTED limit=9
			1 stats-job 7 21-22 OK state=ready tube=t.dead`,
		"a job that comes back after a flush": `
			1 put 7 10-20 INSERTED
			2 flush-tube 0 30-50 FLUSHED
			1 peek 7 60-61 FOUND`,
		"a flush that finds no tube where a job is": `
			1 put 7 10-20 INSERTED
			2 flush-tube 0 30-50 NOT_FOUND
			1 peek 7 60-61 FOUND`,
		"a flush of another tube": `
			1 put 7 10-20 INSERTED
			2 flush-tube 0 30-50 FLUSHED tube=u
			1 peek 7 60-61 NOT_FOUND`,
		"two jobs of a key": `
			1 put 7 10-20 INSERTED key=k
			2 put 8 21-22 INSERTED key=k`,
		"two jobs of a key, of which one was deleted": `
			1 put 7 10-20 INSERTED key=k
			1 delete 7 21-22 DELETED
			2 put 8 23-24 INSERTED key=k`,
		"a job that is made twice": `
			1 put 7 10-20 INSERTED key=k
			2 put 7 21-22 INSERTED key=k`,
		"a put that finds the job of its key in an old state": `
			1 put 7 10-20 INSERTED key=k
			1 reserve 7 21-22 RESERVED
			2 put 7 23-24 INSERTED key=k found=READY
			1 touch 7 25-26 TOUCHED`,
		"a put that finds a deleted job alive": `
			1 put 7 10-20 INSERTED key=k
			1 delete 7 21-22 DELETED
			2 put 7 23-24 INSERTED key=k found=READY`,
		"a put that finds what nobody has put": `
			2 put 7 23-24 INSERTED key=k found=READY`,
		"two jobs of a limited key": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			2 reserve 8 40-41 RESERVED`,
		"two jobs of a limited key, of which a change of leader has freed the first one too late": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			2 reserve-job 8 40-41 RESERVED
			1 touch 7 50-51 TOUCHED
			1 end 0 50-open`,
		"two jobs of a limited key, of which one was delayed": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1 delay=9
			1 reserve 7 30-31 RESERVED
			2 reserve-job 8 40-41 RESERVED`,
		"three jobs of a limited key of which two may be reserved": `
			1 put 7 10-20 INSERTED limited=k most=2
			1 put 8 21-22 INSERTED limited=k most=2
			1 put 9 23-24 INSERTED limited=k most=2
			1 reserve 7 30-31 RESERVED
			2 reserve 8 40-41 RESERVED
			3 reserve 9 50-51 RESERVED`,
		"a limited key that is held by a job that is gone": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			1 delete 7 40-41 DELETED
			2 reserve 0 50-51 TIMED_OUT`,
		"a limited key that is held by a job that is buried": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			1 bury 7 40-41 BURIED
			2 reserve-job 8 50-51 NOT_FOUND`,
		"a limited key that a change of leader has not freed": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=k most=1
			1 reserve 7 30-31 RESERVED
			1 end 0 30-open
			2 stats-job 7 40-41 OK state=ready
			2 reserve 0 50-51 TIMED_OUT`,
		"a limited key that holds back the jobs of another one": `
			1 put 7 10-20 INSERTED limited=k most=1
			1 put 8 21-22 INSERTED limited=j most=1
			1 reserve 7 30-31 RESERVED
			2 reserve 0 50-51 TIMED_OUT`,
		"a limited key that is held by a reserve that has found nothing": `
			1 put 8 10-20 INSERTED limited=k most=1
			3 reserve 0 12-30 TIMED_OUT
			2 reserve-job 8 50-51 NOT_FOUND`,
		"a job of another tube": `
			1 put 7 10-20 INSERTED
			2 reserve 7 30-31 RESERVED tube=u`,
	} {
		h := script(t, text)
		for i := range h {
			if h[i].Body == "1" || h[i].Body == "2" || h[i].Body == "5" {
				h[i].Body += " "
			}
		}
		if err := Check(h); err == nil {
			t.Errorf("%s: accepted", what)
		}
		agreeOn(t, h)
	}
}

// milliseconds makes the times of a history milliseconds.
func milliseconds(h []Op) []Op {
	for i := range h {
		h[i].Call *= int64(time.Millisecond)
		if h[i].Return != never {
			h[i].Return *= int64(time.Millisecond)
		}
	}
	return h
}

func TestATimeToRunEndsInItsTime(t *testing.T) {
	for what, text := range map[string]string{
		"a job that is handed out again": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			2 reserve 7 2025-2035 RESERVED
			1 delete 7 2030-2032 NOT_FOUND`,
		"a job that is handed out again while it is touched": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			1 touch 7 2020-2040 NOT_FOUND
			2 reserve 7 2025-2035 RESERVED`,
		"a job that is handed out again late": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			2 reserve 0 3000-3001 TIMED_OUT
			1 touch 7 3010-3011 TOUCHED
			2 reserve 7 5010-5011 RESERVED`,
		"a job that is handed out again because its session has ended": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			1 end 0 31-open
			2 reserve 7 35-36 RESERVED`,
	} {
		if err := Check(milliseconds(script(t, text))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, text := range map[string]string{
		"a job that is handed out again too early": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			2 reserve 7 2020-2029 RESERVED`,
		"a holder that is told so too early": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			1 delete 7 2020-2029 NOT_FOUND`,
		"a job that is handed out again although it was touched": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			1 touch 7 1000-1001 TOUCHED
			2 reserve 7 2500-2501 RESERVED`,
		"a holder who goes on when another one has the job": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			2 reserve 7 2040-2041 RESERVED
			1 release 7 2050-2051 RELEASED`,
		"a time to run that has ended although a later command was executed before": `
			1 put 7 10-20 INSERTED ttr=2
			1 reserve 7 30-31 RESERVED
			2 reserve 7 1000-5000 RESERVED
			2 bury 7 1001-5000 BURIED
			3 peek-buried 7 1002-1999 FOUND`,
	} {
		if err := Check(milliseconds(script(t, text))); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
