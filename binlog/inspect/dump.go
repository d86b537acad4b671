package inspect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/vfs"
)

// Dump writes every record of the log in a directory as a line of text, in the
// order of the log, and every place that holds none. With bodies it writes all of
// them, quoted. It may be used while a server runs.
func Dump(w io.Writer, fs vfs.FS, dir string, bodies bool) error {
	some, err := DumpPart(w, fs, dir, "", bodies)
	if err == nil && !some {
		err = fmt.Errorf("log directory %s: there is no log", dir)
	}
	return err
}

// DumpPart is Dump of segments in a directory in dir, which their names begin with. It reports whether there are any.
func DumpPart(w io.Writer, fs vfs.FS, dir, part string, bodies bool) (some bool, err error) {
	s := &Survey{fs: fs, dir: filepath.Join(dir, part)}
	if err := s.find(); err != nil {
		return false, err
	}
	for _, f := range s.Files {
		if f.Wrong == nil {
			s.Seed = f.Header.Seed
		}
	}
	d := &dumper{printer: printer{w: w}, part: part, bodies: bodies}
	for _, f := range s.Files {
		err := errors.Join(d.segment(fs, &f, s.Seed), d.index(s, &f))
		if errors.Is(err, os.ErrNotExist) {
			continue // compaction has removed it since
		}
		if err != nil {
			return true, err
		}
	}
	return len(s.Files) > 0, d.err
}

type dumper struct {
	printer
	part   string // names begin with it
	bodies bool
	sc     record.Scanner
	names  record.Names
}

func (d *dumper) segment(fs vfs.FS, f *File, seed uint32) error {
	name, h := filepath.Join(d.part, filepath.Base(f.Name)), &f.Header
	if f.Wrong == nil {
		d.print("%s 0 header base=%d synced=%d oldest=%d last-id=%d created=%s boot=%016x interval=%d\n", name,
			h.Base, h.Synced, h.Oldest, h.LastID, stamp(h.Created), h.Boot, h.Sync)
	} else {
		d.print("%s 0 BAD %v\n", name, f.Wrong)
	}
	for b, gap := range f.Records(fs, seed, &d.sc) {
		if gap != nil {
			d.print("%s %d BAD %v: %d bytes\n", name, gap.Offset, gap.Err, gap.Size)
		} else {
			d.print("%s %d %s ", name, d.sc.Offset()-int64(len(b)), record.KindOf(b))
			d.record(b)
		}
		if d.err != nil {
			break
		}
	}
	return d.sc.Err()
}

func (d *dumper) record(b []byte) {
	var r journal.Record
	switch record.KindOf(b) {
	case record.Full:
		size := record.DecodeHead(b, &r, &d.names)
		d.state(&r)
		d.print(" tube=%s ttr=%d created=%s bytes=%d", r.Tube, r.TTR, stamp(r.Created), size)
		d.keys(&r.Keys)
		if d.bodies && int64(len(b)) == record.Length(b) {
			d.print(" body=%q", record.Body(b))
		}
		d.print("\n")
	case record.Update:
		record.DecodeUpdate(b, &r)
		d.state(&r)
		d.print("\n")
	case record.Setting:
		s := record.DecodeSetting(b)
		d.print("tube=%s max-attempts=%d", s.Tube, s.Attempts)
		if s.Attempts > 0 {
			d.print(" dead-tube=%s", s.Dead)
		}
		d.origin(s.Origin)
		d.print("\n")
	case record.Policy:
		s := record.DecodeSetting(b)
		d.print("tube=%s %s", s.Tube, s.Pairs())
		d.origin(s.Origin)
		d.print("\n")
	case record.Delete:
		d.print("id=%d", record.Number(b))
		d.origin(record.DeleteOrigin(b))
		d.print("\n")
	case record.Hold:
		h := record.DecodeHold(b)
		d.print("id=%d session=%d end=%s offset=%d touch=%v reserves=%d\n",
			h.ID, h.Session, stamp(h.End), h.Offset, h.Touch, h.Reserves)
	case record.Close:
		d.print("session=%d\n", record.Number(b))
	case record.Numbers:
		n := record.DecodeNumbers(b)
		d.print("first=%d count=%d member=%016x nonce=%016x\n", n.First, n.Count, n.Member, n.Nonce)
	case record.Mark, record.Stop:
		d.print("synced=%d\n", record.Number(b))
	case record.Drop:
		d.print("oldest=%d\n", record.Number(b))
	case record.End:
		d.print("last-id=%d\n", record.Number(b))
	case record.Start:
		var s record.Run
		s.Decode(b)
		d.print("at=%s boot=%016x next-id=%d synced=%d interval=%d\n", stamp(s.At), s.Boot, s.NextID, s.Synced, s.Sync)
	}
}

func (d *dumper) state(r *journal.Record) {
	d.print("id=%d %s pri=%d delay=%d", r.ID, r.State, r.Pri, r.Delay)
	switch r.State {
	case journal.Delayed, journal.Deleted:
		d.print(" due=%s", stamp(r.Due))
	case journal.Buried:
		d.print(" order=%d", r.BuryOrder)
	}
	d.print(" reserves=%d timeouts=%d releases=%d buries=%d kicks=%d attempts=%d",
		r.Reserves, r.Timeouts, r.Releases, r.Buries, r.Kicks, r.Attempts)
	d.origin(r.Origin)
}

func (d *dumper) origin(o journal.Origin) {
	if o != (journal.Origin{}) {
		d.print(" session=%d offset=%d", o.Session, o.Offset)
	}
}

func (d *dumper) keys(k *journal.Keys) {
	if k.Unique != "" {
		d.print(" unique=%q seconds=%d", k.Unique, k.Seconds)
	}
	if k.Limited != "" {
		d.print(" limited=%q limit=%d", k.Limited, k.Limit)
	}
	t := k.Terms
	if t == nil {
		return
	}
	if t.Fair != "" {
		d.print(" fair=%q", t.Fair)
	}
	if t.Group != "" {
		d.print(" group=%q", t.Group)
	}
	if t.After != "" {
		d.print(" after=%q settled=%v", t.After, t.Settled)
	}
	if t.Expires != 0 {
		d.print(" expires=%d", t.Expires)
	}
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
