package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"trellis/binlog/journal"
	"trellis/engine/account"
	"trellis/engine/internal/clock"
)

// newAccountSim makes a sim with two accounts, acme and beta, whose tubes begin with their
// names, and with limits for acme.
func newAccountSim(t *testing.T, loops int, acme account.Limits) (*sim, *account.Accounts, *account.Account) {
	t.Helper()
	a, b := account.New("acme", acme), account.New("beta", account.Limits{})
	accounts := new(account.Accounts)
	accounts.Set([]account.Tubes{{Account: a, Tubes: []string{"acme*"}}, {Account: b, Tubes: []string{"beta*"}}})
	s := newConfiguredSim(Config{MaxJobSize: 65535, Accounts: accounts}, loops)
	t.Cleanup(s.engine.Discard)
	return s, accounts, a
}

// jobRecord is the full record of a ready job with a body of one byte.
func jobRecord(id uint64, tube string) *journal.Record {
	return &journal.Record{ID: id, State: journal.Ready, TTR: 9, Tube: tube, Body: []byte("x")}
}

func (s *sim) holds(t *testing.T, account string, want account.Limits) {
	t.Helper()
	if got := s.engine.accountOf(account).Holds; got != want {
		t.Fatalf("%s holds %+v, want %+v", account, got, want)
	}
}

func TestTheLongestPatternSaysWhoseATubeIs(t *testing.T) {
	accounts, all := new(account.Accounts), map[string]*account.Account{}
	var list []account.Tubes
	for name, tubes := range map[string]string{"any": "*", "a": "a*,ab", "ab": "ab*", "x": "x/y,x/y/z*"} {
		all[name] = account.New(name, account.Limits{})
		list = append(list, account.Tubes{Account: all[name], Tubes: strings.Split(tubes, ",")})
	}
	accounts.Set(list)
	e := New(Config{Accounts: accounts})
	defer e.Discard()
	for tube, want := range map[string]string{
		"default": "any", "a": "a", "ab": "a", "abc": "ab", "ac": "a", "x": "any", "x/y": "x", "x/y/": "any", "x/y/z": "x", "x/y/zz": "x",
	} {
		if got := e.accounts.Of(tube).Name(); got != want {
			t.Errorf("tube %s is that of %s, want %s", tube, got, want)
		}
	}
}

func TestPutsBeyondAnAccountsLimitsAreRefusedAndOthersAreNot(t *testing.T) {
	const bytes = jobMemory + 1024 // of a job with a body of 1,000
	body := strings.Repeat("x", 1000)
	put := fmt.Sprintf("put 0 0 9 %d\r\n%s\r\n", len(body), body)
	for name, limits := range map[string]account.Limits{"jobs": {Jobs: 2}, "memory": {Memory: 3*bytes - 1}} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newAccountSim(t, 2, limits)
			c, d := s.open(), s.open()
			c.expect(t, "USING acme1\r\nINSERTED 1\r\n", "use acme1\r\n%s", put)
			d.expect(t, "USING acme2\r\nINSERTED 2\r\n", "use acme2\r\n%s", put)
			for cut := range len(put) { // also where the body comes in parts, and before all else that is wrong
				c.expect(t, "", "%s", put[:cut])
				c.expect(t, "OUT_OF_MEMORY\r\n", "%s", put[cut:])
				d.expect(t, "", "%s", put[:cut])
				d.expect(t, "OUT_OF_MEMORY\r\n", "%s..", put[cut:max(cut, len(put)-2)])
				if cut >= len(put)-2 {
					d = s.open() // what it has sent is no put
					d.expect(t, "USING acme2\r\n", "use acme2\r\n")
				}
			}
			s.holds(t, "acme", account.Limits{Jobs: 2, Memory: 2 * bytes, Tubes: 2})
			d.expect(t, "USING beta1\r\n", "use beta1\r\n")
			for range 5 {
				if got := d.ask(t, "%s", put); !strings.HasPrefix(got, "INSERTED ") {
					t.Fatal(got)
				}
			}
			c.expect(t, "DELETED\r\nINSERTED 8\r\nOUT_OF_MEMORY\r\n", "delete 1\r\n%s%s", put, put)
		})
	}
}

func TestABodyThatArrivesCountsForTheAccountUntilItsClientGoes(t *testing.T) {
	s, _, _ := newAccountSim(t, 1, account.Limits{Jobs: 1})
	c, d := s.open(), s.open()
	c.expect(t, "USING acme1\r\n", "use acme1\r\nput 0 0 9 1000\r\nxxx")
	d.expect(t, "USING acme1\r\nOUT_OF_MEMORY\r\n", "use acme1\r\nput 0 0 9 1\r\nx\r\n")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	s.holds(t, "acme", account.Limits{Tubes: 1})
	d.expect(t, "INSERTED 2\r\n", "put 0 0 9 1\r\nx\r\n")
}

func TestABodyCountsForTheAccountAsItArrives(t *testing.T) {
	s, _, _ := newAccountSim(t, 2, account.Limits{Memory: 60_000})
	silent, c, d := s.open(), s.open(), s.open()
	body := strings.Repeat("x", 40_000)
	silent.expect(t, "USING acme1\r\n", "use acme1\r\nput 0 0 9 40000\r\n")
	c.expect(t, "USING acme1\r\n", "use acme1\r\nput 0 0 9 40000\r\n%s", body[:30_000])
	s.holds(t, "acme", account.Limits{Jobs: 2, Memory: 2*jobMemory + 8*bodyStep, Tubes: 1})
	silent.expect(t, "", "%s", body)
	s.holds(t, "acme", account.Limits{Jobs: 1, Memory: jobMemory + 8*bodyStep, Tubes: 1})
	c.expect(t, "INSERTED 2\r\n", "%s\r\n", body[30_000:])
	silent.expect(t, "OUT_OF_MEMORY\r\nUSING acme1\r\n", "\r\nlist-tube-used\r\n")
	d.expect(t, "USING acme1\r\n", "use acme1\r\nput 0 0 9 40000\r\n%s", body) // there is no room when its line comes
	d.expect(t, "OUT_OF_MEMORY\r\n", "\r\n")
	if a := s.engine.accountOf("acme"); a.RefusedMemory != 2 || a.Holds.Memory != jobFootprint(40_000, nil) || a.Holds.Jobs != 1 {
		t.Errorf("%+v", a)
	}
	d.expect(t, "USING default\r\nINSERTED 3\r\n", "use default\r\nput 0 0 9 40000\r\n%s\r\n", body)
}

func TestTubesAndKeysBeyondAnAccountsLimitsAreRefused(t *testing.T) {
	s, _, _ := newAccountSim(t, 1, account.Limits{Tubes: 2, Keys: 2})
	c, d := s.open(), s.open()
	c.expect(t, "USING acme1\r\nWATCHING 2\r\n", "use acme1\r\nwatch acme2\r\n")
	c.expect(t, "OUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\nUSING acme2\r\n", "use acme3\r\nwatch acme3\r\nuse acme2\r\n")
	c.expect(t, "WATCHING 3\r\nUSING beta\r\nWATCHING 4\r\n", "watch acme4\r\nuse beta\r\nwatch beta2\r\n")
	c.expect(t, "USING acme4\r\n", "use acme4\r\n")
	c.expect(t, "INSERTED 1\r\nINSERTED 2\r\n", "put 0 0 9 1 idp:a:100\r\nx\r\nput 0 0 9 1 con:b\r\nx\r\n")
	c.expect(t, "OUT_OF_MEMORY\r\nINSERTED 4\r\nINSERTED 1 READY\r\n", "put 0 0 9 1 idp:c\r\nx\r\nput 0 0 9 1 con:b\r\nx\r\nput 0 0 9 1 idp:a\r\nx\r\n")
	// A tombstone is a key as well, also when its tube has gone.
	c.expect(t, "DELETED\r\nDELETED\r\nDELETED\r\nWATCHING 3\r\nUSING default\r\n", "delete 1\r\ndelete 2\r\ndelete 4\r\nignore acme4\r\nuse default\r\n")
	if a := s.engine.accountOf("acme"); a.Holds.Tubes != 1 || a.Holds.Keys != 1 || a.RefusedTubes != 2 || a.RefusedKeys != 1 {
		t.Fatalf("%+v", a)
	}
	d.expect(t, "USING beta\r\nINSERTED 6\r\nINSERTED 7\r\n", "use beta\r\nput 0 0 9 1 idp:a\r\nx\r\nput 0 0 9 1 con:b\r\nx\r\n")
}

func TestJobsThatMoveToAnAccountCountThereOrStay(t *testing.T) {
	s, _, _ := newAccountSim(t, 1, account.Limits{Jobs: 2, Keys: 1})
	c := s.open()
	c.expect(t, "USING beta\r\n", "use beta\r\n")
	for range 4 {
		c.ask(t, "put 0 0 9 1\r\nx\r\n")
	}
	c.expect(t, "MOVED\r\nMOVED 1\r\nOUT_OF_MEMORY\r\nOUT_OF_MEMORY\r\nMOVED\r\n", "move-job 1 acme\r\nmove-tube beta ready acme 9\r\nmove-job 3 acme\r\nmove-tube beta ready acme 9\r\nmove-job 1 acme2\r\n")
	s.holds(t, "acme", account.Limits{Jobs: 2, Memory: 2 * jobFootprint(1, nil), Tubes: 2})
	s.holds(t, "beta", account.Limits{Jobs: 2, Memory: 2 * jobFootprint(1, nil), Tubes: 1})
	// A dead letter for which there is no room stays where it is.
	c.expect(t, "DLQ_SET\r\nWATCHING 2\r\nRESERVED 3 1\r\nx\r\n", "set-dlq beta 1 acme\r\nwatch beta\r\nreserve\r\n")
	c.expect(t, "OUT_OF_MEMORY\r\nTOUCHED\r\nDELETED\r\nRELEASED\r\n", "release 3 0 0\r\ntouch 3\r\ndelete 2\r\nrelease 3 0 0\r\n")
	s.holds(t, "acme", account.Limits{Jobs: 2, Memory: 2 * jobFootprint(1, nil), Tubes: 2})
	// So does a job whose keys have none.
	c.expect(t, "DELETED\r\nINSERTED 5\r\nINSERTED 6\r\nMOVED\r\nOUT_OF_MEMORY\r\n",
		"delete 1\r\nput 0 0 9 1 idp:a\r\nx\r\nput 0 0 9 1 idp:b\r\nx\r\nmove-job 5 acme\r\nmove-job 6 acme\r\n")
	if a := s.engine.accountOf("acme"); a.RefusedJobs != 4 || a.RefusedKeys != 1 {
		t.Errorf("%+v", a)
	}
}

func TestWhatIsOverALoweredLimitStaysAndNothingIsAdded(t *testing.T) {
	s, _, acme := newAccountSim(t, 1, account.Limits{})
	c := s.open()
	c.expect(t, "USING acme\r\nINSERTED 1\r\nINSERTED 2\r\n", "use acme\r\nput 0 0 9 1\r\nx\r\nput 0 0 9 1\r\nx\r\n")
	acme.SetLimits(account.Limits{Jobs: 1, Tubes: 1})
	c.expect(t, "OUT_OF_MEMORY\r\nWATCHING 2\r\nDELETED\r\nOUT_OF_MEMORY\r\nDELETED\r\nINSERTED 3\r\n",
		"put 0 0 9 1\r\nx\r\nwatch acme\r\ndelete 1\r\nput 0 0 9 1\r\nx\r\ndelete 2\r\nput 0 0 9 1\r\nx\r\n")
	acme.SetLimits(account.Limits{})
	c.expect(t, "INSERTED 4\r\n", "put 0 0 9 1\r\nx\r\n")
}

func TestTubesThatChangeTheirAccountTakeWhatIsCountedAlong(t *testing.T) {
	s, accounts, acme := newAccountSim(t, 1, account.Limits{Jobs: 2})
	c := s.open()
	c.expect(t, "USING new\r\nINSERTED 1\r\nINSERTED 2\r\n", "use new\r\nput 0 0 9 1 idp:a:100\r\nx\r\nput 0 0 9 1 idp:b:100\r\nx\r\n")
	accounts.Set([]account.Tubes{{Account: acme, Tubes: []string{"acme*", "new"}}})
	c.expect(t, "OUT_OF_MEMORY\r\nDELETED\r\n", "put 0 0 9 1\r\nx\r\ndelete 1\r\n")
	if got := s.engine.accountOf("acme").Holds; got.Jobs != 1 || got.Keys != 2 || got.Tubes != 1 {
		t.Fatalf("%+v", got)
	}
	accounts.Set(nil)
	if n := acme.Limits().Jobs; n != 2 || len(s.engine.Accounts().Snapshots()) != 0 {
		t.Fatal("accounts that are gone are still there")
	}
	c.expect(t, "INSERTED 3\r\n", "put 0 0 9 1\r\nx\r\n")
	accounts.Set([]account.Tubes{{Account: acme, Tubes: []string{"new*"}}})
	if got := s.engine.accountOf("acme").Holds; got.Jobs != 2 || got.Keys != 2 || got.Tubes != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestAPutThatIsUnderWayGoesOverWithItsTube(t *testing.T) {
	s, accounts, acme := newAccountSim(t, 1, account.Limits{})
	c := s.open()
	c.expect(t, "USING acme1\r\n", "use acme1\r\nput 0 0 9 3\r\nx")
	beta := account.New("beta", account.Limits{})
	accounts.Set([]account.Tubes{{Account: acme, Tubes: []string{"other"}}, {Account: beta, Tubes: []string{"acme*"}}})
	s.holds(t, "acme", account.Limits{Jobs: 1, Memory: jobFootprint(3, nil)})
	s.holds(t, "beta", account.Limits{Tubes: 1})
	c.expect(t, "INSERTED 1\r\n", "xx\r\n")
	s.holds(t, "acme", account.Limits{})
	s.holds(t, "beta", account.Limits{Jobs: 1, Memory: jobFootprint(3, nil), Tubes: 1})
}

func TestATombstoneThatLosesItsKeyToAMovedJobIsCountedOff(t *testing.T) {
	s, _, _ := newAccountSim(t, 1, account.Limits{})
	c := s.open()
	c.expect(t, "USING acme\r\nINSERTED 1\r\nDELETED\r\n", "use acme\r\nput 0 0 9 1 idp:a:100\r\nx\r\ndelete 1\r\n")
	c.expect(t, "USING beta\r\nINSERTED 2\r\nMOVED\r\nDELETED\r\n", "use beta\r\nput 0 0 9 1 idp:a\r\nx\r\nmove-job 2 acme\r\ndelete 2\r\n")
	s.holds(t, "acme", account.Limits{})
}

func TestAStandbyKnowsWhatAccountsHoldWhenItLeads(t *testing.T) {
	acme := account.New("acme", account.Limits{Jobs: 3})
	accounts := new(account.Accounts)
	e := New(Config{MaxJobSize: 65535, Accounts: accounts})
	defer e.Discard()
	f := e.Follow(clock.Always)
	f.Strict()
	for id := range uint64(4) {
		if _, err := f.Full(jobRecord(id+1, "acme1"), journal.Place{Segment: 1}); err != nil {
			t.Fatal(err)
		}
		if id == 1 {
			accounts.Set([]account.Tubes{{Account: acme, Tubes: []string{"acme*"}}})
		}
	}
	f.Delete(2)
	f.Serve(5, 0)
	if got, want := e.accountOf("acme").Holds, (account.Limits{Jobs: 3, Memory: 3 * jobFootprint(1, nil), Tubes: 1}); got != want {
		t.Fatalf("it holds %+v, want %+v", got, want)
	}
}

func TestAnAccountsConnectionsAreBounded(t *testing.T) {
	s, _, _ := newAccountSim(t, 2, account.Limits{Connections: 2})
	g := NewGrant("client", RightAll, []string{"*"}).In("acme")
	open := func() (c *simConn, ok bool) {
		c = &simConn{sim: s, loop: s.loops[0]}
		return c, c.loop.OpenGranted(&c.session, g, s.now)
	}
	c, ok := open()
	_, second := open()
	_, third := open()
	if !ok || !second || third {
		t.Fatalf("opened: %v, %v, %v", ok, second, third)
	}
	s.holds(t, "acme", account.Limits{Connections: 2})
	c.session.Close(s.now)
	if _, ok := open(); !ok {
		t.Error("a connection that has gone still counts")
	}
	if n := s.engine.accountOf("acme").RefusedConnections; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
}

// A client's server may be another one than that which counts, and not know the same accounts.
func TestAClientCountsForTheAccountOfThatNameWhileThereIsOne(t *testing.T) {
	s, accounts, _ := newAccountSim(t, 1, account.Limits{Connections: 1})
	name, account, rights, tubes := NewGrant("client", RightAll, []string{"b/*", "a"}).In("acme").Terms()
	g := NewGrant(name, rights, tubes).In(account)
	open := func() bool { return s.loops[0].OpenGranted(new(Session), g, s.now) }
	if !open() || open() {
		t.Error("its connections are not bounded")
	}
	accounts.Set(nil)
	if !open() {
		t.Error("an account that there is not has a limit")
	}
	if name != "client" || rights != RightAll {
		t.Errorf("it is that of %s with the rights %b", name, rights)
	}
}

// BenchmarkRecount shows how long accounts take to change, and the longest that somebody else
// waits for a tube meanwhile.
func BenchmarkRecount(b *testing.B) {
	const tubes = 1_000_000
	accounts := new(account.Accounts)
	e := New(Config{MaxJobSize: 65535, Accounts: accounts})
	defer e.Discard()
	f := e.Follow(0)
	for id := range uint64(tubes) {
		if _, err := f.Full(jobRecord(id+1, fmt.Sprint("t", id)), journal.Place{Segment: 1}); err != nil {
			b.Fatal(err)
		}
	}
	f.Serve(tubes+1, 0)
	acme, beta := account.New("acme", account.Limits{}), account.New("beta", account.Limits{})
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for n := 0; ; n++ {
			select {
			case <-stop:
				longest <- most
				return
			default:
			}
			began := time.Now()
			mu := &e.shards[n%len(e.shards)].mu
			mu.Lock()
			most = max(most, time.Since(began))
			mu.Unlock()
			time.Sleep(20 * time.Microsecond)
		}
	}()
	b.ResetTimer()
	for n := range b.N {
		if n%2 == 0 {
			accounts.Set([]account.Tubes{{Account: acme, Tubes: []string{"t*"}}, {Account: beta, Tubes: []string{"t1*"}}})
		} else {
			accounts.Set([]account.Tubes{{Account: beta, Tubes: []string{"t*"}}, {Account: acme, Tubes: []string{"t1*"}}})
		}
	}
	b.StopTimer()
	close(stop)
	b.ReportMetric(float64((<-longest).Microseconds()), "µs-longest-wait")
}
