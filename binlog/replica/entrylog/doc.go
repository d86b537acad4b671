// Package entrylog keeps the entries and the hard state of a raft node on disk, for
// go.etcd.io/raft/v3 with asynchronous storage writes. It implements raft.Storage.
// It knows nothing of jobs, of snapshots' contents, or of the network.
//
// # Use
//
// The owner of the raft node has one goroutine that writes:
//
//	l, err := entrylog.Open(dir, entrylog.Options{Snapshot: pointer})
//	rn, err := raft.NewRawNode(&raft.Config{Storage: l, AsyncStorageWrites: true, ...})
//
//	// the writer, with all MsgStorageAppend that wait:
//	if m has a snapshot {
//		... make the snapshot durable, then its directory, then the pointer ...
//		err = l.Install(its last entry)
//	}
//	err = l.Append(updates...)     // one write and one sync for all
//	... send the responses of all, in order ...
//	err = l.Mark()                 // when nothing has come for a moment
//	err = l.Trim(id)               // when a snapshot of this node's own is durable
//
// All else may be called from any goroutine, and never waits for a write: the raft
// goroutine, as raft.Storage asks for it, and others that read entries. Close comes
// last, from the writer; readers get ErrClosed afterwards.
//
// The owner promises:
//
//   - Options.New is set only until the node's identity is durable.
//   - What Options.Snapshot, Trim and Install name is durable: the snapshot, its
//     directory and the pointer to it were synced, in this order, before the call.
//   - Trim names an entry that raft knows to be applied, because its MsgStorageApplyResp
//     was stepped, and comes behind the Append of that entry. Raft panics if it finds
//     entries gone that it believes not to be applied.
//   - Updates come in raft's order. After ErrNoSpace the same ones come again, and
//     their responses stay back for as long.
//   - After ErrFailed, ErrInvalid and any *DamageError the process ends.
//   - A disk that hangs lets calls hang. Deadlines are the owner's.
//
// # What holds
//
// A raft node must never lose what it has told another node, above all a vote and
// an entry. What it has told is what Append has returned nil for, because responses
// leave only then. So:
//
//  1. When Append, Trim or Install has returned nil, what it wrote survives any number
//     of crashes and power cuts, at any time, also during a later Open. Or Open fails.
//  2. After a crash a call that did not return has been done in whole or not at all.
//  3. Entries that were superseded do not come back once the call has returned.
//  4. Readers are told only what is on disk.
//
// Why this is so:
//
//   - One call writes one frame, with one WriteAt and one Sync, and the next frame is
//     not written before that Sync has returned nil. If a Sync fails, nothing is ever
//     written again by this process. So at any moment at most one frame is not known
//     to be on disk: the last one. A sound head of a frame is proof that everything
//     before it is on disk; the head's position is the synced position that each write
//     carries. A mark is a frame without items, written only as such proof.
//   - A frame counts only if all of it is sound: its head, all its items, their number
//     and their data are under checksums that cover each other. Hence 2.
//   - A frame counts only at the position that it names, and only if it names the
//     checksum of the frame before. That checksum covers the one before it, and so on.
//     So no frame of an earlier life of the same place can continue a later frame.
//     Nothing is written in place: a conflicting entry stands behind what it
//     supersedes, and the order of frames decides. Hence 3. The term in the hard state
//     never falls from frame to frame, and the terms of entries never fall with their
//     index; Open checks both.
//   - Open cuts only a last frame that is not sound, only in the last segment, and only
//     if no sound head follows anywhere behind it. All else that cannot be read as it
//     was written is damage, and nothing has been changed when Open says so.
//   - Open writes the last frame again, whose sync may have failed in a process before,
//     with zeros for what it has cut, and syncs it, and the directory, before it
//     returns. The system may have believed the pages to be on disk; now they are
//     dirty and are written. Hence 1.
//   - A segment's file gets a durable name before its header is written, and the
//     header is synced before the first frame is written. So a file without a sound
//     header holds nothing, or is damaged.
//   - Files are removed only when the frame is on disk that makes the log begin behind
//     them, oldest first, each durably before the next one. So the files that are left
//     have no gap. A header repeats what the log says before the segment, but for the
//     entries; those that must be there are counted at Open.
//   - The state that readers see is changed after the Sync. Hence 4.
//
// Between two frames these hold, and Append refuses what would break them (ErrInvalid):
// the log begins behind its base; base <= commit index <= last entry; no entry that is
// committed is superseded; terms do not fall; there is one vote in a term; no entry is
// of a later term than the hard state's.
//
// # Snapshots
//
// A log that lacks a snapshot's last entry, because it ends before or has an entry of
// another term in that place, is emptied and begins behind it; otherwise the entries
// behind it stay. Install and Open do that. The commit index is raised to the
// snapshot's; if the snapshot's term is higher than the log's, so is the term, without
// a vote. Open leaves the entries before the snapshot: they go with the next Trim. A
// pointer that names an older snapshot than the log begins behind, or another entry
// than the one that is committed, contradicts the log: damage.
//
// # The files
//
//	lock                  a lock of fcntl's, for the life of a Log
//	entries.0000000001    a segment; the next number follows
//
// All integers are little-endian. CRC is CRC-32C (Castagnoli, reflected, initial value
// and final xor ffffffff). A position counts bytes since the log was made, with
// segments' headers but without what is left over at their ends. Everything starts at
// a multiple of eight.
//
// A segment starts with a header of 104 bytes:
//
//	  0  8  "TRELENT\n"
//	  8  4  version of the format, 1
//	 12  4  index of the segment, as in its name
//	 16  8  seed, the same in all segments of a log
//	 24  8  position of the header's first byte
//	 32  8  index of the entry that the log begins behind
//	 40  8  its term
//	 48  8  index of the last entry
//	 56  8  its term
//	 64  8  hard state: term
//	 72  8  vote
//	 80  8  commit index
//	 88  4  checksum in the head of the last frame before the segment, 0 if there is none
//	 92  8  zero
//	100  4  CRC of the 100 bytes before
//
// Frames follow, up to where the next segment's header says that it starts, or in the
// last segment to where only zeros follow. A frame starts with a head of 32 bytes:
//
//	 0  4  CRC of the seed (8 bytes) and bytes 4 to 31
//	 4  4  the same field of the frame before
//	 8  8  position of the frame; everything before it is on disk
//	16  4  length of the frame in bytes, at most 2^30
//	20  4  number of items, 0 in a mark
//	24  4  CRC of the seed and the first 32 bytes of each item
//	28  4  zero
//
// The seed is random and only the server knows it, so that no client can make a body
// that passes for a frame. An item starts with
//
//	0  4  CRC of the seed and the item from byte 4 to its end
//	4  1  kind
//	5  1  of an entry, raft's type of it
//	6  2  zero
//
// and goes on, by kind:
//
//	1 entry       8 index, 16 term, 24 length of the data (4 bytes), 28 zero (4 bytes),
//	              32 data, then zeros up to a multiple of eight
//	2 hard state  8 term, 16 vote, 24 commit index
//	3 trim        8 index, 16 term: the log begins behind this entry, which it holds
//	4 reset       8 index, 16 term: the log has no entries and begins behind this one
//
// Items are done in order; an entry supersedes those from its index on. A trim or a
// reset raises commit index and term as said under Snapshots; a hard state follows that
// repeats it.
//
// # Cost and limits
//
// An append copies its entries once, writes once and syncs once; a new segment costs
// a further sync of the writer, and its file is made before. Memory: Options.CacheSize,
// the largest frame, 8 bytes for each entry in the log, and while Open runs a segment.
// Open reads the whole log. Every segment keeps a file open.
//
// It is assumed that a disk that loses power while it writes a sector leaves there, byte
// for byte, what was before or what was to be: a frame may share a sector with the one
// before.
//
// What cannot be noticed: damage to the last frame when no mark followed, which looks
// like a torn write (the owner marks when idle, and Open and Close do); damage to a
// last mark, with which nothing is lost; the loss of whole files at the end of the log;
// one in four billion random changes.
package entrylog
