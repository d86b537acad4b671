package producer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"trellis/cmd/internal/client"
	"trellis/cmd/trellis/internal/jobfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeServer takes jobs. Its fields are to be read when the connection has ended.
type fakeServer struct {
	put    []string                        // tube, put command and body of each job
	refuse func(n int, body string) string // the reply to the n-th put if it is not ""; "hang up" ends the connection
	done   chan struct{}                   // closed when the connection has ended
	others []string                        // further commands
}

// dial connects to a server.
func (s *fakeServer) dial(t testing.TB) *client.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.done = make(chan struct{})
	go s.serve(theirs)
	return client.New(ours, "server")
}

func (s *fakeServer) serve(nc net.Conn) {
	defer close(s.done)
	defer nc.Close()
	tube, id := "default", 0
	for in := bufio.NewReader(nc); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\r\n")
		words := strings.Fields(line)
		reply := "UNKNOWN_COMMAND"
		switch words[0] {
		case "use":
			tube = words[1]
			if reply = "USING " + tube; tube == "forbidden" {
				reply = "UNKNOWN_COMMAND"
			}
		case "put":
			size, _ := strconv.Atoi(words[4])
			body := make([]byte, size+2)
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			id++
			if reply = s.refuse(id, string(body[:size])); reply == "hang up" {
				return
			}
			if reply == "" || strings.HasPrefix(reply, "INSERTED") {
				s.put = append(s.put, tube+" "+line+" "+string(body[:size]))
			}
			if reply == "" {
				reply = fmt.Sprintf("INSERTED %d", id)
			}
		case "reserve-job":
			s.others = append(s.others, line)
			reply = "RESERVED " + words[1] + " 1\r\nx"
		case "bury":
			s.others = append(s.others, line)
			reply = "BURIED"
		}
		if _, err := io.WriteString(nc, reply+"\r\n"); err != nil {
			return
		}
	}
}

func taken(int, string) string { return "" }

// run puts what a source has, and returns what was refused.
func run(t testing.TB, s *fakeServer, source Source) (sum Summary, refused []string, err error) {
	c := s.dial(t)
	p := Producer{Conn: c, MaxBody: 1000, Refused: func(r *Refusal) { refused = append(refused, r.Error()) }}
	sum, err = p.Run(t.Context(), source)
	c.Close()
	<-s.done
	return sum, refused, err
}

func lines(text string) Source {
	return NewLines(strings.NewReader(text), Job{Tube: "t", NewJob: client.NewJob{Pri: 1, Delay: 2, TTR: 3}}, 1000)
}

func TestEveryLineIsPutInOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bodies := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.StringMatching(`[a-z\r ]{0,3}`).Draw(t, "word"), rapid.IntRange(0, 500).Draw(t, "times"))
		}), 0, 60).Draw(r, "bodies")
		again := rapid.IntRange(1, 60).Draw(r, "again") // so many times, for more than one batch
		var text strings.Builder
		var want, refusals []string
		n := 0
		for range again {
			for _, body := range bodies {
				n++
				text.WriteString(body + "\n")
				if len(body) > 1000 {
					refusals = append(refusals, fmt.Sprintf("line %d: ", n))
				} else {
					want = append(want, fmt.Sprintf("t put 1 2 3 %d %s", len(body), body))
				}
			}
		}
		s := &fakeServer{refuse: taken}
		sum, refused, err := run(t, s, lines(text.String()))
		if err != nil {
			r.Fatal(err)
		}
		if strings.Join(s.put, "\n") != strings.Join(want, "\n") {
			r.Fatalf("%q\nwant\n%q", s.put, want)
		}
		if sum.Put != uint64(len(want)) || sum.Refused != uint64(len(refusals)) || sum.Unknown != 0 {
			r.Fatalf("%+v", sum)
		}
		for i := range refusals {
			if !strings.HasPrefix(refused[i], refusals[i]) {
				r.Fatalf("%q, want %q", refused[i], refusals[i])
			}
		}
	})
}

func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func TestAJobThatIsTooBigIsLeftOut(t *testing.T) {
	s := &fakeServer{refuse: func(n int, _ string) string {
		if n == 700 {
			return "JOB_TOO_BIG"
		}
		return ""
	}}
	sum, refused, err := run(t, s, lines(manyLines(2000)))
	if err != nil || sum.Put != 1999 || sum.Refused != 1 || len(refused) != 1 || !strings.HasPrefix(refused[0], "line 700: ") {
		t.Errorf("%v, %+v, %q", err, sum, refused)
	}
}

func TestAServerThatTakesNoMoreEndsIt(t *testing.T) {
	s := &fakeServer{refuse: func(n int, _ string) string {
		if n == 700 || n > 702 {
			return "DRAINING"
		}
		return ""
	}}
	sum, refused, err := run(t, s, lines(manyLines(100_000)))
	if refusal := (*Refusal)(nil); !errors.As(err, &refusal) || refusal.Line != 700 {
		t.Errorf("%v", err)
	}
	if sum.Put != 701 || sum.Put+sum.Refused != uint64(sum.Line) || sum.Line > 700+2*windowJobs || uint64(len(refused)) != sum.Refused || sum.Unknown != 0 {
		t.Errorf("%+v", sum)
	}
}

func TestItIsToldWhatIsNotKnownAfterALostConnection(t *testing.T) {
	s := &fakeServer{refuse: func(n int, _ string) string {
		if n == 1700 {
			return "hang up"
		}
		return ""
	}}
	sum, _, err := run(t, s, lines(manyLines(100_000)))
	if err == nil || sum.Put > 1699 || sum.UnknownFrom != int(sum.Put)+1 || int(sum.Put+sum.Unknown) != sum.Line {
		t.Errorf("%v, %+v", err, sum)
	}
}

func TestBuriedJobsAreBuriedWithTheirPriorities(t *testing.T) {
	s := &fakeServer{refuse: taken}
	file := `{"body":"a","state":"buried","pri":5,"delay":9,"tube":"t"}
{"body":"b","state":"delayed","delay":9,"time-left":4,"tube":"t"}
{"body":"c","state":"ready","delay":9,"tube":"u"}
{"body":"d","state":"reserved","time-left":4,"tube":"u","ttr":8}
{"body":"e","state":"asleep","tube":"u"}
{"body":"f","delay":9,"tube":"u"}
`
	otherwise := Job{NewJob: client.NewJob{Pri: 7, TTR: 60}}
	_, refused, err := run(t, s, NewFile(strings.NewReader(file), 1000, func(j *jobfile.Job) (Job, error) { return Restore(j, otherwise) }))
	if err != nil {
		t.Fatal(err)
	}
	want := "t put 5 3600 60 1 a\nt put 7 4 60 1 b\nu put 7 0 60 1 c\nu put 7 0 8 1 d\nu put 7 9 60 1 f"
	if got := strings.Join(s.put, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := strings.Join(s.others, ", "); got != "reserve-job 1, bury 1 5" {
		t.Error(got)
	}
	if len(refused) != 1 || !strings.HasPrefix(refused[0], "line 5: ") {
		t.Errorf("%q", refused)
	}
}

func TestJobsThatTheServerBuriesAreCounted(t *testing.T) {
	s := &fakeServer{refuse: func(n int, _ string) string {
		if n > 1 {
			return fmt.Sprintf("BURIED %d", n)
		}
		return ""
	}}
	file := `{"body":"a","tube":"t"}
{"body":"b","tube":"t"}
{"body":"c","tube":"t","state":"buried"}`
	sum, refused, err := run(t, s, NewFile(strings.NewReader(file), 1000, func(j *jobfile.Job) (Job, error) { return Restore(j, Job{}) }))
	if err != nil || len(refused) > 0 || sum != (Summary{Put: 3, Buried: 1, Line: 3}) {
		t.Errorf("%v, %q, %+v", err, refused, sum)
	}
}

func TestNothingGoesIntoAnotherTubeWhenATubeIsRefused(t *testing.T) {
	s := &fakeServer{refuse: taken}
	file := `{"body":"a","tube":"t"}
{"body":"b","tube":"forbidden"}
{"body":"c","tube":"t"}
`
	sum, _, err := run(t, s, NewFile(strings.NewReader(file), 1000, func(j *jobfile.Job) (Job, error) { return Put(j, Job{}) }))
	if refused := (*client.RefusedError)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "line 2") || len(s.put) != 1 || sum.Put != 1 {
		t.Errorf("%v, %+v, %q", err, sum, s.put)
	}
}

func TestAKeyIsNeverSentToAServerThatDoesNotKnowKeys(t *testing.T) {
	s := &fakeServer{refuse: taken}
	file := `{"body":"delete 1","tube":"t","key":"k","key-seconds":5}`
	_, _, err := run(t, s, NewFile(strings.NewReader(file), 1000, func(j *jobfile.Job) (Job, error) { return Put(j, Job{}) }))
	if lacks := (*client.LacksError)(nil); !errors.As(err, &lacks) || len(s.put) != 0 || len(s.others) != 0 {
		t.Errorf("%v, %q, %q", err, s.put, s.others)
	}
}

func TestItIsKnownWhatBecameOfTheJobsBeforeAKeyThatIsNotSent(t *testing.T) {
	s := &fakeServer{refuse: taken}
	file := `{"body":"a","tube":"t"}
{"body":"b","tube":"t","key":"k"}
{"body":"c","tube":"t"}`
	sum, _, err := run(t, s, NewFile(strings.NewReader(file), 1000, func(j *jobfile.Job) (Job, error) { return Put(j, Job{}) }))
	if lacks := (*client.LacksError)(nil); !errors.As(err, &lacks) || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
	if sum != (Summary{Put: 1, Line: 1}) || len(s.put) != 1 {
		t.Errorf("%+v, %q", sum, s.put)
	}
}

// produceSlowly makes a producer put what is written to w, which the caller closes. inserted gets the number of jobs after each
// batch; end waits until the producer has ended.
func produceSlowly(t *testing.T, source func(io.Reader) Source) (w *io.PipeWriter, inserted <-chan uint64, end func()) {
	t.Helper()
	r, w := io.Pipe()
	s := &fakeServer{refuse: taken}
	c := s.dial(t)
	jobs := make(chan uint64, 10)
	p := Producer{Conn: c, MaxBody: 1000, Progress: func(s Summary) { jobs <- s.Put }}
	ended := make(chan error)
	go func() {
		_, err := p.Run(t.Context(), source(r))
		ended <- err
	}()
	return w, jobs, func() {
		t.Helper()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.Close()
		<-s.done
	}
}

// What is buffered behind the job tells nothing of the next one.
func TestAJobDoesNotWaitBehindBlankLines(t *testing.T) {
	w, inserted, end := produceSlowly(t, func(r io.Reader) Source {
		return NewFile(r, 1000, func(j *jobfile.Job) (Job, error) { return Put(j, Job{Tube: "t"}) })
	})
	for i, rest := range []string{"\n", "\n\n", "\n \t\r\n\n ", "\n\n{"} { // the last one begins the next job
		if _, err := io.WriteString(w, `{"body":"a"}`+rest); err != nil {
			t.Fatal(err)
		}
		if got := <-inserted; got != uint64(i+1) {
			t.Errorf("%d jobs, want %d", got, i+1)
		}
	}
	if _, err := io.WriteString(w, `"body":"b"}`); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got := <-inserted; got != 5 {
		t.Errorf("%d jobs, want 5", got)
	}
	end()
}

// A slow input is one that has to be waited for, line by line.
func TestAJobDoesNotWaitForTheNextLine(t *testing.T) {
	w, inserted, end := produceSlowly(t, func(r io.Reader) Source { return NewLines(r, Job{Tube: "t"}, 1000) })
	for i, line := range []string{"one", "two"} {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := <-inserted; got != uint64(i+1) {
			t.Errorf("%d jobs, want %d", got, i+1)
		}
	}
	w.Close()
	end()
}

func TestJobsDoNotShareTheirTags(t *testing.T) {
	var otherwise Job
	otherwise.Tags = append(make([]string, 0, 4), "grp:g", "exp:0")
	var jobs []string
	first, err := Put(&jobfile.Job{Key: "a"}, otherwise)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Put(&jobfile.Job{Key: "b"}, otherwise)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []Job{first, second} {
		jobs = append(jobs, strings.Join(j.Tags, " "))
	}
	if want := []string{"grp:g exp:0 idp:a", "grp:g exp:0 idp:b"}; !slices.Equal(jobs, want) {
		t.Errorf("%q, want %q", jobs, want)
	}
}
