package resident

import (
	"trellis/binlog/journal"
	"trellis/engine/internal/arena"
)

// An Entry stands for the body of a job that is in memory.
type Entry struct {
	ID    uint64        // the job's
	Pos   journal.Pos   // what is in the journal up to there has its full record
	Place journal.Place // of that record
}

// Lists are the entries of a shard, whose lock guards them.
type Lists struct {
	chunks arena.Slab[chunk]
	fresh  list
	kept   list
	spare  arena.Ref // a chunk for the next Add; 0 for none
	first  *list     // that has what First returned
}

// chunkEntries are as many as make a chunk of almost 4 KiB.
const chunkEntries = 170

// A chunk has entries[from:to]. It is never empty, but for the only one of a list.
type chunk struct {
	entries  [chunkEntries]Entry
	from, to uint16
	next     arena.Ref // in the list; 0 for none
}

// A list is chunks in the order of its entries.
type list struct {
	head, tail arena.Ref // 0 if there are no entries
	count      int
}

// Open makes l, which is zero, empty lists.
func (l *Lists) Open() { l.chunks = arena.NewSlab[chunk]() }

// Len is the number of entries, void ones included.
func (l *Lists) Len() int { return l.fresh.count + l.kept.count }

// Room makes sure that the next Add finds room. It fails when the system has no more memory.
func (l *Lists) Room() error {
	if l.spare != 0 || l.hasRoom(&l.fresh) && l.hasRoom(&l.kept) {
		return nil
	}
	r, err := l.chunks.Alloc()
	if err != nil {
		return err
	}
	l.spare = r
	return nil
}

// hasRoom reports whether the last chunk of a list has.
func (l *Lists) hasRoom(x *list) bool { return x.tail != 0 && l.chunks.At(x.tail).to < chunkEntries }

// Add adds an entry behind the others that are fresh, or that are kept. Room was called since the Add before.
func (l *Lists) Add(e Entry, fresh bool) {
	if fresh {
		l.add(&l.fresh, e)
	} else {
		l.add(&l.kept, e)
	}
}

func (l *Lists) add(x *list, e Entry) {
	if !l.hasRoom(x) {
		r := l.spare
		l.spare = 0
		c := l.chunks.At(r)
		c.from, c.to, c.next = 0, 0, 0
		if x.tail == 0 {
			x.head = r
		} else {
			l.chunks.At(x.tail).next = r
		}
		x.tail = r
	}
	c := l.chunks.At(x.tail)
	c.entries[c.to] = e
	c.to++
	x.count++
}

// First is the entry of the body that should leave memory first, of those in the journal up to a position. What stands
// behind one that is not is younger.
func (l *Lists) First(durable journal.Pos) (e Entry, ok bool) {
	for _, x := range [...]*list{&l.fresh, &l.kept} {
		if x.count == 0 {
			continue
		}
		c := l.chunks.At(x.head)
		if e = c.entries[c.from]; e.Pos <= durable {
			l.first = x
			return e, true
		}
	}
	return Entry{}, false
}

// Drop takes out the entry that First has returned.
func (l *Lists) Drop() { l.take(l.first) }

// Pass puts the entry that First has returned behind all that are kept.
func (l *Lists) Pass() { l.put(&l.kept, l.take(l.first)) }

// Sweep looks at up to n entries of each list, the first ones, and forgets those that are void. The others come behind
// all of their list.
func (l *Lists) Sweep(n int, void func(Entry) bool) {
	for _, x := range [...]*list{&l.fresh, &l.kept} {
		for range min(n, x.count) {
			if e := l.take(x); !void(e) {
				l.put(x, e)
			}
		}
	}
}

// take takes out the first entry of a list.
func (l *Lists) take(x *list) Entry {
	c := l.chunks.At(x.head)
	e := c.entries[c.from]
	c.from++
	x.count--
	if c.from < c.to {
		return e
	}
	r := x.head
	x.head = c.next
	if x.head == 0 {
		x.tail = 0
	}
	if l.spare == 0 {
		l.spare = r
	} else {
		l.chunks.Free(r)
	}
	return e
}

// put adds an entry again.
func (l *Lists) put(x *list, e Entry) {
	if !l.hasRoom(x) && l.Room() != nil {
		return // without an entry the body stays in memory, which is not worse than to have no memory
	}
	l.add(x, e)
}

// Discard gives all memory back. The lists are empty then, and not used again.
func (l *Lists) Discard() {
	l.chunks.Discard()
	*l = Lists{}
}
