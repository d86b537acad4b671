package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers is a server that answers each line with what says. Bodies of puts are lines too.
func answers(t *testing.T, says func(line string) string) *Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	replies := make(chan string, 10_000) // as a pipe has no buffer
	go func() {
		for r := range replies {
			if _, err := io.WriteString(theirs, r); err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(replies)
		for in := bufio.NewReader(theirs); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			replies <- says(strings.TrimSuffix(line, "\r\n"))
		}
	}()
	return New(ours, "there")
}

// script answers lines with replies, and others with UNKNOWN_COMMAND as a stock server.
func script(t *testing.T, replies map[string]string) (c *Conn, seen *[]string) {
	seen = new([]string)
	c = answers(t, func(line string) string {
		*seen = append(*seen, line)
		if r, ok := replies[line]; ok {
			return r
		}
		return "UNKNOWN_COMMAND\r\n"
	})
	return c, seen
}

func okReply(body string) string { return fmt.Sprintf("OK %d\r\n%s\r\n", len(body), body) }

func TestAServerThatTellsOfNoExtensionsIsNeverSentOne(t *testing.T) {
	ctx := t.Context()
	c, seen := script(t, map[string]string{
		"capabilities":      "UNKNOWN_COMMAND\r\n",
		"list-tube-used":    "USING default\r\n",
		"stats-tube a":      okReply("---\nname: a\n"),
		"use a":             "USING a\r\n",
		"use default":       "USING default\r\n",
		"peek-buried":       "FOUND 7 2\r\nhi\r\n",
		"kick 9":            "KICKED 3\r\n",
		"stats-tube nosuch": "NOT_FOUND\r\n",
	})
	for command, err := range map[string]error{
		"flush-tube":       second(c.FlushTube(ctx, "a")),
		"delete-tube-jobs": second(c.DeleteTubeJobs(ctx, "a", Ready, 1)),
		"move-tube":        second(c.MoveTube(ctx, "a", Ready, "b", 1)),
		"list-jobs":        second(c.ListJobs(ctx, "a", Ready, 1, 0)),
		"peek-tube":        second(c.PeekTube(ctx, "a", Reserved)),
		"reserve-batch":    second(c.Do(ctx, "reserve-batch 1 0", nil)),
		"move-job":         c.MoveJob(ctx, 1, "b"),
		"drain":            c.Drain(ctx),
		"undrain":          c.Undrain(ctx),
		"set-dlq":          c.SetDeadLetters(ctx, "a", 1, "b"),
		"list-dlq":         second(c.DeadLetters(ctx)),
		"set-tube":         c.SetTube(ctx, "a", "none"),
		"list-settings":    second(c.Settings(ctx)),
		"list-connections": second(c.Connections(ctx, 1, 0)),
		"list-accounts":    second(c.Accounts(ctx)),
		"stats-group":      second(c.StatsGroup(ctx, "g")),
		"stats-tube-x":     second(c.StatsTubeX(ctx, "t")),

		"stats-conn":   second(c.Do(ctx, "stats-conn 1", nil)),
		"idp":          second(c.Put(ctx, &NewJob{Tags: []string{"idp:k"}, Body: []byte("flush-tube a")})),
		"con":          second(c.Put(ctx, &NewJob{Tags: []string{"con:k"}, Body: []byte("flush-tube a")})),
		"touch-all":    second(c.Do(ctx, "touch-all", nil)),
		"reserve-mode": c.ReserveMode(ctx, "weighted"),
		"watch-weight": c.WatchWeight(ctx, "a", 2),
	} {
		if lacks := (*LacksError)(nil); !errors.As(err, &lacks) || lacks.Command != command {
			t.Errorf("%s: %v", command, err)
		}
	}
	if err := c.Queue(t.Context(), "put 1 1 1 1 x:y", nil); err == nil {
		t.Error("a tag was queued")
	}
	if !slices.Equal(*seen, []string{"capabilities", "list-tube-used"}) {
		t.Errorf("sent %q", *seen)
	}
	*seen = nil
	if j, err := c.PeekTube(ctx, "a", Buried); err != nil || j.ID != 7 || string(j.Body) != "hi" {
		t.Errorf("%v, %v", j, err)
	}
	if n, err := c.KickTube(ctx, "a", 9); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := c.KickTube(ctx, "nosuch", 9); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if want := "stats-tube a,use a,peek-buried,use default,stats-tube a,use a,kick 9,use default,stats-tube nosuch"; strings.Join(*seen, ",") != want {
		t.Errorf("sent %q", *seen)
	}
}

func TestAServerThatWantsATokenIsNotTakenForAStockOne(t *testing.T) {
	for name, rest := range map[string]string{"closes": "", "refuses everything": "UNKNOWN_COMMAND\r\n"} {
		c := New(&fed{rest: []byte("UNKNOWN_COMMAND\r\n" + rest)}, "there")
		if _, err := c.ListJobs(t.Context(), "a", Ready, 1, 0); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestACommandThatCouldBecomeTwoIsNotSent(t *testing.T) {
	c, seen := script(t, nil)
	for _, tube := range []string{"a\r\ndelete 1", "a\nb", "a\x00", strings.Repeat("a", 212)} {
		if err := c.Pause(t.Context(), tube, 0); !errors.Is(err, ErrLine) {
			t.Errorf("%q: %v", tube, err)
		}
	}
	if len(*seen) != 0 {
		t.Errorf("sent %q", *seen)
	}
}

func TestRepliesBecomeErrors(t *testing.T) {
	for reply, want := range map[string]string{
		"NOT_FOUND":               "not found",
		"UNKNOWN_COMMAND":         "no right to it",
		"DRAINING":                "while it drains",
		"SOMETHING else":          `"SOMETHING else" to delete`,
		"deleted":                 "not a reply",
		"":                        "not a reply",
		"HTTP/1.1 400 Bad":        "not a reply",
		"\x1b[2J":                 "not a reply",
		"FOUND 1 99999999999":     "the limit is",
		"FOUND 1 -1":              "a body of",
		"FOUND 1":                 "not a reply",
		"OK 1 2":                  "not a reply",
		"RESERVED_BATCH 1":        "not a reply",
		"OK 1\r\nab\r\n":          "longer than announced",
		"OK 5\r\na":               "unexpected EOF",
		strings.Repeat("A", 1100): "a line of more than",
		"DELETED\nX":              "not a reply",
	} {
		c := New(&fed{rest: []byte(reply + "\r\n")}, "there")
		err := c.Delete(t.Context(), 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", reply, err, want)
		}
	}
}

func TestAServerThatSaysNothingIsLeft(t *testing.T) {
	c := answers(t, func(string) string { return "" })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for range 2 { // the second time at once
		_, err := c.Stats(ctx)
		if conn := (*ConnError)(nil); !errors.As(err, &conn) || conn.Addr != "there" || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		ctx = t.Context()
	}
}

func TestPatienceEndsWhenAServerSendsNothingMore(t *testing.T) {
	c := answers(t, func(string) string { return "OK 100\r\nhalf of it" })
	c.Timeout = time.Millisecond
	if _, err := c.Stats(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestPatienceIsForEachPart(t *testing.T) {
	nc := &fed{rest: []byte(okReply("---\n" + strings.Repeat("- a\n", 100)))}
	c := New(nc, "there")
	c.Timeout = time.Hour
	if names, err := c.Tubes(t.Context()); err != nil || len(names) != 100 {
		t.Errorf("%d names, %v", len(names), err)
	}
	if nc.reads < 10 || nc.armed != nc.reads+1 { // and one write
		t.Errorf("%d reads, %d times a deadline", nc.reads, nc.armed)
	}
}

// sending is a connection that tells when it is written to, and that breaks.
type sending struct {
	net.Conn
	begun  chan struct{} // has room for one
	broken error         // nil: it does not break
	before int           // writes before that
}

func (s *sending) Write(p []byte) (int, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	if s.before--; s.before < 0 && s.broken != nil {
		return 0, s.broken
	}
	return s.Conn.Write(p)
}

func TestTheContextEndsTheSendingOfALargeBodyToo(t *testing.T) {
	ours, theirs := net.Pipe() // which nobody reads
	defer theirs.Close()
	s := &sending{Conn: ours, begun: make(chan struct{}, 1)}
	c := New(s, "there")
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-s.begun
		cancel()
	}()
	_, err := c.Put(ctx, &NewJob{Body: make([]byte, 4*bufferSize)})
	if conn := (*ConnError)(nil); !errors.As(err, &conn) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if again := c.Queue(t.Context(), "stats", nil); !errors.Is(again, err) {
		t.Errorf("afterwards: %v", again)
	}
}

func TestABodyThatCannotBeSentIsNotWaitedFor(t *testing.T) {
	broken := errors.New("broken pipe")
	for _, tt := range []struct{ size, before int }{{1, 0}, {4 * bufferSize, 0}, {4 * bufferSize, 1}, {4 * bufferSize, 2}} {
		c := New(&sending{Conn: new(fed), begun: make(chan struct{}, 1), broken: broken, before: tt.before}, "there")
		_, err := c.Put(t.Context(), &NewJob{Body: make([]byte, tt.size)})
		if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "there: sending") {
			t.Errorf("a body of %d bytes, after %d writes: %v", tt.size, tt.before, err)
		}
	}
}

func TestALongerListThanWasAskedForIsNoReply(t *testing.T) {
	list := okReply("---\n- id: 1\n- id: 2\n")
	for line, ask := range map[string]func(c *Conn) error{
		"list-jobs a ready 1":  func(c *Conn) error { return second(c.ListJobs(t.Context(), "a", Ready, 1, 0)) },
		"list-connections 1 7": func(c *Conn) error { return second(c.Connections(t.Context(), 1, 7)) },
	} {
		c, _ := script(t, map[string]string{"capabilities": okReply("---\nextensions:\n- list-jobs\n- list-connections\n"), line: list})
		if err := ask(c); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestPipelinedCommandsHaveTheirRepliesInOrder(t *testing.T) {
	const n = 2000
	c := answers(t, func(line string) string {
		if i := 0; line != "stats-tube t17" {
			fmt.Sscanf(line, "stats-tube t%d", &i)
			return okReply(fmt.Sprintf("---\nname: t%d\ntotal-jobs: %d\n", i, i))
		}
		return "NOT_FOUND\r\n"
	})
	var tubes []string
	for i := range n {
		tubes = append(tubes, fmt.Sprint("t", i))
	}
	all, err := c.StatsTubes(t.Context(), tubes)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range all {
		if i == 17 && f != nil || i != 17 && (f.Text("name") != tubes[i] || f.Uint("total-jobs") != uint64(i)) {
			t.Fatalf("%d: %v", i, f)
		}
	}
	failed := errors.New("failed")
	err = c.Pipeline(t.Context(), n, func(int) Command { return Command{Line: "stats-tube t17"} }, func(i int, _ Reply) error {
		if i == 3 {
			return failed
		}
		return nil
	})
	if f, after := c.StatsTube(t.Context(), "t5"); !errors.Is(err, failed) || after != nil || f.Text("name") != "t5" {
		t.Errorf("%v, %v, %v", err, f, after)
	}
}

func TestCapabilitiesAreWhatTheServerSays(t *testing.T) {
	c, _ := script(t, map[string]string{
		"capabilities": okReply("---\nversion: \"9\"\nmax-job-size: 77\nextensions:\n- reserve-batch\n- idp\n"),
	})
	caps, err := c.Capabilities(t.Context())
	if err != nil || caps.Version != "9" || caps.MaxJobSize != 77 || !caps.Has("idp") || caps.Has("con") {
		t.Fatalf("%+v, %v", caps, err)
	}
}

// extended is a server with every extension that answers one line.
func extended(t *testing.T, line, reply string) *Conn {
	t.Helper()
	c, _ := script(t, map[string]string{
		"capabilities": okReply("---\nextensions:\n- kick-tube\n- peek-tube\n- flush-tube\n- list-jobs\n- delete-tube-jobs\n- move-tube\n" +
			"- move-job\n- drain\n- undrain\n- set-dlq\n- list-dlq\n- set-tube\n- list-settings\n- list-connections\n- list-accounts\n- stats-group\n- stats-tube-x\n- kick-connection\n- idp\n- con\n"),
		line: reply,
	})
	return c
}

func TestCallsSendTheirCommands(t *testing.T) {
	ctx := t.Context()
	is := func(got, want any) error {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	}
	got := func(got any, err error) func(want any) error {
		return func(want any) error { return errors.Join(err, is(got, want)) }
	}
	stats := "---\nid: 7\nstate: ready\n"
	entries := "---\n- id: 7\n"
	for _, tt := range []struct {
		line, reply string
		call        func(c *Conn) error
	}{
		{"auth tr_x", "AUTHENTICATED\r\n", func(c *Conn) error { return c.Auth(ctx, "tr_x") }},
		{"list-tubes", okReply("---\n- a\n- b\n"), func(c *Conn) error { return got(c.Tubes(ctx))([]string{"a", "b"}) }},
		{"stats", okReply(stats), func(c *Conn) error { f, err := c.Stats(ctx); return got(f.Text("id"), err)(7) }},
		{"stats-tube a", okReply(stats), func(c *Conn) error { f, err := c.StatsTube(ctx, "a"); return got(f.Text("state"), err)("ready") }},
		{"stats-job 7", okReply(stats), func(c *Conn) error { f, err := c.StatsJob(ctx, 7); return got(f.Uint("id"), err)(7) }},
		{"list-connections 5 6", okReply(entries), func(c *Conn) error { l, err := c.Connections(ctx, 5, 6); return got(l[0].Uint("id"), err)(7) }},
		{"stats-group g", okReply("---\nname: \"g\"\npending: 7\n"), func(c *Conn) error { f, err := c.StatsGroup(ctx, "g"); return got(f.Uint("pending"), err)(7) }},
		{"list-accounts", okReply("---\n- name: \"17\"\n  patterns: \"18\"\n  jobs: 7\n"), func(c *Conn) error {
			l, err := c.Accounts(ctx)
			return got(l, err)("[[{name {0 17 []}} {patterns {0 18 []}} {jobs {1 7 []}}]]")
		}},
		{"list-jobs a ready 5", okReply(entries), func(c *Conn) error { l, err := c.ListJobs(ctx, "a", Ready, 5, 0); return got(l[0].Uint("id"), err)(7) }},
		{"list-jobs a buried 5 6", okReply(entries), func(c *Conn) error { l, err := c.ListJobs(ctx, "a", Buried, 5, 6); return got(l[0].Uint("id"), err)(7) }},
		{"list-dlq", okReply(entries), func(c *Conn) error { l, err := c.DeadLetters(ctx); return got(l[0].Uint("id"), err)(7) }},
		{"set-dlq a 3 b", "DLQ_SET\r\n", func(c *Conn) error { return c.SetDeadLetters(ctx, "a", 3, "b") }},
		{"list-settings t", okReply(entries), func(c *Conn) error { f, err := c.Setting(ctx, "t"); return got(f.Uint("id"), err)(7) }},
		{"list-settings t", okReply("---\n"), func(c *Conn) error { f, err := c.Setting(ctx, "t"); return got(uint64(len(f)), err)(0) }},
		{"stats-tube-x t", okReply("---\nlimited-for: 7\n"), func(c *Conn) error { f, err := c.StatsTubeX(ctx, "t"); return got(f.Uint("limited-for"), err)(7) }},
		{"list-settings", okReply(entries), func(c *Conn) error { l, err := c.Settings(ctx); return got(l[0].Uint("id"), err)(7) }},
		{"set-tube a rate=1 burst=2", "TUBE_SET\r\n", func(c *Conn) error { return c.SetTube(ctx, "a", "rate=1", "burst=2") }},
		{"drain", "DRAINING\r\n", func(c *Conn) error { return c.Drain(ctx) }},
		{"undrain", "NOT_DRAINING\r\n", func(c *Conn) error { return c.Undrain(ctx) }},
		{"peek 7", "FOUND 7 2\r\nhi\r\n", func(c *Conn) error { return got(c.Peek(ctx, 7))(Job{7, []byte("hi")}) }},
		{"peek-tube a reserved", "FOUND 7 2\r\nhi\r\n", func(c *Conn) error { return got(c.PeekTube(ctx, "a", Reserved))(Job{7, []byte("hi")}) }},
		{"reserve-job 7", "RESERVED 7 2\r\nhi\r\n", func(c *Conn) error { return got(c.ReserveJob(ctx, 7))(Job{7, []byte("hi")}) }},
		{"reserve-with-timeout 5", "RESERVED 7 2\r\nhi\r\n", func(c *Conn) error { return got(c.Reserve(ctx, 5))(Job{7, []byte("hi")}) }},
		{"reserve-with-timeout 6", "TIMED_OUT\r\n", func(c *Conn) error { return is(second(c.Reserve(ctx, 6)), ErrNotFound) }},
		{"reserve-with-timeout 7", "DEADLINE_SOON\r\n", func(c *Conn) error { return is(second(c.Reserve(ctx, 7)), ErrDeadlineSoon) }},
		{"kick-connection 5", "KICKED\r\n", func(c *Conn) error { return c.KickConnection(ctx, 5) }},
		{"kick-tube a 5", "KICKED 3\r\n", func(c *Conn) error { return got(c.KickTube(ctx, "a", 5))(3) }},
		{"delete 7", "DELETED\r\n", func(c *Conn) error { return c.Delete(ctx, 7) }},
		{"delete-tube-jobs a ready 5", "DELETED 3\r\n", func(c *Conn) error { return got(c.DeleteTubeJobs(ctx, "a", Ready, 5))(3) }},
		{"flush-tube a", "FLUSHED 3\r\n", func(c *Conn) error { return got(c.FlushTube(ctx, "a"))(3) }},
		{"move-job 7 b", "MOVED\r\n", func(c *Conn) error { return c.MoveJob(ctx, 7, "b") }},
		{"move-tube a delayed b 5", "MOVED 3\r\n", func(c *Conn) error { return got(c.MoveTube(ctx, "a", Delayed, "b", 5))(3) }},
		{"bury 7 5", "BURIED\r\n", func(c *Conn) error { return c.Bury(ctx, 7, 5) }},
		{"release 7 5 6", "RELEASED\r\n", func(c *Conn) error { return c.Release(ctx, 7, 5, 6) }},
		{"touch 7", "TOUCHED\r\n", func(c *Conn) error { return c.Touch(ctx, 7) }},
		{"pause-tube a 5", "PAUSED\r\n", func(c *Conn) error { return c.Pause(ctx, "a", 5) }},
		{"watch a", "WATCHING 2\r\n", func(c *Conn) error { return c.Watch(ctx, "a") }},
		{"ignore a", "WATCHING 1\r\n", func(c *Conn) error { return c.Ignore(ctx, "a") }},
		{"use a", "USING a\r\n", func(c *Conn) error { return c.Use(ctx, "a") }},
		{"put 1 2 3 0", "INSERTED 7\r\n", func(c *Conn) error { return got(c.Put(ctx, &NewJob{Pri: 1, Delay: 2, TTR: 3}))(Inserted{ID: 7}) }},
		{"put 1 2 3 0 idp:k:9 con:c", "INSERTED 7 READY 1\r\n", func(c *Conn) error {
			return got(c.Put(ctx, &NewJob{Pri: 1, Delay: 2, TTR: 3, Tags: []string{"idp:k:9", "con:c"}}))(Inserted{ID: 7, Duplicate: "READY"})
		}},
		{"put 0 0 0 0", "BURIED 7\r\n", func(c *Conn) error { return got(c.Put(ctx, &NewJob{}))(Inserted{ID: 7, Buried: true}) }},
	} {
		if err := tt.call(extended(t, tt.line, tt.reply)); err != nil {
			t.Errorf("%s: %v", tt.line, err)
		}
	}
}
