// Package spill keeps bodies of jobs in files of their own, so that they need not be in memory. A member of a cluster
// has such body files, because what it knows of a job is in its snapshots and entries, from which nothing can be read
// by its place. A server alone has its log.
//
// # Use
//
//	s, err := spill.Open(options)              // the directory, made if need be
//	l, err := s.Begin(owner, files)            // for the jobs of a snapshot, which has that list of files
//	err = l.Keep(place, size)                  // each body that the snapshot refers to
//	l.Listed()                                 // it was read whole
//
//	err = l.Ready()                            // Add waits for no disk then
//	err = l.Add(record)                        // a body that is to leave memory
//	err = l.Write()                            // when Full reports true, or nothing follows: Owner.Spilled is called
//	more, err := l.Move()                      // a slice of compaction, now and then
//	l.Load(fetches)                            // Owner.Loaded is told the bodies
//	l.Forget(place, size)                      // the job refers to its body there no more
//	<-l.Bell()                                 // bodies are to be added or moved; l.Crowded() rings it
//
//	walk := s.Walk()                           // a snapshot begins
//	files, err := s.Seal(numbers)              // it has told of places in these: its list
//	s.Current(walk)                            // it counts now
//	err = s.Remove(held)                       // files that nobody needs, given the lists of all snapshots there are
//
//	in := l.Incoming()                         // a snapshot comes from another member
//	in.Here(id, place)                         // each body that this one has: the other one is told in.IDs
//	place, ok := in.Place(id)                  // of one that does not come
//	place, err := in.Add(record)               // of one that comes
//	files, err := in.Seal(numbers)             // its list
//	in.End()                                   // it counts, or never will
//
//	c, err := spill.Read(fs, dir, number)      // all of a file, for people who look
//
// A [Life] is the time in which one owner has the bodies. Begin ends the one before, whose owner takes nothing any more
// by then; what is said of it afterwards counts for nothing. Add, Write, Move, Seal, Remove and Begin may wait for the
// disk, and for one another, as what an [Incoming] does may; Add does not behind Ready and while Full is false. All
// else does not wait, and any goroutine may call it. The owner is called without a lock.
//
// # Invariants
//
//   - Owner.Spilled and Owner.Moved are told a place only when the body is synced there. When a write or a sync fails,
//     the file is given up, no list has it, and its bodies are moved to another one before all others.
//   - A list has files that are whole and durable, with their names.
//   - A file is removed only if nobody refers to a body in it, no list that is held has it, no Incoming was told of it,
//     and it was empty before the walk of the current snapshot began: a walk tells of places that compaction may empty
//     before the snapshot counts. Before a list was read whole nothing is removed.
//   - No number is given twice in a process, nor after a restart one that a list, or a file that is there, has. The
//     records of each file have a seed of their own, so that what lay on the disk before does not pass for them.
//   - A body that cannot be read when its file is moved stays where it is, and so does the file.
//   - An Incoming tells of a body that is synced, in a file that a list may have, and not known to be damaged. Bodies
//     of an id that was committed are equal, so that it may be taken for the body of the same job in another member's
//     snapshot, whatever has become of the job here; and it stays where it is until End.
//
// # Structure
//
// What is to be moved and what may be removed is decided by books, which have no file (books.go). A Store writes
// (store.go) and moves (move.go); bodies are read as those of the log are (internal/bodies).
//
// # The directory
//
//	trellis.0000000002    a body file: a segment of package record, which is the oldest that it needs itself
//
// It has full records and an end record, or none if it was not sealed. What a record says but for its id and body may
// have changed since: nobody reads it.
//
// # A set of ids
//
// What a member tells of the bodies that it has is an [IDs] as Encode writes it. Ids are in leaves of 512: leaf n has
// those from 512 n on. Behind a byte with the version, 1, there are the leaves that have any, by their numbers:
//
//	uvarint   leaves without ids since the one before
//	64        bit i of word j, of 8 bytes and little-endian, is id 64 j + i of the leaf
//
// so that 100 million jobs that were put one after the other take 12.7 MB. There are at most 524,288 leaves; a member
// that has more does not tell of the rest.
//
// # Limits
//
// A file is sealed at 64 MiB, or behind the record that exceeds that. What is written at a time is 512 KiB, or one
// record, and synced before more is: a sync of another file waits for no more. Files take half as much again as what
// lives in them, and one file more, and what waits for the next snapshot (Stats.Empty).
//
// An Incoming takes 8 bytes of memory for each body that it was told of, and some 100 for each leaf.
//
// # What is missing
//
//   - A standby whose disk is full goes on to apply what its log has, and grows by that, since its log becomes shorter
//     only so. While it loads it waits.
//   - A member that cannot read a body when it starts without a limit does not start. With one it starts.
//   - Snapshots wait for the disk while a piece is written, as pieces do for them.
package spill
