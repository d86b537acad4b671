package shard

import (
	"maps"
	"slices"

	"trellis/binlog/journal"
)

// A holdingFile is a file that has reservations of no session.
type holdingFile struct {
	*file
	holds map[uint64]journal.Hold
}

func newHoldingFile() *holdingFile { return &holdingFile{newFile(nil), map[uint64]journal.Hold{}} }

// Hold implements Reservations.
func (f *holdingFile) Hold(h *journal.Hold) (journal.Pos, error) {
	if f.err != nil {
		return 0, f.err
	}
	f.holds[h.ID] = *h
	return f.next(), nil
}

func (f *holdingFile) Update(r *journal.Record) (journal.Pos, error) {
	pos, err := f.file.Update(r)
	if err == nil {
		delete(f.holds, r.ID)
	}
	return pos, err
}

func (f *holdingFile) Delete(id uint64, former journal.Former) (journal.Pos, error) {
	pos, err := f.file.Delete(id, former)
	if err == nil {
		delete(f.holds, id)
	}
	return pos, err
}

func (f *holdingFile) Replace(r *journal.Record, former journal.Former) (journal.Ticket, error) {
	ticket, err := f.file.Replace(r, former)
	if err == nil {
		delete(f.holds, r.ID)
	}
	return ticket, err
}

// tell is that of the file, with the holds behind it.
func (f *holdingFile) tell(to *Follower) error {
	if err := f.file.tell(to); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(f.holds)) {
		h := f.holds[id]
		if err := to.Hold(&h); err != nil {
			return err
		}
	}
	return nil
}
