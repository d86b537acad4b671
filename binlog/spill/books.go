package spill

import (
	"cmp"
	"math"
	"slices"

	"trellis/binlog/journal"
)

// A File is a body file that is whole and durable, with its name. A list of a snapshot has it.
type File struct {
	Number  uint32
	Seed    uint32 // of its records' checksums
	Size    int64  // bytes
	Sum     uint32 // CRC-32C of all of them
	Records uint32 // that were written to it
	Bodies  int64  // bytes of their bodies
}

// phase says what a body file is.
//
//	begin:    -> open
//	seal:     open -> whole
//	fail:     open -> broken; name: whole -> broken
//	damaged:  whole -> stuck, broken -> ruined
//	list:     -> whole; all others -> stale
//	unlisted: stale -> spent
//	drop:     all but stale and open ->
type phase uint8

const (
	stale  phase = iota // of an owner before; nobody has read a list with or without it
	open                // is written to
	spent               // of an owner before, and in no list: nobody needs it
	whole               // sealed, and durable
	broken              // a write or a sync has failed: what was told before that can be read
	stuck               // whole, but some of what lives cannot be read
	ruined              // broken, and some of what lives cannot be read
)

// file is what the books have of a body file.
type file struct {
	File
	phase   phase
	named   bool   // its name is durable
	live    int64  // bodies that somebody refers to
	bodies  int64  // bytes of them
	emptied uint64 // the last walk that had begun when nobody referred to any more, if nobody does
}

// needed is how many bytes of the file are those of bodies that live, with their records.
func (f *file) needed() int64 {
	if f.live == 0 {
		return 0
	}
	return f.bodies + f.live*(f.Size-f.Bodies)/int64(max(f.Records, 1))
}

// books decide which file is to be moved and which may be removed. They have no file.
type books struct {
	limit   int64 // bytes from which on a file is sealed
	files   map[uint32]*file
	held    map[uint32]int // how many hold a file of that number, which then stays
	last    uint32         // the greatest number that was ever given
	walks   uint64         // of snapshots, that have begun
	current uint64         // of them, the one whose snapshot counts
	ended   int64          // bytes of records to whose bodies nobody refers any more, since toMove was asked
}

// firstNumber is that of the first body file: to the jobs of a member, 1 is the log.
const firstNumber = 2

func newBooks(limit int64) *books {
	return &books{limit: limit, files: map[uint32]*file{}, held: map[uint32]int{}, last: firstNumber - 1}
}

// begin gives a number to a file that is written to from now on.
func (b *books) begin(seed uint32) *file {
	b.last++
	f := &file{File: File{Number: b.last, Seed: seed}, phase: open}
	b.files[b.last] = f
	return f
}

// found takes a file that lies in the directory.
func (b *books) found(number uint32, size int64) {
	b.files[number] = &file{File: File{Number: number, Size: size}, phase: stale, named: true}
	b.last = max(b.last, number)
}

// list makes the files of a list the only ones that count, with no bodies that anybody refers to yet.
func (b *books) list(files []File) {
	for _, f := range b.files {
		f.phase, f.live, f.bodies = stale, 0, 0
	}
	for _, x := range files {
		b.files[x.Number] = &file{File: x, phase: whole, named: true}
		b.last = max(b.last, x.Number)
	}
}

// unlisted says that a list was read whole: the files that are not in it are of no use.
func (b *books) unlisted() {
	for _, f := range b.files {
		if f.phase == stale {
			f.phase, f.emptied = spent, 0
		}
	}
	b.current = max(b.current, 1)
	b.walks = max(b.walks, 1)
}

// keep notes that a snapshot refers to a body. It reports false if no list has the file.
func (b *books) keep(number uint32, size uint32) bool {
	f := b.files[number]
	if f == nil || f.phase != whole {
		return false
	}
	b.add(number, size)
	return true
}

// add notes that somebody refers to a body.
func (b *books) add(number uint32, size uint32) {
	f := b.files[number]
	f.live++
	f.bodies += int64(size)
}

// forget notes that nobody refers to a body any more. It reports whether these have become so many that toMove is to be
// asked.
func (b *books) forget(number uint32, size uint32) (many bool) {
	f := b.files[number]
	if f == nil || f.live == 0 {
		panic("spill: a body is forgotten to which nobody refers")
	}
	f.live--
	f.bodies -= int64(size)
	if f.live == 0 {
		f.emptied = b.walks
	}
	b.ended += journal.FullFixed + int64(size)
	return b.ended > b.limit/4
}

// damaged notes that bodies of a file that was moved are still there, because they cannot be read.
func (b *books) damaged(f *file) {
	if f.phase == broken {
		f.phase = ruined
	} else {
		f.phase = stuck
	}
}

// name notes that the names of all files are durable, or that this has failed: of those that were not durable before
// nobody knows what they are now.
func (b *books) name(durable bool) {
	for _, f := range b.files {
		switch {
		case durable:
			f.named = f.named || f.phase != open
		case !f.named && f.phase == whole:
			f.phase = broken
		}
	}
}

// toMove is the file whose bodies are to be moved to another one, 0 if none is: a broken one, which no list may have,
// or that of which the least lives, when files that have some are half as long again as what lives, and one file more.
func (b *books) toMove() (number uint32) {
	b.ended = 0
	var size, needed int64
	least := math.Inf(1)
	for _, n := range b.numbers() {
		f := b.files[n]
		if f.live == 0 || f.phase >= stuck {
			continue
		}
		size += f.Size
		needed += f.needed()
		switch share := float64(f.needed()) / float64(f.Size); {
		case f.phase == broken:
			return n
		case f.phase == whole && share < least:
			number, least = n, share
		}
	}
	if size <= needed+needed/2+b.limit {
		return 0
	}
	return number
}

// removable are the files that may be removed, of which no list in held is. A walk has told where bodies are that have
// left since: a file was empty before that of the current snapshot began. The last one stays, so that its number is not
// given again after a restart.
func (b *books) removable(held map[uint32]bool) (list []uint32) {
	for _, n := range b.numbers() {
		f := b.files[n]
		if f.phase > open && f.live == 0 && f.emptied < b.current && n != b.last && !held[n] && b.held[n] == 0 {
			list = append(list, n)
		}
	}
	return list
}

// release lets go of a file that was held.
func (b *books) release(number uint32) {
	if b.held[number]--; b.held[number] == 0 {
		delete(b.held, number)
	}
}

// numbers are those of all files, in order.
func (b *books) numbers() []uint32 {
	list := make([]uint32, 0, len(b.files))
	for n := range b.files {
		list = append(list, n)
	}
	slices.SortFunc(list, cmp.Compare)
	return list
}

// Stats tell of the body files.
type Stats struct {
	Files  int
	Bytes  int64 // of all of them
	Needed int64 // of them, what bodies take to which jobs refer
	Empty  int64 // of them, bytes of files in which there are none: they go after the next snapshot
	Stuck  int   // files that are damaged, and stay until what lives in them has ended

	Unreadable uint64 // bodies that Load was asked for and that are damaged, of all lives
}

func (b *books) stats() (s Stats) {
	for n, f := range b.files {
		s.Files++
		s.Bytes += f.Size
		s.Needed += f.needed()
		if f.live == 0 && f.phase != open && b.held[n] == 0 {
			s.Empty += f.Size
		}
		if f.phase >= stuck {
			s.Stuck++
		}
	}
	return s
}
