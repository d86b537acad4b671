package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// tree is what a directory holds.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			files[name] = ""
			return err
		}
		b, err := os.ReadFile(name)
		files[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// flip changes a byte of a file, some bytes behind the first place where it has text.
func flip(t *testing.T, name, text string, behind int) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if string(b[i:min(len(b), i+len(text))]) == text {
			b[i+behind] ^= 1
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s has no %q", name, text)
}

// fill appends a job to the log in each of some entries, and returns the first one's id.
func (m *memberDir) fill(n uint64) (first uint64) {
	m.t.Helper()
	_, old := load2(m.t, m)
	first = old.Highest + 1
	m.append(2, 2, 1, first)
	for i := range n {
		m.append(2, 2, 2+i, first+i, full(job(first+i, fmt.Sprintf("job-%d-of-the-log", i))))
	}
	if err := m.log.Close(); err != nil {
		m.t.Fatal(err)
	}
	return first
}

func TestAMembersDirectoryStaysAsItIs(t *testing.T) {
	t.Parallel()
	m := newMemberDir(t)
	m.fill(3)
	// What a crash may leave: a snapshot that is not complete, and a write that is torn.
	unfinished := filepath.Join(m.dir, snapshotsDir, "unfinished.1")
	segment := filepath.Join(m.dir, entriesDir, "entries.0000000001")
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	copy(b[(end+7)&^7:], "torn")
	if err := errors.Join(os.Mkdir(unfinished, 0o700), os.WriteFile(filepath.Join(unfinished, "x"), b[:9], 0o600), os.WriteFile(segment, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, lock := range []string{filepath.Join(m.dir, "lock"), filepath.Join(m.dir, entriesDir, "lock")} {
		if err := os.Remove(lock); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	before := tree(t, m.dir)
	made, err := Recover(vfs.OS{}, m.dir, n1, filepath.Join(t.TempDir(), "new"), false)
	if err != nil || made.Entries != 4 || made.Lost != 0 {
		t.Errorf("%+v, %v", made, err)
	}
	if after := tree(t, m.dir); !maps.Equal(after, before) {
		t.Errorf("it has %d files and directories, and had %d; or others", len(after), len(before))
	}
}

func TestWhatIsSoundOfADamagedMemberIsRecovered(t *testing.T) {
	t.Parallel()
	const segment = "entries.0000000001"
	for _, x := range []struct {
		what       string
		damage     func(t *testing.T, m *memberDir)
		jobs       uint64 // of those of the log, that are recovered
		lost       uint64 // index of the first entry
		inSnapshot bool
	}{
		{"nothing", func(*testing.T, *memberDir) {}, 4, 0, false},
		{"an entry", func(t *testing.T, m *memberDir) {
			flip(t, filepath.Join(m.dir, entriesDir, segment), "job-2-of", 3)
		}, 2, 5, false},
		{"the first entry", func(t *testing.T, m *memberDir) {
			flip(t, filepath.Join(m.dir, entriesDir, segment), "job-0-of", 0)
		}, 0, 3, false},
		{"the log's header", func(t *testing.T, m *memberDir) {
			flip(t, filepath.Join(m.dir, entriesDir, segment), "TRELENT", 1)
		}, 0, 2, false},
		{"a job of the snapshot", func(t *testing.T, m *memberDir) {
			path, _ := load2(t, m)
			flip(t, filepath.Join(path, record.FileName(1)), "body3", 1)
		}, 4, 0, true},
	} {
		t.Run(x.what, func(t *testing.T) {
			t.Parallel()
			m := newMemberDir(t)
			first := m.fill(4)
			x.damage(t, m)
			before := tree(t, m.dir)
			dir := filepath.Join(t.TempDir(), "new")
			want := jobs{2: "mail body2 7 ready", 3: "mail body3 7 ready", settingID: deadLetters}
			for i := range x.jobs {
				want[first+i] = fmt.Sprintf("mail job-%d-of-the-log 7 ready", i)
			}
			damaged := x.lost > 0 || x.inSnapshot
			if x.inSnapshot {
				delete(want, 3)
				delete(want, settingID)
			}
			if _, err := Recover(vfs.OS{}, m.dir, n1, dir, false); errors.As(err, new(*record.DamageError)) != damaged {
				t.Fatalf("without being told to skip anything: %v", err)
			} else if err == nil {
				dir += "2"
			}
			made, err := Recover(vfs.OS{}, m.dir, n1, dir, true)
			if err != nil {
				t.Fatal(err)
			}
			if made.Lost != x.lost || (made.Damage.Log != nil) != (x.lost > 0) || (made.Damage.Snapshot != nil) != x.inSnapshot {
				t.Errorf("%+v", made)
			}
			if js, _ := load(t, dir); !maps.Equal(js, want) {
				t.Errorf("%v, want %v", js, want)
			}
			if after := tree(t, m.dir); !maps.Equal(after, before) {
				t.Error("the member's directory was changed")
			}
		})
	}
}
