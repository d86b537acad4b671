package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"trellis/binlog/convert"
	"trellis/binlog/convert/beanstalkd"
	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

// theirLog writes files of version 7.
type theirLog struct {
	files files
	name  string
}

func newTheirLog() *theirLog { return &theirLog{files: files{}} }

func (l *theirLog) file(n int) {
	l.name = beanstalkd.FileName(n)
	l.files[l.name] = beanstalkd.AppendVersion(nil)
}

func (l *theirLog) full(id uint64, s beanstalkd.State, buries uint32, body string) int {
	at := len(l.files[l.name])
	j := theirJob(id, s, buries, len(body))
	l.files[l.name] = beanstalkd.AppendFull(l.files[l.name], &j, "mail", []byte(body))
	return at
}

func (l *theirLog) short(id uint64, s beanstalkd.State, buries uint32, size int) int {
	at := len(l.files[l.name])
	j := theirJob(id, s, buries, size)
	l.files[l.name] = beanstalkd.AppendShort(l.files[l.name], &j)
	return at
}

func (l *theirLog) zeros(n int) { l.files[l.name] = append(l.files[l.name], make([]byte, n)...) }

func theirJob(id uint64, s beanstalkd.State, buries uint32, size int) beanstalkd.Job {
	return beanstalkd.Job{
		ID: id, Pri: uint32(id), TTR: 60e9, BodySize: int32(size + 2),
		Created: 1_700_000_000_000_000_000, Buries: buries, State: s,
	}
}

func TestBurialsKeepTheirOrderOverCompactionOfTheirLog(t *testing.T) {
	t.Parallel()
	l := newTheirLog()
	l.file(5)
	l.short(3, beanstalkd.Buried, 1, 1) // its full record is in a file that is gone
	l.full(1, beanstalkd.Ready, 0, "a")
	l.full(2, beanstalkd.Ready, 0, "b")
	l.short(2, beanstalkd.Buried, 1, 1)
	l.short(1, beanstalkd.Buried, 1, 1)
	l.short(2, beanstalkd.Ready, 1, 1)
	l.short(2, beanstalkd.Buried, 2, 1)
	l.file(6)
	l.full(2, beanstalkd.Buried, 2, "b")
	l.full(3, beanstalkd.Buried, 1, "c")
	l.full(9, beanstalkd.Ready, 0, "d")
	l.short(9, beanstalkd.Invalid, 0, 1)
	o, _, err := openFiles(t, l.files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if len(o.jobs) != 3 || o.jobs[3].BuryOrder != 1 || o.jobs[1].BuryOrder != 2 || o.jobs[2].BuryOrder != 3 || o.jobs[2].Buries != 2 {
		t.Errorf("%+v", o.snapshot())
	}
	if o.log.NextID() != 10 {
		t.Errorf("the next id is %d, want 10", o.log.NextID())
	}
}

func TestTheTornEndOfTheirLogIsLeftOutAndTold(t *testing.T) {
	t.Parallel()
	for what, tear := range map[string]func(*theirLog){
		"nothing is torn":        func(l *theirLog) { l.zeros(500) },
		"no room for a record":   func(l *theirLog) { l.zeros(60) },
		"a few zeros":            func(l *theirLog) { l.zeros(3) },
		"within the name's size": func(l *theirLog) { l.files[l.name] = append(l.files[l.name], 4, 0) },
		"behind the name's size": func(l *theirLog) { l.files[l.name] = append(l.files[l.name], 4, 0, 0, 0); l.zeros(500) },
		"behind the name":        func(l *theirLog) { l.files[l.name] = append(l.files[l.name], "\x04\x00\x00\x00mail"...); l.zeros(500) },
		"within the job": func(l *theirLog) {
			at := l.full(8, beanstalkd.Ready, 0, "x")
			l.files[l.name] = l.files[l.name][:at+40]
		},
		"before the body": func(l *theirLog) {
			at := l.full(8, beanstalkd.Ready, 0, "x")
			clear(l.files[l.name][at+88:])
			l.zeros(500)
		},
		"within the body": func(l *theirLog) {
			at := l.full(8, beanstalkd.Ready, 0, "xyz")
			l.files[l.name] = l.files[l.name][:at+90]
		},
		"the next file is empty":  func(l *theirLog) { l.zeros(100); l.name = "binlog.3"; l.files[l.name] = nil },
		"the next one is zero":    func(l *theirLog) { l.zeros(100); l.name = "binlog.3"; l.zeros(4096) },
		"the next has no records": func(l *theirLog) { l.zeros(100); l.file(3); l.zeros(4092) },
	} {
		t.Run(what, func(t *testing.T) {
			l := newTheirLog()
			l.file(1)
			l.full(1, beanstalkd.Ready, 0, "first")
			tear(l)
			l.file(8) // allocated, and not used yet
			torn := strings.Contains(what, "the name") || strings.Contains(what, "the body") || strings.Contains(what, "the job")
			check := func(opts Options, jobs int) {
				t.Helper()
				o, _, err := openFiles(t, l.files, opts)
				if err != nil {
					t.Fatal(err)
				}
				defer o.log.Close()
				if len(o.jobs) != jobs || string(o.jobs[1].Body) != "first" {
					t.Errorf("%+v", o.snapshot())
				}
				if notes := fmt.Sprint(o.log.Recovery().Imported.Notes); strings.Contains(notes, "torn") != torn {
					t.Errorf("torn: %v, notes %q", torn, notes)
				}
			}
			check(Options{}, 1)
			// Behind a torn end there is another run of the server, which did not
			// know what was lost.
			l.file(9)
			l.full(2, beanstalkd.Reserved, 0, "second")
			if torn {
				var damage *DamageError
				if _, _, err := openFiles(t, l.files, Options{}); !errors.As(err, &damage) || filepath.Base(damage.File) != "binlog.1" {
					t.Errorf("open: %v", err)
				}
			}
			check(Options{SkipDamaged: torn}, 2)
		})
	}
}

func TestDamageOfTheirFilesStopsTheImport(t *testing.T) {
	t.Parallel()
	le := binary.LittleEndian
	for what, harm := range map[string]func(l *theirLog, at int){
		"version":          func(l *theirLog, at int) { l.files[l.name][0] = 6 },
		"name's size":      func(l *theirLog, at int) { le.PutUint32(l.files[l.name][at:], 201) },
		"negative size":    func(l *theirLog, at int) { le.PutUint32(l.files[l.name][at:], 1<<31) },
		"name":             func(l *theirLog, at int) { l.files[l.name][at+5] = ' ' },
		"state":            func(l *theirLog, at int) { l.files[l.name][at+8+76] = 5 },
		"deleted and full": func(l *theirLog, at int) { l.files[l.name][at+8+76] = 0 },
		"body's size":      func(l *theirLog, at int) { le.PutUint32(l.files[l.name][at+8+32:], 1<<31) },
		"longer body":      func(l *theirLog, at int) { le.PutUint32(l.files[l.name][at+8+32:], 9) },
		"delay":            func(l *theirLog, at int) { le.PutUint64(l.files[l.name][at+8+16:], 5) },
		"ttr":              func(l *theirLog, at int) { le.PutUint64(l.files[l.name][at+8+24:], 0) },
		"created":          func(l *theirLog, at int) { le.PutUint64(l.files[l.name][at+8+40:], 1<<63) },
		"end of body":      func(l *theirLog, at int) { l.files[l.name][at+8+80+3] = 'x' },
		"no id":            func(l *theirLog, at int) { clear(l.files[l.name][at+8:][:8]) },
		"id":               func(l *theirLog, at int) { le.PutUint64(l.files[l.name][at+8:], 1<<62) },
		"id that has ended": func(l *theirLog, at int) {
			j := theirJob(math.MaxUint64, beanstalkd.Invalid, 0, 3)
			copy(l.files[l.name][at:], beanstalkd.AppendShort(nil, &j))
		},
		"gap": func(l *theirLog, at int) { clear(l.files[l.name][at:][:8+80+5]) },
	} {
		t.Run(what, func(t *testing.T) {
			l := newTheirLog()
			l.file(1)
			l.full(1, beanstalkd.Ready, 0, "abc")
			at := l.full(2, beanstalkd.Ready, 0, "def")
			l.full(3, beanstalkd.Ready, 0, "ghi")
			bad := l.files["binlog.1"]
			harm(l, at)
			l.file(2)
			l.full(4, beanstalkd.Ready, 0, "jkl")
			_, _, err := openFiles(t, l.files, Options{})
			var damage *DamageError
			if !errors.As(err, &damage) || filepath.Base(damage.File) != "binlog.1" || damage.Offset != int64(at) && what != "version" && what != "longer body" {
				t.Fatalf("open: %v", err)
			}
			o, fs, err := openFiles(t, l.files, Options{SkipDamaged: true})
			if err != nil {
				t.Fatal(err)
			}
			defer o.log.Close()
			want := 2
			if what == "version" {
				want = 1
			}
			if i := o.log.Recovery().Imported; len(o.jobs) < want || o.jobs[4] == nil || i.Skipped == 0 {
				t.Errorf("%d jobs, %+v", len(o.jobs), i)
			}
			if kept := readFiles(t, fs, filepath.Join(testDir, "beanstalkd")); string(kept["binlog.1"]) != string(bad) {
				t.Error("the damaged file was not kept")
			}
		})
	}
}

func TestTwoLogsInOneDirectoryAreRefused(t *testing.T) {
	t.Parallel()
	m, _ := aLog(t, Options{})
	l := newTheirLog()
	l.file(1)
	m["binlog.1"] = l.files["binlog.1"]
	if _, _, err := openFiles(t, m, Options{}); !errors.Is(err, ErrMixed) {
		t.Errorf("open: %v", err)
	}
}

func TestACrashAtAnyCallOfAnImportOrASalvageLosesNothing(t *testing.T) {
	t.Parallel()
	l := newTheirLog()
	for n := range 3 {
		l.file(n + 1)
		for i := range 20 {
			id := uint64(n*20 + i + 1)
			l.full(id, beanstalkd.Ready, 0, strings.Repeat("x", i*20))
		}
		l.zeros(200)
	}
	damaged, _ := aLog(t, Options{})
	name := damaged.segments()[1]
	damaged[name][len(damaged[name])/2] ^= 1
	for what, m := range map[string]files{"import": l.files, "salvage": damaged} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			opts := Options{SkipDamaged: what == "salvage", SegmentSize: MinSegmentSize}
			o, fs, err := openFiles(t, m, opts)
			if err != nil {
				t.Fatal(err)
			}
			o.log.Close()
			want, calls := o.snapshot(), fs.Calls()
			step := 13
			if proof {
				step = 1
			}
			for n := 1; n <= calls; n += step {
				fs := m.fs(t)
				start := fs.Calls()
				fs.Hook(func(c faultfs.Call) faultfs.Fault { return faultfs.Fault{Off: c.N == start+n} })
				opts.FS = fs
				o := newOwner()
				if err := o.open(testDir, opts); err == nil {
					o.log.Close()
				}
				after := []*faultfs.FS{fs.PowerCut(rand.New(rand.NewPCG(uint64(n), 1))), fs.PowerCut(rand.New(rand.NewPCG(uint64(n), 2))), fs.Killed()}
				for i, fs := range after {
					o := newOwner()
					opts.FS = fs
					if err := o.open(testDir, opts); err != nil {
						t.Fatalf("call %d, %d: %v", n, i, err)
					}
					if d := diff(o.snapshot(), want); d != "" {
						t.Fatalf("call %d, %d: %s", n, i, d)
					}
					o.log.Close()
					for name, b := range m {
						if record.FileIndex(name) == 0 && beanstalkdFile(name) == 0 || allZeros(b) {
							continue
						}
						dir := filepath.Join(testDir, map[string]string{"import": "beanstalkd", "salvage": "damaged"}[what])
						if kept := readFiles(t, fs, dir); string(kept[name]) != string(b) {
							t.Fatalf("call %d, %d: %s was not kept", n, i, name)
						}
					}
				}
			}
		})
	}
}

// Whoever only wants the import need not start a server.
func TestOpenAndCloseImport(t *testing.T) {
	t.Parallel()
	l := newTheirLog()
	l.file(1)
	l.full(7, beanstalkd.Delayed, 0, "abc")
	fs := l.files.fs(t)
	log, err := Open(testDir, Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	if i := log.Recovery().Imported; i == nil || i.Delayed != 1 || log.NextID() != 8 {
		t.Errorf("the report says %+v", i)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	o := newOwner()
	if err := o.open(testDir, Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	defer o.log.Close()
	if string(o.jobs[7].Body) != "abc" || o.log.Recovery().Imported != nil || o.log.NextID() != 8 {
		t.Errorf("%+v, %+v", o.snapshot(), o.log.Recovery())
	}
}

func beanstalkdFile(name string) int {
	n, _ := beanstalkd.FileNumber(name)
	return n
}

func TestVerifyTellsWhatTheirLogHolds(t *testing.T) {
	t.Parallel()
	l := newTheirLog()
	l.file(1)
	l.full(7, 1, 0, "abc")
	var b strings.Builder
	theirs, err := convert.Verify(&b, l.files.fs(t), testDir)
	if got := b.String(); !theirs || err != nil || !strings.Contains(got, "1 files, 1 tubes, 1 ready, 0 delayed and 0 buried jobs with 3 bytes, last id 7") {
		t.Errorf("%v\n%s", err, got)
	}
	m, _ := aLog(t, Options{})
	if theirs, err := convert.Verify(&b, m.fs(t), testDir); theirs || err != nil {
		t.Errorf("a log of ours is taken for one of theirs, or %v", err)
	}
}
