package spill

import (
	"errors"
	"fmt"
	"slices"

	"trellis/binlog/journal"
	"trellis/binlog/record"
	"trellis/binlog/sealed"
)

// Incoming is the bodies of a snapshot that another member sends: those that are on this one's disk when it begins, in
// files that stay until End, and those that come with it, in files of its own. No owner refers to it. It is for one
// goroutine.
type Incoming struct {
	IDs  IDs   // of the bodies that Here was told of and that are sound
	Used int64 // of these, those whose places were asked for
	Came int64 // bodies that have come

	store  *Store
	places map[uint64][]journal.Place // where these are, by the leaves of their ids
	held   map[uint32]bool            // numbers of files that the books hold for it
	own    []*file                    // files with bodies that have come
	out    *sealed.Writer             // of the last one; nil if none is open
	file   File                       // what that one has so far
}

// Incoming begins to hold bodies.
func (s *Store) Incoming() *Incoming {
	return &Incoming{store: s, places: map[uint64][]journal.Place{}, held: map[uint32]bool{}}
}

// hold keeps a file from being removed. The store's mu is held.
func (in *Incoming) hold(number uint32) {
	if !in.held[number] {
		in.held[number] = true
		in.store.books.held[number]++
	}
}

// Here says that a job's body is at a place, to which the job refers while this runs. Ids ascend. A body that is known
// to be damaged, or in a file that no list may have, does not count.
func (in *Incoming) Here(id uint64, at journal.Place) {
	s := in.store
	s.mu.Lock()
	f := s.books.files[at.Segment]
	sound := f != nil && (f.phase == open || f.phase == whole) && !s.damaged[at]
	if sound {
		in.hold(at.Segment)
	}
	s.mu.Unlock()
	if list := in.places[id/leafIDs]; sound && (len(list) > 0 || len(in.places) < maxLeaves) && in.IDs.Add(id) {
		in.places[id/leafIDs] = append(list, at)
	}
}

// Place is where the body of a job is that IDs has; ok is false of another job.
func (in *Incoming) Place(id uint64) (at journal.Place, ok bool) {
	if !in.IDs.Has(id) {
		return at, false
	}
	in.Used++
	return in.places[id/leafIDs][in.IDs.rank(id)], true
}

// Add takes a full record that has come, and returns where its body is going to be when Seal has returned.
func (in *Incoming) Add(r *journal.Record) (at journal.Place, err error) {
	if in.out != nil && in.out.Size() >= in.store.limit {
		if err := in.close(); err != nil {
			return at, err
		}
	}
	if in.out == nil {
		f, out := in.store.begin(in)
		in.own, in.out, in.file = append(in.own, f), out, f.File
	}
	n := r.Size()
	in.out.LastID = max(in.out.LastID, r.ID)
	b, salt, err := in.out.Place(n)
	if err != nil {
		return at, fmt.Errorf("body file %s: %w", in.store.name(in.file.Number), err)
	}
	record.EncodeFull(b, salt, r)
	in.Came++
	in.file.Records++
	in.file.Bodies += int64(len(r.Body))
	return journal.Place{Segment: in.file.Number, Offset: uint32((in.out.Size() - n) / 8)}, nil
}

// close ends the file that is open.
func (in *Incoming) close() error {
	if in.out == nil {
		return nil
	}
	if err := in.out.Close(); err != nil {
		return fmt.Errorf("body file %s: %w", in.store.name(in.file.Number), err)
	}
	in.file.Size, in.file.Sum = in.out.Sealed[0].Size, in.out.Sealed[0].Sum
	s, f := in.store, in.own[len(in.own)-1]
	s.mu.Lock()
	defer s.mu.Unlock()
	f.File = in.file
	s.books.end(f, whole)
	in.out = nil
	return nil
}

// Seal makes the files of these numbers whole and durable, in which the bodies of the snapshot are, and returns the
// list of them. It fails if one cannot be any more, as another owner has the bodies.
func (in *Incoming) Seal(numbers []uint32) ([]File, error) {
	if err := in.close(); err != nil || len(numbers) == 0 {
		return nil, err
	}
	return in.store.Seal(numbers)
}

// End lets go of the files. Its own are removed unless one of the lists has them that there are: of snapshots that are
// current, read or sent. That of the snapshot is one of these by now, or never will be. It may be called again.
func (in *Incoming) End(lists []uint32) (err error) {
	s := in.store
	if in.out != nil {
		_ = in.out.Abandon()
		in.out = nil
	}
	s.mu.Lock()
	for n := range in.held {
		s.books.release(n)
	}
	var gone []uint32
	for _, f := range in.own {
		if s.books.files[f.Number] == f && !slices.Contains(lists, f.Number) {
			delete(s.books.files, f.Number)
			gone = append(gone, f.Number)
		}
	}
	in.held, in.own = nil, nil
	s.mu.Unlock()
	for _, n := range gone {
		err = errors.Join(err, s.FS.Remove(s.name(n))) // otherwise it is found after a restart
	}
	return err
}
