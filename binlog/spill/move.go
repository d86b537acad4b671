package spill

import (
	"errors"
	"fmt"

	"trellis/binlog/journal"
	"trellis/binlog/record"
)

// move is a file whose bodies are moved to another one.
type move struct {
	scan  record.Scanner
	names record.Names
	file  *file
	gaps  int // that hold no sound record
}

// Move moves a slice of what lives out of a file, if files take more than they should. more: it is to be called again.
// After an error it begins anew with the file.
func (l *Life) Move() (more bool, err error) {
	s := l.store
	s.writing.Lock()
	defer s.writing.Unlock()
	if !l.current() {
		return false, ErrEnded
	}
	if s.move == nil && !s.beginMove(l) {
		return false, nil
	}
	m := s.move
	looked := 0
	for b, gap := range m.scan.Records() {
		if gap != nil {
			if errors.Is(gap.Err, journal.ErrHangs) {
				s.move = nil
				return false, fmt.Errorf("body file %s: %w", s.name(m.file.Number), gap.Err)
			}
			m.gaps++
			continue
		}
		if err := s.moveRecord(l, m, b); err != nil {
			return false, err
		}
		if looked += len(b); looked >= pieceSize || s.full() {
			return true, s.write(l)
		}
	}
	return s.endMove(l)
}

// beginMove turns to the file that is to be moved. It returns false if there is none.
func (s *Store) beginMove(l *Life) bool {
	s.mu.Lock()
	n := s.books.toMove()
	f := s.books.files[n]
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	s.move = &move{file: f}
	s.move.scan.Reset(l.reader.Range(n), &record.Header{Seed: f.Seed, Index: n}, f.Size)
	return true
}

// moveRecord adds a record to the piece if its body is needed.
func (s *Store) moveRecord(l *Life, m *move, b []byte) error {
	from := journal.Place{Segment: m.file.Number, Offset: uint32((m.scan.Offset() - int64(len(b))) / 8)}
	if record.KindOf(b) != record.Full || !l.owner.Leaves(record.Number(b), from) {
		return nil
	}
	var r journal.Record
	record.DecodeFull(b, &r, &m.names)
	return s.add(l, &r, copied{id: r.ID, size: uint32(len(r.Body)), from: from, source: fromFile})
}

// endMove writes what is left of a file that was read to its end. If a job still refers to it, the record could not be
// read, and the file stays.
func (s *Store) endMove(l *Life) (more bool, err error) {
	m := s.move
	if err := s.write(l); err != nil {
		return false, err
	}
	s.move = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.file.live == 0 {
		return true, nil
	}
	s.books.damaged(m.file)
	return true, fmt.Errorf("body file %s is damaged in %d places: %d bodies cannot be moved",
		s.name(m.file.Number), m.gaps, m.file.live)
}
