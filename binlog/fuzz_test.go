package binlog

import (
	"bytes"
	"errors"
	"hash/crc32"
	"testing"

	"trellis/binlog/convert/beanstalkd"
	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// sealAll makes the checksums of a fuzzer's records right, so that it comes behind
// them.
func sealAll(b []byte, salt record.Salt) {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for len(b) >= record.SmallSize {
		n := int(le.Uint32(b[4:])&(1<<28-1)) * 8
		if n < record.SmallSize || n > len(b) {
			return
		}
		if record.KindOf(b) == record.Full && n >= journal.FullFixed {
			le.PutUint16(b[70:], uint16(crc32.Update(uint32(salt), castagnoli, b[4:70])))
		}
		le.PutUint32(b, crc32.Update(uint32(salt), castagnoli, b[4:n]))
		b = b[n:]
	}
}

// recoverFiles reads a directory without starting a log on it: no goroutines, so
// that the fuzzer sees the same code run for the same bytes.
func recoverFiles(t testing.TB, m files, skip bool) (*owner, error) {
	l := newLog(testDir, Options{FS: m.fs(t), SegmentSize: MinSegmentSize, SkipDamaged: skip})
	if err := l.recover(); err != nil {
		return nil, err
	}
	o := newOwner()
	return o, l.replay(o)
}

// FuzzSegment reads a directory with a segment of any content.
func FuzzSegment(f *testing.F) {
	m, _ := aLog(f, Options{})
	for _, name := range m.segments()[:2] {
		f.Add(m[name], true)
		f.Add(m[name], false)
	}
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		if len(b) > 1<<20 {
			return
		}
		var h record.Header
		if h.Decode(b) == nil && forge {
			b = bytes.Clone(b)
			sealAll(b[record.HeaderSize:], h.Salt())
		}
		for _, skip := range []bool{false, true} {
			name := record.FileName(max(h.Index, 1))
			o, err := recoverFiles(t, files{name: b}, skip)
			if err != nil {
				continue
			}
			for id, j := range o.jobs {
				if id != j.ID || !record.Valid(&j.Record) || len(j.Body) > len(b) {
					t.Errorf("job %d: %+v", id, plain(j.Record))
				}
			}
		}
	})
}

// FuzzImport gives any bytes to the importer as a file of beanstalkd's.
func FuzzImport(f *testing.F) {
	l := newTheirLog()
	l.file(1)
	l.full(1, beanstalkd.Ready, 0, "abc")
	l.full(2, beanstalkd.Delayed, 3, "")
	l.short(1, beanstalkd.Buried, 1, 3)
	l.short(2, beanstalkd.Invalid, 1, 0)
	f.Add(l.files["binlog.1"])
	l.zeros(100)
	f.Add(l.files["binlog.1"])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		m := files{"binlog.1": b}
		for _, skip := range []bool{false, true} {
			o, err := recoverFiles(t, m, skip)
			if err != nil {
				if errors.As(err, new(*DamageError)) && skip {
					t.Fatalf("damage, although it is to be skipped: %v", err)
				}
				continue
			}
			bodies := 0
			for id, j := range o.jobs {
				bodies += len(j.Body)
				if id == 0 || j.TTR == 0 || !beanstalkd.ValidTube([]byte(j.Tube)) || !bytes.Contains(b, append(j.Body, '\r', '\n')) {
					t.Errorf("job %d: %+v", id, plain(j.Record))
				}
			}
			if bodies > len(b) {
				t.Errorf("%d bytes of bodies from %d bytes", bodies, len(b))
			}
		}
	})
}
