package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// trellisWith is trellis with a standard input.
func trellisWith(t *testing.T, input string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// transcript runs commands on a server, and writes what they say as a terminal would show it.
type transcript struct {
	t    *testing.T
	s    *queueServer
	text strings.Builder
}

func (tr *transcript) run(input string, args ...string) {
	tr.t.Helper()
	out, errs, status := trellisWith(tr.t, input, append([]string{args[0], "-a", tr.s.addr}, args[1:]...)...)
	fmt.Fprintf(&tr.text, "$ trellis %s\n%s", strings.Join(args, " "), strings.ReplaceAll(out+errs, tr.s.addr, "SERVER"))
	if status != 0 {
		fmt.Fprintf(&tr.text, "exit status %d\n", status)
	}
}

func TestPutSaysWhatHasBecomeOfItsJobs(t *testing.T) {
	onBothServers(t, func(t *testing.T, s *queueServer) {
		tr := &transcript{t: t, s: s}
		tr.run("", "put", "hello")
		tr.run("from\nstandard input\n", "put", "-t", "t", "-p", "5", "-d", "1m40s", "--ttr", "9", "-", "-o", "json")
		tr.run("one\ntwo\n\nfour", "put", "-t", "lines", "--lines")
		tr.run("one\n"+strings.Repeat("x", 70_000)+"\nthree\n", "put", "-t", "lines", "--lines", "-o", "json")
		tr.run(`{"body":"a","tube":"x","pri":3}`+"\n"+`{"body":"b","prio":3}`+"\n\n"+`{"body-base64":"/w==","tube":"bad name"}`+"\n"+`{"body-base64":"/w=="}`, "put", "--ndjson")
		tr.run(strings.Repeat("x", 70_000), "put")
		tr.run("", "put", "--lines", "body")
		tr.run("", "put", "-t", "bad name", "body")
		tr.run("", "put", "--unique", "-k", "body")
		tr.run("", "put", "--unique", "k:x", "body")
		tr.run("", "put", "--ttr", "1500ms", "body")
		tr.run("", "put", "--group", "", "body")
		tr.run("", "put", "--fair", strings.Repeat("k", 65), "body")
		tr.run("", "put", "--after", "g", "--after-settled", "h", "body")
		tr.run("", "put", "--group", "g", "--after-settled", "g", "body")
		long := strings.Repeat("k", 64)
		tr.run("", "put", "--unique", long, "--group", long, "--fair", long, "body")
		tr.run("", "put", "--pri", "-1", "body")
		golden(t, "testdata/put.txt", tr.text.String())

		c := s.dial()
		for id, want := range map[int]string{
			1: "hello", 2: "from\nstandard input\n", 3: "one", 4: "two", 5: "", 6: "four", 7: "one", 8: "three", 9: "a", 10: "\xff",
		} {
			if r := c.reply(fmt.Sprintf("peek %d", id)); string(r.Body) != want {
				t.Errorf("job %d: %q, want %q", id, r.Body, want)
			}
		}
		for key, want := range map[string]string{"pri": "5", "delay": "100", "ttr": "9", "tube": `"t"`, "state": "delayed"} {
			if got := c.stat("stats-job 2", key); got != want && got != strings.Trim(want, `"`) {
				t.Errorf("%s is %s, want %s", key, got, want)
			}
		}
	})
}

func TestPutWithATagSendsNothingToAStockServer(t *testing.T) {
	s := startStock(t)
	for option, tag := range map[string]string{
		"--unique": "idp", "--group": "grp", "--after": "aft", "--after-settled": "aft", "--fair": "fair", "--expire": "exp",
	} {
		for _, args := range [][]string{{"put 0 0 1 1\r\na\r\n"}, {"--lines"}} {
			if option == "--unique" && args[0] == "--lines" {
				continue
			}
			_, errs, status := trellisWith(t, "put 0 0 1 1\r\na\r\n", append([]string{"put", "-a", s.addr, option, "7"}, args...)...)
			if status != exitRefused || !strings.Contains(errs, "the command "+tag+",") {
				t.Errorf("%s: status %d: %s", option, status, errs)
			}
		}
	}
	if n := s.dial().stat("stats", "total-jobs"); n != "0" {
		t.Errorf("%s jobs", n)
	}
}

func TestAPutWhoseLineIsTooLongIsNotSent(t *testing.T) {
	s := startServer(t)
	long := strings.Repeat("k", 64)
	// With a size of one digit the line has 224 bytes.
	args := []string{"put", "-a", s.addr, "-p", "4294967295", "--group", long, "--fair", long}
	most := append(slices.Clone(args), "--unique", long[:57])
	if out, errs, status := trellisWith(t, "delete 100", most...); status != exitRefused || !strings.Contains(errs, "would have 225 bytes") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if out, errs, status := trellisWith(t, "delete 1", most...); status != 0 {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	lines := fmt.Sprintf(`{"body":"a","key":"%s"}`+"\n"+`{"body":"b","key":"%[1]s","key-seconds":1234567}`+"\n"+`{"body":"c"}`, long[:50])
	out, errs, status := trellisWith(t, lines, append(args, "--ndjson")...)
	if status != exitRefused || out != "2 jobs put, 1 refused\n" || !strings.HasPrefix(errs, "line 2: the line of the put would have 225 bytes") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	c := s.dial()
	if n := c.stat("stats", "total-jobs"); n != "3" {
		t.Errorf("%s jobs", n)
	}
	if n := c.stat("stats-group "+long, "pending"); n != "3" {
		t.Errorf("%s jobs in the group", n)
	}
}

func TestPutStopsAtAServerThatDrains(t *testing.T) {
	s := startServer(t)
	s.dial().do("drain")
	_, errs, status := trellisWith(t, strings.Repeat("x\n", 100_000), "put", "-a", s.addr, "--lines")
	if status != exitRefused || !strings.HasPrefix(errs, "line 1: ") || !strings.Contains(errs, "DRAINING") || !strings.Contains(errs, "nothing behind line") {
		t.Errorf("status %d: %.300s", status, errs)
	}
	if n := s.dial().stat("stats", "cmd-put"); len(n) > 4 {
		t.Errorf("%s puts were sent", n)
	}
}

// ending serves so many lines that ask for something, as a stock server would, and closes the connection after the next one.
func ending(t *testing.T, lines int) (addr string) {
	return serveEach(t, listen(t), func(c net.Conn) {
		in := bufio.NewScanner(c)
		for in.Scan() {
			answer := "UNKNOWN_COMMAND"
			switch word, _, _ := strings.Cut(in.Text(), " "); word {
			case "list-tube-used":
				answer = "USING default"
			case "stats", "stats-tube":
				answer = "OK 28\r\n---\ncurrent-jobs-buried: 10\n"
			case "use":
				answer = "USING t"
			case "peek-buried":
				answer = fmt.Sprintf("FOUND %d 1\r\na", lines)
			case "delete", "put":
				if word == "put" {
					in.Scan()
				}
				if lines--; lines < 0 {
					return
				}
				answer = map[string]string{"delete": "DELETED", "put": "INSERTED 7"}[word]
			}
			if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
				return
			}
		}
	})
}

func TestWhatWasDoneIsToldWhenTheConnectionIsLost(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"put --lines", "the server has closed the connection; it is not known of 2 jobs, line 3 and what follows up to line 4, whether they were put"},
		{"put --lines -t t", "the server has closed the connection; it is not known of 2 jobs, line 3 and what follows up to line 4, whether they were put"},
		{"delete --tube t --state buried --count all", "the server has closed the connection (at least 2 buried jobs deleted before)"},
		{"clear t --state buried --yes", "the server has closed the connection (2 jobs deleted before)"},
	} {
		addr := ending(t, 2)
		_, errs, status := trellisWith(t, "a\nb\nc\nd\n", append(strings.Fields(tt.args), "-a", addr)...)
		if want := "trellis: " + addr + ": " + tt.want + "\n"; status != exitUnreachable || errs != want {
			t.Errorf("%s: status %d, want %q\n%s", tt.args, status, want, errs)
		}
	}
}

func TestAnInterruptedPutTellsWhatItHasDone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	c := s.dial()
	for _, tt := range []struct{ input, want string }{
		{"", `interrupted\n`},
		// The server has put them before the command hears of it.
		{"a\nb\n", `interrupted; (nothing behind line 2 was sent|it is not known of .*, line [12] and what follows up to line 2, whether they were put)\n`},
	} {
		eventually(t, "nobody else is connected", func() bool { return c.stat("stats", "current-connections") == "1" })
		cmd := exec.CommandContext(t.Context(), self, "put", "-a", s.addr, "--lines")
		cmd.Env = append(os.Environ(), mainEnv+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, tt.input); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has connected, and put the lines", func() bool {
			return c.stat("stats", "current-connections") == "2" && c.stat("stats", "total-jobs") == fmt.Sprint(strings.Count(tt.input, "\n"))
		})
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile("^trellis: " + regexp.QuoteMeta(s.addr) + ": " + tt.want + "$")
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted || !want.MatchString(errs.String()) {
			t.Errorf("%v, %q, want %q", cmd.ProcessState, errs.String(), want)
		}
	}
}

func TestPutTakesLinesOrObjects(t *testing.T) {
	if _, errs, status := trellis(t, "put", "--lines", "--ndjson", "-a", "127.0.0.1:1"); status != exitUsage || !strings.Contains(errs, "give either --lines or --ndjson") {
		t.Errorf("status %d: %s", status, errs)
	}
}

func TestAnInterruptedImportTellsOfJobsThatMayNotBeBuried(t *testing.T) {
	burials := 0
	addr := serveEach(t, listen(t), func(c net.Conn) {
		for in := bufio.NewScanner(c); in.Scan(); {
			answer := "UNKNOWN_COMMAND"
			switch word, _, _ := strings.Cut(in.Text(), " "); word {
			case "list-tube-used":
				answer = "USING default"
			case "use":
				answer = "USING t"
			case "put":
				in.Scan()
				answer = "INSERTED 7"
			case "reserve-job":
				answer = "RESERVED 7 1\r\na"
			case "bury":
				if burials++; burials == 2 {
					return
				}
				answer = "BURIED"
			}
			if _, err := io.WriteString(c, answer+"\r\n"); err != nil {
				return
			}
		}
	})
	const line = `{"tube":"t","state":"buried","body":"a"}` + "\n"
	_, errs, status := trellisWith(t, strings.Repeat(line, 3), "import", "-a", addr)
	want := "trellis: " + addr + ": the server has closed the connection; nothing behind line 3 was sent; of those that were put, it is not known of 2 jobs whether they were buried\n"
	if status != exitUnreachable || errs != want {
		t.Errorf("status %d, want %q\n%s", status, want, errs)
	}
}

func TestExportSaysOnceThatItsOutputIsFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	body := strings.Repeat("x", 60_000)
	for range 3 { // more than is written at once
		s.dial().put("t", "0", "0", "60", body)
	}
	cmd := exec.CommandContext(t.Context(), self, "export", "-a", s.addr, "t")
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &errs
	_ = cmd.Run()
	if status := cmd.ProcessState.ExitCode(); status != 1 || strings.Count(errs.String(), "no space left") != 1 {
		t.Errorf("status %d: %s", status, errs.String())
	}
}

func TestWhatIsExportedCanBeImported(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.put("t", "5", "0", "60", "buried")
	c.put("t", "6", "0", "60", "buried \xff")
	for id, pri := range []string{1: "5", 2: "6"} {
		if id > 0 {
			c.do(fmt.Sprint("reserve-job ", id))
			c.do(fmt.Sprint("bury ", id, " ", pri))
		}
	}
	c.put("t", "9", "0", "60", "last")
	c.put("t", "0", "0", "7", "first")
	c.put("t", "9", "0", "60", "behind last \x1b[31m\u202e")
	c.put("t", "2", "1000", "60", "delayed")
	c.put("t", "1", "0", "1000", "reserved")
	c.do("reserve-job 7")

	out, errs, status := trellis(t, "export", "-a", s.addr, "t")
	if status != 0 || errs != "" || strings.Count(out, "\n") != 7 || strings.ContainsAny(out, "\x1b\u202e") {
		t.Fatalf("status %d: %s\n%s", status, errs, out)
	}
	if n := c.stat("stats-tube t", "current-jobs-ready"); n != "3" {
		t.Errorf("%s ready jobs after the export", n)
	}

	onBothServers(t, func(t *testing.T, other *queueServer) {
		file := filepath.Join(t.TempDir(), "jobs")
		if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		said, errs, status := trellis(t, "import", "-a", other.addr, file)
		if status != 0 || said != "7 jobs put\n" {
			t.Fatalf("status %d: %s%s", status, said, errs)
		}
		c := other.dial()
		for state, want := range map[string]string{"ready": "4", "delayed": "1", "buried": "2"} {
			if n := c.stat("stats-tube t", "current-jobs-"+state); n != want {
				t.Errorf("%s %s jobs, want %s", n, state, want)
			}
		}
		c.do("watch t")
		for _, want := range []string{"first", "reserved", "last", "behind last \x1b[31m\u202e"} {
			if r := c.reply("reserve-with-timeout 0"); string(r.Body) != want {
				t.Errorf("%q, want %q", r.Body, want)
			}
		}
		c.do("use t")
		if r := c.reply("peek-buried"); string(r.Body) != "buried" || c.stat("stats-job "+r.Args[0], "pri") != "5" {
			t.Errorf("%q", r.Body)
		}
		if r := c.reply("peek-delayed"); string(r.Body) != "delayed" || len(c.stat("stats-job "+r.Args[0], "delay")) < 3 {
			t.Errorf("%q", r.Body)
		}
	})

	_, errs, status = trellisWith(t, `{"body":"a"}`, "import", "-a", s.addr)
	if status != exitRefused || !strings.Contains(errs, "line 1: there is no tube in it") {
		t.Errorf("status %d: %s", status, errs)
	}
}

func TestExportReadsManyPages(t *testing.T) {
	s := startServer(t)
	var bodies strings.Builder
	for i := range 2500 {
		fmt.Fprintln(&bodies, i)
	}
	if _, errs, status := trellisWith(t, bodies.String(), "put", "-a", s.addr, "-t", "t", "--lines"); status != 0 {
		t.Fatal(errs)
	}
	out, errs, status := trellis(t, "export", "-a", s.addr, "t", "--state", "ready")
	if status != 0 || strings.Count(out, "\n") != 2500 || !strings.Contains(out, `"id":2500,`) {
		t.Errorf("status %d, %d lines: %s", status, strings.Count(out, "\n"), errs)
	}
}

func TestExportSaysWhatItCannotDo(t *testing.T) {
	s, stock := startServer(t), startStock(t)
	stock.dial().put("t", "0", "0", "1", "a")
	for _, tt := range []struct {
		s      *queueServer
		args   string
		status int
		want   string
	}{
		{stock, "t", exitRefused, "list-jobs"},
		{stock, "u", exitNothing, `no tube "u"`},
		{s, "u", exitNothing, `no tube "u"`},
		{s, "default", exitNothing, "no such job"},
		{s, "default --state asleep", exitUsage, "asleep"},
		{s, "bad! name", exitUsage, ""},
	} {
		out, errs, status := trellis(t, append([]string{"export", "-a", tt.s.addr}, strings.Fields(tt.args)...)...)
		if status != tt.status || out != "" || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: status %d, want %d: %s%s", tt.args, status, tt.status, out, errs)
		}
	}
}
