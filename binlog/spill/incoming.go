package spill

import "trellis/binlog/journal"

// Incoming is the bodies of a snapshot that another member sends: those that are on this one's disk when it begins, and
// those that come with it. The files that have them stay until End. No job refers to bodies that have come. It is for
// one goroutine.
type Incoming struct {
	IDs  IDs   // of the bodies that Here was told of and that are sound
	Used int64 // of these, those whose places were asked for
	Came int64 // bodies that have come

	life   *Life
	places map[uint64][]journal.Place // where those of IDs are, by the leaves of their ids
	held   map[uint32]bool            // numbers of files that the books hold for it
}

// Incoming begins to hold bodies. It is of no use any more when the life has ended.
func (l *Life) Incoming() *Incoming {
	return &Incoming{life: l, places: map[uint64][]journal.Place{}, held: map[uint32]bool{}}
}

// hold keeps a file from being removed. The store's mu is held.
func (in *Incoming) hold(number uint32) {
	if !in.held[number] {
		in.held[number] = true
		in.life.store.books.held[number]++
	}
}

// Here says that a job's body is at a place, to which the job refers while this runs. Ids ascend. A body that is known
// to be damaged, or in a file that no list may have, does not count.
func (in *Incoming) Here(id uint64, at journal.Place) {
	s := in.life.store
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

// Add takes a full record that has come, keeps nothing of it, and returns where its body is when Seal has returned.
func (in *Incoming) Add(r *journal.Record) (at journal.Place, err error) {
	s := in.life.store
	s.writing.Lock()
	defer s.writing.Unlock()
	if !in.life.current() {
		return at, ErrEnded
	}
	if err := s.add(in.life, r, copied{id: r.ID, size: uint32(len(r.Body)), source: fromMember}); err != nil {
		return at, err
	}
	in.Came++
	at = s.piece[len(s.piece)-1].to
	s.mu.Lock()
	in.hold(at.Segment)
	s.mu.Unlock()
	if s.full() {
		err = s.write(in.life)
	}
	return at, err
}

// Seal makes the files of these numbers whole and durable, in which the bodies of the snapshot are, and returns the
// list of them. It fails if one cannot be any more: a write has failed, or another owner has the bodies.
func (in *Incoming) Seal(numbers []uint32) ([]File, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	return in.life.store.Seal(numbers)
}

// End lets go of the files. If the snapshot counts, or may, its list is held. It may be called again.
func (in *Incoming) End() {
	s := in.life.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range in.held {
		s.books.release(n)
	}
	in.held = nil
}
