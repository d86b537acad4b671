// Package snapshot keeps a queue's jobs as of an entry of the replicas' log: it writes
// them, reads them, sends them to another node, and names the ones that count. It knows
// nothing of raft's log, of the network, or of how a queue is walked.
//
// # Use
//
// A node that takes a snapshot notes the entry N that is applied, writes each job as it is
// when the walk comes to it, and then what the entries behind N up to M have changed. M is
// an entry that was committed after the walk had ended:
//
//	w, err := snapshot.Create(fs, dir)
//	err = w.Full(job)                                // each, by id
//	err = w.Hold(hold)                               // behind its job
//	err = w.Setting(setting)                         // each that is in force
//	err = w.Numbers(numbers)                         // those of the loops that are not gone
//	err = w.Full(job), w.Update(job), w.Delete(id)   // the records of the entries in (N, M]
//	meta, path, err := w.Finish(meta)                // as of M
//	err = snapshot.SetCurrent(fs, dir, &meta)
//	... the prefix of the entry log up to M may go now ...
//	err = snapshot.Prune(fs, dir, those that are being sent)
//
// A job whose body is in a body file (see package spill) is written with its place there, and told with it, unless
// the standby is one of Filled. Then the walk and these files go together:
//
//	walk := store.Walk()                             // before the first job
//	meta.Files, err = store.Seal(w.Files())          // before Finish
//	store.Current(walk)                              // behind SetCurrent
//
// Such a snapshot is sent by SendPlain, with all bodies, or by SendRest, without those that the receiver has, which is
// asked first:
//
//	in := life.Incoming()                                         // the receiver, which tells in.IDs
//	err = snapshot.SendRest(fs, path, bodies, ids, w)             // the leader
//	meta, path, err := snapshot.ReceiveRest(fs, dir, index, term, r, in)
//	... it counts, or is not needed ...
//	in.End()
//
// The founders of a cluster begin with [WriteInitial]. A node that starts, and one that
// catches up:
//
//	meta, path, err := snapshot.Current(fs, dir)
//	err = snapshot.Load(fs, path, standby, nil)
//
//	err = snapshot.Send(fs, path, w)                 // the leader
//	meta, path, err := snapshot.Receive(fs, dir, index, term, r)
//	meta, err := snapshot.Extract(fs, dir, r)        // a backup
//	err = snapshot.SetCurrent(fs, dir, &meta)        // when raft wants it installed
//
// A Writer is for one goroutine. One goroutine at a time calls SetCurrent. Current and
// WriteInitial come before all else. Everything else may run at the same time, also
// several Writers and Receives.
//
// The owner promises:
//
//   - Records of one job are written in the order of its states, and none follows its
//     delete: ids are not used again.
//   - The Meta is as of M, and M is committed.
//   - While Load or Send reads a snapshot, its path is in Prune's list.
//   - Before anything is removed for a snapshot, SetCurrent has returned nil.
//   - A body file in a snapshot's list stays while the snapshot is current, or is read or sent.
//   - A standby for which Load has returned an error is thrown away. It is told which ids
//     never become jobs, and to be strict, after Load.
//
// # What holds
//
//  1. A snapshot that Finish or Receive has returned is complete and survives power cuts,
//     and so does the pointer when SetCurrent has returned. When a step fails or power is
//     cut, the pointer names the snapshot before or the new one, and either is whole.
//  2. Loading it gives the jobs as of M.
//  3. What cannot be read as it was written is reported as damage, with file and offset.
//     Nothing that is damaged, missing or left unfinished is taken for a snapshot, and
//     Current removes nothing in the face of damage.
//  4. What another node has sent counts only when all checksums are right and each record
//     was read from this node's file, or, by ReceiveRest, was checked and written anew.
//  5. A full disk fails what was being written and changes nothing else. What failed is
//     removed at once; what a crash has left is removed by Current.
//
// Why this is so:
//
//   - The body files are synced with their names, and the file of jobs, and the segments, then the description; then
//     the directory with their names; only then does the directory get its name, and the directory of all snapshots
//     is synced. So a directory with the name of a snapshot is complete. When one is removed it loses that name
//     first, durably.
//
//   - The pointer is written to another file, synced, and renamed: after a crash it is the
//     old one or the new one. It names the checksum of the description, and that has the
//     checksums and sizes of all segments. The pointer never goes back to an older entry.
//
//   - A file whose sync has failed is never used: the snapshot is given up, and the next
//     one has new files. So a failed sync is no reason to end the process.
//
//   - Let J be a job that is alive at M. If it was put before N, the walk has met it, and
//     has written it as it was at some moment; if later, its full record is in (N, M].
//     All its records in (N, M] follow in their order. Each record replaces all that it
//     speaks of, full records everything and updates all that changes without one, so
//     that after the last one J is as it was at M, or, without any, as the walk has met it;
//     and the walk cannot have met what was executed after M, because M was chosen after
//     it. A job that was deleted up to M has its delete in (N, M], or the walk has not met
//     it. So 2 holds; and since nothing follows a delete, a reader that takes deletes
//     first, as recovery of the binlog does, comes to the same.
//
//   - A stream of SendRest tells the same of each job as the snapshot does, and what it tells first is in the file of
//     jobs that ReceiveRest makes, if the job has a body: there it is older than all else, wherever it stood. The body
//     is the job's, because no two jobs have an id. If the job has ended at the receiver since that told of it, the end
//     is an entry behind M, or the receiver has applied M and needs no snapshot.
//
//   - The same holds of the settings, of which the walk has met those in force at a moment
//     behind N.
//
// # The directory
//
//	9134-7/                  a snapshot: index and term of its entry, M
//	  trellis.0000000001     a segment of the binlog; the next number follows
//	  jobs                   jobs that have their bodies in body files, if there are any
//	  meta                   its description
//	current                  the pointer
//	current.tmp              one that is being written
//	unfinished.1/            a snapshot that is being written or received
//	unfinished.9120-7/       one that is being removed, or could not be made durable
//
// The segments are those of package record, so that a copy of them, without "meta", can be
// served with -b, and read with "trellis binlog verify" and "dump", unless there is a file of jobs. The directory
// itself is refused, for a server would write into it.
//
// The file of jobs has the format of the indexes of a log (see package internal/index), with an item that names the
// body file in which those that follow have their bodies. Its header is that of segment 1 with all other fields
// zero, the footer says no used bytes. All of it is older than what the segments say of the same jobs: a walk writes
// a job to one of them, and what was changed meanwhile to the segments.
//
// In all segments the oldest that is needed is 1, the seed is the same, drawn for each
// snapshot, the sync interval is 0, the number of the machine's start is unknown, and
// everything before the header is said to be on disk. A segment ends at 16 MiB, unless its
// only record is larger. It has full, update, delete, setting, hold, close and numbers records, all
// without origins, and an end record; in the
// last one there is a stop record before that, so that nothing of a copy can be taken for
// a torn end, and the end record has the highest id of the description, so that a server
// with -b goes on behind it.
//
// All integers are little-endian. CRC is CRC-32C (Castagnoli, reflected, initial value and
// final xor ffffffff).
//
// The description, in "meta" and at the start of a stream:
//
//	  0  8  "TRELSNP\n"
//	  8  4  version of the format, 1, or 2 with body files
//	 12  4  length of the description in bytes, at most 1 MiB
//	 16  8  index of M
//	 24  8  term of M
//	 32  8  term of the last batch up to M
//	 40  8  sequence of that batch
//	 48  8  stamp: cluster time at M in nanoseconds since 1970
//	 56  8  the highest id that was used up to M
//	 64  8  decided: no id below this one is going to become a job
//	 72  4  the greatest version of entries that may be written
//	 76  4  g: body files, 0 in version 1
//	 80  8  records in all segments but stop and end records
//	 88  8  full records
//	 96  8  bytes of all segments, and of the file of jobs
//	104  2  a: voters
//	106  2  b: learners
//	108  2  c: voters of the outgoing configuration
//	110  2  d: learners when the outgoing configuration is left
//	112  1  1 if the joint configuration is left by itself, otherwise 0
//	113  1  zero
//	114  2  e: members
//	116  4  f: segments, at least one
//	120     a+b+c+d ids of 8 bytes, in this order; e members; f segments; in version 2 the file of jobs, as a
//	        segment, and g body files; the CRC of all before (4 bytes)
//
// A body file is its number (4), seed (4), CRC of its bytes (4), full records (4), size (8), and the bytes of the
// bodies in it (8); they are in the order of their numbers. A member is its id (8 bytes), its incarnation (8), the
// length of its name (2), that of its address (2), the name, the address. A segment is its size (8) and the CRC of
// its bytes (4).
//
// The pointer has 40 bytes:
//
//	 0  8  "TRELCUR\n"
//	 8  4  version of the format, 1
//	12  4  CRC at the end of the description
//	16  8  index of M
//	24  8  term of M
//	32  4  zero
//	36  4  CRC of the 36 bytes before
//
// A stream is a description of version 1, then the bytes of the segments in order, then "DONE" and
// the CRC of the stream up to there (4 bytes).
//
// A stream of the rest, by SendRest, is a description as it is on the sender's disk, then parts, then "DONE" and the
// CRC as above. The receiver's snapshot has the description's, but for files, segments and sizes, which are its own. A
// part has a head of 8 bytes:
//
//	0  1  kind
//	1  3  zero
//	4  4  length of what follows, in bytes
//
// The kinds:
//
//	0 end      nothing follows but "DONE"
//	1 jobs     jobs with bodies that the receiver has: a whole file of jobs of some 64 KiB, without places
//	2 records  a piece of a segment, at most 1 MiB and a record; the first begins with its header, none has its end
//
// What is first told of a job that has a body is in a part 1, or a full record, which the receiver takes for a job of
// its file of jobs. Whatever else is told of it is later, and among the records in its order. Only a receiver that has
// told its ids is sent such a stream, and reads no other then; how it tells them is in package spill.
//
// # Cost and limits
//
// A Writer needs 1 MiB, and for a moment the largest record, at most [entry.MaxSize]; Load
// and Receive a window of 256 KiB, or the largest record; Send 256 KiB. A Writer and Load
// also keep the names of some 65,000 tubes at most. Nothing grows with the number of jobs but
// the list of segments, 12 bytes each: at most [MaxSegments], which is 1 TiB. A segment is
// synced when it is full, so that no sync has more than 16 MiB, or
// one record, to write.
//
// A job with its body in a body file takes 48 bytes usually, and 8 more wherever the file is another one than that of
// the job before. SendPlain needs the snapshot and these bodies to be read twice, and no disk. SendRest reads the
// snapshot once, and of the bodies those that it sends, 4 MiB of records at a time in the order of their places: a few
// times that it needs, and a set of the ids that it has sent. In its stream a job takes 48 bytes usually, or its record
// if the body is sent. ReceiveRest needs what a Writer does, a part, and the same set.
//
// A snapshot takes the size of all other full records, as the binlog does, and what was changed
// during the walk. The one before stays until Prune.
package snapshot
