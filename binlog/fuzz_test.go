package binlog

import (
	"bytes"
	"errors"
	"testing"

	"trellis/binlog/beanstalkd"
	"trellis/binlog/journal"
)

// seal all records of a fuzzer's bytes, so that it comes behind the checksums.
func sealAll(b []byte, start uint32) {
	for len(b) >= smallSize {
		n := int(le.Uint32(b[4:])&maxWords) * 8
		if n < smallSize || n > len(b) {
			return
		}
		if kindOf(b) == kindFull && n >= fullFixed {
			le.PutUint16(b[headAt:], uint16(sumOf(start, b[4:headAt])))
		}
		seal(b[:n], start)
		b = b[n:]
	}
}

// FuzzRecords feeds bytes to the reader of records, as they are and with
// checksums that are made right. Whatever it accepts must be what the writer
// writes for it, byte for byte.
func FuzzRecords(f *testing.F) {
	const start = 12345
	for _, r := range []*Record{testRecord(1, 0), testRecord(2, 100)} {
		b := make([]byte, journal.Size(r.Tube, len(r.Body)))
		encodeFull(b, start, r)
		u := make([]byte, updateSize)
		encodeUpdate(u, start, r)
		d := make([]byte, smallSize)
		encodeSmall(d, start, kindDelete, 5)
		s := make([]byte, startSize)
		(&startRecord{at: 1, boot: 2, nextID: 3}).encode(s, start)
		f.Add(append(append(append(b, u...), d...), s...), false)
		f.Add(append(make([]byte, 24), b...), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, forge bool) {
		if forge {
			b = bytes.Clone(b)
			sealAll(b, start)
		}
		sc := scanner{f: bytes.NewReader(b), index: 1 << 31, start: start, size: int64(len(b))}
		var tubes names
		for {
			at := sc.off
			rec, err := sc.next()
			if err != nil {
				if sc.off != at {
					t.Fatal("the reader has moved on from an error")
				}
				if !sc.resync() {
					break
				}
				continue
			}
			var r Record
			again := make([]byte, len(rec))
			switch kindOf(rec) {
			case kindFull:
				decodeFull(rec, &r, &tubes)
				encodeFull(again, start, &r)
			case kindUpdate:
				decodeUpdate(rec, &r)
				encodeUpdate(again, start, &r)
				if r.State == Ready { // which uses no time
					copy(again[16:24], rec[16:24])
					seal(again, start)
				}
			case kindStart:
				var s startRecord
				s.decode(rec)
				s.encode(again, start)
			default:
				encodeSmall(again, start, kindOf(rec), valueOf(rec))
			}
			if kindOf(rec) == kindFull && r.State == Ready {
				copy(again[24:32], rec[24:32])
				le.PutUint16(again[headAt:], uint16(sumOf(start, again[4:headAt])))
				seal(again, start)
			}
			if !bytes.Equal(again, rec) {
				t.Fatalf("accepted %x, which is written %x", rec, again)
			}
		}
		if cap(sc.buf) > max(len(b), scanWindow) {
			t.Fatalf("%d bytes of memory for %d of records", cap(sc.buf), len(b))
		}
	})
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
		var h header
		if h.decode(b) == "" && forge {
			b = bytes.Clone(b)
			sealAll(b[headerSize:], checksumStart(h.seed, h.index))
		}
		for _, skip := range []bool{false, true} {
			name := segmentName(max(h.index, 1))
			o, err := recoverFiles(t, files{name: b}, skip)
			if err != nil {
				continue
			}
			for id, j := range o.jobs {
				if id == 0 || len(j.Tube) == 0 || len(j.Tube) > journal.MaxTube || !validState(j.State) || len(j.Body) > len(b) {
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
