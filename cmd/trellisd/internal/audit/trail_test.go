package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"trellis/codec"
	"trellis/engine"
)

// rig is a trail, and what it has written.
type rig struct {
	t     *testing.T
	trail *Trail
	path  string
	log   bytes.Buffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "audit")}
	var err error
	r.trail, err = Open(r.path, slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// end closes the trail and returns the lines of its log and of its file.
func (r *rig) end() (log []string, file []map[string]any) {
	r.t.Helper()
	if err := r.trail.Close(); err != nil {
		r.t.Fatal(err)
	}
	b, err := os.ReadFile(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		file = append(file, m)
	}
	return strings.Split(strings.TrimSuffix(r.log.String(), "\n"), "\n"), file
}

// carrier gives deeds an address.
type carrier struct{}

var _ engine.Carrier = carrier{} // an engine takes a Waker, and would do without

func (carrier) Wake()                                     {}
func (carrier) Alarm(engine.Time)                         {}
func (carrier) PeerAddr(*engine.Session) string           { return "192.0.2.1:7" }
func (carrier) Via(*engine.Session) string                { return "" }
func (carrier) Disconnect(*engine.Session, engine.Time)   {}
func (carrier) Denied(*engine.Session, *engine.Deed) bool { return false }
func (carrier) TokenSent(*engine.Session)                 {}

// do reports commands of an engine to the trail, each on a connection of its own: of a client
// that may do everything unless it is given tubes.
func (r *rig) do(lines []string, tubes ...string) {
	r.t.Helper()
	e := engine.New(engine.Config{Audit: r.trail.Command})
	l := e.NewLoop(carrier{})
	for _, line := range lines {
		var s engine.Session
		if tubes == nil {
			l.Open(&s, 0)
		} else {
			l.OpenGranted(&s, engine.NewGrant("anna", engine.RightAll, tubes), 0)
		}
		d := codec.Decoder{Extensions: true}
		var cmd codec.Command
		if _, ok := d.Next([]byte(line+"\r\n"), &cmd); !ok {
			r.t.Fatalf("%q is no command", line)
		}
		var out engine.Output
		s.Execute(0, &cmd, &out)
		s.Close(0)
	}
}

func TestALineSaysWhoDidWhatFromWhereAndWhatCameOfIt(t *testing.T) {
	r := newRig(t)
	r.do([]string{"drain", "set-dlq a 3 b", "kick-connection 9", "list-tubes"})
	r.do([]string{"flush-tube a", "flush-tube b", "use auth/secret", "drain"}, "a")
	r.trail.Logger().Info("client authenticated", "client", "anna")
	log, file := r.end()
	want := []string{
		`level=WARN msg="command done" audit=true client="" peer=192.0.2.1:7 command=drain result=DRAINING unreported=0`,
		`level=WARN msg="command done" audit=true client="" peer=192.0.2.1:7 command=set-dlq tube=a to=b result=DLQ_SET unreported=0`,
		`level=WARN msg="command done" audit=true client="" peer=192.0.2.1:7 command=kick-connection id=9 result=NOT_FOUND unreported=0`,
		`level=WARN msg="command done" audit=true client=anna peer=192.0.2.1:7 command=flush-tube tube=a result=NOT_FOUND unreported=0`,
		`level=WARN msg="command denied" audit=true client=anna peer=192.0.2.1:7 command=flush-tube tube=b result=UNKNOWN_COMMAND unreported=0`,
		`level=WARN msg="command denied" audit=true client=anna peer=192.0.2.1:7 command=use tube=auth/ result=UNKNOWN_COMMAND unreported=0`,
		`level=WARN msg="command denied" audit=true client=anna peer=192.0.2.1:7 command=drain result=UNKNOWN_COMMAND unreported=0`,
	}
	for i, w := range want {
		if i >= len(log) || !strings.HasSuffix(log[i], w) {
			t.Errorf("line %d of the log is not %s", i, w)
		}
	}
	if t.Failed() || len(log) != len(want) || strings.Contains(r.log.String(), "secret") {
		t.Errorf("the log:\n%s", &r.log)
	}
	if len(file) != len(want)+1 { // what the log is not told for its level is in the file
		t.Fatalf("the file has %d lines", len(file))
	}
	if got := file[4]; got["audit"] != true || got["client"] != "anna" || got["command"] != "flush-tube" || got["tube"] != "b" || got["time"] == "" {
		t.Errorf("%v", got)
	}
	if got, want := r.trail.Stats(), (Stats{Denied: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if info, err := os.Stat(r.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// What one client does too often hides neither another command of its, nor another client.
func TestWhatIsDoneTooOftenIsCounted(t *testing.T) {
	r := newRig(t)
	many := strings.Split(strings.Repeat("pause-tube a 0,", 1000)+"flush-tube a", ",")
	r.do(many, "a")
	r.do([]string{"pause-tube a 0"})
	_, file := r.end()
	lines := map[string]int{}
	told := 0.0
	for _, m := range file {
		lines[fmt.Sprint(m["client"], " ", m["command"])]++
		if m["command"] == "pause-tube" && m["client"] == "anna" {
			if m["result"] != nil {
				told++
			}
			told += m["unreported"].(float64)
		}
	}
	if told != 1000 || lines["anna pause-tube"] < 100 || lines["anna pause-tube"] > 900 || lines["anna flush-tube"] != 1 || lines[" pause-tube"] != 1 {
		t.Errorf("%v; told of %v", lines, told)
	}
	if n := r.trail.Stats().Unreported; n == 0 || n > 900 {
		t.Errorf("%d are unreported", n)
	}
}

// stuck is a log that takes nothing until it is told to.
type stuck struct{ free chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.free
	return len(p), nil
}

func TestNobodyWaitsForADiskThatHangs(t *testing.T) {
	s := stuck{make(chan struct{})}
	trail, err := Open("", slog.New(slog.NewTextHandler(s, nil)))
	if err != nil {
		t.Fatal(err)
	}
	const more = 100
	for range queueLen + more { // it would hang here
		trail.Logger().Warn("x")
	}
	if n := trail.Stats().Lost; n < more-1 || n > more {
		t.Errorf("%d lines were lost", n)
	}
	close(s.free)
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFileThatIsMovedAwayIsMadeAnew(t *testing.T) {
	r := newRig(t)
	r.trail.Logger().Warn("first")
	await(t, "the first line is written", func() bool { return strings.Contains(read(t, r.path), "first") })
	if err := os.Rename(r.path, r.path+".1"); err != nil {
		t.Fatal(err)
	}
	await(t, "a new file is there", func() bool {
		r.trail.Logger().Warn("second")
		return strings.Contains(read(t, r.path), "second")
	})
	r.end()
	if old := read(t, r.path+".1"); !strings.Contains(old, "first") || !strings.HasSuffix(old, "\n") {
		t.Errorf("the file that was moved away has %q", old)
	}
}

func TestALineThatCannotBeWrittenIsCountedAndReported(t *testing.T) {
	r := newRig(t)
	_ = r.trail.file.file.Close() // nothing is written to it yet
	for range 3 {
		r.trail.Logger().Info("x")
	}
	_ = r.trail.Close()
	if n := r.trail.Stats().Lost; n != 3 || strings.Count(r.log.String(), "cannot be written") != 1 {
		t.Errorf("%d lines were lost; the log:\n%s", n, &r.log)
	}
}

func TestAFileThatCannotBeMadeIsAnError(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "nosuch", "audit"), slog.Default()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestWhatIsLoggedDuringAndAfterTheEndGoesToTheLog(t *testing.T) {
	r := newRig(t)
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for range 100 {
				r.trail.Logger().With("a", 1).WithGroup("g").Warn("x", "b", 2)
			}
		})
	}
	if err := r.trail.Close(); err != nil {
		t.Error(err)
	}
	busy.Wait()
	if n := strings.Count(r.log.String(), "msg=x audit=true a=1 g.b=2\n"); n != 400 {
		t.Errorf("%d lines in the log", n)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
