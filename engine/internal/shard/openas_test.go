package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"trellis/engine/account"
	"trellis/engine/internal/reply"
)

// An idScript is clients of a sim who do anything, and are told of each other by their numbers and
// not by the ids of their sessions.
type idScript struct {
	*sim
	rng  *rand.Rand
	told strings.Builder
}

// id is that of the nth client's session.
func (p *idScript) id(n int) uint64 { return p.conns[n].session.number() }

// command is anything that somebody says.
func (p *idScript) command() string {
	r := p.rng
	tube, job := fmt.Sprint("t", r.IntN(3)), 1+r.IntN(40)
	switch r.IntN(16) {
	case 0, 1, 2:
		return fmt.Sprintf("use %s\r\nput %d %d %d 1\r\nx\r\n", tube, r.IntN(5), r.IntN(2), 1+r.IntN(4))
	case 3:
		return fmt.Sprintf("watch %s\r\nreserve\r\n", tube)
	case 4:
		return fmt.Sprintf("watch %s\r\nreserve-with-timeout %d\r\n", tube, r.IntN(3))
	case 5:
		return "reserve-batch 3 1\r\n"
	case 6:
		return fmt.Sprintf("reserve-job %d\r\ntouch %d\r\n", job, job)
	case 7:
		return fmt.Sprintf("release %d 0 %d\r\nignore default\r\n", job, r.IntN(2))
	case 8:
		return fmt.Sprintf("delete %d\r\ndelete %d\r\n", job, 1+r.IntN(40))
	case 9:
		return fmt.Sprintf("bury %d 0\r\nuse %s\r\nkick 2\r\n", job, tube)
	case 10:
		return "list-connections\r\n"
	case 11, 12:
		return fmt.Sprintf("stats-conn %d\r\n", p.id(r.IntN(len(p.conns))))
	case 13:
		return "stats-conn\r\nlist-tubes-watched\r\n"
	case 14:
		return fmt.Sprintf("kick-connection %d\r\n", p.id(r.IntN(len(p.conns))))
	}
	return "stats\r\n"
}

var (
	toldSession = regexp.MustCompile(`(?m)^(- )?id: (\d+)$`)
	byteCounts  = regexp.MustCompile(`(?m)^ *(bytes-in|bytes-out): \d+\n`) // ids have different lengths
	okLine      = regexp.MustCompile(`OK \d+`)
)

// plain is a reply without ids of sessions, and connections in the order in which they were opened.
func (p *idScript) plain(reply string) string {
	reply = toldSession.ReplaceAllStringFunc(reply, func(line string) string {
		m := toldSession.FindStringSubmatch(line)
		id, _ := strconv.ParseUint(m[2], 10, 64)
		n := slices.IndexFunc(p.conns, func(c *simConn) bool { return c.session.number() == id })
		return fmt.Sprintf("%sid: client %06d", m[1], n)
	})
	reply = okLine.ReplaceAllString(byteCounts.ReplaceAllString(reply, ""), "OK")
	parts := strings.Split(reply, "\r\n") // of which some are lists
	for i, part := range parts {
		head, list, _ := strings.Cut(part, "- id: ")
		if list != "" {
			entries := strings.Split(list, "- id: ")
			slices.Sort(entries)
			parts[i] = head + "- id: " + strings.Join(entries, "- id: ")
		}
	}
	return strings.Join(parts, "\r\n")
}

// play has the clients do that many things, and returns what they are told.
func (p *idScript) play(t *testing.T, steps int) string {
	for step := range steps {
		if len(p.conns) < 3 || p.rng.IntN(12) == 0 {
			p.open()
		}
		c := p.conns[p.rng.IntN(len(p.conns))]
		what, commands := p.rng.IntN(20), p.command()
		switch {
		case c.ended:
		case what == 0:
			_ = c.Close()
		case what == 1:
			if err := c.HalfClose(); err != nil {
				t.Fatal(err)
			}
		case !c.eof:
			if err := c.Send([]byte(commands)); err != nil {
				t.Fatal(err)
			}
		}
		p.Wait(time.Duration(p.rng.IntN(700)) * time.Millisecond)
		for i, c := range p.conns {
			if len(c.out.Buf) > 0 {
				fmt.Fprintf(&p.told, "%d: client %d: %s", step, i, p.plain(string(c.out.Buf)))
				c.session.Replied(len(c.out.Buf), new(reply.Output))
				c.out.Buf = nil
			}
		}
	}
	sessions := make([]*Session, 0, len(p.conns))
	for _, c := range p.conns {
		if !c.ended {
			sessions = append(sessions, &c.session)
		}
	}
	for _, err := range (&census{engine: p.engine, sessions: sessions}).run() {
		t.Error(err)
	}
	return p.told.String()
}

// Whatever ids sessions have, and in whatever order, clients are told the same, apart from ids.
func TestClientsAreToldTheSameWhateverIdsTheirSessionsHave(t *testing.T) {
	seeds, steps := uint64(5), 250
	if proof {
		seeds, steps = 100, 500
	}
	for seed := range seeds {
		play := func(setUp func(s *sim)) []string {
			// Of more shards it would be chance which of them has a job for a client first.
			s := newConfiguredSim(Config{MaxJobSize: 1000, Shards: 1}, 1+int(seed%3))
			defer func() { s.engine.Discard() }()
			setUp(s)
			p := idScript{sim: s, rng: rand.New(rand.NewPCG(seed, 1))}
			return strings.SplitAfter(p.play(t, steps), "\n")
		}
		ids := func() func(int) uint64 {
			r, given := rand.New(rand.NewPCG(seed, 2)), map[uint64]bool{}
			return func(int) uint64 {
				for {
					if id := sessionID(1+r.Uint32N(3), 1+r.Uint64N(1000)); !given[id] {
						given[id] = true
						return id
					}
				}
			}
		}
		want := play(func(*sim) {})
		for name, setUp := range map[string]func(s *sim){
			"in any order": func(s *sim) { s.ids = ids() },
			"in any order, on record": func(s *sim) {
				s.onRecord(&tape{file: newFile(nil)})
				s.ids = ids()
			},
		} {
			got := play(setUp)
			for i := range want {
				if i >= len(got) || want[i] != got[i] {
					t.Fatalf("seed %d, ids %s: line %d is %.200q, want %.200q", seed, name, i, got[min(i, len(got)-1)], want[i])
				}
			}
		}
	}
}

func TestASessionIsNotOpenedUnderAnIdThatIsTaken(t *testing.T) {
	s := newSim(100, 2)
	team := account.New("a", account.Limits{Connections: 2})
	var accounts account.Accounts
	accounts.Set([]account.Tubes{{Account: team, Tubes: []string{"*"}}})
	s.engine.accounts.Open(&accounts, s.engine.recount)
	g := NewGrant("a", RightAll, []string{"*"}).In(team.Name())
	a, b := s.loops[0], s.loops[1]
	var first, second, third Session
	if err := a.OpenAs(&first, sessionID(3, 5), g, 0); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Grant{g, nil} {
		if err := b.OpenAs(&second, sessionID(3, 5), g, 0); !errors.Is(err, ErrSessionID) {
			t.Errorf("a second session of that id: %v", err)
		}
	}
	if err := b.OpenAs(&second, sessionID(3, 4), g, 0); err != nil {
		t.Errorf("another id, after one that was taken: %v", err)
	}
	if err := b.OpenAs(&third, sessionID(3, 6), g, 0); !errors.Is(err, ErrConnections) {
		t.Errorf("a third connection of two: %v", err)
	}
	if n := s.engine.Snapshot(0).Connections; n != 2 {
		t.Errorf("%d sessions are open, want 2", n)
	}
	first.Close(0)
	if err := b.OpenAs(&third, sessionID(3, 6), g, 0); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}

// A client that goes on keeps its connection, although its account has got fewer, or others have come meanwhile.
func TestASessionGoesOnHoweverManyItsAccountMayHave(t *testing.T) {
	s, _ := numberedSim(t, 1)
	team := account.New("a", account.Limits{Connections: 1})
	var accounts account.Accounts
	accounts.Set([]account.Tubes{{Account: team, Tubes: []string{"*"}}})
	s.engine.accounts.Open(&accounts, s.engine.recount)
	g := NewGrant("a", RightAll, []string{"*"}).In(team.Name())
	l := s.loops[0]
	var other, on, late Session
	if err := l.OpenAs(&other, sessionID(1, 100), g, s.now); err != nil {
		t.Fatal(err)
	}
	d, err := Absent(sessionID(1, 99), g, plain, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.GoOn(&on, d, 0, s.now); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
	other.Close(s.now)
	if err := l.OpenAs(&late, sessionID(1, 101), g, s.now); !errors.Is(err, ErrConnections) {
		t.Errorf("another one comes beside it: %v", err)
	}
	on.Close(s.now)
	if err := l.OpenAs(&late, sessionID(1, 102), g, s.now); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
}

// withoutHolds is a journal that is read by servers that do not know of reservations.
type withoutHolds struct{ heldTape }

func (withoutHolds) RecordsHolds() bool { return false }

// What it reserves would be lost to the others.
func TestNoSessionOfAnotherMemberIsOpenedBeforeAllMembersReadOfReservations(t *testing.T) {
	s := newSim(100, 1)
	s.engine.recordIn(withoutHolds{heldTape{&tape{file: newFile(nil)}}})
	var x Session
	if err := s.loops[0].OpenAs(&x, sessionID(1, 1), nil, 0); !errors.Is(err, ErrNoHolds) {
		t.Errorf("got %v", err)
	}
	s.engine.recordIn(heldTape{&tape{file: newFile(nil)}})
	if err := s.loops[0].OpenAs(&x, sessionID(1, 1), nil, 0); err != nil {
		t.Errorf("when they do: %v", err)
	}
}

func TestAConnectionShowsTheMemberThroughWhichItComes(t *testing.T) {
	s := newSim(100, 1)
	own, other := s.open(), s.open()
	other.via = "b"
	list := own.say("list-connections")
	if want := "- id: 2\n  addr: \"[::1]:12345\"\n  via: \"b\"\n  tube: default\n"; !strings.Contains(list, want) || strings.Count(list, "via") != 1 {
		t.Errorf("got %q, want that in it: %q", list, want)
	}
	if got := other.say("stats-conn"); !strings.Contains(got, "\nvia: \"b\"\n") {
		t.Errorf("got %q", got)
	}
	if got := own.say("stats-conn"); strings.Contains(got, "via") {
		t.Errorf("a client of this server: %q", got)
	}
}
