package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trellis/binlog"
	"trellis/binlog/journal"
	"trellis/binlog/spill"
	"trellis/binlog/vfs"
)

// nothing is a Restorer for a log without jobs.
type nothing struct{}

func (nothing) Full(*binlog.Record, journal.Place) (f journal.Former, err error) { return f, nil }
func (nothing) Update(*binlog.Record) error                                      { return nil }
func (nothing) Setting(*binlog.Setting) error                                    { return nil }
func (nothing) Hold(*journal.Hold) error                                         { return nil }

// openLog makes a log with some jobs in it.
func openLog(t *testing.T, dir string, jobs int, body string) *binlog.Log {
	t.Helper()
	room := make(chan struct{}, 1)
	l, err := binlog.Open(dir, binlog.Options{SegmentSize: 4096})
	if err == nil {
		err = l.Replay(nothing{})
	}
	if err == nil {
		err = l.Start(binlog.Hooks{OnRoom: func() { room <- struct{}{} }})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for id := range jobs {
		r := binlog.Record{ID: uint64(id + 1), State: journal.Ready, Pri: 7, TTR: 60, Tube: "mail", Body: []byte(body)}
		_, err := l.Put(&r)
		for errors.Is(err, binlog.ErrRoom) {
			<-room
			_, err = l.Put(&r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// writeLog makes a log and closes it.
func writeLog(t *testing.T, jobs int, body string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := openLog(t, dir, jobs, body).Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantTrellis(t *testing.T, wantStatus int, want string, args ...string) (stdout string) {
	t.Helper()
	out, errs, status := trellis(t, args...)
	if status != wantStatus || !strings.Contains(out+errs, want) || (errs != "") != (wantStatus != 0) {
		t.Errorf("trellis %s: status %d, want %d and %q\n%s%s", strings.Join(args, " "), status, wantStatus, want, out, errs)
	}
	return out
}

func TestASoundBinlogIsVerifiedAndDumped(t *testing.T) {
	dir := writeLog(t, 3, "hello\x00")
	wantTrellis(t, 0, "the last server ended in good order", "binlog", "verify", dir)
	out := wantTrellis(t, 0, "id=3 ready pri=7", "binlog", "dump", dir)
	if strings.Contains(out, "hello") || strings.Contains(out, "BAD") || strings.Count(out, " tube=mail ttr=60 ") != 3 {
		t.Errorf("%s", out)
	}
	wantTrellis(t, 0, `body="hello\x00"`, "binlog", "dump", "--bodies", dir)
}

func TestADamagedBinlogMakesTheExitStatusTwo(t *testing.T) {
	dir := writeLog(t, 200, strings.Repeat("x", 100)) // over several segments
	files, err := filepath.Glob(filepath.Join(dir, "trellis.*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%q, %v", files, err)
	}
	f, err := os.OpenFile(files[1], os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("damage"), 1000)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(files[1])
	out := wantTrellis(t, 2, "trellis binlog dump "+dir, "binlog", "verify", dir)
	if !strings.Contains(out, name+": offset ") {
		t.Errorf("which file it is, and where, is not told:\n%s", out)
	}
	if out := wantTrellis(t, 0, " BAD ", "binlog", "dump", dir); strings.Count(out, " full id=") != 199 {
		t.Errorf("one record is damaged, and of 200 there are %d", strings.Count(out, " full id="))
	}
	wantTrellis(t, 2, name+": offset ", "binlog", "export", dir, t.TempDir())
}

func TestABinlogInUseCanBeReadAndNotExported(t *testing.T) {
	dir := t.TempDir()
	openLog(t, dir, 1, "x")
	wantTrellis(t, 0, "a server is running or was killed", "binlog", "verify", dir)
	wantTrellis(t, 0, " header ", "binlog", "dump", dir)
	wantTrellis(t, 1, fmt.Sprintf("is locked by process %d; stop it first", os.Getpid()), "binlog", "export", dir, t.TempDir())
}

func TestAnExportedBinlogIsOneOfBeanstalkds(t *testing.T) {
	to := t.TempDir()
	wantTrellis(t, 0, "3 jobs in 1 files, last id 3\nbeanstalkd must be started with -z 70002 or more",
		"binlog", "export", writeLog(t, 3, strings.Repeat("x", 70000)), to)
	wantTrellis(t, 0, "3 ready, 0 delayed and 0 buried jobs with 210000 bytes", "binlog", "verify", to)
	wantTrellis(t, 1, "has a log of beanstalkd's already: binlog.1", "binlog", "export", writeLog(t, 1, ""), to)
}

func TestALogOfBeanstalkdsIsImported(t *testing.T) {
	theirs := t.TempDir()
	wantTrellis(t, 0, "3 jobs in 1 files", "binlog", "export", writeLog(t, 3, "hello"), theirs)
	wantTrellis(t, 0, "3 ready, 0 delayed and 0 buried jobs with 15 bytes in 1 tubes, last id 3", "binlog", "import", theirs)
	wantTrellis(t, 0, `body="hello"`, "binlog", "dump", "--bodies", theirs)
	wantTrellis(t, 0, "sound records, last id 3", "binlog", "verify", theirs)
	wantTrellis(t, 1, "has no log of beanstalkd's", "binlog", "import", theirs)
	inUse := t.TempDir()
	openLog(t, inUse, 1, "x")
	wantTrellis(t, 1, "stop it first", "binlog", "import", inUse)
}

func TestWhatIsNoBinlogIsSaidToBeNone(t *testing.T) {
	empty := t.TempDir()
	missing := filepath.Join(empty, "missing")
	wantTrellis(t, 0, "no log", "binlog", "verify", empty)
	for want, args := range map[string][]string{
		"missing: no such file":          {"verify", missing},
		"missing: no such file ":         {"dump", missing},
		"there is no log":                {"dump", empty},
		"both directories must exist":    {"export", empty, missing},
		empty + ": there is no log":      {"export", empty, t.TempDir()},
		"accepts 1 arg(s), received 0":   {"verify"},
		"accepts 2 arg(s), received 1":   {"export", empty},
		"unknown flag: --body":           {"dump", "--body", empty},
		"unknown command \"repair\" for": {"repair"},
	} {
		wantTrellis(t, 1, strings.TrimSpace(want), append([]string{"binlog"}, args...)...)
	}
}

func TestTheDirectoryOfAMemberWithBodyFilesIsVerifiedAndDumped(t *testing.T) {
	dir := t.TempDir()
	store, err := spill.Open(spill.Options{FS: vfs.OS{}, Dir: filepath.Join(dir, "bodies")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	life, err := store.Begin(nobody{}, nil)
	if err == nil {
		r := binlog.Record{ID: 7, State: journal.Ready, TTR: 60, Tube: "mail", Body: []byte("hello")}
		err = errors.Join(life.Add(&r), life.Write())
	}
	if err == nil {
		_, err = store.Seal(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantTrellis(t, 0, "bodies/trellis.0000000002: sealed, not in the snapshot, ", "binlog", "verify", dir)
	wantTrellis(t, 0, "bodies/trellis.0000000002 80 full id=7 ready ", "binlog", "dump", dir)
	wantTrellis(t, 0, `body="hello"`, "binlog", "dump", "--bodies", dir)
	file := filepath.Join(dir, "bodies", "trellis.0000000002")
	b, err := os.ReadFile(file)
	if err == nil {
		b[120] ^= 1
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := wantTrellis(t, 2, "empty its directory, and add it again", "binlog", "verify", dir)
	if !strings.Contains(out, "DAMAGED: "+file+": offset 80: ") {
		t.Errorf("which file it is, and where, is not told:\n%s", out)
	}
}

// nobody is an owner of bodies that refers to none.
type nobody struct{}

func (nobody) Spilled(uint64, journal.Place) bool              { return false }
func (nobody) Leaves(uint64, journal.Place) bool               { return false }
func (nobody) Moved(uint64, journal.Place, journal.Place) bool { return false }
func (nobody) Loaded([]journal.Fetched)                        {}

func TestAnExportTellsOnStandardErrorWhatIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, 1, "x")
	r := binlog.Record{ID: 1, State: journal.Ready, Pri: 7, Releases: 2, Kicks: 1, Attempts: 1}
	_, err := l.Update(&r)
	for _, tube := range []string{"mail", "orders"} {
		s := journal.DeadLetters(tube, 3, "dead")
		_, e := l.Set(&s)
		err = errors.Join(err, e)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	wantTrellis(t, 0, "2 settings of tubes\n", "binlog", "verify", dir)
	wantTrellis(t, 0, "setting tube=mail max-attempts=3 dead-tube=dead\n", "binlog", "dump", dir)
	out, errs, status := trellis(t, "binlog", "export", dir, t.TempDir())
	if status != 0 || !strings.HasPrefix(out, "1 jobs in 1 files") || strings.Contains(out, "left out") ||
		!strings.HasPrefix(errs, "2 settings of tubes are left out") || !strings.Contains(errs, "the attempts of 1 jobs") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}
