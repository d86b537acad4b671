package inspect

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs/faultfs"
)

const testDir = "d"

// directory is a log that a test writes, record by record.
type directory struct {
	t     *testing.T
	fs    *faultfs.FS
	index uint32
	base  journal.Pos
	buf   []byte // the segment that is being written
	salt  record.Salt
}

func newDirectory(t *testing.T) *directory {
	d := &directory{t: t, fs: faultfs.New(testDir)}
	d.begin(1, 0)
	return d
}

// begin begins the next segment.
func (d *directory) begin(oldest uint32, synced journal.Pos) {
	d.index++
	h := record.Header{Seed: 7, Index: d.index, Oldest: oldest, Base: d.base, Synced: synced}
	d.buf, d.salt = make([]byte, record.HeaderSize), h.Salt()
	h.Encode(d.buf)
}

func (d *directory) full(id uint64) {
	r := journal.Record{ID: id, State: journal.Ready, Tube: "mail", Body: []byte("hello")}
	b := make([]byte, journal.Size(r.Tube, len(r.Body)))
	record.EncodeFull(b, d.salt, &r)
	d.buf = append(d.buf, b...)
}

func (d *directory) small(k record.Kind, number uint64) {
	b := make([]byte, record.SmallSize)
	record.EncodeSmall(b, d.salt, k, number)
	d.buf = append(d.buf, b...)
}

// at is the position of the next record.
func (d *directory) at() journal.Pos { return d.base + journal.Pos(len(d.buf)) }

// write writes the segment's file, with zeros behind it.
func (d *directory) write() {
	d.base = d.at()
	d.file(record.FileName(d.index), append(d.buf, make([]byte, 100)...))
}

// end is write of a segment that has a successor.
func (d *directory) end(lastID uint64) {
	d.small(record.End, lastID)
	d.write()
}

func (d *directory) file(name string, b []byte) {
	d.t.Helper()
	f, err := d.fs.Create(filepath.Join(testDir, name), int64(len(b)))
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	f.Close()
}

func TestASurveyTellsSoundFromTornFromDamaged(t *testing.T) {
	for what, c := range map[string]struct {
		make func(d *directory)
		want string // what the Survey says, or where the damage is
	}{
		"a log that ended well": {func(d *directory) {
			d.full(1)
			d.end(1)
			d.begin(1, 0)
			d.full(2)
			d.small(record.Delete, 1)
			d.small(record.Stop, uint64(d.at()))
			d.write()
		}, "2 segments, 5 records, last id 2, clean, 0 stale, 0 spare, job 1 deleted"},
		"a server that was killed": {func(d *directory) {
			d.full(1)
			d.write()
			d.file(record.FileName(2), make([]byte, 4096))
		}, "1 segments, 1 records, last id 1, killed, 0 stale, 1 spare"},
		"a segment that was dropped, and its file not removed": {func(d *directory) {
			d.full(1)
			d.end(1)
			d.begin(1, 0)
			d.small(record.Delete, 1)
			d.small(record.Drop, 2)
			d.write()
		}, "1 segments, 4 records, last id 1, killed, 1 stale, 0 spare, job 1 deleted"},
		"a tail that nothing vouches for": {func(d *directory) {
			d.full(1)
			d.full(2)
			d.buf[len(d.buf)-1] ^= 1
			d.write()
		}, "1 segments, 1 records, last id 1, killed, 0 stale, 0 spare, torn: trellis.0000000001 at 168"},
		"a place that a mark behind it vouches for": {func(d *directory) {
			d.full(1)
			d.full(2)
			d.buf[len(d.buf)-1] ^= 1
			d.small(record.Mark, uint64(d.at()))
			d.write()
		}, "damaged: trellis.0000000001 at 168, 1 sound"},
		"a segment that is missing": {func(d *directory) {
			d.full(1)
			d.end(1)
			d.begin(1, 0)
			d.end(1)
			d.fs.Remove(filepath.Join(testDir, record.FileName(2)))
			d.begin(1, d.at())
			d.full(2)
			d.write()
		}, "damaged: trellis.0000000002 at 0, 1 sound"},
		"a record that cannot be true": {func(d *directory) {
			d.small(record.Drop, 2)
			d.write()
		}, "damaged: trellis.0000000001 at 80, 0 sound"},
		"a segment that disowns itself": {func(d *directory) {
			d.full(1)
			d.end(1)
			d.begin(3, 0)
			d.write()
		}, "damaged: trellis.0000000002 at 0, 0 sound"},
		"nothing": {func(*directory) {}, "0 segments, 0 records, last id 0, killed, 0 stale, 0 spare"},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDirectory(t)
			c.make(d)
			s, err := Directory(d.fs, testDir, nil)
			var got string
			var damage *record.DamageError
			switch {
			case errors.As(err, &damage):
				got = fmt.Sprintf("damaged: %s at %d, %d sound", filepath.Base(damage.File), damage.Offset, damage.Sound)
			case err != nil:
				t.Fatal(err)
			default:
				got = fmt.Sprintf("%d segments, %d records, last id %d, %s, %d stale, %d spare",
					len(s.Segments), s.Records, s.LastID, map[bool]string{true: "clean", false: "killed"}[s.Clean], len(s.Stale), len(s.Spare))
				if s.Cut != nil {
					got += fmt.Sprintf(", torn: %s at %d", filepath.Base(s.Cut.File), s.Cut.Offset)
				}
				for id := range s.LastID {
					if s.Deleted.Has(id + 1) {
						got += fmt.Sprintf(", job %d deleted", id+1)
					}
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
