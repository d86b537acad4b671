package reload

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
