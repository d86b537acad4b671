// Package elevator decides which part of which file is read next, as the I/O scheduler of a disk
// does: it is told what is wanted, what has become of each read, and the time. It has no file and
// no goroutine.
//
// # Use
//
//	ended := e.Add(requests, now)         // what is refused has ended at once
//	read := e.Next(now, load)             // until it is nil; each is made on a goroutine
//	if e.Returned(read) {                 // the system has answered, and was not given up
//		ended = e.Ended(read, outcomes, now)
//	}
//	ended = e.Tick(now)                   // at e.Wake(), or later
//
// After each of these Next may have more to read.
//
// # Order
//
// Urgent requests are read in turns of those who ask, each turn one read of at most 64 KiB, or of
// one request of up to 128; up to 8 at a time, 2 while commits need the disk, of together 256 KiB.
// All others share one read of at most 128 KiB at a time: of seven, four are ahead, two of walks and one
// of moves, as far as there are such. Each queue is in the order of arrival. A read serves whatever
// waits in the same 64 or 128 KiB of its file with gaps of at most 32 KiB between. What is longer than
// a read comes in pieces.
//
// # Invariants
//
//   - Each request ends once: sound, or with an error of package journal.
//   - Nothing is unreadable before it was read three times, and while a disk gives nothing at all:
//     when three reads in a row fail, another file is probed.
//   - A read that hangs 10 s, or a probe that fails, ends all that waits, and nothing is read for 1 s.
//     Nothing is read, either, while 8 reads hang.
//   - A request whose record is not written for 10 s ends as if the disk hung.
package elevator
