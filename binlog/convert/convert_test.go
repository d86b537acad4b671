package convert

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trellis/binlog/convert/beanstalkd"
	"trellis/binlog/inspect"
	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
	"trellis/binlog/vfs"
	"trellis/binlog/vfs/faultfs"
)

const testDir = "d"

func writeFile(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, 0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// contents are the jobs of the segments in a directory, as text by id.
func contents(t *testing.T, fs vfs.FS, dir string) map[uint64]string {
	t.Helper()
	js, err := soundJobs(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[uint64]string{}
	if err := js.each(js.sorted(), func(r *journal.Record) error {
		m[r.ID] = fmt.Sprintf("%v %s %q pri=%d order=%d", r.State, r.Tube, r.Body, r.Pri, r.BuryOrder)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

func theirs() []byte {
	b := beanstalkd.AppendVersion(nil)
	for id, body := range []string{"zero", "one", "two", "three"} {
		j := beanstalkd.Job{ID: uint64(id + 1), Pri: uint32(id), TTR: 60e9, State: beanstalkd.Ready}
		b = beanstalkd.AppendFull(b, &j, "mail", []byte(body))
	}
	change := func(id uint64, s beanstalkd.State, size int32) {
		b = beanstalkd.AppendShort(b, &beanstalkd.Job{ID: id, TTR: 60e9, BodySize: size + 2, State: s, Buries: 1})
	}
	change(3, beanstalkd.Buried, 3)
	change(1, beanstalkd.Buried, 4)
	change(4, beanstalkd.Invalid, 5)
	return b
}

var theirJobs = map[uint64]string{
	1: `buried mail "zero" pri=0 order=2`,
	2: `ready mail "one" pri=1 order=0`,
	3: `buried mail "two" pri=0 order=1`,
}

// What was imported and exported again is what was there.
func TestImportAndExportKeepTheJobs(t *testing.T) {
	fs := faultfs.New(testDir)
	to := filepath.Join(testDir, "to")
	if err := fs.Mkdir(to); err != nil {
		t.Fatal(err)
	}
	writeFile(t, fs, filepath.Join(testDir, beanstalkd.FileName(5)), theirs())
	in := Takeover{FS: fs, Dir: testDir, SegmentSize: 4096}
	report, err := in.Import()
	if err != nil || report == nil || report.Ready != 1 || report.Buried != 2 || report.LastID != 4 || report.Aside != filepath.Join(testDir, "beanstalkd") {
		t.Fatalf("import: %+v, %v", report, err)
	}
	if got := contents(t, fs, testDir); !maps.Equal(got, theirJobs) {
		t.Errorf("imported: %v", got)
	}
	if again, err := in.Import(); again != nil || err != nil {
		t.Errorf("a second import: %+v, %v", again, err)
	}

	x, err := Export(fs, testDir, to)
	if err != nil || x.Jobs != 3 || x.LastID != 4 || x.MaxJobSize != len("zero")+2 {
		t.Fatalf("export: %+v, %v", x, err)
	}
	var b strings.Builder
	if ok, err := Verify(&b, fs, to); !ok || err != nil || !strings.Contains(b.String(), "1 ready, 0 delayed and 2 buried jobs") {
		t.Errorf("verify: %v\n%s", err, &b)
	}
	back := Takeover{FS: fs, Dir: to, SegmentSize: 4096}
	if _, err := back.Import(); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, fs, to); !maps.Equal(got, theirJobs) {
		t.Errorf("came back: %v", got)
	}
}

func TestASalvageKeepsWhatIsSound(t *testing.T) {
	fs := faultfs.New(testDir)
	writeFile(t, fs, filepath.Join(testDir, beanstalkd.FileName(1)), theirs())
	in := Takeover{FS: fs, Dir: testDir, SegmentSize: 4096}
	if _, err := in.Import(); err != nil {
		t.Fatal(err)
	}
	s, err := inspect.Directory(fs, testDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A second segment tells that the first was on disk.
	end := s.Segments[0].End()
	h := record.Header{Seed: s.Seed, Index: 2, Oldest: 1, Base: end, Synced: end, LastID: 4}
	second := make([]byte, record.HeaderSize)
	h.Encode(second)
	writeFile(t, fs, filepath.Join(testDir, record.FileName(2)), second)
	name := filepath.Join(testDir, record.FileName(1))
	f, err := fs.Open(name)
	if err == nil {
		_, err = f.WriteAt([]byte{0xff}, record.HeaderSize+20) // in the first job's record
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	s, err = inspect.Directory(fs, testDir, nil)
	if !errors.As(err, new(*record.DamageError)) {
		t.Fatalf("survey: %v", err)
	}
	report, err := in.Salvage(s, 1000)
	if err != nil || report.Jobs != 2 || report.Skipped == 0 || report.Aside != filepath.Join(testDir, "damaged") {
		t.Fatalf("salvage: %+v, %v", report, err)
	}
	if got := slices.Sorted(maps.Keys(contents(t, fs, testDir))); !slices.Equal(got, []uint64{2, 3}) {
		t.Errorf("salvaged: %v", got)
	}
	if s, err := inspect.Directory(fs, testDir, nil); err != nil || s.LastID != 1004 || s.Segments[0].Index != 3 {
		t.Errorf("the new log: %+v, %v", s, err)
	}
}

// writeSegments makes jobs and settings the log of a directory.
func writeSegments(t *testing.T, fs vfs.FS, dir string, settings map[string]journal.Setting, records ...*journal.Record) {
	t.Helper()
	w := &sealed.Writer{FS: fs, Dir: dir, Limit: 4096, Seed: 7, Index: 1, LastID: 9}
	for _, r := range records {
		if err := writeJob(w, r); err != nil {
			t.Fatal(err)
		}
	}
	js := &jobs{settings: settings}
	if err := js.write(w); err != nil {
		t.Fatal(err)
	}
}

func TestAnExportTellsWhatBeanstalkdHasNoPlaceFor(t *testing.T) {
	fs := faultfs.New(testDir)
	to := filepath.Join(testDir, "to")
	if err := fs.Mkdir(to); err != nil {
		t.Fatal(err)
	}
	settings := map[string]journal.Setting{"mail": journal.DeadLetters("mail", 3, "dead"), "x": {Tube: "x", Policy: journal.Policy{RetryMin: 1, RetryFactor: 1, RetryMax: 1, Per: 1}}}
	writeSegments(t, fs, testDir, settings,
		&journal.Record{ID: 1, State: journal.Ready, TTR: 1, Tube: "mail", Releases: 2, Attempts: 2},
		&journal.Record{ID: 2, State: journal.Ready, TTR: 1, Tube: "mail", Releases: 2, Kicks: 1, Attempts: 1},
		&journal.Record{ID: 3, State: journal.Ready, TTR: 1, Tube: "mail", Keys: journal.Keys{Terms: &journal.Terms{Fair: "f"}}},
		&journal.Record{ID: 4, State: journal.Ready, TTR: 1, Tube: "mail", Keys: journal.Keys{Unique: "k", Terms: &journal.Terms{Expires: 9}}})
	x, err := Export(fs, testDir, to)
	if err != nil || x.Jobs != 4 || x.Settings != 2 || x.Attempts != 1 || x.Unique != 1 || x.Terms != 2 {
		t.Fatalf("export: %+v, %v", x, err)
	}
	back := Takeover{FS: fs, Dir: to, SegmentSize: 4096}
	if _, err := back.Import(); err != nil {
		t.Fatal(err)
	}
	js, err := soundJobs(fs, to)
	if err != nil || js.byID[1].Attempts != 2 || js.byID[2].Attempts != 0 || !js.byID[3].Keys.Equal(&journal.Keys{}) || len(js.settings) != 0 {
		t.Errorf("came back: %+v, %v", js, err)
	}
}

func TestASalvageKeepsSettings(t *testing.T) {
	fs := faultfs.New(testDir)
	policy := journal.DeadLetters("mail", 3, "dead")
	policy.RetryMin, policy.Rate, policy.Per = 5, 100, 60
	settings := map[string]journal.Setting{"mail": policy}
	writeSegments(t, fs, testDir, settings, &journal.Record{ID: 1, State: journal.Ready, TTR: 1, Tube: "mail"})
	s, err := inspect.Directory(fs, testDir, nil)
	if err != nil || s.Settings != 1 {
		t.Fatal(s, err)
	}
	in := Takeover{FS: fs, Dir: testDir, SegmentSize: 4096}
	if _, err := in.Salvage(s, 1000); err != nil {
		t.Fatal(err)
	}
	js, err := soundJobs(fs, testDir)
	if err != nil || !maps.Equal(js.settings, settings) {
		t.Errorf("salvaged: %+v, %v", js, err)
	}
}
