package reload

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// rig is two files and what was loaded of them.
type rig struct {
	t      *testing.T
	files  *Files
	a, b   string // paths
	loaded []string
	log    strings.Builder
}

var errBad = errors.New("it says bad")

func newRig(t *testing.T) *rig {
	dir := t.TempDir()
	r := &rig{t: t, a: filepath.Join(dir, "a"), b: filepath.Join(dir, "b")}
	r.write(r.a, "1")
	r.write(r.b, "2")
	var err error
	r.files, err = Load("test", []string{r.a, r.b}, func(contents [][]byte) error {
		all := string(contents[0]) + "," + string(contents[1])
		if strings.Contains(all, "bad") {
			return errBad
		}
		r.loaded = append(r.loaded, all)
		return nil
	}, slog.New(slog.NewTextHandler(&r.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) write(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) look(want ...string) {
	r.t.Helper()
	r.loaded = nil
	r.files.Look()
	if !slices.Equal(r.loaded, want) {
		r.t.Fatalf("loaded %q, want %q", r.loaded, want)
	}
}

func TestFilesAreLoadedAgainWhenTheyChange(t *testing.T) {
	r := newRig(t)
	if !slices.Equal(r.loaded, []string{"1,2"}) {
		t.Fatalf("loaded %q", r.loaded)
	}
	r.look()
	r.write(r.a, "3")
	r.look("3,2")
	r.look()
	r.write(r.a, "")
	r.write(r.b, "32")
	r.look(",32")
	if got, want := r.files.Stats(), (Stats{What: "test", Loaded: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWhatCannotBeLoadedIsReportedOnceAndLeavesTheOldInForce(t *testing.T) {
	r := newRig(t)
	r.write(r.a, "bad")
	for range 3 {
		r.look()
	}
	if err := os.Remove(r.b); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.look()
	}
	if got, want := r.files.Stats(), (Stats{What: "test", Failed: 2, Failing: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n := strings.Count(r.log.String(), "\n"); n != 2 || !strings.Contains(r.log.String(), errBad.Error()) || !strings.Contains(r.log.String(), r.b) {
		t.Errorf("logged:\n%s", &r.log)
	}
	// That it is as it was before is a change too.
	r.write(r.a, "1")
	r.write(r.b, "2")
	r.look("1,2")
	if r.files.Stats().Failing {
		t.Error("it still fails")
	}
}

func TestEachMistakeOfWhatIsLoadedInPartIsLoggedAndCounted(t *testing.T) {
	r := newRig(t)
	var mistakes []error
	for i := range maxReported + 2 {
		mistakes = append(mistakes, fmt.Errorf("mistake %d.", i+1))
	}
	r.files.load = func([][]byte) error { return &PartialError{mistakes} }
	r.write(r.a, "3")
	r.look()
	r.look() // it is tried again, and not reported again
	if got, want := r.files.Stats(), (Stats{What: "test", Failed: 1, Mistakes: maxReported + 2, Failing: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	log := r.log.String()
	for i, mistake := range mistakes[:maxReported] {
		if strings.Count(log, mistake.Error()) != 1 {
			t.Errorf("mistake %d is not logged once", i+1)
		}
	}
	if strings.Count(log, "\n") != maxReported+1 || !strings.Contains(log, "unreported=2") || strings.Contains(log, "stays in force") {
		t.Errorf("logged:\n%s", log)
	}
}

func TestWhatTimeMendsIsLoadedWithoutAChange(t *testing.T) {
	loaded, early := 0, false
	path := filepath.Join(t.TempDir(), "a")
	f, err := func() (*Files, error) {
		if err := os.WriteFile(path, []byte("1"), 0o600); err != nil {
			return nil, err
		}
		return Load("test", []string{path}, func([][]byte) error {
			if early {
				return errBad
			}
			loaded++
			return nil
		}, slog.New(slog.DiscardHandler))
	}()
	if err != nil {
		t.Fatal(err)
	}
	early = true
	if err := os.WriteFile(path, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.Look()
	}
	if got, want := f.Stats(), (Stats{What: "test", Failed: 1, Failing: true}); got != want {
		t.Errorf("before: %+v, want %+v", got, want)
	}
	early = false
	for range 3 {
		f.Look()
	}
	if got, want := f.Stats(), (Stats{What: "test", Loaded: 1, Failed: 1}); got != want || loaded != 2 {
		t.Errorf("%d loads, %+v, want %+v", loaded, got, want)
	}
}

func TestAGlanceShowsEachChangeOnce(t *testing.T) {
	r := newRig(t)
	glance := func(what string, want bool) {
		t.Helper()
		if r.files.glance() != want {
			t.Errorf("%s: a change is %t, want %t", what, !want, want)
		}
	}
	glance("the first", true) // since the load
	glance("no change", false)
	r.write(r.a, "longer")
	glance("another size", true)
	glance("another size, again", false)
	later := time.Now().Add(time.Hour)
	no(t, os.Chtimes(r.b, later, later))
	glance("another time", true)
	r.write(r.b+".new", "2")
	no(t, os.Chtimes(r.b+".new", later, later))
	no(t, os.Rename(r.b+".new", r.b))
	glance("another file", true)
	no(t, os.Remove(r.b))
	glance("no file", true)
	glance("no file, again", false)
}

func TestASymbolicLinkThatIsSwappedIsAChange(t *testing.T) {
	r := newRig(t)
	other := filepath.Join(filepath.Dir(r.a), "other")
	r.write(other, "4")
	if err := errors.Join(os.Remove(r.a), os.Symlink(other, r.a)); err != nil {
		t.Fatal(err)
	}
	r.look("4,2")
}

func TestTheFirstLoadFailsWithTheReason(t *testing.T) {
	dir := t.TempDir()
	load := func([][]byte) error { return errBad }
	if _, err := Load("test", []string{filepath.Join(dir, "nosuch")}, load, slog.Default()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load("test", []string{path}, load, slog.Default()); !errors.Is(err, errBad) {
		t.Errorf("one that cannot be loaded: %v", err)
	}
	if _, err := Load("test", []string{dir}, load, slog.Default()); err == nil {
		t.Error("a directory is loaded")
	}
	if err := os.Truncate(path, MaxSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load("test", []string{path}, load, slog.Default()); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestAReloadLoadsWhatHasNotChangedAndTellsTheReason(t *testing.T) {
	r := newRig(t)
	r.loaded = nil
	if err := r.files.Reload(); err != nil || !slices.Equal(r.loaded, []string{"1,2"}) {
		t.Errorf("loaded %q, %v", r.loaded, err)
	}
	r.write(r.a, "bad")
	for range 2 {
		if err := r.files.Reload(); !errors.Is(err, errBad) {
			t.Errorf("bad: %v", err)
		}
	}
	r.look() // it was reported
	if err := os.Remove(r.b); err != nil {
		t.Fatal(err)
	}
	if err := r.files.Reload(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	if got, want := r.files.Stats(), (Stats{What: "test", Loaded: 1, Failed: 3, Failing: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func no(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
