package binlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

func TestVerifyTellsWhatADirectoryHolds(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	names := m.segments()
	report := func(m files) (string, error) {
		var b strings.Builder
		err := inspect.Verify(&b, m.fs(t), testDir)
		return b.String(), err
	}
	got, err := report(m)
	if err != nil || !strings.Contains(got, "good order") || strings.Count(got, names[0]+": sealed") != 1 ||
		strings.Count(got, names[len(names)-1]+": open") != 1 || !regexp.MustCompile(`\d+ sound records, last id \d+`).MatchString(got) {
		t.Errorf("sound: %v\n%s", err, got)
	}
	bad := m.clone()
	bad[names[0]][len(bad[names[0]])/2] ^= 1
	if got, err := report(bad); !errors.As(err, new(*DamageError)) || !strings.Contains(got, "DAMAGED: "+testDir+"/"+names[0]+": offset ") {
		t.Errorf("damaged: %v\n%s", err, got)
	}
	torn := m.clone()
	last := torn[names[len(names)-1]]
	at := len(last)
	for last[at-1] == 0 {
		at--
	}
	last[at-1] ^= 1
	if got, err := report(torn); err != nil || !strings.Contains(got, "torn") {
		t.Errorf("torn: %v\n%s", err, got)
	}
	if got, err := report(files{}); err != nil || got != "no log\n" {
		t.Errorf("empty: %v\n%s", err, got)
	}
}

// busyFS is changed each time that its directory is listed, as a server changes it.
type busyFS struct {
	vfs.FS
	list func(n int) vfs.FS
	n    int
}

func (b *busyFS) List(dir string) ([]vfs.Entry, error) {
	b.n++
	b.FS = b.list(b.n)
	return b.FS.List(dir)
}

// A server that is running writes what is read, and removes what was listed.
func TestVerifyBelievesInDamageThatStays(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	names := m.segments()
	sound := m.fs(t)
	var bad []vfs.FS
	for i := range 3 {
		c := m.clone()
		c[names[i]][len(c[names[i]])/2] ^= 1
		bad = append(bad, c.fs(t))
	}
	verify := func(list func(n int) vfs.FS) (string, error) {
		var b strings.Builder
		err := inspect.Verify(&b, &busyFS{list: list}, testDir)
		return b.String(), err
	}
	for what, list := range map[string]func(n int) vfs.FS{
		"damage that was read once": func(n int) vfs.FS {
			if n < 4 {
				return bad[n%3]
			}
			return sound
		},
		"a file that was removed": func(n int) vfs.FS {
			if n < 3 {
				return removedFS{sound, names[n-1]}
			}
			return sound
		},
	} {
		if got, err := verify(list); err != nil || strings.Contains(got, "DAMAGED") {
			t.Errorf("%s: %v\n%s", what, err, got)
		}
	}
	if got, err := verify(func(int) vfs.FS { return bad[1] }); !errors.As(err, new(*DamageError)) || !strings.Contains(got, "DAMAGED") {
		t.Errorf("damage: %v\n%s", err, got)
	}
	if got, err := verify(func(n int) vfs.FS { return bad[n%3] }); err == nil || errors.As(err, new(*DamageError)) || strings.Contains(got, "DAMAGED") {
		t.Errorf("damage that moves: %v\n%s", err, got)
	}
}

// removedFS has lost a file since it was listed.
type removedFS struct {
	vfs.FS
	name string
}

func (r removedFS) OpenRead(name string) (vfs.File, error) {
	if filepath.Base(name) == r.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return r.FS.OpenRead(name)
}

func TestDumpWritesEveryRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := newOwner()
	if err := o.open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	r := testRecord(1, 3)
	if _, err := o.put(r); err != nil {
		t.Fatal(err)
	}
	u := *r
	u.State, u.BuryOrder, u.Buries = Buried, 9, 1
	if _, err := o.update(&u); err != nil {
		t.Fatal(err)
	}
	u.State, u.BuryOrder, u.Due = Delayed, 0, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano()
	if _, err := o.update(&u); err != nil {
		t.Fatal(err)
	}
	if _, err := o.delete(1); err != nil {
		t.Fatal(err)
	}
	more := journal.DeadLetters("y", 0, "y.dead")
	more.RetryMin, more.Paused, more.RetryJitter = 5, true, 0
	for _, s := range []Setting{journal.DeadLetters("mail", 3, "mail.dead"), journal.DeadLetters("mail", 0, ""), journal.DeadLetters("x", 1, "y"), more} {
		if _, err := o.set(s); err != nil {
			t.Fatal(err)
		}
	}
	// While the server runs.
	o.log.commit()
	var b strings.Builder
	if err := inspect.Verify(&b, vfs.OS{}, dir); err != nil || !strings.Contains(b.String(), "is running") || !strings.Contains(b.String(), "\n2 settings of tubes\n") {
		t.Errorf("verify: %v\n%s", err, &b)
	}
	if err := o.log.Close(); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := inspect.Dump(&b, vfs.OS{}, dir, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		` header base=0 `, ` start at=20`,
		` full id=1 ready pri=1 delay=0 reserves=0 timeouts=0 releases=0 buries=0 kicks=0 attempts=0 tube=default ttr=60 created=2023-11-14T22:13:20.000000001Z bytes=3 body="bbb"`,
		` update id=1 buried pri=1 delay=0 order=9 reserves=0 timeouts=0 releases=0 buries=1 kicks=0`,
		` update id=1 delayed pri=1 delay=0 due=2026-01-02T03:04:05.000000006Z `,
		` delete id=1`, ` setting tube=mail max-attempts=3 dead-tube=mail.dead`, ` setting tube=mail max-attempts=0`,
		` policy tube=y dead=y.dead retry-min=5 retry-jitter=0 paused=1`, ` mark synced=`, ` stop synced=`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
	name := filepath.Join(dir, record.FileName(1))
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[record.HeaderSize+record.StartSize+20] ^= 1
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	bad := fmt.Sprintf("%s %d BAD a full record whose first part has a wrong checksum: 88 bytes\n", record.FileName(1), record.HeaderSize+record.StartSize)
	if err := inspect.Dump(&b, vfs.OS{}, dir, false); err != nil || !strings.Contains(b.String(), bad) || strings.Contains(b.String(), "body=") {
		t.Errorf("damaged: %v, want %q in\n%s", err, bad, &b)
	}
}
